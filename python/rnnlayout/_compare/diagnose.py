"""diagnose: by which mistakes was a packed buffer made?"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
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
from rnnlayout._model.dtypes import narrow_values, present_array, storage_dtype, take_bits
from rnnlayout._model.layout import CUDNN, ROLES, Layout
from rnnlayout._model.picture.picture import WIDTH, Picture
from rnnlayout._model.spec import Spec, differing_fields
from rnnlayout._native import LayoutError, LossyError, SpecError
from rnnlayout._weights.weights import Weights

from .blocks import (
    Block,
    BlockGap,
    blocks_of,
    gates_with_one_bias,
    own_blocks,
    replace_biases_by_sums,
)
from .heat_map import HeatMapPanel, buffer_gaps, draw_heat_map
from .lengths import exactly_found, explains_length, length_mistake, roll_mistake
from .matrix_forms import RIGHT_FORM
from .mistakes import BIAS_ROLE, Mistake, mistakes_of, scale_mistake
from .packed_biases import KEPT_RULE
from .packing import Packing, packing_of
from .permuted_units import units_mistake
from .truth import BIASES, MatrixName, Slab, Truth, same_bits, truth_of, values_of_bits
from .value_changes import DecodedBuffer, compare_values, decode_buffer
from .verify_sides import check_not_for_files

_MOST = 40  # lines of evidence
_REPAIR = "flat = rl.pack(like)"
_UNEXPLAINED = ("not found", "biases not found")
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
        return _in_their_layout(_diagnosis(*_of_tensors(given, true), flat=False), given)
    made, _ = engine.run_conversion(checked_rnn_of(true), CUDNN)
    blocks = {key: values_of_bits(block.bits, true.spec.dtype) for key, block in own_blocks(made)}
    truth = truth_of(true.spec, blocks, _VECTORS[true.spec.bias])
    return _diagnosis(truth, *buffer)


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


def _of_tensors(weights: Weights, true: Weights) -> tuple[Truth, np.ndarray, str]:
    """Return the truth and the numbers of tensors, in its order, with one bias where either has
    only one."""
    summed = gates_with_one_bias(weights) ^ gates_with_one_bias(true)
    truth, given = (
        truth_of(
            one.spec,
            {
                key: _narrow_block(block, one.spec.dtype)
                for key, block in replace_biases_by_sums(blocks_of(one), one.spec, summed).items()
            },
            BIASES,
        )
        for one in (true, weights)
    )
    return truth, _as_bits(given.flat, weights.spec.dtype), weights.spec.dtype


def _narrow_block(block: Block, dtype: str) -> np.ndarray:
    """Return the values of a block; those of a sum are not in its bits."""
    if block.rounded is None:
        return values_of_bits(block.bits, dtype)
    return values_of_bits(narrow_values(block.values, dtype), dtype)


def _diagnosis(truth: Truth, raw: np.ndarray, dtype: str | None, flat: bool = True) -> Diagnosis:
    """Read the buffer in the way in which most matrices are found.

    flat: it is somebody's buffer, in which things have places; otherwise it was made of tensors.
    """
    best: tuple[Packing, DecodedBuffer] | None = None
    for decoded in decode_buffer(raw, dtype, truth):
        packing = packing_of(truth, values_of_bits(decoded.bits, truth.spec.dtype))
        if best is None or _found(packing) > _found(best[0]):
            best = packing, decoded
        if not packing.unknown and not decoded.rest and _knows_biases(packing):
            break
    assert best is not None
    packing, decoded = best
    mistakes = [decoded.mistake] if decoded.mistake else []
    buffer = values_of_bits(decoded.bits, truth.spec.dtype)
    scale = _common_scale(packing)
    if scale != 1:
        mistakes.append(scale_mistake(scale, "all values"))
        buffer = (buffer / np.asarray(scale, "f8")).astype(buffer.dtype)
        packing = packing_of(truth, buffer)
    fixed = packing.undo(buffer)
    if not explains_length(packing, fixed, decoded.rest):
        return _of_another_length(exactly_found(packing, fixed), decoded, buffer)
    for repair in (roll_mistake, units_mistake):
        if repaired := repair(packing, buffer):
            mistakes.append(repaired[0])
            fixed, packing = repaired[1], packing_of(truth, repaired[1])
            break
    lost = list(_leftovers(packing, buffer))
    if not (packing.matrices or any("in its place" in one.text for one in lost)):
        text = f"none of the {len(truth.slabs)} matrices was found in any form that is searched for"
        return Diagnosis((), False, False, (), (), None, _REPAIR, text, truth.spec)
    mistakes += mistakes_of(packing)
    differs = compare_values(packing, buffer, fixed, 8 if scale != 1 else 0)
    mistakes += [one for one in differs.mistakes
                 if not (decoded.mistake and one.rule.startswith("rounded"))]  # fmt: skip
    mistakes += lost
    if packing.size > truth.size or decoded.rest:
        mistakes.append(length_mistake(packing, buffer, decoded.rest, decoded.in_front))
    if not mistakes and not same_bits(fixed, buffer):
        mistakes.append(Mistake("order", "the values are in another order", ()))
    text = "; ".join(one.text for one in mistakes) or "the buffer is right"
    sure = not any(one.rule in _UNEXPLAINED for one in mistakes)
    return Diagnosis(
        tuple(mistakes), True, sure, tuple(_evidence(packing, flat)),
        tuple(_packing_notes(packing, flat)),
        present_array(_as_bits(fixed, truth.spec.dtype), truth.spec.dtype), _REPAIR, text,
        truth.spec, buffer_gaps(truth, buffer) if mistakes else (),
    )  # fmt: skip


def _found(packing: Packing) -> tuple[int, bool, float]:
    """Order packings by what they explain."""
    share = sum(reading.share for _, reading in packing.matrices.values())
    return len(packing.matrices), _knows_biases(packing), share


def _knows_biases(packing: Packing) -> bool:
    return not packing.truth.roles or bool(packing.biases and packing.biases.known)


def _common_scale(packing: Packing) -> float:
    """Return the factor by which all matrices were multiplied; 1 if they were not."""
    scales = [reading.scale for _, reading in packing.matrices.values()] or [1.0]
    first = scales[0]
    same = all(abs(scale / first - 1) < 1e-3 for scale in scales)
    return first if same and not packing.unknown else 1.0


def _of_another_length(packing: Packing, decoded: DecodedBuffer, buffer: np.ndarray) -> Diagnosis:
    """Return what is certain of a buffer whose length is not explained. packing: what was found
    bit for bit."""
    truth = packing.truth
    mistakes = [length_mistake(packing, buffer, decoded.rest, decoded.in_front)]
    if packing.matrices and decoded.mistake:
        mistakes.append(decoded.mistake)
    text = "; ".join(one.text for one in mistakes)
    if not packing.matrices:
        text += f"; none of the {len(truth.slabs)} matrices is in it bit for bit"
    return Diagnosis(
        tuple(mistakes), bool(packing.matrices), False, tuple(_evidence(packing, True)),
        tuple(_packing_notes(packing, True)), None, _REPAIR, text, truth.spec,
        buffer_gaps(truth, buffer),
    )  # fmt: skip


def _as_bits(values: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        return (values.view("u4") >> 16).astype("u2")
    return values.view(storage_dtype(dtype))


def _gates_in_place(slab: Slab, packing: Packing, buffer: np.ndarray) -> str:
    """Return which gates are where a matrix should be, one of them twice; "" if others are."""
    given = packing.truth.part(buffer, slab)
    if given.size < slab.size:
        return ""
    own = {values.tobytes(): gate for gate, values in zip(slab.gates, slab.values, strict=True)}
    found = [own.get(gate.tobytes(), "") for gate in given.reshape(slab.shape)]
    return "".join(found) if all(found) else ""


def _leftovers(packing: Packing, buffer: np.ndarray) -> Iterator[Mistake]:
    """Yield what was not found."""
    for slab in packing.unknown:
        title = _matrix_title(slab.name, packing.truth)
        text = f"{title} is not in the buffer"
        if other := packing.copies.get(slab.name):
            text += f": in its place is {_matrix_title(other, packing.truth)} a second time"
        elif gates := _gates_in_place(slab, packing, buffer):
            text += f": in its place are gates {' '.join(gates)}"
        yield Mistake("not found", text, (slab.name,), title)
    for place, done in (packing.biases.layers if packing.biases else {}).items():
        if done.unknown:
            title = _matrix_title((*place, BIAS_ROLE), packing.truth)
            text = f"{title} are not in the buffer"
            yield Mistake("biases not found", text, ((*place, BIAS_ROLE),), title)


def _matrix_title(name: MatrixName, truth: Truth) -> str:
    layer, direction, role = name
    side = (" forward", " backward")[direction] if truth.spec.bidirectional else ""
    return f"layer {layer}{side}, {'biases' if role == BIAS_ROLE else ROLES[role]}"


def _evidence(packing: Packing, flat: bool) -> Iterator[str]:
    """Yield where each matrix is and how it was written. flat: places are those of a buffer."""
    truth = packing.truth
    for found, reading in packing.matrices.values():
        how = ["elements {} to {}".format(*reading.span(found.slab.shape))] if flat else []
        how += [reading.form.words] if reading.form is not RIGHT_FORM else []
        order = " ".join(found.slab.gates[k] for k in reading.order)
        how += [f"gates {order}"] if len(order) > 1 else []
        how += [f"{reading.share:.0%} of the samples equal"] if reading.share != 1 else []
        yield ": ".join(text for text in (_matrix_title(found.slab.name, truth), ", ".join(how))
                        if text)  # fmt: skip
    if packing.biases:
        known = ((at, done) for at, done in packing.biases.layers.items() if not done.unknown)
        for place, done in known:
            how = [f"gates {' '.join(truth.gates[k] for k in done.order)}"]
            how += [done.rule.words] if done.rule is not KEPT_RULE else []
            yield f"{_matrix_title((*place, BIAS_ROLE), truth)}: {', '.join(how)}"


def _packing_notes(packing: Packing, flat: bool) -> Iterator[str]:
    """Yield what the values do not show. Tensors may have summed biases, whose bR is 0."""
    truth = packing.truth
    zero = [role for k, role in enumerate(truth.roles) if not truth.biases[:, :, k].any()]
    if zero and flat:
        yield f"{' and '.join(zero)} of like are zero: they do not show what was done to them"
    for found, reading in packing.matrices.values():
        others = {(r.form, r.order) for r in found.readings} - {(reading.form, reading.order)}
        gates, rows, columns = found.slab.shape
        if others and rows != columns and gates > 1:
            title = _matrix_title(found.slab.name, truth)
            yield f"{title}: its values fit in {1 + len(others)} ways"
    for at, done in (packing.biases.layers if packing.biases else {}).items():
        if done.alike:
            words = ", or ".join(rule.words for rule in done.alike)
            yield f"{_matrix_title((*at, BIAS_ROLE), truth)} may as well be {words}"
