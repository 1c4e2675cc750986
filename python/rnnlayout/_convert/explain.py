"""explain and picture: the operations of a conversion on each gate, in words and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rnnlayout import _native
from rnnlayout._model.kinds import Kind, check_kind
from rnnlayout._model.layout import CUDNN, Layout, as_layout
from rnnlayout._model.picture.picture import WIDTH, Part, Picture, Subject, draw_subjects
from rnnlayout._model.picture.scene import MARGIN, Scene
from rnnlayout._model.spec import Spec
from rnnlayout._native import LossyError

from .moves import conversion_in_words, moves_of
from .ribbons import draw_ribbons


class Explanation(str):
    """The result of explain(): a text. A notebook shows a picture of the moves.

    spec, layout, to, kind: the arguments of explain().
    """

    spec: Spec
    layout: Layout
    to: Layout
    kind: Kind

    def __repr__(self) -> str:  # a prompt shows the text
        return str(self)

    def picture(self, *, width: float = WIDTH) -> Picture:
        """Draw the conversion: see picture()."""
        return picture(self.spec, self.layout, self.to, width=width, kind=self.kind)

    def _repr_svg_(self) -> str | None:
        try:
            return self.picture().svg
        except LossyError:  # the text has the reason
            return None


def explain(
    spec: Spec, layout: str | Layout, to: str | Layout, *, kind: Kind = "weights"
) -> Explanation:
    """Explain the conversion from one layout to another, as a text with the grade.

    kind: of the values to convert, see convert().

    For each gate: source and target tensors; whether the block is transposed, negated, summed,
    filled with zeros, or required to be zero. For an impossible conversion the text has the reason;
    no error is raised. A notebook shows the text as a picture.

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
    check_kind(kind)
    explanation = Explanation(conversion_in_words(spec, source, target, kind=kind))
    explanation.spec, explanation.layout, explanation.to = spec, source, target
    explanation.kind = kind
    return explanation


def picture(
    spec: Spec,
    layout: str | Layout = CUDNN,
    to: str | Layout | None = None,
    *,
    width: float = WIDTH,
    kind: Kind = "weights",
) -> Picture:
    """Draw the tensors of an RNN as stored in memory, or a conversion.

    layout: of the tensors: each block is drawn in the colour of its gate, with layer, direction,
        role (W, R, P, bW, bR) and offset in bytes. Blocks are to scale; blocks too small for the
        letter are enlarged, and dashed.
    to: another layout, drawn next to the first, with the moves of the conversion: explain() as a
        picture.
    width: of the picture in pixels, 240 to 4000; texts have the same size at every width.
    kind: of the values that the conversion is of, see convert().

    Returns a Picture: notebooks show the drawing, str() returns the picture in letters, save()
    writes .svg or .png.
    Raises LossyError if a layout cannot represent the RNN, or the conversion is impossible.

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
    check_kind(kind)
    target = None if to is None else as_layout(to)
    return draw_rnns([Subject(spec, source)], target, width, kind)


def draw_rnns(
    subjects: Sequence[Subject], to: Layout | None, width: float = WIDTH, kind: Kind = "weights"
) -> Picture:
    """Return a picture of the memory of subjects, or of conversions to layout `to`."""
    return draw_subjects(subjects, width, partial(_add_conversion, to, kind) if to else None)


def _add_conversion(to: Layout, kind: Kind, scene: Scene, subject: Subject) -> list[Part]:
    """Draw a subject's conversion, and return the text of the picture."""
    spec, layout = subject.spec, subject.layout
    moves = moves_of(spec, layout, to, subject.optional_tensors, kind)
    target = Subject(moves.target, to)
    memories = subject.tensors(), target.tensors()
    text = conversion_in_words(spec, layout, to, subject.optional_tensors, kind)
    _, grade, *lines = text.split("\n")
    scene.paragraph(MARGIN, f"{layout} -> {to}: {grade.removeprefix('grade: ')}", "say")
    scene.height += 8
    draw_ribbons(scene, spec, memories, (str(layout), str(to)), moves)
    return [*subject.text(memories[0]), *target.text(memories[1]), grade, *lines]
