"""diagnose: by which mistakes was a packed buffer made?"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rnnlayout._convert import engine
from rnnlayout._files.files import load
from rnnlayout._files.formats.npy import read_npy
from rnnlayout._files.tensor_sets.file_limits import InputFile, require_regular_file
from rnnlayout._files.write_file import save
from rnnlayout._model.asks import Ask
from rnnlayout._model.checked_rnn import checked_rnn_of
from rnnlayout._model.dtypes import present_array, take_bits
from rnnlayout._model.layout import CUDNN, Layout
from rnnlayout._model.picture.picture import WIDTH, Picture
from rnnlayout._model.spec import Spec, differing_fields
from rnnlayout._native import LayoutError, LossyError, SpecError
from rnnlayout._weights.weights import Weights

from .blocks import BlockGap, bits_of_values, compare_blocks, own_blocks, values_of_bits
from .explanation import FoundMistakes, explain_difference, explain_values
from .heat_map import HeatMapPanel, buffer_gaps, draw_heat_map
from .mistakes import Mistake, evidence_of, packing_notes
from .truth import BIASES, truth_of
from .verify_sides import check_not_for_files

_MOST = 40  # lines of evidence
_REPAIR = "flat = rl.pack(like)"
_VECTORS: dict[str, tuple[str, ...]] = {
    "double": BIASES, "input": ("bW",), "recurrent": ("bR",), "none": ()
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """The result of diagnose(). True if the buffer is right; str() and repr() give the report.

    mistakes: the rules by which it was made, each with `rule` (its name), `text`, `where` ((layer,
        direction, role) of what it concerns) and `lost` (what cannot be restored, or "").
    same: whether it has these weights at all. sure: whether the mistakes explain every value.
    evidence: one line per matrix, and for the biases: where it is and how it was written.
    notes: what these values do not show.
    fixed: the right buffer, or the right tensors in the layout of the given ones, as far as they
        can be restored from what was given alone; None if the weights are others, or if it has
        another length that the mistakes do not explain.
    repair: the call that packs or converts correctly.
    text: all mistakes in one sentence. spec: of the RNN.
    gaps: the blocks that cuDNN would read wrongly, each as in verify()'s pairs.
    """

    mistakes: tuple[Mistake, ...]
    same: bool
    sure: bool
    evidence: tuple[str, ...]
    notes: tuple[str, ...]
    fixed: np.ndarray | Weights | None
    repair: str
    text: str
    spec: Spec
    gaps: tuple[BlockGap, ...] = ()

    def picture(self, *, width: float = WIDTH) -> Picture:
        """Draw the buffer as cuDNN reads it: each block in the colour of its largest difference."""
        heat = HeatMapPanel("", self.spec, self.text, self.gaps, not self.same, offsets=True)
        return draw_heat_map([heat], width)

    def _repr_svg_(self) -> str:
        return self.picture().svg

    def save(self, path: Any) -> None:
        """Write `fixed` to a file, as rl.save() does.

        Raises LayoutError if the mistakes do not explain every value.
        """
        if self.fixed is None or not self.sure:
            raise LayoutError(f"the buffer cannot be repaired: {self.text}")
        fixed = self.fixed
        save(path, fixed if isinstance(fixed, Weights) else Weights(fixed, self.spec, CUDNN))

    def __bool__(self) -> bool:
        return self.same and self.sure and not self.mistakes

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [self.text]
        shown = self.evidence[:_MOST] if self.mistakes else ()
        lines += [f"  {line}" for line in shown]
        if self.mistakes and len(self.evidence) > _MOST:
            lines.append(f"  and {len(self.evidence) - _MOST} more")
        if lost := list(dict.fromkeys(one.lost for one in self.mistakes if one.lost)):
            lines.append(f"cannot be restored: {'; '.join(lost)}")
        lines += [f"note: {note}" for note in self.notes]
        if self.mistakes or not self.same:
            lines.append(f"correct: {self.repair}")
        return "\n".join(lines)


def diagnose(
    flat: Any,
    *,
    like: Any,
    spec: Spec | None = None,
    layout: str | Layout | None = None,
    prefix: str = "",
    cell: str | None = None,
    reset: str | None = None,
    recurrent_activation: str | None = None,
    activation: str | None = None,
    as_class: Mapping[str, str] | None = None,
    config: Any = None,
    format: str | None = None,
    mmap: bool = True,
) -> Diagnosis:
    """Find the mistakes by which a packed buffer was made.

    flat: cuDNN's weight space as somebody's code made it: a 1-D array, bytes, or a .npy or .bin
        file. Or tensors in any layout, or another file, that somebody's code converted.
    like: the weights it should have been made from: whatever Weights() accepts, or a file with one
        RNN. spec, layout, prefix, cell, reset, recurrent_activation, activation, as_class, config,
        format: what `like` does not record, as for load(); the last three only for a file.
    mmap: for files, as for load().

    The matrices of `like` are searched for in the buffer, and from where and how they are there
    follows the rule: transposed or reshaped matrices, another order of gates, layers, directions,
    roles or biases, a negated gate, biases that were summed, halved, doubled or dropped, a forget
    bias, another dtype or byte order, rounding, quantization, changed values. Several mistakes at
    once are found.

    Returns a Diagnosis. Raises LayoutError or SpecError if `like` cannot be read, LossyError if
    cuDNN cannot represent it, and what load() raises.

        >>> spec = Spec("lstm", 2, 3)
        >>> right = np.arange(spec.num_params, dtype="f4")
        >>> i, f, g, o = right[:24].reshape(4, 6)  # the input matrices
        >>> wrong = np.concatenate([i, f, o, g, right[24:]])
        >>> found = diagnose(wrong, like=right, spec=spec)
        >>> print(found.text)
        gates g and o swapped in the input matrices
        >>> bool((found.fixed == right).all())
        True
    """
    hints = {"spec": spec, "layout": layout, "prefix": prefix, "cell": cell, "reset": reset,
             "recurrent_activation": recurrent_activation, "activation": activation,
             "as_class": as_class or None,
             "config": config, "format": format}  # fmt: skip
    true = _read_true_weights(like, {name: hint for name, hint in hints.items() if hint}, mmap)
    buffer = _buffer(flat, mmap)
    if buffer is None:
        given = _given_tensors(flat, true, mmap)
        found = explain_difference(compare_blocks(true, given))
        return _in_their_layout(_diagnosis(found, flat=False), given)
    made, _ = engine.run_conversion(checked_rnn_of(true), CUDNN)
    blocks = {key: values_of_bits(block.bits, true.spec.dtype) for key, block in own_blocks(made)}
    return _diagnosis(
        explain_values(truth_of(true.spec, blocks, _VECTORS[true.spec.bias]), *buffer)
    )


def _read_true_weights(like: Any, hints: dict[str, Any], mmap: bool) -> Weights:
    """Return the true weights. Raises LayoutError if a file has several RNNs."""
    if isinstance(like, Weights) and not hints:
        return like
    if isinstance(like, (str, os.PathLike)):
        return _only_rnn(load(like, **hints, mmap=mmap), like)
    check_not_for_files(hints, like)
    return Weights(like, **hints)


def _only_rnn(found: Any, path: Any) -> Weights:
    names = found.names
    if len(names) != 1:
        several = f"{path} has several RNNs: choose one with " + Ask("prefix")
        raise LayoutError(several + f": {', '.join(names)}")
    weights: Weights = found[names[0]]
    return weights


def _buffer(flat: Any, mmap: bool) -> tuple[np.ndarray, str | None] | None:
    """Return a flat buffer's bits and dtype (None: bytes); None if it is something else."""
    if isinstance(flat, (str, os.PathLike)):
        file = InputFile(require_regular_file(flat), mmap)
        if file.path.suffix == ".npy":
            flat = read_npy(file)
        elif file.path.suffix == ".bin":
            flat = np.frombuffer(file.data(), "u1")
        else:
            return None
    if isinstance(flat, (bytes, bytearray, memoryview)):
        flat = np.frombuffer(flat, "u1")
    if isinstance(flat, np.ndarray) and flat.dtype == np.uint8:
        return np.ascontiguousarray(flat).reshape(-1), None
    if isinstance(flat, (dict, list, tuple, Weights)) or getattr(flat, "ndim", None) is None:
        return None
    bits, found = take_bits(flat, "flat")
    if bits.ndim != 1:
        raise LayoutError(f"flat: shape {bits.shape}, need 1-D: pass flat.reshape(-1)")
    return np.ascontiguousarray(bits), found


def _given_tensors(source: Any, true: Weights, mmap: bool) -> Weights:
    """Return tensors that somebody converted. Raises SpecError if they are of another RNN."""
    if isinstance(source, (str, os.PathLike)):
        try:
            weights = _only_rnn(load(source, mmap=mmap), source)
        except SpecError:  # it does not record everything: as `like` does
            weights = _only_rnn(load(source, true.spec, mmap=mmap), source)
    else:
        try:
            weights = source if isinstance(source, Weights) else Weights(source)
        except SpecError:
            weights = Weights(source, true.spec)
    if different := differing_fields(weights.spec, true.spec):
        raise SpecError(f"flat and like are two different RNNs: {different}")
    return weights


def _in_their_layout(found: Diagnosis, given: Weights) -> Diagnosis:
    """Return a diagnosis of tensors, repaired in their own layout."""
    fixed = found.fixed
    if fixed is not None and not given.spec.peepholes:
        spec = given.spec.replace(bias="double")
        with contextlib.suppress(LossyError):  # what was found does not fit: the flat buffer
            fixed = Weights(fixed, spec, CUDNN).to(given.layout)
    repair = f'tensors = rl.convert(like, to="{given.layout}")'
    return replace(found, fixed=fixed, repair=repair)


def _diagnosis(found: FoundMistakes, flat: bool = True) -> Diagnosis:
    """Return an explanation with its evidence. flat: places are those of a buffer."""
    packing, spec = found.packing, found.packing.truth.spec
    shown = found.same or bool(found.mistakes)
    fixed = None if found.fixed is None else present_array(
        bits_of_values(found.fixed, spec.dtype), spec.dtype)  # fmt: skip
    gaps = buffer_gaps(packing.truth, found.buffer) if found.mistakes else ()
    return Diagnosis(
        found.mistakes, found.same, found.sure,
        tuple(evidence_of(packing, flat)) if shown else (),
        tuple(packing_notes(packing, flat)) if shown else (),
        fixed, _REPAIR, found.text, spec, gaps,
    )  # fmt: skip
