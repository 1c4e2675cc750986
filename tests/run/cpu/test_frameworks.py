"""RNNs as torch, Keras, onnxruntime and JAX run them, with a PackedSequence, masks or sequence_lens
as lengths. torch has projections, Keras 2 its own hard sigmoid, ONNX both of them and peepholes, a
cell of TensorFlow 1 a clip."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import torch
from jax.experimental.rnn import get_num_params_in_lstm, lstm_ref, unpack_lstm_weights
from marks import each_pair
from oracles.frameworks import (
    FORMS,
    KERAS_NOISE,
    RELU_FORMS,
    H,
    I,
    N,
    P,
    T,
    fill_keras,
    inputs,
    keras,
    keras_layers,
    onnx_tensors,
    run_keras,
    run_onnx,
    seeded,
    torch_module,
    weight,
)
from oracles.reference import Run, distance, distance_between, forward, from_cudnn, from_onnx
from run.cpu.running import flat
from tf_keras.src.layers.rnn import legacy_cells

import rnnlayout as rl

pytestmark = [
    KERAS_NOISE,
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
]
# Only Keras takes a sequence of length 0.
LENGTHS = {name: [3, 5, 0 if name == "keras" else 2, 1, 4, 5, 2, 5, 1]
           for name in ("torch", "keras", "onnx")}  # fmt: skip
PEEPHOLES = [("lstm", {"peepholes": True}), ("lstm", {"peepholes": True, "activation": "relu"})]
OF_TORCH = [("lstm", {}), ("lstm", {"proj_size": P}), ("gru", {}), ("rnn_tanh", {}),
            ("rnn_relu", {})]  # fmt: skip
CASES = [
    (framework, *case)
    for framework, forms in [("torch", OF_TORCH), ("keras", [*FORMS, *RELU_FORMS]),
                             ("onnx", [*FORMS, *RELU_FORMS, *PEEPHOLES])]
    for case in each_pair([
        (rl.Spec(cell, I, H, layers, both, bias=bias, recurrent_activation=squash, **options), some)
        for cell, options in forms
        for squash in ("sigmoid", "hard_sigmoid", "hard_sigmoid_keras2")
        if squash == "sigmoid" or not (cell.startswith("rnn") or framework == "torch")
        for layers, both, bias, some in itertools.product(
            (1, 2), (False, True), ("double", "none"), (False, True))
    ], lambda case: (*case[0].to_dict().values(), case[1]))
]  # fmt: skip


def filled(spec, rng):
    kit = tf_keras if spec.recurrent_activation == "hard_sigmoid_keras2" else keras
    return fill_keras(keras_layers(spec, kit), rng)


def run_torch(module, x, h0, c0, lengths):
    x, *state = (torch.from_numpy(a) for a in (x, h0, c0) if a is not None)
    if lengths:
        x = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
    with torch.no_grad():
        y, last = module(x, state if len(state) == 2 else state[0])
    if lengths:
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, total_length=T)
    return Run(*(a.numpy() for a in [y, *(last if len(state) == 2 else [last])]))


def run_ours(source, spec, x, h0, c0, lengths=None):
    state = h0 if c0 is None else (h0, c0)
    y, last = rl.forward(x, source, spec, state=state, lengths=lengths, batch_first=False)
    return Run(y, *([last] if c0 is None else last))


@pytest.mark.parametrize("framework, spec, has_lengths", CASES, ids=str)
def test_what_the_framework_computes(framework, spec, has_lengths):
    lengths = LENGTHS[framework] if has_lengths else None
    rng = seeded("forward", spec)
    given = inputs(rng, spec)
    if framework == "torch":
        source = torch_module(spec, rng)
        layers, theirs = from_cudnn(rl.pack(source), spec), run_torch(source, *given, lengths)
    elif framework == "keras":
        source = filled(spec, rng)
        layers = from_onnx(rl.convert(source, to="onnx"), spec)
        theirs = run_keras(source, *given, lengths)
        if lengths:  # past the end it repeats the last output (docs/forward.md)
            past = np.arange(T)[:, None] >= np.array(lengths)
            theirs = Run(np.where(past[..., None], 0, theirs.y), theirs.h, theirs.c)
    else:
        source = onnx_tensors(spec, rng)
        layers, theirs = from_onnx(source, spec), run_onnx(source, spec, *given, lengths)
    expected = forward(layers, spec, *given, lengths)
    # Each may be off by what float32's rounding explains, so the two by twice that: past the end,
    # where the reference has no error, both are zero
    ours = run_ours(source, spec, *given, lengths)
    assert distance_between(theirs, ours, expected) <= 1  # reference.Rounded
    assert len(LENGTHS[framework]) == N


@pytest.mark.parametrize("cell, options", RELU_FORMS)
def test_relu_passes_nan_on(cell, options):
    """As in Keras; onnxruntime's relu and tanh make numbers of it."""
    spec = rl.Spec(cell, I, H, **options)
    rng = seeded("nan", spec)
    layers, (x, h0, c0) = filled(spec, rng), inputs(rng, spec)
    x[2, 3, 4], x[1, 5], x[1, 6] = np.nan, np.inf, -np.inf
    ours = np.isnan(run_ours(layers, spec, x, h0, c0).y)
    assert np.array_equal(ours, np.isnan(run_keras(layers, x, h0, c0).y))
    assert ours[2:, 3].all() and ours.any(0)[[5, 6]].all()
    assert not ours[:2, 3].any() and not np.delete(ours, [3, 5, 6], 1).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_module_in_half_precision(dtype):
    """Arithmetic is that of a module in float32; the result is rounded once."""
    spec = rl.Spec("lstm", I, H, 2, True)
    rng = seeded("narrow", dtype)
    module = torch_module(spec, rng).to(dtype)
    x, *state = (torch.from_numpy(a).to(dtype) for a in inputs(rng, spec))
    found = flat(rl.RNN(module)(x, tuple(state)))
    wide = flat(rl.RNN(module.float())(x.float(), tuple(a.float() for a in state)))
    for ours, wanted in zip(found, wide, strict=True):
        assert torch.equal(ours, wanted.to(dtype))


@pytest.mark.long
def test_torch_compile_around_calls():
    """It cannot trace __dlpack_device__(), and ended with an internal error."""
    spec = rl.Spec("lstm", I, H)
    rng = seeded("compile", spec)
    rnn = rl.RNN(torch_module(spec, rng))
    x, *state = map(torch.from_numpy, inputs(rng, spec))

    def calls(x, state):
        return (
            rnn(x * 2)[0] * 3,
            rnn(x, state)[1][1] * 3,
            rnn(x, lengths=torch.tensor(LENGTHS["torch"]))[0] * 3,
            rnn(x, out=torch.empty(T, N, H))[0] * 3,
            rnn.step(x[0], state)[0] * 3,
        )

    with torch.no_grad():
        found = torch.compile(calls, backend="eager")(x, tuple(state))
        assert all(map(torch.equal, found, calls(x, tuple(state))))


def run_jax(weights, spec, x, h0, c0):
    sizes = spec.input_size, spec.hidden_size, spec.num_layers
    both = spec.bidirectional
    assert get_num_params_in_lstm(*sizes, both) == weights.size
    y, h, c = lstm_ref(x.swapaxes(0, 1), h0, c0, *unpack_lstm_weights(weights, *sizes, both),
                       np.array(LENGTHS["onnx"], np.int32), *sizes, 0.0, both)  # fmt: skip
    return Run(np.asarray(y).swapaxes(0, 1), np.asarray(h), np.asarray(c))


@pytest.mark.parametrize("layers, both", [(1, False), (3, True)])
def test_the_reference_of_jax_for_cudnn(layers, both):
    """On the flat weights that JAX's lstm() passes to cuDNN. lstm_ref does not support empty
    sequences: it would return the state of the last step of all, rl.RNN returns the first one."""
    spec, rng = rl.Spec("lstm", I, H, layers, both), seeded("lstm_ref", layers, both)
    # the magnitudes of a row of R sum to less than 1: no rounding error grows
    weights = rng.uniform(-1, 1, spec.num_params).astype("f4") / np.float32(H)
    rows = (layers * spec.num_directions, N, H)
    x, h0, c0 = (rng.standard_normal(shape, np.float32) for shape in ((T, N, I), rows, rows))
    expected = forward(from_cudnn(weights, spec), spec, x, h0, c0, LENGTHS["onnx"])
    y, last = rl.forward(x, weights, spec, state=(h0, c0), lengths=LENGTHS["onnx"])
    assert distance(Run(y, *last), expected) <= 1  # reference.Rounded
    assert distance(run_jax(weights, spec, x, h0, c0), expected) <= 1


@pytest.mark.filterwarnings("ignore:.*rnn_cell:UserWarning")
def test_the_clip_and_peepholes_of_tensorflow():
    """The peephole of o sees the clipped state."""
    clip, spec, rng = 0.25, rl.Spec("lstm", I, H, peepholes=True), seeded("tf1 runs")
    cell = legacy_cells.LSTMCell(H, use_peepholes=True, cell_clip=clip)
    cell.build((None, I))
    for variable in cell.weights:
        variable.assign(weight(rng, variable.shape))
    tensors = {v.name.split("/", 1)[1].removesuffix(":0"): v.numpy() for v in cell.weights}
    x, h0, c0 = given = inputs(rng, spec)
    state, ys = (tf.constant(c0[0]), tf.constant(h0[0])), []
    for x_t in x:
        y, state = cell(tf.constant(x_t), state)
        ys.append(y.numpy())
    theirs = Run(np.stack(ys), state[1].numpy()[None], state[0].numpy()[None])
    onnx = from_onnx(rl.convert(tensors, spec, layout="tf1", to="onnx"), spec)
    rnn = rl.RNN(tensors, layout="tf1", cell_clip=(-clip, clip))
    y, last = rnn(x, (h0, c0))
    assert rnn.spec == spec and (abs(last[1]) == clip).any() and (abs(last[1]) < clip).any()
    expected = forward(onnx, spec, *given, clip=(-clip, clip))
    assert distance_between(theirs, Run(y, *last), expected) <= 1  # reference.Rounded
