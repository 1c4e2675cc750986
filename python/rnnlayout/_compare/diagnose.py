"""diagnose: find the mistakes in a packed buffer."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Unpack

import numpy as np

from rnnlayout._files.files import TensorsOfFile
from rnnlayout._files.formats.npz import read_npy
from rnnlayout._files.formats.registry import (
    TensorFormat,
    file_to_read,
    format_to_read,
    format_to_write,
    read_tensor_set,
)
from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.file_rnns import Found
from rnnlayout._files.write_file import save
from rnnlayout._files.write_into import convert_into
from rnnlayout._model.dtypes import FLOATS, Bits, present_array, take_bits
from rnnlayout._model.errors import Ask, Message, load_in_python, write_in_python
from rnnlayout._model.layout import CUDNN, BlockKey, Layout
from rnnlayout._model.picture.picture import WIDTH, Picture
from rnnlayout._model.reading_options import ComparisonOptions, check_options, takes_options
from rnnlayout._model.spec import Spec, differing_fields
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError, LossyError, SpecError
from rnnlayout._sources.frameworks import framework_of

from .blocks import (
    BlockGap,
    bits_of_values,
    compare_blocks,
    own_blocks,
    own_names,
    weights_of_blocks,
)
from .explanation import FoundMistakes, explain_difference, explain_values
from .heat_map import HeatMapPanel, buffer_gaps, draw_heat_map
from .mistakes import Mistake, evidence_of, packing_notes
from .places_map import BlockPlace, draw_places, places_of_blocks
from .sides import match_sides, read_sides
from .truth import BIASES, truth_of

_MOST = 40  # lines of evidence
_VECTORS: dict[str, tuple[str, ...]] = {
    "double": BIASES,
    "input": ("bW",),
    "recurrent": ("bR",),
    "none": (),
}


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """The result of diagnose(). True if the buffer is right; str() and repr() give the report.

    mistakes: the mistakes of the code that wrote the buffer, each with `rule` (a name), `text`,
        `where` ((layer, direction, role) of the wrong blocks) and `lost` (numbers that cannot be
        restored, or "").
    same: whether the buffer has the weights of `like` at all. sure: whether the mistakes explain
        every number.
    evidence: a line per matrix, and a line for the biases: the place, and the form there; for
        tensors with the names of the tensors.
    notes: facts that these weights cannot show.
    fixed: the right buffer, or the right tensors in the layout of `flat`, as far as `flat` alone
        determines the numbers; None if `flat` has different weights, peepholes, or a length that
        the mistakes do not explain.
    repair: the line of Python that packs or converts correctly, with the names of the caller's
        variables and files.
    text: all mistakes in one sentence. spec: the Spec of the RNN. layout: the layout of `flat`.
    gaps: the blocks that cuDNN would read wrongly, each as in verify()'s pairs. right: the keys of
        the blocks with right values, whether or not in the right place. places: the located
        blocks of the buffer, each with `key`, `at`, `rows`, `cols`, `row_stride`, `col_stride` (in
        elements) and `notes`. size: the elements of the buffer.
    into: the file that save() copies, and the name of the RNN in the file; None if save() writes a
        new file with nothing else.
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
    layout: Layout = CUDNN
    gaps: tuple[BlockGap, ...] = ()
    places: tuple[BlockPlace, ...] = ()
    size: int = 0
    into: tuple[Path, str] | None = None
    right: frozenset[BlockKey] = frozenset()

    def picture(self, *, width: float = WIDTH) -> Picture:
        """Draw the buffer as cuDNN reads the buffer: which blocks are equal, in another place,
        rounded or other, and where in a block; below, if wrong, the buffer and cuDNN's, with a
        ribbon per matrix."""
        heat = HeatMapPanel(
            "",
            self.spec,
            self.text,
            self.gaps,
            self.right,
            missing=not self.same,
            offsets=True,
            sides=("buffer", "right"),
        )
        places = partial(draw_places, spec=self.spec, places=self.places, size=self.size)
        return draw_heat_map([heat], width, places if self.mistakes else None)

    def _repr_svg_(self) -> str:
        return self.picture().svg

    def save(self, path: Any) -> None:
        """Write `fixed` to a file, as rl.save() does: if possible as a copy of the diagnosed file,
        with all other contents unchanged.

        Raises LayoutError if the mistakes do not explain every number.
        """
        fixed = self.fixed
        if self.spec.peepholes:
            raise LayoutError(f"peepholes are not repaired: convert it again, {self.repair}")
        if fixed is None or not self.sure:
            raise LayoutError(f"the buffer cannot be repaired: {self.text}")
        fixed = fixed if isinstance(fixed, Weights) else Weights(fixed, self.spec, CUDNN)
        if self.into and format_to_write(path) is format_to_read(self.into[0]):
            file, name = self.into
            source = Found({name: fixed})  # the file may not record spec and layout
            convert_into(source, path, into=file, force=True, spec=self.spec, layout=fixed.layout)
        else:
            save(path, fixed)

    def __bool__(self) -> bool:
        return self.same and self.sure and not self.mistakes

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return "\n".join([*self.report, *([] if self else [f"correct: {self.repair}"])])

    @property
    def lost(self) -> list[str]:
        """The numbers that `flat` alone does not determine: `fixed` lacks these numbers."""
        return list(dict.fromkeys(mistake.lost for mistake in self.mistakes if mistake.lost))

    @property
    def report(self) -> list[str]:
        """The lines of the report, without the code that packs or converts correctly."""
        lines = [self.text]
        shown = self.evidence[:_MOST] if self.mistakes else ()
        lines += [f"  {line}" for line in shown]
        if self.mistakes and len(self.evidence) > _MOST:
            lines.append(f"  and {len(self.evidence) - _MOST} more")
        if self.lost:
            lines.append(f"cannot be restored: {'; '.join(self.lost)}")
        return lines + [f"note: {note}" for note in self.notes]


@takes_options(ComparisonOptions)
def diagnose(
    flat: Any,
    *,
    like: Any,
    spec: Spec | None = None,
    **options: Unpack[ComparisonOptions],
) -> Diagnosis:
    """Find the mistakes in a packed buffer.

    flat: cuDNN's weight space, written by any code: a 1-D array, bytes, a .npy or .bin file, or a
        file with a single vector. Or tensors in any layout, a module, or a file, converted or
        filled by any code.
    like: the source weights: whatever Weights() accepts, the result of load(), or a file. RNNs of
        two files are matched as by verify(), including stacks with layers.
    Further arguments: options for reading both, see ReadingOptions. prefix is for `like`, mmap for
        both, each further option for the source that lacks the recorded fact; as_class,
        keras_config and format only for a file.

    diagnose() searches the buffer for the matrices of `like`; the places and forms of the matrices
    show the mistakes: transposed or reshaped matrices, a wrong order of gates, layers, directions,
    roles or biases, a negated gate, biases that were summed, halved, doubled or dropped, a forget
    bias, a wrong dtype or byte order, rounding, quantization, changed numbers, and several mistakes
    at once.

    Returns a Diagnosis. Raises LayoutError or SpecError if `like` cannot be read, LossyError if
    cuDNN cannot represent `like`, and the errors of load().

        >>> spec = Spec("lstm", 2, 3)
        >>> right = np.arange(spec.num_params, dtype="f4")
        >>> i, f, g, o = right[:24].reshape(4, 6)  # the input matrices
        >>> wrong = np.concatenate([i, f, o, g, right[24:]])
        >>> diagnosis = diagnose(wrong, like=right, spec=spec)
        >>> print(diagnosis.text)
        gates g and o swapped in the input matrices
        >>> bool((diagnosis.fixed == right).all())
        True
    """
    check_options(diagnose, options)
    into = flat_rnn = None
    like_is_file, flat_is_file = (isinstance(source, (str, os.PathLike)) for source in (like, flat))
    flat_side = flat
    if flat_is_file:
        flat_side = _read_vector(InputFile(file_to_read(flat), options.get("mmap", True)), flat)
    if (buffer := _read_buffer(flat_side)) is not None:
        (rnns,), needs = read_sides({"like": like}, spec, options, ("like",))
        names = rnns.names
        if len(names) != 1:
            label, choose = "like", Message("pass one of them")
            if like_is_file:
                label, choose = like, Message("choose one with ", Ask("prefix"))
            raise LayoutError(f"{label} has several RNNs: ", choose, f": {', '.join(names)}")
        true = rnns[names[0]]
    else:
        # with format=, the tensors were read in another format
        sources = {"like": like, "flat": flat if options.get("format") else flat_side}
        pair, needs = read_sides(sources, spec, options, ("like",))
        true, flat_rnn, names, name = _matching_rnns(*pair)
        if flat_is_file:
            kind = format_to_read(Path(flat))
            if kind.write if isinstance(kind, TensorFormat) else kind.replace:
                into = Path(flat), name
        if flat_rnn.layout == CUDNN:
            buffer, flat_rnn = (flat_rnn.arrays[0], flat_rnn.spec.dtype), None
    shown = {"prefix": options.get("prefix")} if options.get("prefix") else {}
    if "like" in needs:
        shown |= needs["like"]
    layout = CUDNN if flat_rnn is None else flat_rnn.layout
    repair = _line_to_paste(sys._getframe(1), flat, like, names, layout, shown)
    if flat_rnn is not None:
        explanation = explain_difference(compare_blocks(true, flat_rnn))
        return _diagnosis(explanation, repair, flat_rnn, into)
    assert buffer
    truth = truth_of(
        true.spec,
        {key: block.numbers for key, block in own_blocks(true.to(CUDNN))},
        _VECTORS[true.spec.bias],
    )
    return _diagnosis(explain_values(truth, *buffer), repair, None, into)


def _read_buffer(flat: Any) -> tuple[np.ndarray, str | None] | None:
    """Return a flat buffer's bits and dtype (None: bytes); None if flat is not a buffer."""
    if isinstance(flat, (bytes, bytearray, memoryview)):
        flat = np.frombuffer(flat, "u1")
    if isinstance(flat, np.ndarray) and flat.dtype == np.uint8:
        return np.ascontiguousarray(flat).reshape(-1), None
    if not isinstance(flat, Bits) and not hasattr(flat, "ndim"):
        return None
    bits, dtype = take_bits(flat, "flat")
    if bits.ndim != 1:
        raise LayoutError(f"flat: shape {bits.shape}, need 1-D: pass flat.reshape(-1)")
    return np.ascontiguousarray(bits), dtype


def _read_vector(file: InputFile, path: Any) -> Any:
    """Return the only array or the bytes of a file; of a file with more than one array the path,
    with the tensors if the file was read."""
    format = format_to_read(file.path)
    if format.suffix == ".npy":
        return read_npy(file)
    if format.suffix == ".bin":
        return memoryview(file.data())
    if not isinstance(format, TensorFormat):
        return path
    tensor_set = read_tensor_set(format, file)
    kinds = [(len(t.shape), t.dtype in FLOATS) for t in tensor_set.tensors.values()]
    if kinds != [(1, True)]:
        return TensorsOfFile(file, tensor_set)
    ((name, tensor),) = tensor_set.tensors.items()
    return tensor.floats(name)


def _matching_rnns(like: Found, flat: Found) -> tuple[Weights, Weights, list[str], str]:
    """Return the matching RNNs of like and of flat; the name in like, or the names of the layers;
    and the name in flat.

    Raises LayoutError if no RNN or several match; SpecError if the Specs of the two RNNs differ.
    """
    sides = match_sides(like, flat)
    if len(sides.pairs) != 1:
        several = f"{len(sides.pairs) or 'no'} RNNs of like ({', '.join(like.names)}) are in flat"
        raise LayoutError(
            f"{several} ({', '.join(flat.names)}), need one: choose it with ",
            Ask("prefix"),
            ", or compare all of them with verify()",
        )
    ((name, flat_name),) = sides.pairs.items()
    true, flat_rnn = sides.a[name], sides.b[flat_name]
    if different := differing_fields(flat_rnn.spec, true.spec):
        raise SpecError(f"flat and like are two different RNNs: {different}")
    whole = name in like and like[name].spec == true.spec
    names = [name] if whole else [layer for layer in like if layer not in sides.a or layer == name]
    return true, flat_rnn, names, flat_name


def _line_to_paste(
    caller: FrameType,
    flat: Any,
    like: Any,
    names: list[str],
    layout: Layout,
    options: Mapping[str, Any],
) -> str:
    """Return the line of Python that converts `like` correctly to the kind of `flat`: with the
    names of the caller's variables, or to a new file in the directory of `flat`.

    names: of the RNN in the file `like`, or of the layers. layout: of `flat`. options: the
    arguments for reading `like`.
    """
    arguments = [write_in_python(Ask(name, value)) for name, value in options.items()]
    flat_is_file = isinstance(flat, (str, os.PathLike))
    if isinstance(like, (str, os.PathLike)):
        read = load_in_python(like, options)
        source = f"{read}[{names[0]!r}]"
        if len(names) > 1:
            source = f"rl.stack([{read}[name] for name in {names}])"
    else:
        source = _name_of_variable(caller, like, "like")
        if arguments or flat_is_file:
            source = f"rl.Weights({', '.join([source, *arguments])})"
    to = write_in_python(Ask("to", layout))
    if flat_is_file:
        right = Path(flat).with_name(f"right-{Path(flat).name}")
        return f"rl.save({os.fspath(right)!r}, {source}.to({to.removeprefix('to=')}))"
    target = _name_of_variable(caller, flat, "flat" if layout == CUDNN else "tensors")
    if framework_of(flat):
        return f"rl.assign({target}, {source})"
    call = f"rl.pack({source})" if layout == CUDNN else f"rl.convert({source}, {to})"
    if isinstance(flat, (list, tuple)):
        call = f"list({call}.values())"
    if isinstance(flat, (bytes, bytearray, memoryview)):
        call += ".tobytes()"
    return f"{target} = {call}"


def _name_of_variable(caller: FrameType, value: Any, otherwise: str) -> str:
    """Return the name of the caller's variable that is this object."""
    for variables in (caller.f_locals, caller.f_globals):
        for name, variable in variables.items():
            if variable is value and not name.startswith("_"):
                return name
    return otherwise


def _diagnosis(
    explanation: FoundMistakes, repair: str, tensors: Weights | None, into: tuple[Path, str] | None
) -> Diagnosis:
    """Return an explanation with the evidence. tensors: the diagnosed ones; None for a buffer."""
    packing, spec = explanation.packing, explanation.packing.truth.spec
    shown = explanation.same or bool(explanation.mistakes)
    has_places = tensors is None and explanation.mistakes and explanation.shows_places
    fixed: Any = None
    peepholes = spec.peepholes or (tensors is not None and tensors.spec.peepholes)
    if explanation.fixed is not None and not peepholes:  # which have no flat form
        values = explanation.fixed
        if tensors is None and values is packing.buffer:
            values = values.copy()  # it may be the caller's
        bits = bits_of_values(values, spec.dtype)
        fixed = present_array(bits, spec.dtype)
        if tensors is not None:
            with contextlib.suppress(LossyError):  # else keep the flat buffer
                blocks = dict(packing.truth.blocks(bits))
                fixed = weights_of_blocks(blocks, spec.dtype, tensors)
    names = None if tensors is None else own_names(tensors)
    return Diagnosis(
        explanation.mistakes,
        explanation.same,
        explanation.sure,
        tuple(evidence_of(packing, names)) if shown else (),
        tuple(packing_notes(packing, tensors is None)) if shown else (),
        fixed,
        repair,
        explanation.text,
        spec,
        CUDNN if tensors is None else tensors.layout,
        buffer_gaps(packing.truth, explanation.buffer) if explanation.mistakes else (),
        tuple(places_of_blocks(packing)) if has_places else (),
        explanation.buffer.size,
        into,
        explanation.right_blocks if explanation.mistakes else frozenset(),
    )
