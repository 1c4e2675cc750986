"""explain: what a conversion does to each gate, as text."""

from __future__ import annotations

from typing import Any

from rnnlayout import _native
from rnnlayout._model.layout import ROLES, Layout, as_layout, known_layouts
from rnnlayout._model.spec import Spec, spec_has
from rnnlayout._native import LossyError

from .engine import plan_for, spec_in


def explain(spec: Spec, layout: str | Layout, to: str | Layout) -> str:
    """Return what the conversion from `layout` to another does, as text, with its grade.

    For each gate: the tensors that it comes from and goes to; whether it is transposed, negated,
    summed, filled with zeros, or required to be zero. For a conversion that is not possible the
    text has the reason; nothing is raised.

        >>> print(explain(Spec("rnn_tanh", 2, 3), "keras", "torch"))
        keras -> torch: rnn_tanh, input_size 2, hidden_size 3
        grade: exact
        gates in memory: h -> h
        layer 0
          W  h  kernel -> weight_ih_l0, transposed
          R  h  recurrent_kernel -> weight_hh_l0, transposed
          bW h  bias -> bias_ih_l0
          bR h  0 -> bias_hh_l0
    """
    _native.check(spec)
    source, target = both = as_layout(layout), as_layout(to)
    head = f"{source} -> {target}: {spec}"
    has, spec = spec_has(spec), spec_in(target, spec)
    try:
        plan = plan_for(spec, source, has, target)
    except LossyError as error:
        return f"{head}\ngrade: unrepresentable\n{error}"
    steps = plan.steps()
    orders = " -> ".join(" ".join(known_layouts()[x.name]["gates"][spec.cell]) for x in both)
    lines = [head, f"grade: {_grade(steps)}", f"gates in memory: {orders}"]
    lines += [f"{each}: {key}, {note}" for each in both for key, note in each.notes.items()]
    sources, targets = ([name for name, _ in tensors] for tensors in (plan.sources, plan.targets))
    transposed = _transposed(source, spec, has) ^ _transposed(target, spec, has)
    groups: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
    for step in steps:
        groups.setdefault(step[1][:2], []).append(step)
    seen: dict[tuple[Any, ...], str] = {}
    for (layer, direction), members in sorted(groups.items()):
        title = f"layer {layer}"
        if spec.bidirectional:
            title += " backward" if direction else " forward"
        shape = tuple((s[0], s[1][2:], s[2], s[3]) for s in members)
        if shape in seen:  # the same but for the tensors' names
            lines.append(f"{title}: as {seen[shape]}")
            continue
        seen[shape] = title
        lines += [title, *(_line(step, sources, targets, transposed) for step in members)]
    return "\n".join(lines)


def _grade(steps: list[tuple[Any, ...]]) -> str:
    ops = {step[0] for step in steps}
    grade = "exact"
    if "add" in ops:
        grade += " where one of the two biases of a gate is zero, else rounds"
    if "shift" in ops:
        grade += "; of gate f where the sum with the forget bias is not rounded, else rounds"
    vanish: dict[float, set[str]] = {}
    for op, block, *_, shift in steps:
        if op == "expect_zero":
            vanish.setdefault(-shift, set()).add(f"{ROLES[block[2]]} of gate {block[4]}")
    for value, needs in sorted(vanish.items(), reverse=True):
        grade += f"; unrepresentable unless {_number(value)}: {', '.join(sorted(needs))}"
    if "expect_identity" in ops:
        grade += "; unrepresentable unless the input matrices of layer 0 are the identity"
    return grade


def _number(value: float) -> str:
    return f"{value:g}" if value else "zero"


def _transposed(layout: Layout, spec: Spec, has: int) -> set[tuple[Any, ...]]:
    """Return the blocks whose matrix the layout stores transposed."""
    return {
        block
        for block, (_, _, rows, cols, row_stride, col_stride, _) in _native.blocks(
            layout, spec, has
        )
        if row_stride < col_stride and rows > 1 and cols > 1
    }


def _line(
    step: tuple[Any, ...], sources: list[str], targets: list[str], transposed: set[tuple[Any, ...]]
) -> str:
    op, block, from_role, negate, src, src2, dst, src_ravel, dst_ravel, shift = step
    role, gate = block[2], block[4]
    source, target = sources[src], targets[dst]  # an operation without one has index -1
    terms = [sources[k] for k in (src, src2) if k >= 0]
    total = " + ".join(dict.fromkeys(terms)) or "0"
    what = {
        "move": f"{source} -> {target}",
        "add": f"{total} -> {target}",
        "shift": f"{total} {'+' if shift > 0 else '-'} {abs(shift):g} -> {target}",
        "zero": f"0 -> {target}",
        "identity": f"identity -> {target}",
        "expect_zero": f"{source} must be {_number(-shift)}",
        "expect_identity": f"{source} must be the identity",
    }[op]
    notes = {
        "transposed": op == "move" and block in transposed,
        "each (I, H) window read as the (H, I) matrix, row by row": src_ravel != dst_ravel,
        "negated": negate and op != "zero",
        f"from {from_role}": op in ("move", "shift") and from_role not in ("", role),
        "bW + bR": src2 >= 0,
        "forget bias": shift,
    }
    return f"  {role:<2} {gate or '-'}  " + ", ".join([what, *(n for n in notes if notes[n])])
