"""Masks: a step that does not count keeps the state, and y of the step is as in Keras."""

from itertools import product

import numpy as np
import pytest
import torch
from oracles.frameworks import KERAS_NOISE, call_keras, fill_keras, keras, keras_layer, seeded
from oracles.some import normal_weights, same_bits
from run.cpu.running import SMALL, flat, same, small

import rnnlayout as rl

pytestmark = KERAS_NOISE
T, N, I, H = 7, 6, 3, 5  # noqa: E741
CELLS = {
    "lstm": rl.Spec("lstm", I, H),
    "gru after": rl.Spec("gru", I, H),
    "gru before": rl.Spec("gru", I, H, reset="before"),
    "rnn": rl.Spec("rnn_tanh", I, H),
    "rnn relu": rl.Spec("rnn_relu", I, H),
    "lstm relu": rl.Spec("lstm", I, H, activation="relu"),
}
MERGES = ["concat", "sum", "mul", "ave"]


def kits():
    import tf_keras

    return {"keras": keras, "tf_keras": tf_keras}


def steps_before(lengths):
    return np.arange(T) < np.asarray(lengths)[:, None]


def masks():
    """Return masks (N, T) by name. Each has a row without a step that counts."""
    rng = seeded("masks")
    lengths = np.array([T, 3, 0, 1, 5, 2])
    gaps = np.ones((N, T), bool)
    gaps[:, 2:4] = gaps[0, 0] = gaps[1, -1] = gaps[2] = False
    random = rng.random((N, T)) < 0.6
    random[0] = False
    return {
        "back": steps_before(lengths),
        "front": ~steps_before(T - lengths),
        "gaps": gaps,
        "random": random,
        "none": np.zeros((N, T), bool),
        "all": np.ones((N, T), bool),
    }


MASKS = masks()
EVERY_MASK = np.concatenate([*MASKS.values()])  # in one batch


def keras_stack(spec, kit, merge="concat", **options):
    """Return the layers of a stack, behind one mask, filled with random weights. options: of the
    last layer."""
    layers, width = [], I
    for k in range(spec.num_layers):
        layer = keras_layer(spec, kit)
        for name, value in options.items() if k == spec.num_layers - 1 else ():
            setattr(layer, name, value)
        if spec.bidirectional:
            mode = merge if k == spec.num_layers - 1 else "concat"
            layer = kit.layers.Bidirectional(layer, merge_mode=mode)
        layer.build((None, None, width))
        width = spec.num_directions * spec.hidden_size
        layers.append(layer)
    return fill_keras(layers, seeded("masked", spec, merge))


def run_keras_masked(layers, x, states, mask):
    """Return y of the last layer, and the states of all layers."""
    y, last = x, []
    per_layer = len(states) // len(layers)
    for k, layer in enumerate(layers):
        y, *state = call_keras(layer, y, states[k * per_layer : (k + 1) * per_layer], mask)
        last += state
    return [y, *last]


def first_states(spec, n=N):
    number, rng = spec.num_layers * spec.num_directions * (1 + (spec.cell == "lstm")), seeded("h")
    return [rng.normal(size=(n, H)).astype("f4") for _ in range(number)]


def run_ours(layers, x, states, mask, is_lstm):
    h_0 = np.stack(states[::2] if is_lstm else states)
    state = (h_0, np.stack(states[1::2])) if is_lstm else h_0
    y, *last = flat(rl.forward(x, layers, state=state, mask=mask))
    return [y, *(a for pair in zip(*last, strict=True) for a in pair)]


def largest_difference(spec, kit, mask, merge="concat", **options):
    """Return the largest difference of y and of the last states to Keras's, divided by the largest
    value if that is more than 1."""
    layers, x = keras_stack(spec, kit, merge, **options), seeded("x").normal(size=(*mask.shape, I))
    x = x.astype("f4")
    states = first_states(spec, len(mask))
    theirs = run_keras_masked(layers, x, states, mask)
    ours = run_ours(layers, x, states, mask, spec.cell == "lstm")
    if options.get("return_sequences") is False:
        if not spec.bidirectional:
            assert np.abs(ours[0][:, -1] - theirs[0]).max() < TOLERANCE
        ours[0] = last_output(spec, ours, mask, merge)
    return max(
        np.abs(a - b).max() / max(1, np.abs(b).max()) for a, b in zip(ours, theirs, strict=True)
    )


def last_output(spec, results, mask, merge):
    """Return what forward.md says that return_sequences=False is: h_n, 0 where nothing counts."""
    per_direction, D = 1 + (spec.cell == "lstm"), spec.num_directions
    h_n = [h * mask.any(1)[:, None] for h in results[-D * per_direction :: per_direction]]
    if D == 1 or merge == "concat":
        return np.concatenate(h_n, 1)
    return {"sum": h_n[0] + h_n[1], "mul": h_n[0] * h_n[1], "ave": (h_n[0] + h_n[1]) / 2}[merge]


# Values are about 1 in size, and each of L T = 21 steps rounds a sum of at most 11 terms:
# 21 * 11 * 2**-24 = 1.4e-5. A wrong step differs by 0.01 and more.
TOLERANCE = 1.4e-5
every_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
every_kit = pytest.mark.parametrize("kit", ["keras", "tf_keras"])


@pytest.mark.parametrize("cell", CELLS)
@every_kit
def test_one_direction_repeats_the_last_output(kit, cell):
    assert largest_difference(CELLS[cell], kits()[kit], EVERY_MASK) < TOLERANCE


BOTH = [(cell, "concat") for cell in CELLS] + [("lstm", merge) for merge in MERGES[1:]]


@pytest.mark.parametrize("cell, merge", BOTH)
@every_kit
def test_both_directions_are_zero_where_masked(kit, cell, merge):
    spec = CELLS[cell].replace(bidirectional=True)
    assert largest_difference(spec, kits()[kit], EVERY_MASK, merge) < TOLERANCE


@every_kit
def test_backwards(kit):
    """y is in the order of computation, in which the last output is repeated."""
    spec = CELLS["gru after"]
    assert largest_difference(spec, kits()[kit], EVERY_MASK, go_backwards=True) < TOLERANCE


@every_kit
def test_the_last_output_alone(kit):
    """return_sequences=False: the last output, zero without any; h_n is then h_0."""
    spec, kit = CELLS["lstm"], kits()[kit]
    assert largest_difference(spec, kit, EVERY_MASK, return_sequences=False) < TOLERANCE


@pytest.mark.long
@pytest.mark.parametrize("cell", CELLS)
@every_kit
def test_every_stack(kit, cell):
    for num_layers, merge, whole in product([1, 3], [None, *MERGES], [True, False]):
        spec = CELLS[cell].replace(num_layers=num_layers, bidirectional=merge is not None)
        options = {"return_sequences": whole}
        difference = largest_difference(spec, kits()[kit], EVERY_MASK, merge, **options)
        assert difference < TOLERANCE, (spec, merge, whole)


# ------------------------------------------------------------------------------ without a framework


@every_mask
def test_any_cell_on_either_axis(mask):
    """Of a source that is not of Keras, masked steps are zero, bit for bit as with lengths."""
    spec = rl.Spec("lstm", 5, 7, 2, bidirectional=True, proj_size=3)
    rnn = rl.RNN(normal_weights("torch", spec), batch_first=True)
    x = seeded("any").normal(size=(N, T, 5)).astype("f4")
    y, *last = flat(rnn(x, mask=mask))
    for n, row in enumerate(mask):
        alone = np.zeros_like(y[n])
        alone[row], *states = flat(rnn(x[n][row]))
        assert same_bits(y[n], alone) and all(map(same_bits, [a[:, n] for a in last], states))
    time_first = rl.RNN(normal_weights("torch", spec), batch_first=False)
    again = flat(time_first(x.swapaxes(0, 1), mask=mask.T))
    assert all(map(same_bits, [y.swapaxes(0, 1), *last], again))
    lengths = mask.sum(1)
    packed = np.zeros_like(x)
    for n, row in enumerate(mask):
        packed[n, : lengths[n]] = x[n][row]
    by_lengths = flat(rnn(packed, lengths=lengths))
    assert all(map(same_bits, last, by_lengths[1:]))
    assert same_bits(y[mask], by_lengths[0][steps_before(lengths)])


def test_kinds_of_masks_and_arrays():
    rnn, x, h, c = small()
    mask = seeded("kinds").random(x.shape[:-1]) < 0.5
    wanted = rnn(x, (h, c), mask=mask)
    assert same(wanted, rnn(x, (h, c), mask=mask.tolist()))
    assert same(wanted, rnn(x, (h, c), mask=torch.from_numpy(mask)))
    tensors = [torch.from_numpy(a) for a in (x, h, c)]
    y, _ = rnn(tensors[0], tuple(tensors[1:]), mask=mask)
    assert isinstance(y, torch.Tensor) and same_bits(y.numpy(), wanted[0])
    out = np.full_like(wanted[0], 9)
    assert rnn(x, (h, c), mask=mask, out=out, h_out=h, c_out=c)[0] is out
    assert same((out, (h, c)), wanted)
    assert same(rnn(x, mask=np.ones_like(mask)), rnn(x))
    alone = rnn(x[:, 0], mask=mask[:, 0])
    assert same_bits(alone[0], rnn(x, mask=mask)[0][:, 0])
    never = rnn(x[:, 0], (h[:, 0], c[:, 0]), mask=np.zeros(len(x), bool))
    assert not never[0].any() and all(map(same_bits, never[1], (h[:, 0], c[:, 0])))
    assert rnn(x[:0], mask=mask[:0])[0].shape == (0, *wanted[0].shape[1:])


def test_masked_values_are_never_read():
    rnn, x, _, _ = small()
    mask = seeded("nan").random(x.shape[:-1]) < 0.5
    assert np.isfinite(rnn(np.where(mask[..., None], x, np.float32(np.nan)), mask=mask)[0]).all()


@pytest.mark.parametrize(
    "mask, lengths, match",
    [
        (np.ones((4, 3), bool), [1, 2, 3], "mask and lengths both say which steps count: omit"),
        (np.ones((3, 4), bool), None, r"mask: shape \(3, 4\), expected \(4, 3\).*: pass mask.T"),
        (np.ones(4, bool), None, r"mask: shape \(4,\), expected \(4, 3\), the shape of x"),
        (np.ones((4, 3)), None, "mask is float64, need bool, .*: pass mask != 0"),
        ([[True], [True, False]], None, "mask is not an array: list"),
        (True, None, r"mask: shape \(\), expected \(4, 3\)"),
    ],
)
def test_masks_that_are_refused(mask, lengths, match):
    rnn, x, _, _ = small()
    assert x.shape == (4, 3, 5)
    with pytest.raises(rl.LayoutError, match=match):
        rnn(x, mask=mask, lengths=lengths)


def test_a_direction_that_lengths_cannot_have():
    weights = rl.Weights(normal_weights("torch", SMALL))
    weights.config = {"direction": "reverse"}
    x, mask = seeded("reverse").normal(size=(4, 3, 5)).astype("f4"), np.ones((4, 3), bool)
    mask[2:, 1] = mask[0, 2] = False
    rnn = weights.rnn()
    with pytest.raises(rl.LayoutError, match="padding first: pass mask"):
        rnn(x, lengths=[4, 2, 4])
    y, _ = rnn(x, mask=mask)
    assert same_bits(y[:2, 1], rnn(x[:2, 1])[0]) and not y[2:, 1].any()
    assert same_bits(y[1:, 2], rnn(x[1:, 2])[0]) and not y[0, 2].any()
