"""Programs for fake_gpu.py: by the short way a call gives what it gives by the long one, with the
same calls of the libraries."""

import itertools

import numpy as np
from oracles.bits import DTYPES
from run.gpu.exporters import Exporter, Interface
from run.gpu.fake_gpu import GRU, LSTM, Device, H, I, N, T, assert_near, flat, inputs, weights_of
from run.gpu.two_ways import (
    BATCH_FIRST,
    KINDS,
    KNOWN,
    NAMES,
    STEP,
    TIME_FIRST,
    Call,
    Cupylike,
    Stream,
    Tensor,
    address_of,
    arguments,
    assert_same,
    by_keywords,
    long,
    ours,
    plain_interface,
    short,
    some_outs,
    told,
)

import rnnlayout as rl
from rnnlayout._run.foreign import stream_of


def same_results():
    """Each kind of array, outputs given or not, with and without a state, a batch, a stream."""
    device = Device()
    specs = [LSTM, GRU, rl.Spec("lstm", I, H, 2, proj_size=2)]
    for spec in specs:
        rnn = rl.RNN(weights_of(spec), spec, device="cuda")
        x, state = inputs(spec)
        for kind, axes, outs in itertools.product(
            KINDS, (STEP, TIME_FIRST, BATCH_FIRST), some_outs(spec)
        ):
            if axes == STEP and spec.bidirectional:
                continue
            call = Call(spec, axes, x, state, kind, outs)
            if outs and kind not in KNOWN:  # nobody tells in which stream they are used
                assert told(device, short, rnn, call, None) is None
            else:
                assert_same(device, rnn, call, None)
            assert_same(device, rnn, call, 1)
            if axes != STEP:
                alone = Call(spec, axes, x, state, kind, outs, batched=False).without_state()
                assert_same(device, rnn, alone, Stream(0))


def same_types():
    """Every dtype; that of another one is not taken."""
    device = Device()
    for dtype in DTYPES:
        spec = LSTM.replace(dtype=dtype)
        rnn = rl.RNN(weights_of(spec), spec, device="cuda")
        for kind, other in itertools.product((ours, Tensor, Exporter, Cupylike), DTYPES):
            x, state = inputs(LSTM.replace(dtype=other))
            if kind in (ours, Cupylike) and "bfloat16" in (other, dtype):
                continue
            call = Call(spec, TIME_FIRST, x, state, kind, NAMES[3:])
            if other == dtype:
                assert_same(device, rnn, call, 1)
            else:
                assert told(device, short, rnn, call, 1) is None


PLAIN = {
    "a list": [4, 0, 2],
    "a tuple": (4, 0, 2),
    "64 bits": np.array([4, 0, 2], "i8"),
    "32 bits": np.array([4, 0, 2], "i4"),
    "with gaps": np.array([4, 9, 0, 9, 2, 9], "i8")[::2],
    "backwards": np.array([2, 0, 4], "i4")[::-1],
    "all T": [4, 4, 4],
    "all alike": [3, 3, 3],
    "none of T": [1, 3, 2],
    "all 0": [0, 0, 0],
}
LESS_PLAIN = {
    "8 bits": np.array([4, 0, 2], "u1"),
    "another name of 64 bits": np.array([4, 0, 2], np.longlong),
    "the other byte order": np.array([4, 0, 2], ">i8"),
    "unaligned": np.frombuffer(b"." + np.array([4, 0, 2], "i8").tobytes(), "i8", offset=1),
    "NumPy's numbers": [np.int64(4), np.int64(0), np.int64(2)],
    "a bool beside numbers": [4, False, 2],
    "a class of arrays": np.array([4, 0, 2]).view(type("Mine", (np.ndarray,), {})),
    "a class of lists": type("Mine", (list,), {})([4, 0, 2]),
    "a range": range(4, 1, -1),
}


def same_lengths():
    """As they are read for the CPU; what is not plain is read by the long way alone."""
    device = Device()
    for spec, axes in itertools.product((LSTM, GRU), (TIME_FIRST, BATCH_FIRST)):
        x, state = inputs(spec)
        turned = x.swapaxes(0, 1) if axes == BATCH_FIRST else x
        cpu, rnn = (
            rl.RNN(weights_of(spec), spec, device=d, batch_first=axes == BATCH_FIRST)
            for d in ("cpu", "cuda")
        )
        for name, lengths in (PLAIN | LESS_PLAIN).items():
            right = cpu(turned, state, lengths=lengths)
            for kind, outs in itertools.product((ours, Exporter), some_outs(spec)[::3]):
                call = Call(spec, axes, x, state, kind, outs, lengths=lengths)
                if name in PLAIN:
                    assert_same(device, rnn, call, 1)
                else:
                    assert told(device, short, rnn, call, 1) is None, name
            given, first, _ = by_keywords(call, call.arrays(device))
            assert_near(rnn(given, first, lengths=lengths), right, spec)
        call = Call(spec, axes, x[:, :0], inputs(spec, batch=0)[1], ours, ())
        for call.lengths in ([], (), np.zeros(0, "i4")):
            y, _ = short(rnn, call, call.arrays(device), None)
            assert y.shape == call.all["out"].shape and y.numpy().size == 0


def turned_lengths():
    """Of the other byte order, where they would be lengths too if they were read as they lie."""
    device, spec, steps = Device(), rl.Spec("rnn_tanh", 1, 1), 1 << 16
    rnn = rl.RNN(weights_of(spec), spec, device="cuda")
    call = Call(spec, TIME_FIRST, *inputs(spec, steps, 1), ours, ())
    call.lengths = np.array([steps], ">i4")
    assert call.lengths.view("<i4")[0] in range(1, steps)
    assert told(device, short, rnn, call, None) is None
    call.lengths = call.lengths.astype("i4")
    assert_same(device, rnn, call, None)


def mixed():
    """Arrays of several owners."""
    device = Device()
    rnn = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    x, state = inputs(LSTM)
    for kinds in itertools.product((ours, Tensor, Exporter), repeat=3):
        call = Call(LSTM, TIME_FIRST, x, state, Tensor, NAMES[3:])
        call.kinds |= dict(zip(("x", "h_0", "h_out"), kinds, strict=True))
        if kinds[2] is not Exporter:
            assert_same(device, rnn, call, None)
        assert_same(device, rnn, call, 1)
    assert device.live("pushed") == 0


def lists_and_places():
    """A state in a list; the state after over that before; sequences of no step, no sequence."""
    device = Device()
    rnn = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    x, (h, c) = inputs(LSTM)
    result_like = np.empty((N, H), "f4")
    for kind, stream in itertools.product(KINDS, (1, np.int64(1), Stream(1))):
        found = []
        call = Call(LSTM, STEP, x, (h, c), kind, ("out",))
        for way in (short, long):
            arrays = call.arrays(device)
            arrays |= {"h_out": arrays["h_0"], "c_out": arrays["c_0"]}
            if way is short:
                given, state, *others = arguments(call, arrays)
                result = rnn._native.call(
                    given, list(state), *others, STEP, stream_of(stream), False
                )
            else:
                result = way(rnn, call, arrays, stream)
            assert result[1][0] is arrays["h_0"] and result[1][1] is arrays["c_0"]
            device.sync()
            pairs = zip(flat(result), (result_like, h, c), strict=True)
            found.append([device.read(address_of(a), like).tobytes() for a, like in pairs])
        assert found[0] == found[1]
        assert found[0][1] != h.tobytes()
    for part in (x[:0], x[:, :0]):
        first = h[:, : part.shape[1]], c[:, : part.shape[1]]
        for kind in (ours, Exporter, Tensor, plain_interface):
            call = Call(LSTM, TIME_FIRST, part, first, kind, ())
            one, two = (flat(way(rnn, call, call.arrays(device), 1)) for way in (short, long))
            assert [a.numpy().tobytes() for a in one] == [a.numpy().tobytes() for a in two]
            assert [a.shape for a in one] == [a.shape for a in two]


def one_call():
    """On device arrays of a shape that has run before: one call of cuDNN. Its workspace comes from
    a pool, in the order of the stream; the driver also tells whether the stream is captured. The
    same with repeated lengths; new ones are described, of x and of y."""
    device = Device()
    rnn = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    x, state = inputs(LSTM)
    for kind, (axes, lengths) in itertools.product(
        KINDS, [(STEP, None), (TIME_FIRST, None), (TIME_FIRST, [T, 0, 2])]
    ):
        call = Call(LSTM, axes, x, state, kind, NAMES[3:], lengths=lengths)
        given, first, named = by_keywords(call, call.arrays(device))
        more = {name: a for name, a in named.items() if a is not None}
        run = rnn.step if axes == STEP else rnn

        def again(run=run, given=given, first=first, more=more):
            run(given, first, stream=1, **more)

        again()
        expected = [
            "cuCtxPushCurrent_v2", "cuThreadExchangeStreamCaptureMode",
            # whose protocol does not name the GPU
            *["cuPointerGetAttributes"] * (6 if isinstance(given, Interface) else 0),
            "cuStreamIsCapturing", "cuMemAllocFromPoolAsync", "cudnnRNNForward",
            "cuMemFreeAsync", "cuThreadExchangeStreamCaptureMode", "cuCtxPopCurrent_v2",
        ]  # fmt: skip
        assert device.calls(again) == expected
        if lengths:
            more["lengths"] = np.array([1, 2, 3])
            expected[-5:-5] = ["cudnnSetRNNDataDescriptor"] * 2
            assert device.calls(again) == expected
            again()  # for the next kind of arrays
