"""The frameworks as oracles: build one RNN, fill it at random, run it.

Every runner takes x (T, N, I), h0 (L*D, N, P) and c0 (L*D, N, H) and returns a reference.Run with
cuDNN's shapes, so any two of them can be compared.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import helper
from oracles.reference import GATES, Run, run_steps

import rnnlayout as rl

torch.set_num_threads(1)  # small networks: on a busy machine threads only wait for each other

# No two sizes are equal, nor equal to L (up to 3), D (up to 2) or L*D, so no transposition and no
# swap of axes goes unnoticed.
T, N, I, H, P = 5, 9, 11, 8, 7  # noqa: E741

# The cells, and the GRU's two resets, that Keras and ONNX have.
FORMS = [
    ("lstm", {}),
    ("gru", {}),
    ("gru", {"reset": "before"}),
    ("rnn_tanh", {}),
    ("rnn_relu", {}),
]
# Those of them that may have relu instead of tanh.
RELU_FORMS = [(cell, {**options, "activation": "relu"}) for cell, options in FORMS[:3]]
# Keras's own get_weights() warns for each array if torch is its backend: a second per test.
KERAS_NOISE = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy")


def seeded(*labels):
    """Return a random generator for this test case."""
    return np.random.default_rng([len(labels), *"/".join(map(str, labels)).encode()])


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def stacks(cells=GATES, layers=(1, 2, 3), **options):
    """Return RNNs of these cells: so many layers, in one direction and both, with biases or not."""
    return [
        rl.Spec(cell, I, H, L, both, bias=bias, **options)
        for cell in cells
        for L in layers
        for both in (False, True)
        for bias in ("double", "none")
    ]


def inputs(rng, spec):
    """Return random x, h0 and c0 (None if the cell has none); no initial state is zero."""
    layers = spec.num_layers * spec.num_directions
    h0 = normal(rng, layers, N, spec.proj_size or spec.hidden_size)
    c0 = normal(rng, layers, N, spec.hidden_size) if spec.cell == "lstm" else None
    return normal(rng, T, N, spec.input_size), h0, c0


def weight(rng, shape):
    """Return random weights: the magnitudes of a row of R sum to less than 1, so no rounding error
    grows from step to step; biases are large enough to matter."""
    is_matrix = len(shape) == 2 and shape[0] > 2  # Keras's GRU has two rows of biases
    return normal(rng, *shape) * np.float32(0.12 if is_matrix else 0.5)


# ---------------------------------------------------------------------------------------- torch

TORCH = {
    "lstm": (torch.nn.LSTM, torch.nn.LSTMCell, {}),
    "gru": (torch.nn.GRU, torch.nn.GRUCell, {}),
    "rnn_tanh": (torch.nn.RNN, torch.nn.RNNCell, {"nonlinearity": "tanh"}),
    "rnn_relu": (torch.nn.RNN, torch.nn.RNNCell, {"nonlinearity": "relu"}),
}


def torch_module(spec, rng=None):
    """Return nn.LSTM, GRU or RNN of a spec, filled by rng, or by torch itself."""
    make, _, options = TORCH[spec.cell]
    if spec.proj_size:
        options = {**options, "proj_size": spec.proj_size}
    module = make(spec.input_size, spec.hidden_size, spec.num_layers, bias=spec.bias != "none",
                  bidirectional=spec.bidirectional, **options)  # fmt: skip
    return fill_torch(module, rng)


def torch_cell(spec, rng=None):
    """Return LSTMCell, GRUCell or RNNCell of a spec."""
    _, make, options = TORCH[spec.cell]
    return fill_torch(
        make(spec.input_size, spec.hidden_size, bias=spec.bias != "none", **options), rng
    )


def fill_torch(module, rng):
    if rng is not None:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(torch.from_numpy(weight(rng, parameter.shape)))
    return module


def run_torch(module, x, h0, c0=None):
    h0 = torch.from_numpy(h0)
    with torch.no_grad():
        state = h0 if c0 is None else (h0, torch.from_numpy(c0))
        y, state = module(torch.from_numpy(x), state)
    return Run(y.numpy(), *map(torch.Tensor.numpy, [state] if c0 is None else state))


def run_torch_cell(cell, *given):
    def step(x, h, c):
        x, *state = (torch.as_tensor(a) for a in (x, h, c) if a is not None)
        with torch.no_grad():
            return cell(x, state) if len(state) == 2 else (cell(x, *state), None)

    return run_steps(step, *given)


# ---------------------------------------------------------------------------------------- Keras


def keras_layers(spec, kit=keras):
    """Return one built LSTM, GRU or SimpleRNN per layer, Bidirectional if the spec is. kit: keras,
    or tf_keras, which is Keras 2."""
    layers = []
    for k in range(spec.num_layers):
        layer = keras_layer(spec, kit)
        if spec.bidirectional:
            layer = kit.layers.Bidirectional(layer)
        wide = spec.num_directions * spec.hidden_size
        layer.build((None, None, wide if k else spec.input_size))
        layers.append(layer)
    return layers


def keras_layer(spec, kit):
    options = {"use_bias": spec.bias != "none", "return_sequences": True, "return_state": True}
    if spec.cell.startswith("rnn"):
        activation = spec.cell.removeprefix("rnn_")
        return kit.layers.SimpleRNN(spec.hidden_size, activation=activation, **options)
    # each Keras has its own hard_sigmoid, and lacks the other
    options["recurrent_activation"] = spec.recurrent_activation.removesuffix("_keras2")
    options["activation"] = spec.activation
    if spec.cell == "gru":
        return kit.layers.GRU(spec.hidden_size, reset_after=spec.reset == "after", **options)
    return kit.layers.LSTM(spec.hidden_size, **options)


def fill_keras(layers, rng):
    for layer in layers:
        layer.set_weights([weight(rng, array.shape) for array in layer.get_weights()])
    return layers


def run_keras(layers, x, h0, c0=None, lengths=None):
    """Run Keras layers. lengths become a mask that is passed to each layer."""
    y = np.ascontiguousarray(x.swapaxes(0, 1))
    mask = None if lengths is None else np.arange(len(x)) < np.asarray(lengths)[:, None]
    per_layer = len(h0) // len(layers)
    hs, cs = [], []
    for k, layer in enumerate(layers):
        state = []
        for at in range(k * per_layer, (k + 1) * per_layer):
            state += [h0[at]] if c0 is None else [h0[at], c0[at]]
        y, *state = call_keras(layer, y, state, mask)
        hs += state if c0 is None else state[::2]
        cs += [] if c0 is None else state[1::2]
    return Run(y.swapaxes(0, 1), np.stack(hs), np.stack(cs) if cs else None)


def call_keras(layer, x, state, mask=None):
    if isinstance(layer, keras.Layer):
        to, back = keras.ops.convert_to_tensor, keras.ops.convert_to_numpy
    else:  # tf_keras
        import tensorflow  # takes three seconds, and most tests do not need it

        to, back = tensorflow.convert_to_tensor, np.asarray
    masked = {} if mask is None else {"mask": to(mask)}
    return [back(out) for out in layer(to(x), initial_state=[to(s) for s in state], **masked)]


# ----------------------------------------------------------------------------------------- ONNX

ONNX_OPERATOR = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}
HARD_SIGMOID = {"hard_sigmoid": 1 / 6, "hard_sigmoid_keras2": 0.2}


def onnx_attributes(spec):
    found = {"hidden_size": spec.hidden_size,
             "direction": "bidirectional" if spec.bidirectional else "forward"}  # fmt: skip
    D = spec.num_directions
    if spec.cell == "gru":
        found["linear_before_reset"] = int(spec.reset == "after")
    if spec.cell.startswith("rnn"):
        return found | {"activations": D * [spec.cell.removeprefix("rnn_").capitalize()]}
    squash = "Sigmoid"
    if spec.recurrent_activation in HARD_SIGMOID:
        # activations without parameters skip them
        squash, slope = "HardSigmoid", HARD_SIGMOID[spec.recurrent_activation]
        found |= {"activation_alpha": D * [slope], "activation_beta": D * [0.5]}
    others = [spec.activation.capitalize()] * (1 + (spec.cell == "lstm"))
    return found | {"activations": D * [squash, *others]}


def onnx_tensors(spec, rng):
    """Return random initializers; both halves of B are random."""
    return {name: np.stack([weight(rng, shape[1:]) for _ in range(shape[0])])
            for name, shape in rl.describe(spec, "onnx").items()}  # fmt: skip


def onnx_model(tensors, spec, lengths=False, **attributes):
    """Return a model with one node per layer. tensors: of rl.convert(to="onnx"), its initializers.
    Inputs x, 0/h0, 0/c0, 1/h0 ..., lengths; outputs y, 0/Y_h, 0/Y_c, 1/Y_h ..."""
    states = 2 if spec.cell == "lstm" else 1
    nodes, given, last = [], ["x"], []
    below = "x"
    for k in range(spec.num_layers):
        stack = f"{k}/" if spec.num_layers > 1 else ""
        W, R, B, P_ = (stack + name if stack + name in tensors else "" for name in "WRBP")
        start = [f"{k}/h0", f"{k}/c0"][:states]
        end = [f"{k}/Y_h", f"{k}/Y_c"][:states]
        reads = [below, W, R, B, "lengths" if lengths else "", *start] + ([P_] if P_ else [])
        above = f"{k}/y" if k + 1 < spec.num_layers else "y"
        nodes += [
            helper.make_node(ONNX_OPERATOR[spec.cell], reads, [f"{k}/Y", *end],
                             **onnx_attributes(spec) | attributes),
            # (T, D, N, H) to (T, N, D*H), as the next layer reads it and cuDNN returns it
            helper.make_node("Transpose", [f"{k}/Y"], [f"{k}/Yt"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", [f"{k}/Yt", "joined"], [above]),
        ]  # fmt: skip
        below = above
        given += start
        last += end
    constants = {**tensors, "joined": np.array([0, 0, -1])}
    graph = helper.make_graph(
        nodes,
        "rnn",
        [float_3d(name) for name in given] + [LENGTHS] * lengths,
        [float_3d(name) for name in ["y", *last]],
        [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    onnx.checker.check_model(model)
    return model


LENGTHS = helper.make_tensor_value_info("lengths", onnx.TensorProto.INT32, [None])


def float_3d(name):
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, None, None])


def onnx_session(model):
    """Return a session of onnxruntime for a path or bytes. It has one thread: others would wait
    busily, and a small network needs none."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_onnx(tensors, spec, x, h0, c0=None, lengths=None, **attributes):
    """Run the RNN in onnxruntime on a CPU. attributes: of its nodes, instead of the spec's."""
    model = onnx_model(tensors, spec, lengths is not None, **attributes)
    session = onnx_session(model.SerializeToString())
    feed = {"x": x} if lengths is None else {"x": x, "lengths": np.asarray(lengths, np.int32)}
    for k in range(spec.num_layers):
        here = slice(k * spec.num_directions, (k + 1) * spec.num_directions)
        feed[f"{k}/h0"] = h0[here]
        if c0 is not None:
            feed[f"{k}/c0"] = c0[here]
    y, *last = session.run(None, feed)
    if c0 is None:
        return Run(y, np.concatenate(last))
    return Run(y, np.concatenate(last[::2]), np.concatenate(last[1::2]))
