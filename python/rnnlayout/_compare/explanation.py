"""Explain how weights were changed, in the same words for a buffer and for tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rnnlayout._model.layout import BlockKey

from .blocks import Block, BlockComparison, bits_of_values, values_of_bits
from .decoded_buffer import DecodedBuffer, decode_buffer
from .matrix_forms import RIGHT_FORM
from .mistakes import Mistake, missing_parts, mistakes_of
from .moved_blocks import right_blocks
from .packing import Packing, packing_of
from .truth import BIAS_ROLE, BIASES, Truth, same_bits, truth_of
from .value_changes import value_mistakes
from .whole_buffers import explains_length, length_mistake, reordered_buffer, scaled_buffer


@dataclass(frozen=True)
class FoundMistakes:
    """The mistakes that turn the true values into the buffer.

    packing: how the buffer was packed. buffer: the values, as numbers. fixed: the repaired values
    in cuDNN's order; None if the buffer has different weights, or an unexplained length. same:
    whether the buffer has the true weights at all. text: all mistakes in a sentence. shows_places:
    whether the packing has the places in the buffer. shows_blocks: whether it has the values.
    """

    packing: Packing
    buffer: np.ndarray
    fixed: np.ndarray | None
    mistakes: tuple[Mistake, ...]
    same: bool
    text: str
    shows_places: bool = True
    shows_blocks: bool = True

    @property
    def sure(self) -> bool:
        """Return whether the mistakes explain every value."""
        is_incomplete = any(mistake.is_missing for mistake in self.mistakes)
        return self.same and self.fixed is not None and not is_incomplete

    @property
    def right_blocks(self) -> frozenset[BlockKey]:
        """Return the blocks with the right values, whether or not in the right place."""
        is_known = self.same and self.fixed is not None and self.shows_blocks
        return right_blocks(self.packing) if is_known else frozenset()

    @property
    def keeps_function(self) -> bool:
        """Return whether the mistakes explain every value and none changes the outputs."""
        return self.sure and all(mistake.keeps_function for mistake in self.mistakes)


def explain_values(
    truth: Truth, raw: np.ndarray, dtype: str | None, noun: str = "buffer"
) -> FoundMistakes:
    """Explain values, decoded so that most matrices are located.

    raw, dtype: bits, or bytes if dtype is None. noun: "buffer", with places, or "tensors".
    """
    packing, decoded = _best_packing(truth, raw, dtype)
    passed = packing.buffer
    mistakes = [decoded.mistake] if decoded.mistake else []
    if scaled := scaled_buffer(packing):
        mistakes.append(scaled.mistake)
        packing = packing_of(truth, scaled.repaired)
    if not explains_length(packing, decoded.rest):
        return _of_another_length(packing, decoded, dtype)
    buffer = packing.buffer
    if reordered := reordered_buffer(packing):
        mistakes.append(reordered.mistake)
        packing = packing_of(truth, reordered.repaired)
    missing = list(missing_parts(packing, noun))
    if not (packing.matrices or any(part.is_cause for part in missing)):
        count, searched = len(truth.matrices), len(truth.matrices) - len(packing.unsearched)
        text = f"none of the {count} matrices was found in any form that is searched for"
        if packing.unsearched:
            text = f"none of {searched} matrices was found in any form that is searched for, and"
            text += f" none of the other {count - searched} in its place"
        return FoundMistakes(packing, buffer, None, (), False, text)
    mistakes += mistakes_of(packing)
    for change in value_mistakes(packing, scaled.scale if scaled else 1.0):
        if decoded.mistake and change.rule == decoded.rounding and not change.where:
            mistakes[0] = replace(decoded.mistake, lost=change.lost)  # one mistake, not two
        else:
            mistakes.append(change)
    mistakes += missing
    if buffer.size > truth.size or decoded.rest:
        mistakes.append(length_mistake(packing, decoded.rest, decoded.in_front))
    if not mistakes and not same_bits(packing.fixed, buffer):
        mistakes.append(Mistake("order", "the values are in another order", ()))
    right = f"the {noun} {'is' if noun == 'buffer' else 'are'} right"
    text = "; ".join(mistake.text for mistake in mistakes) or right
    shown = {"shows_places": not reordered, "shows_blocks": not scaled}
    return FoundMistakes(packing, passed, packing.fixed, tuple(mistakes), True, text, **shown)


def _best_packing(
    truth: Truth, raw: np.ndarray, dtype: str | None
) -> tuple[Packing, DecodedBuffer]:
    """Return the packing that explains most. Constant matrices do not count: they fit anywhere."""
    best: tuple[tuple[int, bool, float], Packing, DecodedBuffer] | None = None
    for decoded in decode_buffer(raw, dtype, truth):
        packing = packing_of(truth, values_of_bits(decoded.bits, truth.spec.dtype))
        matrices = packing.matrices.values()
        readings = [located.reading for located in matrices if not located.matrix.is_constant]
        biases_known = not truth.roles or bool(packing.biases and packing.biases.known)
        rank = len(readings), biases_known, sum(reading.share for reading in readings)
        if best is None or rank > best[0]:
            best = rank, packing, decoded
        in_place = any(reading.form is RIGHT_FORM and reading.share == 1 for reading in readings)
        if not decoded.rest and (in_place or (not packing.unknown and biases_known)):
            break
    assert best is not None
    return best[1:]


def _of_another_length(
    packing: Packing, decoded: DecodedBuffer, dtype: str | None
) -> FoundMistakes:
    """Explain a buffer of unexplained length: only matrices stored bit for bit count. dtype: of the
    caller, who knows it without a matrix."""
    matrices = {
        name: located
        for name, located in packing.matrices.items()
        for matrix in [located.matrix]
        if same_bits(packing.truth.part(packing.fixed, matrix), matrix.values.reshape(-1))
    }
    packing = replace(packing, matrices=matrices, biases=None)
    mistakes = [length_mistake(packing, decoded.rest, decoded.in_front)]
    if decoded.mistake and (matrices or decoded.mistake.rule == f"dtype {dtype}"):
        mistakes.append(decoded.mistake)
    text = "; ".join(mistake.text for mistake in mistakes)
    if not matrices:
        text += f"; none of the {len(packing.truth.matrices)} matrices is in it bit for bit"
    return FoundMistakes(packing, packing.buffer, None, tuple(mistakes), bool(matrices), text)


# ------------------------------------------------------------------- two sets of weights, by blocks


def explain_difference(c: BlockComparison) -> FoundMistakes:
    """Explain how the weights b were made from the weights a.

    If b should have the sums of a's biases and the sums are wrong, try bW and bR alone.
    """
    summed = _explain_blocks(c, c.a)
    if c.whole is None or not _lacks_biases(summed):
        return summed
    single = _explain_blocks(c, c.whole)
    if _lacks_biases(single):
        return summed
    right = ("summed", "summed-recurrent", "biases exchanged")  # the single bias is read as bW
    mistakes = tuple(mistake for mistake in single.mistakes if mistake.rule not in right)
    return replace(single, mistakes=mistakes, text="; ".join(mistake.text for mistake in mistakes))


def _explain_blocks(c: BlockComparison, true: dict[BlockKey, Block]) -> FoundMistakes:
    truth, packed = (_packed(c, blocks) for blocks in (true, c.b))
    return explain_values(truth, bits_of_values(packed.flat, c.dtypes[1]), c.dtypes[1], "tensors")


def _packed(c: BlockComparison, blocks: dict[BlockKey, Block]) -> Truth:
    """Return blocks as a right buffer. The blocks are then in this buffer: the memory of converted
    weights is free."""
    numbers = {key: block.numbers for key, block in blocks.items()}
    truth = truth_of(c.spec, numbers, BIASES, c.gates)
    for key, values in truth.blocks(truth.flat):
        if key in blocks and blocks[key].dtype != "bfloat16":
            blocks[key].bits = values.view(f"u{values.itemsize}")
    return truth


def _lacks_biases(explanation: FoundMistakes) -> bool:
    return any(biases.unknown for biases in explanation.packing.layer_biases.values())


def likely_causes(c: BlockComparison, explanation: FoundMistakes) -> dict[str, int]:
    """Return {text of a mistake: how many of the different blocks the mistake concerns}."""
    places = {key: (*key[:2], BIAS_ROLE if key[2] in BIASES else key[2]) for key in c.wrong}
    causes: dict[str, int] = {}
    for mistake in explanation.mistakes:
        concerned = sum(
            not mistake.where or place in mistake.where or key[:3] in mistake.where
            for key, place in places.items()
        )
        if concerned and mistake.is_cause and mistake.rule != "changed":
            causes[mistake.text] = concerned
    return causes
