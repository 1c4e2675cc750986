"""A small ONNX model that only runs the saved RNNs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._files.tensor_sets.output_file import Output, open_untruncated
from rnnlayout._files.tensor_sets.record import Record, write_records
from rnnlayout._model.config import (
    describe_config,
    how_to_round,
    initial_states,
    unwritable_settings,
    unwritten_settings,
)
from rnnlayout._model.errors import FileError, import_extra
from rnnlayout._model.spec import CELLS
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError, LossyError

from .constants import NUMBERS
from .graph import LARGEST
from .node import LENGTHS, SLOPES, WEIGHTS

# (opset, IR version): the oldest with layout= and onnxruntime's kernels; the oldest with bfloat16.
_PLAIN, _BFLOAT16 = (14, 7), (22, 10)
# The field numbers of ModelProto.graph, GraphProto.initializer and TensorProto.raw_data.
_GRAPH, _INITIALIZER, _RAW = 7, 5, 9
_SMALL = 1024  # bytes of a tensor that stays in the model
_ALIGNED = 64  # bytes


class TensorArrays:
    """The numbers of the TensorProtos of a model that is written. Protobuf would copy numbers in a
    TensorProto, and limit the model to 2 GB."""

    def __init__(self) -> None:
        self._arrays: dict[int, tuple[Any, np.ndarray]] = {}  # id -> TensorProto, array

    def put(self, tensor: Any, array: np.ndarray, dtype: str, name: str) -> None:
        """Give an array, which carries the bits of a dtype, to an emptied TensorProto."""
        tensor.Clear()
        tensor.name, tensor.data_type = name, NUMBERS[dtype]
        tensor.dims.extend(array.shape)
        self._arrays[id(tensor)] = tensor, array

    def move(self, tensor: Any, array: np.ndarray) -> None:
        """Give an array to a TensorProto with numbers in an external file."""
        tensor.ClearField("data_location")
        tensor.ClearField("external_data")
        self._arrays[id(tensor)] = tensor, array

    def take(self, tensor: Any) -> memoryview:
        """Return the bytes of a TensorProto and forget the array. Returns no bytes without an array
        here: such a TensorProto has the bytes itself."""
        _, array = self._arrays.pop(id(tensor), (None, np.empty(0, np.uint8)))
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        return array.reshape(-1).view(np.uint8).data

    def fill(self) -> None:
        """Put all arrays into the TensorProtos."""
        for tensor, _ in list(self._arrays.values()):
            tensor.raw_data = bytes(self.take(tensor))


def make_model(entries: Mapping[str, Weights]) -> tuple[Any, TensorArrays]:
    """Return the ModelProto, and the numbers of its initializers.

    The model has inputs X, initial_h (initial_c) and outputs Y, Y_h (Y_c) for each entry: X
    (T, N, I), Y (T, N, D H), the states (L D, N, H), as for rl.RNN; "lstm/X" and so on for several
    entries. ONNX's attributes in Weights.config become attributes, lengths become constants, and
    initial states become constants instead of inputs. Raises LossyError if Weights.config has a
    further setting that changes outputs."""
    onnx = import_extra("onnx", "onnx", "an .onnx file")
    model = onnx.ModelProto(producer_name="rnnlayout", producer_version=_native.__version__)
    graph = model.graph  # filled in place: protobuf copies assigned messages
    graph.name = "rnnlayout"
    used_names, arrays = set[str](), TensorArrays()
    for entry, weights in entries.items():
        count = weights.spec.num_layers
        for name in {entry, *(f"{entry}/{k}" for k in range(count if count > 1 else 0))}:
            if name in used_names:
                raise LayoutError(
                    f"two RNNs of the model would be named {name!r}: rename one of them"
                )
            used_names.add(name)
        prefix = f"{entry}/" if len(entries) > 1 else ""
        _RNNNodes(onnx, graph, arrays, entry, prefix, weights).add()
    dtypes = {weights.spec.dtype for weights in entries.values()}
    opset, model.ir_version = _BFLOAT16 if "bfloat16" in dtypes else _PLAIN
    model.opset_import.add(domain="", version=opset)
    records = {entry: Record("", w.layout, w.spec, w.config) for entry, w in entries.items()}
    for key, value in write_records(records).items():
        model.metadata_props.add(key=key, value=value)
    return model, arrays


def write_model(out: Output, model: Any, arrays: TensorArrays) -> None:
    """Write a model and the numbers of its tensors; the model is emptied. If the file would exceed
    2 GB, the numbers of the initializers go into a second file, NAME.onnx.data, as
    torch.onnx.export writes."""
    # tensor by tensor: a gigabyte at once takes protobuf about ten times as long
    tensors = [(tensor, arrays.take(tensor)) for tensor in model.graph.initializer]
    del model.graph.initializer[:]
    arrays.fill()
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    outside = model.SerializeToString()
    parts = _model_parts(outside, graph, tensors)
    if sum(map(len, parts)) > LARGEST:
        with open(out.companion(".data"), "wb", opener=open_untruncated) as file:
            for k, (tensor, bits) in enumerate(tensors):
                if len(bits) >= _SMALL:
                    file.write(bytes(-file.tell() % _ALIGNED))
                    tensor.external_data.add(key="location", value=f"{out.name}.data")
                    tensor.external_data.add(key="offset", value=str(file.tell()))
                    tensor.external_data.add(key="length", value=str(len(bits)))
                    tensor.data_location = tensor.EXTERNAL
                    file.write(bits)
                    tensors[k] = tensor, bits[:0]
        parts = _model_parts(outside, graph, tensors)
    if (nbytes := sum(map(len, parts))) > LARGEST:
        raise FileError(f"{out} would have {nbytes} bytes; ONNX files are limited to 2 GB")
    with open(out, "wb", opener=open_untruncated) as file:
        file.writelines(parts)


def _model_parts(
    outside: bytes, graph: bytes, tensors: Iterable[tuple[Any, memoryview]]
) -> list[bytes | memoryview]:
    """Return a model's bytes in pieces. outside: the model without the graph. graph: the graph
    without initializers. tensors: the initializers with their numbers, empty for numbers in the
    TensorProto or in an external file."""
    fields: list[bytes | memoryview] = [graph]
    for tensor, bits in tensors:
        pieces = [tensor.SerializeToString()]
        if bits:
            pieces += [_field_head(_RAW, len(bits)), bits]
        fields += [_field_head(_INITIALIZER, sum(map(len, pieces))), *pieces]
    return [outside, _field_head(_GRAPH, sum(map(len, fields))), *fields]


def _field_head(field: int, nbytes: int) -> bytes:
    """Return the bytes before an inner message: the field number and the message's length."""
    head = bytearray([field << 3 | 2])
    while nbytes > 127:
        head.append(nbytes & 127 | 128)
        nbytes >>= 7
    return bytes([*head, nbytes])


class _RNNNodes:
    """The nodes of an RNN. prefix: of the names of the RNN's inputs and outputs."""

    def __init__(
        self, onnx: Any, graph: Any, arrays: TensorArrays, entry: str, prefix: str, weights: Weights
    ) -> None:
        self._onnx, self._graph, self._arrays, self._prefix = onnx, graph, arrays, prefix
        self._name, self._weights = entry, weights
        self._spec, self._config = weights.spec, weights.config
        self._operator = self._spec.cell.partition("_")[0].upper()
        self._states = ["h", "c"] if self._operator == "LSTM" else ["h"]
        self._names = [self._name]  # of the nodes; a node per layer
        if self._spec.num_layers > 1:
            self._names = [f"{self._name}/{k}" for k in range(self._spec.num_layers)]
        if lost := unwritable_settings(self._config, self._spec, "onnx"):
            raise unwritten_settings(self._name, lost, "unknown to ONNX; to leave it out")
        self._batch_first = bool(self._config.get("layout"))

    def add(self) -> None:
        spec, states = self._spec, self._states
        output_size = spec.num_directions * spec.hidden_size
        n, t = f"{self._prefix}N", f"{self._prefix}T"  # differ by RNN
        batched = [n, t] if self._batch_first else [t, n]
        layers = spec.num_layers * spec.num_directions
        state = [n, layers] if self._batch_first else [layers, n]
        self._declare(self._graph.input, "X", [*batched, spec.input_size])
        self._declare(self._graph.output, "Y", [*batched, output_size])
        for s in states:
            if f"initial_{s}" not in self._config:
                self._declare(self._graph.input, f"initial_{s}", [*state, spec.hidden_size])
            self._declare(self._graph.output, f"Y_{s}", [*state, spec.hidden_size])
        parts = {s: self._split_state(s) for s in states}
        below = f"{self._prefix}X"
        for k in range(spec.num_layers):
            below = self._add_layer(k, below, {s: parts[s][k] for s in states})
        for s in states if spec.num_layers > 1 else []:
            ends = [f"{name}/Y_{s}" for name in self._names]
            self._add_node("Concat", ends, [f"{self._prefix}Y_{s}"], axis=int(self._batch_first))

    def _add_layer(self, k: int, below: str, starts: Mapping[str, str]) -> str:
        """Add a layer; return the name of the layer's output. starts: initial states by h and c."""
        name, is_single = self._names[k], len(self._names) == 1
        arrays = self._weights.bits
        inputs = [below] + [""] * 7
        if "sequence_lens" in self._config:
            lengths = self._exact_array("sequence_lens", self._config["sequence_lens"], "int32")
            inputs[LENGTHS] = self._add_constant(f"{name}/sequence_lens", lengths, "int32")
        for at, start in enumerate(starts.values(), 5):
            inputs[at] = start
        for role, at in WEIGHTS[self._operator].items():
            tensor = role if is_single else f"{k}/{role}"
            if tensor in arrays:
                inputs[at] = self._add_constant(f"{name}/{role}", arrays[tensor], self._spec.dtype)
        ends = [f"{self._prefix if is_single else name + '/'}Y_{s}" for s in starts]
        while not inputs[-1]:
            inputs.pop()
        self._add_node(self._operator, inputs, [f"{name}/out", *ends], name, **self._attributes())
        above = f"{name}/above" if k + 1 < len(self._names) else f"{self._prefix}Y"
        output = f"{name}/out"
        if not self._batch_first:  # (T, D, N, H) to (T, N, D, H)
            output = f"{name}/out_t"
            self._add_node("Transpose", [f"{name}/out"], [output], perm=[0, 2, 1, 3])
        shape = self._add_constant(f"{name}/joined", np.array([0, 0, -1]), "int64")
        self._add_node("Reshape", [output, shape], [above])
        return above

    def _split_state(self, s: str) -> list[str]:
        """Split a state by layers; return the names of the parts."""
        whole, is_single = f"{self._prefix}initial_{s}", len(self._names) == 1
        parts = [whole] if is_single else [f"{name}/initial_{s}" for name in self._names]
        if f"initial_{s}" in self._config:  # a constant of the model
            if self._spec.dtype == "bfloat16":
                raise LossyError(
                    f"{self._name}: a constant initial_{s} cannot be bfloat16: convert to float32"
                    " first"
                )
            states = initial_states(self._config, f"initial_{s}", len(parts))
            for part, state in zip(parts, states, strict=True):
                array = self._exact_array(f"initial_{s}", state, self._spec.dtype)
                if array.shape[not self._batch_first] == 1:  # N
                    self._add_repeated_state(part, array)
                else:
                    self._add_constant(part, array, self._spec.dtype)
        elif not is_single:
            directions = np.full(len(parts), self._spec.num_directions, np.int64)
            sizes = self._add_constant(f"{whole}/sizes", directions, "int64")
            self._add_node("Split", [whole, sizes], parts, axis=int(self._batch_first))
        return parts

    def _add_repeated_state(self, name: str, state: np.ndarray) -> None:
        """Add a state that is the same for each of the N sequences in X."""
        axis = int(not self._batch_first)
        unrepeated = self._add_constant(f"{name}/once", state, self._spec.dtype)
        ends = [self._add_constant(f"{name}/{n}", np.array([n]), "int64") for n in (axis, axis + 1)]
        ones = self._add_constant(f"{name}/ones", np.ones(2 - axis, np.int64), "int64")
        ones_before = self._add_constant(f"{name}/one", np.ones(axis, np.int64), "int64")
        self._add_node("Shape", [f"{self._prefix}X"], [f"{name}/X"])
        self._add_node("Slice", [f"{name}/X", *ends], [f"{name}/N"])
        self._add_node("Concat", [ones_before, f"{name}/N", ones], [f"{name}/sizes"], axis=0)
        self._add_node("Expand", [unrepeated, f"{name}/sizes"], [name])

    def _exact_array(self, key: str, value: Any, dtype: str) -> np.ndarray:
        """Return a setting in the dtype of the model. Raises LossyError if the dtype rounds it."""
        array = np.asarray(value, np.float64)
        with np.errstate(over="ignore"):
            rounded = array.astype(dtype)
        if not (rounded == array).all():
            raise LossyError(
                f"{self._name} is used with {describe_config({key: value})}, which the model would"
                f" round to {dtype}: {how_to_round(key, dtype)}"
            )
        return rounded

    def _attributes(self) -> dict[str, Any]:
        spec, config = self._spec, self._config
        direction = "bidirectional" if spec.bidirectional else config.get("direction", "forward")
        attributes: dict[str, Any] = {"hidden_size": spec.hidden_size, "direction": direction}
        if CELLS[spec.cell].has_reset:
            attributes["linear_before_reset"] = int(spec.reset == "after")
        activations: list[str] = []
        if spec.cell == "rnn_relu":
            activations = ["Relu"]
        elif (spec.recurrent_activation, spec.activation) != ("sigmoid", "tanh"):
            state = spec.activation.capitalize()
            activations = ["Sigmoid", state, state][: 3 if CELLS[spec.cell].has_c else 2]
        if spec.recurrent_activation in SLOPES:
            activations[0] = "HardSigmoid"
            alpha, beta = map(float, SLOPES[spec.recurrent_activation])
            attributes["activation_alpha"] = [alpha] * spec.num_directions
            attributes["activation_beta"] = [beta] * spec.num_directions
        if activations:
            attributes["activations"] = activations * spec.num_directions
        if "clip" in config:
            attributes["clip"] = float(self._exact_array("clip", config["clip"], "float32"))
        if self._batch_first:
            attributes["layout"] = 1
        return attributes

    def _add_node(
        self, operator: str, inputs: Any, outputs: Any, name: str = "", **attributes: Any
    ) -> None:
        node = self._onnx.helper.make_node(operator, inputs, outputs, name or None, **attributes)
        self._graph.node.append(node)

    def _add_constant(self, name: str, array: np.ndarray, dtype: str) -> str:
        self._arrays.put(self._graph.initializer.add(), array, dtype, name)
        return name

    def _declare(self, declarations: Any, name: str, shape: list[Any]) -> None:
        """Add an input or output of the graph to the graph's declarations."""
        dtype = NUMBERS[self._spec.dtype]
        make = self._onnx.helper.make_tensor_value_info
        declarations.append(make(self._prefix + name, dtype, shape))
