"""torch: .pt, .pth and .ckpt with a state_dict, a whole module, a TorchScript program, or a
checkpoint that contains several.

.pkl and .pickle have the same contents or NumPy arrays, .pt2 has a program of torch.export; these
suffixes are only read.

Files are read without torch (archive.py), so nothing that a file names is imported. torch is needed
to write files, and to convert the RNNs in a checkpoint without changing the rest.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import IO, Any

import numpy as np

from rnnlayout._files.formats.pickles import PickledArray, PickledDict, tensors_of_pickle
from rnnlayout._files.formats.registry import Pairs, TensorFormat
from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.find_rnns import TensorGroup
from rnnlayout._files.tensor_sets.layerwise import LayerwiseConversion
from rnnlayout._files.tensor_sets.output_file import Output, open_untruncated
from rnnlayout._files.tensor_sets.tensor_set import (
    CHUNK_NBYTES,
    FLOAT8,
    FileTensor,
    Progress,
    ProgressCount,
    TensorSet,
    walk_leaves,
)
from rnnlayout._model.errors import Ask, FileError, Message, MissingExtraError, import_extra
from rnnlayout._model.spec import CELLS, Spec
from rnnlayout._native import LayoutError
from rnnlayout._sources.candidates import is_one_vector
from rnnlayout._sources.mismatch import list_names

from . import archive
from .exported import ExportedTensors
from .modules import ModuleWalk, unpack_weights
from .optimizers import read_torch_optimizers

_DTYPES = {name: dtype for dtype, name in FLOAT8.items()}


def _read_checkpoint(file: InputFile) -> TensorSet:
    """Return the tensors of a checkpoint, each named by the keys on the path to the tensor, joined
    by dots. Raises FileError if the file is malformed or has no readable tensors."""
    contents = archive.read_torch_file(file)
    walk, packing_notes = ModuleWalk(file), list[str]()
    if isinstance(contents, ExportedTensors):
        walk.classes |= contents.modules
    roots, places = {""}, _Places()
    leaves = walk.leaves(_named_leaves(file, contents, roots, places))
    try:
        unpacked = unpack_weights(leaves, walk.classes, packing_notes, walk.names)
        tensor_set = tensors_of_pickle(file, unpacked, _tensor_of_value)
    finally:
        walk.forget()
    state = contents.attributes if isinstance(contents, PickledDict) else None
    for key in ("_metadata", "rnnlayout"):  # where _with_metadata() adds metadata
        state = state.get(key) if isinstance(state, dict) else None
    records = state.items() if isinstance(state, dict) else ()
    return replace(
        tensor_set,
        metadata={k: v for k, v in records if isinstance(k, str) and isinstance(v, str)},
        notes=[*tensor_set.notes, *packing_notes],
        modules=walk.classes,
        derived=walk.names,
        roots=roots,
        optimizers=read_torch_optimizers(
            file, contents, tensor_set.tensors, places.state_dicts, places.tied
        ),
    )


class _Places:
    """state_dicts: path with a dot -> names of the tensors in one dict. tied: name -> name of an
    earlier tensor with the same memory."""

    def __init__(self) -> None:
        self.state_dicts: dict[str, list[str]] = {}
        self.tied: dict[str, str] = {}
        self._first: dict[Any, str] = {}

    def add(self, name: str, key: Any, tensor: archive.TorchTensor) -> None:
        self.state_dicts.setdefault(name[: len(name) - len(str(key))], []).append(name)
        memory = (id(tensor.storage), tensor.offset, tensor.shape, tensor.strides)
        if (first := self._first.setdefault(memory, name)) != name:
            self.tied[name] = first


def _named_leaves(
    file: InputFile, contents: Any, roots: set[str], places: _Places
) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a checkpoint. Add the paths of dicts with dots in their keys, as in the
    state_dict() of a whole model, to the roots, and the tensors to the places."""
    for name, _, key, leaf in walk_leaves(file, contents):
        if isinstance(key, str) and "." in key:
            roots.add(name[: -len(key)].rstrip("."))
        if isinstance(leaf, archive.TorchTensor):
            places.add(name, key, leaf)
        yield name, leaf


def _tensor_of_value(value: Any) -> FileTensor | None:
    if isinstance(value, archive.TorchTensor):
        return FileTensor(FLOAT8.get(value.dtype, value.dtype), value.shape, value.bits)
    if isinstance(value, PickledArray) and value.array is not None:
        return FileTensor.of(value.array, value.dtype)
    return value if isinstance(value, FileTensor) else None


def _write_checkpoint(out: Output, tensor_set: TensorSet, progress: Progress | None = None) -> None:
    """Write a state_dict for torch.load(out, weights_only=True)."""
    torch = import_extra("torch", "torch", f"writing {out.name}")
    count = ProgressCount(progress, 2 * tensor_set.nbytes)
    tensors = tensor_set.tensors.items()
    state = OrderedDict((name, _torch_tensor(torch, tensor, count)) for name, tensor in tensors)
    _save_with_torch(torch, _with_metadata(state, tensor_set.metadata), out, count)


def _save_with_torch(torch: Any, contents: Any, out: Output, count: ProgressCount) -> None:
    if not out.dry_run:
        with open(out, "wb", opener=open_untruncated) as file:
            torch.save(contents, _PiecewiseFile(file, count))


class _PiecewiseFile:
    """A file for torch.save(), which passes a whole storage to a call of write(). The storage is
    written in pieces: between two pieces, threads run and Ctrl-C is answered."""

    def __init__(self, file: IO[bytes], count: ProgressCount) -> None:
        self._file, self._count = file, count
        self.flush = file.flush

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for at in range(0, len(view), CHUNK_NBYTES):
            self._count(self._file.write(view[at : at + CHUNK_NBYTES]))
        return len(view)


def _with_metadata(state: Any, metadata: Mapping[str, str]) -> Any:
    """Return a checkpoint with metadata in the attribute where a state_dict keeps the metadata of
    modules by name."""
    if metadata and isinstance(state, OrderedDict):
        modules = OrderedDict(getattr(state, "_metadata", None) or {})
        modules["rnnlayout"] = dict(metadata)
        state._metadata = modules  # type: ignore[attr-defined]
    return state


def _torch_tensor(torch: Any, source: FileTensor, count: ProgressCount) -> Any:
    """Return a copy as a torch tensor: the memory of the array may be used for the next array."""
    array = source.bits()
    array = np.array(array, array.dtype.newbyteorder("="), order="C").reshape(source.shape)
    tensor = torch.from_numpy(array)
    dtype = getattr(torch, _DTYPES.get(source.dtype, source.dtype), None)
    if not isinstance(dtype, torch.dtype) or dtype.itemsize != tensor.itemsize:
        raise LayoutError(f"torch lacks the dtype {source.dtype}: write .safetensors or .npz")
    count(array.nbytes)
    return tensor if tensor.dtype == dtype else tensor.view(dtype)


def _replace_in_checkpoint(
    file: InputFile, out: Output, tensor_set: TensorSet, pairs: Pairs, progress: Progress | None
) -> list[str]:
    """Copy a checkpoint and replace RNNs; keep the order, all numbers and shared storages. If an
    RNN is in a module or program, which cannot be written again, write a state_dict."""
    torch = import_extra("torch", "torch", f"writing {out.name}")
    if any(name in tensor_set.derived for group, _ in pairs for name in group.names):
        if not out.dry_run:
            _write_checkpoint(out, tensor_set, progress)
        omitted = [*tensor_set.values, *tensor_set.skipped]
        omission = f", without {list_names(omitted, 3)}" if omitted else ""
        return [f"the new file is a state_dict of the modules in {file.path.name}{omission}"]
    contents = _load_with_torch(torch, file, tensor_set.skipped.values())
    places = {name: place for name, *place, _ in walk_leaves(file, contents, torch.is_tensor)}
    old_names = {name for group, _ in pairs for name in group.names}
    new_names = {group.prefix + name for group, conversion in pairs for name in conversion.tensors}
    if not old_names | (tensor_set.tensors.keys() - new_names) <= places.keys():
        raise FileError(f"{file}: torch reads other tensors from it: {archive.SAVE_AGAIN}")
    sizes = [tensor.nbytes for _, conversion in pairs for tensor in conversion.tensors.values()]
    count = ProgressCount(progress, sum(sizes) + tensor_set.nbytes)
    for group, conversion in pairs:
        _replace_group(torch, group, places, conversion, count)
    hidden = any(_needs_record(conversion) for _, conversion in pairs)
    if hidden and isinstance(contents, dict) and not isinstance(contents, OrderedDict):
        contents = OrderedDict(contents)  # other dicts lose the attribute _metadata in a file
    _save_with_torch(torch, _with_metadata(contents, tensor_set.metadata), out, count)
    count(tensor_set.nbytes)  # completes the count if tensors share storages
    if hidden and not isinstance(contents, dict):
        kind = type(contents).__name__
        note = f"it is a {kind}, which cannot record its RNNs: to read them pass "
        return [Message(note, Ask("spec")).text]
    return []


def _needs_record(conversion: LayerwiseConversion) -> bool:
    """Return whether tensors alone do not show which RNN they are: the sizes of a packed vector,
    settings, and fields of the spec with another value than by default."""
    spec = conversion.spec
    shown = Spec(
        spec.cell,
        spec.input_size,
        spec.hidden_size,
        spec.num_layers,
        bidirectional=spec.bidirectional,
        proj_size=spec.proj_size,
        bias=spec.bias,
        peepholes=spec.peepholes,
        dtype=spec.dtype,
    )
    is_plain_rnn = not CELLS[spec.cell].is_gated  # tanh or relu
    return bool(
        is_one_vector(conversion.layout)
        or conversion.config
        or is_plain_rnn
        or spec != shown
        or conversion.kind != "weights"
    )


_OPTIONS = ("as_class",)
FORMAT = TensorFormat(
    ".pt", _read_checkpoint, _write_checkpoint, _replace_in_checkpoint, options=_OPTIONS
)
PICKLE = TensorFormat(".pkl", _read_checkpoint, None, options=_OPTIONS)
PT2 = TensorFormat(".pt2", _read_checkpoint, None, options=_OPTIONS)


def _load_with_torch(torch: Any, file: InputFile, unread: Iterable[str]) -> Any:
    """Return the checkpoint that torch loads. archive.read_torch_file() must have accepted the
    file. unread: the classes that archive.read_torch_file() did not read."""
    if torch.__version__ < (2, 10):
        raise MissingExtraError(
            f"torch {torch.__version__} is installed, whose safe loader has known holes:"
            ' pip install "torch>=2.10"'
        )
    try:
        with open(file, "rb") as opened:
            is_zip = opened.read(2) == b"PK"
        return torch.load(file, map_location="cpu", weights_only=True, mmap=is_zip and file.mmap)
    except Exception as error:  # of many kinds
        refused = {*unread, *re.findall(r"GLOBAL ([\w.]+)", str(error))}
        if not refused:
            raise FileError(f"{file}: torch cannot read it: {str(error)[:300]}") from None
        numpy = any(name.startswith("numpy.") for name in refused)
        raise FileError(
            f"{file}: torch's safe loader refuses what is in it, so the rest of the checkpoint"
            " cannot be kept: write another format, .safetensors, or save it again without"
            f" {list_names(sorted(refused))}"
            + (", with torch.as_tensor(x) for each x of NumPy" if numpy else "")
        ) from None


def _replace_group(
    torch: Any,
    group: TensorGroup,
    places: dict[str, Any],
    conversion: LayerwiseConversion,
    count: ProgressCount,
) -> None:
    """Put an RNN's new tensors at the position of the first old tensor."""
    first = group.names[0]
    container, key = places[first]
    key_start = len(first) - len(str(key))  # where the key begins in the name
    if (
        not isinstance(container, dict)
        or key_start > len(group.prefix)
        or any(places[name][0] is not container for name in group.names)
    ):
        raise LayoutError(
            f"{group.entry}: its tensors are not in one dict: write another format, .safetensors"
        )
    tensors = {
        group.prefix[key_start:] + name: _torch_tensor(torch, tensor, count)
        for name, tensor in conversion.tensors.items()
    }
    old_keys = {places[name][1] for name in group.names}
    old_container = dict(container)
    if clash := tensors.keys() & (container.keys() - old_keys):
        raise LayoutError(f"{group.entry}: the file has another {min(clash)!r}: rename it first")
    container.clear()  # filled again, not replaced: an OrderedDict has attributes to keep
    for k, value in old_container.items():
        if k == key:
            container.update(tensors)
        elif k not in old_keys:
            container[k] = value
