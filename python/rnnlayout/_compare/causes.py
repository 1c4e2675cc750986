"""Likely causes of a difference: what diagnose() finds, in the blocks of two RNNs."""

from __future__ import annotations

from collections.abc import Mapping

from .blocks import Block, BlockComparison, BlockKey
from .mistakes import BIAS_ROLE, Mistake, mistakes_of
from .packing import Packing, packing_of
from .truth import BIASES, truth_of


def likely_causes(c: BlockComparison, whole: Mapping[BlockKey, Block] | None = None) -> list[str]:
    """Return the mistakes that turn a into b, each with how many of the blocks it concerns.

    whole: the blocks of a with two biases per gate, if it has them where b has one.
    """
    a, b = ({key: block.values for key, block in blocks.items()} for blocks in (whole or c.a, c.b))
    truth = truth_of(c.spec, a, BIASES)
    packing = packing_of(truth, truth_of(c.spec, b, BIASES).flat)
    lines: list[str] = []
    for mistake in mistakes_of(packing):
        if whole and not _is_of_sums(mistake, packing):
            continue
        concerned = [
            key for key in c.wrong if not mistake.where or _block_place(key) in mistake.where
        ]
        if concerned:
            count = "all " if len(concerned) == len(c.wrong) else f"{len(concerned)} of "
            lines.append(f"likely cause: {mistake.text} (explains {count}{len(c.wrong)})")
    return lines


def _is_of_sums(mistake: Mistake, packing: Packing) -> bool:
    """May b, which has one bias per gate where a has two, have been made by this mistake?"""
    if any(role != BIAS_ROLE for *_, role in mistake.where):
        return True
    layers = packing.biases.layers.values() if packing.biases else ()
    right = ("summed", "summed-recurrent", "biases exchanged")  # the one bias is read as bW
    known = not any(layer.unknown for layer in layers)
    return known and mistake.rule not in right and not mistake.rule.startswith("bias order")


def _block_place(key: BlockKey) -> tuple[int, int, str]:
    layer, direction, role, _ = key
    return layer, direction, BIAS_ROLE if role in BIASES else role
