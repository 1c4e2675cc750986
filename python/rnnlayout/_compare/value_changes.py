"""Find changes of values, apart from the order: which rules explain which values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import frexp
from typing import Any

import numpy as np

from .blocks import differing
from .compared_parts import ComparedPart, ValueRule
from .mistakes import Mistake, place_title, places_in_words
from .packed_biases import KEPT_RULE, SPLIT_RULE, eps_of, rounding_of_sums
from .packing import Packing
from .truth import BIAS_ROLE, MatrixName
from .value_rules import rules_for

_FEW = 0.1  # of the wrong values that a rule is said to explain may have another cause
_SCALED_ULPS = 8  # how far a value may be that was multiplied and divided
_MOST_PLACES = 3  # of single values, in a sentence

_Masks = Mapping[MatrixName, np.ndarray]


def value_mistakes(packing: Packing, scale: float) -> list[Mistake]:
    """Return the mistakes that explain how repaired values differ from the true values: each wrong
    value is in a mistake.

    Matrices and biases that were not located are left out. scale: the repair divided all values by
    this number: their last bits may differ.
    """
    parts = {part.name: part for part in _compared_parts(packing, scale)}
    open_parts = {name: part for name, part in parts.items() if part.wrong.any()}
    changed: dict[MatrixName, np.ndarray] = {}
    mistakes = []
    while open_parts and (best := _best_rule(packing, open_parts)):
        rule, misfits = best
        mistakes.append(_rule_mistake(packing, parts, rule, misfits))
        for name, misfit in misfits.items():
            changed[name] = misfit & open_parts.pop(name).wrong
    changed |= {name: part.wrong for name, part in open_parts.items()}
    changed = {name: mask for name, mask in changed.items() if mask.any()}
    if changed:
        mistakes.append(_changed_values(packing, parts, changed))
    return mistakes


# --------------------------------------------------------------------------------- what is compared


def _compared_parts(packing: Packing, scale_of_all: float) -> Iterator[ComparedPart]:
    """Yield the located matrices, as repaired, and the recognized biases, as stored."""
    truth, zero = packing.truth, np.zeros(())
    smallest = float(np.finfo(packing.buffer.dtype).smallest_subnormal)

    def rounding(scale: float) -> tuple[int, float]:
        """Return how far a value is that was multiplied by a scale, rounded, and divided: in units
        of the last place, and at least. Nothing rounds powers of 2, unless it makes a change."""
        scale *= scale_of_all
        return (0, 0.0) if frexp(scale)[0] == 0.5 else (_SCALED_ULPS, smallest / scale)

    for matrix in truth.matrices:
        if matrix.name in packing.matrices:
            values = truth.part(packing.fixed, matrix).reshape(matrix.shape)
            true = matrix.values
            if unknown := packing.matrices[matrix.name].unknown_gates:
                true = true.copy()  # nothing is said of their values
                true[[*unknown]] = values[[*unknown]]
            units, tiny = rounding(packing.matrices[matrix.name].reading.scale)
            yield _compared(matrix.name, values, true, zero + tiny, units * eps_of(truth))
    for name, values, true, wide in _biases_as_stored(packing):
        scales = [
            packing.vectors[*name[:2], role].reading.scale if packing.vectors else 1.0
            for role in truth.roles[: len(values)]
        ]
        shares, least = np.array([rounding(scale) for scale in scales]).T.reshape(2, -1, 1, 1)
        yield _compared(name, values, true, wide + least, shares * eps_of(truth))


def _compared(
    name: MatrixName, values: np.ndarray, true: np.ndarray, wide: np.ndarray, share: Any
) -> ComparedPart:
    if np.any(share):
        wide = wide + share * np.nan_to_num(abs(true), posinf=0)
    wide = np.broadcast_to(wide, true.shape)
    part = ComparedPart(name, values, true, wide, np.empty(true.shape, bool))
    for rows in part.slices:
        part.wrong[:, rows] = differing(values[:, rows], true[:, rows], wide[:, rows])
    return part


def _biases_as_stored(
    packing: Packing,
) -> Iterator[tuple[MatrixName, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (name, stored, expected, tolerance) of the recognized biases of each layer and
    direction, with the gates in the right order. Arrays are (vectors, G, H). Biases that were split
    differently are left out: the search compared the sums.
    """
    truth, biases = packing.truth, packing.biases
    if biases is None:
        return
    if packing.vectors:  # each has its place
        fixed = packing.fixed[truth.num_weights :].reshape(truth.biases.shape)
        stored = {name: fixed[name[:2]][: biases.count] for name in biases.layers}
    else:
        stored = dict(packing.stored_biases(biases))
    for name, layer in biases.layers.items():
        if layer.unknown or layer.rule is SPLIT_RULE:
            continue
        true = truth.biases[name[:2]]
        if layer.rule is KEPT_RULE and not layer.shifts:
            yield name, stored[name], true[: biases.count], np.zeros(())
            continue
        vectors = true.astype("f8")
        w, r = vectors[0], vectors[1] if len(vectors) == 2 else np.zeros_like(vectors[0])
        with np.errstate(all="ignore"):
            expected = np.stack(layer.rule.make(w, r))[: biases.count]
            sums = rounding_of_sums(truth) * (abs(w) + abs(r))
            tolerance = np.stack([sums * is_sum for is_sum in layer.rule.sums[: biases.count]])
            for vector, gate, number in layer.shifts:  # rounded twice at most
                size = abs(expected[vector, gate]) + abs(number)
                expected[vector, gate] += number
                tolerance[vector, gate] += 2 * eps_of(truth) * size
        yield name, stored[name], expected, tolerance * (expected != 0)


# --------------------------------------------------------------------------- the rules that explain


def _best_rule(
    packing: Packing, wrong: Mapping[MatrixName, ComparedPart]
) -> tuple[ValueRule, _Masks] | None:
    """Return the rule that explains most wrong values, and for each part that the rule explains,
    the values that the rule does not explain."""
    best: tuple[int, ValueRule, _Masks] | None = None
    count_of_all = sum(_count(part.wrong) for part in wrong.values())
    for rule in rules_for(list(wrong.values()), packing.truth, packing.buffer):
        misfits = {
            name: mask for name, part in wrong.items() if (mask := rule.misfits(part)) is not None
        }
        counts = {name: (_count(mask), _count(wrong[name].wrong)) for name, mask in misfits.items()}
        while counts and sum(n for n, _ in counts.values()) > _FEW * sum(
            n for _, n in counts.values()
        ):
            worst = max(counts, key=lambda name: counts[name][0] / counts[name][1])
            del counts[worst], misfits[worst]
        explained = sum(n - misfit for misfit, n in counts.values())
        if explained >= rule.least and (best is None or explained > best[0]):
            best = explained, rule, misfits
        if explained == count_of_all:
            break
    return best[1:] if best else None


def _rule_mistake(
    packing: Packing, parts: Mapping[MatrixName, ComparedPart], rule: ValueRule, misfits: _Masks
) -> Mistake:
    """Return the mistake of a rule: of the parts with wrong values that the rule explains, and of
    other parts, all values of which are as the rule makes the values."""
    where = [
        name
        for name, part in parts.items()
        if name in misfits or (not part.wrong.any() and rule.explains_all(part))
    ]
    count = sum(_count(parts[name].wrong & ~mask) for name, mask in misfits.items())
    everywhere = len(where) == len(parts)
    words = "the values" if everywhere else places_in_words(packing, where, parts)
    text = rule.text.format(
        places=words, count=_count_of(count, parts), where="" if everywhere else f" in {words}"
    )
    few = {name: mask for name, mask in misfits.items() if mask.any()}
    if few:
        number = sum(_count(mask) for mask in few.values())
        text += f", but for {number} value{'s' * (number > 1)}{_places_of_values(packing, few)}"
    return Mistake(rule.name, text, () if everywhere else tuple(where), rule.lost)


def _changed_values(
    packing: Packing, parts: Mapping[MatrixName, ComparedPart], changed: _Masks
) -> Mistake:
    """Return the mistake of values that no rule explains."""
    count, nans, gap = 0, 0, 0.0
    for name, mask in changed.items():
        part = parts[name]
        for rows in part.slices:
            values, true = (
                x[:, rows][mask[:, rows]].astype("f8") for x in (part.values, part.true)
            )
            count, nans = count + values.size, nans + _count(np.isnan(values))
            with np.errstate(all="ignore"):
                gap = max(gap, float(np.nanmax(abs(values - true), initial=0)))
    text = f"{_count_of(count, parts)} changed"
    if nans:
        text += f", {nans} of them to NaN" if count > nans else " to NaN"
    if count > nans:
        text += f", by up to {gap:.3g}"
    places = _places_of_values(packing, changed)
    if not places and len(changed) < len(parts):
        places = f", in {places_in_words(packing, changed, parts)}"
    text += f"{places}: were the weights trained further, or edited?"
    return Mistake("changed", text, tuple(changed))


def _count(mask: np.ndarray) -> int:
    return int(np.count_nonzero(mask))


def _count_of(count: int, parts: Mapping[MatrixName, ComparedPart]) -> str:
    size = sum(part.values.size for part in parts.values())
    return f"{count} of {size} values {'is' if count == 1 else 'are'}"


def _places_of_values(packing: Packing, masks: _Masks) -> str:
    """Return " (layer 0, recurrent matrix of gate g at (3, 7))" for each value; "" if too many."""
    if sum(_count(mask) for mask in masks.values()) > _MOST_PLACES:
        return ""
    truth = packing.truth
    gates = {matrix.name: matrix.gates for matrix in truth.matrices}
    places = []
    for name, mask in masks.items():
        title = place_title(name, truth)
        for first, second, third in np.argwhere(mask).tolist():
            if name[2] == BIAS_ROLE:
                places.append(
                    f"{title}, {truth.roles[first]} of gate {truth.gates[second]}[{third}]"
                )
            else:
                gate = f" of gate {gates[name][first]}" if len(gates[name]) > 1 else ""
                places.append(f"{title}{gate} at ({second}, {third})")
    return f" ({'; '.join(places)})"
