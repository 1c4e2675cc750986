"""The moves of a conversion: what is done to each block, and where it comes from and goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rnnlayout import _native
from rnnlayout._model.layout import Layout
from rnnlayout._model.optional import spec_has
from rnnlayout._model.spec import Spec

from .engine import plan_for, spec_in

Place = tuple[int, int]  # layer, direction


@dataclass(frozen=True)
class Move:
    """One operation on a block (layer, direction, role, number, gate).

    op: "move", "add", "shift" (by a forget bias), "zero", "identity", "expect_zero" or
        "expect_identity". sources: the number of the tensor and the role of each block that it
        reads. target: the number of the tensor that it writes; None if it only requires something.
    notes: what is done on the way, in words. shift: what is added; of "expect_zero", minus the
        value that is required.
    """

    op: str
    block: tuple[int, int, str, int, str]
    sources: tuple[tuple[int, str], ...]
    target: int | None
    notes: tuple[str, ...]
    shift: float

    @property
    def place(self) -> Place:
        return self.block[:2]

    @property
    def shape(self) -> tuple[Any, ...]:
        """What is the same in all layers that are converted alike."""
        roles = tuple(role for _, role in self.sources)
        return self.op, self.block[2:], roles, self.notes, self.shift


@dataclass(frozen=True)
class Moves:
    """All moves of a conversion, by layer and direction, and the names of the tensors.

    target: the spec of the result.
    """

    target: Spec
    sources: list[str]
    targets: list[str]
    every: dict[Place, list[Move]]

    def alike(self) -> dict[Place, Place]:
        """Return for each layer and direction the first that is converted as it is."""
        first: dict[tuple[Any, ...], Place] = {}
        return {
            place: first.setdefault(tuple(move.shape for move in moves), place)
            for place, moves in self.every.items()
        }


def moves_of(spec: Spec, source: Layout, target: Layout, has: int | None = None) -> Moves:
    """Return the moves between two layouts. has: the optional tensors of the source, as in Given.

    Raises LossyError if the RNN cannot be converted.
    """
    has = spec_has(spec) if has is None else has
    made = spec_in(target, spec)
    plan = plan_for(made, source, has, target)
    transposed = _transposed(source, made, has) ^ _transposed(target, made, spec_has(made))
    every: dict[Place, list[Move]] = {}
    for step in plan.steps():
        every.setdefault(step[1][:2], []).append(_move(step, transposed))
    sources, targets = ([name for name, _ in each] for each in (plan.sources, plan.targets))
    return Moves(made, sources, targets, dict(sorted(every.items())))


def title_of(place: Place, spec: Spec) -> str:
    """Return "layer 1 backward" for a layer and direction."""
    layer, direction = place
    side = (" forward", " backward")[direction] if spec.bidirectional else ""
    return f"layer {layer}{side}"


def _transposed(layout: Layout, spec: Spec, has: int) -> set[tuple[Any, ...]]:
    """Return the blocks whose matrix the layout stores transposed."""
    return {
        block
        for block, (_, _, rows, cols, row_stride, col_stride, _) in _native.blocks(
            layout, spec, has
        )
        if row_stride < col_stride and rows > 1 and cols > 1
    }


def _move(step: tuple[Any, ...], transposed: set[tuple[Any, ...]]) -> Move:
    op, block, from_role, negate, src, src2, dst, src_ravel, dst_ravel, shift = step
    role = block[2]
    notes = {
        "transposed": op == "move" and block in transposed,
        "each (I, H) window read as the (H, I) matrix, row by row": src_ravel != dst_ravel,
        "negated": negate and op != "zero",
        f"from {from_role}": op in ("move", "shift") and from_role not in ("", role),
        "bW + bR": src2 >= 0,
        "forget bias": shift,
    }
    read = ((src, from_role), (src2, "bR"))  # a tensor without one has number -1
    return Move(
        op,
        block,
        tuple((tensor, role) for tensor, role in read if tensor >= 0),
        dst if dst >= 0 else None,
        tuple(note for note in notes if notes[note]),
        shift,
    )
