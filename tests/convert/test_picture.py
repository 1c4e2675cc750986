"""Pictures of conversions: a ribbon per move, from the block that is read to the one written."""

from oracles.some import normal_weights
from svgs import check

import rnnlayout as rl


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
