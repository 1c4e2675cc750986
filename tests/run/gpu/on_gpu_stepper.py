"""Programs for test_forward.py: a stepper on a GPU gives what a stepper on the CPU gives, and a
step costs a launch and a wait."""

import gc
import os
import threading

import numpy as np
import pytest
from run.gpu.fake_gpu import Device, assert_close, gpu_rnn, inputs, weights_of

import rnnlayout as rl

KINDS = [
    rl.Spec("lstm", 5, 7, 2), rl.Spec("lstm", 5, 7, proj_size=3), rl.Spec("gru", 5, 7),
    rl.Spec("rnn_relu", 5, 7, 3, bias="input"), rl.Spec("lstm", 4, 4, dtype="float64"),
    rl.Spec("gru", 5, 7, 2, dtype="float16"),
]  # fmt: skip
# What a step asks of the driver: its context, and that its memory breaks no capture of others.
STEP = [
    "cuCtxPushCurrent_v2", "cuThreadExchangeStreamCaptureMode",
    "cuGraphLaunch", "cuStreamSynchronize",
    "cuThreadExchangeStreamCaptureMode", "cuCtxPopCurrent_v2",
]  # fmt: skip


RUN, BEGIN = "cudnnRNNForward", "cuStreamBeginCapture_v2"


def sequence(spec):
    """Return x of one sequence and a state, as a stepper takes them."""
    x, state = inputs(spec)
    states = state if isinstance(state, tuple) else (state,)
    rows = tuple(np.ascontiguousarray(a[:, 1]) for a in states)
    return np.ascontiguousarray(x[:, 1]), rows if len(rows) > 1 else rows[0]


def on_cpu(spec, weights=None):
    """The CPU computes the float16 networks in float32."""
    wide = spec.replace(dtype="float32") if spec.dtype == "float16" else spec
    weights = weights_of(spec) if weights is None else weights
    return rl.RNN(weights.astype(wide.dtype), wide)


def assert_states(states, like):
    pairs = (states, like) if isinstance(states, tuple) else ((states,), (like,))
    for state, right in zip(*pairs, strict=True):
        assert_close(state, right.astype(state.dtype))


def steps():
    for spec in KINDS:
        gpu, (x, state) = gpu_rnn(spec), sequence(spec)
        wide = [
            a.astype(on_cpu(spec).spec.dtype) for a in (state if spec.cell == "lstm" else [state])
        ]
        first = tuple(wide) if len(wide) > 1 else wide[0]
        cpu, s = on_cpu(spec).stepper(first), gpu.stepper(state)
        right = cpu(x.astype(wide[0].dtype)).astype(x.dtype)
        assert_close(np.stack([s(x_t) for x_t in x]), right)
        assert_states(s.state, cpu.state)
        s.state = state
        y = np.empty_like(right)
        assert s(x[:2], out=y[:2]).base is y
        assert s(x[2:2]).shape == (0, right.shape[1])
        s(x[2], out=y[2])
        s(x[3:], y[3:])
        assert_close(y, right)
        assert_states(s.state, cpu.state)
        s.state = cpu.state = None
        assert_close(s(x), cpu(x.astype(wide[0].dtype)).astype(x.dtype))
        assert_states(s.state, cpu.state)


def y_is_x():
    spec = KINDS[4]
    s, (x, _) = gpu_rnn(spec).stepper(), sequence(spec)
    right = on_cpu(spec).stepper()(x)
    assert s(x, out=x) is x
    assert_close(x, right)


def other_arrays():
    spec = KINDS[0]
    s, (x, _) = gpu_rnn(spec).stepper(), sequence(spec)
    right = on_cpu(spec).stepper()(x)
    wide = np.empty((len(x), 10), "f4")
    wide[:, ::2] = x
    assert_close(s(wide[:, ::2]), right)
    for wrong, text in (
        (x.astype("f8"), "x is float64, need float32: a stepper computes in float32"),
        (x[:, :3], r"x: shape \(4, 3\), expected \(5,\) or, for n steps, \(n, 5\)"),
        (Device().copy(x), "x is an? Exporter on a GPU"),
    ):
        with pytest.raises(rl.LayoutError, match=text):
            s(wrong)


def a_launch_and_a_wait():
    d, spec = Device(), KINDS[0]
    gpu, (x, state) = gpu_rnn(spec), sequence(spec)
    s = gpu.stepper()
    made = [call for call in d.calls(gpu.stepper) if call in (RUN, BEGIN)]
    assert made == [RUN, BEGIN, RUN]  # so that cuDNN loads nothing during the capture
    for _ in range(2):
        assert d.calls(lambda: s(x[0])) == STEP
    assert d.calls(lambda: s(x)) == STEP * len(x)
    other = Device().stream()
    with d.capture(other):  # of another owner
        s(x[0])
        s.state = state
        assert s.state[0].shape == state[0].shape
    assert not any("cudnn" in call for call in d.calls(lambda: s(x[0])))


def updates():
    """The steppers take the weights of the last update."""
    d, spec = Device(), KINDS[0]
    gpu, (x, _) = gpu_rnn(spec), sequence(spec)
    s = gpu.stepper()
    for factor in (2, 3):
        new = weights_of(spec) * np.float32(factor)
        gpu.update(new)
        s.state = None
        assert_close(s(x), on_cpu(spec, new).stepper()(x))
    assert "cuStreamWaitEvent" in d.calls(lambda: s(x[0]))


def refused():
    for spec, text in (
        (rl.Spec("gru", 5, 7, 1, True), "one direction"),
        (
            rl.Spec("lstm", 5, 7, dtype="bfloat16"),
            r"stepper\(\) of an RNN on cuda:0 supports no bfl",
        ),
    ):
        with pytest.raises(rl.SpecError, match=text):
            gpu_rnn(spec).stepper()
    with pytest.raises(rl.SpecError, match="a stepper needs one direction: the backward direction"):
        rl._native.Stepper(gpu_rnn(rl.Spec("gru", 5, 7, 1, True))._native, None, None)


def live(d, *kinds):
    gc.collect()
    return {
        kind: d.live(kind) for kind in ("memory", "pinned", "graph", "graph_exec", "event", *kinds)
    }


def all_is_given_back():
    d, spec = Device(), KINDS[0]
    gpu, (x, _) = gpu_rnn(spec), sequence(spec)
    gpu.stepper()
    before = live(d, "stream")
    for _ in range(3):
        s = gpu.stepper()
        s(x)
        assert d.live("graph_exec") == 1 and d.live("pinned") == 1
        assert d.live("graph") == before["graph"]
        del s
        assert live(d, "stream") == before


def each_call_fails():
    """A typed error, nothing is kept, no capture stays open, and the RNN works on."""
    d, spec = Device(), KINDS[0]
    gpu, (x, _) = gpu_rnn(spec), sequence(spec)
    gpu.stepper()
    before = live(d, "pushed")
    right, failures = on_cpu(spec).stepper()(x), 0
    calls = len(d.calls(lambda: gpu.stepper()(x)))
    for number in range(1, calls + 1):
        s = None
        d.fail(number, 999, 5000)
        try:
            s = gpu.stepper()
            s(x)
        except rl.CudnnError as error:
            failures += 1
            assert len(str(error)) > 30
        d.fail(0, 0, 0)  # nothing is freed if a context cannot be made current
        del s
        assert live(d, "pushed") == before, number
        assert d.live("stream") <= 1 + d.live("handle")  # of the host's arrays, and witnesses
        assert_close(gpu.stepper()(x), right)
        gc.collect()
    assert failures > 30


def two_threads():
    """Steppers of one RNN in two threads; one stepper in two threads is refused."""
    spec = KINDS[2]
    gpu, (x, _) = gpu_rnn(spec), sequence(spec)
    right, results = on_cpu(spec).stepper()(x), []

    def work():
        s = gpu.stepper()
        for _ in range(50):
            s.state = None
            results.append(s(x))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 150
    for y in results:
        assert_close(y, right)


def a_forked_child():
    spec = KINDS[2]
    s, (x, _) = gpu_rnn(spec).stepper(), sequence(spec)
    child = os.fork()
    if not child:
        code = 1
        try:
            s(x)
        except rl.CudnnNotFoundError:
            code = 0
        del s
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert_close(s(x), on_cpu(spec).stepper()(x))
