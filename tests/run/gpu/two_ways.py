"""The arrays of a call on a GPU are read in C, the short way, or in Python, the long one.

For programs on the fakes. The short way takes nothing that the long one would not, and both lead to
the same call.
"""

import gc

import numpy as np
from run.gpu.exporters import CUDA, Exporter, Interface, OldExporter, exchanging
from run.gpu.fake_gpu import flat

import rnnlayout as rl
from rnnlayout import _native
from rnnlayout._run import foreign as _foreign, gpu as _gpu, shapes as _shapes

STEP, TIME_FIRST, BATCH_FIRST = _native.STEP, _native.TIME_FIRST, _native.BATCH_FIRST
NAMES = ("x", "h_0", "c_0", "out", "h_out", "c_out")


# ---------------------------------------------------------------------------------- kinds of arrays


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


class Forwarding:
    """Another's array by DLPack, with no Python in between."""

    def __init__(self, array):
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


def plain_interface(address, shape, dtype):
    return Interface(address, shape, np.dtype(dtype).str)


def strided_interface(address, shape, dtype):
    like = np.empty(shape, dtype)
    return Interface(address, shape, like.dtype.str, strides=like.strides, version=2)


def ours_in(stream):
    """DeviceArrays of their own memory."""
    return lambda _, shape, dtype: _native.device_arrays(0, dtype, (tuple(shape),), stream, None)[0]


def interface_in(stream):
    return lambda address, shape, dtype: Interface(
        address, shape, np.dtype(dtype).str, stream=stream
    )


ours = ours_in(1)
KNOWN = [ours, Tensor, Cupylike]  # whose stream is told
KINDS = [*KNOWN, Exporter, OldExporter, plain_interface, strided_interface]


def address_of(array):
    if isinstance(array, Interface):
        return array.__cuda_array_interface__["data"][0]
    return array.address


class Stream:
    def __init__(self, number):
        self.cuda_stream = number


MEMORY = {}


def memory(device, name, array):
    """The address of a copy, in the same place for the next call: the fakes forget no memory."""
    key = name, array.nbytes
    if key not in MEMORY:
        MEMORY[key] = device.put(array)
    device.write(MEMORY[key], array)
    return MEMORY[key]


# ------------------------------------------------------------------------------------------ a call


class Call:
    """Arrays of one call, made anew for each way: what they are asked is compared too."""

    def __init__(self, spec, axes, x, state, kind, outs, batched=True, lengths=None):
        self.spec, self.axes, self.kinds = spec, axes, dict.fromkeys(NAMES, kind)
        self.lengths = lengths
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


def arguments(call, arrays):
    """x, state, lengths, out, h_out, c_out"""
    firsts = [arrays[name] for name in ("h_0", "c_0") if name in arrays]
    state = tuple(firsts) if call.spec.cell == "lstm" and firsts else (firsts or [None])[0]
    return (arrays["x"], state, call.lengths, *(arrays.get(name) for name in NAMES[3:]))


def by_keywords(call, arrays):
    """x, state, and the others by their names, as an RNN takes them."""
    x, state, *others = arguments(call, arrays)
    return x, state, dict(zip(("lengths", "out", "h_out", "c_out"), others, strict=True))


def short(rnn, call, arrays, stream):
    number = None if stream is None else _foreign.stream_of(stream)
    return rnn._native.call(*arguments(call, arrays), call.axes, number, False)


def long(rnn, call, arrays, stream):
    x, state, lengths, *outs = arguments(call, arrays)
    named = _shapes.name_arrays(call.spec, x, state, *outs)
    return _gpu.run(rnn._native, 0, call.spec, call.axes, rnn._use, named, lengths, stream)


def told(device, way, rnn, call, stream, runs_in=1):
    """What a way gives and does: numbers, which arrays come back, calls of the libraries, what the
    exporters were asked and when they had their memory back."""
    arrays = call.arrays(device)
    results = []
    made = device.calls_in(lambda: results.append(way(rnn, call, arrays, stream)))
    made = [name for name in made if name != "cuPointerGetAttributes"]  # the long way asks again
    if results == [None]:
        return None
    device.sync(None if runs_in == 1 else runs_in)
    found = flat(results.pop())
    wanted = [name for name in NAMES[3:] if name in call.all and call.all[name] is not None]
    numbers = []
    for name, array in zip(wanted, found, strict=True):
        given = arrays.get(name)
        assert array is given or (given is None and isinstance(array, rl.DeviceArray)), name
        like = call.all[name]
        assert given is not None or (array.shape, array.dtype) == (like.shape, like.dtype.name)
        numbers.append(device.read(address_of(array), like).tobytes())
        assert numbers[-1] != like.tobytes()
        assert not isinstance(array, rl.DeviceArray) or array.stream == runs_in
    asked = {n: (a.streams, a.deleted) for n, a in arrays.items() if isinstance(a, Exporter)}
    kept = [tuple(type(k) for k in pair) for pair in rnn._native.kept.get(runs_in, ())]
    streams = {n: a.stream for n, a in arrays.items() if isinstance(a, rl.DeviceArray)}
    del found, array
    gc.collect()
    left = {n: a.deleted for n, a in arrays.items() if isinstance(a, Exporter)}
    return numbers, made, asked, kept, streams, left


def assert_same(device, rnn, call, stream, runs_in=1):
    """What both ways give and do."""
    for _ in range(2):  # the second finds what the first has made
        by_short, by_long = (told(device, way, rnn, call, stream, runs_in) for way in (short, long))
    assert by_short is not None, (call.spec, call.kinds, stream)
    assert by_short == by_long, (by_short[1:], by_long[1:])
    return by_short


def some_outs(spec):
    return [(), ("out",), ("h_out",), NAMES[3:]] if spec.cell == "lstm" else [(), ("out", "h_out")]
