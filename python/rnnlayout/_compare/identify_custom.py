"""identify: layouts that are in no row, as somebody's own code writes them.

Their tensors are described in the letters of the table: g gate, o output unit, i input unit, the
slowest first, with a comma between dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import permutations, product

import numpy as np

from rnnlayout._model.layout import known_layouts
from rnnlayout._model.spec import Spec

from .blocks import may_sum_biases
from .identify_network import Network, block_places

GateBlocks = dict[tuple[str, str], np.ndarray]  # (role, gate) -> a matrix or bias


@dataclass(frozen=True, eq=False)
class SplitTensors:
    """The tensors of one layer and direction by what they must be, from their sizes.

    W, R: the input and the recurrent matrices of all gates, one array each. biases: vectors of G H
    elements. joined: "x before h" or "h before x" if W and R are parts of one tensor, else "".
    """

    W: np.ndarray
    R: np.ndarray
    biases: tuple[np.ndarray, ...]
    joined: str = ""
    _dense: dict[str, tuple[str, np.ndarray]] = field(default_factory=dict, repr=False)

    def dense_matrix(self, role: str, form: str, G: int, H: int) -> np.ndarray:
        """Return W or R as (G, H, I), without gaps. It is kept until it is asked for in another
        form."""
        kept, dense = self._dense.get(role, ("", None))
        if dense is None or kept != form:
            dense = np.ascontiguousarray(_arrange_axes(getattr(self, role), form, G, H))
            self._dense[role] = form, dense
        return dense


@dataclass(frozen=True)
class AxisForm:
    """How the tensors are arranged.

    W, R: the axes of the input and the recurrent matrices. gates: their letters in the order in
    memory. swapped: whether the recurrent bias comes before the input bias. negated: whether z
    scales the candidate, as 1 - z does in cuDNN. forget: what is added to the bias of gate f.
    """

    gates: str
    W: str
    R: str
    swapped: bool = False
    negated: bool = False
    forget: float = 0.0

    def blocks(self, part: SplitTensors) -> GateBlocks:
        """Return the matrices and biases, in the sense of the package's own layouts."""
        G, found = len(self.gates), GateBlocks()
        H = math.isqrt(part.R.size // G)
        for role, form in (("W", self.W), ("R", self.R)):
            matrices = part.dense_matrix(role, form, G, H)
            found |= {(role, gate): matrices[k] for k, gate in enumerate(self.gates)}
        found |= self.biases(part, H)
        if self.negated:
            found |= {(role, "z"): -found[role, "z"] for role, gate in found if gate == "z"}
        if self.forget:
            found["bW", "f"] = found.get(("bW", "f"), np.zeros(H)) + self.forget
        return found

    def biases(self, part: SplitTensors, H: int) -> GateBlocks:
        """Return the biases as they are."""
        G, found = len(self.gates), GateBlocks()
        roles = ("bR", "bW") if self.swapped else ("bW", "bR")
        order = _gate_unit_order(self.W)
        for role, bias in zip(roles, part.biases, strict=False):
            vectors = bias.reshape(G, H) if order == "go" else bias.reshape(H, G).T
            found |= {(role, gate): vectors[k] for k, gate in enumerate(self.gates)}
        return found

    def text(self, part: SplitTensors) -> str:
        """Describe the tensors."""
        said = [f"gates {' '.join(self.gates)}"] if len(self.gates) > 1 else []
        if part.joined:
            said.append(f"one matrix ({_axes_in_words(self.W, 'I + H')}), {part.joined}")
        else:
            said += [
                f"input matrix ({_axes_in_words(self.W, 'I')})",
                f"recurrent matrix ({_axes_in_words(self.R, 'H')})",
            ]
        if self.swapped:
            said.append("the recurrent bias before the input bias")
        if self.negated:
            said.append("z is multiplied with the candidate")
        if self.forget:
            said.append(f"{self.forget} is added to the bias of f")
        return ", ".join(said)


def _axes_in_words(form: str, width: str) -> str:
    """Return the dimensions in words: "go,i" is "gates x units, I"."""
    words = {"g": "gates", "o": "units", "i": width}
    return ", ".join(" x ".join(words[axis] for axis in part) for part in form.split(","))


def _gate_unit_order(form: str) -> str:
    """Return "og" if the gates of each unit are side by side, else "go"."""
    return "".join(axis for axis in form if axis in "go")


def _arrange_axes(array: np.ndarray, form: str, G: int, H: int) -> np.ndarray:
    """Return the array as (G, H, I)."""
    letters = form.replace(",", "")
    sizes = {"g": G, "o": H, "i": array.size // (G * H)}
    cut = array.reshape([sizes[letter] for letter in letters])
    return cut.transpose([letters.index(letter) for letter in "goi"])


@cache
def _array_axes(shape: tuple[int, ...], G: int, H: int, width: int) -> tuple[str, ...]:
    """Return the axes that an array of this shape may have."""
    sizes, found = {"g": G, "o": H, "i": width}, []
    for letters in permutations("goi"):
        for cuts in product((False, True), repeat=2):
            form = "".join(letter + "," * cut for letter, cut in zip(letters, (*cuts, False),
                                                                     strict=True))  # fmt: skip
            dims = tuple(math.prod(sizes[axis] for axis in part) for part in form.split(","))
            if dims == shape:
                found.append(form)
    return tuple(dict.fromkeys(found))


def axis_forms(cell: str, part: SplitTensors, H: int, reset: str) -> Iterator[AxisForm]:
    """Yield every form that the tensors of one layer may have."""
    gates = known_layouts()["cudnn"]["gates"][cell]
    G = len(gates)
    inner = [_array_axes(a.shape, G, H, a.size // (G * H)) for a in (part.W, part.R)]
    pairs = [
        (W, R)
        for W, R in product(*inner)
        if _gate_unit_order(W) == _gate_unit_order(R) and (not part.joined or W == R)
    ]
    swapped = (False, True) if len(part.biases) == 2 and reset == "after" and "n" in gates else (
        False,
    )  # fmt: skip
    negated = (False, True) if "z" in gates else (False,)
    forget = (0.0, 1.0) if "f" in gates else (0.0,)
    for (W, R), order, *more in product(pairs, permutations(gates), swapped, negated, forget):
        yield AxisForm("".join(order), W, R, *more)


def first_outputs(
    spec: Spec, forms: Sequence[AxisForm], parts: Sequence[SplitTensors], x: np.ndarray
) -> np.ndarray:
    """Return the outputs of the first step from a zero state for each form, (form, N, H).

    x: (N, I). The RNN has one direction, and the forms have the same W. R and gate f do not count
    then.
    """
    G, H, N = len(forms[0].gates), spec.hidden_size, len(x)
    x = np.broadcast_to(x, (len(forms), *x.shape))
    for part in parts:
        W = part.dense_matrix("W", forms[0].W, G, H).reshape(G * H, -1)
        products = (x.reshape(-1, x.shape[-1]) @ W.T).reshape(len(forms), N, G, H)
        x = np.stack([_outputs_of_products(spec, form, part, one)
                      for form, one in zip(forms, products, strict=True)])  # fmt: skip
    return x


_CURVES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "hard_sigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hard_sigmoid_keras2": lambda x: np.clip(x / 5 + 0.5, 0, 1),
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
}


def _outputs_of_products(
    spec: Spec, form: AxisForm, part: SplitTensors, products: np.ndarray
) -> np.ndarray:
    """Return h after a zero state. products: of W and the inputs, (N, place of a gate, H)."""
    gate, state = _CURVES[spec.recurrent_activation], _CURVES[spec.activation]
    biases = form.biases(part, spec.hidden_size)
    sums: dict[str, np.ndarray] = {}
    for letter in sorted(form.gates.replace("f", ""), key="n".__eq__):  # n may need r
        bw, br = biases.get(("bW", letter), 0.0), biases.get(("bR", letter), 0.0)
        if not may_sum_biases(spec, letter):
            br = gate(sums["r"]) * br
        sums[letter] = products[:, form.gates.index(letter)] + bw + br
    if spec.cell == "gru":
        z = gate(-sums["z"] if form.negated else sums["z"])
        return np.asarray((1 - z) * state(sums["n"]))
    if spec.cell == "lstm":
        return np.asarray(gate(sums["o"]) * state(gate(sums["i"]) * state(sums["g"])))
    return _CURVES[spec.cell.removeprefix("rnn_")](sums["h"])


def form_at_first_step(form: AxisForm) -> AxisForm:
    """Return the form as far as the first step from a zero state shows it: without the axes of R
    and the forget bias.
    """
    return replace(form, R="", forget=0.0)


# ------------------------------------------------------------------------- which tensor is which


def split_tensors(
    chunk: Sequence[np.ndarray], G: int, width: int, H: int
) -> Iterator[SplitTensors]:
    """Yield what the tensors of one layer and direction may be."""
    arrays = _stack_gates([a[0] if a.ndim == 3 and len(a) == 1 else a for a in chunk], G, width, H)
    plain = [a.size == G * H and (a.ndim == 1 or (a.shape == (G, H) and G > 1)) for a in arrays]
    pairs = [a.size == 2 * G * H and (a.ndim == 1 or len(a) == 2) for a in arrays]
    # Two rows of biases look like the matrix of two units: they are that if it fits.
    for is_bias in (plain, [one or two for one, two in zip(plain, pairs, strict=True)]):
        found = [*_split_matrices(arrays, is_bias, G, width, H)]
        yield from found
        if found:
            return


def layers_alike(options: Sequence[Sequence[SplitTensors]]) -> Iterator[tuple[SplitTensors, ...]]:
    """Yield a choice of what the tensors are for all layers and directions: the same for each, as
    far as its sizes allow it."""
    for joined in dict.fromkeys(part.joined for part in options[0]):
        alike = [[part for part in each if part.joined == joined] for each in options]
        for k in range(max(map(len, alike)) if all(alike) else 0):
            yield tuple(each[k % len(each)] for each in alike)


def _split_matrices(
    arrays: Sequence[np.ndarray], is_bias: Sequence[bool], G: int, width: int, H: int
) -> Iterator[SplitTensors]:
    biases = [a for a, vector in zip(arrays, is_bias, strict=True) if vector]
    matrices = [a for a, vector in zip(arrays, is_bias, strict=True) if not vector]
    vectors = [half for a in biases for half in np.split(a.ravel(), a.size // (G * H))]
    if len(vectors) > 2:
        return
    if len(matrices) == 2:
        for W, R in permutations(matrices):
            if W.size == G * H * width and R.size == G * H * H:
                yield SplitTensors(W, R, tuple(vectors))
    if len(matrices) == 1:
        (whole,) = matrices
        for axis, n in enumerate(whole.shape):
            if n == width + H and whole.size == G * H * n:
                first, second = np.split(whole, [width], axis)
                yield SplitTensors(first, second, tuple(vectors), "x before h")
                second, first = np.split(whole, [H], axis)
                yield SplitTensors(first, second, tuple(vectors), "h before x")


def _stack_gates(arrays: Sequence[np.ndarray], G: int, width: int, H: int) -> list[np.ndarray]:
    """Return tensors of single gates joined, in the order given."""
    found: list[np.ndarray] = []
    if G == 1:
        return list(arrays)
    groups: dict[tuple[int, ...], list[np.ndarray]] = {}
    for array in arrays:
        if array.size in (H, H * width, H * H, H * (width + H)):
            groups.setdefault(array.shape, []).append(array)
        else:
            found.append(array)
    for group in groups.values():
        if len(group) % G:  # not of single gates: with H = G a bias of all has the size of a matrix
            found += group
        else:
            found += [np.stack(group[at : at + G]) for at in range(0, len(group), G)]
    return found


def custom_network(spec: Spec, form: AxisForm, parts: Sequence[SplitTensors]) -> Network:
    """Return the network of these tensors, or of their first units if the spec has fewer.

    parts: the tensors of each layer and direction: layer 0 forward, layer 0 backward, layer 1 ...
    """
    flat = np.zeros(_flat_size(spec))
    for k, part in enumerate(parts):
        layer, direction = divmod(k, spec.num_directions)
        blocks = form.blocks(part)
        for (at_layer, at_direction, role, gate), (at, rows, columns) in block_places(spec).items():
            if (at_layer, at_direction) == (layer, direction) and (role, gate) in blocks:
                block = blocks[role, gate][:rows]
                flat[at : at + rows * columns] = (
                    block[:, :columns].ravel() if block.ndim == 2 else block
                )
    return Network(spec, flat)


def _flat_size(spec: Spec) -> int:
    return max(at + rows * columns for at, rows, columns in block_places(spec).values())
