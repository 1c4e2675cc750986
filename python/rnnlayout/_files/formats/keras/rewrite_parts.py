"""The parts of a Keras 2 model in the form of Keras 3: weights of cells, and the config.

CuDNNLSTM and CuDNNGRU become LSTM and GRU wherever they are, and what Keras 3 reads differently in
models with recurrent layers is written so that it means the same. Other layers are unchanged; if
Keras 3 lacks one, it reports that itself. Nothing that a config names is imported or called.

A gate's hard_sigmoid was clip(0.2 x + 0.5) and now is
clip(x / 6 + 0.5), which is the same for 1.2 times x; and x is a sum of the gate's biases and of
products of its weights.
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
    read_config,
    recurrent_activation,
)
from rnnlayout._sources.read_source import read_source
from rnnlayout._sources.read_tensors import read_described
from rnnlayout._sources.reading import Reading

from .config import CUDNN, nodes_inside, unknown_classes_in
from .entries import LEAVES, CellArrays, LayerCells, cell_bits, count_gates

_KERAS = Layout("keras")
_GATED: dict[int, Cell] = {4: "lstm", 3: "gru"}  # the number of gates -> the cell


@dataclass
class _CellChange:
    """How the weights of an RNN were changed. src, dst: the old and the new dtype. sums: how many
    sums of two biases were rounded. scaled: how many weights were multiplied. rounds: whether the
    new dtype rounds."""

    src: str
    dst: str
    sums: int = 0
    scaled: int = 0
    rounds: bool = False


@dataclass
class ChangedCells:
    """The cells of a file that change.

    what: the file's name in messages. dtype, exact: the arguments of convert(). arrays: the new
    arrays by path. cudnn: the changed cells of cuDNN's layers, each with its node of the config, if
    one describes it. scaled: the ids of the nodes whose weights compensate for the other
    hard_sigmoid. notes: messages about the file."""

    what: str
    dtype: Any
    exact: bool
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    cudnn: list[tuple[Node | None, CellArrays]] = field(default_factory=list)
    scaled: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    _done: dict[str, _CellChange] = field(default_factory=dict)

    def check_dtype_used(self) -> None:
        """Raise LayoutError if a dtype was asked for and no cell changes."""
        if self.dtype is not None and not self.arrays:
            text = f"{self.what}: no layer changes, and a dtype is for those that do: omit "
            raise LayoutError(text, Ask("dtype", None))

    def result(self) -> Converted:
        """Return what was done."""
        reports = dict.fromkeys(self._done, EXACT)
        for entry, one in self._done.items():
            if one.rounds:
                why = [f"{one.scaled} weights times {_TIMES}, for Keras 3's hard_sigmoid"]
                why = [
                    *why * bool(one.scaled),
                    rounding_reason(one.sums, False, one.src, one.dst),
                ]
                reports[entry] = Report("rounds", one.sums, " and ".join(filter(None, why)))
        return Converted(reports, notes=tuple(self.notes))

    def add(self, found: LayerCells, version: Version, reading: Reading) -> None:
        """Add the cells of a layer that Keras 3 needs in another form, if there are any. version:
        of the Keras that wrote it. reading: for a layer without a config. Raises
        LossyError if a weight becomes infinite, or is rounded and exact is set."""
        nodes: Sequence[Node | None] = [None] * len(found.cells)
        if found.layer:
            nodes, hard = found.layer.cells, _hard_by_config(found.layer, version)
            if any(hard) or any(kind_of(node) in CUDNN for node in found.layer.cells):
                found.check_count()
        else:
            told = reading.fields
            is_hard = told.get("recurrent_activation") == HARD_SIGMOIDS[1]
            hard = [{}] * len(found.cells)
            for k, cell in enumerate(found.cells if is_hard else ()):
                if is_gated(cell):  # tensors without biases do not show the reset
                    keys = ("recurrent_activation", *(() if "bias" in cell else ("reset",)))
                    hard[k] = {key: told[key] for key in keys if key in told}
        for node, cell, known in zip(nodes, found.cells, hard, strict=False):
            own = {leaf: cell[leaf] for leaf in LEAVES if leaf in cell}
            if spec := _cudnn_spec(own):
                bits = cell_bits(found.name, own)
                spec = spec.replace(dtype=bits["kernel"].dtype)
                self._put(found.name, cell, read_described(bits, spec, "keras-cudnn"))
                self.cudnn.append((node, cell))
            elif known:
                given = read_source(cell_bits(found.name, own), Reading(None, _KERAS, known))
                self._put(found.name, cell, given, scales=True)
                self.scaled.add(id(node))

    def _put(self, entry: str, cell: CellArrays, weights: Weights, scales: bool = False) -> None:
        """Add the new arrays of a cell. scales: whether they compensate for hard_sigmoid."""
        new = weights.to(_KERAS, dtype=self.dtype, exact=self.exact)
        report = new.report or EXACT
        scaled = 0
        if scales:
            wide = weights.to(_KERAS, dtype="float64")
            try:
                scaled = _scale_gates(wide)
                new = wide.to(_KERAS, dtype=new.spec.dtype)
            except (FloatingPointError, LossyError):
                raise LossyError(
                    f"{self.what}: a weight of {entry!r} is infinite, times {_TIMES} for"
                    " hard_sigmoid"
                ) from None
        if scaled and self.exact:
            raise LossyError(
                f"exact conversion refused: {entry!r} has the hard_sigmoid of Keras 2, and for that"
                f" of Keras 3 {scaled} weights would be multiplied by {_TIMES}, which rounds them"
            )
        if new.spec.dtype == "bfloat16":
            why = f"{self.what}: a model of Keras 2 cannot store bfloat16: omit "
            raise LayoutError(why, Ask("dtype", None))
        done = self._done.setdefault(entry, _CellChange(weights.spec.dtype, new.spec.dtype))
        done.sums += report.rounded_sums
        done.scaled += scaled
        done.rounds |= bool(scaled) or report.grade != "exact"
        for leaf, array in new.bits.items():
            self.arrays[cell[leaf].path] = array


def _hard_by_config(layer: RecurrentLayer, version: Version) -> list[dict[str, Any]]:
    """Return how to read each cell whose gates have Keras 2's hard_sigmoid, {} for others."""
    hard: list[dict[str, Any]] = []
    for node in layer.cells:
        config, kind = config_of(node), kind_of(node)
        is_hard = recurrent_activation(config, version) == "hard_sigmoid" and version < (3, 0)
        hard.append({})
        if is_hard and kind.lower() in _GATED.values() and not unknown_classes_in(layer):
            config["recurrent_activation"] = "hard_sigmoid"  # in case it was the default
            # the other activation is unchanged, so it may be one that rnnlayout lacks
            hard[-1] = read_config(kind, {**config, "activation": "tanh"}, version).hints
    return hard


def is_gated(cell: CellArrays) -> bool:
    """Return whether the shape is that of an LSTM or a GRU."""
    return count_gates(cell["recurrent_kernel"].tensor.shape) in _GATED


def _cudnn_spec(cell: CellArrays) -> Spec | None:
    """Return the RNN of a cell of cuDNN's layers, whose shapes show two biases per gate, with any
    dtype; None of another cell."""
    shapes = [cell[leaf].tensor.shape for leaf in LEAVES if leaf in cell]
    if [len(shape) for shape in shapes] != [2, 2, 1] or 0 in shapes[0] + shapes[1]:
        return None
    (width, _), (hidden, wide), (biases,) = shapes
    kind = _GATED.get(biases // (2 * hidden))
    same = biases == 2 * wide and wide == shapes[0][1] and wide % hidden == 0
    return Spec(kind, width, hidden) if kind and same else None


def _scale_gates(wide: Weights) -> int:
    """Multiply, in place, what is summed for a hard_sigmoid; return the number of changed weights.
    Raises FloatingPointError if one is too large."""
    count = 0
    for block, (tensor, at, rows, cols, row, col, _) in _native.blocks(
        wide.layout, wide.spec, wide.optional_tensors
    ):
        if block[-1] != CELLS[wide.spec.cell].candidate:
            array = wide.arrays[tensor].reshape(-1)[at:]
            view = as_strided(array, (rows, cols), (row * array.itemsize, col * array.itemsize))
            with np.errstate(over="raise"):
                view *= _TIMES
            count += int(np.count_nonzero(view))
    return count


# ---------------------------------------------------------------------------- the config of a model

_MODELS = ("Model", "Functional", "Sequential")
_RECURRENT = ("LSTM", "GRU", "SimpleRNN", "RNN", *CUDNN)
_BATCH_NORMS = {f"BatchNormalizationV{k}": "BatchNormalization" for k in (1, 2)}  # TensorFlow 1
_NEW_CLASSES = CUDNN | _BATCH_NORMS
# what cuDNN's layers do, which Keras 2's config did not record
_CUDNNS_WAY = {"activation": "tanh", "recurrent_activation": "sigmoid", "use_bias": True,
               "dropout": 0.0, "recurrent_dropout": 0.0, "unroll": False}  # fmt: skip


@contextmanager
def config_errors(what: str) -> Iterator[None]:
    """Turn the errors that Python raises for a malformed config into a FileError."""
    try:
        yield
    except LayoutError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise FileError(f"{what} is not a config written by Keras: {error!r}") from None


def count_cudnn_layers(node: Any) -> int:
    """Return the number of cuDNN layers in a part of a config, also where the walk does not look:
    in a user's own wrapper. A Bidirectional has one."""
    if isinstance(node, dict):
        own = node.get("class_name") in CUDNN
        return own + sum(map(count_cudnn_layers, node.values()))
    return sum(map(count_cudnn_layers, node)) if isinstance(node, list) else 0


def modernize_model(model: Node, scaled: Collection[int]) -> None:
    """Change the config of a model, in place, into one for Keras 3. scaled: ids of the nodes whose
    weights compensate for Keras 3's hard_sigmoid. Raises LossyError if no layer of Keras 3 computes
    the same, and any error of Python if the config is malformed."""
    waiting, ids = [("", "", 0, model)], itertools.count(-1, -1)  # those of Keras are positive
    while waiting:
        above, key, at, node = waiting.pop()
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
        _change_config(config, kind, path, id(node) in scaled)
        if kind in (*_RECURRENT, "Bidirectional"):
            node.pop("build_config", None)  # its shapes count the states as inputs
            if "inbound_nodes" in node:
                node["inbound_nodes"] = [*map(_name_call_states, node["inbound_nodes"])]
        if kind == "Bidirectional":
            set_layer_id(config, next(ids))
        # Where Keras 3 finds the class: a user's own is registered, and found before that. That of
        # the layer or cell of another one it looks for in the module that the node names.
        new = node["class_name"] = _NEW_CLASSES.get(kind, kind)
        if "module" in node or key not in ("", "layers"):
            if new in _MODELS:
                node["class_name"] = "Model" if new == "Functional" else new
                node["module"], node["registered_name"] = "keras", None
            elif new in _RECURRENT:
                node["module"], node["registered_name"] = "keras.layers", None
            else:
                node.setdefault("module", "keras.layers")
        inside = enumerate(nodes_inside(node))  # which may have changed
        waiting += [(path, key, k, one) for k, (key, one) in reversed([*inside])]


def set_layer_id(config: dict[str, Any], number: int) -> None:
    """Give the layer of a Bidirectional an id of its own. Keras makes both directions from this
    layer, and takes it for another one if it gets the memory of that one. A layer with an id lives
    until the model is loaded."""
    config["layer"].setdefault("shared_object_id", number)


def _add_input(config: dict[str, Any]) -> None:
    """Add an InputLayer if the first layer of a Sequential records the shape of its input, of which
    Keras 3 would take the batch size for the number of steps."""
    layers = config["layers"]
    first = layers[0].get("config") if layers and isinstance(layers[0], dict) else None
    if not isinstance(first, dict) or "batch_input_shape" not in first:
        return
    if layers[0].get("class_name") in (None, "InputLayer", "Lambda"):
        return
    own = {"batch_shape": first["batch_input_shape"], "name": f"{first.get('name')}_input"}
    if isinstance(first.get("dtype"), str):
        own["dtype"] = first["dtype"]
    layers.insert(0, {"class_name": "InputLayer", "config": own})


def _change_graph(config: dict[str, Any]) -> None:
    """Number the calls of inner models as Keras 3 does: from 0, but from 1 in the list of outputs
    for a functional model. Keras 2 began with 1 if a model had called itself when it was created;
    each call is the input of a layer, or an output."""
    inner = {one.get("name"): one for one in config["layers"] if isinstance(one, dict)}
    inputs = [ref for one in inner.values() for ref in _walk_references(one.get("inbound_nodes"))]
    outputs = list(_walk_references(config.get("output_layers")))
    for name, one in inner.items():
        if one.get("class_name") in _MODELS:
            calls = [ref for ref in inputs if ref[0] == name]
            results = [ref for ref in outputs if ref[0] == name]
            first = min((ref[1] for ref in calls + results), default=0)
            for ref in calls:
                ref[1] -= first
            for ref in results:
                ref[1] -= first - (one["class_name"] != "Sequential")
    for key in ("input_layers", "output_layers"):
        # Keras 2 took a list of one input or output for that one, Keras 3 for a list
        if isinstance(config[key], list) and len(config[key]) == 1:
            (config[key],) = config[key]


def _walk_references(value: Any) -> Iterator[list[Any]]:
    """Yield the tensors that a part of a config names: lists of a layer, its call, its output."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return
    if len(value) in (3, 4) and [type(part) for part in value[:3]] == [str, int, int]:
        yield value
    for part in value:
        yield from _walk_references(part)


def _change_config(config: dict[str, Any], kind: str, path: str, is_scaled: bool) -> None:
    """Change the settings of a layer or cell. Raises LossyError if Keras 3 lacks one."""
    for key, value in config.items():
        changed = is_scaled and key == "recurrent_activation"
        if key.endswith("activation") and "hard_sigmoid" in str(value) and not changed:
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
    if kind == "GRU":  # the default of Keras 2 was False, that of Keras 3 is True
        config.setdefault("reset_after", False)
    if kind in CUDNN:
        config.update(_CUDNNS_WAY)
    if kind == "CuDNNGRU":
        config["reset_after"] = True
    if kind in ("BatchNormalization", *_BATCH_NORMS) and isinstance(config.get("axis"), list):
        config["axis"] = config["axis"][0]  # TensorFlow 1 wrote a list
    for key, value in config.items():
        inner = value.get("config") if isinstance(value, dict) else None
        if key.endswith("_initializer") and isinstance(inner, dict):
            inner.pop("dtype", None)  # from TensorFlow 1; Keras 3 asks the layer
        elif key == "dtype" and isinstance(inner, dict):
            config[key] = inner.get("name")  # of a policy


def _name_call_states(call: Any) -> Any:
    """Return a call of a recurrent layer with its states named; Keras 2 lists them as inputs."""
    if not isinstance(call, list) or len(call) < 2:
        return call
    inputs, *states = [
        # a tensor by its layer, call and output, from which Keras 3 finds its shape
        {
            "class_name": "__keras_tensor__",
            "config": {"shape": [None], "dtype": "float32", "keras_history": ref[:3]},
        }
        for ref in call
    ]
    arguments = {key: value for ref in call for key, value in (ref[3:] or [{}])[0].items()}
    kwargs = {key: value for key, value in arguments.items() if value is not None}
    return {"args": [inputs], "kwargs": {**kwargs, "initial_state": states}}
