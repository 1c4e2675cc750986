"""Programs for fake_gpu.py: calls on arrays of every kind give what they give on the CPU."""

import gc
import itertools
import weakref

import numpy as np
from marks import each_pair
from oracles.bits import DTYPES
from run.gpu.calls import (
    BATCH_FIRST,
    KINDS,
    KNOWN,
    NAMES,
    STEP,
    TIME_FIRST,
    Call,
    Stream,
    Tensor,
    arguments,
    assert_right,
    on_gpu,
    ours,
    run_on_gpu,
    some_outs,
)
from run.gpu.exporters import Exporter, address_of
from run.gpu.fake_gpu import GRU, LSTM, Device, H, I, T, flat, inputs

import rnnlayout as rl


def results():
    """Each kind of array, outputs given or not, with and without a state, a batch, a stream."""
    device = Device()
    cases = [
        (of, *way, outs)
        for of in [LSTM, GRU, rl.Spec("lstm", I, H, 2, proj_size=2)]
        for way in itertools.product(KINDS, (STEP, TIME_FIRST, BATCH_FIRST))
        for outs in some_outs(of)
        if not (way[1] == STEP and of.bidirectional)
    ]
    for spec, kind, axes, outs in each_pair(cases):
        x, state = inputs(spec)
        call = Call(spec, axes, x, state, kind, outs)
        if not outs or kind in KNOWN:  # else nobody tells in which stream they are used
            assert_right(device, call, None)
        assert_right(device, call, 1)
        if axes != STEP:
            alone = Call(spec, axes, x, state, kind, outs, batched=False).without_state()
            assert_right(device, alone, Stream(0))


def dtypes():
    device = Device()
    for dtype, kind in itertools.product(DTYPES, (ours, Tensor, Exporter)):
        spec = LSTM.replace(dtype=dtype)
        assert_right(device, Call(spec, TIME_FIRST, *inputs(spec), kind, NAMES[3:]), 1)


LENGTHS = {
    "a list": [4, 0, 2],
    "a tuple": (4, 0, 2),
    "64 bits": np.array([4, 0, 2], "i8"),
    "32 bits": np.array([4, 0, 2], "i4"),
    "8 bits": np.array([4, 0, 2], "u1"),
    "another name of 64 bits": np.array([4, 0, 2], np.longlong),
    "the other byte order": np.array([4, 0, 2], ">i8"),
    "unaligned": np.frombuffer(b"." + np.array([4, 0, 2], "i8").tobytes(), "i8", offset=1),
    "with gaps": np.array([4, 9, 0, 9, 2, 9], "i8")[::2],
    "backwards": np.array([2, 0, 4], "i4")[::-1],
    "NumPy's numbers": [np.int64(4), np.int64(0), np.int64(2)],
    "a range": range(4, 1, -1),
    "all T": [4, 4, 4],
    "all alike": [3, 3, 3],
    "none of T": [1, 3, 2],
    "all 0": [0, 0, 0],
}


def lengths():
    device = Device()
    for spec, axes in itertools.product((LSTM, GRU), (TIME_FIRST, BATCH_FIRST)):
        x, state = inputs(spec)
        for given, kind in itertools.product(LENGTHS.values(), (ours, Exporter)):
            for outs in some_outs(spec)[::3]:
                assert_right(device, Call(spec, axes, x, state, kind, outs, lengths=given), 1)
        call = Call(spec, axes, x[:, :0], inputs(spec, batch=0)[1], ours, ())
        for call.lengths in ([], (), np.zeros(0, "i4")):
            y, _ = run_on_gpu(call, call.arrays(device))
            assert y.shape == call.all["out"].shape and y.numpy().size == 0


def longer_lengths():
    """cuDNN's workspace grows with the lengths: that of a call is not enough for longer ones."""
    device = Device()
    for axes, kind in itertools.product((TIME_FIRST, BATCH_FIRST), (ours, Exporter)):
        call = Call(LSTM, axes, *inputs(LSTM), kind, NAMES[3:])
        for call.lengths in ([1, 0, 2], [4, 3, 4], [1, 0, 0]):
            assert_right(device, call, 1)


def mixed():
    """Arrays of several owners."""
    device = Device()
    x, state = inputs(LSTM)
    for kinds in itertools.product((ours, Tensor, Exporter), repeat=3):
        call = Call(LSTM, TIME_FIRST, x, state, Tensor, NAMES[3:])
        call.kinds |= dict(zip(("x", "h_0", "h_out"), kinds, strict=True))
        if kinds[2] is not Exporter:
            assert_right(device, call, None)
        assert_right(device, call, 1)
    assert device.live("pushed") == 0


def lists_and_places():
    """A state in a list; the state after over that before; sequences of no step, no sequence."""
    device = Device()
    x, (h, c) = inputs(LSTM)
    right = [a for a in flat(rl.RNN(on_gpu(LSTM)._native.weights(), LSTM).step(x[0], (h, c)))]
    for kind, stream in itertools.product(KINDS, (1, np.int64(1), Stream(1))):
        call = Call(LSTM, STEP, x, (h, c), kind, ("out",))
        arrays = call.arrays(device)
        given, state, named = arguments(call, arrays)
        found = on_gpu(LSTM).step(given, list(state), stream=stream, h_out=state[0],
                                  c_out=state[1], **named)  # fmt: skip
        assert found[1][0] is arrays["h_0"] and found[1][1] is arrays["c_0"]
        device.sync()
        for array, like in zip(flat(found), right, strict=True):
            np.testing.assert_allclose(device.read(address_of(array), like), like, atol=5e-6)
    for part in (x[:0], x[:, :0]):
        first = h[:, : part.shape[1]], c[:, : part.shape[1]]
        for kind in (ours, Exporter, Tensor):
            assert_right(device, Call(LSTM, TIME_FIRST, part, first, kind, ()), 1)


def kept_alive():
    """An input whose owner may use its memory again before the call has read it: by the RNN up to
    its next call in the stream, or by new DeviceArrays."""
    device, _ = Device(), on_gpu(LSTM)
    x, state = inputs(LSTM)
    side = device.stream()
    for kind, stream, keeps in (
        (Exporter, 1, True), (Tensor, 1, False), (Tensor, side, True),
    ):  # fmt: skip
        for outs in (NAMES[3:], ()):
            call = Call(LSTM, TIME_FIRST, x, state, kind, outs)
            arrays = call.arrays(device)
            alive = weakref.ref(arrays["x"])
            found = run_on_gpu(call, arrays, stream)
            del arrays
            gc.collect()
            assert (alive() is not None) == keeps, (kind, stream, outs)
            del found
            if outs:
                run_on_gpu(call, call.arrays(device), stream)
            gc.collect()
            assert alive() is None, (kind, stream, outs)
        device.sync(side)


def one_call():
    """On device arrays of a shape that has run before: one call of cuDNN. The driver also tells
    whether the stream is captured, and orders the use of the RNN's own memory. The same with
    repeated lengths; new ones are described, of x and of y, and may need another size of
    workspace."""
    device = Device()
    x, state = inputs(LSTM)
    for kind, (axes, lengths) in itertools.product(
        KINDS, [(STEP, None), (TIME_FIRST, None), (TIME_FIRST, [T, 0, 2])]
    ):
        call = Call(LSTM, axes, x, state, kind, NAMES[3:], lengths=lengths)
        arrays = call.arrays(device)

        def again(call=call, arrays=arrays):
            run_on_gpu(call, arrays, 1)

        again()
        expected = [
            "cuCtxPushCurrent_v2", "cuThreadExchangeStreamCaptureMode",
            "cuStreamIsCapturing", "cuStreamWaitEvent", "cudnnRNNForward", "cuEventRecord",
            "cuThreadExchangeStreamCaptureMode", "cuCtxPopCurrent_v2",
        ]  # fmt: skip
        assert device.calls(again) == expected
        if lengths:
            call.lengths = np.array([1, 2, 3])
            expected[-5:-5] = ["cudnnSetRNNDataDescriptor"] * 2 + ["cudnnGetRNNTempSpaceSizes"]
            assert device.calls(again) == expected
            again()  # for the next kind of arrays
