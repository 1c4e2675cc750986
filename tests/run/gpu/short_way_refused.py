"""Programs for fake_gpu.py: what the short way does not take is refused by the long one, as ever,
and all is given back."""

import gc
import itertools
from ctypes import c_size_t

import numpy as np
from run.gpu.exporters import CPU, CUDA, MANAGED, ROCM, Exporter, Interface
from run.gpu.fake_gpu import GRU, LSTM, Device, H, I, N, T, inputs, on_device, weights_of
from run.gpu.two_ways import (
    NAMES,
    STEP,
    TIME_FIRST,
    Call,
    Stream,
    Tensor,
    arguments,
    by_keywords,
    long,
    short,
)

import rnnlayout as rl


class Lying(Exporter):
    """Of its device, until it is asked for the array."""

    def __dlpack_device__(self):
        return CUDA, 0


def changed(name, kind=Exporter, **changes):
    """An exporter in the place of one of the arrays."""

    def change(device, call, arrays):
        array = call.all[name]
        entries = {"address": device.put(array), "shape": array.shape, "dtype": "float32"} | changes
        arrays[name] = kind(entries.pop("address"), entries.pop("shape"), **entries)

    return change


def interfaced(name, address=None, shape=None, **changes):
    def change(device, call, arrays):
        array = call.all[name]
        at = device.put(array) if address is None else address
        arrays[name] = Interface(at, array.shape if shape is None else shape, **changes)

    return change


def shared(name, other, offset=0):
    def change(device, call, arrays):
        arrays[name] = Exporter(arrays[other].address + offset, call.all[name].shape)

    return change


def put(name, value):
    def change(device, call, arrays):
        arrays[name] = value

    return change


def elsewhere(name, device_number, managed):
    def change(device, call, arrays):
        array = call.all[name]
        at = device.driver.fake_alloc(c_size_t(array.nbytes), device_number, managed)
        arrays[name] = Interface(at, array.shape)  # which does not name the GPU

    return change


HOST = np.zeros(1000, "f4").ctypes.data
WRONG = {
    **{f"{name} of another dtype": changed(name, dtype="float64") for name in NAMES},
    **{f"{name} of no float": changed(name, dtype="int32") for name in NAMES},
    **{f"{name} of another shape": changed(name, shape=(T, N, 6)) for name in NAMES},
    **{f"{name} of four axes": changed(name, shape=(1, T, N, I)) for name in NAMES},
    **{f"{name} on another GPU": changed(name, device=(CUDA, 1)) for name in NAMES},
    **{f"{name} by its interface on the host": interfaced(name, HOST) for name in NAMES},
    **{f"{name} in another GPU's memory": elsewhere(name, 1, 0) for name in NAMES},
    **{f"{name} in managed memory": elsewhere(name, 0, 1) for name in NAMES},
    **{f"{name} is NumPy's": put(name, np.zeros((T, N, I), "f4")) for name in NAMES},
    **{f"{name} is not an array": put(name, 7) for name in NAMES},
    **{f"{name} at 0": changed(name, address=None) for name in NAMES},
    **{f"{name} unaligned": changed(name, offset=2) for name in NAMES},
    **{f"{name} read-only": changed(name, flags=1) for name in NAMES[3:]},
    **{f"{name} read-only by its interface": interfaced(name, data=(1 << 40, True))
       for name in NAMES[3:]},
    **{f"{name} is asked and fails": changed(name, gives=BufferError("requires grad"))
       for name in NAMES},
    "vectors": changed("x", lanes=4),
    "ROCm": changed("x", device=(ROCM, 0)),
    "managed": changed("x", device=(MANAGED, 0)),
    "an exporter that lies": changed("x", Lying, device=(CPU, 0)),
    "an exporter that lies of the number": changed("x", Lying, device=(CUDA, 1)),
    "a table that tells of another GPU": changed("x", Tensor, device=(CUDA, 1)),
    "a table that tells of the host": changed("h_0", Tensor, device=(CPU, 0)),
    "a table's other major version": changed("h_0", Tensor, version=(2, 0)),
    "strides": changed("x", strides=(I, T * I, 1)),
    "strides of a state": changed("h_0", strides=(N * H, 1, N)),
    "two axes": changed("x", shape=(N, I)),
    "a negative size": changed("x", shape=(-T, N, I)),
    "larger than can be": changed("x", shape=(1 << 40, 1 << 40, I)),
    "no capsule": changed("x", gives="x"),
    "another major version": changed("x", version=(2, 0)),
    "out over x": shared("out", "x"),
    "out a little off x": shared("out", "x", 4),
    "out over h_0": shared("out", "h_0"),
    "h_out a little off h_0": shared("h_out", "h_0", 4),
    "h_out over c_0": shared("h_out", "c_0"),
    "c_out over h_out": shared("c_out", "h_out"),
    "big-endian": interfaced("x", typestr=">f4"),
    "a mask": interfaced("x", mask=7),
    "no data": interfaced("x", data=None),
    "a shape of no numbers": interfaced("x", shape=(T, N, "n")),
    "stream 0": interfaced("x", stream=0),
    "a stream that is none": interfaced("x", stream=-1),
    "strides in bytes": interfaced("x", strides=(4 * I, 4 * T * I, 4)),
    "strides of half an element": interfaced("x", strides=(4 * N * I, 4 * I, 2)),
    "strides a little off": interfaced("x", strides=(4 * N * I + 1, 4 * I, 4)),
    "too few strides": interfaced("x", strides=(4,)),
}  # fmt: skip
WRONG_STREAMS = [0, -1, True, "main", 1 << 64, Stream("x"), 2.0]


def what_is_wrong(do):
    try:
        do()
    except Exception as error:
        return type(error), str(error)
    raise AssertionError


def refused():
    """Arrays, streams, states."""
    device = Device()
    rnn = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    x, state = inputs(LSTM)
    call = Call(LSTM, TIME_FIRST, x, state, Exporter, NAMES[3:])
    good = call.arrays(device)
    assert short(rnn, call, good, 1) is not None
    for name, change in WRONG.items():
        arrays = call.arrays(device)
        change(device, call, arrays)
        made = device.calls(lambda a=arrays: short(rnn, call, a, 1))
        assert "cudnnRNNForward" not in made and "cuMemAlloc_v2" not in made, (name, made)
        assert short(rnn, call, arrays, 1) is None, name
        given, first, named = by_keywords(call, arrays)
        found = what_is_wrong(lambda: rnn(given, first, stream=1, **named))  # noqa: B023
        assert found == what_is_wrong(lambda a=arrays: long(rnn, call, a, 1)), name
        assert issubclass(found[0], ValueError), (name, found)
        gc.collect()
        for array in arrays.values():
            if isinstance(array, Exporter) and not array.gives:
                assert isinstance(array, Tensor) or array.deleted == len(array.streams), name
                # no other kind of device is asked with a stream of CUDA
                assert array.__dlpack_device__()[0] == CUDA or not array.streams, name
    for stream in WRONG_STREAMS:
        assert rnn._native.call(*arguments(call, good), call.axes, stream, False) is None
        assert what_is_wrong(lambda s=stream: short(rnn, call, good, s))[0] is rl.SpecError
        assert what_is_wrong(lambda s=stream: long(rnn, call, good, s))[0] is rl.SpecError
    given, (h, c), *others = arguments(call, good)
    for state in (h, (h,), (h, c, c), [h], {}, (h, None), "hc"):
        assert rnn._native.call(given, state, *others, TIME_FIRST, 1, False) is None
        assert what_is_wrong(lambda s=state: rnn(given, s, stream=1))[0] is rl.LayoutError
    assert rnn._native.call(None, None, *others, TIME_FIRST, 1, False) is None
    assert device.live("pushed") == 0


def refused_of_a_gru():
    """A c, and steps where it has two directions."""
    device = Device()
    rnn = rl.RNN(weights_of(GRU), GRU, device="cuda")
    x, state = inputs(GRU)
    call = Call(GRU, TIME_FIRST, x, state, Exporter, ())
    arrays = call.arrays(device)
    arrays["c_out"] = on_device(device, state * 0)
    assert short(rnn, call, arrays, 1) is None
    del arrays["c_out"]
    assert short(rnn, call, arrays, 1) is not None
    changed("x", shape=(N, I))(device, call, arrays)
    call.axes = STEP
    assert short(rnn, call, arrays, 1) is None
    found = what_is_wrong(lambda: rnn.step(arrays["x"], arrays["h_0"]))
    assert found[1].startswith("step() needs one direction")


WRONG_LENGTHS = {
    "past the end": [4, 0, 5],
    "past the end, of 32 bits": np.array([5, 0, 4], "i4"),
    "past 32 bits": np.array([(1 << 32) + 1, 0, 4]),
    "negative": (0, -1, 4),
    "negative, in an array": np.array([0, 1, -1]),
    "too few": [4, 4],
    "too many": np.array([4, 4, 4, 4]),
    "none": [],
    "of two axes": np.array([[4, 4, 4]]),
    "of no axis": np.array(4),
    "one number": 4,
    "too long": [4, 1 << 64, 4],
    "nearly too long": [4, (1 << 63) - 1, 4],
    "floats": [4.0, 0.0, 2.0],
    "floats in an array": np.array([4.0, 0.0, 2.0]),
    "bools": [True, False, True],
    "bools in an array": np.array([True, False, True]),
    "text": ["4", "0", "2"],
    "what is None": [4, None, 2],
    "a dict": {0: 4, 1: 0, 2: 2},
    "a set": {4, 0, 2},
    "lists": [[4], [0], [2]],
    "wider numbers, past the end": np.array([4, 0, 5], np.longlong),
}


def refused_lengths():
    """As they are refused of NumPy's arrays on the CPU, word for word."""
    device = Device()
    rnn, cpu = (rl.RNN(weights_of(LSTM), LSTM, device=d) for d in ("cuda", "cpu"))
    x, state = inputs(LSTM)
    call = Call(LSTM, TIME_FIRST, x, state, Exporter, NAMES[3:])
    arrays = call.arrays(device)
    for name, call.lengths in WRONG_LENGTHS.items():
        assert short(rnn, call, arrays, 1) is None, name
        given, first, named = by_keywords(call, arrays)
        found = what_is_wrong(lambda: rnn(given, first, stream=1, **named))  # noqa: B023
        assert found == what_is_wrong(lambda: cpu(x, state, lengths=call.lengths)), name
        assert found[0] is rl.LayoutError, (name, found)
    alone = Call(LSTM, TIME_FIRST, x, state, Exporter, (), batched=False, lengths=[4])
    arrays = alone.arrays(device)
    assert short(rnn, alone, arrays, 1) is None
    assert "cut x" in what_is_wrong(lambda: long(rnn, alone, arrays, 1))[1]
    on_gpu = Interface(device.put(np.zeros(N, "i8")), (N,), "<i8")
    for call.lengths in (on_gpu, Exporter(on_gpu, (N,), "int64")):
        assert short(rnn, call, arrays, 1) is None
        assert "is needed on the host" in what_is_wrong(lambda: long(rnn, call, arrays, 1))[1]
    assert device.live("pushed") == 0


def raised():
    """Errors that an array did not cause are raised as they are."""
    device = Device()
    rnn = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    x, state = inputs(LSTM)
    call = Call(LSTM, TIME_FIRST, x, state, Exporter, NAMES[3:])

    class Interrupted(BaseException):
        pass

    for kind in (Interrupted, MemoryError):

        class Broken(Exporter):
            where = ""

            def __getattribute__(self, name, kind=kind):
                if name == object.__getattribute__(self, "where"):
                    raise kind("no matter of the array")
                return object.__getattribute__(self, name)

        for name, where in itertools.product(NAMES, ("__dlpack__", "__dlpack_device__",
                                                     "__cuda_array_interface__")):  # fmt: skip
            arrays = call.arrays(device)
            arrays[name] = Broken(arrays[name].address, arrays[name].shape)
            arrays[name].where = where
            try:
                short(rnn, call, arrays, 1)
            except kind:
                pass
            else:
                raise AssertionError((kind, name, where))
            gc.collect()
            for array in arrays.values():
                assert array.deleted == len(array.streams), (name, where)

        class Broke:
            @property
            def __cuda_stream__(self, kind=kind):
                raise kind

        try:
            short(rnn, call, call.arrays(device), Broke())
        except kind:
            continue
        raise AssertionError(kind)
