""".msgpack: a tree of parameters as flax.serialization.to_bytes() writes it.

Nested dicts with texts as keys. An array is a value of an extension type: shape, name of the dtype,
bytes (flax/serialization.py, 0.12.8). The name of a tensor is the path of keys, joined by slashes.
The records of rnnlayout are under an additional key, which from_bytes() ignores. MessagePack is
described in spec.md of https://github.com/msgpack/msgpack.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from struct import calcsize
from typing import Any

import numpy as np

from rnnlayout._files.tensor_sets.file_limits import Budget, InputFile, object_of_texts
from rnnlayout._files.tensor_sets.optimizer_slots import (
    MOST_OPTIMIZERS,
    number_of,
    optimizer_of_slots,
    step_of,
)
from rnnlayout._files.tensor_sets.output_file import Output, open_untruncated
from rnnlayout._files.tensor_sets.tensor_set import (
    ALONE,
    FLOAT8,
    FileTensor,
    Progress,
    ProgressCount,
    StoredOptimizer,
    TensorSet,
    sizes_of,
    stored_dtype,
    stored_tensor,
    walk_leaves,
)
from rnnlayout._model.dtypes import storage_dtype
from rnnlayout._model.errors import FileError
from rnnlayout._sources.mismatch import list_names

from .registry import Pairs, TensorFormat

_MOST_DEEP = 32
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
# code -> kind, number of bytes of the length
_SIZED = {
    0xC4: ("bin", 1),
    0xC5: ("bin", 2),
    0xC6: ("bin", 4),
    0xC7: ("ext", 1),
    0xC8: ("ext", 2),
    0xC9: ("ext", 4),
    0xD9: ("str", 1),
    0xDA: ("str", 2),
    0xDB: ("str", 4),
    0xDC: ("list", 2),
    0xDD: ("list", 4),
    0xDE: ("map", 2),
    0xDF: ("map", 4),
}
_FIXED_EXT = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


_SLOT = re.compile(r"(.*?)/(mu|nu|trace)/", re.DOTALL)  # path of the state, slot
Parts = Iterator[bytes | memoryview]


@dataclass(frozen=True)
class Extension:
    """An extension of MessagePack: a value of an application's type. data: a view of the file."""

    code: int
    data: memoryview


def read_msgpack(data: memoryview, label: str, budget: Budget) -> Any:
    """Return the content of the bytes: dicts, lists, texts, numbers, and views of byte strings.
    Raises FileError if the bytes are malformed, or a key is neither a text nor a number."""
    reader = _MsgpackReader(data, label, budget)
    content = reader.value(0)
    if reader.at != len(data):
        raise FileError(f"{label}: {len(data) - reader.at} bytes after its end")
    return content


class _MsgpackReader:
    def __init__(self, data: memoryview, label: str, budget: Budget) -> None:
        self.data, self.label, self.budget, self.at = data, label, budget, 0

    def take(self, nbytes: int) -> memoryview:
        if nbytes > len(self.data) - self.at:
            raise FileError(f"{self.label} is cut short, or not a msgpack file")
        self.at += nbytes
        return self.data[self.at - nbytes : self.at]

    def value(self, depth: int) -> Any:
        if depth > _MOST_DEEP:
            raise FileError(
                f"{self.label}: more than {_MOST_DEEP} containers in each other: refused"
            )
        code = self.take(1)[0]
        if code < 0x80 or code >= 0xE0:
            return code - (256 if code >= 0xE0 else 0)
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code in _NUMBERS:
            form = _NUMBERS[code]
            return struct.unpack(form, self.take(calcsize(form)))[0]
        if code in _FIXED_EXT:
            return self.sized("ext", _FIXED_EXT[code], depth)
        if code in _SIZED:
            kind, width = _SIZED[code]
            return self.sized(kind, int.from_bytes(self.take(width), "big"), depth)
        if code == 0xC1:
            raise FileError(f"{self.label} is damaged, or not a msgpack file: byte 0xc1")
        kind = "map" if code < 0x90 else "list" if code < 0xA0 else "str"
        return self.sized(kind, code & (0x1F if kind == "str" else 0x0F), depth)

    def sized(self, kind: str, n: int, depth: int) -> Any:
        if kind == "ext":
            code = self.take(1)[0]
            return Extension(code, self.take(n))
        if kind == "bin":
            return self.take(n)
        if kind == "str":
            try:
                return str(self.take(n), "utf-8")
            except UnicodeDecodeError as error:
                raise FileError(f"{self.label} has a text that is not UTF-8: {error}") from None
        if n > len(self.data) - self.at:
            raise FileError(f"{self.label} is cut short: a {kind} of {n} items at byte {self.at}")
        self.budget.charge("steps", 2 * n)
        if kind == "list":
            return [self.value(depth + 1) for _ in range(n)]
        members: dict[Any, Any] = {}
        for _ in range(n):
            key = self.value(depth + 1)
            if not isinstance(key, (str, int)):
                raise FileError(f"{self.label}: a key is a {type(key).__name__}, need a text")
            if key in members:
                raise FileError(f"{self.label} has the key {key!r:.100} twice")
            members[key] = self.value(depth + 1)
        return members


def msgpack_bytes(value: Any, encode_other: Callable[[Any], Parts]) -> Parts:
    """Yield the bytes of a value, equal to the output of the msgpack package. encode_other: yields
    the bytes of a value of a type that read_msgpack() never returns."""
    if isinstance(value, Mapping):
        yield value_head("map", len(value))
        for key, inside in value.items():
            yield from msgpack_bytes(key, encode_other)
            yield from msgpack_bytes(inside, encode_other)
    elif isinstance(value, (list, tuple)):
        yield value_head("list", len(value))
        for inside in value:
            yield from msgpack_bytes(inside, encode_other)
    elif isinstance(value, str):
        text = value.encode()
        yield value_head("str", len(text)) + text
    elif isinstance(value, (bytes, memoryview)):
        yield value_head("bin", len(value))
        yield value
    elif isinstance(value, Extension):
        yield value_head("ext", len(value.data)) + bytes([value.code])
        yield value.data
    elif isinstance(value, float):
        yield b"\xcb" + struct.pack(">d", value)
    elif isinstance(value, int) and not isinstance(value, bool):
        signed = value < 0
        forms = {
            c: form for c, form in _NUMBERS.items() if form[1] in ("bhiq" if signed else "BHIQ")
        }
        bits = (~value if signed else value).bit_length() + signed
        fits = (code for code, form in forms.items() if bits <= 8 * calcsize(form))
        if -32 <= value < 128:
            yield bytes([value & 0xFF])
        elif code := next(fits, None):
            yield bytes([code]) + struct.pack(forms[code], value)
        else:
            raise FileError(f"a msgpack file cannot have the number {value}")
    elif value is None or isinstance(value, bool):
        yield bytes([next(code for code, constant in _CONSTANTS.items() if constant is value)])
    else:
        yield from encode_other(value)


def value_head(kind: str, n: int) -> bytes:
    """Return the bytes that precede the content of a map, list, text, extension or byte string."""
    small = {"map": (0x80, 16), "list": (0x90, 16), "str": (0xA0, 32)}
    if kind in small and n < small[kind][1]:
        return bytes([small[kind][0] | n])
    if kind == "ext" and n in _FIXED_EXT.values():
        return bytes([next(code for code, size in _FIXED_EXT.items() if size == n)])
    for code, (sized_kind, width) in _SIZED.items():
        if sized_kind == kind and n < 1 << 8 * width:
            return bytes([code]) + n.to_bytes(width, "big")
    raise FileError(f"a msgpack file cannot have a {kind} of {n} bytes or items")


# ------------------------------------------------------------------------------------- flax's trees

_ARRAY, _SCALAR = 1, 3  # flax's extension codes that are read; 2 is a complex number
_CHUNKED = "__msgpack_chunked_array__"  # a dict in the place of an array of more than 1 GB
_CHUNK_NBYTES = 1 << 30
_METADATA = "__metadata__"
_FLOAT8 = {name: dtype for dtype, name in FLOAT8.items()}

Tree = dict[Any, Any]


def _read_flax(file: InputFile) -> TensorSet:
    tree, metadata = _read_tree(file)
    tensor_set = TensorSet({}, metadata)
    for name, _, _, leaf in walk_leaves(file, tree, _is_leaf, "/"):
        tensor = _tensor_of_leaf(leaf, f"{file}: {name}", file.budget)
        if tensor is None:
            tensor_set.add_value(name)
        else:
            tensor_set.add(name, tensor, file)
    if not tensor_set.tensors:
        raise FileError(f"{file} has no arrays as flax.serialization writes them")
    tensor_set.optimizers = _optax_states(tensor_set.tensors)
    return tensor_set


def _optax_states(tensors: Mapping[str, FileTensor]) -> list[StoredOptimizer]:
    """Return the states of optax: trees with the names of the parameters, beside a count of steps
    or in opt_state. A tree belongs to the only other tree with the same names and shapes."""
    trees: dict[str, dict[str, dict[str, str]]] = {}  # path -> slot -> name in the tree -> name
    inside = set()
    for name in tensors:
        match = _SLOT.match(name)
        if match and ("opt_state" in match[1].split("/") or f"{match[1]}/count" in tensors):
            trees.setdefault(match[1], {}).setdefault(match[2], {})[name[match.end() :]] = name
            inside.add(name)
    outside = [name for name in tensors if name not in inside] if trees else []
    if len(trees) > MOST_OPTIMIZERS:
        why = f"the file has {len(trees)} states of optimizers, more than {MOST_OPTIMIZERS}"
        return [StoredOptimizer("", problems=dict.fromkeys(outside, why))]
    optimizers = []
    for path, slots in trees.items():
        names = {
            inner: tensors[name].shape for tree in slots.values() for inner, name in tree.items()
        }
        first = next(iter(names))
        roots = [
            name[: len(name) - len(first)]
            for name in outside
            if name == first or name.endswith(f"/{first}")
        ]
        roots = [root for root in roots if _has_all(tensors, root, names)]
        if len(roots) == 1:
            arrays = [
                (roots[0] + inner, slot, name, tensors[name])
                for slot, tree in slots.items()
                for inner, name in tree.items()
            ]
            step = step_of(number_of(tensors.get(f"{path}/count")))
            optimizers.append(optimizer_of_slots(path, arrays, step, {}))
        elif roots:
            shown = list_names([root.rstrip("/") for root in roots], 3)
            why = f"{path} has the names and shapes of several trees: {shown}"
            optimizers.append(StoredOptimizer(path, problems=dict.fromkeys(outside, why)))
    return optimizers


def _has_all(tensors: Mapping[str, FileTensor], root: str, names: Mapping[str, Any]) -> bool:
    return all(
        root + inner in tensors and tensors[root + inner].shape == shape
        for inner, shape in names.items()
    )


def _read_tree(file: InputFile) -> tuple[Tree, dict[str, str]]:
    """Return the tree without the metadata of rnnlayout, and the metadata."""
    content = read_msgpack(memoryview(file.data()), str(file), file.budget)
    tree = content if isinstance(content, dict) else {ALONE: content}
    return tree, object_of_texts(tree.pop(_METADATA, {}), f"{file}: {_METADATA}")


def _is_leaf(value: Any) -> bool:
    return not isinstance(value, (dict, list)) or _CHUNKED in value


def _tensor_of_leaf(value: Any, label: str, budget: Budget) -> FileTensor | None:
    if isinstance(value, Extension) and value.code in (_ARRAY, _SCALAR):
        stored = read_msgpack(value.data, label, budget)
        types = [type(field) for field in stored[1:]] if isinstance(stored, list) else []
        if types != [str, memoryview]:
            raise FileError(f"{label} is not a shape, a dtype and bytes")
        shape, dtype, data = stored
        return stored_tensor(FLOAT8.get(dtype, dtype[:32]), shape, data, label)
    if not isinstance(value, dict) or _CHUNKED not in value:
        return None
    for listed in (value.get("shape"), value.get("chunks")):  # {"0": a, "1": b ...}
        if not isinstance(listed, dict) or list(listed) != [str(k) for k in range(len(listed))]:
            raise FileError(f"{label}: an array in chunks has a malformed shape, or list of chunks")
    shape = sizes_of(list(value["shape"].values()), label)
    parts = [_tensor_of_leaf(chunk, label, budget) for chunk in value["chunks"].values()]
    flat = [part for part in parts if part is not None and len(part.shape) == 1]
    dtypes = {part.dtype for part in flat}
    count = sum(part.shape[0] for part in flat)
    if len(flat) != len(parts) or len(dtypes) != 1 or count != math.prod(shape):
        raise FileError(f"{label}: its chunks are not those of an array of shape {shape}")
    return FileTensor(
        dtypes.pop(),
        shape,
        lambda: np.concatenate([part.bits() for part in flat]).reshape(shape),
        lambda: (part.bits() for part in flat),
    )


# --------------------------------------------------------------------------------------- writing


def _write_flax(out: Output, tensor_set: TensorSet, progress: Progress | None = None) -> None:
    tree: Tree = {}
    for name, tensor in tensor_set.tensors.items():
        _put_tensor(tree, {}, name, tensor)
    _save_tree(out, tree, tensor_set, progress)


def _replace_in_flax(
    file: InputFile, out: Output, tensor_set: TensorSet, pairs: Pairs, progress: Progress | None
) -> list[str]:
    """Copy a tree with new RNNs; keep numbers, texts and the state of an optimizer."""
    tree, _ = _read_tree(file)
    leaves = {name: place for name, *place, _ in walk_leaves(file, tree, _is_leaf, "/")}
    keys = dict(_walk_containers(tree, ""))
    for group, conversion in pairs:
        for name in group.names:
            container, key = leaves[name]
            del container[key]
        for name, tensor in conversion.tensors.items():
            _put_tensor(tree, keys, group.prefix + name, tensor)
    _drop_empty(tree)
    _save_tree(out, tree, tensor_set, progress)
    return []


def _walk_containers(tree: Tree, above: str) -> Iterator[tuple[str, Tree]]:
    """Yield (name, dict) for each dict. Keys may contain slashes, so names cannot be split."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield f"{above}{key}", value
            yield from _walk_containers(value, f"{above}{key}/")


def _put_tensor(tree: Tree, keys: Mapping[str, Tree], name: str, tensor: FileTensor) -> None:
    """Put a tensor into the tree. keys: name -> dict, for each dict in the tree."""
    parts, begin = name.split("/"), 0
    for n in range(len(parts) - 1, 0, -1):
        if (above := keys.get("/".join(parts[:n]))) is not None:
            tree, begin = above, n
            break
    for part in parts[begin:-1]:
        tree = tree.setdefault(part, {})
        if isinstance(tree, list):
            raise FileError(f"{name} is in a list, {part!r}: write another format, .safetensors")
        if not isinstance(tree, dict):
            raise FileError(f"{name}: the new file has an array {part!r} above it: rename one")
    if parts[-1] in tree and tree[parts[-1]] != {}:
        raise FileError(f"the new file would have two values named {name!r}: rename one")
    tree[parts[-1]] = tensor


def _drop_empty(tree: Tree) -> None:
    for key, value in list(tree.items()):
        if isinstance(value, dict):
            _drop_empty(value)
            if not value:
                del tree[key]


def _save_tree(out: Output, tree: Tree, tensor_set: TensorSet, progress: Progress | None) -> None:
    if tensor_set.metadata:
        tree[_METADATA] = tensor_set.metadata
    if out.dry_run:
        return
    count = ProgressCount(progress, tensor_set.nbytes)
    with open(out, "wb", opener=open_untruncated) as file:
        for part in msgpack_bytes(tree, _leaf_parts):
            file.write(part)
            count(len(part))


def _leaf_parts(tensor: FileTensor) -> Parts:
    dtype = _FLOAT8.get(tensor.dtype, tensor.dtype)
    if dtype == tensor.dtype and stored_dtype(dtype) is None:
        raise FileError(f".msgpack cannot store dtype {tensor.dtype}: write .safetensors")
    if tensor.nbytes > _CHUNK_NBYTES:  # a dict in the place of the array
        step = _CHUNK_NBYTES // storage_dtype(tensor.dtype).itemsize
        flat = tensor.bits().reshape(-1)
        parts = [flat[at : at + step] for at in range(0, flat.size, step)]
        chunks = {str(k): FileTensor.of(part, tensor.dtype) for k, part in enumerate(parts)}
        shape = {str(k): n for k, n in enumerate(tensor.shape)}
        split = {_CHUNKED: True, "shape": shape, "chunks": chunks}
        yield from msgpack_bytes(split, _leaf_parts)
        return
    # (shape, dtype, bytes), as one value
    inside = (
        b"".join(msgpack_bytes([*tensor.shape], _leaf_parts)),
        b"".join(msgpack_bytes(dtype, _leaf_parts)),
    )
    begin = value_head("list", 3) + b"".join(inside) + value_head("bin", tensor.nbytes)
    yield value_head("ext", len(begin) + tensor.nbytes) + bytes([_ARRAY]) + begin
    yield from tensor.chunks()


FORMAT = TensorFormat(".msgpack", _read_flax, _write_flax, _replace_in_flax, separator="/")
