"""The order of x's axes is that of the source, if batch_first is not passed."""

import pickle

import numpy as np
import pytest
import tf_keras
import torch
from oracles.frameworks import (
    FORMS,
    KERAS_NOISE,
    TORCH,
    H,
    I,
    fill_keras,
    fill_torch,
    keras,
    keras_layers,
    normal,
    run_keras,
    seeded,
)
from oracles.reference import GATES, Run, distance_between, forward, from_onnx
from oracles.some import normal_weights, same_bits

import rnnlayout as rl

pytestmark = KERAS_NOISE
T = N = 5  # equal, so that the shapes do not show a wrong order


def inputs(rng, spec):
    rows = spec.num_layers * spec.num_directions
    c0 = normal(rng, rows, N, H) if spec.cell == "lstm" else None
    return normal(rng, T, N, I), normal(rng, rows, N, H), c0


def turned(x):
    return np.ascontiguousarray(x.swapaxes(0, 1))


def run_first(rnn, x, h0, c0):
    """Run an RNN whose x is (N, T, I)."""
    y, last = rnn(turned(x), h0 if c0 is None else (h0, c0))
    return Run(y.swapaxes(0, 1), *([last] if c0 is None else last))


def module_of(spec, rng, **options):
    make, _, more = TORCH[spec.cell]
    return fill_torch(
        make(I, H, spec.num_layers, bidirectional=spec.bidirectional, **more, **options), rng
    )


def run_module(module, x, h0, c0):
    state = [torch.from_numpy(a) for a in (h0, c0) if a is not None]
    with torch.no_grad():
        y, last = module(torch.from_numpy(turned(x)), state[0] if c0 is None else tuple(state))
    return Run(y.numpy().swapaxes(0, 1), *(a.numpy() for a in ([last] if c0 is None else last)))


@pytest.mark.parametrize("cell", GATES)
def test_a_torch_module_with_its_batch_first(cell):
    spec = rl.Spec(cell, I, H, 2, True)
    rng = seeded("axes", spec)
    module, given = module_of(spec, rng, batch_first=True), inputs(rng, spec)
    expected = forward(from_onnx(rl.convert(module, to="onnx"), spec), spec, *given)
    theirs = run_module(module, *given)
    for source in (module, rl.Weights(module)):
        rnn = rl.RNN(source)
        assert rnn.batch_first and "batch first" in repr(rnn)
        ours = run_first(rnn, *given)
        assert distance_between(theirs, ours, expected) <= 1  # reference.Rounded
        assert run_first(pickle.loads(pickle.dumps(rnn)), *given).y.tobytes() == ours.y.tobytes()
        x, h0, c0 = given
        y, _ = rl.forward(turned(x), source, state=h0 if c0 is None else (h0, c0))
        assert same_bits(y.swapaxes(0, 1), ours.y)


@pytest.mark.parametrize("kit", [keras, tf_keras], ids=["keras", "tf_keras"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell, options", FORMS)
def test_a_keras_layer(kit, cell, options, bidirectional):
    spec = rl.Spec(cell, I, H, 1, bidirectional, **options)
    rng = seeded("axes", spec)
    [layer], given = fill_keras(keras_layers(spec, kit), rng), inputs(rng, spec)
    expected = forward(from_onnx(rl.convert(layer, to="onnx"), spec), spec, *given)
    rnn = rl.RNN(layer)
    assert rnn.batch_first
    ours = run_first(rnn, *given)
    assert distance_between(run_keras([layer], *given), ours, expected) <= 1  # reference.Rounded


@pytest.mark.parametrize("bidirectional", [False, True])
def test_keras_layers_and_what_they_become(bidirectional):
    """A list, Weights in another layout, and the result of a conversion keep the axis."""
    spec = rl.Spec("lstm", I, H, 2, bidirectional)
    rng = seeded("list", spec)
    layers, given = fill_keras(keras_layers(spec), rng), inputs(rng, spec)
    expected = forward(from_onnx(rl.convert(layers, to="onnx"), spec), spec, *given)
    theirs = run_keras(layers, *given)
    sources = (
        layers,
        rl.stack([rl.Weights(a) for a in layers]).to("torch"),
        rl.convert(layers, to="torch"),
    )
    for source in sources:
        ours = run_first(rl.RNN(source), *given)
        assert distance_between(theirs, ours, expected) <= 1  # reference.Rounded


def test_an_argument_overrides_the_source():
    spec = rl.Spec("gru", I, H)
    rng = seeded("override", spec)
    first, other = module_of(spec, rng, batch_first=True), module_of(spec, rng)
    x, h0, _ = inputs(rng, spec)
    y, _ = rl.RNN(first, batch_first=False)(x, h0)
    assert same_bits(y.swapaxes(0, 1), rl.RNN(first)(turned(x), h0)[0])
    assert same_bits(y, rl.forward(x, first, batch_first=False, state=h0)[0])
    assert not rl.RNN(first, batch_first=False).batch_first
    assert rl.RNN(other, batch_first=True).batch_first and not rl.RNN(other).batch_first


def test_a_source_that_does_not_say_is_time_first():
    assert not rl.RNN(torch.nn.LSTM(I, H, batch_first=True).state_dict()).batch_first
    assert not rl.RNN(
        np.zeros(rl.Spec("lstm", I, H).num_params, "f4"), rl.Spec("lstm", I, H)
    ).batch_first
    assert not rl.RNN(torch.nn.LSTMCell(I, H)).batch_first


def test_without_a_batch_the_axis_does_not_matter():
    """As in torch: x is (T, I) and y (T, D * P)."""
    spec = rl.Spec("lstm", I, H, 2, True)
    rng = seeded("alone", spec)
    module = module_of(spec, rng, batch_first=True)
    x, h0, c0 = inputs(rng, spec)
    x, h0, c0 = x[:, 2], h0[:, 2], c0[:, 2]
    with torch.no_grad():
        y, (h, c) = module(*(torch.tensor(x), (torch.tensor(h0), torch.tensor(c0))))
    expected = forward(from_onnx(rl.convert(module, to="onnx"), spec), spec,
                       x[:, None], h0[:, None], c0[:, None])  # fmt: skip
    for found_y, (found_h, found_c) in (
        rl.RNN(module)(x, (h0, c0)),
        rl.forward(x, module, state=(h0, c0)),
    ):
        assert found_y.shape == y.shape and found_h.shape == h.shape and found_c.shape == c.shape
        runs = (Run(*(np.asarray(a)[:, None] for a in run))
                for run in ((y, h, c), (found_y, found_h, found_c)))  # fmt: skip
        assert distance_between(*runs, expected) <= 1  # reference.Rounded


def test_an_update_does_not_change_the_axis():
    spec = rl.Spec("gru", I, H)
    rng = seeded("update", spec)
    first, other = module_of(spec, rng, batch_first=True), module_of(spec, rng)
    for rnn, source in ((rl.RNN(first), other), (rl.RNN(other), first),
                        (rl.RNN(other.state_dict()), first)):  # fmt: skip
        before = rnn._native.weights()
        with pytest.raises(
            rl.LayoutError, match=r"the source has batch_first=(True|False), this RN"
        ):
            rnn.update(source)
        assert same_bits(rnn._native.weights(), before)
        rnn.update(rl.Weights(source).tensors)  # as the error says
        assert same_bits(rnn._native.weights(), rl.pack(source))
    for axis in (False, True):
        rnn = rl.RNN(other, batch_first=axis)
        rnn.update(first)
        assert rnn.batch_first is axis
        assert same_bits(rnn._native.weights(), rl.pack(first))


@pytest.mark.parametrize("cell, options", FORMS)
def test_an_update_by_the_weights_of_a_keras_layer(cell, options):
    """The error's repair works for a source of any kind."""
    spec = rl.Spec(cell, I, H, 1, True, **options)
    layers = fill_keras(keras_layers(spec), seeded("repair", spec))
    rnn = rl.RNN(layers[0], batch_first=False)
    wanted = rnn._native.weights()
    zeros = {name: np.zeros(shape, "f4") for name, shape in rl.describe(spec, "onnx").items()}
    other = rl.RNN(zeros, spec)  # time first
    with pytest.raises(
        rl.LayoutError, match=r"pass the weights alone, rl.Weights\(source\).tensors"
    ):
        other.update(layers[0])
    other.update(rl.Weights(layers[0]).tensors)
    assert same_bits(other._native.weights(), wanted)


def test_weights_from_a_dict_do_not_say():
    weights = rl.Weights(normal_weights(rl.layout("torch"), rl.Spec("lstm", I, H)))
    assert weights.batch_first is None and not weights.rnn().batch_first
    assert weights.rnn(batch_first=True).batch_first
