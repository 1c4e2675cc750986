"""torch: .pt, .pth and .ckpt, a state_dict or a checkpoint with state_dicts in it.

Files are read without torch (archive.py), so nothing that they name is imported. It is needed
to write them, and to convert the RNNs in a checkpoint and leave the rest as it is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from rnnlayout._files.bags.bag import CHUNK_NBYTES, Bag, Tensor
from rnnlayout._files.bags.groups import Group
from rnnlayout._files.bags.layerwise import Conversion
from rnnlayout._files.bags.replace import Count
from rnnlayout._model.errors import FileError, MissingExtraError, missing
from rnnlayout._native import LayoutError

from . import archive
from .pickles import Dict

MOST_DEEP, LONGEST = 32, 1000  # dicts in dicts; a name
# What NumPy has no name for, by the words that .safetensors has for it.
_WORDS = {"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0"}
_DTYPES = {word: dtype for dtype, word in _WORDS.items()}
ALONE = "weight_space"  # the name of a tensor that is all there is


def read_tensors(path: Path) -> Bag:
    """The tensors of a checkpoint, named by the keys that lead to them, joined by dots.

    FileError: malformed, unsafe, or something else than tensors and containers: a TorchScript
    archive, a pickled module.
    """
    found = archive.read(path)
    tensors = {}
    for name, _, _, array in _places(path, found, lambda value: type(value) is archive.Array):
        if name in tensors:
            raise FileError(f"{path}: two tensors come out as {name[:100]!r}")
        tensors[name] = Tensor(_WORDS.get(array.dtype, array.dtype), array.shape, array.bits)
    if not tensors:
        raise FileError(f"{path} holds no tensors")
    return Bag(tensors, _told_beside(found))


def _told_beside(found: Any) -> dict[str, str]:
    """What write_tensors() put beside the tensors."""
    state = found.attributes if isinstance(found, Dict) else None
    for key in ("_metadata", "rnnlayout"):
        state = state.get(key) if isinstance(state, dict) else None
    if not isinstance(state, dict):
        return {}
    return {k: v for k, v in state.items() if isinstance(k, str) and isinstance(v, str)}


def _places(
    path: Path, found: Any, is_tensor: Callable[[Any], bool]
) -> Iterator[tuple[str, Any, Any, Any]]:
    """(name, container, key, tensor) in order; a container that stands twice counts once."""
    if is_tensor(found):
        yield ALONE, None, None, found
    seen: set[int] = set()

    def under(container: Any, name: str, depth: int) -> Iterator[tuple[str, Any, Any, Any]]:
        if id(container) in seen:
            return
        seen.add(id(container))
        if depth > MOST_DEEP or len(name) > LONGEST:
            raise FileError(f"{path}: keys in keys, more than {MOST_DEEP} deep or too long")
        items = container.items() if isinstance(container, dict) else enumerate(container)
        for key, value in items:
            if type(key) not in (str, int):
                continue
            if is_tensor(value):
                yield f"{name}{key}", container, key, value
            elif isinstance(value, (dict, list, tuple)):
                yield from under(value, f"{name}{key}.", depth + 1)

    if isinstance(found, (dict, list, tuple)):
        yield from under(found, "", 0)


# ---------------------------------------------------------------------------------------- writing


def write_tensors(path: Path, bag: Bag) -> None:
    """A state_dict: torch.load(path, weights_only=True) reads it."""
    torch = _torch(path)
    state = OrderedDict((name, _tensor(torch, tensor)) for name, tensor in bag.tensors.items())
    _set_metadata(state, bag.metadata)
    _save(torch, state, path, Count(None, 0))


def _save(torch: Any, value: Any, path: Path, count: Count) -> None:
    with open(path, "wb") as file:
        torch.save(value, _Counted(file, count))


class _Counted:
    """A file as torch.save() wants it, which writes a storage at once: in pieces between which
    others run, and Ctrl-C is answered."""

    def __init__(self, file: IO[bytes], count: Count) -> None:
        self._file, self._count = file, count
        self.flush = file.flush

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for at in range(0, len(view), CHUNK_NBYTES):
            self._count(self._file.write(view[at : at + CHUNK_NBYTES]))
        return len(view)


def _set_metadata(state: Any, metadata: Mapping[str, str]) -> None:
    """Where a state_dict has what it knows of its modules, by their names."""
    if metadata and isinstance(state, OrderedDict):
        told = OrderedDict(getattr(state, "_metadata", None) or {})
        told["rnnlayout"] = dict(metadata)
        state._metadata = told  # type: ignore[attr-defined]


def _torch(path: Path) -> Any:
    if path.suffix in (".jit", ".pt2"):
        raise FileError(f"{path.name}: {path.suffix} is a program with its weights: write a .pt")
    try:
        import torch
    except ImportError:
        raise missing("torch", "torch", f"to write {path.name}") from None
    return torch


def _tensor(torch: Any, given: Tensor) -> Any:
    """A tensor that owns its memory: that of the array may be used again for the next."""
    array = given.bits()
    array = np.array(array, array.dtype.newbyteorder("="), order="C").reshape(given.shape)
    tensor = torch.from_numpy(array)
    wanted = getattr(torch, _DTYPES.get(given.dtype, given.dtype), None)
    if not isinstance(wanted, torch.dtype) or wanted.itemsize != tensor.itemsize:
        raise LayoutError(f"torch has no dtype {given.dtype}")
    return tensor if tensor.dtype == wanted else tensor.view(wanted)


# ------------------------------------------------------------------------------------- converting


def rewrite_tensors(
    path: Path,
    out: Path,
    bag: Bag,
    made: Iterable[tuple[Group, Conversion]],
    progress: Callable[[int, int], Any] | None = None,
) -> list[str]:
    """Write a checkpoint with these RNNs in the place of their groups; all else in it stays: order,
    numbers, shared storages.

    bag: the new tensors. Returns notes.
    """
    made = list(made)
    torch = _torch(out)
    found = _load(torch, path)
    places = {name: place for name, *place, _ in _places(path, found, torch.is_tensor)}
    old = {name for group, _ in made for name in group.names}
    new = {group.prefix + name for group, one in made for name in one.tensors}
    if not old | (bag.tensors.keys() - new) <= places.keys():
        raise FileError(f"{path}: torch finds other tensors in it than are there")
    converted = [tensor.nbytes for _, one in made for tensor in one.tensors.values()]
    count = Count(progress, sum(converted) + bag.nbytes)
    for group, one in made:
        _replace(torch, group, places, one, count)
    _set_metadata(found, bag.metadata)
    _save(torch, found, out, count)
    count(bag.nbytes)  # also where tensors share their storages
    if _has_optimizer(found):
        return ["the optimizer's state was left as it was: it belongs to the old tensors"]
    return []


def _load(torch: Any, path: Path) -> Any:
    """The checkpoint itself, once our own reading has found it harmless."""
    if torch.__version__ < (2, 10):
        raise MissingExtraError(
            f"torch {torch.__version__} is installed, whose safe loader has known holes:"
            ' pip install "torch>=2.10"'
        )
    try:
        with open(path, "rb") as file:
            is_zip = file.read(2) == b"PK"
        return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except Exception as error:  # its own kinds are many
        raise FileError(f"{path}: torch does not read it: {str(error)[:300]}") from None


def _replace(
    torch: Any, group: Group, places: dict[str, Any], made: Conversion, count: Count
) -> None:
    """Put an RNN's new tensors where its first old one stood."""
    first = group.names[0]
    container, key = places[first]
    at = len(first) - len(str(key))  # where the key begins in the name
    if (
        not isinstance(container, dict)
        or at > len(group.prefix)
        or any(places[name][0] is not container for name in group.names)
    ):
        raise LayoutError(f"{group.entry}: its tensors do not lie in one dict: convert() them")
    new = {}
    for name, tensor in made.tensors.items():
        new[group.prefix[at:] + name] = _tensor(torch, tensor)
        count(tensor.nbytes)
    old = {places[name][1] for name in group.names}
    items = list(container.items())
    if clash := new.keys() & (container.keys() - old):
        raise LayoutError(f"{group.entry}: there is another {min(clash)!r} already")
    container.clear()  # and filled again: an OrderedDict keeps what else it knows
    for k, value in items:
        if k == key:
            container.update(new)
        elif k not in old:
            container[k] = value


def _has_optimizer(found: Any) -> bool:
    values = found.values() if isinstance(found, dict) else ()
    return any(isinstance(v, dict) and "param_groups" in v for v in values)
