"""Pictures of conversions: a ribbon per move, from the block that is read to the one written."""

import re

import pytest
from marks import sample
from oracles.some import normal_weights
from svgs import check

import rnnlayout as rl
from rnnlayout import _native


def ends(ribbon):
    """Return left x, top, bottom and right x, top, bottom of a ribbon."""
    numbers = [float(number) for number in re.findall(r"[\d.]+", ribbon.get("d"))]
    (x0, top0), (x1, top1), (x2, bottom1), (x3, bottom0) = (
        (numbers[k], numbers[k + 1]) for k in (0, 6, 8, 14)
    )
    assert (x0, x1) == (x3, x2)
    return (x0, top0, bottom0), (x1, top1, bottom1)


def block_at(blocks, x, top, bottom, gate, side):
    """Return the block of a gate that a ribbon touches at its right or left edge."""
    touched = [
        block
        for block in blocks
        if block.top - 0.2 <= top < bottom <= block.bottom + 0.2
        and (x <= block.left + 0.2 if side == "left" else block.right - 0.2 <= x)
        and f" of gate {gate}" in block.words + " of gate "
    ]
    regions = {(block.top, block.bottom) for block in touched}
    assert len(regions) == 1, "in one region"
    return touched[0]


PAIRS = [
    (source, target, cell)
    for source, info in rl.layouts().items()
    for target, other in rl.layouts().items()
    for cell in ("lstm", "gru", "rnn_tanh")
    if cell in info["cells"] and cell in other["cells"]
]


@pytest.mark.parametrize(("source", "target", "cell"), sample(PAIRS[::13], 5))
def test_every_move_is_a_ribbon(source, target, cell):
    reset = next(iter(rl.layouts()[source]["resets"]), "after") if cell == "gru" else "after"
    spec = rl.Spec(cell, 7, 5, 2, True, reset=reset)
    try:
        plan = _native.Plan(spec, rl.layout(source), _native.HAS_BIAS, rl.layout(target))
    except rl.LossyError as error:
        with pytest.raises(rl.LossyError, match=re.escape(str(error)[:40])):
            rl.picture(spec, source, target)
        return
    steps = [step for step in plan.steps() if step[1][:2] == (0, 0)]
    width = 300 if len(source) % 2 else 760
    picture = rl.picture(spec, source, target, width=width)
    assert str(picture).endswith(rl.explain(spec, source, target).partition("\n")[2])
    svg = check(picture.svg)
    read = [(step, number) for step in steps for number in step[4:6] if number >= 0]
    moved = [one for one in read if one[0][6] >= 0]
    alike = "other layers and directions" in picture.svg or ": as layer 0 forward" in picture.svg
    if not alike:  # skip: the layers above are converted in another way
        return
    assert len(svg.ribbons) == len(moved)
    middle = svg.page.right / 2
    left = [block for block in svg.blocks if block.right < middle]
    right = [block for block in svg.blocks if block.left > middle]
    read_from, written_to = ([*rl.describe(spec, layout)] for layout in (source, target))
    for ribbon, (step, number) in zip(svg.ribbons, moved, strict=True):
        gate, start, end = step[1][4], *ends(ribbon)
        assert f"of {read_from[number]}" in block_at(left, *start, gate, "right").words
        assert f"of {written_to[step[6]]}" in block_at(right, *end, gate, "left").words
    signs = [one.words for one in svg.texts if one.kind == "sign"]
    assert sum("+" in one for one in signs) == sum(step[5] >= 0 for step in steps)
    assert sum("-" in one for one in signs) == sum(step[3] and step[0] != "zero" for step in steps)
    assert sum(one == "0" for one in signs) == sum(step[0] == "zero" for step in steps)
    assert sum("T" in one for one in signs) == rl.explain(spec, source, target).count("transposed")


def test_layers_that_are_alike_are_drawn_once():
    svg = check(rl.picture(rl.Spec("lstm", 8, 16, 8, True), "cudnn", "torch").svg)
    texts = {one.words for one in svg.texts}
    assert "15 other layers and directions: as layer 0 forward" in texts
    assert "· · ·" in texts, "the memory of the other layers"
    assert len(svg.ribbons) == 16 and len(svg.blocks) == 32
    svg = check(rl.picture(rl.Spec("lstm", 8, 8, 2, skip_input=True), "cudnn", "torch").svg)
    assert len(svg.ribbons) == 12 + 16  # layer 0 has no input matrices: they become the identity


def test_what_must_be_zero_or_the_identity_and_what_is_negated():
    def drawn(spec, source, target):
        """Return the signs of a picture, all its texts, and the grade of the conversion."""
        texts = check(rl.picture(spec, source, target).svg).texts
        signs = [one.words for one in texts if one.kind == "sign"]
        return signs, {one.words for one in texts}, rl.explain(spec, source, target).splitlines()[1]

    _, texts, grade = drawn(rl.Spec("lstm", 8, 8, skip_input=True), "torch", "cudnn")
    assert "must be the identity" in texts
    wanted = "grade: exact; unrepresentable unless the input matrices of layer 0 are the identity"
    assert grade == wanted
    _, texts, grade = drawn(rl.Spec("lstm", 5, 3, bias=False), "haiku", "torch")
    assert "must be minus the forget bias" in texts
    assert grade.endswith("gate o; unrepresentable unless -1: input bias of gate f")
    signs, texts, _ = drawn(rl.Spec("gru", 5, 3), "torch", rl.layout("concat", z="candidate"))
    assert sorted(signs) == ["!", "+", "-", "-", "- +"] and "must be zero" in texts


def test_what_a_notebook_shows():
    spec = rl.Spec("lstm", 5, 3)
    explanation = rl.explain(spec, "torch", "keras")
    assert isinstance(explanation, str)
    assert explanation._repr_svg_() == rl.picture(spec, "torch", "keras").svg
    assert rl.explain(rl.Spec("gru", 5, 3), "torch", "haiku")._repr_svg_() is None
    weights = rl.Weights(normal_weights("keras", spec))
    assert weights._repr_svg_() == rl.picture(spec, "keras").svg
    wide = weights.picture("onnx", width=300)
    assert wide.svg == rl.picture(spec, "keras", "onnx", width=300).svg
