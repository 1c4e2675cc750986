"""The moves of a conversion: source, operation and target of each block; also in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rnnlayout import _native
from rnnlayout._model.kinds import Kind
from rnnlayout._model.layout import ROLES, Layout, layer_in_words
from rnnlayout._model.spec import Spec, optional_tensors_of
from rnnlayout._native import LossyError

from .engine import plan_for, result_spec

LayerDirection = tuple[int, int]  # layer, direction


@dataclass(frozen=True)
class Move:
    """An operation on a block (layer, direction, role, number, gate).

    op: "move", "add", "either" (of two equal gradients), "shift" (by a forget bias), "zero",
        "identity", "expect_zero" or "expect_identity". sources: (number of the tensor, role) of
        each block that is read.
    target: number of the tensor that is written; None for "expect_...". notes: operations on the
        way, in words. shift: the summand of "shift"; for "expect_zero", minus the required value.
    """

    op: str
    block: tuple[int, int, str, int, str]
    sources: tuple[tuple[int, str], ...]
    target: int | None
    notes: tuple[str, ...]
    shift: float

    @property
    def shape(self) -> tuple[Any, ...]:
        """A key that is equal for moves of layers that are converted alike."""
        roles = tuple(role for _, role in self.sources)
        return self.op, self.block[2:], roles, self.notes, self.shift


@dataclass(frozen=True)
class Moves:
    """All moves of a conversion. target: the Spec of the result. sources, targets: the names of the
    tensors of both layouts. by_place: the moves of each layer and direction.
    """

    target: Spec
    sources: list[str]
    targets: list[str]
    by_place: dict[LayerDirection, list[Move]]

    def alike(self) -> dict[LayerDirection, LayerDirection]:
        """Return layer and direction -> first layer and direction that is converted alike."""
        first: dict[tuple[Any, ...], LayerDirection] = {}
        return {
            place: first.setdefault(tuple(move.shape for move in moves), place)
            for place, moves in self.by_place.items()
        }


def moves_of(
    spec: Spec,
    source: Layout,
    target: Layout,
    optional_tensors: int | None = None,
    kind: Kind = "weights",
) -> Moves:
    """Return the moves between two layouts. optional_tensors: HAS_BIAS | HAS_PEEPHOLES, of the
    source; by default as the spec. Raises LossyError if the conversion is impossible."""
    optional_tensors = optional_tensors_of(spec) if optional_tensors is None else optional_tensors
    result = result_spec(target, spec)
    plan = plan_for(result, source, optional_tensors, target, kind)
    transposed = _transposed_blocks(source, result, optional_tensors) ^ _transposed_blocks(
        target, result, optional_tensors_of(result)
    )
    by_place: dict[LayerDirection, list[Move]] = {}
    for op in plan.block_ops():
        by_place.setdefault(op[1][:2], []).append(_make_move(op, transposed))
    sources, targets = ([name for name, _ in tensors] for tensors in (plan.sources, plan.targets))
    return Moves(result, sources, targets, dict(sorted(by_place.items())))


def _transposed_blocks(layout: Layout, spec: Spec, optional_tensors: int) -> set[tuple[Any, ...]]:
    """Return the blocks that the layout stores as transposed matrices."""
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
        "bW + bR": kind in ("add", "shift") and src2 >= 0,
        "forget bias": shift,
    }
    reads = ((src, from_role), (src2, "bR"))  # the number -1: no tensor is read
    sources = tuple((tensor, role) for tensor, role in reads if tensor >= 0)
    target, move_notes = dst if dst >= 0 else None, tuple(note for note in notes if notes[note])
    return Move(kind, block, sources, target, move_notes, shift)


def conversion_in_words(
    spec: Spec,
    source: Layout,
    target: Layout,
    optional_tensors: int | None = None,
    kind: Kind = "weights",
) -> str:
    """Return the text of explain(). optional_tensors: HAS_BIAS | HAS_PEEPHOLES, of the source; by
    default as the spec."""
    both = source, target
    head = f"{source} -> {target}: {spec}" + (f", {kind}" if kind != "weights" else "")
    try:
        moves = moves_of(spec, source, target, optional_tensors, kind)
    except LossyError as error:
        return f"{head}\ngrade: unrepresentable\n{error}"
    orders = " -> ".join(" ".join(layout.facts["gates"][spec.cell]) for layout in both)
    lines = [head, f"grade: {_grade_in_words(moves)}", f"gates in memory: {orders}"]
    lines += [f"{layout}: {key}, {note}" for layout in both for key, note in layout.notes.items()]
    for place, first in moves.alike().items():
        title, first_title = (
            layer_in_words(*layer_direction, spec.num_directions)
            for layer_direction in (place, first)
        )
        lines.append(title if place == first else f"{title}: as {first_title}")
        for move in moves.by_place[place] if place == first else ():
            lines.append(_move_in_words(move, moves.sources, moves.targets))
    return "\n".join(lines)


def _grade_in_words(moves: Moves) -> str:
    all_moves = [move for group in moves.by_place.values() for move in group]
    ops = {move.op for move in all_moves}
    grade = "exact"
    if "add" in ops:
        grade += " where one of the two biases of a gate is zero, else rounds"
    if "either" in ops:
        grade += (
            " where the gradients of the two biases of a gate are equal, rounds where they are"
            " equal up to rounding, else unrepresentable"
        )
    if "shift" in ops:
        grade += "; of gate f where the sum with the forget bias is not rounded, else rounds"
    vanish: dict[float, set[str]] = {}
    for move in all_moves:
        if move.op == "expect_zero":
            block_text = f"{ROLES[move.block[2]]} of gate {move.block[4]}"
            vanish.setdefault(-move.shift, set()).add(block_text)
    for value, blocks in sorted(vanish.items(), reverse=True):
        grade += f"; unrepresentable unless {_number_in_words(value)}: {', '.join(sorted(blocks))}"
    if "expect_identity" in ops:
        grade += "; unrepresentable unless the input matrices of layer 0 are the identity"
    return grade


def _number_in_words(value: float) -> str:
    return f"{value:g}" if value else "zero"


def _move_in_words(move: Move, sources: list[str], targets: list[str]) -> str:
    role, gate = move.block[2], move.block[4]
    source = sources[move.sources[0][0]] if move.sources else ""
    target = "" if move.target is None else targets[move.target]
    summands = dict.fromkeys(sources[k] for k, _ in move.sources)
    total = " + ".join(summands) or "0"
    shift = move.shift
    action = {
        "move": f"{source} -> {target}",
        "add": f"{total} -> {target}",
        "either": f"{' = '.join(summands)} -> {target}, either of the two",
        "shift": f"{total} {'+' if shift > 0 else '-'} {abs(shift):g} -> {target}",
        "zero": f"0 -> {target}",
        "identity": f"identity -> {target}",
        "expect_zero": f"{source} must be {_number_in_words(-shift)}",
        "expect_identity": f"{source} must be the identity",
    }[move.op]
    return f"  {role:<2} {gate or '-'}  " + ", ".join([action, *move.notes])
