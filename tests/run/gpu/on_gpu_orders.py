"""Programs for fake_gpu.py: arrays of several streams. The fakes end a process in which nothing
orders two uses of the same memory."""

import itertools

from marks import each_pair
from run.gpu.calls import (
    NAMES,
    TIME_FIRST,
    Call,
    Stream,
    Tensor,
    assert_right,
    on_gpu,
    ours,
    ours_in,
    run_on_gpu,
    some_outs,
)
from run.gpu.exporters import Exporter, address_of, exchanging
from run.gpu.fake_gpu import GRU, LSTM, Device, inputs

import rnnlayout as rl


def kinds_in(stream):
    return ours_in(stream), exchanging(lambda: stream)


def orders(made):
    """(the stream that goes first, the one that waits) of each order, from the calls. Without that
    of the RNN's own memory, around the call of cuDNN."""
    (at,) = (k for k, name in enumerate(made) if name.startswith("cudnnRNNForward"))
    last = max(k for k, name in enumerate(made[:at]) if name.startswith("cuStreamWaitEvent"))
    after = next(k for k, name in enumerate(made) if k > at and name.startswith("cuEventRecord"))
    made = [name for k, name in enumerate(made) if k not in (last, after)]
    records = [name.split("=")[1] for name in made if name.startswith("cuEventRecord")]
    waits = [name.split("=")[1] for name in made if name.startswith("cuStreamWaitEvent")]
    return list(zip(records, waits, strict=True))


def another_stream():
    """That of the first whose stream is told; then all others are asked for that one."""
    device, _ = Device(), on_gpu(LSTM)
    side = device.stream()
    x, state = inputs(LSTM)
    for kind, outs, names in each_pair(list(itertools.product(
        kinds_in(side), some_outs(LSTM), ((), ("x",), ("x", "h_0"), ("c_0",))
    ))):  # fmt: skip
        call = Call(LSTM, TIME_FIRST, x, state, kind, outs)
        call.kinds |= dict.fromkeys(names, Exporter)
        assert_right(device, call, None, side)
        assert_right(device, call, side, side)
        assert_right(device, call, Stream(side), side)
        assert_right(device, call, 1)


def several_streams():
    """Each is ordered once; the call is in that of x, or in the one that is asked for."""
    device, _ = Device(), on_gpu(LSTM)
    side, other = device.stream(), device.stream()
    for spec in (LSTM, GRU):
        x, state = inputs(spec)
        names = [n for n in NAMES if spec.cell == "lstm" or n not in ("c_0", "c_out")]
        pairs = zip(kinds_in(side), reversed(kinds_in(other)), strict=True)
        some = [names[:1], names[1:2], names[2:3], names[3:], names[::2], names[1:]]
        parts = map(tuple, some)
        for (one, two), outs, elsewhere in each_pair(
            list(itertools.product(pairs, some_outs(spec), parts))
        ):
            call = Call(spec, TIME_FIRST, x, state, one, outs)
            call.kinds |= dict.fromkeys(elsewhere, two)
            runs_in = other if "x" in elsewhere else side
            assert_right(device, call, None, runs_in)
            assert_right(device, call, side, side)
            assert_right(device, call, 1)
    assert device.live("pushed") == 0


def each_stream_once():
    """Before and behind; where the stream is asked for before alone; of ours that are filled not
    behind: they know where they are."""
    device, _ = Device(), on_gpu(LSTM)
    side = device.stream()
    x, state = inputs(LSTM)
    here, there = "(nil)", hex(side)
    theirs, mine = exchanging(lambda: side), ours_in(side)
    for elsewhere, kind, before, behind in [
        (NAMES[1:], theirs, 1, 1), (NAMES[1:], mine, 1, 1), (NAMES[3:], theirs, 1, 1),
        (NAMES[3:], mine, 1, 0), (NAMES[1:2], mine, 1, 1), (NAMES[1:2], theirs, 1, 1),
        ((), mine, 0, 0),
    ]:  # fmt: skip
        call = Call(LSTM, TIME_FIRST, x, state, Tensor, NAMES[3:])
        call.kinds |= dict.fromkeys(elsewhere, kind)
        made = assert_right(device, call, None)
        expected = [(there, here)] * before + [(here, there)] * behind
        assert orders(made) == expected, (elsewhere, kind, made)
        made = assert_right(device, call, 1)
        assert orders(made) == expected[:before], (elsewhere, kind, made)


def no_race():
    """Somebody's work on the array before the call, and after it, each in his own stream."""
    device, _ = Device(), on_gpu(LSTM)
    side = device.stream()
    x, state = inputs(LSTM)
    for kind, name, stream in itertools.product((*kinds_in(side), Exporter), NAMES, (None, 1)):
        if kind is Exporter and name in NAMES[3:] and not stream:
            continue  # nobody tells where it is used
        call = Call(LSTM, TIME_FIRST, x, state, ours, NAMES[3:])
        call.kinds[name] = kind
        arrays = call.arrays(device)
        # an exporter orders the stream that he is asked for himself, which these do not
        his = (stream or 1) if kind is Exporter else side
        at, nbytes = address_of(arrays[name]), call.all[name].nbytes
        device.fill(at, nbytes, None if his == 1 else his)
        result = run_on_gpu(call, arrays, stream)
        if kind is not Exporter and stream is None:
            if isinstance(arrays[name], rl.DeviceArray):
                arrays[name].__dlpack__(stream=his)
            device.fill(at, nbytes, None if his == 1 else his)
        device.sync(side)
        device.sync()
        assert result[0] is arrays["out"]
        del result, arrays  # to free waits for all streams: not after the next call
