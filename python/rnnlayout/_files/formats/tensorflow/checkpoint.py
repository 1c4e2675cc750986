""".index: a checkpoint of TensorFlow, with the numbers in NAME.data-00000-of-00001.

The index maps names to dtypes, shapes and places in the data (tensor_bundle.proto and
tensor_bundle.cc in tensorflow/core, 2.21). The files of data are in the folder of the index
and are called after the index; no further file is opened. The index also has a graph of objects
that refer to each other by name, a TrackableObjectGraph
(tensorflow/core/protobuf/trackable_object_graph.proto).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache

from rnnlayout._files.formats.content import TENSORFLOW, message_fields, read_varint
from rnnlayout._files.formats.registry import TensorFormat
from rnnlayout._files.tensor_sets.file_limits import InputFile, name_file
from rnnlayout._files.tensor_sets.optimizer_slots import (
    MOST_OPTIMIZERS,
    number_of,
    optimizer_of_slots,
    step_of,
)
from rnnlayout._files.tensor_sets.tensor_set import (
    FLOAT8,
    FileTensor,
    StoredOptimizer,
    TensorSet,
    stored_tensor,
)
from rnnlayout._model.errors import FileError
from rnnlayout._sources.mismatch import list_names

from .old_names import with_new_names

# DataType of tensorflow/core/framework/types.proto
_DTYPES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    8: "complex64",
    9: "int64",
    10: "bool",
    14: "bfloat16",
    17: "uint16",
    18: "complex128",
    19: "float16",
    22: "uint32",
    23: "uint64",
    24: FLOAT8["float8_e5m2"],
    25: FLOAT8["float8_e4m3fn"],
}
METADATA = "keras_metadata.pb"  # of a SavedModel of Keras 2
_GRAPH, _TEXT = "_CHECKPOINTABLE_OBJECT_GRAPH", 7  # name and dtype of the graph of objects
_MOST_SHARDS = 100_000
_FOOTER = 48  # bytes: two block handles, zeros, the magic

Data = Callable[[int], memoryview]


def _read_index(file: InputFile) -> TensorSet:
    tensor_set, graph = read_checkpoint(file)
    saved_model = file.path.absolute().parent.parent / "saved_model.pb"
    if file.path.name == "variables.index" and saved_model.is_file():
        tensor_set = with_full_names(tensor_set, ObjectGraph(graph, file).full_names)
        if saved_model.with_name(METADATA).is_file():
            tensor_set.notes.append(
                f"for the configs of its layers pass the folder {saved_model.parent}"
            )
    tensor_set = with_new_names(_with_paths_in_model(tensor_set, graph, file))
    return replace(tensor_set, optimizers=_slots_in_checkpoint(tensor_set.tensors))


def _slots_in_checkpoint(tensors: Mapping[str, FileTensor]) -> list[StoredOptimizer]:
    """Return the optimizers of a checkpoint: arrays with the path of a variable, and arrays that
    are numbered, of which neither slot nor variable is recorded."""
    slots: dict[str, list[tuple[str, str, str, FileTensor]]] = {}
    for name, array in tensors.items():
        if (match := _SLOT.fullmatch(name)) and match[1] in tensors:
            slots.setdefault(match[2], []).append((match[1], match[3], name, array))
    numbered = {match[1] for name in tensors if (match := _NUMBERED_SLOT.fullmatch(name))}
    why = (
        "the file does not record which tensors its numbered variables belong to: save the whole"
        " compiled model, model.save('model.keras')"
    )
    optimizers = [
        StoredOptimizer(path, problems=dict.fromkeys(tensors, f"{path}: {why}"))
        for path in sorted(numbered)[:1]
    ]
    if not slots or len(slots) > MOST_OPTIMIZERS:
        return optimizers
    numbers = {name: tensor for name, tensor in tensors.items() if tensor.shape == ()}
    for path, arrays in slots.items():
        start = f"{path}/"
        own = {
            n.removeprefix(start): number_of(t) for n, t in numbers.items() if n.startswith(start)
        }
        step = step_of(own.pop("iter", None))
        values = {key: value for key, value in own.items() if value is not None and "/" not in key}
        optimizers.append(optimizer_of_slots(path, arrays, step, values))
    return optimizers


def _with_paths_in_model(tensor_set: TensorSet, graph: memoryview, file: InputFile) -> TensorSet:
    """Name the variables of a trained model of Keras 3 by their paths in the model. The optimizer
    lists the same variables, and a checkpoint has the shorter path, of the optimizer."""
    listed = [name for name in tensor_set.tensors if _OF_OPTIMIZER.search(name)]
    if not listed:
        return tensor_set
    paths = ObjectGraph(graph, file).paths_without("optimizer")
    new = {name: paths[name] for name in listed if paths.get(name, name) not in tensor_set.tensors}
    notes = list(tensor_set.notes)
    if new:
        old, paths_text = list_names([*new], 2), list_names([*new.values()], 2)
        notes.append(f"{old}: listed by the optimizer, read as {paths_text}, as in the model")
    if len(new) < len(listed):
        rest = list_names([name for name in listed if name not in new], 2)
        notes.append(
            f"{rest}: listed by the optimizer, without a path in the model: save the model with"
            " model.save() as .keras"
        )
    tensors = {new.get(name, name): tensor for name, tensor in tensor_set.tensors.items()}
    return replace(tensor_set, tensors=tensors, notes=notes, derived=frozenset(new.values()))


def read_checkpoint(file: InputFile) -> tuple[TensorSet, memoryview]:
    """Return the tensors by name or path, and the bytes of the graph of objects. A checkpoint of
    TensorFlow 1 lacks the graph: b""."""
    index = memoryview(file.data())
    tensor_set, graph = TensorSet({}), memoryview(b"")
    data: Data | None = None
    with name_file(file):
        for key, entry in _table_entries(index, str(file)):
            if data is None:  # the first key is empty: the header
                data = _open_shards(file, entry)
                continue
            name = str(key, "utf-8", "backslashreplace").removesuffix(VALUE)
            if name == _GRAPH:  # a text: length, four bytes of a checksum, bytes
                fields, label = dict(message_fields(entry)), f"{file}: {name}"
                bits = _bits_of_entry(fields, data, label)
                length, at = read_varint(bits, 0)
                if fields.get(1) != _TEXT or len(bits) != at + 4 + length:
                    raise FileError(f"{label} is not one text: it is damaged")
                graph = bits[at + 4 :]
            tensor = _tensor_of_entry(entry, data, f"{file}: {name[:200]}")
            if isinstance(tensor, FileTensor):
                file.budget.charge("arrays", tensor.nbytes)  # many tensors may be at the same place
                tensor_set.add(name, tensor, file)
                continue
            file.budget.charge("names", len(name))
            if tensor:
                tensor_set.skipped[name] = tensor
            else:
                tensor_set.add_value(name)
    if not tensor_set.tensors:
        raise FileError(f"{file} has no tensors")
    skipped = list(tensor_set.skipped.items())[:3]
    tensor_set.notes += [f"{name} is {kind} and was not read" for name, kind in skipped]
    return tensor_set, graph


def _open_shards(file: InputFile, header: memoryview) -> Data:
    """Return a function: number of a file of data -> bytes of the file. header: the bytes of a
    BundleHeaderProto."""
    fields = dict(message_fields(header))
    count, big = fields.get(1, 0), fields.get(2, 0)
    if isinstance(count, memoryview):  # a SavedTensorSlices
        raise FileError(
            f"{file} is a checkpoint of version 1, which TensorFlow before 0.12 wrote: pass"
            f" model.index, which TensorFlow 2 makes of it: r = tf.train.load_checkpoint("
            f"{str(file)!r}); n = list(r.get_variable_to_shape_map()); tf.raw_ops.SaveV2("
            "prefix='model', tensor_names=n, shape_and_slices=[''] * len(n),"
            " tensors=[r.get_tensor(name) for name in n])"
        )
    if not isinstance(count, int) or not 0 < count <= _MOST_SHARDS or big:
        raise FileError(f"{file}: its header is damaged, or of a big-endian machine")

    @cache
    def data(number: int) -> memoryview:
        if number >= count:
            raise FileError(f"{file}: a tensor is in shard {number} of {count}: it is damaged")
        stem = file.path.name.removesuffix(".index")
        return memoryview(file.companion(f"{stem}.data-{number:05d}-of-{count:05d}").data())

    return data


def _tensor_of_entry(entry: memoryview, data: Data, label: str) -> FileTensor | str:
    """Return the tensor of a BundleEntryProto; else the reason why a tensor cannot be read, or ""
    for a text."""
    fields = dict(message_fields(entry))  # if an optional field occurs twice, the last one counts
    shape, message, kind = [], fields.get(2, memoryview(b"")), fields.get(1, 0)
    if isinstance(message, int):
        raise FileError(f"{label}: its entry is damaged")
    for number, dim in message_fields(message):
        if number == 2 and not isinstance(dim, int):
            shape.append(dict(message_fields(dim)).get(1, 0))
    if 7 in fields:
        return "a variable in slices"
    if kind == _TEXT:
        return ""
    if not isinstance(kind, int) or kind not in _DTYPES:
        return f"an array of TensorFlow's dtype {kind}" if isinstance(kind, int) else "damaged"
    return stored_tensor(_DTYPES[kind], shape, _bits_of_entry(fields, data, label), label)


def _bits_of_entry(fields: dict[int, int | memoryview], data: Data, label: str) -> memoryview:
    """Return the bytes of a tensor. fields: the fields of the tensor's BundleEntryProto."""
    numbers = [fields.get(k, 0) for k in (3, 4, 5)]
    if not all(isinstance(n, int) for n in numbers):
        raise FileError(f"{label}: its entry is damaged")
    shard, begin, size = (int(n) for n in numbers if isinstance(n, int))
    bits = data(shard)[begin : begin + size] if size else memoryview(b"")
    if len(bits) != size:
        raise FileError(f"{label} is beyond the end of its data, which are cut short")
    return bits


# The index is a sorted table of LevelDB (doc/table_format.md in LevelDB, format.cc in
# tensorflow/core/lib/io, 2.21), written without compression. The values are protocol buffers.


def _table_entries(data: memoryview, label: str) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the keys and values. Raises FileError if the table is malformed."""
    if len(data) < _FOOTER or data[-8:] != TENSORFLOW:
        raise FileError(f"{label} is not the index of a TensorFlow checkpoint, or is cut short")
    end = 0
    footer = data[-_FOOTER:]
    _, index_at = read_varint(footer, read_varint(footer, 0)[1])  # after the meta-index's handle
    for _, handle in _read_block(data, _block_handle(footer[index_at:]), label):
        begin, size = _block_handle(handle)
        if begin < end:  # TensorFlow writes the blocks in order
            raise FileError(f"{label}: a block is used twice: it is damaged")
        end = begin + size
        yield from _read_block(data, (begin, size), label)


def _block_handle(data: memoryview) -> tuple[int, int]:
    begin, at = read_varint(data, 0)
    return begin, read_varint(data, at)[0]


def _read_block(
    data: memoryview, handle: tuple[int, int], label: str
) -> Iterator[tuple[bytes, memoryview]]:
    begin, size = handle
    if begin + size + 5 > len(data) - _FOOTER or size < 4:
        raise FileError(f"{label}: a block is beyond the end: it is cut short")
    if data[begin + size]:
        raise FileError(f"{label} is compressed, which TensorFlow does not do: write it again")
    block = data[begin : begin + size]
    end = size - 4 * (1 + int.from_bytes(block[-4:], "little"))  # before the restarts
    key, at = b"", 0
    while at < end:
        shared, at = read_varint(block, at)
        num_new, at = read_varint(block, at)
        length, at = read_varint(block, at)
        if shared > len(key) or at + num_new + length > end:
            raise FileError(f"{label}: an entry is longer than its block: it is damaged")
        key = key[:shared] + bytes(block[at : at + num_new])
        yield key, block[at + num_new : at + num_new + length]
        at += num_new + length


FORMAT = TensorFormat(".index", _read_index, None)


# ----------------------------------------------------------------------------- the graph of objects

_SLOT = re.compile(r"(.+)/\.OPTIMIZER_SLOT/(.+)/([^/]+)", re.DOTALL)  # variable, optimizer, slot
_NUMBERED_SLOT = re.compile(r"((?:.*/)?optimizer)/_variables/\d+", re.DOTALL)
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"  # suffix of a variable's path
_OF_OPTIMIZER = re.compile(r"(^|/)optimizer/_trainable_variables/\d+$")
_COPIES = "_all_variables/"  # of a Keras 3 export: the variables a second time
_LISTED = re.compile(r"(.+)/variables/\d+")  # path of a variable of an object that has a list
_NUMBERED = re.compile(r"(?<![^/])\d+(?![^/])")  # a part of a path that is a number
_FIELD_STEPS = 2  # of the budget; a model of 300 layers has about 100,000 fields


class ObjectGraph:
    """The objects of a file, by number; 0 is the whole model."""

    def __init__(self, graph: memoryview, file: InputFile) -> None:
        self._file = file
        self._variables: dict[int, str] = {}  # number -> path in the checkpoint
        self._children: dict[int, dict[str, int]] = {}  # a cache of children()
        self._messages: list[list[memoryview]] = []  # of each object: the children
        self.full_names: dict[str, str] = {}  # path -> name in the program
        for number, node in self._fields(graph):
            if number == 1:
                fields = [(k, v) for k, v in self._fields(node) if not isinstance(v, int)]
                self._messages.append([message for k, message in fields if k == 1])
                for attribute in (dict(self._fields(message)) for k, message in fields if k == 2):
                    key, full_name = _text(attribute.get(3)), _text(attribute.get(2))
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
        """Return the objects that an object refers to: name -> number."""
        if number not in self._children:
            references = [dict(self._fields(message)) for message in self._messages[number]]
            targets = {_text(reference.get(2)): reference.get(1, 0) for reference in references}
            self._children[number] = {
                name: target
                for name, target in targets.items()
                if isinstance(target, int) and target < len(self._messages)
            }
        return self._children[number]

    def find(self, names: Iterable[str]) -> int | None:
        """Return the object at a path from the whole model, None if it does not exist."""
        at: int | None = 0 if self._messages else None
        for name in names:
            at = None if at is None else self.children(at).get(name)
        return at

    def variable(self, number: int | None) -> str | None:
        """Return a variable's path in the checkpoint, None if the object is not a variable."""
        return None if number is None else self._variables.get(number)

    def paths_without(self, name: str) -> dict[str, str]:
        """Return path in the checkpoint -> shortest path that avoids objects of this name, of each
        variable that has such a path. A checkpoint's own paths are the shortest of all."""
        origin: dict[int, tuple[int, str]] = {0: (0, "")}  # object -> the object before, name
        queue = [0] if self._messages else []
        for number in queue:
            for child_name, child in self.children(number).items():
                if child_name != name and child not in origin:
                    origin[child] = number, child_name
                    queue.append(child)
        paths = {}
        for number, stored in self._variables.items():
            parts = list[str]()
            at = number
            while at and at in origin:
                self._file.budget.charge("steps", 1)
                at, part = origin[at]
                parts.insert(0, part)
            if parts and not at:
                path = "/".join(parts)
                self._file.budget.charge("names", len(path))
                paths[stored] = path
        return paths


def _text(value: object) -> str:
    return str(value, "utf-8", "backslashreplace") if isinstance(value, memoryview) else ""


def with_full_names(tensor_set: TensorSet, full_names: Mapping[str, str]) -> TensorSet:
    """Name the tensors as in the program. If several variables have the same name, as variables of
    layers that are built separately do, the tensors keep the paths as names."""

    def with_length(number: re.Match[str]) -> str:
        return f"\xff{chr(len(number[0]))}{number[0]}"

    def by_numbers(path: str) -> str:  # variables/2, variables/10; after names
        return _NUMBERED.sub(with_length, path).replace("/", "\0")

    paths = sorted(tensor_set.tensors, key=by_numbers)
    names = {path: full_names.get(path, path) for path in paths}
    kept = {name for path, name in names.items() if not path.startswith(_COPIES)}
    names = {p: name for p, name in names.items() if not (p.startswith(_COPIES) and name in kept)}
    count = Counter(names.values())
    # of two layers with the same name, one may lack a bias: all variables of both are renamed
    layers = {_layer_of(name) for name, n in count.items() if n > 1}
    shared = {path: name for path, name in names.items() if _layer_of(name) in layers}
    for path, name in shared.items():
        match = _LISTED.fullmatch(path)
        names[path] = f"{match[1]}/{name}" if match else path
    count = Counter(names.values())
    tensors = {n if count[n] == 1 else p: tensor_set.tensors[p] for p, n in names.items()}
    notes = list(tensor_set.notes)
    if lost := [name for path, name in shared.items() if path in tensors and path[-1].isdigit()]:
        notes.append(
            f"several variables are named {lost[0]!r}, so RNNs of such variables are not found:"
            " save the model in Keras's own format, .keras or .h5, and read that"
        )
    return replace(tensor_set, tensors=tensors, notes=notes)


def _layer_of(name: str) -> str:
    return name.partition("/")[0] if "/" in name else ""
