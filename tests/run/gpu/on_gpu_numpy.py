"""Programs for fake_gpu.py: RNNs on a GPU, arrays of the host."""

import itertools
import pickle
import random

import numpy as np
import pytest
from oracles.bits import DTYPES
from run.gpu.fake_gpu import (
    BIASES,
    GRU,
    LSTM,
    NEAR,
    Device,
    H,
    I,
    N,
    P,
    T,
    assert_near,
    flat,
    has_bfloat16,
    has_empty,
    inputs,
    on_device,
    weights_of,
)

import rnnlayout as rl

LENGTHS = [  # of T steps and N sequences; cuDNN 9.1 supports no length of 0 beside others
    lambda rng, T, N: None,
    lambda rng, T, N: [T] * N,
    lambda rng, T, N: [T - 1] * N,
    lambda rng, T, N: [0] * N,
    lambda rng, T, N: [rng.randint(1, T - 1) for _ in range(N)],
    lambda rng, T, N: [rng.randint(not has_empty(), T) for _ in range(N)],
]


def random_spec(rng):
    cell, skip = rng.choice(["lstm", "gru", "rnn_tanh", "rnn_relu"]), rng.random() < 0.25
    dtypes = [dtype for dtype in DTYPES if dtype != "bfloat16" or has_bfloat16()]
    return rl.Spec(
        cell, H if skip else I, H, rng.randint(1, 2), rng.random() < 0.5,
        P if cell == "lstm" and rng.random() < 0.5 else 0, rng.choice(BIASES),
        skip_input=skip, dtype=rng.choice(dtypes),
    )  # fmt: skip


def every_kind():
    """Random RNNs and calls, on arrays of the host, of the device, and with the states in place."""
    device, rng = Device(), random.Random(1)
    for place, lengths_of in itertools.product(("host", "device", "in place"), LENGTHS * 12):
        spec, batch_first, T, N = random_spec(rng), rng.random() < 0.5, *rng.sample(range(2, 6), 2)
        weights = weights_of(spec)
        cpu, gpu = (rl.RNN(weights, spec, device=d, batch_first=batch_first)
                    for d in ("cpu", "cuda"))  # fmt: skip
        assert gpu._native.weights().tobytes() == weights.tobytes()
        x, state = inputs(spec, T, N, batch_first)
        state = None if place != "in place" and rng.random() < 0.3 else state
        lengths = lengths_of(rng, T, N)
        right, named = cpu(x, state, lengths=lengths), {}
        if place != "host":
            x = on_device(device, x)
            state = map_state(lambda a: on_device(device, a), state)
        if place == "in place":
            states = state if spec.cell == "lstm" else (state,)
            named = dict(zip(("h_out", "c_out"), states, strict=False), stream=1)
        y, last = gpu(x, state, lengths=lengths, **named)
        if place == "in place":
            device.sync()
            pairs = zip(states, flat(right)[1:], strict=True)
            found = [device.read(a.address, like) for a, like in pairs]
            last = tuple(found) if spec.cell == "lstm" else found[0]
        assert_near((y, last), right, spec)
    assert device.live("pushed") == 0


def map_state(do, state):
    if state is None:
        return None
    return tuple(map(do, state)) if isinstance(state, tuple) else do(state)


def numpy_arrays():
    """Outputs of any strides, no batch, no steps, steps, torch's tensors; options; pickles."""
    import torch

    cpu, gpu = (rl.RNN(weights_of(LSTM), LSTM, device=d) for d in ("cpu", "cuda:0"))
    assert (gpu.device, gpu.algo, gpu.math) == ("cuda:0", "auto", "default")
    assert repr(gpu) == "<RNN of lstm, input_size 5, hidden_size 7, on cuda:0>"
    x, (h, c) = inputs(LSTM)
    right = cpu(x, (h, c))
    room = np.zeros((T, N, 2 * H), "f4")
    out, h_out = room[..., :H], np.zeros((1, N, 2 * H), "f4")[..., ::2]
    y, (h_n, c_n) = gpu(x, (h, c), out=out, h_out=h_out)
    assert y is out and h_n is h_out and not room[..., H:].any()
    assert_near((y, (h_n, c_n)), right, LSTM)
    assert_near(gpu(x[::-1], (h, c)), cpu(x[::-1], (h, c)), LSTM)
    y, last = gpu(torch.from_numpy(x), (h, c))
    assert all(type(a) is torch.Tensor and a.device.type == "cpu" for a in (y, *last))
    assert_near((y.numpy(), tuple(a.numpy() for a in last)), right, LSTM)
    back = rl.Weights(rl.unpack(weights_of(LSTM), LSTM, to="torch"))
    back.config = {"go_backwards": True}
    assert_near(back.rnn(device="cuda")(x, (h, c)), cpu(x[::-1], (h, c)), LSTM)
    back.config = {"direction": "reverse"}
    y, last = cpu(x[::-1], (h, c))
    assert_near(back.rnn(device="cuda")(x, (h, c)), (y[::-1], last), LSTM)
    merged = rl.Weights(rl.unpack(weights_of(GRU), GRU, to="torch"))
    merged.config = {"merge_mode": "sum"}
    assert_near(merged.rnn(device="cuda")(x), merged.rnn()(x), GRU)
    assert_near(gpu(x[:, 0]), cpu(x[:, 0]), LSTM)
    state = h.copy(), c.copy()
    for x_t, right_y in zip(x, right[0], strict=True):
        y, state = gpu.step(x_t, state, h_out=state[0], c_out=state[1])
        np.testing.assert_allclose(y, right_y, atol=NEAR["float32"])
    assert_near((right[0], state), right, LSTM)
    assert_near(gpu(x[:0], (h, c)), cpu(x[:0], (h, c)), LSTM)
    assert_near(gpu(x[:, :0]), cpu(x[:, :0]), LSTM)
    assert_near(gpu(x, (h, c), lengths=[0, 0, 0]), cpu(x, (h, c), lengths=[0, 0, 0]), LSTM)
    assert_near(rl.forward(x, weights_of(LSTM), LSTM, device="cuda", state=(h, c)), right, LSTM)
    again = pickle.loads(pickle.dumps(rl.RNN(weights_of(GRU), GRU, device="cuda", math="tf32")))
    assert (again.device, again.math, again.spec) == ("cuda:0", "tf32", GRU)
    assert again._native.weights().tobytes() == weights_of(GRU).tobytes()
    gpu.update(weights_of(LSTM) / 2)
    assert_near(gpu(x), rl.RNN(weights_of(LSTM) / 2, LSTM)(x), LSTM)
    if not has_bfloat16():
        return
    half = LSTM.replace(dtype="bfloat16")
    copied = pickle.loads(pickle.dumps(rl.RNN(weights_of(half), half, device="cuda")))
    assert copied._native.weights().tobytes() == weights_of(half).tobytes()


def options():
    """An error names what the GPU lacks; "auto" uses the CPU for it."""
    flat = weights_of(LSTM)
    before = rl.Spec("gru", I, H, reset="before")
    tensors = {name: np.ones(s, "f4") for name, s in rl.describe(before, "keras").items()}
    for wrong, text in [
        (dict(math="bfloat16"), "math is 'bfloat16', need 'default' or 'tf32' on cuda:0"),
        (dict(algo="fast"), "algo is 'fast', need 'auto' or 'standard' on cuda:0"),
        (dict(cell_clip=7), r"cell_clip is 7, need \(low, high\), two numbers"),
    ]:
        with pytest.raises(rl.SpecError, match=text):
            rl.RNN(flat, LSTM, device="cuda", **wrong)
    lacks = "device is 'cuda:0', but cudnn has no reset-before GRU.*use device='cpu'$"
    with pytest.raises(rl.SpecError, match=lacks):
        rl.RNN(tensors, before, layout="keras", device="cuda")
    with pytest.raises(rl.CudnnNotFoundError, match="cuda:1 cannot be used: this GPU does not exi"):
        rl.RNN(flat, LSTM, device="cuda:1")
    auto = rl.RNN(flat, LSTM, device="auto")
    assert auto.device == "cuda:0" and pickle.loads(pickle.dumps(auto)).device == "cuda:0"
    assert rl.RNN(flat, LSTM, device="auto", math="tf32").device == "cuda:0"
    assert rl.RNN(flat, LSTM, device="auto", math="bfloat16").device == "cpu"
    assert rl.RNN(flat, LSTM, device="auto", cell_clip=(-1, 1)).device == "cpu"
    assert rl.RNN(tensors, before, layout="keras", device="auto").device == "cpu"
    with pytest.raises(rl.SpecError, match=r"^math is 'tf32', need .* on the CPU$"):
        rl.RNN(tensors, before, layout="keras", device="auto", math="tf32")
