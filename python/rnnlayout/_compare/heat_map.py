"""Draw where two RNNs differ: each block in the colour of the largest difference."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from rnnlayout import _native
from rnnlayout._model.layout import CUDNN, BlockKey, Layout
from rnnlayout._model.picture.letters import memory_in_letters
from rnnlayout._model.picture.picture import Part, Picture, Subject, draw_subjects
from rnnlayout._model.picture.scene import MARGIN, Scene
from rnnlayout._model.picture.strips import BarDrawer, ByteOffsets, draw_legend
from rnnlayout._model.spec import Spec

from .blocks import BlockGap, block_gap, differing
from .truth import Truth

# For each colour: the largest difference, the colour's name, the words in the legend.
_LEVELS = (
    (0.0, "heat0", "only signs, or bits of NaN"),
    (1e-6, "heat1", "up to 1e-06"),
    (1e-3, "heat2", "up to 0.001"),
    (math.inf, "heat3", "more than 0.001"),
)
_LEGEND = [
    ("equal", "", "equal"),
    *((fill, "", words) for _, fill, words in _LEVELS),
    ("heat4", "", "not finite"),
]


@dataclass(frozen=True)
class HeatMapPanel:
    """The picture of a comparison. gaps: the blocks that differ. missing: all blocks do.

    offsets: positions in cuDNN's weight space mean something to the reader.
    """

    name: str
    spec: Spec
    text: str
    gaps: Sequence[BlockGap]
    missing: bool = False
    offsets: bool = False


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
    shade = partial(_shade, gaps, heat.missing)
    scene.paragraph(MARGIN, heat.text, "say")
    if heat.offsets:
        scene.paragraph(MARGIN, "the blocks are where cuDNN reads them", "say")
    scene.height += 8
    BarDrawer(scene, tensors, directions, unit, shade).draw()
    scene.height += 6
    scene.paragraph(MARGIN, "largest difference in a block:", "say")
    draw_legend(scene, _LEGEND)
    if below:
        scene.height += 12
        below(scene)
    return [heat.text, partial(memory_in_letters, tensors, directions, unit, shade=shade)]


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


def _shade(gaps: Mapping[BlockKey, BlockGap], missing: bool, key: BlockKey) -> tuple[str, str]:
    if missing:
        return _LEVELS[-1][1], ": not found"
    if key not in gaps:
        return "equal", ": equal"
    gap = gaps[key]
    words = f": {gap.count} of {gap.size} differ, largest {gap.largest:g}"
    if not math.isfinite(gap.largest):
        return "heat4", words
    return next(fill for most, fill, _ in _LEVELS if gap.largest <= most), words
