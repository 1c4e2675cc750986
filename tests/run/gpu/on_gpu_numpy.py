"""Programs for fake_gpu.py: RNNs on a GPU, arrays of the host."""

import itertools
import pickle

import numpy as np
from oracles.bits import DTYPES
from run.gpu.fake_gpu import (
    BIASES,
    GRU,
    LENGTHS,
    LSTM,
    NEAR,
    Device,
    H,
    I,
    N,
    P,
    T,
    assert_near,
    inputs,
    is_old,
    weights_of,
)

import rnnlayout as rl


def numpy_equals_the_cpu(cells):
    """Every cell, bias mode, direction, projection, lengths, axes and dtype."""
    for cell, bias, both, proj, dtype in itertools.product(
        cells, BIASES, (False, True), (0, P), DTYPES
    ):
        if proj and cell != "lstm":
            continue
        spec = rl.Spec(cell, I, H, 2, both, proj, bias, dtype=dtype)
        flat = weights_of(spec)
        for batch_first in (False, True):
            cpu, gpu = (
                rl.RNN(flat, spec, device=d, batch_first=batch_first) for d in ("cpu", "cuda")
            )
            x, state = inputs(spec, batch_first=batch_first)
            for lengths in (None, LENGTHS):
                assert_near(gpu(x, state, lengths=lengths), cpu(x, state, lengths=lengths), spec)
        assert_near(gpu(x), cpu(x), spec)
    clipped = dict(cell_clip=(-0.05, 0.1))
    for proj, lengths in itertools.product((0, P), (None, LENGTHS)):
        spec = rl.Spec("lstm", I, H, 2, proj_size=proj)
        cpu, gpu = (rl.RNN(weights_of(spec), spec, device=d, **clipped) for d in ("cpu", "cuda"))
        x, (h, c) = inputs(spec)
        state = h, c.clip(-0.05, 0.1)  # c_0 beyond the bounds: cuDNN clips it first
        assert_near(gpu(x, state, lengths=lengths), cpu(x, state, lengths=lengths), spec)
    assert Device().live("pushed") == 0


def plain():
    numpy_equals_the_cpu(["gru", "rnn_tanh", "rnn_relu"])


def lstm():
    numpy_equals_the_cpu(["lstm"])


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
    if is_old():
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
        (
            dict(algo="fast"),
            "algo is 'fast', need 'auto', 'standard', 'persist_static' or 'persist_small' on",
        ),
        (dict(cell_clip=(1, -1)), "clip"),
        (dict(cell_clip=7), "cell_clip is 7, need (low, high), two numbers"),
    ]:
        try:
            rl.RNN(flat, LSTM, device="cuda", **wrong)
        except rl.SpecError as error:
            assert text in str(error), error
        else:
            raise AssertionError(wrong)
    try:
        rl.RNN(tensors, before, layout="keras", device="cuda")
    except rl.SpecError as error:
        assert "device is 'cuda:0', but cudnn has no reset-before GRU" in str(error), error
        assert str(error).endswith("use device='cpu'")
    try:
        rl.RNN(flat, LSTM, device="cuda:1")
    except rl.CudnnNotFoundError as error:
        assert "cuda:1 cannot be used: this GPU does not exist" in str(error), error
    auto = rl.RNN(flat, LSTM, device="auto")
    assert auto.device == "cuda:0" and pickle.loads(pickle.dumps(auto)).device == "cuda:0"
    assert rl.RNN(flat, LSTM, device="auto", math="tf32").device == "cuda:0"
    assert rl.RNN(flat, LSTM, device="auto", math="bfloat16").device == "cpu"
    assert rl.RNN(tensors, before, layout="keras", device="auto").device == "cpu"
    try:
        rl.RNN(tensors, before, layout="keras", device="auto", math="tf32")
    except rl.SpecError as error:
        assert str(error) == "math is 'tf32', need 'default' or 'bfloat16' on the CPU", error
    else:
        raise AssertionError
