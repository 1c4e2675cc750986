"""The moves of a conversion in words, with its grade."""

from __future__ import annotations

from rnnlayout._model.layout import ROLES, Layout, known_layouts
from rnnlayout._model.spec import Spec
from rnnlayout._native import LossyError

from .moves import Move, Moves, layer_title, moves_of


def conversion_in_words(
    spec: Spec, source: Layout, target: Layout, optional_tensors: int | None = None
) -> str:
    """Return the text of explain(). optional_tensors: those that the source has, HAS_BIAS |
    HAS_PEEPHOLES; None if the spec decides that.
    """
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
        if place == first:
            lines.append(layer_title(place, spec))
            lines += [
                _move_in_words(move, moves.sources, moves.targets) for move in moves.every[place]
            ]
        else:
            lines.append(f"{layer_title(place, spec)}: as {layer_title(first, spec)}")
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
