"""RNNs as Keras models: for each RNN one input, its layers one above the other, and one output.

Writing what Keras reads does not need Keras: it is a config in JSON, and arrays by name.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnlayout._files.formats.registry import check_layout
from rnnlayout._files.tensor_sets.output_file import Output
from rnnlayout._files.tensor_sets.record import Record
from rnnlayout._files.tensor_sets.rnn_names import entry_name, layer_names
from rnnlayout._model.asks import Ask
from rnnlayout._model.checked_rnn import checked_rnn_of
from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError
from rnnlayout._sources.keras_config import class_name_of, layer_node
from rnnlayout._weights.weights import Weights

from .entries import LEAVES
from .hdf5_write import new_hdf5, write_record_attribute, write_texts
from .variables import snake_case

KERAS_3 = "3.0.0"  # the first Keras with this form of file
KERAS_2 = "2.0.9"  # the first with CuDNNLSTM and CuDNNGRU


@dataclass(frozen=True)
class KerasLayer:
    """One layer of an RNN, to be written. below: the name of the layer that it reads; None if it
    reads the input. above: how many layers of the RNN are above it.
    """

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
        """The arrays of each direction ("" if it has only one), by the names in LEAVES."""
        arrays = checked_rnn_of(self.weights).tensors
        sides = {"": ""}
        if self.spec.bidirectional:
            sides = {"forward": "0/forward/", "backward": "0/backward/"}
        return {
            side: {leaf: arrays[path + leaf] for leaf in LEAVES if path + leaf in arrays}
            for side, path in sides.items()
        }


def make_keras_layers(entries: Mapping[str, Weights], layout: str = "keras") -> list[KerasLayer]:
    """Return the layers of all RNNs. Raises LayoutError for another layout or equal names."""
    layers: list[KerasLayer] = []
    for entry, weights in entries.items():
        check_layout(weights, layout, f"{entry or 'the RNN'}: a Keras file")
        layers += _layers_of_rnn(entry or entry_name("", weights.spec), weights)
    names = Counter([*(layer.name for layer in layers), *_input_names(layers)])
    name, count = max(names.items(), key=lambda item: item[1])
    if count > 1:
        raise LayoutError(
            f"two layers would both be named {name!r}: write their RNNs into two files, or save"
            " them under other names: rl.save(path, {'a': w, 'b': v})"
        )
    return layers


def layer_records(layers: Sequence[KerasLayer]) -> dict[str, Record]:
    """Return what is recorded of each layer, by name."""
    return {layer.name: Record.of(layer.weights) for layer in layers}


def _input_names(layers: Sequence[KerasLayer]) -> list[str]:
    """Return the names of the InputLayers, one per RNN."""
    return [f"{layer.name}_input" for layer in layers if layer.below is None]


def _in_order_of_keras(layers: list[KerasLayer]) -> list[KerasLayer]:
    """Return the layers in a model's order, by which weights are found: bottom layers first."""
    return sorted(layers, key=lambda layer: -layer.above)


def _layers_of_rnn(name: str, weights: Weights) -> Iterator[KerasLayer]:
    parts, below = weights.split(), None
    for k, (own, part) in enumerate(zip(layer_names(name, len(parts)), parts, strict=True)):
        yield KerasLayer(own, below, len(parts) - 1 - k, part)
        below = own


def model_config(layers: list[KerasLayer], modules: bool) -> dict[str, Any]:
    """Return a Functional model of the layers. modules: whether to write it in the form of a .keras
    file, which names the module of each class, instead of that of an .h5.

    Raises LossyError for a layer that Keras 3 does not have.
    """
    nodes: list[Any] = []
    for layer in _in_order_of_keras(layers):  # as in variables_file(): a reader pairs the two
        reads, width, dtype = layer.below, layer.spec.input_size, layer.spec.dtype
        if reads is None:
            reads = f"{layer.name}_input"
            batch = {"batch_shape": [None, None, width], "dtype": dtype, "name": reads}
            nodes.append(_graph_node("InputLayer", batch, [], modules))
        tensor = {"shape": [None, None, width], "dtype": dtype, "keras_history": [reads, 0, 0]}
        call = {"args": [{"class_name": "__keras_tensor__", "config": tensor}], "kwargs": {}}
        # ONNX's order of the axes is left out: Keras has its own
        changes = {key: value for key, value in layer.weights.config.items() if key != "layout"}
        has_bias = any(name.endswith("bias") for name in layer.weights)
        node = layer_node(layer.name, layer.spec, has_bias, changes)
        if modules and layer.spec.bidirectional:
            # Keras makes both directions from this layer and takes it for another one if it gets
            # the memory of that one. A layer with an id lives until the model is loaded.
            node["config"]["layer"]["shared_object_id"] = len(nodes)
        nodes.append(_graph_node(node["class_name"], node["config"], [call], modules))
    inputs = [[name, 0, 0] for name in _input_names(layers)]
    outputs = [[layer.name, 0, 0] for layer in layers if not layer.above]
    config = {"name": "rnnlayout", "trainable": True, "layers": nodes, "input_layers": inputs,
              "output_layers": outputs}  # fmt: skip
    model: dict[str, Any] = {"class_name": "Functional", "config": config}
    if modules:  # Keras has no public name for this class
        return {"module": "keras.src.models.functional", "registered_name": "Functional", **model}
    return model


def _graph_node(
    kind: str, config: dict[str, Any], calls: list[Any], modules: bool
) -> dict[str, Any]:
    """Return the node of a layer in a model's graph."""
    node = {"class_name": kind, "config": config, "name": config["name"], "inbound_nodes": calls}
    return {"module": "keras.layers", "registered_name": None, **node} if modules else node


def _check_dtypes(layers: Sequence[KerasLayer]) -> None:
    for layer in layers:
        if layer.spec.dtype == "bfloat16":
            other = "" if layer.weights.layout.name == "keras-cudnn" else ".keras or "
            raise LayoutError(
                f"{layer.name!r} is bfloat16, which a legacy .h5 cannot store: use {other}"
                + Ask("dtype")
            )


def write_h5(out: Output, entries: Mapping[str, Weights]) -> None:
    """Write a whole model in the legacy form."""
    layers = make_keras_layers(entries)
    _check_dtypes(layers)
    config = json.dumps(model_config(layers, modules=False))
    with new_hdf5(out) as h5:
        h5.attrs["keras_version"] = KERAS_3
        h5.attrs["model_config"] = config
        write_record_attribute(h5, layer_records(layers))
        _write_layer_lists(h5.create_group("model_weights"), layers, KERAS_3)


def write_cudnn_weights(out: Output, entries: Mapping[str, Weights]) -> None:
    """Write weights of CuDNNLSTM and CuDNNGRU layers for Keras 2's load_weights()."""
    layers = make_keras_layers(entries, "keras-cudnn")
    _check_dtypes(layers)
    with new_hdf5(out) as h5:
        write_record_attribute(h5, layer_records(layers))
        _write_layer_lists(h5, layers, KERAS_2)


def _write_layer_lists(h5: Any, layers: list[KerasLayer], version: str) -> None:
    h5.attrs["keras_version"] = version
    inputs = _input_names(layers)
    layers = _in_order_of_keras(layers)
    write_texts(h5, "layer_names", [*inputs, *(layer.name for layer in layers)])
    for name in inputs:
        write_texts(h5.create_group(name), "weight_names", [])
    for layer in layers:
        group = h5.create_group(layer.name)
        names = []
        for side, cell in layer.cells.items():
            inner = f"{side}_{layer.name}/" if side else ""
            for leaf, array in cell.items():
                if version == KERAS_3:
                    leaf = f"{snake_case(layer.class_name)}_cell/{leaf}"
                else:
                    leaf += ":0"
                names.append(f"{layer.name}/{inner}{leaf}")
                group.create_dataset(names[-1], data=array)
        write_texts(group, "weight_names", names)


def variables_file(layers: list[KerasLayer]) -> bytes:
    """Return the HDF5 file of a model's variables."""
    numbers: dict[str, int] = {}
    with io.BytesIO() as file:
        with new_hdf5(file) as h5:
            write_record_attribute(h5, layer_records(layers))
            for layer in _in_order_of_keras(layers):
                kind = "Bidirectional" if layer.spec.bidirectional else layer.class_name
                k = numbers[kind] = numbers.get(kind, -1) + 1
                group = h5.create_group(f"layers/{snake_case(kind)}" + (f"_{k}" if k else ""))
                group.create_group("vars").attrs["name"] = layer.name
                for side, cell in layer.cells.items():
                    place = f"{side}_layer/cell/vars" if side else "cell/vars"
                    _write_cell(group.create_group(place), layer, cell)
        return file.getvalue()


def _write_cell(group: Any, layer: KerasLayer, cell: dict[str, np.ndarray]) -> None:
    group.attrs["name"] = f"{snake_case(layer.class_name)}_cell"
    for k, array in enumerate(cell.values()):
        if layer.spec.dtype == "bfloat16":  # HDF5 has opaque bytes, Keras reads the attribute
            group.create_dataset(str(k), data=array.view("V2")).attrs["dtype"] = "bfloat16"
        else:
            group.create_dataset(str(k), data=array)
