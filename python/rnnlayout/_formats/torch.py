"""torch: .pt, .pth and .ckpt, a state_dict or a checkpoint with state_dicts in it.

Files are read without torch (_torch_file.py), so nothing that they name is imported. It is needed
to write them, and to convert the RNNs in a checkpoint and leave the rest as it is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rnnlayout import _groups
from rnnlayout._errors import FileError, MissingExtraError, missing
from rnnlayout._formats import Ask, Bag, Converted, Tensor, _torch_file
from rnnlayout._formats._pickles import Dict
from rnnlayout._layouts import Layout
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._weights import Weights

SUFFIXES = (".pt", ".pth", ".ckpt", ".jit", ".pt2")

MOST_DEEP = 32  # dicts in dicts
ALONE = "weight_space"  # the name of a tensor that is all there is


def read_tensors(path: Path) -> Bag:
    """The tensors of a checkpoint, named by the keys that lead to them, joined by dots.

    FileError: malformed, unsafe, or something else than tensors and containers: a TorchScript
    archive, a pickled module.
    """
    found = _torch_file.read(path)
    tensors = {}
    for name, _, _, array in _places(found, lambda value: type(value) is _torch_file.Array):
        if name in tensors:
            raise FileError(f"{path}: two tensors come out as {name[:100]!r}")
        tensors[name] = Tensor(array.dtype, array.shape, array.bits)
    if not tensors:
        raise FileError(f"{path} holds no tensors")
    return Bag(tensors, _metadata(found))


def _metadata(found: Any) -> dict[str, str]:
    """What write_tensors() put beside the tensors."""
    state = found.attributes if isinstance(found, Dict) else None
    for key in ("_metadata", "rnnlayout"):
        state = state.get(key) if isinstance(state, dict) else None
    if not isinstance(state, dict):
        return {}
    return {k: v for k, v in state.items() if isinstance(k, str) and isinstance(v, str)}


def _places(found: Any, is_tensor: Callable[[Any], bool]) -> Iterator[tuple[str, Any, Any, Any]]:
    """(name, container, key, tensor) in order; a container that stands twice counts once."""
    if is_tensor(found):
        yield ALONE, None, None, found
    seen: set[int] = set()

    def under(container: Any, path: str, depth: int) -> Iterator[tuple[str, Any, Any, Any]]:
        if id(container) in seen:
            return
        seen.add(id(container))
        if depth > MOST_DEEP:
            raise FileError(f"containers in containers, more than {MOST_DEEP} deep")
        items = container.items() if isinstance(container, dict) else enumerate(container)
        for key, value in items:
            if type(key) not in (str, int):
                continue
            if is_tensor(value):
                yield f"{path}{key}", container, key, value
            elif isinstance(value, (dict, list, tuple)):
                yield from under(value, f"{path}{key}.", depth + 1)

    if isinstance(found, (dict, list, tuple)):
        yield from under(found, "", 0)


# ---------------------------------------------------------------------------------------- writing


def write_tensors(path: Path, bag: Bag) -> None:
    """A state_dict: torch.load(path, weights_only=True) reads it."""
    torch = _torch(path)
    state: Any = OrderedDict(
        (name, _tensor(torch, tensor.bits(), tensor.dtype)) for name, tensor in bag.tensors.items()
    )
    if bag.metadata:  # where a state_dict has what is known of its modules, by their names
        state._metadata = OrderedDict(rnnlayout=dict(bag.metadata))
    torch.save(state, path)


def _torch(path: Path) -> Any:
    if path.suffix in (".jit", ".pt2"):
        raise FileError(f"{path.name}: {path.suffix} is a program with its weights: write a .pt")
    try:
        import torch
    except ImportError:
        raise missing("torch", "torch", f"to write {path.name}") from None
    return torch


def _tensor(torch: Any, array: np.ndarray, dtype: str) -> Any:
    """A tensor that owns its memory. dtype: where NumPy has it not, the array carries its bits."""
    array = np.array(array, array.dtype.newbyteorder("="), order="C")
    tensor = torch.from_numpy(array)
    wanted = getattr(torch, dtype, None)
    if not isinstance(wanted, torch.dtype) or wanted.itemsize != tensor.itemsize:
        raise LayoutError(f"torch has no dtype {dtype}")
    return tensor if tensor.dtype == wanted else tensor.view(wanted)


# ------------------------------------------------------------------------------------- converting


def rewrite(
    path: Path, out: Path, ask: Ask, to: Layout, *, dtype: Any = None, exact: bool = False
) -> Converted:
    """Convert the RNNs in a checkpoint; all else in it stays: order, numbers, shared storages."""
    bag = read_tensors(path)
    groups = _groups.find(bag.tensors, ask)
    if not groups:
        raise FileError(f"{path}: no recurrent layer found")
    torch = _torch(out)
    found = _load(torch, path)
    places = {name: place for name, *place, _ in _places(found, torch.is_tensor)}
    if not bag.tensors.keys() <= places.keys():
        raise FileError(f"{path}: torch finds other tensors in it than are there")
    notes = list(bag.notes)
    reports = {}
    for group in groups:
        if not isinstance(group.weights, Weights):
            raise group.weights
        if exact and group.rounds:
            raise LossyError(
                f"weight norm of {', '.join(group.rounds)}: computing the weight rounds, which"
                " exact=True refuses"
            )
        weights = group.weights.to(to, dtype=dtype, exact=exact)
        reports[group.entry] = weights.report
        notes += group.notes
        _replace(torch, group, places, weights)
    if _has_optimizer(found):
        notes.append("the optimizer's state was left as it was: it belongs to the old tensors")
    torch.save(found, out)
    return Converted(reports, notes=tuple(notes))


def _load(torch: Any, path: Path) -> Any:
    """The checkpoint itself, once our own reading has found it harmless."""
    if torch.__version__ < (2, 10):
        raise MissingExtraError(
            f"torch {torch.__version__} is installed, whose safe loader has known holes:"
            ' pip install "torch>=2.10"'
        )
    try:
        is_zip = path.read_bytes()[:2] == b"PK"
        return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except Exception as error:  # its own kinds are many
        raise FileError(f"{path}: torch does not read it: {str(error)[:300]}") from None


def _replace(torch: Any, group: _groups.Group, places: dict[str, Any], weights: Weights) -> None:
    """Put an RNN's new tensors where its first old one stood."""
    first = group.names[0]
    container, key = places[first]
    at = len(first) - len(str(key))  # where the key begins in the name
    if (
        not isinstance(container, dict)
        or at > len(group.under)
        or any(places[name][0] is not container for name in group.names)
    ):
        raise LayoutError(f"{group.entry}: its tensors do not lie in one dict: convert() them")
    given = weights._read()
    new = {
        group.under[at:] + name: _tensor(torch, array, given.dtype)
        for name, array in zip(given.names, given.arrays, strict=True)
    }
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
