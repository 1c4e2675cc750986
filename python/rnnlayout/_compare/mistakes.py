"""The mistakes in a packing, in words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import frexp
from typing import TypeVar

import numpy as np

from rnnlayout._model.layout import ROLES

from .blocks import may_sum_biases
from .matrix_forms import RIGHT_FORM
from .packed_biases import KEPT_RULE, bias_sizes
from .packed_matrices import LocatedMatrix
from .packing import Packing, layer_order
from .truth import BIASES, MatrixName, Slab, Truth

BIAS_ROLE = "b"  # the role of the biases of a layer and direction in Mistake.where


@dataclass(frozen=True)
class Mistake:
    """One rule by which a buffer differs from cuDNN's.

    rule: the rule's name. text: the mistake in words. where: (layer, direction, role) of the
    matrices and biases that it concerns; the role of biases is "b". lost: which values cannot be
    restored, "" if all can.
    """

    rule: str
    text: str
    where: tuple[MatrixName, ...]
    lost: str = ""


def mistakes_of(packing: Packing) -> list[Mistake]:
    """Return the mistakes in a packing: of the matrices, of the order, of the biases."""
    makers = (
        _form_mistakes,
        _gate_mistakes,
        _sign_mistakes,
        _scale_mistakes,
        _join_mistakes,
        _order_mistakes,
        _placement_mistakes,
        _arrangement_mistakes,
        _value_mistakes,
    )
    return [mistake for make in makers for mistake in make(packing)]


# ------------------------------------------------------------------------------------- the places


_What = TypeVar("_What", bound=Hashable)


def _grouped(
    packing: Packing, done: Mapping[MatrixName, _What], right: _What | None
) -> Iterator[tuple[_What, tuple[MatrixName, ...], str]]:
    """Yield each wrong thing that was done, with where and the words for where."""
    for what in dict.fromkeys(done.values()):
        if what != right:
            where = tuple(name for name, one in done.items() if one == what)
            yield what, where, places_in_words(packing, where, done)


def places_in_words(
    packing: Packing, where: Iterable[MatrixName], among: Iterable[MatrixName]
) -> str:
    """Return "the recurrent matrices of layer 1 backward" for these of all places."""
    where, among = set(where), set(among)
    axes = [sorted({name[k] for name in where}, key=str) for k in range(3)]
    every = [sorted({name[k] for name in among}, key=str) for k in range(3)]
    alike = {n for n in among if n[0] in axes[0] and n[1] in axes[1] and n[2] in axes[2]}
    if where != alike:
        sides = (" forward", " backward") if packing.truth.spec.bidirectional else ("",)
        return ", ".join(f"the {_role_in_words(role)} of layer {layer}{sides[direction]}"
                         for layer, direction, role in sorted(where))  # fmt: skip
    layers, directions, roles = axes
    text = _roles_in_words([str(role) for role in roles], roles == every[2])
    if layers != every[0]:
        text += f" of layer{'s' * (len(layers) > 1)} {' and '.join(map(str, layers))}"
    if directions != every[1]:
        text += (" of the forward direction", " of the backward direction")[int(directions[0])]
    return text


def _role_in_words(role: str) -> str:
    return "biases" if role == BIAS_ROLE else ROLES[role]


def _roles_in_words(roles: list[str], all_of_them: bool) -> str:
    matrices = [role for role in roles if role != BIAS_ROLE]
    if all_of_them:
        return "all matrices" + " and biases" * (BIAS_ROLE in roles) if matrices else "the biases"
    plural = {"W": "input matrices", "R": "recurrent matrices", "P": "projections",
              "peephole": "peepholes", BIAS_ROLE: "biases"}  # fmt: skip
    return "the " + " and ".join(plural[role] for role in plural if role in roles)


# ---------------------------------------------------------------------------------- the matrices


def _form_mistakes(packing: Packing) -> Iterator[Mistake]:
    done = {
        name: found.reading.form
        for name, found in packing.matrices.items()
        if found.reading.form is not RIGHT_FORM or not _has_another_form(found)
    }
    for form, where, words in _grouped(packing, done, RIGHT_FORM):
        yield Mistake(form.rule, f"{words} are {form.words}", where)


def _has_another_form(found: LocatedMatrix) -> bool:
    """Does a matrix look right although it has another form, as one of a single gate may?"""
    return len({reading.form for reading in found.readings}) > 1


def _written_gates(
    packing: Packing,
) -> Iterator[tuple[MatrixName, str, tuple[int, ...], tuple[int, ...]]]:
    """Yield of each matrix, and of the biases of each layer, the letters of the gates, and their
    order and signs in the buffer."""
    for name, found in packing.matrices.items():
        yield name, found.slab.gates, found.reading.order, found.reading.signs
    for at, layer in packing.layer_biases.items():
        yield (*at, BIAS_ROLE), packing.truth.gates, layer.order, layer.signs


def _gate_mistakes(packing: Packing) -> Iterator[Mistake]:
    done = {name: _order_of(packing.truth, gates, order)
            for name, gates, order, _ in _written_gates(packing) if len(order) > 1}  # fmt: skip
    for order, where, words in _grouped(packing, done, ""):
        right = "".join(gate for gate in packing.truth.shown if gate in order)
        moved = [a for a, b in zip(right, order, strict=True) if a != b]
        moved.sort(key=packing.truth.gates.index)
        text = f"gates in the order {' '.join(order)}, expected {' '.join(right)}"
        if len(moved) == 2:
            text = f"gates {moved[0]} and {moved[1]} swapped"
        text += _in_places(words, where, done)
        yield Mistake(f"gates {order}", text, where)


def _order_of(truth: Truth, gates: str, order: tuple[int, ...]) -> str:
    """Return the gates in their order, "" if it is right."""
    return "" if order == tuple(range(len(order))) else _shown_order(truth, gates, order)


def _shown_order(truth: Truth, gates: str, order: tuple[int, ...]) -> str:
    """Return the gates in their order, from the first that the given layout has to its last."""
    places = [gates.index(gate) for gate in truth.shown if gate in gates]
    return "".join(gates[order[k]] for k in places or range(len(order)))


def _sign_mistakes(packing: Packing) -> Iterator[Mistake]:
    count = len(packing.truth.gates)
    gone = {(*at, BIAS_ROLE) for at, one in packing.layer_biases.items()
            if one.rule.name == "dropped"}  # fmt: skip
    done = {name: _negated(gates, order, signs)
            for name, gates, order, signs in _written_gates(packing)
            if name not in gone and (len(order) == count or -1 in signs)}  # fmt: skip
    for minus, where, words in _grouped(packing, done, ""):
        why = ": z scales the old state in one and the candidate in the other" * (minus == "z")
        which = f"gate{'s' * (len(minus) > 1)} {' and '.join(minus)} negated"
        which = "all gates negated" if 1 < len(minus) == count else which
        text = which + _in_places(words, where, done) + why
        yield Mistake(f"negated {minus}", text, where)


def _negated(gates: str, order: tuple[int, ...], signs: tuple[int, ...]) -> str:
    pairs = zip(order, signs, strict=True)
    return "".join(sorted(gates[gate] for gate, sign in pairs if sign == -1))


def _in_places(words: str, where: Collection[MatrixName], among: Collection[MatrixName]) -> str:
    return f" in {words}" if len(where) < len(among) else ""


def _join_mistakes(packing: Packing) -> Iterator[Mistake]:
    done: dict[MatrixName, str] = {}
    spans = {name: found.span for name, found in packing.matrices.items()}
    for name, found in packing.matrices.items():
        start, stop = spans[name]
        others = (spans[one] for one in spans if one != name and one[:2] == name[:2])
        if stop - start > found.slab.size and any(a < stop and start < b for a, b in others):
            dense = found.reading.pattern.strides[1] == found.slab.shape[2]
            done[name] = "gate" if dense else "row"
    for how, where, _ in _grouped(packing, done, ""):
        text = f"the input and recurrent matrices are joined {how} by {how}"
        yield Mistake(f"joined {how}", text, where)


def _scale_mistakes(packing: Packing) -> Iterator[Mistake]:
    done = {name: found.reading.scale for name, found in packing.matrices.items()}
    for scale, where, words in _grouped(packing, done, 1.0):
        yield scale_mistake(scale, words, where)


def scale_mistake(scale: float, words: str, where: tuple[MatrixName, ...] = ()) -> Mistake:
    """Return the mistake of values that were multiplied by a factor."""
    lost = "" if frexp(scale)[0] == 0.5 else "the last bits of the values"
    return Mistake("multiplied", f"{words} are multiplied by {scale:.6g}", where, lost)


# ------------------------------------------------------------------------------------- the order

# How the matrices may be sorted: l layer, d direction, r role; the slowest first.
_NESTS = {
    "ldr": "",
    "dlr": "all layers of the forward direction come before those of the backward direction",
    "rld": "the matrices are sorted by role: those of all layers with one role come together",
    "rdl": "the matrices are sorted by role, then by direction, then by layer",
    "lrd": "in each layer, the matrices of both directions with one role come together",
    "drl": "the matrices are sorted by direction, then by role, then by layer",
}


def _order_mistakes(packing: Packing) -> Iterator[Mistake]:
    """Read off the order of layers, directions and roles, which has to give the whole order."""
    names = tuple(packing.matrices)
    right = [slab.name for slab in packing.truth.slabs if slab.name in packing.matrices]
    if list(names) == right:
        return
    seen = [list(dict.fromkeys(name[k] for name in names)) for k in range(3)]
    nests = [nest for nest in _NESTS if names == tuple(sorted(names, key=_rank(nest, seen)))]
    if not nests and packing.unknown:
        return
    if not nests:
        yield Mistake("order", f"the matrices are in the order {_names_in_order(names)}", names)
        return
    layers, sides, roles = seen
    where = (*names, *((*at, BIAS_ROLE) for at in packing.layer_biases))
    if layers != sorted(layers):
        order = " ".join(map(str, layers))
        yield Mistake(f"layers {order}", f"the layers are in the order {order}", where)
    if sides == [1, 0]:
        text = "the directions are swapped: backward comes first"
        yield Mistake("directions swapped", text, where)
    if roles != list(dict.fromkeys(name[2] for name in right)):
        text = ", ".join(_role_in_words(str(role)) for role in roles)
        text = f"the matrices of each layer are in the order {text}"
        yield Mistake(f"roles {' '.join(map(str, roles))}", text, names)
    if nests[0] != "ldr":
        yield Mistake(f"nest {nests[0]}", _NESTS[nests[0]], names)


def _names_in_order(names: Iterable[MatrixName]) -> str:
    return ", ".join(f"{role} of layer {layer}{' backward' * side}" for layer, side, role in names)


def _rank(nest: str, seen: list[list[int | str]]) -> Callable[[MatrixName], list[int]]:
    """Return the key that sorts by these axes, each in the order that was seen."""
    return lambda name: [seen["ldr".index(axis)].index(name["ldr".index(axis)]) for axis in nest]


def _placement_mistakes(packing: Packing) -> Iterator[Mistake]:
    """Are the biases after all matrices, as they should be?"""
    if packing.vectors:
        yield from _scattered_biases(packing)
        return
    if not packing.biases or not packing.biases.known or packing.biases.skipped:
        return
    (start, stop), *more = packing.free
    spec = packing.truth.spec
    if any(end - begin != stop - start for begin, end in more):
        text = f"the biases are in {1 + len(more)} parts, expected: one, after all matrices"
        yield Mistake("biases in parts", text, ())
    elif more:
        whose = {
            len(packing.matrices): "matrix",
            spec.num_layers * spec.num_directions: "layer" + " and direction" * spec.bidirectional,
            spec.num_layers: "layer",
        }.get(1 + len(more), "part")
        what = "it" if whose == "matrix" else "its matrices"
        text = f"the biases of each {whose} come next to {what}, expected: after all matrices"
        yield Mistake(f"biases of each {whose}", text, ())
    elif start == 0:
        yield Mistake("biases first", "the biases come before the matrices", ())
    elif start < packing.truth.num_weights:
        yield Mistake("biases between", "the biases are between the matrices", ())


def _scattered_biases(packing: Packing) -> Iterator[Mistake]:
    """Yield the mistake of biases that are apart from each other, or in an order of their own."""
    H = packing.truth.spec.hidden_size
    steps = {found.reading.pattern.strides[0] for found in packing.vectors.values()}
    within = {found.slab.size for found in packing.matrices.values()}
    text = "the biases are apart from each other, expected: in one part, after all matrices"
    spans = [found.span for found in packing.vectors.values()]
    if max(spans)[1] - min(spans)[0] == packing.truth.biases.size:
        if list(packing.vectors) != [vector.name for vector in packing.truth.bias_vectors]:
            text = f"the biases are in the order {_names_in_order(packing.vectors)}"
            yield Mistake("bias order", text, ())
        return
    if max(steps) > H and all(step > H and step - H < max(within) for step in steps):
        text = "the biases of each gate come next to its matrix, expected: after all matrices"
    yield Mistake("biases apart", text, ())


# ------------------------------------------------------------------------------------ the biases


def _arrangement_mistakes(packing: Packing) -> Iterator[Mistake]:
    biases = packing.biases
    if biases is None or not biases.known or packing.vectors:
        return
    where = tuple((*at, BIAS_ROLE) for at in biases.layers)
    found, expected = biases.arrangement, layer_order(packing.matrices)
    if "v" in found.reversed:
        text = f"bR comes before bW, each in the other's place: {_meaning_of_sums(packing)}"
        yield Mistake("biases exchanged", text, where)
    for axis, what in (("l", "layers"), ("d", "directions")):
        if axis in found.reversed ^ expected.reversed:
            which = "biases" if axis in found.reversed else "matrices, but not of the biases,"
            yield Mistake(f"{what} of biases", f"the {what} of the {which} are in reverse order",
                          where)  # fmt: skip
    nest = found.axes
    if nest[2:] != "vgo" or (nest.index("l") < nest.index("d")) != (
        expected.axes.index("l") < expected.axes.index("d")
    ):
        words = {"l": "layer", "d": "direction", "v": "vector (bW, bR)", "g": "gate", "o": "unit"}
        sizes = bias_sizes(packing.truth, biases.count)
        text = ", ".join(words[axis] for axis in nest if sizes[axis] > 1)
        yield Mistake(f"bias order {nest}", f"the biases are sorted by {text}", where)


def _meaning_of_sums(packing: Packing) -> str:
    """Return what it means that only the sums of the biases are right."""
    if may_sum_biases(packing.truth.spec, "n"):
        return "the same function, as only their sum matters"
    return "another function, as bR of gate n is multiplied by r"


def _value_mistakes(packing: Packing) -> Iterator[Mistake]:
    truth, biases = packing.truth, packing.biases
    if biases is None:
        if truth.roles and packing.size == truth.num_weights:
            yield Mistake("biases left out", "the biases are left out", (), "the biases")
        return
    if biases.count < len(truth.roles) and packing.size < truth.size:
        text = "the buffer has one bias vector per layer and direction where cuDNN has two"
        yield Mistake("one vector", text, (), "" if any(
            layer.rule.name != "kept" for layer in biases.layers.values()) else "bR")  # fmt: skip
    rules = {(*at, BIAS_ROLE): one.rule for at, one in biases.layers.items()}
    for rule, where, words in _grouped(packing, rules, KEPT_RULE):
        meaning = f": {_meaning_of_sums(packing)}" if rule.keeps_sum else ""
        if rule.name == "folded":
            meaning = ": the same function"
        yield Mistake(rule.name, f"{words} are {rule.words}{meaning}", where, rule.lost)
    shifts = {(*at, BIAS_ROLE): layer.shift for at, layer in biases.layers.items()}
    right = next((shift for shift in shifts.values() if not shift[1]), None)
    for (vector, shift), where, words in _grouped(packing, shifts, right):
        if shift:
            done = "1 added to" if shift > 0 else "1 subtracted from"
            text = f"{words} of gate f have {done} them in {truth.roles[vector]} (a forget bias)"
            lost = "the last bits of the biases of gate f"
            yield Mistake(f"forget bias {shift:+g}", text, where, lost)


# ---------------------------------------------------------------------- what else there is to say


def missing_parts(packing: Packing, buffer: np.ndarray, noun: str) -> Iterator[Mistake]:
    """Yield what was not found. noun: what the values are from, "buffer" or "tensors"."""
    truth = packing.truth
    for slab in packing.unknown:
        title = matrix_title(slab.name, truth)
        text = f"{title} is not in the {noun}"
        if other := packing.copies.get(slab.name):
            moved = other in packing.matrices and (
                packing.matrices[other].reading.at == truth.starts[slab.name])  # fmt: skip
            again = " a second time" * (not moved)
            text += f": in its place is {matrix_title(other, truth)}{again}"
        elif gates := _gates_in_place(slab, packing, buffer):
            text += f": in its place are gates {' '.join(gates)}"
        yield Mistake("not found", text, (slab.name,), title)
    for place, done in packing.layer_biases.items():
        if done.unknown:
            title = matrix_title((*place, BIAS_ROLE), truth)
            text = f"{title} are not in the {noun}"
            yield Mistake("biases not found", text, ((*place, BIAS_ROLE),), title)


def _gates_in_place(slab: Slab, packing: Packing, buffer: np.ndarray) -> str:
    """Return which gates are where a matrix should be, one of them twice; "" if others are."""
    given = packing.truth.part(buffer, slab)
    if given.size < slab.size:
        return ""
    own = {values.tobytes(): gate for gate, values in zip(slab.gates, slab.values, strict=True)}
    found = [own.get(gate.tobytes(), "") for gate in given.reshape(slab.shape)]
    return "".join(found) if all(found) else ""


def matrix_title(name: MatrixName, truth: Truth) -> str:
    layer, direction, role = name
    side = (" forward", " backward")[direction] if truth.spec.bidirectional else ""
    return f"layer {layer}{side}, {'biases' if role == BIAS_ROLE else ROLES[role]}"


def evidence_of(packing: Packing, names: Mapping[MatrixName, str] | None) -> Iterator[str]:
    """Yield where each matrix is and how it was written. names: of the tensors that have it; None
    for a buffer."""
    truth = packing.truth
    for found in packing.matrices.values():
        title, reading = matrix_title(found.slab.name, truth), found.reading
        how = ["elements {} to {}".format(*found.span)] if names is None else []
        how += [reading.form.words] if reading.form is not RIGHT_FORM else []
        order = _shown_order(truth, found.slab.gates, reading.order)
        how += [f"gates {' '.join(order)}"] if len(order) > 1 else []
        how += [f"{reading.share:.0%} of the samples equal"] if reading.share != 1 else []
        yield _evidence_line(names, [found.slab.name], title, how)
    for place, done in packing.layer_biases.items():
        if not done.unknown:
            how = [f"gates {' '.join(_shown_order(truth, truth.gates, done.order))}"]
            how += [done.rule.words] if done.rule is not KEPT_RULE else []
            title = matrix_title((*place, BIAS_ROLE), truth)
            yield _evidence_line(names, [(*place, role) for role in BIASES], title, how)


def _evidence_line(
    names: Mapping[MatrixName, str] | None, places: list[MatrixName], title: str, how: list[str]
) -> str:
    """Return "kernel (layer 0, input matrix): gates i f g o"."""
    own = dict.fromkeys(names[place] for place in places if place in names) if names else ()
    title = f"{', '.join(own)} ({title})" if own else title
    return ": ".join(text for text in (title, ", ".join(how)) if text)


def packing_notes(packing: Packing, flat: bool) -> Iterator[str]:
    """Yield what the values do not show. Tensors may have summed biases, whose bR is 0."""
    truth = packing.truth
    zero = [role for k, role in enumerate(truth.roles) if not truth.biases[:, :, k].any()]
    if zero and flat:
        yield f"{' and '.join(zero)} of like are zero: they do not show what was done to them"
    for found in packing.matrices.values():
        others = {(r.form, r.order) for r in found.readings[1:]} - {
            (found.reading.form, found.reading.order)
        }
        gates, rows, columns = found.slab.shape
        if others and rows != columns and gates > 1:
            title = matrix_title(found.slab.name, truth)
            yield f"{title}: its values fit in {1 + len(others)} ways"
    for at, done in packing.layer_biases.items():
        if done.alike:
            words = ", or ".join(rule.words for rule in done.alike)
            yield f"{matrix_title((*at, BIAS_ROLE), truth)} may as well be {words}"
