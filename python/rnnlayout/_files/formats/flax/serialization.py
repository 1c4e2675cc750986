""".msgpack: a tree of parameters as flax.serialization.to_bytes() writes it.

Nested dicts with texts as keys. An array is a value of an own type: its shape, the name of its
dtype, its bytes (flax/serialization.py, 0.12.8). The name of a tensor is its keys, joined by
slashes. What rnnlayout records is under one more key, which from_bytes() ignores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rnnlayout._files.formats.registry import Pairs, TensorFormat
from rnnlayout._files.tensor_sets.budget import Budget
from rnnlayout._files.tensor_sets.file_limits import InputFile, object_of_texts
from rnnlayout._files.tensor_sets.nested import ALONE, walk_leaves
from rnnlayout._files.tensor_sets.output_file import Output, open_untruncated
from rnnlayout._files.tensor_sets.tensor_set import (
    FLOAT8,
    FileTensor,
    Progress,
    ProgressCount,
    TensorSet,
    sizes_of,
    stored_dtype,
    stored_tensor,
)
from rnnlayout._model.dtypes import storage_dtype
from rnnlayout._model.errors import FileError

from .msgpack import Extension, Parts, msgpack_bytes, read_msgpack, value_head

_ARRAY, _SCALAR = 1, 3  # codes of flax's own types that are read; 2 is a complex number
_CHUNKED = "__msgpack_chunked_array__"  # a dict in the place of an array of more than 1 GB
_CHUNK_NBYTES = 1 << 30
_METADATA = "__metadata__"
_FLOAT8 = {name: dtype for dtype, name in FLOAT8.items()}

Tree = dict[Any, Any]


def _read_flax(file: InputFile) -> TensorSet:
    tree, metadata = _read_tree(file)
    found = TensorSet({}, metadata)
    for name, _, _, leaf in walk_leaves(file, tree, _is_leaf, "/"):
        tensor = _tensor_of_leaf(leaf, f"{file}: {name}", file.budget)
        if tensor is None:
            found.add_value(name)
        else:
            found.add(name, tensor, file)
    if not found.tensors:
        raise FileError(f"{file} has no arrays as flax.serialization writes them")
    return found


def _read_tree(file: InputFile) -> tuple[Tree, dict[str, str]]:
    """Return the tree, and the metadata that rnnlayout wrote beside it."""
    found = read_msgpack(memoryview(file.data()), str(file), file.budget)
    tree = found if isinstance(found, dict) else {ALONE: found}
    return tree, object_of_texts(tree.pop(_METADATA, {}), f"{file}: {_METADATA}")


def _is_leaf(value: Any) -> bool:
    return not isinstance(value, (dict, list)) or _CHUNKED in value


def _tensor_of_leaf(value: Any, what: str, budget: Budget) -> FileTensor | None:
    """Return the tensor that a leaf is, None if it is not one."""
    if isinstance(value, Extension) and value.code in (_ARRAY, _SCALAR):
        return _array_of_leaf(value, what, budget)
    if not isinstance(value, dict) or _CHUNKED not in value:
        return None
    listed, chunks = (_listed_values(value.get(key), what) for key in ("shape", "chunks"))
    shape = sizes_of(listed, what)
    parts = [_tensor_of_leaf(chunk, what, budget) for chunk in chunks]
    flat = [part for part in parts if part is not None and len(part.shape) == 1]
    dtypes = {part.dtype for part in flat}
    count = sum(part.shape[0] for part in flat)
    if len(flat) != len(parts) or len(dtypes) != 1 or count != math.prod(shape):
        raise FileError(f"{what}: its chunks are not those of an array of shape {shape}")
    return FileTensor(
        dtypes.pop(),
        shape,
        lambda: np.concatenate([part.bits() for part in flat]).reshape(shape),
        lambda: (part.bits() for part in flat),
    )


def _listed_values(found: Any, what: str) -> list[Any]:
    """Return the values of {"0": a, "1": b ...}."""
    if not isinstance(found, dict) or list(found) != [str(k) for k in range(len(found))]:
        raise FileError(f"{what}: an array in chunks has a malformed shape, or list of chunks")
    return list(found.values())


def _array_of_leaf(value: Extension, what: str, budget: Budget) -> FileTensor:
    parts = read_msgpack(value.data, what, budget)
    if not isinstance(parts, list) or [type(part) for part in parts[1:]] != [str, memoryview]:
        raise FileError(f"{what} is not a shape, a dtype and bytes")
    shape, dtype, data = parts
    return stored_tensor(FLOAT8.get(dtype, dtype[:32]), shape, data, what)


# --------------------------------------------------------------------------------------- writing


def _write_flax(out: Output, tensor_set: TensorSet, progress: Progress | None = None) -> None:
    tree: Tree = {}
    for name, tensor in tensor_set.tensors.items():
        _put_tensor(tree, {}, name, tensor)
    _save_tree(out, tree, tensor_set, progress)


def _replace_in_flax(
    file: InputFile,
    out: Output,
    tensor_set: TensorSet,
    pairs: Pairs,
    progress: Progress | None = None,
) -> list[str]:
    """Copy a tree with other RNNs; keep all else: numbers, texts, the state of an optimizer."""
    tree, _ = _read_tree(file)
    leaves = {name: place for name, *place, _ in walk_leaves(file, tree, _is_leaf, "/")}
    keys = dict(_walk_containers(tree, ""))
    for group, one in pairs:
        for name in group.names:
            container, key = leaves[name]
            if isinstance(container, list):
                raise FileError(f"{file}: {name} is in a list: write another format, .safetensors")
            del container[key]
        for name, tensor in one.tensors.items():
            _put_tensor(tree, keys, group.prefix + name, tensor)
    _drop_empty(tree)
    _save_tree(out, tree, tensor_set, progress)
    return []


def _walk_containers(tree: Tree, above: str) -> Iterator[tuple[str, Tree]]:
    """Yield each dict with its name: its own keys may contain slashes."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield f"{above}{key}", value
            yield from _walk_containers(value, f"{above}{key}/")


def _put_tensor(tree: Tree, keys: Mapping[str, Tree], name: str, tensor: FileTensor) -> None:
    """Put a tensor into the tree. keys: names of the dicts in it."""
    parts, begin = name.split("/"), 0
    for n in range(len(parts) - 1, 0, -1):
        if (above := keys.get("/".join(parts[:n]))) is not None:
            tree, begin = above, n
            break
    for part in parts[begin:-1]:
        tree = tree.setdefault(part, {})
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
    if tensor.nbytes > _CHUNK_NBYTES:
        yield from msgpack_bytes(_split_into_chunks(tensor), _leaf_parts)
        return
    # (shape, dtype, bytes), as one value
    inside = (
        b"".join(msgpack_bytes([*tensor.shape], _leaf_parts)),
        b"".join(msgpack_bytes(dtype, _leaf_parts)),
    )
    begin = value_head("list", 3) + b"".join(inside) + value_head("bin", tensor.nbytes)
    yield value_head("ext", len(begin) + tensor.nbytes) + bytes([_ARRAY]) + begin
    yield from tensor.chunks()


def _split_into_chunks(tensor: FileTensor) -> Tree:
    """Return the dict that flax has in the place of an array that is too large for one value."""
    step = _CHUNK_NBYTES // storage_dtype(tensor.dtype).itemsize
    flat = tensor.bits().reshape(-1)
    parts = [flat[at : at + step] for at in range(0, flat.size, step)]
    return {
        _CHUNKED: True,
        "shape": {str(k): n for k, n in enumerate(tensor.shape)},
        "chunks": {str(k): FileTensor.of(part, tensor.dtype) for k, part in enumerate(parts)},
    }


FORMAT = TensorFormat(".msgpack", _read_flax, _write_flax, _replace_in_flax, separator="/")
