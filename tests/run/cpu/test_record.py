"""A recorded call has the bits of a call, and its backward pass gives the gradients of autograd."""

import keras
import numpy as np
import pytest
import torch
from oracles import gradients as oracle
from oracles.bits import DTYPES
from oracles.frameworks import seeded
from oracles.some import same_bits
from run.cpu.running import every_kind, flat, inputs, rnn_of, small
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import rnnlayout as rl

FORWARD = "the forward pass"  # the layout of the weights' gradient
T, N, LENGTHS = 7, 5, [7, 0, 3, 7, 1]
# A gradient in float64 is a sum of at most 7 * 5 * 4 * 20 products, through at most 14 steps: each
# rounding is 1.1e-16 of a term, and the terms are at most 100 times the largest gradient.
FLOAT64 = 3000 * 14 * 1.2e-16 * 100


def net(cls, *args, **options):
    """Return a module of torch in float64, and the RNN of its weights."""
    torch.manual_seed(5)
    module = cls(*args, **options, dtype=torch.float64)
    return module, rl.RNN(module)


def close(found, wanted):
    """Is the largest difference within FLOAT64 of the largest gradient?"""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    return np.abs(found - wanted).max(initial=0) <= FLOAT64 * np.abs(wanted).max(initial=0)


NETS = [
    (torch.nn.LSTM, (3, 20, 2), {"bidirectional": True}),
    (torch.nn.LSTM, (9, 20), {"proj_size": 6}),
    (torch.nn.LSTM, (4, 16), {"bias": False}),
    (torch.nn.GRU, (9, 20, 2), {"bidirectional": True}),
    (torch.nn.GRU, (4, 3, 3), {}),
    (torch.nn.RNN, (5, 17, 2), {}),
    (torch.nn.RNN, (5, 8, 1), {"nonlinearity": "relu", "bidirectional": True}),
]


@pytest.mark.parametrize("lengths", [None, LENGTHS[0:1] + LENGTHS[2:]], ids=["full", "lengths"])
@pytest.mark.parametrize("cls, args, options", NETS)
def test_gradients_are_those_of_torch(cls, args, options, lengths):
    module, rnn = net(cls, *args, **options)
    n = N if lengths is None else len(lengths)
    x = torch.randn(T, n, args[0], dtype=torch.float64)
    shapes = [a.shape for a in flat(rnn(x))[1:]]
    first = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    leaves = [a.requires_grad_() for a in (x, *first)]
    state = tuple(leaves[1:]) if len(leaves) == 3 else leaves[1]
    if lengths is None:
        y, last = module(x, state)
    else:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        y, last = module(packed, state)
        y, _ = pad_packed_sequence(y, total_length=T)
    lasts = last if isinstance(last, tuple) else (last,)
    outputs = [torch.randn_like(a) for a in (y, *lasts)]
    sum((a * b).sum() for a, b in zip((y, *lasts), outputs, strict=True)).backward()
    detached = [leaf.detach() for leaf in leaves]
    state = tuple(detached[1:]) if len(detached) == 3 else detached[1]
    tape = rnn.record(detached[0], state, lengths=lengths)
    dy = outputs[0].clone()
    for sequence, length in enumerate(lengths or ()):
        dy[length:, sequence] = torch.nan  # is not read
    dlast = tuple(outputs[1:]) if len(outputs) == 3 else outputs[1]
    dx, dstate, dweights = tape.backward(dy, dlast)
    found = [dx, *(dstate if isinstance(dstate, tuple) else (dstate,))]
    assert all(close(a, b.grad) for a, b in zip(found, leaves, strict=True))
    moved = rl.convert(dweights, rnn.spec, layout=FORWARD, to="torch", kind="gradient")
    assert all(close(moved[name], p.grad) for name, p in module.named_parameters())


OTHERS = [
    rl.Spec("lstm", 4, 9, 2, True, dtype="float64", peepholes=True),
    rl.Spec("lstm", 4, 9, 1, True, dtype="float64", peepholes=True, proj_size=5),
    rl.Spec("gru", 4, 9, 2, True, dtype="float64", reset="before"),
]


@pytest.mark.parametrize("spec", OTHERS, ids=str)
def test_gradients_of_the_cells_that_torch_lacks(spec):
    rng = seeded("record", spec)
    shapes = rl.describe(spec, oracle.LAYOUT)
    tensors = {name: rng.normal(size=shape) / 3 for name, shape in shapes.items()}
    x = rng.normal(size=(T, N, spec.input_size))
    dy = rng.normal(size=(T, N, spec.num_directions * (spec.proj_size or spec.hidden_size)))
    rnn = rl.RNN(tensors, spec, layout=oracle.LAYOUT)
    dweights = rnn.record(x).backward(dy)[2]
    to_onednn = rl.convert(dweights, rnn.spec, layout=FORWARD, to=oracle.LAYOUT, kind="gradient")
    wanted = oracle.gradients(spec, tensors, x, dy)
    assert all(close(to_onednn[name], gradient) for name, gradient in wanted.items())


SETTINGS = [
    rl.Spec("lstm", 4, 9, 2, True, 5, dtype="float64"),
    rl.Spec("lstm", 4, 9, dtype="float64", recurrent_activation="hard_sigmoid"),
    rl.Spec("gru", 4, 9, dtype="float64", recurrent_activation="hard_sigmoid_keras2"),
    rl.Spec("gru", 9, 9, 2, dtype="float64", skip_input=True),
    rl.Spec("lstm", 9, 9, 1, True, dtype="float64", skip_input=True, bias="none"),
    rl.Spec("gru", 4, 9, 2, True, dtype="float64", reset="before", activation="relu"),
]


@pytest.mark.parametrize("spec", SETTINGS, ids=str)
def test_gradients_are_slopes(spec):
    """Along a line through the arguments the loss changes as the gradients say."""
    rng = seeded("slopes", spec)
    ((n,),) = rl.describe(spec, FORWARD).values()
    source = rng.normal(size=n) / 3
    rnn = rl.RNN(source, spec, layout=FORWARD)
    x = rng.normal(size=(T, N, spec.input_size))
    states = [rng.normal(size=np.shape(a)) for a in flat(rnn(x))[1:]]
    arguments = [x, *states, source]
    outputs = [rng.normal(size=np.shape(a)) for a in flat(rnn(x))]
    directions = [rng.normal(size=a.shape) for a in arguments]

    def pair(arrays):
        return tuple(arrays) if len(arrays) == 2 else arrays[0]

    def loss(step):
        moved = [a + step * d for a, d in zip(arguments, directions, strict=True)]
        result = rl.forward(
            moved[0], moved[-1], spec, layout=FORWARD, state=pair(moved[1:-1]), lengths=LENGTHS
        )
        return sum((a * b).sum() for a, b in zip(flat(result), outputs, strict=True))

    dx, dstate, dweights = rnn.record(x, pair(states), lengths=LENGTHS).backward(
        outputs[0], pair(outputs[1:])
    )
    gradients = [dx, *(dstate if isinstance(dstate, tuple) else (dstate,)), dweights]
    slope = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
    # h^2 times a third derivative, which is at most some hundreds of the loss's terms, and the
    # roundings of the loss, 1e-13, over h
    h = 1e-5
    size = sum(np.abs(g * d).sum() for g, d in zip(gradients, directions, strict=True))
    assert abs((loss(h) - loss(-h)) / (2 * h) - slope) <= 1e-7 * size


# ------------------------------------------------------------------------- bits, threads, memory


@every_kind
def test_a_recorded_call_has_the_bits_of_a_call(spec):
    rnn = rnn_of(spec)
    x, state = inputs(spec)
    lengths = [6, 0, 3, 6, 1, 2, 4, 5, 6, 6, 1]
    for options in ({}, {"lengths": lengths}):
        tape = rnn.record(x, state, **options)
        wanted = flat(rnn(x, state, **options))
        assert all(map(same_bits, flat((tape.y, tape.state)), wanted))
        assert tape.nbytes == rnn.tape_nbytes(6, 11) and "6 steps of 11 sequences" in repr(tape)


@every_kind
def test_gradients_do_not_depend_on_the_number_of_threads(spec):
    rnn = rnn_of(spec)
    x, state = inputs(spec)
    before = rl.num_threads()
    results = []
    for threads in (1, 2, 3):
        rl.set_num_threads(threads)
        tape = rnn.record(x, state, lengths=[6, 0, 3, 6, 1, 2, 4, 5, 6, 6, 1])
        dx, dstate, dweights = tape.backward(np.ones(np.shape(tape.y), gradient_dtype(spec)))
        results.append([dx, *(dstate if isinstance(dstate, tuple) else (dstate,)), dweights])
    rl.set_num_threads(before)
    for result in results[1:]:
        assert all(map(same_bits, result, results[0]))


def gradient_dtype(spec):
    return "float64" if spec.dtype == "float64" else "float32"


def test_gradients_of_float32_are_near_those_of_float64():
    """Within 1e-5 of the largest gradient, 100 roundings of 6e-8, for T * N = 320 rows."""
    torch.manual_seed(3)
    for cls in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        module = cls(24, 40)
        x = np.random.default_rng(2).normal(size=(20, 16, 24))
        narrow, wide = rl.RNN(module), rl.RNN(module.double())
        found = narrow.record(x.astype("f4")).backward(np.ones((20, 16, 40), "f4"))
        wanted = wide.record(x.astype("f4").astype("f8")).backward(np.ones((20, 16, 40)))
        for a, b in zip((found[0], found[2]), (wanted[0], wanted[2]), strict=True):
            assert a.dtype == np.float32 and np.abs(a - b).max() <= 1e-5 * np.abs(b).max()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_weights_have_gradients_in_float32(dtype):
    spec = rl.Spec("gru", 5, 7, dtype=dtype)
    rnn, x, h, _ = small(spec)
    weights = rnn_source(rnn).view(DTYPES[dtype][0])
    wide = rl.RNN(weights.astype("f4"), spec.replace(dtype="float32"))
    wanted = wide.record(x.astype("f4"), h.astype("f4"))
    for kind in (dtype, "float32"):
        tape = rnn.record(*(a.astype(DTYPES[kind][0]) for a in (x, h)))
        results = tape.backward(np.ones(tape.y.shape, "f4"))
        assert all(map(same_bits, results, wanted.backward(np.ones(tape.y.shape, "f4"))))


def test_gradients_are_added_to_an_array():
    rnn, x, h, c = small()
    tape = rnn.record(x, (h, c))
    dy = np.ones_like(tape.y)
    total = np.zeros(rnn.spec.num_params, "f4")
    first = tape.backward(dy)[2]
    assert tape.backward(dy, add_to=total)[2] is total and same_bits(total, first)
    tape.backward(dy, add_to=total)
    # the second sum begins with the first: a rounding per row
    assert np.abs(total - 2 * first).max() <= 1e-5 * np.abs(first).max()


def test_a_tape_keeps_the_weights_of_its_call():
    rnn, x, h, c = small()
    tape = rnn.record(x, (h, c))
    before = tape.backward(np.ones_like(tape.y))
    rnn.update(np.zeros(rnn.spec.num_params, "f4"))
    x[:] = 0
    after = tape.backward(np.ones_like(tape.y))
    assert all(map(same_bits, (before[0], *before[1], before[2]), (after[0], *after[1], after[2])))


def test_batch_first_and_no_batch():
    rnn, x, h, c = small()
    batch_first = rl.RNN(rnn_source(rnn), rnn.spec, batch_first=True)
    tape = rnn.record(x, (h, c))
    dy = np.random.default_rng(1).normal(size=tape.y.shape).astype("f4")
    dx, dstate, dweights = tape.backward(dy)
    turned = batch_first.record(x.swapaxes(0, 1), (h, c))
    assert same_bits(turned.y, np.ascontiguousarray(tape.y.swapaxes(0, 1)))
    other = turned.backward(dy.swapaxes(0, 1))
    assert same_bits(other[0], np.ascontiguousarray(dx.swapaxes(0, 1)))
    assert same_bits(other[2], dweights)
    single = rnn.record(x[:, 0], (h[:, 0], c[:, 0]))
    dx_single, (dh, _), _ = single.backward(dy[:, 0])
    assert same_bits(dx_single, np.ascontiguousarray(dx[:, 0]))
    assert same_bits(dh, np.ascontiguousarray(dstate[0][:, 0]))


def rnn_source(rnn):
    return rnn.__getstate__()[1]


@pytest.mark.parametrize("steps, batch", [(0, 3), (4, 0), (0, 0)])
def test_nothing_to_do(steps, batch):
    rnn, *_ = small()
    tape = rnn.record(np.zeros((steps, batch, 5), "f4"))
    dx, (dh, _), dweights = tape.backward(np.zeros((steps, batch, 7), "f4"))
    assert dx.shape == (steps, batch, 5) and dh.shape == (1, batch, 7) and not dweights.any()


# ------------------------------------------------------------------------------------- refusals


def test_what_does_not_fit_is_named():
    rnn, x, h, c = small()
    tape = rnn.record(x, (h, c))
    for arguments, text in [
        ((tape.y[:2],), r"dy: shape \(2, \d+, 7\), expected"),
        ((tape.y.astype("f8"),), "dy is float64, need float32"),
        ((tape.y, h), r"state is a ndarray, need \(h_0, c_0\)"),
        ((tape.y, (h[:, :1], c)), r"dstate h: shape"),
    ]:
        with pytest.raises(rl.LayoutError, match=text):
            tape.backward(*arguments)
    for wrong in (np.zeros(3, "f4"), np.zeros(rnn.spec.num_params), [0.0], tape.y):
        with pytest.raises(rl.LayoutError, match="add_to must be a writable, contiguous"):
            tape.backward(tape.y, add_to=wrong)
    with pytest.raises(rl.LayoutError, match=r"x: shape"):
        rnn.record(x[..., :2])


def test_what_cannot_be_recorded_is_named():
    spec = rl.Spec("lstm", 5, 7)
    weights = np.zeros(spec.num_params, "f4")
    x = np.zeros((2, 1, 5), "f4")
    with pytest.raises(rl.SpecError, match="a clip of the cell state cannot be recorded"):
        rl.RNN(weights, spec, cell_clip=(-1, 1)).record(x)
    with pytest.raises(rl.SpecError, match="arithmetic that rounds cannot be recorded"):
        rl.RNN(weights, spec, math="int8").record(x)
    layer = keras.layers.LSTM(7, go_backwards=True)
    layer.build((None, None, 5))
    with pytest.raises(rl.SpecError, match=r"record\(\) supports no go_backwards"):
        rl.RNN(layer).record(x)
