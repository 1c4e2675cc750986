"""Programs for fake_gpu.py: the algorithm that runs a call. The limits are those of torch's
get_algo() (aten/src/ATen/native/cudnn/RNN.cpp) and of cuDNN."""

import os
import re

from run.gpu.fake_gpu import (
    GRU,
    LSTM,
    Device,
    assert_near,
    has_bfloat16,
    inputs,
    weights_of,
)

import rnnlayout as rl

STANDARD, SMALL = 0, 3


def used(device, do):
    """Return the algorithms of the calls of cudnnRNNForward that do() makes."""
    algos, found = {}, []
    for line in device.log(do):
        if made := re.match(r"cudnnSetRNNDescriptor_v8 desc=(\S+) algo=(\d)", line):
            algos[made[1]] = int(made[2])
        elif ran := re.match(r"cudnnRNNForward .*\brnn=(\S+)", line):
            found.append(algos[ran[1]])
    return found


def algo_of(spec, N=3, **call):
    x, _ = inputs(spec, batch=N, steps=call.pop("T", 4))
    device = Device()
    return used(device, lambda: rl.RNN(weights_of(spec), spec, device="cuda")(x, **call))


def small_ones():
    for spec, right in [
        (LSTM, SMALL),
        (GRU, SMALL),
        *[(LSTM.replace(dtype="bfloat16"), SMALL)] * has_bfloat16(),
        (LSTM.replace(dtype="float64"), STANDARD),
        (LSTM.replace(proj_size=2), STANDARD),
        *((LSTM.replace(bias=bias), STANDARD) for bias in ("input", "recurrent", "none")),
        (rl.Spec("lstm", 5, 192), SMALL),
        (rl.Spec("gru", 5, 193), STANDARD),
        (rl.Spec("rnn_relu", 5, 384), SMALL),
        (rl.Spec("rnn_tanh", 5, 385), STANDARD),
    ]:
        assert algo_of(spec, N=8, T=1) == [right], spec


def by_call():
    """One RNN runs each call with the algorithm that fits; lengths need the standard one."""
    cpu, device = rl.RNN(weights_of(LSTM), LSTM), Device()
    x, state = inputs(LSTM)
    runs = {}

    def calls():
        gpu = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
        for lengths in (None, [4, 0, 2], [4, 4, 4], [2, 2, 2], None):
            runs[str(lengths)] = gpu(x, state, lengths=lengths), cpu(x, state, lengths=lengths)
        assert gpu.algo == "auto" and "algo" not in repr(gpu)

    assert used(device, calls) == [SMALL, STANDARD, SMALL, STANDARD, SMALL]
    for found, right in runs.values():
        assert_near(found, right, LSTM)


def what_is_asked_for():
    device, (x, _) = Device(), inputs(LSTM)
    assert used(device, lambda: rl.forward(
        x, weights_of(LSTM), LSTM, device="cuda", algo="standard")) == [STANDARD]  # fmt: skip


def refused(where):
    """cuDNN does not support the algorithm: the standard one runs the call, and all later ones."""
    os.environ["FAKE_CUDNN_NO_PERSIST"] = where
    cpu, device = rl.RNN(weights_of(LSTM), LSTM), Device()
    x, state = inputs(LSTM)
    found = []

    def calls():
        gpu = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
        found.extend(gpu(x, state) for _ in range(3))

    assert used(device, calls)[-3:] == [STANDARD] * 3
    for result in found:
        assert_near(result, cpu(x, state), LSTM)


def refused_by_the_descriptor():
    refused("descriptor")


def refused_by_the_sizes():
    refused("sizes")


def refused_by_the_call():
    refused("forward")


def on_an_old_gpu():
    os.environ["FAKE_CUDA_CAPABILITY"] = "52"
    assert algo_of(LSTM) == [STANDARD]
