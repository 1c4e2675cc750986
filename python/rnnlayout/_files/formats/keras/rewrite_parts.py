"""The parts of a Keras 2 model in the form of Keras 3: weights of cells, and the config.

CuDNNLSTM and CuDNNGRU become LSTM and GRU in all places of the config. Options that Keras 3 reads
differently, in models with recurrent layers, are rewritten with the old meaning. Further layers are
unchanged; Keras 3 reports the layers that Keras 3 lacks. Names in a config are not imported or
called.

A gate's hard_sigmoid was clip(0.2 x + 0.5) in Keras 2 and is clip(x / 6 + 0.5) in Keras 3, which
is the same for 1.2 times x. As x is a sum of the gate's biases and of products of the gate's
weights, the weights and biases are multiplied by 1.2.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from rnnlayout import _native
from rnnlayout._convert.engine import rounding_reason
from rnnlayout._files.tensor_sets.tensor_set import Converted
from rnnlayout._model.errors import Ask, FileError
from rnnlayout._model.layout import Layout
from rnnlayout._model.report import EXACT, Report
from rnnlayout._model.spec import CELLS, HARD_SIGMOIDS, HARD_TIMES as _TIMES, Cell, Spec
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._sources.keras_tree import (
    Node,
    RecurrentLayer,
    Version,
    config_of,
    kind_of,
    nodes_inside,
    read_config,
    recurrent_activation,
)
from rnnlayout._sources.read_source import read_source
from rnnlayout._sources.read_tensors import read_described
from rnnlayout._sources.reading import Reading

from .config import CUDNN, unknown_classes_in
from .entries import LEAVES, CellArrays, LayerCells, cell_bits, count_gates

_KERAS = Layout("keras")
_GATED: dict[int, Cell] = {4: "lstm", 3: "gru"}  # the number of gates -> the cell


@dataclass
class _CellChange:
    """The changes of an RNN's weights. src, dst: the old and the new dtype. sums: the number of
    sums of two biases that were rounded. scaled: the number of weights that were multiplied.
    rounds: whether any weight was rounded."""

    src: str
    dst: str
    sums: int = 0
    scaled: int = 0
    rounds: bool = False


@dataclass
class ChangedCells:
    """The cells of a file that change.

    label: the file's name in messages. dtype, exact: the arguments of convert(). arrays: the new
    arrays by path. cudnn: (node of the config, None without a config; cell) of the changed cells of
    cuDNN's layers. scaled: the ids of the nodes with weights that compensate for Keras 3's
    hard_sigmoid. notes: messages about the file."""

    label: str
    dtype: Any
    exact: bool
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    cudnn: list[tuple[Node | None, CellArrays]] = field(default_factory=list)
    scaled: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    _changes: dict[str, _CellChange] = field(default_factory=dict)

    def check_dtype_used(self) -> None:
        """Raise LayoutError if the caller passes a dtype and no cell changes."""
        if self.dtype is not None and not self.arrays:
            text = f"{self.label}: no layer changes, and a dtype is for those that do: omit "
            raise LayoutError(text, Ask("dtype", None))

    def result(self) -> Converted:
        """Return the report of each RNN, and the notes."""
        reports = dict.fromkeys(self._changes, EXACT)
        for entry, change in self._changes.items():
            if change.rounds:
                reasons = [rounding_reason(change.sums, "weights", False, change.src, change.dst)]
                if change.scaled:
                    scaled = f"{change.scaled} weights times {_TIMES}, for Keras 3's hard_sigmoid"
                    reasons.insert(0, scaled)
                text = " and ".join(filter(None, reasons))
                reports[entry] = Report("rounds", change.sums, text)
        return Converted(reports, notes=tuple(self.notes))

    def add(self, file_layer: LayerCells, version: Version, reading: Reading) -> None:
        """Add the cells of a layer that Keras 3 needs in a different form. version: of the Keras
        that wrote the layer. reading: of the caller, for a layer without a config. Raises
        LossyError if a weight becomes infinite, or is rounded and exact is set."""
        nodes: Sequence[Node | None] = [None] * len(file_layer.cells)
        if file_layer.layer:
            nodes, hard = file_layer.layer.cells, _hard_by_config(file_layer.layer, version)
            if any(hard) or any(kind_of(node) in CUDNN for node in file_layer.layer.cells):
                file_layer.check_count()
        else:
            fields = reading.fields
            is_hard = fields.get("recurrent_activation") == HARD_SIGMOIDS[1]
            hard = [{}] * len(file_layer.cells)
            for k, cell in enumerate(file_layer.cells if is_hard else ()):
                if is_gated(cell):  # tensors without biases do not show the reset
                    keys = ("recurrent_activation", *(() if "bias" in cell else ("reset",)))
                    hard[k] = {key: fields[key] for key in keys if key in fields}
        for node, cell, hard_fields in zip(nodes, file_layer.cells, hard, strict=False):
            arrays = {leaf: cell[leaf] for leaf in LEAVES if leaf in cell}
            if spec := _cudnn_spec(arrays):
                bits = cell_bits(file_layer.name, arrays)
                spec = spec.replace(dtype=bits["kernel"].dtype)
                self._put(file_layer.name, cell, read_described(bits, spec, "keras-cudnn"))
                self.cudnn.append((node, cell))
            elif hard_fields:
                rnn = read_source(
                    cell_bits(file_layer.name, arrays), Reading(None, _KERAS, hard_fields)
                )
                self._put(file_layer.name, cell, rnn, scales=True)
                self.scaled.add(id(node))

    def _put(self, entry: str, cell: CellArrays, rnn: Weights, scales: bool = False) -> None:
        """Add the new arrays of a cell. scales: whether to scale the gates for hard_sigmoid."""
        new = rnn.to(_KERAS, dtype=self.dtype, exact=self.exact)
        report = new.report or EXACT
        scaled = 0
        if scales:
            wide_rnn = rnn.to(_KERAS, dtype="float64")
            try:
                scaled = _scale_gates(wide_rnn)
                new = wide_rnn.to(_KERAS, dtype=new.spec.dtype)
            except (FloatingPointError, LossyError):
                raise LossyError(
                    f"{self.label}: a weight of {entry!r} is infinite, times {_TIMES} for"
                    " hard_sigmoid"
                ) from None
        if scaled and self.exact:
            raise LossyError(
                f"exact conversion refused: {entry!r} has the hard_sigmoid of Keras 2, and for that"
                f" of Keras 3 {scaled} weights would be multiplied by {_TIMES}, which rounds them"
            )
        if new.spec.dtype == "bfloat16":
            why = f"{self.label}: a model of Keras 2 cannot store bfloat16: omit "
            raise LayoutError(why, Ask("dtype", None))
        change = self._changes.setdefault(entry, _CellChange(rnn.spec.dtype, new.spec.dtype))
        change.sums += report.rounded_sums
        change.scaled += scaled
        change.rounds |= bool(scaled) or report.grade != "exact"
        for leaf, array in new.bits.items():
            self.arrays[cell[leaf].path] = array


def _hard_by_config(layer: RecurrentLayer, version: Version) -> list[dict[str, Any]]:
    """Return for each cell the fields of a reading if the cell's gates have Keras 2's hard_sigmoid,
    else {}."""
    hard: list[dict[str, Any]] = []
    for node in layer.cells:
        config, kind = config_of(node), kind_of(node)
        is_hard = recurrent_activation(config, version) == "hard_sigmoid" and version < (3, 0)
        hard.append({})
        if is_hard and kind.lower() in _GATED.values() and not unknown_classes_in(layer):
            config["recurrent_activation"] = "hard_sigmoid"  # in case it was the default
            # `activation` is unchanged in the file, so rnnlayout need not know the function
            hard[-1] = read_config(kind, {**config, "activation": "tanh"}, version).fields
    return hard


def is_gated(cell: CellArrays) -> bool:
    """Return whether a cell has the shape of an LSTM or a GRU."""
    return count_gates(cell["recurrent_kernel"].tensor.shape) in _GATED


def _cudnn_spec(cell: CellArrays) -> Spec | None:
    """Return the spec, with any dtype, of a cell of cuDNN's layers; None for all other cells. Only
    cells of cuDNN's layers have a flat bias with two elements per gate and unit."""
    shapes = [cell[leaf].tensor.shape for leaf in LEAVES if leaf in cell]
    if [len(shape) for shape in shapes] != [2, 2, 1] or 0 in shapes[0] + shapes[1]:
        return None
    (width, _), (hidden, wide), (biases,) = shapes
    kind = _GATED.get(biases // (2 * hidden))
    same = biases == 2 * wide and wide == shapes[0][1] and wide % hidden == 0
    return Spec(kind, width, hidden) if kind and same else None


def _scale_gates(rnn: Weights) -> int:
    """Multiply, in place, the weights and biases of all gates with hard_sigmoid; return the number
    of changed weights. Raises FloatingPointError if a product is too large."""
    count = 0
    for block, (tensor, at, rows, cols, row, col, _) in _native.blocks(
        rnn.layout, rnn.spec, rnn.optional_tensors
    ):
        if block[-1] != CELLS[rnn.spec.cell].candidate:
            array = rnn.arrays[tensor].reshape(-1)[at:]
            view = as_strided(array, (rows, cols), (row * array.itemsize, col * array.itemsize))
            with np.errstate(over="raise"):
                view *= _TIMES
            count += int(np.count_nonzero(view))
    return count


# ---------------------------------------------------------------------------- the config of a model

COMPILE = "compile_config"
ASIDE = "_of_keras_2"  # at the end of a name that Keras 3 does not read
_MODELS = ("Model", "Functional", "Sequential")
_RECURRENT = ("LSTM", "GRU", "SimpleRNN", "RNN", *CUDNN)
_BATCH_NORMS = {f"BatchNormalizationV{k}": "BatchNormalization" for k in (1, 2)}  # TensorFlow 1
_NEW_CLASSES = CUDNN | _BATCH_NORMS
# The settings of cuDNN's layers, which Keras 2's config did not record.
_CUDNN_SETTINGS = {
    "activation": "tanh",
    "recurrent_activation": "sigmoid",
    "use_bias": True,
    "dropout": 0.0,
    "recurrent_dropout": 0.0,
    "unroll": False,
}


@contextmanager
def config_errors(label: str) -> Iterator[None]:
    """Turn the errors that Python raises for a malformed config into a FileError."""
    try:
        yield
    except LayoutError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise FileError(f"{label} is not a config written by Keras: {error!r}") from None


def count_cudnn_layers(node: Any) -> int:
    """Return the number of cuDNN layers in a part of a config, including places that the walk over
    layers skips, such as a user's wrapper. A Bidirectional counts as a single cuDNN layer."""
    if isinstance(node, dict):
        is_cudnn = node.get("class_name") in CUDNN
        return is_cudnn + sum(map(count_cudnn_layers, node.values()))
    return sum(map(count_cudnn_layers, node)) if isinstance(node, list) else 0


def modernize_model(model: Node, scaled: Collection[int]) -> list[str]:
    """Rewrite the config of a model, in place, for Keras 3. Return the paths of the models inside
    that were compiled, whose compile_config gets another name. scaled: ids of the nodes with
    weights that compensate for Keras 3's hard_sigmoid. Raises LossyError if no layer of Keras 3
    computes the same, and any error of Python if the config is malformed."""
    compiled = []
    waiting, ids = [("", "", 0, False, model)], itertools.count(-1, -1)  # ids of Keras are positive
    while waiting:
        above, key, at, is_frozen, node = waiting.pop()
        kind, config = node.get("class_name"), node.get("config")
        if kind == "Sequential" and isinstance(config, list):  # before Keras 2.2.3
            config = {"name": node.get("name", f"sequential_{at}"), "layers": config}
            node["config"] = config
        if kind in (None, "Lambda") or not isinstance(config, dict):  # a Lambda has code
            continue
        path = f"{above}/{config.get('name', _NEW_CLASSES.get(kind, kind))}".lstrip("/")
        if kind == "Sequential":
            _add_input(config)
        if kind in ("Model", "Functional"):
            _change_graph(config)
        if node is not model and node.get(COMPILE) is not None:
            node[f"{COMPILE}{ASIDE}"] = node.pop(COMPILE)
            compiled.append(path)
        if is_frozen and "trainable" in config:
            config["trainable"] = False
        # Keras 3 trains the cells of a frozen RNN, and the layer in a frozen wrapper
        is_frozen = is_frozen or (kind not in _MODELS and config.get("trainable") is False)
        _change_config(config, kind, path, id(node) in scaled)
        if kind in (*_RECURRENT, "Bidirectional"):
            node.pop("build_config", None)  # its shapes count the states as inputs
            if "inbound_nodes" in node:
                node["inbound_nodes"] = [*map(_name_call_states, node["inbound_nodes"])]
        if kind == "Bidirectional":
            set_layer_id(config, next(ids))
        # Keras 3 looks for a registered class of the user first, then in the module that the node
        # names. A layer or cell that is an argument of a layer needs a module; a layer of a model
        # does not.
        new = node["class_name"] = _NEW_CLASSES.get(kind, kind)
        if "module" in node or key not in ("", "layers"):
            if new in _MODELS:
                node["class_name"] = "Model" if new == "Functional" else new
                node["module"], node["registered_name"] = "keras", None
            elif new in _RECURRENT:
                node["module"], node["registered_name"] = "keras.layers", None
            else:
                node.setdefault("module", "keras.layers")
        children = enumerate(nodes_inside(node))  # of the rewritten config
        waiting += [(path, key, k, is_frozen, child) for k, (key, child) in reversed([*children])]
    return compiled


def set_layer_id(config: dict[str, Any], number: int) -> None:
    """Give the layer of a Bidirectional a unique id. Keras makes both directions from this layer,
    and confuses the layer with a freed layer whose memory address is reused. A layer with an id
    lives until the model is loaded."""
    config["layer"].setdefault("shared_object_id", number)


def _add_input(config: dict[str, Any]) -> None:
    """Add an InputLayer if the first layer of a Sequential records its input's shape. Keras 3 would
    read the batch size in that shape as the number of steps."""
    layers = config["layers"]
    first = layers[0].get("config") if layers and isinstance(layers[0], dict) else None
    if not isinstance(first, dict) or "batch_input_shape" not in first:
        return
    if layers[0].get("class_name") in (None, "InputLayer", "Lambda"):
        return
    input_config = {"batch_shape": first["batch_input_shape"], "name": f"{first.get('name')}_input"}
    if isinstance(first.get("dtype"), str):
        input_config["dtype"] = first["dtype"]
    layers.insert(0, {"class_name": "InputLayer", "config": input_config})


def _change_graph(config: dict[str, Any]) -> None:
    """Number the calls of inner models as Keras 3 does: from 0, but from 1 in the list of outputs
    for a functional model. Keras 2 began with 1 if a model had called itself during its creation.
    Each call is the input of a layer, or an output."""
    inner = {layer.get("name"): layer for layer in config["layers"] if isinstance(layer, dict)}
    inputs = [
        ref for layer in inner.values() for ref in _walk_references(layer.get("inbound_nodes"))
    ]
    outputs = list(_walk_references(config.get("output_layers")))
    for name, layer in inner.items():
        if layer.get("class_name") in _MODELS:
            calls = [ref for ref in inputs if ref[0] == name]
            results = [ref for ref in outputs if ref[0] == name]
            first = min((ref[1] for ref in calls + results), default=0)
            for ref in calls:
                ref[1] -= first
            for ref in results:
                ref[1] -= first - (layer["class_name"] != "Sequential")
    for key in ("input_layers", "output_layers"):
        # Keras 2 read a list of a single input or output as no list, Keras 3 reads a list
        if isinstance(config[key], list) and len(config[key]) == 1:
            (config[key],) = config[key]


def _walk_references(value: Any) -> Iterator[list[Any]]:
    """Yield the tensors that a part of a config names: lists [layer, call, output, ...]."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return
    if len(value) in (3, 4) and [type(part) for part in value[:3]] == [str, int, int]:
        yield value
    for part in value:
        yield from _walk_references(part)


def _change_config(config: dict[str, Any], kind: str, path: str, is_scaled: bool) -> None:
    """Change the settings of a layer or cell. Raises LossyError if Keras 3 lacks a setting."""
    for key, value in config.items():
        is_changed = is_scaled and key == "recurrent_activation"
        if key.endswith("activation") and "hard_sigmoid" in str(value) and not is_changed:
            raise LossyError(
                f"{path} has {key}='hard_sigmoid', clip(0.2 x + 0.5) in Keras 2; in Keras 3"
                " that is clip(x / 6 + 0.5), which would produce different outputs"
            )
    shape = config.pop("batch_input_shape", None)
    if kind == "InputLayer" and shape is not None:
        config["batch_shape"] = shape
    if kind.startswith("SpatialDropout"):
        config.pop("trainable", None)
        config.pop("noise_shape", None)
    is_recurrent = kind in _RECURRENT or kind.startswith("ConvLSTM")
    if is_recurrent and config.pop("time_major", False):
        raise LossyError(f"{path} has time_major=True, which Keras 3 does not have")
    if kind == "GRU":  # the default of Keras 2 was False, the default of Keras 3 is True
        config.setdefault("reset_after", False)
    if kind in CUDNN:
        config.update(_CUDNN_SETTINGS)
    if kind == "CuDNNGRU":
        config["reset_after"] = True
    if kind in ("BatchNormalization", *_BATCH_NORMS) and isinstance(config.get("axis"), list):
        config["axis"] = config["axis"][0]  # TensorFlow 1 wrote a list
    for key, value in config.items():
        inner = value.get("config") if isinstance(value, dict) else None
        if key.endswith("_initializer") and isinstance(inner, dict):
            inner.pop("dtype", None)  # from TensorFlow 1; Keras 3 takes the layer's dtype
        elif key == "dtype" and isinstance(inner, dict):
            config[key] = inner.get("name")  # of a policy


def _name_call_states(call: Any) -> Any:
    """Return a call of a recurrent layer with named states; Keras 2 lists states as inputs."""
    if not isinstance(call, list) or len(call) < 2:
        return call
    inputs, *states = [
        # [layer, call, output]: Keras 3 takes the tensor's shape from that layer
        {
            "class_name": "__keras_tensor__",
            "config": {"shape": [None], "dtype": "float32", "keras_history": ref[:3]},
        }
        for ref in call
    ]
    arguments = {key: value for ref in call for key, value in (ref[3:] or [{}])[0].items()}
    kwargs = {key: value for key, value in arguments.items() if value is not None}
    return {"args": [inputs], "kwargs": {**kwargs, "initial_state": states}}
