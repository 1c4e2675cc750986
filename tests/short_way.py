"""Programs on the fakes as in on_gpu.py: a call on a GPU's arrays goes a short way, in C, or the
long one, in Python. The short way takes nothing that the long one would not, and does the same."""

import gc
import itertools
import sys
from pathlib import Path

import numpy as np
import on_gpu
from exporters import CPU, CUDA, MANAGED, ROCM, Exporter, Interface, OldExporter, exchanging
from on_gpu import GRU, LSTM, H, I, N, T, inputs, weights_of

import rnnlayout as rl
from rnnlayout import _gpu, _native

STEP, TIME_FIRST, BATCH_FIRST = _native.STEP, _native.TIME_FIRST, _native.BATCH_FIRST
NAMES = ("x", "h_0", "c_0", "out", "h_out", "c_out")


class Tensor(Exporter):
    """As torch's: with the table of functions, in the legacy default stream."""

    functions = exchanging(lambda: 0)
    __dlpack_c_exchange_api__ = functions.__dlpack_c_exchange_api__


class Cupylike(Interface):
    """Both protocols, the interface with a stream."""

    def __init__(self, address, shape, dtype):
        super().__init__(address, shape, np.dtype(dtype).str, stream=1)

    def __dlpack_device__(self):
        return CUDA, 0

    def __dlpack__(self, **_):
        raise AssertionError("the interface tells more")


def plain_interface(address, shape, dtype):
    return Interface(address, shape, np.dtype(dtype).str)


def strided_interface(address, shape, dtype):
    like = np.empty(shape, dtype)
    return Interface(address, shape, like.dtype.str, strides=like.strides, version=2)


def ours(address, shape, dtype):
    """A DeviceArray of its own memory."""
    return _native.device_arrays(0, dtype, (tuple(shape),), 1, None)[0]


def address_of(array):
    if isinstance(array, Interface):
        return array.__cuda_array_interface__["data"][0]
    return array.address


MEMORY = {}


def memory(device, name, array):
    """The address of a copy, in the same place for the next call: the fakes forget no memory."""
    key = name, array.nbytes
    if key not in MEMORY:
        MEMORY[key] = device.put(array)
    device.write(MEMORY[key], array)
    return MEMORY[key]


class Stream:
    def __init__(self, number):
        self.cuda_stream = number


KNOWN = [ours, Tensor, Cupylike]  # whose stream is told
KINDS = [*KNOWN, Exporter, OldExporter, plain_interface, strided_interface]


class Call:
    """Arrays of one call, made anew for each way: what they are asked is compared too."""

    def __init__(self, spec, axes, x, state, kind, outs, batched=True):
        self.spec, self.axes, self.kinds = spec, axes, dict.fromkeys(NAMES, kind)
        x = np.ascontiguousarray(x.swapaxes(0, 1)) if axes == BATCH_FIRST else x
        x = x[0] if axes == STEP else x
        firsts = list(state) if isinstance(state, tuple) else [state]
        if not batched:
            x = np.ascontiguousarray(x[:, 0] if axes == TIME_FIRST else x[0])
            firsts = [np.ascontiguousarray(a[:, 0]) for a in firsts]
        width = spec.num_directions * (spec.proj_size or spec.hidden_size)
        y = np.full((*x.shape[:-1], width), 7, x.dtype)
        named = [x, *firsts, *[None] * (2 - len(firsts)), y, *(a * 0 + 7 for a in firsts)]
        named += [None] * (6 - len(named))
        self.all = dict(zip(NAMES, named, strict=True))
        self.given = {n: a for n, a in self.all.items() if a is not None}
        for name in NAMES[3:]:
            if name not in outs:
                self.given.pop(name, None)

    def without_state(self):
        self.given = {n: a for n, a in self.given.items() if n not in ("h_0", "c_0")}
        return self

    def arrays(self, device):
        made = {name: self.kinds[name](memory(device, name, array), array.shape, array.dtype.name)
                for name, array in self.given.items()}  # fmt: skip
        for name, array in made.items():
            if isinstance(array, rl.DeviceArray) and array.address:
                device.write(array.address, self.given[name])
        return made


def arguments(spec, arrays):
    """x, state, out, h_out, c_out"""
    firsts = [arrays[name] for name in ("h_0", "c_0") if name in arrays]
    state = tuple(firsts) if spec.cell == "lstm" and firsts else (firsts or [None])[0]
    return (arrays["x"], state, *(arrays.get(name) for name in NAMES[3:]))


def short(rnn, spec, axes, arrays, stream):
    return rnn._native.call(*arguments(spec, arrays), axes, stream)


def long(rnn, spec, axes, arrays, stream):
    x, state, *outs = arguments(spec, arrays)
    return _gpu.run(rnn._native, 0, spec, axes, x, state, None, *outs, stream)


def told(device, way, rnn, call, stream, runs_in=1):
    """What a way gives and does: numbers, which arrays come back, calls of the libraries, what the
    exporters were asked and when they had their memory back."""
    arrays = call.arrays(device)
    results = []
    made = device.calls(lambda: results.append(way(rnn, call.spec, call.axes, arrays, stream)))
    made = [name for name in made if name != "cuPointerGetAttributes"]  # the long way asks again
    if results == [None]:
        return None
    device.sync(None if runs_in == 1 else runs_in)
    flat = on_gpu.flat(results.pop())
    wanted = [name for name in NAMES[3:] if name in call.all and call.all[name] is not None]
    numbers = []
    for name, array in zip(wanted, flat, strict=True):
        given = arrays.get(name)
        assert array is given or (given is None and isinstance(array, rl.DeviceArray)), name
        like = call.all[name]
        assert given is not None or (array.shape, array.dtype) == (like.shape, like.dtype.name)
        assert given is not None or array.stream == runs_in
        numbers.append(device.read(address_of(array), like).tobytes())
        assert numbers[-1] != like.tobytes()
    asked = {n: (a.streams, a.deleted) for n, a in arrays.items() if isinstance(a, Exporter)}
    kept = [tuple(type(k) for k in pair) for pair in rnn._native.kept.get(runs_in, ())]
    del flat, array
    gc.collect()
    left = {n: a.deleted for n, a in arrays.items() if isinstance(a, Exporter)}
    return numbers, made, asked, kept, left


def assert_same(device, rnn, call, stream, runs_in=1):
    for _ in range(2):  # the second finds what the first has made
        by_short, by_long = (told(device, way, rnn, call, stream, runs_in) for way in (short, long))
    assert by_short is not None, (call.spec, call.kinds, stream)
    assert by_short == by_long, (by_short[1:], by_long[1:])


def some_outs(spec):
    return [(), ("out",), ("h_out",), NAMES[3:]] if spec.cell == "lstm" else [(), ("out", "h_out")]


# ------------------------------------------------------------------------------------ the programs


def same_results():
    """Each kind of array, outputs given or not, with and without a state, a batch, a stream."""
    device = on_gpu.Device()
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
    device = on_gpu.Device()
    for dtype in on_gpu.DTYPES:
        spec = LSTM.replace(dtype=dtype)
        rnn = rl.RNN(weights_of(spec), spec, device="cuda")
        for kind, other in itertools.product((ours, Tensor, Exporter, Cupylike), on_gpu.DTYPES):
            x, state = inputs(LSTM.replace(dtype=other))
            if kind in (ours, Cupylike) and "bfloat16" in (other, dtype):
                continue
            call = Call(spec, TIME_FIRST, x, state, kind, NAMES[3:])
            if other == dtype:
                assert_same(device, rnn, call, 1)
            else:
                assert told(device, short, rnn, call, 1) is None


def mixed():
    """Arrays of several owners; of several streams they go the long way."""
    device = on_gpu.Device()
    rnn, side = rl.RNN(weights_of(LSTM), LSTM, device="cuda"), device.stream()
    x, state = inputs(LSTM)
    for kinds in itertools.product((ours, Tensor, Exporter), repeat=3):
        call = Call(LSTM, TIME_FIRST, x, state, Tensor, NAMES[3:])
        call.kinds |= dict(zip(("x", "h_0", "h_out"), kinds, strict=True))
        if kinds[2] is not Exporter:
            assert_same(device, rnn, call, None)
        assert_same(device, rnn, call, 1)
        if set(kinds) != {Exporter}:
            arrays = call.arrays(device)
            assert short(rnn, LSTM, TIME_FIRST, arrays, side) is None
    assert device.live("pushed") == 0


def another_stream():
    """That of the first whose stream is told; then all others are asked for that one."""
    device = on_gpu.Device()
    rnn, side = rl.RNN(weights_of(LSTM), LSTM, device="cuda"), device.stream()
    x, state = inputs(LSTM)

    def ours_there(address, shape, dtype):
        return _native.device_arrays(0, dtype, (tuple(shape),), side, None)[0]

    def interface_there(address, shape, dtype):
        return Interface(address, shape, np.dtype(dtype).str, stream=side)

    for kind, outs in itertools.product(
        (ours_there, interface_there, exchanging(lambda: side)), some_outs(LSTM)
    ):
        for names in ((), ("x",), ("x", "h_0"), ("c_0",)):
            call = Call(LSTM, TIME_FIRST, x, state, kind, outs)
            call.kinds |= dict.fromkeys(names, Exporter)
            assert_same(device, rnn, call, None, side)
            assert_same(device, rnn, call, side, side)
            assert_same(device, rnn, call, Stream(side), side)
        assert short(rnn, LSTM, TIME_FIRST, call.arrays(device), 1) is None  # of two streams


def lists_and_places():
    """A state in a list; the state after over that before; sequences of no step, no sequence."""
    device = on_gpu.Device()
    rnn = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    x, (h, c) = inputs(LSTM)
    result_like = np.empty((N, H), "f4")
    for kind, stream in itertools.product(KINDS, (1, np.int64(1), Stream(1))):
        found = []
        for way in (short, long):
            arrays = Call(LSTM, STEP, x, (h, c), kind, ("out",)).arrays(device)
            arrays |= {"h_out": arrays["h_0"], "c_out": arrays["c_0"]}
            if way is short:
                given, state, *outs = arguments(LSTM, arrays)
                result = rnn._native.call(given, list(state), *outs, STEP, stream)
            else:
                result = way(rnn, LSTM, STEP, arrays, stream)
            assert result[1][0] is arrays["h_0"] and result[1][1] is arrays["c_0"]
            device.sync()
            pairs = zip(on_gpu.flat(result), (result_like, h, c), strict=True)
            found.append([device.read(address_of(a), like).tobytes() for a, like in pairs])
        assert found[0] == found[1]
        assert found[0][1] != h.tobytes()
    for part in (x[:0], x[:, :0]):
        first = h[:, : part.shape[1]], c[:, : part.shape[1]]
        for kind in (ours, Exporter, Tensor, plain_interface):
            arrays = [
                Call(LSTM, TIME_FIRST, part, first, kind, ()).arrays(device) for _ in range(2)
            ]
            one, two = (
                on_gpu.flat(way(rnn, LSTM, TIME_FIRST, a, 1))
                for way, a in zip((short, long), arrays, strict=True)
            )
            assert [a.numpy().tobytes() for a in one] == [a.numpy().tobytes() for a in two]
            assert [a.shape for a in one] == [a.shape for a in two]


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
        at = device.driver.fake_alloc(on_gpu.c_size_t(array.nbytes), device_number, managed)
        arrays[name] = Exporter(at, array.shape)

    return change


HOST = np.zeros(1000, "f4").ctypes.data
WRONG = {
    **{f"{name} of another dtype": changed(name, dtype="float64") for name in NAMES},
    **{f"{name} of no float": changed(name, dtype="int32") for name in NAMES},
    **{f"{name} of another shape": changed(name, shape=(T, N, 6)) for name in NAMES},
    **{f"{name} of four axes": changed(name, shape=(1, T, N, I)) for name in NAMES},
    **{f"{name} on another GPU": changed(name, device=(CUDA, 1)) for name in NAMES},
    **{f"{name} on the host": changed(name, address=HOST) for name in NAMES},
    **{f"{name} by its interface on the host": interfaced(name, HOST) for name in NAMES},
    **{f"{name} in another GPU's memory": elsewhere(name, 1, 0) for name in NAMES},
    **{f"{name} in managed memory": elsewhere(name, 0, 1) for name in NAMES},
    **{f"{name} is NumPy's": put(name, np.zeros((T, N, I), "f4")) for name in NAMES},
    **{f"{name} is no array": put(name, 7) for name in NAMES},
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
    """What the short way does not take is refused as ever, and all is given back."""
    device = on_gpu.Device()
    rnn = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    x, state = inputs(LSTM)
    call = Call(LSTM, TIME_FIRST, x, state, Exporter, NAMES[3:])
    good = call.arrays(device)
    assert short(rnn, LSTM, TIME_FIRST, good, 1) is not None
    for name, change in WRONG.items():
        arrays = call.arrays(device)
        change(device, call, arrays)
        made = device.calls(lambda a=arrays: short(rnn, LSTM, TIME_FIRST, a, 1))
        assert "cudnnRNNForward" not in made and "cuMemAlloc_v2" not in made, (name, made)
        assert short(rnn, LSTM, TIME_FIRST, arrays, 1) is None, name
        x, state, *outs = arguments(LSTM, arrays)
        whole = dict(zip(("out", "h_out", "c_out"), outs, strict=True))
        found = what_is_wrong(
            lambda x=x, state=state, whole=whole: rnn(x, state, stream=1, **whole)
        )
        assert found == what_is_wrong(lambda a=arrays: long(rnn, LSTM, TIME_FIRST, a, 1)), name
        assert issubclass(found[0], ValueError), (name, found)
        gc.collect()
        for array in arrays.values():
            if isinstance(array, Exporter) and not array.gives:
                assert isinstance(array, Tensor) or array.deleted == len(array.streams), name
                # no other kind of device is asked with a stream of CUDA
                assert array.__dlpack_device__()[0] == CUDA or not array.streams, name
    for stream in WRONG_STREAMS:
        assert short(rnn, LSTM, TIME_FIRST, good, stream) is None
        assert (
            what_is_wrong(lambda s=stream: long(rnn, LSTM, TIME_FIRST, good, s))[0] is rl.SpecError
        )
    given, (h, c), *outs = arguments(LSTM, good)
    for state in (h, (h,), (h, c, c), [h], {}, (h, None), "hc"):
        assert rnn._native.call(given, state, *outs, TIME_FIRST, 1) is None
        assert what_is_wrong(lambda s=state: rnn(given, s, stream=1))[0] is rl.LayoutError
    assert rnn._native.call(None, None, *outs, TIME_FIRST, 1) is None
    gru = rl.RNN(weights_of(GRU), GRU, device="cuda")
    x, state = inputs(GRU)
    arrays = Call(GRU, TIME_FIRST, x, state, Exporter, ()).arrays(device)
    arrays["c_out"] = on_gpu.on_device(device, state * 0)
    assert short(gru, GRU, TIME_FIRST, arrays, 1) is None  # it has no c
    del arrays["c_out"]
    assert short(gru, GRU, TIME_FIRST, arrays, 1) is not None
    arrays["x"] = changed("x", shape=(N, I))(device, call, arrays) or arrays["x"]
    assert short(gru, GRU, STEP, arrays, 1) is None  # nor steps
    assert (what_is_wrong(lambda: gru.step(arrays["x"], arrays["h_0"]))[1]
            .startswith("step() needs one direction"))  # fmt: skip
    assert device.live("pushed") == 0


def raised():
    """What is no fault of an array comes through, from wherever it is asked."""
    device = on_gpu.Device()
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
                short(rnn, LSTM, TIME_FIRST, arrays, 1)
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
            short(rnn, LSTM, TIME_FIRST, call.arrays(device), Broke())
        except kind:
            continue
        raise AssertionError(kind)


class Forwarding:
    """Another's array by DLPack, with no Python in between."""

    def __init__(self, array):
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


def no_memory():
    """Each allocation of Python's refused in turn: MemoryError, and nothing is lost."""
    from leaks import growth
    from no_memory import outcome, refuse_each

    device = on_gpu.Device()
    rnn = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    x, state = inputs(LSTM)
    arrays = Call(LSTM, TIME_FIRST, x, state, ours, NAMES[3:]).arrays(device)
    forwarded = {name: Forwarding(array) for name, array in arrays.items()}
    interfaces = {name: Interface(array.address, array.shape, stream=1)
                  for name, array in arrays.items()}  # fmt: skip
    inner = {name: Forwarding(array) for name, array in arrays.items() if name in NAMES[:3]}
    call, side = rnn._native.call, device.stream()
    ways = {
        "ours": (arguments(LSTM, arrays), 1),
        "in a large stream": (arguments(LSTM, forwarded), side),
        "DLPack": (arguments(LSTM, forwarded), 1),
        "the interface": (arguments(LSTM, interfaces), 1),
        "new results": (arguments(LSTM, inner), None),
    }
    shared = [*arrays.values(), *forwarded.values(), *interfaces.values(), rnn._native]
    for name, (given, stream) in ways.items():

        def way(given=given, stream=stream):
            y, (h, c) = call(*given, TIME_FIRST, stream)
            return type(y), type(h), type(c)

        right, before = outcome(way), [sys.getrefcount(a) for a in shared]
        assert isinstance(right, tuple), (name, right)
        allocations = refuse_each(way, right)
        assert allocations >= 2, (name, allocations)
        more = growth(lambda way=way, right=right: [refuse_each(way, right) for _ in range(20)],
                      [20, 20, 1 << 40])  # fmt: skip
        assert (more < [20, 20, 1 << 40]).all(), (name, more)
        assert way() == right
        assert [sys.getrefcount(a) for a in shared] == before, name
        device.sync(side)  # the next one may be in another stream
        device.sync()


def leaves_nothing():
    """References, objects and memory of the device, over many calls of each kind of array."""
    from leaks import growth

    device = on_gpu.Device()
    rnn = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    x, state = inputs(LSTM)
    kept = []
    for kind in (ours, Cupylike, plain_interface):
        arrays = Call(LSTM, TIME_FIRST, x, state, kind, NAMES[3:]).arrays(device)
        kept += [arrays, {name: arrays[name] for name in NAMES[:3]}]
    kept.append({name: Forwarding(array) for name, array in kept[0].items()})
    given = [array for arrays in kept for array in arrays.values()]

    def calls(times=100):
        for arrays in kept:
            for _ in range(times):
                assert short(rnn, LSTM, TIME_FIRST, arrays, 1) is not None
        device.sync()

    calls(2)
    live, before = device.all_live(), [sys.getrefcount(a) for a in given]
    more = growth(calls, [50, 50, 1 << 40])
    assert (more < [50, 50, 1 << 40]).all(), more
    assert device.all_live() == live and [sys.getrefcount(a) for a in given] == before


def one_call():
    """On device arrays of a shape that has run before: one call of cuDNN, no allocation, and of the
    driver what tells whose memory it is and whether the stream is captured."""
    device = on_gpu.Device()
    rnn = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    x, state = inputs(LSTM)
    for kind, axes in itertools.product(KINDS, (STEP, TIME_FIRST)):
        arrays = Call(LSTM, axes, x, state, kind, NAMES[3:]).arrays(device)
        given, first, *outs = arguments(LSTM, arrays)
        named = dict(zip(("out", "h_out", "c_out"), outs, strict=True))
        run = rnn.step if axes == STEP else rnn

        def again(run=run, given=given, first=first, named=named):
            run(given, first, stream=1, **named)

        again()
        assert device.calls(again) == [
            "cuCtxPushCurrent_v2", *["cuPointerGetAttributes"] * 6, "cuStreamIsCapturing",
            "cudnnRNNForward", "cuCtxPopCurrent_v2",
        ]  # fmt: skip


if __name__ == "__main__":
    on_gpu.FOLDER, on_gpu.OLD = Path(sys.argv[2]), False
    gc.freeze()  # to look at what is made here alone
    globals()[sys.argv[1]]()
    print("well")
