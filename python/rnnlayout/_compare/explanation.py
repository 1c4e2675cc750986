"""What was done to weights: one explanation for a buffer and for tensors, in the same words."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rnnlayout._model.layout import BlockKey

from .blocks import Block, BlockComparison, bits_of_values, values_of_bits
from .lengths import exactly_found, explains_length, length_mistake, reverse_mistake, roll_mistake
from .matrix_forms import RIGHT_FORM
from .mistakes import BIAS_ROLE, Mistake, missing_parts, mistakes_of, scale_mistake
from .packing import Packing, packing_of
from .permuted_units import units_mistake
from .truth import BIASES, Truth, same_bits, truth_of
from .value_changes import DecodedBuffer, decode_buffer, value_mistake

_NO_CAUSES = ("not found", "biases not found", "changed")


@dataclass(frozen=True)
class FoundMistakes:
    """The mistakes that turn the true values into the given ones.

    packing: what was found. buffer: the given values, as numbers. fixed: the values in cuDNN's
    order, as far as they can be restored; None if they are others, or their number is not
    explained. same: whether they are these weights at all. text: the mistakes in one sentence.
    """

    packing: Packing
    buffer: np.ndarray
    fixed: np.ndarray | None
    mistakes: tuple[Mistake, ...]
    same: bool
    text: str

    @property
    def shows_places(self) -> bool:
        """Is the packing that of the given values, and not of repaired ones?"""
        rules = {one.rule for one in self.mistakes}
        return bool(rules) and not rules & {"reversed", "rolled", "units"}

    @property
    def sure(self) -> bool:
        """Do the mistakes explain every value?"""
        found = any(one.rule in _NO_CAUSES[:2] for one in self.mistakes)
        return self.same and self.fixed is not None and not found


def explain_values(
    truth: Truth, raw: np.ndarray, dtype: str | None, noun: str = "buffer"
) -> FoundMistakes:
    """Explain values: read in the way in which most matrices are found.

    raw, dtype: their bits, or bytes if dtype is None. noun: where they are from: "buffer", in which
    things have places, or "tensors".
    """
    packing, decoded = _best_packing(truth, raw, dtype)
    mistakes = [decoded.mistake] if decoded.mistake else []
    buffer = values_of_bits(decoded.bits, truth.spec.dtype)
    scale = _common_scale(packing)
    if scale != 1:
        mistakes.append(scale_mistake(scale, "all values"))
        buffer = (buffer / np.asarray(scale, "f8")).astype(buffer.dtype)
        packing = packing_of(truth, buffer)
    fixed = packing.undo(buffer)
    if not explains_length(packing, fixed, decoded.rest):
        return _of_another_length(exactly_found(packing, fixed), decoded, buffer)
    for repair in (reverse_mistake, roll_mistake, units_mistake):
        if repaired := repair(packing, buffer):
            mistakes.append(repaired[0])
            fixed, packing = repaired[1], packing_of(truth, repaired[1])
            break
    missing = list(missing_parts(packing, buffer, noun))
    if not (packing.matrices or any("in its place" in one.text for one in missing)):
        text = f"none of the {len(truth.slabs)} matrices was found in any form that is searched for"
        return FoundMistakes(packing, buffer, None, (), False, text)
    mistakes += mistakes_of(packing)
    changed = value_mistake(packing, buffer, fixed, 8 if scale != 1 else 0)
    if changed and not (decoded.mistake and changed.rule.startswith("rounded")):
        mistakes.append(changed)
    mistakes += missing
    if packing.size > truth.size or decoded.rest:
        mistakes.append(length_mistake(packing, buffer, decoded.rest, decoded.in_front))
    if not mistakes and not same_bits(fixed, buffer):
        mistakes.append(Mistake("order", "the values are in another order", ()))
    right = f"the {noun} {'is' if noun == 'buffer' else 'are'} right"
    text = "; ".join(one.text for one in mistakes) or right
    return FoundMistakes(packing, buffer, fixed, tuple(mistakes), True, text)


def _best_packing(
    truth: Truth, raw: np.ndarray, dtype: str | None
) -> tuple[Packing, DecodedBuffer]:
    best: tuple[Packing, DecodedBuffer] | None = None
    for decoded in decode_buffer(raw, dtype, truth):
        packing = packing_of(truth, values_of_bits(decoded.bits, truth.spec.dtype))
        if best is None or _found(packing) > _found(best[0]):
            best = packing, decoded
        in_place = any(
            one.reading.form is RIGHT_FORM and one.reading.share == 1 and not one.slab.is_constant
            for one in packing.matrices.values()
        )
        if not decoded.rest and (in_place or (not packing.unknown and _knows_biases(packing))):
            break
    assert best is not None
    return best


def _found(packing: Packing) -> tuple[int, bool, float]:
    """Order packings by what they explain; a matrix of one value is found anywhere."""
    shares = [one.reading.share for one in packing.matrices.values() if not one.slab.is_constant]
    return len(shares), _knows_biases(packing), sum(shares)


def _knows_biases(packing: Packing) -> bool:
    return not packing.truth.roles or bool(packing.biases and packing.biases.known)


def _common_scale(packing: Packing) -> float:
    """Return the factor by which all matrices were multiplied; 1 if they were not."""
    scales = [one.reading.scale for one in packing.matrices.values()] or [1.0]
    first = scales[0]
    same = all(abs(scale / first - 1) < 1e-3 for scale in scales)
    return first if same and not packing.unknown else 1.0


def _of_another_length(
    packing: Packing, decoded: DecodedBuffer, buffer: np.ndarray
) -> FoundMistakes:
    """Return what is certain of a buffer whose length is not explained. packing: what was found
    bit for bit."""
    mistakes = [length_mistake(packing, buffer, decoded.rest, decoded.in_front)]
    if packing.matrices and decoded.mistake:
        mistakes.append(decoded.mistake)
    text = "; ".join(one.text for one in mistakes)
    if not packing.matrices:
        text += f"; none of the {len(packing.truth.slabs)} matrices is in it bit for bit"
    return FoundMistakes(packing, buffer, None, tuple(mistakes), bool(packing.matrices), text)


# ------------------------------------------------------------------- two sets of weights, by blocks


def explain_difference(c: BlockComparison) -> FoundMistakes:
    """Explain how the weights b were made of the weights a.

    If b has the sums of a's biases, and they are not right, they may be one of the two.
    """
    found = _explain_blocks(c, c.a)
    biases = found.packing.biases
    if c.whole is None or not biases or not any(one.unknown for one in biases.layers.values()):
        return found
    other = _explain_blocks(c, c.whole)
    biases = other.packing.biases
    if not biases or any(one.unknown for one in biases.layers.values()):
        return found
    right = ("summed", "summed-recurrent", "biases exchanged")  # the one bias is read as bW
    mistakes = tuple(one for one in other.mistakes if one.rule not in right)
    return replace(other, mistakes=mistakes, text="; ".join(one.text for one in mistakes))


def _explain_blocks(c: BlockComparison, true: dict[BlockKey, Block]) -> FoundMistakes:
    truth, given = (
        truth_of(c.spec, {key: block.numbers for key, block in blocks.items()}, BIASES, c.gates)
        for blocks in (true, c.b)
    )
    return explain_values(truth, bits_of_values(given.flat, c.dtypes[1]), c.dtypes[1], "tensors")


def likely_causes(c: BlockComparison) -> list[str]:
    """Return the mistakes that turn a into b, each with how many of the blocks it concerns."""
    lines: list[str] = []
    for mistake in explain_difference(c).mistakes:
        if mistake.rule in _NO_CAUSES and "in its place" not in mistake.text:
            continue
        concerned = [
            key for key in c.wrong if not mistake.where or _block_place(key) in mistake.where
        ]
        if concerned:
            count = "all " if len(concerned) == len(c.wrong) else f"{len(concerned)} of "
            lines.append(f"likely cause: {mistake.text} (explains {count}{len(c.wrong)})")
    return lines


def _block_place(key: BlockKey) -> tuple[int, int, str]:
    layer, direction, role, _ = key
    return layer, direction, BIAS_ROLE if role in BIASES else role
