"""The settings of a source that change outputs are applied as in its framework, or refused."""

import pickle

import numpy as np
import onnxruntime
import pytest
import tf_keras
import torch
from oracles.bits import DTYPES
from oracles.frameworks import (
    FORMS,
    KERAS_NOISE,
    H,
    I,
    N,
    T,
    fill_keras,
    inputs,
    keras,
    keras_layers,
    run_keras,
    run_onnx,
    seeded,
)
from oracles.reference import Rounded, Run, distance_between, forward, from_onnx
from oracles.some import normal_weights, same_bits
from run.cpu.running import flat

import rnnlayout as rl

pytestmark = KERAS_NOISE
ONE, BOTH = rl.Spec("lstm", I, H), rl.Spec("lstm", I, H, 2, True)
BACKWARDS, REVERSE = {"go_backwards": True}, {"direction": "reverse"}


def weights_of(spec, config, seed=0):
    weights = rl.Weights(normal_weights("torch", spec, seed), spec)
    weights.config = dict(config)
    return weights


def turned(a):
    return np.ascontiguousarray(a.swapaxes(0, 1))


def state_of(h0, c0=None):
    return h0 if c0 is None else (h0, c0)


def run_first(rnn, x, *state):
    """Run an RNN whose x is (N, T, I)."""
    y, *last = flat(rnn(turned(x), state_of(*state)))
    return Run(y.swapaxes(0, 1), *last)


# ------------------------------------------------------------------- go_backwards and merge_mode


def both_backwards(kit):
    """Return a layer that is the usual one on x reversed; y stays in that order."""
    L, options = kit.layers, dict(return_sequences=True, return_state=True)
    layer = L.Bidirectional(
        L.LSTM(H, go_backwards=True, **options), backward_layer=L.LSTM(H, **options)
    )
    layer.build((None, None, I))
    return [layer]


def changed(spec, **settings):
    """Return a function that makes layers, the first one with other settings."""

    def make(kit):
        layers = keras_layers(spec, kit)
        for name, value in settings.items():
            setattr(layers[0], name, value)
        return layers

    return make


def merged(y, mode):
    """Return the reference's y with its directions merged, and the rounding of that."""
    a, b = y[..., :H], y[..., H:]
    if mode == "mul":
        return a * b
    both, half = a + b, 0.5 if mode == "ave" else 1  # halving is exact
    return Rounded(half * both.value, half * both.error, 1, np.abs(half * both.value))


def name_of(value):
    return getattr(value, "__name__", str(value))


STACK, GRUS = rl.Spec("gru", I, H, 2), rl.Spec("gru", I, H, 1, True)
OF_KERAS = [
    *((rl.Spec(cell, I, H, **options), BACKWARDS, None) for cell, options in FORMS),
    (rl.Spec("lstm", I, H, 1, True), BACKWARDS, both_backwards),
    (STACK, BACKWARDS, None),  # the first layer reverses x for all
    *((GRUS, {"merge_mode": mode}, None) for mode in ("sum", "mul", "ave")),
]


@pytest.mark.parametrize("kit", [keras, tf_keras], ids=["keras", "tf_keras"])
@pytest.mark.parametrize("spec, settings, make", OF_KERAS, ids=name_of)
def test_a_setting_of_keras_layers(kit, spec, settings, make):
    rng = seeded("settings", spec, *settings.values())
    layers = fill_keras((make or changed(spec, **settings))(kit), rng)
    x, *state = given = inputs(rng, spec)
    rnn = rl.RNN(layers)
    (name, value) = next(iter(settings.items()))
    assert f"{name}={value!r}" in repr(rnn)
    ours, theirs = run_first(rnn, *given), run_keras(layers, *given)
    tensors = rl.convert([a for layer in layers for a in layer.get_weights()], spec,
                         layout="keras", to="onnx")  # fmt: skip
    expected = forward(from_onnx(tensors, spec), spec, x[::-1] if value is True else x, *state)
    if name == "merge_mode":
        expected = Run(merged(expected.y, value), expected.h)
    assert distance_between(theirs, ours, expected) <= 1  # reference.Rounded
    y, _ = rl.forward(turned(x), layers, state=state_of(*state))
    assert same_bits(y.swapaxes(0, 1), ours.y)
    y, _ = rnn(x[:, 0], state_of(*(a[:, 0] for a in state if a is not None)))
    assert np.array_equal(y, ours.y[:, 0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode, merge", [
    ("sum", lambda a, b: a + b), ("mul", lambda a, b: a * b), ("ave", lambda a, b: (a + b) / 2),
])  # fmt: skip
def test_a_merge_rounds_once(mode, merge, dtype):
    spec = BOTH.replace(dtype=dtype)
    weights = weights_of(spec, {})
    x = np.random.default_rng(1).normal(size=(T, N, I)).astype(DTYPES[dtype][0])
    lengths = [0, 3, T, 1, 2, T, 4, 0, 3]
    plain, last = weights.rnn()(x, lengths=lengths)
    weights.config = {"merge_mode": mode}
    y, found = weights.rnn()(x, lengths=lengths)
    # In float64 the sum and the product are exact to far more than these dtypes hold, or, for
    # float64, rounded as they should be.
    exact = merge(*np.split(plain.astype("f8"), 2, axis=-1))
    assert y.dtype == x.dtype and same_bits(y, exact.astype(x.dtype))
    assert all(map(same_bits, found, last))


# ------------------------------------------------------------------------------ direction="reverse"


@pytest.mark.parametrize("cell, options", FORMS)
def test_an_onnx_operator_in_reverse(cell, options):
    spec = rl.Spec(cell, I, H, **options)
    rng = seeded("reverse", spec)
    layer = fill_keras(keras_layers(spec), rng)
    tensors = rl.convert(layer[0].get_weights(), spec, layout="keras", to="onnx")
    weights = rl.Weights(dict(tensors), spec, "onnx")
    weights.config = dict(REVERSE)
    x, *state = given = inputs(rng, spec)
    theirs = run_onnx(tensors, spec, *given, direction="reverse")
    ours = Run(*flat(weights.rnn()(x, state_of(*state))))
    expected = forward(from_onnx(tensors, spec), spec, x[::-1], *state)
    flipped = Run(expected.y[::-1], expected.h, expected.c)
    assert distance_between(theirs, ours, flipped) <= 1  # reference.Rounded


# --------------------------------------------------------------------------- arrays, and the object


def some(spec):
    x, h, c = inputs(seeded("some"), spec)
    return x, (h, c)


CONFIGS = [
    (ONE, BACKWARDS),
    (ONE, REVERSE),
    (BOTH, BACKWARDS),
    (BOTH, {"merge_mode": "sum"}),
    (BOTH, {"merge_mode": "mul", **BACKWARDS}),
]
every_config = pytest.mark.parametrize("spec, config", CONFIGS, ids=str)


@every_config
@pytest.mark.parametrize("first", [False, True])
def test_outputs_of_the_caller(spec, config, first):
    rnn = weights_of(spec, config).rnn(batch_first=first)
    x, state = some(spec)
    x = turned(x) if first else x
    y, last = rnn(x, state)
    outs = [np.empty_like(a) for a in (y, *last)]
    found, ends = rnn(x, state, out=outs[0], h_out=outs[1], c_out=outs[2])
    assert found is outs[0] and ends[0] is outs[1] and ends[1] is outs[2]
    assert all(map(same_bits, outs, (y, *last)))
    with pytest.raises(rl.LayoutError, match=r"out: shape \(1,"):
        rnn(x, state, out=np.empty((1, *y.shape[1:]), "f4"))
    tensors, (h_n, _) = rnn(torch.tensor(x), tuple(map(torch.tensor, state)))
    assert same_bits(tensors.numpy(), y) and same_bits(h_n.numpy(), last[0])


def test_an_update_keeps_the_settings():
    x, state = some(ONE)
    new = weights_of(ONE, {}, seed=5)
    rnn = weights_of(ONE, BACKWARDS).rnn()
    before = rnn(x, state)[0]
    other = "has batch_first=False, direction='reverse', this RNN batch_first=False, go_backwards"
    with pytest.raises(rl.LayoutError, match=other):
        rnn.update(weights_of(ONE, REVERSE, seed=5))
    with pytest.raises(rl.LayoutError, match="pass the weights alone"):  # it says: forward
        rnn.update(torch.nn.LSTM(I, H))
    assert same_bits(rnn(x, state)[0], before)
    new.config = dict(BACKWARDS)
    wanted = new.rnn()(x, state)[0]
    new.config = {}
    for source in (dict(new), weights_of(ONE, BACKWARDS, seed=5), new):
        rnn = weights_of(ONE, BACKWARDS).rnn()
        rnn.update(source)
        assert same_bits(rnn(x, state)[0], wanted)


# ---------------------------------------------------------------------------------- initial states


def starting(spec, tmp_path, once):
    """Return an RNN with constant initial states, x, the states, and what onnxruntime computes.

    once: whether the states are the same for all sequences.
    """
    rng = seeded("initial", spec, once)
    x, *states = inputs(rng, spec)
    names = ["initial_h", "initial_c"][: 2 if spec.cell == "lstm" else 1]
    held = [(state[:, :1] if once else state).astype("f8") for state in states[: len(names)]]
    weights = weights_of(spec, {}).to("onnx")
    weights.config = {name: state.tolist() for name, state in zip(names, held, strict=True)}
    rl.save(tmp_path / "m.onnx", weights)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    assert [given.name for given in session.get_inputs()] == ["X"]
    (found,) = rl.load(tmp_path / "m.onnx").values()
    theirs = session.run(None, {"X": x})
    return rl.RNN(found), x, states, theirs


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("spec", [ONE, rl.Spec("gru", I, H, 3), rl.Spec("lstm", I, H, 2, True)])
def test_a_call_without_a_state_starts_from_the_source_s_own(spec, once, tmp_path):
    rnn, x, states, theirs = starting(spec, tmp_path, once)
    assert "initial_h" in repr(rnn)
    y, *lasts = flat(rnn(x))
    assert same_bits(pickle.loads(pickle.dumps(rnn))(x)[0], y)
    # sums of I + H + 2 products below 4 of numbers below 2, in T steps, and tanh of a slope of 1
    atol = 4 * T * spec.num_layers * (I + H + 2) * 2.0**-24
    for ours, wanted in zip([y, *lasts], theirs, strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=0, atol=atol)
    if not once:
        assert same_bits(y, rnn(x, state_of(*states[: len(lasts)]))[0])
    assert not same_bits(y, rnn(x, state_of(*(0 * last for last in lasts)))[0])


def test_a_step_and_a_live_signal_start_from_it_too(tmp_path):
    rnn, x, _, _ = starting(rl.Spec("lstm", I, H, 2), tmp_path, once=True)
    y, (h, _) = rnn(x)
    step, state = rnn.step(x[0])
    assert same_bits(step, y[0]) and same_bits(rnn.step(x[1], state)[0], y[1])
    live = rnn.stepper()
    assert same_bits(live(np.ascontiguousarray(x[:, 0])), y[:, 0])
    assert same_bits(live.state[0], h[:, 0])


def test_other_initial_states(tmp_path):
    """Of another number of sequences; with the axes (N, L D, H) of layout 1, which onnxruntime does
    not run; one of two."""
    rnn, x, states, _ = starting(ONE, tmp_path, once=False)
    with pytest.raises(rl.LayoutError, match=f"initial_h of {N} sequences, x has 1: pass state="):
        rnn(x[:, :1])
    y, _ = rnn(x[:, :1], tuple(state[:, :1] for state in states))
    assert same_bits(y, rnn(x)[0][:, :1])
    x, (h, c) = some(BOTH)
    config = {"initial_h": turned(h).tolist(), "initial_c": turned(c).tolist(), "layout": 1}
    y, _ = weights_of(BOTH, config).rnn(batch_first=False)(x)
    assert same_bits(y, weights_of(BOTH, {}).rnn()(x, (h, c))[0])
    x, (h, c) = some(ONE)
    y, _ = weights_of(ONE, {"initial_c": [[[0.5] * H]]}).rnn()(x)
    assert same_bits(y, weights_of(ONE, {}).rnn()(x, (0 * h, np.full_like(c, 0.5)))[0])


# ----------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    "spec, config",
    [
        (ONE, {"clip": 3.0}),
        (ONE, {"cell_clip": 0.0}),
        (ONE, {"initial_h": [[[0.5] * (H + 1)] * N]}),
        (rl.Spec("gru", I, H), {"initial_c": [[[0.5] * H]]}),
        (ONE, {"sequence_lens": [1, 2]}),
        (ONE, {"merge_mode": "sum"}),
        (ONE, {"go_backwards": "yes"}),
        (BOTH, {"merge_mode": None}),
        (BOTH, {"direction": "reverse"}),
    ],
    ids=str,
)
def test_what_is_not_applied_is_refused(spec, config):
    weights = weights_of(spec, {"stateful": True, **config})
    key = next(iter(config))
    x, _ = some(spec)
    for call in (weights.rnn, lambda: rl.RNN(weights), lambda: rl.forward(x, weights)):
        with pytest.raises(rl.LossyError, match=rf"{key}=.*; del w.config\['{key}'\]; rl.RNN\(w\)"):
            call()
    w = rl.Weights(weights)  # as the error says
    del w.config[key]
    assert same_bits(rl.RNN(w)(x)[0], weights_of(spec, {}).rnn()(x)[0])


@pytest.mark.parametrize("config", [BACKWARDS, REVERSE], ids=str)
def test_lengths_and_steps_of_a_reversed_x_are_refused(config):
    rnn = weights_of(ONE, config).rnn()
    x, _ = some(ONE)
    with pytest.raises(rl.LayoutError, match=r"lengths cannot be used with .*: pass mask"):
        rnn(x, lengths=[1] * N)
    with pytest.raises(rl.SpecError, match=r"step\(\) needs the steps in order"):
        rnn.step(x[0])


def test_no_setting_changes_nothing():
    x, _ = some(BOTH)
    wanted = weights_of(BOTH, {}).rnn()(x)[0]
    config = {"merge_mode": "concat", "go_backwards": False, "stateful": True,
              "direction": "bidirectional"}  # fmt: skip
    rnn = weights_of(BOTH, config).rnn()
    assert same_bits(rnn(x)[0], wanted) and repr(rnn) == f"<RNN of {BOTH}, on cpu>"
