"""torch: .pt, .pth and .ckpt, a state_dict or a checkpoint that contains state_dicts.

.pkl and .pickle are the same or pickles of NumPy arrays; they are only read.

Files are read without torch (archive.py), so nothing that they name is imported. torch is needed to
write them, and to convert the RNNs in a checkpoint without changing the rest.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from rnnlayout._files.bags.bag import CHUNK_NBYTES, Bag, Count, Progress, Tensor
from rnnlayout._files.bags.groups import Group
from rnnlayout._files.bags.layerwise import Conversion
from rnnlayout._files.bags.output import Output
from rnnlayout._files.formats.format import Pairs, TensorFormat, only_read
from rnnlayout._files.formats.pickles.arrays import Ndarray
from rnnlayout._files.formats.pickles.machine import Dict
from rnnlayout._files.formats.pickles.places import bag_of, places
from rnnlayout._files.formats.safetensors import FLOAT8
from rnnlayout._model.errors import FileError, MissingExtraError, missing
from rnnlayout._native import LayoutError
from rnnlayout._sources.candidates import is_flat
from rnnlayout._sources.mismatch import listing

from . import archive

_DTYPES = {name: dtype for dtype, name in FLOAT8.items()}


def _read(path: Path) -> Bag:
    """Return the tensors of a checkpoint, named by the keys that lead to them, joined by dots.

    Raises FileError if it is malformed, or has no tensors outside of what is not read: a
    TorchScript archive, a pickled module.
    """
    found = archive.read(path)
    return replace(bag_of(path, found, _tensor_of), metadata=_metadata(found))


def _tensor_of(value: Any) -> Tensor | None:
    if isinstance(value, archive.Array):
        return Tensor(FLOAT8.get(value.dtype, value.dtype), value.shape, value.bits)
    if isinstance(value, Ndarray) and value.array is not None:
        return Tensor.of(value.array, value.dtype)
    return None


def _metadata(found: Any) -> dict[str, str]:
    """Return what _with_metadata() added."""
    state = found.attributes if isinstance(found, Dict) else None
    for key in ("_metadata", "rnnlayout"):
        state = state.get(key) if isinstance(state, dict) else None
    if not isinstance(state, dict):
        return {}
    return {k: v for k, v in state.items() if isinstance(k, str) and isinstance(v, str)}


def _write(out: Output, bag: Bag, progress: Progress | None = None) -> None:
    """Write a state_dict, which torch.load(out, weights_only=True) reads."""
    torch = _torch(out)
    count = Count(progress, 2 * bag.nbytes)
    state = OrderedDict()
    for name, tensor in bag.tensors.items():
        state[name] = _tensor(torch, tensor, count)
    _save(torch, _with_metadata(state, bag.metadata), out, count)


def _save(torch: Any, value: Any, out: Output, count: Count) -> None:
    if out.dry_run:
        return
    with open(out, "wb") as file:
        torch.save(value, _InPieces(file, count))


class _InPieces:
    """A file for torch.save(), which writes a storage with one call: written in pieces, between
    which other threads run and Ctrl-C is answered."""

    def __init__(self, file: IO[bytes], count: Count) -> None:
        self._file, self._count = file, count
        self.flush = file.flush

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for at in range(0, len(view), CHUNK_NBYTES):
            self._count(self._file.write(view[at : at + CHUNK_NBYTES]))
        return len(view)


def _with_metadata(state: Any, metadata: Mapping[str, str]) -> Any:
    """Return a checkpoint with metadata where a state_dict keeps that of its modules, by name."""
    if metadata and isinstance(state, OrderedDict):
        modules = OrderedDict(getattr(state, "_metadata", None) or {})
        modules["rnnlayout"] = dict(metadata)
        state._metadata = modules  # type: ignore[attr-defined]
    return state


def _torch(out: Output) -> Any:
    try:
        import torch
    except ImportError:
        raise missing("torch", "torch", f"writing {out.name}") from None
    return torch


def _tensor(torch: Any, source: Tensor, count: Count) -> Any:
    """Return a torch tensor with memory of its own: the array's may be used again for the next."""
    array = source.bits()
    array = np.array(array, array.dtype.newbyteorder("="), order="C").reshape(source.shape)
    tensor = torch.from_numpy(array)
    wanted = getattr(torch, _DTYPES.get(source.dtype, source.dtype), None)
    if not isinstance(wanted, torch.dtype) or wanted.itemsize != tensor.itemsize:
        raise LayoutError(f"torch lacks the dtype {source.dtype}: write .safetensors or .npz")
    count(array.nbytes)
    return tensor if tensor.dtype == wanted else tensor.view(wanted)


def _replace(
    path: Path, out: Output, bag: Bag, pairs: Pairs, progress: Progress | None = None
) -> list[str]:
    """Copy a checkpoint with other RNNs; keep all else: order, numbers, shared storages."""
    torch = _torch(out)
    found = _load(torch, path, bag.unread.values())
    at = {name: place for name, *place, _ in places(path, found, torch.is_tensor)}
    old = {name for group, _ in pairs for name in group.names}
    new = {group.prefix + name for group, one in pairs for name in one.tensors}
    if not old | (bag.tensors.keys() - new) <= at.keys():
        raise FileError(f"{path}: torch reads other tensors from it: {archive.AGAIN}")
    converted = [tensor.nbytes for _, one in pairs for tensor in one.tensors.values()]
    count = Count(progress, sum(converted) + bag.nbytes)
    for group, one in pairs:
        _replace_group(torch, group, at, one, count)
    hidden = any(is_flat(one.layout) or one.config for _, one in pairs)  # what tensors do not show
    if hidden and type(found) is dict:
        found = OrderedDict(found)  # a plain dict has no place for metadata
    _save(torch, _with_metadata(found, bag.metadata), out, count)
    count(bag.nbytes)  # completes the count if tensors share storages
    if hidden and not isinstance(found, dict):
        kind = type(found).__name__
        return [f"it is a {kind}, which cannot record its RNNs: to read them pass spec="]
    values = found.values() if isinstance(found, dict) else ()
    if any(isinstance(value, dict) and "param_groups" in value for value in values):
        return ["the optimizer's state is unchanged: it belongs to the old tensors"]
    return []


FORMAT = TensorFormat(".pt", _read, _write, _replace)
PICKLE = TensorFormat(".pkl", _read, only_read)


def _load(torch: Any, path: Path, unread: Iterable[str]) -> Any:
    """Return the checkpoint that torch loads. archive.read() must have accepted it.

    unread: the classes in it that archive.read() did not read.
    """
    if torch.__version__ < (2, 10):
        raise MissingExtraError(
            f"torch {torch.__version__} is installed, whose safe loader has known holes:"
            ' pip install "torch>=2.10"'
        )
    try:
        with open(path, "rb") as file:
            is_zip = file.read(2) == b"PK"
        return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except Exception as error:  # of many kinds
        refused = {*unread, *re.findall(r"GLOBAL ([\w.]+)", str(error))}
        if not refused:
            raise FileError(f"{path}: torch cannot read it: {str(error)[:300]}") from None
        numpy = any(name.startswith("numpy.") for name in refused)
        raise FileError(
            f"{path}: torch's safe loader refuses what is in it, so the rest of the checkpoint"
            " cannot be kept: write another format, .safetensors, or save it again without"
            f" {listing(sorted(refused))}"
            + (", with torch.as_tensor(x) for each x of NumPy" if numpy else "")
        ) from None


def _replace_group(
    torch: Any, group: Group, places: dict[str, Any], new: Conversion, count: Count
) -> None:
    """Put an RNN's new tensors at the position of its first old one."""
    first = group.names[0]
    container, key = places[first]
    at = len(first) - len(str(key))  # where the key begins in the name
    if (
        not isinstance(container, dict)
        or at > len(group.prefix)
        or any(places[name][0] is not container for name in group.names)
    ):
        raise LayoutError(
            f"{group.entry}: its tensors are not in one dict: write another format, .safetensors"
        )
    tensors = {
        group.prefix[at:] + name: _tensor(torch, tensor, count)
        for name, tensor in new.tensors.items()
    }
    old = {places[name][1] for name in group.names}
    items = list(container.items())
    if clash := tensors.keys() & (container.keys() - old):
        raise LayoutError(f"{group.entry}: the file has another {min(clash)!r}: rename it first")
    container.clear()  # and filled again, because an OrderedDict has attributes to keep
    for k, value in items:
        if k == key:
            container.update(tensors)
        elif k not in old:
            container[k] = value
