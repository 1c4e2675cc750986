"""The moves of a conversion: what is done to each block, and where it comes from and goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rnnlayout import _native
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import Spec, optional_tensors_of

from .engine import plan_for, result_spec

LayerDirection = tuple[int, int]  # layer, direction


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
    def shape(self) -> tuple[Any, ...]:
        """What is the same in all layers that are converted alike."""
        roles = tuple(role for _, role in self.sources)
        return self.op, self.block[2:], roles, self.notes, self.shift


@dataclass(frozen=True)
class Moves:
    """All moves of a conversion. target: the Spec of the result. sources, targets: the names of the
    tensors of both layouts. every: the moves by layer and direction.
    """

    target: Spec
    sources: list[str]
    targets: list[str]
    every: dict[LayerDirection, list[Move]]

    def alike(self) -> dict[LayerDirection, LayerDirection]:
        """Return for each layer and direction the first that is converted as it is."""
        first: dict[tuple[Any, ...], LayerDirection] = {}
        return {
            place: first.setdefault(tuple(move.shape for move in moves), place)
            for place, moves in self.every.items()
        }


def moves_of(
    spec: Spec, source: Layout, target: Layout, optional_tensors: int | None = None
) -> Moves:
    """Return the moves between two layouts. optional_tensors: those that the source has, HAS_BIAS |
    HAS_PEEPHOLES; None if the spec decides that.

    Raises LossyError if the RNN cannot be converted.
    """
    optional_tensors = optional_tensors_of(spec) if optional_tensors is None else optional_tensors
    made = result_spec(target, spec)
    plan = plan_for(made, source, optional_tensors, target)
    transposed = _transposed_blocks(source, made, optional_tensors) ^ _transposed_blocks(
        target, made, optional_tensors_of(made)
    )
    every: dict[LayerDirection, list[Move]] = {}
    for step in plan.steps():
        every.setdefault(step[1][:2], []).append(_make_move(step, transposed))
    sources, targets = ([name for name, _ in each] for each in (plan.sources, plan.targets))
    return Moves(made, sources, targets, dict(sorted(every.items())))


def layer_title(place: LayerDirection, spec: Spec) -> str:
    """Return "layer 1 backward" for a layer and direction."""
    layer, direction = place
    side = (" forward", " backward")[direction] if spec.bidirectional else ""
    return f"layer {layer}{side}"


def _transposed_blocks(layout: Layout, spec: Spec, optional_tensors: int) -> set[tuple[Any, ...]]:
    """Return the blocks whose matrix the layout stores transposed."""
    return {
        block
        for block, (_, _, rows, cols, row_stride, col_stride, _) in _native.blocks(
            layout, spec, optional_tensors
        )
        if row_stride < col_stride and rows > 1 and cols > 1
    }


def _make_move(step: tuple[Any, ...], transposed: set[tuple[Any, ...]]) -> Move:
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
