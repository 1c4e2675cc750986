"""The mistakes in a packing, in words."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import frexp
from typing import TypeVar

import numpy as np

from rnnlayout._model.layout import ROLES, layer_in_words

from .blocks import may_sum_biases
from .matrix_forms import RIGHT_FORM, joined_patterns
from .packed_biases import KEPT_RULE, bias_sizes, digits_of, eps_of, layer_order
from .packed_matrices import LocatedMatrix
from .packing import Packing, matrix_in_place
from .truth import BIAS_ROLE, BIASES, MatrixName, TrueArray, Truth, contains_run, same_bits


@dataclass(frozen=True)
class Mistake:
    """One rule by which a buffer differs from cuDNN's.

    rule: the rule's name. text: the mistake in words. where: (layer, direction, role) of the
    matrices and biases that it concerns; the role of biases is "b", or "bW" or "bR" if it concerns
    one of the vectors. lost: which values cannot be
    restored, "" if all can. keeps_function: whether the outputs are proved to be the same.
    is_missing: whether these matrices or biases are not in the buffer. is_cause: whether the text
    names what was done, not only that something is missing.
    """

    rule: str
    text: str
    where: tuple[MatrixName, ...]
    lost: str = ""
    keeps_function: bool = False
    is_missing: bool = False
    is_cause: bool = True


def mistakes_of(packing: Packing) -> list[Mistake]:
    """Return the mistakes in a packing: of the matrices, of the order, of the biases."""
    return [
        *_writing_mistakes(packing),
        *_order_mistakes(packing),
        *_placement_mistakes(packing),
        *_vector_mistakes(packing),
        *_arrangement_mistakes(packing),
        *_bias_mistakes(packing),
    ]


# ------------------------------------------------------------------------------------- the places


_Change = TypeVar("_Change", bound=Hashable)


def _grouped(
    packing: Packing, done: Mapping[MatrixName, _Change], right: _Change | None
) -> Iterator[tuple[_Change, tuple[MatrixName, ...], str, str]]:
    """Yield (change, names, words for the names, "in" and the words) for each change but the right
    one; "" in the last place if all names have the change."""
    for change in dict.fromkeys(done.values()):
        if change != right:
            where = tuple(name for name, written in done.items() if written == change)
            words = places_in_words(packing, where, done)
            yield change, where, words, f" in {words}" * (len(where) < len(done))


def places_in_words(
    packing: Packing, where: Iterable[MatrixName], among: Iterable[MatrixName]
) -> str:
    """Return words for places `where`: "the recurrent matrices of layer 1 backward"."""
    where, among = set(where), set(among)
    layers, directions, roles = (sorted(set(axis)) for axis in zip(*where, strict=True))
    axes_of_all = [sorted(set(axis)) for axis in zip(*among, strict=True)]
    alike = {n for n in among if n[0] in layers and n[1] in directions and n[2] in roles}
    if where != alike:
        count = packing.truth.spec.num_directions
        return ", ".join(
            f"the {_role_in_words(role)} of {layer_in_words(layer, side, count)}"
            for layer, side, role in sorted(where)
        )
    if {*BIASES} <= {*roles}:
        roles = [role for role in roles if role not in BIASES] + [BIAS_ROLE]
    plural = {
        "W": "input matrices",
        "R": "recurrent matrices",
        "P": "projections",
        "peephole": "peepholes",
        BIAS_ROLE: "biases",
        "bW": "biases bW",
        "bR": "biases bR",
    }
    text = "the " + " and ".join(words for role, words in plural.items() if role in roles)
    if roles == axes_of_all[2] and not {*roles} <= {BIAS_ROLE, *BIASES}:
        text = "all matrices" + " and biases" * bool({*roles} & {BIAS_ROLE, *BIASES})
    if layers != axes_of_all[0]:
        text += f" of layer{'s' * (len(layers) > 1)} {' and '.join(map(str, layers))}"
    if directions != axes_of_all[1]:
        text += (" of the forward direction", " of the backward direction")[directions[0]]
    return text


def _role_in_words(role: str) -> str:
    return "biases" if role == BIAS_ROLE else f"biases {role}" if role in BIASES else ROLES[role]


def place_title(name: MatrixName, truth: Truth) -> str:
    """Return "layer 1 backward, recurrent matrix"."""
    layer, direction, role = name
    place = layer_in_words(layer, direction, truth.spec.num_directions)
    return f"{place}, {_role_in_words(role)}"


# ------------------------------------------------------------- how each matrix and bias is written


def _writing_mistakes(packing: Packing) -> Iterator[Mistake]:
    """Yield the mistakes of forms, gates, signs, scales and joins."""
    truth, matrices = packing.truth, packing.matrices
    count = len(truth.gates)
    forms = {name: located.reading.form for name, located in matrices.items()}
    wrong_forms = {*forms.values()} - {RIGHT_FORM}
    for name, located in matrices.items():  # with a single gate, a matrix may have several forms
        if forms[name] is RIGHT_FORM and wrong_forms & {r.form for r in located.readings}:
            del forms[name]
    for form, where, words, _ in _grouped(packing, forms, RIGHT_FORM):
        yield Mistake(form.rule, f"{words} are {form.words}", where)
    orders = {
        name: "" if order == tuple(sorted(order)) else _shown_order(truth, gates, order)
        for name, gates, order, *_ in packing.written
        if len(order) > 1
    }
    for order, where, _, places in _grouped(packing, orders, ""):
        right = "".join(gate for gate in truth.shown if gate in order)
        moved = [a for a, b in zip(right, order, strict=True) if a != b]
        moved.sort(key=truth.gates.index)
        text = f"gates in the order {' '.join(order)}, expected {' '.join(right)}"
        if len(moved) == 2:
            text = f"gates {moved[0]} and {moved[1]} swapped"
        yield Mistake(f"gates {order}", text + places, where)
    layers = packing.layer_biases.items()
    gone = {name for name, biases in layers if biases.rule.name == "dropped"}
    negated = {
        name: "".join(sorted(gates[k] for k, s in zip(order, signs, strict=True) if s == -1))
        for name, gates, order, signs, _ in packing.written
        if name not in gone and (len(order) == count or -1 in signs)
    }
    for minus, where, _, places in _grouped(packing, negated, ""):
        why = ": z scales the old state in one and the candidate in the other" * (minus == "z")
        which = f"gate{'s' * (len(minus) > 1)} {' and '.join(minus)} negated"
        which = "all gates negated" if 1 < len(minus) == count else which
        yield Mistake(f"negated {minus}", which + places + why, where)
    scales: dict[MatrixName, float] = {}
    for name, *_, scale in packing.written:  # each was found among rounded values
        alike = (
            other for other in scales.values() if abs(scale - other) <= 8 * eps_of(truth) * other
        )
        scales[name] = next(alike, scale)
    for scale, where, words, _ in _grouped(packing, scales, 1.0):
        yield scale_mistake(truth, scale, words, where)
    joins = {name: _joined(packing, located) for name, located in matrices.items()}
    for how, where, *_ in _grouped(packing, joins, ""):
        text = f"the input and recurrent matrices are joined {how} by {how}"
        yield Mistake(f"joined {how}", text, where)


def _joined(packing: Packing, located: LocatedMatrix) -> str:
    """Return what alternates in the buffer, a "gate" or a "row" of the matrix and of the matrix
    that the layer has beside it; "" if neither. If the other matrix was not located, a gap of its
    size is enough."""
    layer, direction, role = located.matrix.name
    partner = layer, direction, {"W": "R", "R": "W"}.get(role, "")
    columns = [matrix.shape[2] for matrix in packing.truth.matrices if matrix.name == partner]
    if not columns:
        return ""
    other = packing.matrices.get(partner)
    for axes, (how, pattern) in enumerate(
        joined_patterns(located.matrix.shape, *columns).items(), 1
    ):
        if _alternate(located, other, axes) if other else located.reading.pattern == pattern:
            return how
    return ""


def _alternate(first: LocatedMatrix, second: LocatedMatrix, axes: int) -> bool:
    """Return whether the gates (axes: 1) or the rows of each gate (2) of two matrices alternate in
    the buffer; a matrix with a single part alternates with none."""
    parts = [
        np.array(located.reading.pattern.spans(located.matrix.shape, axes)) + located.reading.at
        for located in (first, second)
    ]
    whose = np.repeat((0, 1), [part.shape[1] for part in parts])
    begins, ends = np.hstack(parts)
    order = np.argsort(begins)
    begins, ends, whose = begins[order], ends[order], whose[order]
    apart, in_turn = begins[1:] >= ends[:-1], whose[1:] != whose[:-1]
    return len(whose) > 2 and bool(apart.all() and in_turn.all())


def _shown_order(truth: Truth, gates: str, order: tuple[int, ...]) -> str:
    """Return the gate found in each place, the places in the order of the reported layout."""
    places = [gates.index(gate) for gate in truth.shown if gate in gates]
    return "".join(gates[order[k]] for k in places or range(len(order)))


def scale_mistake(
    truth: Truth, scale: float, words: str, where: tuple[MatrixName, ...] = ()
) -> Mistake:
    """Return the mistake of values that were multiplied by a factor, which the rounded values show
    to so many digits."""
    lost = "" if frexp(scale)[0] == 0.5 else "the last bits of the values"
    digits = digits_of(truth)
    return Mistake("multiplied", f"{words} are multiplied by {scale:.{digits}g}", where, lost)


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
    """Yield the order of layers, directions and roles, if consistent for all matrices."""
    names = list(packing.matrices)
    right = [matrix.name for matrix in packing.truth.matrices if matrix.name in packing.matrices]
    if names == right:
        return
    orders = [list(dict.fromkeys(name[k] for name in names)) for k in range(3)]

    def rank(name: MatrixName, nest: str) -> list[int]:
        """Sort by the axes of nest, each in the order of appearance."""
        return [orders[k].index(name[k]) for k in map("ldr".index, nest)]

    nests = [nest for nest in _NESTS if names == sorted(names, key=lambda name: rank(name, nest))]
    if not nests and not packing.unknown:
        text = f"the matrices are in the order {_names_in_order(names)}"
        yield Mistake("order", text, tuple(names))
    if not nests:
        return
    layers, sides, roles = orders
    where = (*names, *packing.layer_biases)
    if layers != sorted(layers):
        order = " ".join(map(str, layers))
        yield Mistake(f"layers {order}", f"the layers are in the order {order}", where)
    if sides == [1, 0]:
        text = "the directions are swapped: backward comes first"
        yield Mistake("directions swapped", text, where)
    if roles != list(dict.fromkeys(name[2] for name in right)):
        text = ", ".join(_role_in_words(str(role)) for role in roles)
        text = f"the matrices of each layer are in the order {text}"
        yield Mistake(f"roles {' '.join(map(str, roles))}", text, tuple(names))
    if nests[0] != "ldr":
        text = _NESTS[nests[0]]
        if nests[0] == "dlr" and sides == [1, 0]:
            text = "all layers of the backward direction come before those of the forward direction"
        yield Mistake(f"nest {nests[0]}", text, tuple(names))


def _names_in_order(names: Iterable[MatrixName]) -> str:
    return ", ".join(f"{role} of layer {layer}{' backward' * side}" for layer, side, role in names)


def _placement_mistakes(packing: Packing) -> Iterator[Mistake]:
    """Yield the mistake of biases that are not in a single part after all matrices."""
    truth, biases, parts = packing.truth, packing.biases, packing.free
    spec, H = truth.spec, truth.spec.hidden_size
    rule, text = "", ""
    if packing.vectors:
        spans = [located.span for located in packing.vectors.values()]
        steps = {located.reading.pattern.strides[0] for located in packing.vectors.values()}
        most = max(located.matrix.size for located in packing.matrices.values())
        if max(spans)[1] - min(spans)[0] == truth.biases.size:
            if list(packing.vectors) != [vector.name for vector in truth.bias_vectors]:
                rule = "bias order"
                text = f"the biases are in the order {_names_in_order(packing.vectors)}"
            elif min(spans)[0] != truth.num_weights and packing.buffer.size == truth.size:
                rule = "biases apart"
                text = f"the biases begin at value {min(spans)[0]}, expected {truth.num_weights}"
        elif steps != {H} and min(spans)[0] >= max(
            located.span[1] for located in packing.matrices.values()
        ):
            rule = "biases padded"
            apart = " or ".join(map(str, sorted(steps)))
            text = f"the biases of each gate are {apart} values apart, expected {H} (padded?)"
        elif all(H < step < H + most for step in steps):
            rule = "biases apart"
            text = "the biases of each gate come next to its matrix, expected: after all matrices"
        else:
            rule = "biases apart"
            text = "the biases are apart from each other, expected: in one part, after all matrices"
    elif not biases or not biases.known or biases.skipped:
        return
    elif len({stop - start for start, stop in parts}) > 1:
        rule = "biases in parts"
        text = f"the biases are in {len(parts)} parts, expected: one, after all matrices"
    elif len(parts) > 1:
        owner = {
            len(packing.matrices): "matrix",
            spec.num_layers * spec.num_directions: "layer" + " and direction" * spec.bidirectional,
            spec.num_layers: "layer",
        }.get(len(parts), "part")
        rule = f"biases of each {owner}"
        companion = "it" if owner == "matrix" else "its matrices"
        text = f"the biases of each {owner} come next to {companion}, expected: after all matrices"
    elif parts[0][0] == 0:
        rule, text = "biases first", "the biases come before the matrices"
    elif parts[0][0] < truth.num_weights and not packing.unknown:
        rule, text = "biases between", "the biases are between the matrices"
    if rule:
        yield Mistake(rule, text, ())


def _vector_mistakes(packing: Packing) -> Iterator[Mistake]:
    """Yield how bias vectors that were located one by one are written, if not gate by gate."""
    H, forms = packing.truth.spec.hidden_size, {}
    dense = packing.truth.biases.size
    spans = [located.span for located in packing.vectors.values()]
    for name, located in packing.vectors.items():
        gate, unit, _ = located.reading.pattern.strides
        words = ["in reverse order of units"] if unit < 0 and H > 1 else []
        if len(packing.truth.gates) > 1:
            if H > 1 and abs(unit) > abs(gate):
                words.append("interleaved unit by unit")
            elif abs(gate) != H and max(spans)[1] - min(spans)[0] == dense:
                words.append(f"written with {abs(gate)} values from gate to gate, expected {H}")
        forms[name] = " and ".join(words)
    for form, where, title, _ in _grouped(packing, forms, ""):
        yield Mistake("bias order", f"{title} are {form}", where)


# ------------------------------------------------------------------------------------ the biases


def _arrangement_mistakes(packing: Packing) -> Iterator[Mistake]:
    biases = packing.biases
    if biases is None or not biases.known or packing.vectors:
        return
    where = tuple(biases.layers)
    arrangement, expected = biases.arrangement, layer_order(packing.matrices)
    if "v" in arrangement.reversed:
        text = f"bR comes before bW, each in the other's place: {_meaning_of_sums(packing)}"
        yield Mistake("biases exchanged", text, where)
    for axis, noun in (("l", "layers"), ("d", "directions")):
        if axis in arrangement.reversed ^ expected.reversed:
            which = "biases" if axis in arrangement.reversed else "matrices, but not of the biases,"
            yield Mistake(
                f"{noun} of biases", f"the {noun} of the {which} are in reverse order", where
            )
    nest = arrangement.axes
    if nest[2:] != "vgo" or (nest.index("l") < nest.index("d")) != (
        expected.axes.index("l") < expected.axes.index("d")
    ):
        words = {"l": "layer", "d": "direction", "v": "vector (bW, bR)", "g": "gate", "o": "unit"}
        sizes = bias_sizes(packing.truth, biases.count)
        text = ", ".join(words[axis] for axis in nest if sizes[axis] > 1)
        yield Mistake(f"bias order {nest}", f"the biases are sorted by {text}", where)


def _meaning_of_sums(packing: Packing) -> str:
    """Return the consequence, in words, if only the sums of the biases are right."""
    if may_sum_biases(packing.truth.spec, "n"):
        return "the same function, as only their sum matters"
    return "another function, as bR of gate n is multiplied by r"


def _bias_mistakes(packing: Packing) -> Iterator[Mistake]:
    """Yield the mistakes in the values of biases."""
    truth, biases = packing.truth, packing.biases
    if biases is None:
        if truth.roles and packing.buffer.size == truth.num_weights:
            yield Mistake("biases left out", "the biases are left out", (), "the biases")
        return
    rules = {name: layer.rule for name, layer in biases.layers.items()}
    if biases.count < len(truth.roles) and packing.buffer.size < truth.size:
        text = "the buffer has one bias vector per layer and direction where cuDNN has two"
        kept = all(rule is KEPT_RULE for rule in rules.values())
        yield Mistake("one vector", text, (), "bR" if kept else "")
    for rule, where, words, _ in _grouped(packing, rules, KEPT_RULE):
        meaning = f": {_meaning_of_sums(packing)}" if rule.keeps_sum else ""
        if rule.name == "folded":
            meaning = ": the same function"
        yield Mistake(rule.name, f"{words} are {rule.words}{meaning}", where, rule.lost)
    shifts = {name: layer.shifts for name, layer in biases.layers.items()}
    for shifted in dict.fromkeys(
        shift for all_of_layer in shifts.values() for shift in all_of_layer
    ):
        has_shift = {name: shifted in all_of_layer for name, all_of_layer in shifts.items()}
        for _, where, words, _ in _grouped(packing, has_shift, False):
            yield _shift_mistake(truth, shifted, words, where)


def _shift_mistake(
    truth: Truth, shift: tuple[int, int, float], words: str, where: tuple[MatrixName, ...]
) -> Mistake:
    """Return the mistake of a number that was added to the biases of a gate."""
    vector, gate_at, number = shift
    gate, is_forget = truth.gates[gate_at], truth.gates[gate_at] == "f"
    done = f"{abs(number):g} {'added to' if number > 0 else 'subtracted from'}"
    text = f"{words} of gate {gate} have {done} them in {truth.roles[vector]}"
    text += " (a forget bias)" * is_forget
    rule = f"forget bias {number:+g}" if is_forget else f"bias of gate {gate} {number:+g}"
    return Mistake(rule, text, where, f"the last bits of the biases of gate {gate}")


# ------------------------------------------------------------------------- missing parts, evidence


def missing_parts(packing: Packing, noun: str) -> Iterator[Mistake]:
    """Yield the matrices and biases that are missing. noun: "buffer" or "tensors"."""
    truth, unsearched = packing.truth, []
    for matrix in packing.unknown:
        title = place_title(matrix.name, truth)
        text = f"{title} is not in the {noun}"
        if replacement := _contents_in_place(matrix, packing):
            text += f": in its place {replacement}"
        elif matrix.name in packing.unsearched:
            unsearched.append(matrix.name)
            continue
        else:
            title, text = _missing_gates(title, "is", matrix.gates, matrix.values, packing, noun)
        yield _missing("not found", text, matrix.name, title, is_cause=bool(replacement))
    if unsearched:
        matrices = f"{len(unsearched)} further matri{'x' if len(unsearched) == 1 else 'ces'}"
        verb = "was" if len(unsearched) == 1 else "were"
        yield Mistake(
            "not searched",
            f"{matrices} {verb} searched for only in the right place, because too many others are"
            f" not in the {noun}",
            (*unsearched,),
            matrices,
            is_missing=True,
            is_cause=False,
        )
    for name, located in packing.matrices.items():
        for number in located.unknown_gates:
            title = f"gate {located.matrix.gates[number]} of {place_title(name, truth)}"
            text = f"{title} is not in the {noun}"
            if twin := _gate_in_place(located, number, packing.buffer):
                text += f": in its place is gate {twin} a second time"
            yield _missing("not found", text, name, title, is_cause=bool(twin))
    for name, done in packing.layer_biases.items():
        places = []
        if done.twin:
            title = place_title(name, truth)
            twin = layer_in_words(*done.twin, truth.spec.num_directions)
            text = f"{title} are not in the {noun}: in their place are the biases of {twin}"
            yield _missing("biases not found", text, name, title, is_cause=True)
            continue
        for role, vector in zip(truth.roles, truth.biases[name[:2]], strict=True):
            place = (*name[:2], role)
            stored = packing.buffer[truth.starts[place] :][: vector.size]
            if done.unknown and not same_bits(stored, vector.reshape(-1)):
                places.append((place, vector[:, None]))
        if len(places) == len(truth.roles) and not any(
            contains_run(packing.buffer, gate[0]) for _, vector in places for gate in vector
        ):
            places = [(name, places[0][1])]
        for place, values in places:
            title = place_title(place, truth)
            title, text = _missing_gates(title, "are", truth.gates, values, packing, noun)
            yield _missing("biases not found", text, place, title, is_cause=False)


def _missing(rule: str, text: str, name: MatrixName, lost: str, *, is_cause: bool) -> Mistake:
    return Mistake(rule, text, (name,), lost, is_missing=True, is_cause=is_cause)


def _missing_gates(
    title: str, verb: str, letters: str, values: np.ndarray, packing: Packing, noun: str
) -> tuple[str, str]:
    """Return (title, sentence) of the gates of a part that are not in the buffer. values: (gates,
    rows, columns). A gate is in the buffer if each row is."""
    absent = [
        letter
        for letter, gate in zip(letters, values, strict=True)
        if not all(contains_run(packing.buffer, row) for row in gate)
    ]
    if not absent:
        return title, f"{title} {verb} in the {noun}, in no form that is searched for"
    if len(absent) < len(letters):
        title = f"gate{'s' * (len(absent) > 1)} {' and '.join(absent)} of {title}"
        verb = "is" if len(absent) == 1 else "are"
    return title, f"{title} {verb} not in the {noun}"


def _contents_in_place(matrix: TrueArray, packing: Packing) -> str:
    """Name the matrix, or the gates of the matrix, in the place of a matrix; "" if unknown."""
    truth = packing.truth
    stored = truth.part(packing.buffer, matrix)
    if twin := matrix_in_place(truth, matrix, packing.buffer):
        located = packing.matrices.get(twin.name)
        moved = located and located.reading.at == truth.starts[matrix.name]
        return f"is {place_title(twin.name, truth)}{'' if moved else ' a second time'}"
    if stored.size < matrix.size:
        return ""
    pairs = zip(matrix.gates, matrix.values, strict=True)
    gate_of = {values.tobytes(): gate for gate, values in pairs}
    gates = [gate_of.get(gate.tobytes(), "") for gate in stored.reshape(matrix.shape)]
    return f"are gates {' '.join(gates)}" if all(gates) else ""


def _gate_in_place(located: LocatedMatrix, number: int, buffer: np.ndarray) -> str:
    """Return the letter of the gate that is in the place of another; "" if unknown."""
    matrix, reading = located.matrix, located.reading
    place = reading.order.index(number)
    stored = reading.pattern.take(buffer, reading.at, matrix.shape)[place]
    for letter, values in zip(matrix.gates, matrix.values, strict=True):
        if same_bits(np.ascontiguousarray(stored), values):
            return letter
    return ""


def evidence_of(packing: Packing, names: Mapping[MatrixName, str] | None) -> Iterator[str]:
    """Yield where each matrix is and how the matrix was written, as in "kernel (layer 0, input
    matrix): gates i f g o". names: of the tensors with each matrix; None for a buffer."""
    truth = packing.truth
    lines: list[tuple[MatrixName, tuple[str, ...], list[str]]] = []
    for name, located in packing.matrices.items():
        reading = located.reading
        how = ["elements {} to {}".format(*located.span)] if names is None else []
        how += [reading.form.words] if reading.form is not RIGHT_FORM else []
        order = _shown_order(truth, located.matrix.gates, reading.order)
        how += [f"gates {' '.join(order)}"] if len(order) > 1 else []
        how += [f"{reading.share:.0%} alike"] if reading.share < 0.995 else []
        lines.append((name, (name[2],), how))
    for name, gate_order, *_ in packing.written_biases:
        layer = packing.layer_biases.get((*name[:2], BIAS_ROLE))  # None: only vectors were located
        if not layer or not layer.unknown:
            how = [f"gates {' '.join(_shown_order(truth, truth.gates, gate_order))}"]
            how += [layer.rule.words] if layer and layer.rule is not KEPT_RULE else []
            lines.append((name, BIASES if name[2] == BIAS_ROLE else (name[2],), how))
    for place, roles, how in lines:
        by_role = [(names or {}).get((*place[:2], role)) for role in roles]
        title, owners = place_title(place, truth), ", ".join(dict.fromkeys(filter(None, by_role)))
        title = f"{owners} ({title})" if owners else title
        yield ": ".join(filter(None, (title, ", ".join(how))))


def packing_notes(packing: Packing, flat: bool) -> Iterator[str]:
    """Yield the limits of the evidence. Tensors may have summed biases, with bR 0."""
    truth = packing.truth
    zero = [role for k, role in enumerate(truth.roles) if not truth.biases[:, :, k].any()]
    if zero and flat:
        yield f"{' and '.join(zero)} of like are zero: they do not show what was done to them"
    for located in packing.matrices.values():
        ways = {(reading.form, reading.order) for reading in located.readings}
        gates, rows, columns = located.matrix.shape
        if len(ways) > 1 and rows != columns and gates > 1:
            yield f"{place_title(located.matrix.name, truth)}: its values fit in {len(ways)} ways"
    for name, done in packing.layer_biases.items():
        if done.alike:
            words = ", or ".join(rule.words for rule in done.alike)
            yield f"{place_title(name, truth)} may as well be {words}"
