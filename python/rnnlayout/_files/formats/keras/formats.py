"""The formats of Keras: .h5, .weights.h5, .weights.json and .keras.

.h5 is the legacy file of Keras 1, 2 and 3: a whole model, or the weights of a model. .weights.h5
has the variables of a model of Keras 3 or late Keras 2, with few names and no config. .weights.json
is the index of such variables in parts. .keras is an archive of a config and the variables.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnlayout._files.formats.registry import (
    ModelFormat,
    NewWeights,
    check_layout,
    compare_settings,
)
from rnnlayout._files.tensor_sets.file_limits import InputFile, open_zip
from rnnlayout._files.tensor_sets.file_rnns import Found, entry_name, layer_names
from rnnlayout._files.tensor_sets.find_rnns import find_rnns
from rnnlayout._files.tensor_sets.output_file import Output
from rnnlayout._files.tensor_sets.record import Record
from rnnlayout._files.tensor_sets.tensor_set import FileTensor, TensorSet
from rnnlayout._model.errors import Ask
from rnnlayout._model.reading_options import OF_FORMATS
from rnnlayout._model.spec import Spec
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError
from rnnlayout._sources.keras_masks import mark_masks
from rnnlayout._sources.keras_tree import Node, class_name_of, layer_node
from rnnlayout._sources.reading import Reading

from .config import KERAS_2, KERAS_3, note_lambda_layers, parse_config, unread_layers_in
from .entries import LEAVES, KerasEntries
from .hdf5_tree import (
    Hdf5Group,
    copy_tree,
    new_hdf5,
    open_hdf5,
    write_record_attribute,
    write_texts,
)
from .optimizers import add_optimizer_states
from .parts import open_parts, refuse_split_rnns
from .rewrite import copy_members, new_variables, rewrite_archive, rewrite_h5
from .rewrite_parts import set_layer_id
from .stored_layers import (
    CONFIG,
    METADATA,
    VARIABLES,
    described_layers,
    find_legacy_layers,
    layers_without_config,
    paths_without_groups,
    read_archive,
    read_legacy_weights,
    read_with_architecture,
    snake_case,
)

_MASKING = re.compile(r"Masking\(mask_value=([-+.\w]+)\)")  # see mask_made_by()


@dataclass(frozen=True)
class KerasLayer:
    """A layer of an RNN that is written. below: the name of the layer below; None for the bottom
    layer, which reads the input. above: the number of layers above."""

    name: str
    below: str | None
    above: int
    weights: Weights

    @property
    def spec(self) -> Spec:
        return self.weights.spec

    @property
    def class_name(self) -> str:
        return class_name_of(self.spec, self.weights.layout.name)

    @property
    def cells(self) -> dict[str, dict[str, np.ndarray]]:
        """The arrays of each direction ("" for a single direction), by the names in LEAVES."""
        arrays = self.weights.bits
        sides = {"": ""}
        if self.spec.bidirectional:
            sides = {"forward": "0/forward/", "backward": "0/backward/"}
        return {
            side: {leaf: arrays[path + leaf] for leaf in LEAVES if path + leaf in arrays}
            for side, path in sides.items()
        }


def make_keras_layers(entries: Mapping[str, Weights], layout: str = "keras") -> list[KerasLayer]:
    """Return the layers of all RNNs. Raises LayoutError for a different layout or equal names."""
    layers: list[KerasLayer] = []
    for entry, weights in entries.items():
        check_layout(weights, layout, f"{entry or 'the RNN'}: a Keras file")
        parts, below = weights.split(), None
        part_names = layer_names(entry or entry_name("", weights.spec), len(parts))
        for k, (name, part) in enumerate(zip(part_names, parts, strict=True)):
            layers.append(KerasLayer(name, below, len(parts) - 1 - k, part))
            below = name
    names = Counter([*(layer.name for layer in layers), *_input_names(layers)])
    name, count = max(names.items(), key=lambda item: item[1])
    if count > 1:
        raise LayoutError(
            f"two layers would both be named {name!r}: write their RNNs into two files, or save"
            " them under other names: rl.save(path, {'a': w, 'b': v})"
        )
    return layers


def _input_names(layers: Sequence[KerasLayer]) -> list[str]:
    return [f"{layer.name}_input" for layer in layers if layer.below is None]


def _in_order_of_keras(layers: list[KerasLayer]) -> list[KerasLayer]:
    """Return the layers in a model's order, bottom layers first. Keras assigns weights to layers by
    this order."""
    return sorted(layers, key=lambda layer: -layer.above)


def model_config(layers: list[KerasLayer], modules: bool) -> dict[str, Any]:
    """Return a Functional model of the layers. modules: whether to name the module of each class,
    as a .keras file does and an .h5 file does not. Raises LossyError for a layer that Keras 3
    lacks."""
    nodes: list[Any] = []
    for layer in _in_order_of_keras(layers):  # as in variables_file(): Keras pairs them by order
        reads, width, dtype = layer.below, layer.spec.input_size, layer.spec.dtype
        if reads is None:
            reads = f"{layer.name}_input"
            batch = {"batch_shape": [None, None, width], "dtype": dtype, "name": reads}
            nodes.append(_graph_node("InputLayer", batch, [], modules))
            if mask := _MASKING.fullmatch(str(layer.weights.config.get("mask"))):
                masking = {"name": f"{layer.name}_mask", "mask_value": float(mask[1])}
                call = _graph_call(reads, width, dtype)
                nodes.append(_graph_node("Masking", masking, [call], modules))
                reads = f"{layer.name}_mask"
        call = _graph_call(reads, width, dtype)
        has_bias = any(name.endswith("bias") for name in layer.weights)
        node = layer_node(layer.name, layer.spec, has_bias, layer.weights.config)
        if modules and layer.spec.bidirectional:
            set_layer_id(node["config"], len(nodes))
        nodes.append(_graph_node(node["class_name"], node["config"], [call], modules))
    inputs = [[name, 0, 0] for name in _input_names(layers)]
    outputs = [[layer.name, 0, 0] for layer in layers if not layer.above]
    config = {
        "name": "rnnlayout",
        "trainable": True,
        "layers": nodes,
        "input_layers": inputs,
        "output_layers": outputs,
    }
    model: dict[str, Any] = {"class_name": "Functional", "config": config}
    if modules:  # Keras has no public name for this class
        return {"module": "keras.src.models.functional", "registered_name": "Functional", **model}
    return model


def _graph_call(reads: str, width: int, dtype: str) -> dict[str, Any]:
    """Return the call of a layer that reads the output of the layer `reads`."""
    tensor = {"shape": [None, None, width], "dtype": dtype, "keras_history": [reads, 0, 0]}
    return {"args": [{"class_name": "__keras_tensor__", "config": tensor}], "kwargs": {}}


def _graph_node(
    kind: str, config: dict[str, Any], calls: list[Any], modules: bool
) -> dict[str, Any]:
    node = {"class_name": kind, "config": config, "name": config["name"], "inbound_nodes": calls}
    return {"module": "keras.layers", "registered_name": None, **node} if modules else node


def _write_h5(out: Output, entries: Mapping[str, Weights]) -> None:
    """Write a legacy file: a whole model for Keras 3, or in layout keras-cudnn the weights alone,
    for Keras 2's load_weights()."""
    is_cudnn = any(weights.layout.name == "keras-cudnn" for weights in entries.values())
    layers = make_keras_layers(entries, "keras-cudnn" if is_cudnn else "keras")
    for layer in layers:
        if layer.spec.dtype == "bfloat16":
            format_names = "" if is_cudnn else ".keras or "
            raise LayoutError(
                f"{layer.name!r} is bfloat16, which a legacy .h5 cannot store: use {format_names}",
                Ask("dtype"),
            )
    config = "" if is_cudnn else json.dumps(model_config(layers, modules=False))
    with new_hdf5(out) as h5:
        if config:
            h5.attrs["keras_version"] = KERAS_3
            h5.attrs["model_config"] = config
        write_record_attribute(h5, {layer.name: Record.of(layer.weights) for layer in layers})
        group = h5.create_group("model_weights") if config else h5
        group.attrs["keras_version"] = KERAS_3 if config else KERAS_2
        inputs = _input_names(layers)
        layers = _in_order_of_keras(layers)
        write_texts(group, "layer_names", [*inputs, *(layer.name for layer in layers)])
        for name in inputs:
            write_texts(group.create_group(name), "weight_names", [])
        for layer in layers:
            layer_group, names = group.create_group(layer.name), []
            cell_name = f"{snake_case(layer.class_name)}_cell"
            for side, cell in layer.cells.items():
                inner = f"{side}_{layer.name}/" if side else ""
                for leaf, array in cell.items():
                    path = f"{leaf}:0" if is_cudnn else f"{cell_name}/{leaf}"
                    names.append(f"{layer.name}/{inner}{path}")
                    layer_group.create_dataset(names[-1], data=array)
            write_texts(layer_group, "weight_names", names)


def variables_file(layers: list[KerasLayer]) -> bytes:
    numbers: dict[str, int] = {}
    with io.BytesIO() as file:
        with new_hdf5(file) as h5:
            write_record_attribute(h5, {layer.name: Record.of(layer.weights) for layer in layers})
            for layer in _in_order_of_keras(layers):
                kind = "Bidirectional" if layer.spec.bidirectional else layer.class_name
                k = numbers[kind] = numbers.get(kind, -1) + 1
                group = h5.create_group(f"layers/{snake_case(kind)}" + (f"_{k}" if k else ""))
                group.create_group("vars").attrs["name"] = layer.name
                for side, cell in layer.cells.items():
                    place = f"{side}_layer/cell/vars" if side else "cell/vars"
                    cell_group = group.create_group(place)
                    cell_group.attrs["name"] = f"{snake_case(layer.class_name)}_cell"
                    for number, array in enumerate(cell.values()):
                        if layer.spec.dtype != "bfloat16":
                            cell_group.create_dataset(str(number), data=array)
                        else:  # HDF5 has opaque bytes, Keras reads the attribute
                            opaque = cell_group.create_dataset(str(number), data=array.view("V2"))
                            opaque.attrs["dtype"] = "bfloat16"
        return file.getvalue()


# -------------------------------------------------------------------------------------- the formats

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same weights give the same bytes


def _read_hdf5(file: InputFile, reading: Reading) -> Found:
    """Read a legacy file or a file of variables, whatever the suffix."""
    with open_hdf5(file, file.budget) as root:
        entries = KerasEntries.of_hdf5(root, reading)
        rnns = refuse_split_rnns(file, root, _read_root(root, entries), entries)
        if not rnns.names:
            return _add_plain_tensors(rnns, file, root, reading)
        return add_optimizer_states(rnns, root, entries)


def _add_plain_tensors(rnns: Found, file: InputFile, root: Hdf5Group, reading: Reading) -> Found:
    """Return the RNNs among arrays with the names of any layout, as h5py writes a state_dict; the
    result without an RNN of Keras as is if Keras wrote the file."""
    datasets = [*root.all_datasets()]
    if find_legacy_layers(root) or any("/vars/" in dataset.path for dataset in datasets):
        return rnns
    tensor_set = TensorSet({})
    for dataset in datasets:
        tensor_set.add(dataset.path.lstrip("/"), dataset.tensor, file)
    _, plain = find_rnns(tensor_set, reading, {})
    return plain


def _read_parts(index: InputFile, reading: Reading) -> Found:
    with open_parts(index) as root:
        entries = KerasEntries.of_hdf5(root, reading)
        return add_optimizer_states(_read_root(root, entries), root, entries)


def _read_root(root: Hdf5Group, entries: KerasEntries) -> Found:
    if layers := find_legacy_layers(root):
        return read_legacy_weights(root, layers, entries)
    if entries.architecture is not None:
        return read_with_architecture(root, entries.architecture, entries)
    entries.read_classes({})
    return entries.read_layers(layers_without_config(root))


def _replace_hdf5(file: InputFile, out: Output, new: NewWeights) -> list[str]:
    with open_hdf5(file, file.budget) as root:
        entries = KerasEntries.of_hdf5(root, new.reading)
        notes = _compare_all_settings(new.rnns, _read_root(root, entries), file)
        notes += _note_optimizer(root)
        config = root.text("model_config")
        notes += note_lambda_layers(parse_config(config, "model_config")) if config else []
        with new_hdf5(out, str(file)) as h5:
            copy_tree(root, h5, entries.new_arrays(new.rnns))
    return notes


def _note_optimizer(root: Hdf5Group) -> list[str]:
    has_arrays = any(
        any(group.all_datasets())
        for name, group in root.groups.items()
        if name.startswith("optimizer")
    )
    return ["the optimizer's state is unchanged: it belongs to the old tensors"] * has_arrays


def _compare_all_settings(new: Mapping[str, Weights], old: Found, file: InputFile) -> list[str]:
    notes = []
    for name, weights in new.items():
        notes += compare_settings(name, weights, old[name], file.path.name)
    return notes


def _read_others_of_hdf5(file: InputFile, names: Collection[str]) -> dict[str, FileTensor]:
    with open_hdf5(file, file.budget) as root:
        return _arrays_by_name(root, names)


def _arrays_by_name(root: Hdf5Group, names: Collection[str]) -> dict[str, FileTensor]:
    """Return arrays in memory. names: paths without the first slash."""
    datasets = {dataset.path.lstrip("/"): dataset for dataset in root.all_datasets()}
    return {name: FileTensor.of(datasets[name].bits(), datasets[name].dtype) for name in names}


@contextmanager
def _open_archive(
    file: InputFile, reading: Reading
) -> Iterator[tuple[zipfile.ZipFile, Node, Hdf5Group, KerasEntries, Found]]:
    with open_zip(file) as opened:
        archive = read_archive(file, opened, reading)
        with open_hdf5(archive.variables, file.budget, f"{file}: {VARIABLES}") as root:
            entries = KerasEntries.of_hdf5(root, reading, archive.version)
            entries.read_classes(archive.model)
            mark_masks(archive.model)
            described = [*described_layers(root, archive.model)]
            is_described = described or any(unread_layers_in(archive.model))
            entries.refuse_layers(paths_without_groups(root, archive.model))
            # the config of a subclass of Model has no layers
            rnns = entries.read_layers(described if is_described else layers_without_config(root))
            yield opened, archive.model, root, entries, rnns


def _read_archive(file: InputFile, reading: Reading) -> Found:
    with _open_archive(file, reading) as (_, model, root, entries, rnns):
        return add_optimizer_states(rnns, root, entries, model)


def _replace_archive(file: InputFile, out: Output, new: NewWeights) -> list[str]:
    with _open_archive(file, new.reading) as (opened, model, root, entries, old):
        notes = _compare_all_settings(new.rnns, old, file) + _note_optimizer(root)
        variables = new_variables(root, entries.new_arrays(new.rnns), f"{file}: {VARIABLES}")
        copy_members(opened, out, {VARIABLES: variables})
    return notes + note_lambda_layers(model)


def _read_others_of_archive(file: InputFile, names: Collection[str]) -> dict[str, FileTensor]:
    with _open_archive(file, Reading()) as (_, _, root, _, _):
        return _arrays_by_name(root, names)


def _write_variables(out: Output, entries: Mapping[str, Weights]) -> None:
    """Write the variables of the model that a .keras file of the same RNNs has, for
    load_weights()."""
    out.path.write_bytes(variables_file(make_keras_layers(entries)))


def _write_archive(out: Output, entries: Mapping[str, Weights]) -> None:
    """Write a model that Keras 3 loads, with an input and an output per RNN."""
    layers = make_keras_layers(entries)
    config = model_config(layers, modules=True)
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in (
            (METADATA, json.dumps({"keras_version": KERAS_3}).encode()),
            (CONFIG, json.dumps(config).encode()),
            (VARIABLES, variables_file(layers)),
        ):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)


H5 = ModelFormat(
    ".h5",
    ("keras", "keras-cudnn"),
    _read_hdf5,
    _write_h5,
    _replace_hdf5,
    rewrite_h5,
    options=OF_FORMATS,
    read_others=_read_others_of_hdf5,
)
WEIGHTS_H5 = ModelFormat(
    ".weights.h5",
    ("keras",),
    _read_hdf5,
    _write_variables,
    _replace_hdf5,
    options=OF_FORMATS,
    read_others=_read_others_of_hdf5,
)
WEIGHTS_JSON = ModelFormat(".weights.json", ("keras",), _read_parts, None, options=OF_FORMATS)
ARCHIVE = ModelFormat(
    ".keras",
    ("keras",),
    _read_archive,
    _write_archive,
    _replace_archive,
    rewrite_archive,
    options=OF_FORMATS,
    read_others=_read_others_of_archive,
)
