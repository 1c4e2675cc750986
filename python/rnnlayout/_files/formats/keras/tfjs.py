"""Layers models of TensorFlow.js: model.json, with the weights in files beside it.

"modelTopology" is Keras's config. "weightsManifest" is a list of groups, each with the names of its
files and its weights in order: {"paths": ["group1-shard1of2.bin", ...], "weights": [{"name",
"shape", "dtype", "quantization"?}]}. The files of a group are one stream of bytes, so a tensor may
be in several of them (tensorflowjs/write_weights.py, 4.22). Old models of Magenta are such a list
alone, weights_manifest.json, whose tensors have names of TensorFlow. So do models of deeplearn.js,
before TensorFlow.js: manifest.json is {"name": {"filename", "shape"}}, a file of float32 per tensor
(deeplearn.js 0.5, src/data/checkpoint_loader.ts).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any, cast

import numpy as np

from rnnlayout._files.formats.registry import ModelFormat
from rnnlayout._files.formats.tensorflow.old_names import with_new_names
from rnnlayout._files.tensor_sets.file_limits import InputFile, check_texts, parse_json_object
from rnnlayout._files.tensor_sets.file_rnns import Found
from rnnlayout._files.tensor_sets.find_rnns import find_rnns
from rnnlayout._files.tensor_sets.tensor_set import FileTensor, TensorSet, sizes_of, stored_tensor
from rnnlayout._files.tensor_sets.weight_map import MOST_PARTS
from rnnlayout._model.errors import Ask, FileError
from rnnlayout._native import SpecError
from rnnlayout._sources.keras_masks import mark_masks
from rnnlayout._sources.keras_tree import Node, Version, config_of, layer_name
from rnnlayout._sources.mismatch import list_names
from rnnlayout._sources.reading import Reading

from .config import parse_config, parse_keras_version, recurrent_layers_in
from .entries import CellArray, KerasEntries, LayerCells
from .hdf5_tree import Hdf5Dataset, Hdf5Group
from .stored_layers import cells_of_arrays, described_layers, paths_without_groups

_MOST_NBYTES = 32 << 20  # a model.json of 10,000 weights has 2 MB
_TFJS = (2, 2)  # its hard sigmoid and its defaults are those of this Keras
_NUMBERED = re.compile(r"(^|/)vars/\d+$")
_QUANTIZED = ("uint8", "uint16", "float16")
_STEPS_OF_GROUP = 20  # 0.5 KB


def _read_tfjs(file: InputFile, reading: Reading) -> Found:
    if (size := file.path.stat().st_size) > _MOST_NBYTES:
        raise FileError(f"{file} has {size} bytes, and models of up to {_MOST_NBYTES} are read")
    text = bytes(file.data()).lstrip()
    if text.startswith(b"["):  # Magenta's list of weights
        text = b'{"weightsManifest": %b}' % text
    contents = parse_json_object(text, str(file))
    topology = contents.get("modelTopology")
    tensor_set = _read_manifest(file, contents.get("weightsManifest", contents))
    if topology is None:
        return find_rnns(with_new_names(tensor_set), reading, {})[1]
    if not isinstance(topology, dict):
        raise FileError(f"{file}: modelTopology is not an object: it is damaged")
    if reading.keras_config is not None:
        raise SpecError(f"{file} has a config of its own: omit ", Ask("keras_config", None))
    model = topology.get("model_config", topology)
    if not isinstance(model, dict):  # the text of the config
        model = parse_config(str(model), f"{file}: model_config")
    entries = KerasEntries(tensor_set.tensors, {}, reading, _version_of(topology), file.budget)
    entries.read_classes(model)
    mark_masks(model)
    arrays = {name: CellArray(name, tensor) for name, tensor in tensor_set.tensors.items()}
    if any(map(_NUMBERED.search, arrays)):  # of a .keras file, with the same paths
        root = _tree_of_arrays(arrays, file)
        entries.refuse_layers(paths_without_groups(root, model))
        layers = described_layers(root, model)
    else:
        layers = _layers_of_model(model, arrays)
    found = entries.read_layers(layers)
    found.notes[:0] = tensor_set.notes
    return found


FORMAT = ModelFormat(
    ".json", ("keras", "keras-cudnn"), _read_tfjs, None, options=("keras_config", "as_class")
)


def _version_of(topology: Mapping[str, Any]) -> Version:
    """Return the version of the Keras that wrote the config. TensorFlow.js itself writes
    "tfjs-layers 4.22.0"."""
    text = topology.get("keras_version")
    if not isinstance(text, str) or text.startswith("tfjs"):
        return _TFJS
    return parse_keras_version(text)


def _layers_of_model(model: Node, arrays: Mapping[str, CellArray]) -> Iterator[LayerCells]:
    """Yield the recurrent layers of a config. The path of a weight has the name of the layer; in
    models of TensorFlow.js itself it may have only the names of the directions."""
    cells = cells_of_arrays(arrays)
    for layer in recurrent_layers_in(model):
        named = {path: cell for path, cell in cells.items() if layer.path[-1] in path}
        layer_cells = [*named.values()]
        if layer.both:
            inner = layer_name(config_of(layer.node).get("layer", {}))
            sides = [{f"{side}_{name}" for name in (inner, layer.path[-1])}
                     for side in ("forward", "backward")]  # fmt: skip
            layer_cells = [
                cell
                for side in sides
                for path, cell in (named or cells).items()
                if not side.isdisjoint(path)
            ]
        path = layer.path[1:] if len(layer.path) > 1 else layer.path  # without the model's name
        yield LayerCells("/".join(path), layer_cells, layer.both, layer)


def _tree_of_arrays(arrays: Mapping[str, CellArray], file: InputFile) -> Hdf5Group:
    """Return the arrays as the groups of a file of variables."""
    root = Hdf5Group("", str(file), {}, file.budget)
    for path, array in arrays.items():
        file.budget.charge("steps", _STEPS_OF_GROUP * path.count("/"))
        *names, last = path.split("/")
        group = root
        for name in names:
            group = group.groups.setdefault(name, Hdf5Group("", name, {}, file.budget))
        group.datasets[last] = cast(Hdf5Dataset, array)  # has the path and the tensor of one
    return root


# ------------------------------------------------------------------------------------ the manifest


def _read_manifest(file: InputFile, groups: Any) -> TensorSet:
    """Return the tensors of all groups. Raises FileError if the manifest does not fit its files."""
    tensor_set = TensorSet({})
    quantized: dict[str, list[str]] = {}
    paths: list[str] = []
    for group in groups if isinstance(groups, list) else _groups_of_deeplearn_js(groups):
        names = group.get("paths") if isinstance(group, dict) else None
        weights = group.get("weights") if isinstance(group, dict) else None
        if not isinstance(names, list) or not isinstance(weights, list):
            raise FileError(f"{file}: need a weightsManifest, a list of objects with 'paths' and"
                            " 'weights'")  # fmt: skip
        paths += [str(name).removeprefix("./") for name in names]
        if len(paths) > MOST_PARTS or len({*paths}) < len(paths):
            raise FileError(
                f"{file} lists {len(paths)} files, some twice: up to {MOST_PARTS} are read, once"
            )
        stream = _Stream([file.companion(name) for name in paths[len(paths) - len(names) :]])
        for weight in weights:
            name, dtype, tensor = _next_tensor(file, weight, stream)
            tensor_set.add(name, tensor, file)
            if dtype in _QUANTIZED:
                quantized.setdefault(dtype, []).append(name)
        stream.check_end(file)
    tensor_set.notes += [
        f"{list_names(names, 3)}: quantized to {dtype} by the converter, and read as float32; they"
        " differ from the trained weights"
        for dtype, names in quantized.items()
    ]
    return tensor_set


def _groups_of_deeplearn_js(manifest: Any) -> list[Any]:
    """Return a group per tensor; something else as the only group, which is refused."""
    tensors = manifest if isinstance(manifest, dict) else {}
    if not tensors or not all(isinstance(t, dict) and "filename" in t for t in tensors.values()):
        return [manifest]
    return [
        {
            "paths": [tensor["filename"]],
            "weights": [{"name": name, "shape": tensor.get("shape"), "dtype": "float32"}],
        }
        for name, tensor in tensors.items()
    ]


class _Stream:
    """The bytes of the files of a group, one after another, read in order."""

    def __init__(self, files: list[InputFile]) -> None:
        self._parts = [memoryview(file.data()) for file in files]
        self._starts = [*accumulate(map(len, self._parts), initial=0)]
        self._at = 0

    def next(self, nbytes: int) -> memoryview | bytes | None:
        """Return the next bytes, None if fewer are left. Copies bytes of several files."""
        begin, end = self._at, self._at + nbytes
        if end > self._starts[-1]:
            return None
        self._at = end
        parts = slice(bisect_right(self._starts, begin) - 1, bisect_left(self._starts, end))
        pieces = [
            part[max(begin - start, 0) : end - start]
            for part, start in zip(self._parts[parts], self._starts[parts], strict=True)
        ]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def check_end(self, file: InputFile) -> None:
        if self._at != self._starts[-1]:
            rest = self._starts[-1] - self._at
            raise FileError(f"{file}: its files have {rest} bytes more than its weights: {_AGAIN}")


_AGAIN = "they are not of one model: download or convert all files again"


def _next_tensor(file: InputFile, weight: Any, stream: _Stream) -> tuple[str, str, FileTensor]:
    """Return the name, the stored dtype and the tensor of a weight of the manifest."""
    name = weight.get("name") if isinstance(weight, dict) else None
    if not isinstance(name, str):
        raise FileError(f"{file}: a weight of its weightsManifest has no name")
    check_texts([name], f"{file}: a name")
    label = f"{file}: {name[:200]}"
    shape, quantization = sizes_of(weight.get("shape"), label), weight.get("quantization") or {}
    is_object = isinstance(quantization, dict)
    dtype = (quantization.get("dtype") if is_object else None) or weight.get("dtype")
    if dtype not in ("float32", "int32", "bool", *_QUANTIZED) or not is_object:
        raise FileError(f"{label} has dtype {str(dtype)[:40]!r}, need float32, int32 or bool")
    data = stream.next(np.dtype(dtype).itemsize * prod(shape))
    if data is None:
        raise FileError(f"{label} is beyond the end of its files: {_AGAIN}")
    stored = stored_tensor(dtype, list(shape), data, label)
    if dtype not in _QUANTIZED:
        return name, dtype, stored
    factors = [quantization.get(key, 1 - k) for k, key in enumerate(("scale", "min"))]
    if not all(type(number) in (int, float) and abs(number) < 1e300 for number in factors):
        raise FileError(f"{label}: its quantization needs numbers as scale and min")
    return name, dtype, FileTensor("float32", shape, partial(_read_quantized, stored, *factors))


def _read_quantized(stored: FileTensor, scale: float, minimum: float) -> np.ndarray:
    """Return scale * bits + min, which TensorFlow.js computes in double and rounds once. A float16
    has neither."""
    with np.errstate(over="ignore"):
        return (stored.bits().astype(np.float64) * scale + minimum).astype(np.float32)
