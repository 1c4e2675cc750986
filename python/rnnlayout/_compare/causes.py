"""Likely causes of a difference: what diagnose() finds, in the blocks of two RNNs."""

from __future__ import annotations

from .blocks import Compare, Key
from .mistakes import BIAS, mistakes_of
from .packing import packing_of
from .truth import BIASES, truth_of


def causes(c: Compare) -> list[str]:
    """Return the mistakes that turn a into b, each with how many of the blocks it concerns."""
    a, b = ({key: block.values for key, block in blocks.items()} for blocks in (c.a, c.b))
    truth = truth_of(c.spec, a, BIASES)
    packing = packing_of(truth, truth_of(c.spec, b, BIASES).flat)
    lines: list[str] = []
    for mistake in mistakes_of(packing):
        concerned = [key for key in c.wrong if not mistake.where or _place(key) in mistake.where]
        if concerned:
            count = "all " if len(concerned) == len(c.wrong) else f"{len(concerned)} of "
            lines.append(f"likely cause: {mistake.text} (explains {count}{len(c.wrong)})")
    return lines


def _place(key: Key) -> tuple[int, int, str]:
    layer, direction, role, _ = key
    return layer, direction, BIAS if role in BIASES else role
