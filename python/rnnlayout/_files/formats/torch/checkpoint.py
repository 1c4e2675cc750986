"""torch: .pt, .pth and .ckpt, a state_dict or a checkpoint that contains state_dicts.

Files are read without torch (archive.py), so nothing that they name is imported. torch is needed to
write them, and to convert the RNNs in a checkpoint without changing the rest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from rnnlayout._files.bags.bag import CHUNK_NBYTES, Bag, Count, Progress, Tensor
from rnnlayout._files.bags.groups import Group
from rnnlayout._files.bags.layerwise import Conversion
from rnnlayout._files.bags.output import Output
from rnnlayout._files.formats.format import Pairs, TensorFormat
from rnnlayout._model.errors import FileError, MissingExtraError, missing
from rnnlayout._native import LayoutError

from . import archive
from .pickles import Dict

MOST_DEEP, LONGEST = 32, 1000  # dicts in dicts; characters of a name
# The dtypes that NumPy lacks, by the names that .safetensors has for them.
_NAMES = {"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0"}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
ALONE = "weight_space"  # the name of a tensor that is the whole file


def _read(path: Path) -> Bag:
    """Return the tensors of a checkpoint, named by the keys that lead to them, joined by dots.

    Raises FileError if it is malformed, unsafe, or not made of tensors and containers: a
    TorchScript archive, a pickled module.
    """
    found = archive.read(path)
    tensors = {}
    for name, _, _, array in _places(path, found, lambda value: type(value) is archive.Array):
        if name in tensors:
            raise FileError(f"{path}: two tensors would both be named {name[:100]!r}")
        tensors[name] = Tensor(_NAMES.get(array.dtype, array.dtype), array.shape, array.bits)
    if not tensors:
        raise FileError(f"{path} has no tensors")
    return Bag(tensors, _metadata(found))


def _metadata(found: Any) -> dict[str, str]:
    """Return what _set_metadata() added."""
    state = found.attributes if isinstance(found, Dict) else None
    for key in ("_metadata", "rnnlayout"):
        state = state.get(key) if isinstance(state, dict) else None
    if not isinstance(state, dict):
        return {}
    return {k: v for k, v in state.items() if isinstance(k, str) and isinstance(v, str)}


def _places(
    path: Path, found: Any, is_tensor: Callable[[Any], bool]
) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield (name, container, key, tensor) in order, and each container only once."""
    if is_tensor(found):
        yield ALONE, None, None, found
    else:
        yield from _inside(path, found, is_tensor, "", 0, set())


def _inside(
    path: Path,
    container: Any,
    is_tensor: Callable[[Any], bool],
    name: str,
    depth: int,
    seen: set[int],
) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield what is in a container. name: the keys that lead to it; seen: ids of those before."""
    if not isinstance(container, (dict, list, tuple)) or id(container) in seen:
        return
    seen.add(id(container))
    if depth > MOST_DEEP or len(name) > LONGEST:
        raise FileError(
            f"{path}: dicts nested {depth} deep, or keys of {len(name)} characters: refused"
        )
    items = container.items() if isinstance(container, dict) else enumerate(container)
    for key, value in items:
        if type(key) not in (str, int):
            continue
        if is_tensor(value):
            yield f"{name}{key}", container, key, value
        else:
            yield from _inside(path, value, is_tensor, f"{name}{key}.", depth + 1, seen)


def _write(out: Output, bag: Bag, progress: Progress | None = None) -> None:
    """Write a state_dict, which torch.load(out, weights_only=True) reads."""
    torch = _torch(out)
    count = Count(progress, 2 * bag.nbytes)
    state = OrderedDict()
    for name, tensor in bag.tensors.items():
        state[name] = _tensor(torch, tensor, count)
    _set_metadata(state, bag.metadata)
    _save(torch, state, out, count)


def _save(torch: Any, value: Any, out: Output, count: Count) -> None:
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


def _set_metadata(state: Any, metadata: Mapping[str, str]) -> None:
    """Add metadata where a state_dict keeps that of its modules, by their names."""
    if metadata and isinstance(state, OrderedDict):
        modules = OrderedDict(getattr(state, "_metadata", None) or {})
        modules["rnnlayout"] = dict(metadata)
        state._metadata = modules  # type: ignore[attr-defined]


def _torch(out: Output) -> Any:
    if out.target.suffix in (".jit", ".pt2"):
        raise FileError(
            f"{out.name}: {out.target.suffix} files also contain code: write a .pt instead"
        )
    try:
        import torch
    except ImportError:
        raise missing("torch", "torch", f"to write {out.name}") from None
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
    found = _load(torch, path)
    places = {name: place for name, *place, _ in _places(path, found, torch.is_tensor)}
    old = {name for group, _ in pairs for name in group.names}
    new = {group.prefix + name for group, one in pairs for name in one.tensors}
    if not old | (bag.tensors.keys() - new) <= places.keys():
        raise FileError(f"{path}: torch reads other tensors from it: {archive.AGAIN}")
    converted = [tensor.nbytes for _, one in pairs for tensor in one.tensors.values()]
    count = Count(progress, sum(converted) + bag.nbytes)
    for group, one in pairs:
        _replace_group(torch, group, places, one, count)
    _set_metadata(found, bag.metadata)
    _save(torch, found, out, count)
    count(bag.nbytes)  # completes the count if tensors share storages
    values = found.values() if isinstance(found, dict) else ()
    if any(isinstance(value, dict) and "param_groups" in value for value in values):
        return ["the optimizer's state is unchanged: it belongs to the old tensors"]
    return []


FORMAT = TensorFormat(".pt", _read, _write, _replace)


def _load(torch: Any, path: Path) -> Any:
    """Return the checkpoint that torch loads. archive.read() must have accepted it."""
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
        raise FileError(f"{path}: torch cannot read it: {str(error)[:300]}") from None


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
