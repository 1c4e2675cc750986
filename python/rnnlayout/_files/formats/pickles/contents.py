"""The tensors in the containers of a pickle, and the notes about what was not read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.tensor_set import FileTensor, TensorSet
from rnnlayout._model.errors import FileError
from rnnlayout._sources.mismatch import list_names

from .machine import UnreadObject

_MOST_KINDS, _MOST_NAMES = 20, 3  # in notes

_ADVICE = {
    "__torch__.": "the tensors of a program have no names after torch.jit.freeze(); save the"
    " program that it was made from",
    "packed weights": "a state_dict does not say which; save the whole module, torch.save(module)",
    "torch.ScriptObject": "it is a quantized module with packed weights; save the state_dict of the"
    " module that it was made from",
    "torch.storage._load_from_bytes": "it is a tensor that pickle.dump() wrote; if you trust the"
    " file, unpickle it and write it with torch.save()",
}
_OTHERWISE = (
    "only tensors, numbers, strings and containers are read; if you trust the file, load it with"
    " the program that wrote it and save a state_dict"
)


def tensors_of_pickle(
    file: InputFile,
    leaves: Iterable[tuple[str, Any]],
    tensor_of: Callable[[Any], FileTensor | None],
) -> TensorSet:
    """Return the tensors of a pickle.

    leaves: what it has, each with the keys that lead to it, joined by dots.
    tensor_of: returns the tensor that an object is, None if it is not one.
    Raises FileError if there are none, or two would have the same name.
    """
    read = TensorSet({})
    for name, value in leaves:
        tensor = tensor_of(value)
        if tensor is not None:
            file.budget.charge("arrays", tensor.nbytes)  # many may be views of one storage
            read.add(name, tensor, file)
        elif isinstance(value, UnreadObject):
            file.budget.charge("names", len(name))
            read.unread[name] = value.name
        else:
            read.add_value(name)
    if not read.tensors:
        raise _no_tensors(file, read.unread)
    read.notes = _unread_notes(read.unread)
    return read


def _no_tensors(file: InputFile, unread: dict[str, str]) -> FileError:
    if not unread:
        return FileError(f"{file} has no tensors")
    kinds = unread.values()
    advice = next(filter(None, map(_advice_for_class, kinds)), _OTHERWISE)
    return FileError(f"{file} has no tensors, and asks for {list_names(kinds)}: {advice}")


def _unread_notes(unread: dict[str, str]) -> list[str]:
    kinds: dict[str, list[str]] = {}
    for name, kind in unread.items():
        kinds.setdefault(kind, []).append(name)
    notes = [
        f"{kind} in {list_names(names, _MOST_NAMES)} was not read"
        + (f": {advice}" if (advice := _advice_for_class(kind)) else "")
        for kind, names in list(kinds.items())[:_MOST_KINDS]
    ]
    if len(kinds) > _MOST_KINDS:
        notes.append(f"objects of {len(kinds) - _MOST_KINDS} other classes were not read")
    return notes


def _advice_for_class(kind: str) -> str:
    return next((text for begin, text in _ADVICE.items() if kind.startswith(begin)), "")
