"""Draw where two RNNs differ: the state of each block, where in the block, and a against b."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rnnlayout import _native
from rnnlayout._model.layout import CUDNN, BlockKey, Layout
from rnnlayout._model.picture.letters import memory_in_letters
from rnnlayout._model.picture.memory import TensorMemory, picture_lines
from rnnlayout._model.picture.picture import Part, Picture, Subject, draw_subjects
from rnnlayout._model.picture.scene import MARGIN, Dots, Scene, Text
from rnnlayout._model.picture.strips import BarDrawer, ByteOffsets, draw_legend
from rnnlayout._model.spec import Spec

from .blocks import BlockGap, block_gap, differing
from .truth import Truth

_LEGEND = [
    ("equal", "", "equal"),
    ("moved", "", "right values, in another place"),
    ("rounded", "", "rounded"),
    ("different", "", "other values"),
]
_ROUNDED = "rounded: each value is within 1/128 of the largest value of its block"
_MAPPED = (
    "below a block: where it differs, row by row, the darker the more, in relation to its largest"
    " difference"
)
_SCATTER, _COLUMN = 92, 150  # pixels: a scatter, and from a scatter to the next
_MOST_LINES, _LEAST_FOLDED = 8, 2  # equal lines of a longer picture are only counted
_MOST_DOTS = 400  # pairs of values per scatter
_SCATTERS = {"W": "input matrices", "R": "recurrent matrices", "P": "projections", "b": "biases"}


@dataclass(frozen=True)
class HeatMapPanel:
    """The picture of a comparison. gaps: the blocks that differ. missing: all blocks do. right: the
    blocks with right values, whether or not in the right place.

    offsets: positions in cuDNN's weight space mean something to the reader. sides: names
    of a and b.
    """

    name: str
    spec: Spec
    text: str
    gaps: Sequence[BlockGap]
    right: frozenset[BlockKey] = frozenset()
    missing: bool = False
    offsets: bool = False
    sides: tuple[str, str] = ("a", "b")


def draw_heat_map(
    panels: Sequence[HeatMapPanel], width: float, below: Callable[[Scene], None] | None = None
) -> Picture:
    """Return a picture of comparisons, top to bottom. below: draws after each comparison."""
    subjects = [_subject_of_panel(panel) for panel in panels]
    order = iter(panels)
    return draw_subjects(
        subjects, width, lambda scene, subject: _add_panel(next(order), scene, subject, below)
    )


def _subject_of_panel(heat: HeatMapPanel) -> Subject:
    """Return the blocks in cuDNN's order; an RNN that cuDNN lacks has the same blocks."""
    spec = heat.spec
    if not heat.offsets:
        spec = spec.replace(bias="double", skip_input=False)
    alike = spec.replace(reset="after", recurrent_activation="sigmoid", activation="tanh")
    if alike.peepholes or any(gap.key[2] == "peephole" for gap in heat.gaps):
        return Subject(alike.replace(peepholes=True), Layout("onnx"), name=heat.name)
    return Subject(alike, CUDNN, name=heat.name)


def _add_panel(
    heat: HeatMapPanel, scene: Scene, subject: Subject, below: Callable[[Scene], None] | None
) -> list[Part]:
    gaps = {gap.key: gap for gap in heat.gaps}
    tensors, directions = subject.tensors(), subject.spec.num_directions
    unit = ByteOffsets(_native.itemsize(heat.spec.dtype), shown=heat.offsets)
    shade = partial(_shade, heat, gaps)
    scene.paragraph(MARGIN, heat.text, "say")
    if heat.offsets:
        scene.paragraph(MARGIN, "the blocks are where cuDNN reads them", "say")
    scene.height += 8
    raster = partial(_raster, heat, gaps) if gaps else None
    shown, folded = _fold_equal_lines(tensors, gaps)
    BarDrawer(scene, shown, directions, unit, shade, raster).draw()
    if folded:
        scene.paragraph(MARGIN, f"... and {folded} lines that are equal", "say", "faint")
    scene.height += 6
    draw_legend(scene, _LEGEND)
    others = [gap for key, gap in gaps.items() if raster and raster(key)]
    if any(gap.is_rounded for gap in others):
        scene.paragraph(MARGIN, _ROUNDED, "at", "faint")
    if others:
        scene.paragraph(MARGIN, _MAPPED, "at", "faint")
        _draw_scatters(scene, heat)
    if below:
        scene.height += 12
        below(scene)
    return [heat.text, partial(memory_in_letters, tensors, directions, unit, shade=shade)]


def _fold_equal_lines(
    tensors: Sequence[TensorMemory], gaps: Mapping[BlockKey, BlockGap]
) -> tuple[list[TensorMemory], int]:
    """Return the tensors without the regions of equal lines, if there are many lines and some
    differ; and the number of lines left out."""
    lines = picture_lines(tensors)
    equal = [
        line
        for line in lines
        if not any(
            piece.key in gaps
            for _, regions in line.parts
            for region in regions
            for piece in region.pieces
        )
    ]
    if not gaps or len(lines) <= _MOST_LINES or len(equal) <= _LEAST_FOLDED:
        return [*tensors], 0
    hidden = {id(region) for line in equal for _, regions in line.parts for region in regions}
    shown = (
        replace(tensor, regions=tuple(r for r in tensor.regions if id(r) not in hidden))
        for tensor in tensors
    )
    return [tensor for tensor in shown if tensor.regions], len(equal)


def buffer_gaps(truth: Truth, buffer: np.ndarray) -> tuple[BlockGap, ...]:
    """Return the blocks that differ if a buffer of values is read in the true order.

    A buffer that is too short is filled up with NaN.
    """
    lacking = np.full(max(truth.size - buffer.size, 0), np.nan, buffer.dtype)
    read = np.concatenate([buffer, lacking]) if lacking.size else buffer
    gaps = []
    for matrix in [*truth.matrices, *truth.bias_vectors]:
        part = truth.part(read, matrix).reshape(matrix.shape)
        for gate, gate_values, true in zip(matrix.gates, part, matrix.values, strict=True):
            unequal = differing(gate_values, true)  # not widened first: all values pass here
            if unequal.any():
                if gate_values.dtype == np.float16:
                    gate_values, true = gate_values.astype("f4"), true.astype("f4")
                key = (*matrix.name, "" if matrix.name[2] == "P" else gate)
                gaps.append(block_gap(key, gate_values, true, unequal))
    return tuple(gaps)


def _shade(heat: HeatMapPanel, gaps: Mapping[BlockKey, BlockGap], key: BlockKey) -> tuple[str, str]:
    """Return the colour of a block, and words for the title."""
    if heat.missing:
        return "different", ": not found"
    if key not in gaps:
        return "equal", ": equal"
    gap = gaps[key]
    if key in heat.right:
        return "moved", ": its values are in another place"
    words = f": {gap.count} of {gap.size} differ, largest {gap.largest:g}"
    return ("rounded" if gap.is_rounded else "different"), words


def _raster(
    heat: HeatMapPanel, gaps: Mapping[BlockKey, BlockGap], key: BlockKey
) -> Sequence[Sequence[float]]:
    return () if key not in gaps or key in heat.right or heat.missing else gaps[key].raster


def _draw_scatters(scene: Scene, heat: HeatMapPanel) -> None:
    """Draw values of a and b that differ against each other, for each kind of blocks."""
    samples: dict[str, list[np.ndarray]] = {}
    for gap in heat.gaps:
        kind = gap.key[2] if gap.key[2] in _SCATTERS else "b"
        if gap.sample is not None and gap.key not in heat.right:
            samples.setdefault(kind, []).append(gap.sample)
    columns = max(1, int((scene.width - 2 * MARGIN) // _COLUMN))
    kinds = [kind for kind in _SCATTERS if kind in samples]
    for k, kind in enumerate(kinds):
        a, b = (np.concatenate(side).astype("f8") for side in zip(*samples[kind], strict=True))
        finite = np.isfinite(a) & np.isfinite(b)
        if k % columns == 0:
            top = scene.height
            scene.height += _SCATTER + 46
        x = MARGIN + k % columns * _COLUMN
        scene.add(Text(x, top + 14, _SCATTERS[kind], "say"))
        scene.add(Dots(x + 1, top + 22, _SCATTER, _SCATTER, _dots(a[finite], b[finite])))
        words = f"{heat.sides[0]} across, {heat.sides[1]} up"
        scene.add(Text(x, top + _SCATTER + 36, words, "at", fill="faint"))


def _dots(a: np.ndarray, b: np.ndarray) -> list[tuple[float, float]]:
    """Return points between 0 and 1, in a scale that both axes share, with 0 in the middle."""
    step = max(1, a.size // _MOST_DOTS)
    a, b = a[::step], b[::step]
    scale = 2.1 * max(np.abs(a).max(initial=0), np.abs(b).max(initial=0)) or 1.0
    return [*zip((a / scale + 0.5).tolist(), (b / scale + 0.5).tolist(), strict=True)]
