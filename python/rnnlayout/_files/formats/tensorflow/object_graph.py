"""The graph of objects in a checkpoint of TensorFlow 2: what refers to what, by which name.

It is a TrackableObjectGraph (tensorflow/core/protobuf/trackable_object_graph.proto, 2.21).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from rnnlayout._files.formats.content import message_fields
from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.tensor_set import TensorSet

VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"  # behind the path of a variable
_COPIES = "_all_variables/"  # of a Keras 3 export: the variables a second time
_LISTED = re.compile(r"(.+)/variables/\d+")  # path of a variable of an object that has a list
_FIELD_STEPS = 2  # of the budget; a model of 300 layers has about 100,000 fields


class ObjectGraph:
    """The objects of a file, by their numbers; 0 is the whole model."""

    def __init__(self, graph: memoryview, file: InputFile) -> None:
        self._file = file
        self._variables: dict[int, str] = {}  # number -> path of its value in the checkpoint
        self._children: dict[int, dict[str, int]] = {}  # of those that were asked for
        self._messages: list[list[memoryview]] = []  # of each object: its children
        self.full_names: dict[str, str] = {}  # path -> the name that the program gave
        for number, node in self._fields(graph):
            if number == 1:
                fields = [(k, v) for k, v in self._fields(node) if not isinstance(v, int)]
                self._messages.append([message for k, message in fields if k == 1])
                for attribute in (dict(self._fields(message)) for k, message in fields if k == 2):
                    self._add_variable(_text(attribute.get(3)), _text(attribute.get(2)))

    def _add_variable(self, key: str, full_name: str) -> None:
        if key.endswith(VALUE):
            path = key.removesuffix(VALUE)
            self._variables[len(self._messages) - 1] = path
            if full_name:
                self.full_names[path] = full_name

    def _fields(self, message: int | memoryview) -> Iterator[tuple[int, int | memoryview]]:
        for field in message_fields(message) if not isinstance(message, int) else ():
            self._file.budget.charge("steps", _FIELD_STEPS)
            yield field

    def children(self, number: int) -> dict[str, int]:
        """Return what an object refers to: name -> number."""
        if number not in self._children:
            told = [dict(self._fields(message)) for message in self._messages[number]]
            found = {_text(one.get(2)): one.get(1, 0) for one in told}
            self._children[number] = {
                name: other
                for name, other in found.items()
                if isinstance(other, int) and other < len(self._messages)
            }
        return self._children[number]

    def find(self, names: Iterable[str]) -> int | None:
        """Return the object at a path from the whole model, None if it does not exist."""
        at: int | None = 0 if self._messages else None
        for name in names:
            at = None if at is None else self.children(at).get(name)
        return at

    def variable(self, number: int | None) -> str | None:
        """Return the path of a variable's value, None if the object is not a variable."""
        return None if number is None else self._variables.get(number)


def _text(value: object) -> str:
    return str(value, "utf-8", "backslashreplace") if isinstance(value, memoryview) else ""


def with_full_names(tensor_set: TensorSet, full_names: Mapping[str, str]) -> TensorSet:
    """Return the tensors by the names that the program gave them. Several variables may have one
    name, as those of layers that are built on their own do: these are returned by their paths.
    """
    own = {path: full_names.get(path, path) for path in sorted(tensor_set.tensors, key=_by_numbers)}
    kept = {name for path, name in own.items() if not path.startswith(_COPIES)}
    own = {p: name for p, name in own.items() if not (p.startswith(_COPIES) and name in kept)}
    count = Counter(own.values())
    # one of two layers of one name may lack a bias: all of their variables get other names
    layers = {_layer_of(name) for name, n in count.items() if n > 1}
    shared = {path: name for path, name in own.items() if _layer_of(name) in layers}
    for path, name in shared.items():
        match = _LISTED.fullmatch(path)
        own[path] = f"{match[1]}/{name}" if match else path
    count = Counter(own.values())
    tensors = {n if count[n] == 1 else p: tensor_set.tensors[p] for p, n in own.items()}
    notes = list(tensor_set.notes)
    if lost := [name for path, name in shared.items() if path in tensors and path[-1].isdigit()]:
        notes.append(
            f"several variables are named {lost[0]!r}, so RNNs of such variables are not found:"
            " save the model in Keras's own format, .keras or .h5, and read that"
        )
    return replace(tensor_set, tensors=tensors, notes=notes)


def _by_numbers(path: str) -> list[tuple[int, str]]:
    """Return a sort key for variables/2, variables/10."""
    return [(len(part) if part.isdecimal() else 0, part) for part in path.split("/")]


def _layer_of(name: str) -> str:
    return name.partition("/")[0] if "/" in name else ""
