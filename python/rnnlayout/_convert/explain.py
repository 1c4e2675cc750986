"""explain and picture: what a conversion does to each gate, in words and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rnnlayout import _native
from rnnlayout._model.layout import CUDNN, Layout, as_layout
from rnnlayout._model.picture.picture import WIDTH, Part, Picture, Subject, draw_subjects
from rnnlayout._model.picture.scene import MARGIN, Scene
from rnnlayout._model.spec import Spec
from rnnlayout._native import LossyError

from .moves import conversion_in_words, moves_of
from .ribbons import draw_ribbons


class Explanation(str):
    """The result of explain(): a text, which a notebook shows as a picture of the moves.

    spec, layout, to: the arguments of explain().
    """

    spec: Spec
    layout: Layout
    to: Layout

    def __repr__(self) -> str:  # a prompt shows the text
        return str(self)

    def picture(self, *, width: float = WIDTH) -> Picture:
        """Draw the conversion: see picture()."""
        return picture(self.spec, self.layout, self.to, width=width)

    def _repr_svg_(self) -> str | None:
        try:
            return self.picture().svg
        except LossyError:  # the text has the reason
            return None


def explain(spec: Spec, layout: str | Layout, to: str | Layout) -> Explanation:
    """Return what the conversion from `layout` to another does, as text, with its grade.

    For each gate: the tensors that it comes from and goes to; whether it is transposed, negated,
    summed, filled with zeros, or required to be zero. For a conversion that is not possible the
    text has the reason; nothing is raised. A notebook shows it as a picture.

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
    source, target = as_layout(layout), as_layout(to)
    explanation = Explanation(conversion_in_words(spec, source, target))
    explanation.spec, explanation.layout, explanation.to = spec, source, target
    return explanation


def picture(
    spec: Spec,
    layout: str | Layout = CUDNN,
    to: str | Layout | None = None,
    *,
    width: float = WIDTH,
) -> Picture:
    """Draw the tensors of an RNN as they lie in memory, or a conversion of them.

    layout: whose tensors are drawn: each block in the colour of its gate, with its layer,
        direction, role (W, R, P, bW, bR) and offset in bytes. Blocks are to scale; those too small
        for their letter are enlarged, and dashed.
    to: another layout, drawn beside the first, with the moves of the conversion between them:
        explain() as a picture.
    width: of the picture in pixels, 240 to 4000; the texts have the same size in each.

    Returns a Picture: a notebook shows it, str() has it in letters, save() writes .svg or .png.
    Raises LossyError if the RNN cannot be represented in a layout, or not be converted.

        >>> print(picture(Spec("gru", 8, 4)))
        gru, input_size 8, hidden_size 4
        cudnn: 672 bytes
        layer 0  W     0  rrrrrrrrrrrrrrrrrrrrzzzzzzzzzzzzzzzzzzzznnnnnnnnnnnnnnnnnnnn
                 R   384  rrrrrrrrrrzzzzzzzzzznnnnnnnnnn
                 bW  576  rrzznn
                 bR  624  rrzznn
    """
    _native.check(spec)
    source = as_layout(layout)
    return draw_rnns([Subject(spec, source)], None if to is None else as_layout(to), width)


def draw_rnns(subjects: Sequence[Subject], to: Layout | None, width: float = WIDTH) -> Picture:
    """Return a picture of the memory of subjects, or of their conversions."""
    return draw_subjects(subjects, width, partial(_add_conversion, to) if to else None)


def _add_conversion(to: Layout, scene: Scene, subject: Subject) -> list[Part]:
    """Draw a subject's conversion, and return its text."""
    spec, layout = subject.spec, subject.layout
    moves = moves_of(spec, layout, to, subject.optional_tensors)
    target = Subject(moves.target, to)
    both = subject.tensors(), target.tensors()
    _, grade, *told = conversion_in_words(spec, layout, to, subject.optional_tensors).split("\n")
    scene.paragraph(MARGIN, f"{layout} -> {to}: {grade.removeprefix('grade: ')}", "say")
    scene.height += 8
    draw_ribbons(scene, spec, both, (str(layout), str(to)), moves)
    return [*subject.text(both[0]), *target.text(both[1]), grade, *told]
