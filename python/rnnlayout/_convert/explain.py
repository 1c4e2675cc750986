"""explain: the moves of a conversion as text."""

from __future__ import annotations

from typing import Any

from rnnlayout import _native
from rnnlayout._model.layout import ROLES, Layout, as_layout, known_layouts
from rnnlayout._model.spec import Spec
from rnnlayout._native import LossyError

from .engine import plan_for


def explain(spec: Spec, src: str | Layout, dst: str | Layout) -> str:
    """The moves of a conversion as text, and its grade.

    Says for each gate which tensor it comes from and goes to; whether it is transposed, negated,
    summed, filled with zeros, or required to be zero. A conversion that cannot be done is said
    with its reason, not raised.

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
    source, target = as_layout(src), as_layout(dst)
    head = f"{source} -> {target}: {spec}"
    has = 0 if spec.bias == "none" else _native.HAS_BIAS
    try:
        plan = plan_for(spec, source, has, target)
    except LossyError as error:
        return f"{head}\ngrade: unrepresentable\n{error}"
    steps = plan.steps()
    orders = " -> ".join(" ".join(_gates(layout, spec)) for layout in (source, target))
    lines = [head, f"grade: {_grade(steps)}", f"gates in memory: {orders}"]
    lines += [f"{layout}: {key}, {note}" for layout in (source, target)
              for key, note in layout.notes.items()]  # fmt: skip
    turned = _orientation(source, spec, has), _orientation(target, spec, has)
    lines += _groups(spec, plan, steps, *turned)
    return "\n".join(lines)


def _gates(layout: Layout, spec: Spec) -> str:
    letters: str = known_layouts()[layout.name]["gates"][spec.cell]
    return letters


def _grade(steps: list[tuple[Any, ...]]) -> str:
    ops = {step[0] for step in steps}
    grade = "exact"
    if "add" in ops:
        grade += " where one of the two biases of a gate is zero, else rounds"
    needs = sorted({f"{ROLES[s[1][2]]} of gate {s[1][4]}" for s in steps if s[0] == "expect_zero"})
    if needs:
        grade += f"; unrepresentable unless zero: {', '.join(needs)}"
    if "expect_identity" in ops:
        grade += "; unrepresentable unless the input matrices of layer 0 are the identity"
    return grade


def _orientation(layout: Layout, spec: Spec, has: int) -> dict[tuple[Any, ...], bool]:
    """block -> is its matrix stored with the columns apart (transposed)?"""
    return {
        block: view[4] < view[5] and view[2] > 1 and view[3] > 1
        for block, view in _native.blocks(layout, spec, has)
    }


def _groups(
    spec: Spec,
    plan: Any,
    steps: list[tuple[Any, ...]],
    src_turned: dict[tuple[Any, ...], bool],
    dst_turned: dict[tuple[Any, ...], bool],
) -> list[str]:
    """A paragraph for each layer and direction; those that repeat the first but for names are
    told in one line."""
    sources = [name for name, _ in plan.sources]
    targets = [name for name, _ in plan.targets]
    groups: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
    for step in steps:
        groups.setdefault(step[1][:2], []).append(step)
    lines: list[str] = []
    seen: dict[tuple[Any, ...], str] = {}
    for (layer, direction), members in sorted(groups.items()):
        title = f"layer {layer}"
        if spec.bidirectional:
            title += " backward" if direction else " forward"
        shape = tuple((s[0], s[1][2:], s[2], s[3]) for s in members)
        if shape in seen:
            lines.append(f"{title}: as {seen[shape]}")
            continue
        seen[shape] = title
        lines.append(title)
        lines += [_line(s, sources, targets, src_turned, dst_turned) for s in members]
    return lines


def _line(
    step: tuple[Any, ...],
    sources: list[str],
    targets: list[str],
    src_turned: dict[tuple[Any, ...], bool],
    dst_turned: dict[tuple[Any, ...], bool],
) -> str:
    op, block, from_role, negate, src, src2, dst, src_ravel, dst_ravel = step
    role, gate = block[2], block[4]
    words = []
    if op == "move" and src_turned.get(block, False) != dst_turned.get(block, False):
        words.append("transposed")
    if src_ravel != dst_ravel:
        words.append("each (I, H) window read as the (H, I) matrix, row by row")
    if negate and op != "zero":
        words.append("negated")
    target = targets[dst] if dst >= 0 else ""
    if op == "move":
        what = f"{sources[src]} -> {target}"
        if from_role != role:
            words.append(f"from {from_role}")
    elif op == "add":
        both = sources[src] if src == src2 else f"{sources[src]} + {sources[src2]}"
        what = f"{both} -> {target}"
        words.append("bW + bR")
    elif op == "zero":
        what = f"0 -> {target}"
    elif op == "identity":
        what = f"identity -> {target}"
    elif op == "expect_zero":
        what = f"{sources[src]} must be zero"
    else:
        what = f"{sources[src]} must be the identity"
    return f"  {role:<2} {gate or '-'}  " + ", ".join([what, *words])
