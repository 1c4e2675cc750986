"""picture: the memory of one layout, or a conversion between two, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rnnlayout import _native
from rnnlayout._model.layout import CUDNN, Layout, as_layout
from rnnlayout._model.picture.layouts import Subject, draw_subjects
from rnnlayout._model.picture.letters import memory_in_letters
from rnnlayout._model.picture.picture import WIDTH, Part, Picture
from rnnlayout._model.picture.scene import MARGIN, Scene
from rnnlayout._model.spec import Spec

from .conversion_in_words import conversion_in_words
from .moves import moves_of
from .ribbons import draw_ribbons


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
    source, target = subject, Subject(moves.target, to)
    parts: list[Part] = []
    for one in (source, target):
        tensors = one.tensors()
        parts += [one.size(tensors),
                  partial(memory_in_letters, tensors, spec.num_directions, one.unit)]  # fmt: skip
    _, grade, *told = conversion_in_words(spec, layout, to, subject.optional_tensors).split("\n")
    scene.paragraph(MARGIN, f"{layout} -> {to}: {grade.removeprefix('grade: ')}", "say")
    scene.height += 8
    draw_ribbons(scene, spec, (source.tensors(), target.tensors()), (str(layout), str(to)), moves)
    return [*parts, grade, *told]
