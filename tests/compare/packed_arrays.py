"""The arrays of a network, and how a packer writes them to a buffer: right, or with fields that say
what is wrong."""

import dataclasses
import itertools

import numpy as np
from compare import mistake_machine
from compare.mistake_machine import GATES


def shapes_of(spec):
    """Yield (layer, direction, role), shape of the matrices in cuDNN's order."""
    G, H, D = len(GATES[spec.cell]), spec.hidden_size, spec.num_directions
    out = spec.proj_size or H
    for layer, side in itertools.product(range(spec.num_layers), range(D)):
        yield (layer, side, "W"), (G, H, D * out if layer else spec.input_size)
        yield (layer, side, "R"), (G, H, out)
        if spec.proj_size:
            yield (layer, side, "P"), (1, out, H)


class Arrays:
    """The arrays of a network: matrices[layer, direction, role] as (gates, rows, columns), and
    biases[layer, direction] as (vectors, gates, units). flat: cuDNN's buffer."""

    def __init__(self, spec, flat):
        self.spec, self.gates, at = spec, GATES[spec.cell], 0
        self.vectors = {"double": 2, "none": 0}.get(spec.bias, 1)
        self.matrices, self.biases = {}, {}
        for name, shape in shapes_of(spec):
            self.matrices[name] = flat[at : at + np.prod(shape)].reshape(shape)
            at += np.prod(shape)
        for place in dict.fromkeys(name[:2] for name in self.matrices):
            shape = self.vectors, len(self.gates), spec.hidden_size
            self.biases[place] = flat[at : at + np.prod(shape)].reshape(shape)
            at += np.prod(shape)
        assert at == flat.size

    def flat(self):
        return np.concatenate([x.ravel() for x in [*self.matrices.values(), *self.biases.values()]])

    def copy(self):
        return Arrays(self.spec, self.flat())

    def parts(self):
        """Return {(layer, direction, role): view}: the matrices, and the vectors of biases."""
        one = ["bR" if self.spec.bias == "recurrent" else "bW"]
        roles = {0: [], 1: one, 2: ["bW", "bR"]}[self.vectors]
        vectors = {
            (*at, role): v
            for at, b in self.biases.items()
            for role, v in zip(roles, b, strict=True)
        }
        return {**self.matrices, **vectors}


FORMS = mistake_machine.FORMS | {
    "rows": lambda x: x[:, ::-1].ravel(),
    "columns": lambda x: x[:, :, ::-1].ravel(),
    "reversed": lambda x: x.ravel()[::-1],
    "rolled": lambda x: np.roll(x, 1, 2).ravel(),
}


@dataclasses.dataclass
class Writer:
    """Writes arrays as one buffer: as cuDNN reads it, but for the fields that differ from these.

    orders: of the gates by (layer, direction, role). forms: by the same, a function of the matrix.
    nest: the slowest of layer, direction, role first. joined: "row" or "gate". placement: where
    biases are. axes: the order of the axes of biases. turned: which of these are in reverse.
    """

    orders: dict = dataclasses.field(default_factory=dict)
    forms: dict = dataclasses.field(default_factory=dict)
    layers: tuple = ()
    sides: tuple = ()
    roles: tuple = ()
    nest: str = "ldr"
    joined: str = ""
    placement: str = "last"
    axes: str = ""
    turned: frozenset = frozenset()
    pad: int = 0  # units that are added to H

    def write(self, arrays):
        """Return the buffer."""
        spec = arrays.spec
        parts = {}
        for name, x in arrays.parts().items():
            x = x[list(self.orders.get(name, range(len(x))))]
            if self.pad:
                columns = [(0, self.pad * (name[2] == "R"))] * (x.ndim == 3)
                x = np.pad(x, [(0, 0), (0, self.pad), *columns])
            parts[name] = x
        chunks = {}
        for name in self.sequence(spec):
            chunks[name] = FORMS.get(self.forms.get(name), np.ravel)(parts[name])
        if self.joined:
            chunks = self.joined_chunks(chunks, spec, len(arrays.gates))
        biases = self.all_biases(parts, spec, arrays)
        last = (*(self.roles or self.roles_of(spec)),)[-1]
        one_side = (*(self.sides or range(spec.num_directions)),)[-1]
        first = (*(self.roles or self.roles_of(spec)),)[0]
        ends, count = {
            "after each": (lambda name: name[2] == last, len(arrays.biases)),
            "after layer": (lambda name: name[1:] == (one_side, last), spec.num_layers),
            "between": (lambda name: name == list(chunks)[len(chunks) // 2 - 1], 1),
            "before each": (lambda name: name[2] == first, len(arrays.biases)),
        }.get(self.placement, (lambda name: False, 1))
        pieces = iter(np.split(biases, count))
        written = [*pieces] if self.placement == "first" else []
        for name, chunk in chunks.items():
            both = [chunk, next(pieces)] if ends(name) else [chunk]
            written += both[::-1] if self.placement == "before each" else both
        return np.concatenate([*written, *pieces])

    def roles_of(self, spec):
        return ("W", "R", "P")[: 2 + bool(spec.proj_size)]

    def sequence(self, spec):
        choices = {
            "l": self.layers or range(spec.num_layers),
            "d": self.sides or range(spec.num_directions),
            "r": self.roles or self.roles_of(spec),
        }
        for values in itertools.product(*(choices[letter] for letter in self.nest)):
            name = dict(zip(self.nest, values, strict=True))
            yield name["l"], name["d"], name["r"]

    def all_biases(self, parts, spec, arrays):
        vectors = [role for role in ("bW", "bR") if (0, 0, role) in parts]
        if not vectors:
            return arrays.flat()[:0]
        layers, sides = (
            self.layers or range(spec.num_layers),
            self.sides or range(spec.num_directions),
        )
        b = np.array([[[parts[k, d, v] for v in vectors] for d in sides] for k in layers])
        b = np.flip(b, ["ldv".index(axis) for axis in self.turned])
        axes = self.axes or ("dlvgo" if self.nest.index("d") < self.nest.index("l") else "ldvgo")
        return b.transpose(["ldvgo".index(axis) for axis in axes]).ravel()

    def joined_chunks(self, chunks, spec, gates):
        """Return W and R of each layer and direction side by side, row by row or gate by gate."""
        joined, runs = {}, gates if self.joined == "gate" else gates * spec.hidden_size
        for at in dict.fromkeys(name[:2] for name in chunks):
            order = [name[2] for name in chunks if name[:2] == at]
            both = [chunks[(*at, role)].reshape(runs, -1) for role in order if role != "P"]
            joined[(*at, "WR" if "P" in order else order[-1])] = np.concatenate(
                both, axis=1
            ).ravel()
            if "P" in order:
                joined[(*at, "P")] = chunks[(*at, "P")]
        return joined
