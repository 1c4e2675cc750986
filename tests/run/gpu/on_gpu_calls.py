"""Programs for fake_gpu.py: calls on arrays of every kind give what they give on the CPU."""

import itertools

import numpy as np
from marks import each_pair
from run.gpu.calls import (
    BATCH_FIRST,
    NAMES,
    STEP,
    TIME_FIRST,
    Call,
    arguments,
    assert_right,
    on_gpu,
    ours,
    run_on_gpu,
    some_outs,
)
from run.gpu.exporters import Exporter, address_of
from run.gpu.fake_gpu import GRU, LSTM, Device, H, I, T, flat, inputs
from run.gpu.played import played

import rnnlayout as rl

STREAMS = (None, 1, np.int64(1))


def kinds(Array):
    """The inputs' kinds; a DeviceArray cannot be an output."""
    return [(Array, Array), (Exporter, Exporter), (ours, Exporter), (Exporter, Array)]


def results():
    """Each kind of array, outputs given or not, with and without a state, a batch, a stream."""
    device = Device()
    with played("torch") as Array:
        cases = [
            (of, *way, outs)
            for of in [LSTM, GRU, rl.Spec("lstm", I, H, 2, proj_size=2)]
            for way in itertools.product(kinds(Array), (STEP, TIME_FIRST, BATCH_FIRST), STREAMS)
            for outs in some_outs(of)
            if not (way[1] == STEP and of.bidirectional)
        ]
        for spec, (inner, outer), axes, stream, outs in each_pair(cases):
            x, state = inputs(spec)
            call = Call(spec, axes, x, state, inner, outs)
            call.kinds |= dict.fromkeys(NAMES[3:], outer)
            assert_right(device, call, stream, waits_for=0 if inner is Array else None)
            if axes != STEP:
                alone = Call(spec, axes, x, state, inner, outs, batched=False).without_state()
                alone.kinds |= dict.fromkeys(NAMES[3:], outer)
                assert_right(device, alone, stream, waits_for=0 if inner is Array else None)
    assert device.live("pushed") == 0


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
        for given, outs in itertools.product(LENGTHS.values(), some_outs(spec)[::3]):
            assert_right(device, Call(spec, axes, x, state, Exporter, outs, lengths=given), 1)
        call = Call(spec, axes, x[:, :0], inputs(spec, batch=0)[1], ours, ())
        for call.lengths in ([], (), np.zeros(0, "i4")):
            assert run_on_gpu(call, call.arrays(device))[0].shape == call.all["out"].shape


def longer_lengths():
    """cuDNN's workspace grows with the lengths: that of a call is not enough for longer ones."""
    device = Device()
    for axes in (TIME_FIRST, BATCH_FIRST):
        call = Call(LSTM, axes, *inputs(LSTM), Exporter, NAMES[3:])
        for call.lengths in ([1, 1, 2], [4, 3, 4], [1, 2, 1]):
            assert_right(device, call, 1)


def lists_and_places():
    """A state in a list; the state after over that before; sequences of no step, no sequence."""
    device = Device()
    x, (h, c) = inputs(LSTM)
    right = [a for a in flat(rl.RNN(on_gpu(LSTM)._native.weights(), LSTM).step(x[0], (h, c)))]
    for stream in STREAMS:
        call = Call(LSTM, STEP, x, (h, c), Exporter, ("out",))
        arrays = call.arrays(device)
        given, state, named = arguments(call, arrays)
        found = on_gpu(LSTM).step(given, list(state), stream=stream, h_out=state[0],
                                  c_out=state[1], **named)  # fmt: skip
        assert found[1][0] is arrays["h_0"] and found[1][1] is arrays["c_0"]
        for array, like in zip(flat(found), right, strict=True):
            np.testing.assert_allclose(device.read(address_of(array), like), like, atol=5e-6)
    with played("torch") as Array:
        for part in (x[:0], x[:, :0]):
            first = h[:, : part.shape[1]], c[:, : part.shape[1]]
            for kind in (ours, Exporter, Array):
                call = Call(LSTM, TIME_FIRST, part, first, kind, ())
                assert_right(device, call, 1, waits_for=0 if kind is Array else None)


ENTER = ["cuCtxPushCurrent_v2", "cuThreadExchangeStreamCaptureMode"]
LEAVE = ["cuThreadExchangeStreamCaptureMode", "cuCtxPopCurrent_v2"]
DESCRIBE = [*["cudnnSetRNNDataDescriptor"] * 2, "cudnnGetRNNTempSpaceSizes"]


def one_call():
    """On device arrays of a shape that has run before: one call of cuDNN. The driver also tells
    whether the stream is captured. The same with repeated lengths; new ones are described, of x and
    of y, and may need another size of workspace. Arrays that do not tell their stream are waited
    for."""
    device = Device()
    x, state = inputs(LSTM)
    with played("torch") as Array:
        for (kind, wait), (axes, lengths) in itertools.product(
            ((Exporter, ["cuStreamSynchronize"]), (Array, [])),
            [(STEP, None), (TIME_FIRST, None), (TIME_FIRST, [T, 0, 2])],
        ):
            call = Call(LSTM, axes, x, state, kind, NAMES[3:], lengths=lengths)
            arrays = call.arrays(device)

            def again(call=call, arrays=arrays):
                run_on_gpu(call, arrays)

            again()
            kept = ["cuMemcpyDtoDAsync_v2"] * 2 * bool(lengths)  # h and c of the length 0
            begin = [*ENTER, "cuStreamIsCapturing", "cudnnRNNForward"]
            assert device.calls(again) == [*begin, *kept, *wait, *LEAVE]
            if lengths:
                call.lengths = np.array([1, 2, 3])
                made = device.calls(again)
                assert [name for name in made if name in DESCRIBE] == DESCRIBE
                assert device.calls(again) == [*begin, *wait, *LEAVE]
            device.sync()
