"""Models of TFLite with one recurrent operator, made with the classes of its schema."""

import flatbuffers
import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

IDENTIFIER = b"TFL3"
ACTIVATIONS = {"tanh": 4, "relu": 1, "relu6": 3}


def lstm_inputs(rng, I, H, N, *, both=False, peepholes=False, projected=0, **_):  # noqa: E741
    """Return the inputs after x: arrays, None for one that is omitted, a shape for a state."""
    found, states = [None], []
    for _ in range(1 + both):
        P = projected or H
        shapes = [(H, I)] * 4 + [(H, P)] * 4 + [(H,) if peepholes else None] * 3 + [(H,)] * 4
        shapes += [(P, H) if projected else None, None]
        found += [None if s is None else rng.standard_normal(s).astype("f4") for s in shapes]
        states += [(N, P), (N, H)]
    return found + states + ([None] * 9 if both else [])


def rnn_inputs(rng, I, H, N, *, both=False):  # noqa: E741
    found = [None]
    for _ in range(1 + both):
        found += [rng.standard_normal(s).astype("f4") for s in ((H, I), (H, H), (H,))] + [(N, H)]
    return found + ([None] * 3 if both else [])


def model_bytes(
    cell, x_shape, inputs, *, both=False, activation="tanh", cell_clip=0.0, proj_clip=0.0,
    time_major=False, diagonal=False, **_,
):  # fmt: skip
    """Return a model. inputs: as lstm_inputs() and rnn_inputs() return them; the first is x."""
    model, graph, operator = schema.ModelT(), schema.SubGraphT(), schema.OperatorT()
    model.version, model.buffers = 3, [schema.BufferT()]
    graph.tensors, operator.inputs = [], []

    def add(shape, array=None, variable=False):
        tensor = schema.TensorT()
        tensor.shape, tensor.type, tensor.name = list(shape), 0, f"t{len(graph.tensors)}".encode()
        tensor.isVariable, tensor.buffer = variable, 0
        if array is not None:
            tensor.buffer = len(model.buffers)
            model.buffers.append(schema.BufferT())
            model.buffers[-1].data = np.frombuffer(array.tobytes(), np.uint8)
        graph.tensors.append(tensor)
        return len(graph.tensors) - 1

    operator.inputs.append(add(x_shape))
    for one in inputs[1:]:
        if one is None:
            operator.inputs.append(-1)
        elif isinstance(one, tuple):
            operator.inputs.append(add(one, variable=True))
        else:
            operator.inputs.append(add(one.shape, one))
    direction = "Bidirectional" if both else "Unidirectional"
    kind = f"{direction}SequenceLSTM" if cell == "lstm" else f"{direction}SequenceRNN"
    options = f"{kind}Options" if kind != "UnidirectionalSequenceRNN" else "SequenceRNNOptions"
    told = getattr(schema, f"{options}T")()
    told.fusedActivationFunction, told.timeMajor = ACTIVATIONS[activation], time_major
    told.mergeOutputs, told.diagonalRecurrentTensors = both, diagonal  # where they exist
    told.cellClip, told.projClip = cell_clip, proj_clip
    operator.builtinOptionsType = getattr(schema.BuiltinOptions, options)
    operator.builtinOptions = told
    matrices = [one for one in inputs if isinstance(one, np.ndarray) and one.ndim == 2]
    width = matrices[4 if cell == "lstm" else 1].shape[1] * (1 + both)
    operator.outputs = [add((*x_shape[:2], width))]
    graph.inputs, graph.outputs, graph.operators = [0], operator.outputs, [operator]
    code = schema.OperatorCodeT()
    name = kind.replace("Sequence", "_SEQUENCE_").upper()
    code.builtinCode = code.deprecatedBuiltinCode = getattr(schema.BuiltinOperator, name)
    code.version = 1
    model.operatorCodes, model.subgraphs = [code], [graph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), IDENTIFIER)
    return bytes(builder.Output())
