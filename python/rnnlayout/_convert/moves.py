"""The moves of a conversion: what is done to each block, from where to where; also in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rnnlayout import _native
from rnnlayout._model.layout import ROLES, Layout, known_layouts, layer_in_words
from rnnlayout._model.spec import Spec, optional_tensors_of
from rnnlayout._native import LossyError

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
    HAS_PEEPHOLES; None if the spec decides that. Raises LossyError if there is no conversion."""
    optional_tensors = optional_tensors_of(spec) if optional_tensors is None else optional_tensors
    made = result_spec(target, spec)
    plan = plan_for(made, source, optional_tensors, target)
    transposed = _transposed_blocks(source, made, optional_tensors) ^ _transposed_blocks(
        target, made, optional_tensors_of(made)
    )
    every: dict[LayerDirection, list[Move]] = {}
    for op in plan.block_ops():
        every.setdefault(op[1][:2], []).append(_make_move(op, transposed))
    sources, targets = ([name for name, _ in each] for each in (plan.sources, plan.targets))
    return Moves(made, sources, targets, dict(sorted(every.items())))


def _transposed_blocks(layout: Layout, spec: Spec, optional_tensors: int) -> set[tuple[Any, ...]]:
    """Return the blocks whose matrix the layout stores transposed."""
    return {
        block
        for block, (_, _, rows, cols, row_stride, col_stride, _) in _native.blocks(
            layout, spec, optional_tensors
        )
        if row_stride < col_stride and rows > 1 and cols > 1
    }


def _make_move(op: tuple[Any, ...], transposed: set[tuple[Any, ...]]) -> Move:
    kind, block, from_role, negate, src, src2, dst, src_ravel, dst_ravel, shift = op
    role = block[2]
    notes = {
        "transposed": kind == "move" and block in transposed,
        "each (I, H) window read as the (H, I) matrix, row by row": src_ravel != dst_ravel,
        "negated": negate and kind != "zero",
        f"from {from_role}": kind in ("move", "shift") and from_role not in ("", role),
        "bW + bR": src2 >= 0,
        "forget bias": shift,
    }
    read = ((src, from_role), (src2, "bR"))  # a tensor without one has number -1
    sources = tuple((tensor, role) for tensor, role in read if tensor >= 0)
    target, told = dst if dst >= 0 else None, tuple(note for note in notes if notes[note])
    return Move(kind, block, sources, target, told, shift)


def conversion_in_words(
    spec: Spec, source: Layout, target: Layout, optional_tensors: int | None = None
) -> str:
    """Return the text of explain(). optional_tensors: those that the source has, HAS_BIAS |
    HAS_PEEPHOLES; None if the spec decides that."""
    both = source, target
    head = f"{source} -> {target}: {spec}"
    try:
        moves = moves_of(spec, source, target, optional_tensors)
    except LossyError as error:
        return f"{head}\ngrade: unrepresentable\n{error}"
    orders = " -> ".join(" ".join(known_layouts()[x.name]["gates"][spec.cell]) for x in both)
    lines = [head, f"grade: {_grade_in_words(moves)}", f"gates in memory: {orders}"]
    lines += [f"{each}: {key}, {note}" for each in both for key, note in each.notes.items()]
    for place, first in moves.alike().items():
        title, other = (layer_in_words(*one, spec.num_directions) for one in (place, first))
        lines.append(title if place == first else f"{title}: as {other}")
        for move in moves.every[place] if place == first else ():
            lines.append(_move_in_words(move, moves.sources, moves.targets))
    return "\n".join(lines)


def _grade_in_words(moves: Moves) -> str:
    every = [move for group in moves.every.values() for move in group]
    ops = {move.op for move in every}
    grade = "exact"
    if "add" in ops:
        grade += " where one of the two biases of a gate is zero, else rounds"
    if "shift" in ops:
        grade += "; of gate f where the sum with the forget bias is not rounded, else rounds"
    vanish: dict[float, set[str]] = {}
    for move in every:
        if move.op == "expect_zero":
            needs = f"{ROLES[move.block[2]]} of gate {move.block[4]}"
            vanish.setdefault(-move.shift, set()).add(needs)
    for value, needed in sorted(vanish.items(), reverse=True):
        grade += f"; unrepresentable unless {_number_in_words(value)}: {', '.join(sorted(needed))}"
    if "expect_identity" in ops:
        grade += "; unrepresentable unless the input matrices of layer 0 are the identity"
    return grade


def _number_in_words(value: float) -> str:
    return f"{value:g}" if value else "zero"


def _move_in_words(move: Move, sources: list[str], targets: list[str]) -> str:
    role, gate = move.block[2], move.block[4]
    source = sources[move.sources[0][0]] if move.sources else ""
    target = "" if move.target is None else targets[move.target]
    total = " + ".join(dict.fromkeys(sources[k] for k, _ in move.sources)) or "0"
    shift = move.shift
    what = {
        "move": f"{source} -> {target}",
        "add": f"{total} -> {target}",
        "shift": f"{total} {'+' if shift > 0 else '-'} {abs(shift):g} -> {target}",
        "zero": f"0 -> {target}",
        "identity": f"identity -> {target}",
        "expect_zero": f"{source} must be {_number_in_words(-shift)}",
        "expect_identity": f"{source} must be the identity",
    }[move.op]
    return f"  {role:<2} {gate or '-'}  " + ", ".join([what, *move.notes])
