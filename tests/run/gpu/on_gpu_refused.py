"""Programs for fake_gpu.py: what a call must refuse, by its text, and that all is given back."""

import gc
import itertools
import re
import sys
import types

import numpy as np
import torch
from run.gpu.calls import (
    NAMES,
    STEP,
    TIME_FIRST,
    Call,
    arguments,
    on_gpu,
    run_on_gpu,
)
from run.gpu.exporters import (
    CPU,
    CUDA,
    MANAGED,
    PINNED,
    ROCM,
    Consumed,
    Exporter,
)
from run.gpu.fake_gpu import GRU, LSTM, Device, H, I, N, T, inputs, on_device, weights_of

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


def shared(name, other, offset=0):
    def change(device, call, arrays):
        arrays[name] = Exporter(arrays[other].address + offset, call.all[name].shape)

    return change


def put(name, value):
    def change(device, call, arrays):
        arrays[name] = value

    return change


# The names of the core, which C callers read too.
CORE = dict(
    zip(NAMES, ("x", "h_0", "c_0", r"y \(out\)", r"h_n \(h_out\)", r"c_n \(c_out\)"), strict=True)
)
WRONG = {
    **{f"{name} of another dtype": (changed(name, dtype="float64"),
       f"{name} is float64, need float32 like the weights") for name in NAMES},
    **{f"{name} of no float": (changed(name, dtype="int32"),
       f"{name} is int32, need float32 like the weights") for name in NAMES},
    **{f"{name} of another shape": (changed(name, shape=(T, N, 6)),
       rf"{name}: shape \(4, 3, 6\), expected \(") for name in NAMES},
    **{f"{name} of four axes": (changed(name, shape=(1, T, N, I)),
       f"{name}: a shape of 4 axes, need at most 3") for name in NAMES},
    **{f"{name} on another GPU": (changed(name, device=(CUDA, 1)),
       f"{name} is on cuda:1, this RNN is on cuda:0") for name in NAMES},
    **{f"{name} is NumPy's": (put(name, np.zeros((T, N, I), "f4")),
       f"{name} is a ndarray without DLPack's methods or not on a GPU, as x is: all arrays")
       for name in NAMES[1:]},
    **{f"{name} is torch's on the CPU": (put(name, torch.zeros(T, N, I)),
       f"{name} is a Tensor without DLPack's methods or not on a GPU") for name in NAMES[1:]},
    **{f"{name} in pinned memory": (changed(name, device=(PINNED, 0)),
       f"{name} is a Exporter without DLPack's methods or not on a GPU") for name in NAMES[1:]},
    **{f"{name} is not an array": (put(name, 7),
       f"{name} is a int without DLPack's methods or not on a GPU") for name in NAMES[1:]},
    **{f"{name} at 0": (changed(name, address=None),
       f"{name}: its address is 0, but it has elements") for name in NAMES},
    **{f"{name} unaligned": (changed(name, offset=2),
       rf"{CORE[name]} begins at 0x\w+, which is not a multiple of the 4 bytes") for name in NAMES},
    **{f"{name} is asked and fails": (changed(name, gives=BufferError("no way")),
       f"{name} does not export its memory: no way") for name in NAMES},
    "x is NumPy's": (put("x", np.zeros((T, N, I), "f4")), "stream= is only for arrays on a GPU"),
    "x is not an array": (put("x", 7), "stream= is only for arrays on a GPU; x is on the host"),
    "bytes behind 0": (changed("x", address=None, offset=16), "x: its address is 0, but it has"),
    "vectors": (changed("x", lanes=4), "x is float32 in vectors, need float32"),
    "a bool": (changed("x", dtype="bool8"), "x is bool8, need float32"),
    "complex": (changed("x", dtype="complex64"), "x is complex64, need float32"),
    "an unknown type": (changed("x", dtype="?"), "x is an unknown type of bits 9, need float32"),
    "ROCm": (changed("x", device=(ROCM, 2)), "x is on device 2 of DLPack's type 10, this"),
    "managed": (changed("x", device=(MANAGED, 0)), "x is in managed memory, which is not"),
    "an exporter that lies": (changed("x", Lying, device=(CPU, 0)), "x is on device 0 of DLPack's"),
    "an exporter that lies of the number": (changed("x", Lying, device=(CUDA, 1)), "x is on"),
    "strides": (changed("x", strides=(I, T * I, 1)),
                r"x: strides \(5, 20, 1\) \(in elements\) with shape \(4, 3, 5\): it must be"),
    "strides of a state": (changed("h_0", strides=(N * H, 1, N)), "h_0: strides"),
    "two axes": (changed("x", shape=(N, I)), "h_0: shape"),
    "another width": (changed("x", shape=(T, N, I + 1)),
                      r"x: shape \(4, 3, 6\), expected \(T, N, 5\) or, without a batch, \(T, 5\)"),
    "a negative size": (changed("x", shape=(-T, N, I)), "x: an axis has the size -4"),
    "larger than can be": (changed("x", shape=(1 << 40, 1 << 40, I)), "x: an axis has the size 1"),
    "no capsule": (changed("x", gives="x"), r"x does not export .*did not return a new capsule"),
    "out over x": (shared("out", "x"), r"y \(out\) overlaps x in memory: pass separate arrays"),
    "out a little off x": (shared("out", "x", 4), r"y \(out\) overlaps x"),
    "out over h_0": (shared("out", "h_0"), r"y \(out\) overlaps h_0"),
    "h_out a little off h_0": (shared("h_out", "h_0", 4), r"h_n \(h_out\) overlaps h_0"),
    "h_out over c_0": (shared("h_out", "c_0"), r"h_n \(h_out\) overlaps c_0"),
    "c_out over h_out": (shared("c_out", "h_out"), r"overlaps [hc]_n \([hc]_out\)"),
}  # fmt: skip


def what_is_wrong(do):
    try:
        do()
    except Exception as error:
        return type(error), str(error)
    raise AssertionError


def assert_refused(do, text, kind=rl.LayoutError):
    found = what_is_wrong(do)
    assert found[0] is kind and re.match(f".*{text}", found[1]), (text, found)


def refused():
    """Arrays: by their text, before anything is called, and they are given back."""
    device = Device()
    x, state = inputs(LSTM)
    call = Call(LSTM, TIME_FIRST, x, state, Exporter, NAMES[3:])
    run_on_gpu(call, call.arrays(device), 1)
    for name, (change, text) in WRONG.items():
        arrays = call.arrays(device)
        change(device, call, arrays)
        kind = rl.SpecError if text.startswith("stream= is only") else rl.LayoutError
        made = device.calls(lambda: assert_refused(lambda: run_on_gpu(call, arrays, 1), text, kind))  # noqa: B023
        assert "cudnnRNNForward" not in made and "cuMemAlloc_v2" not in made, (name, made)
        gc.collect()
        for array in arrays.values():
            if isinstance(array, Exporter) and not array.gives:
                assert array.deleted == len(array.streams), name
                # no other kind of device is asked with a stream of CUDA
                assert array.__dlpack_device__()[0] == CUDA or not array.streams, name
    assert device.live("pushed") == 0


def refused_otherwise():
    """Streams, states, what a GRU and the host lack."""
    device = Device()
    x, state = inputs(LSTM)
    call = Call(LSTM, TIME_FIRST, x, state, Exporter, NAMES[3:])
    for stream in (0, -1, True, "main", 1 << 64, 2.0):
        assert_refused(lambda: run_on_gpu(call, call.arrays(device), stream), "stream is",  # noqa: B023
                       rl.SpecError)  # fmt: skip
    given, (h, c), named = arguments(call, call.arrays(device))
    for wrong in (h, (h,), (h, c, c), [h], {}, (h, None), "hc"):
        found = what_is_wrong(lambda s=wrong: on_gpu(LSTM)(given, s, stream=1, **named))
        assert found[0] is rl.LayoutError, (wrong, found)
    backwards = rl.Weights(weights_of(LSTM), LSTM, "cudnn")
    backwards.config = {"go_backwards": True}
    turned = rl.RNN(backwards, device="cuda")
    assert_refused(lambda: turned(given),
                   "x is a Exporter on a GPU, where go_backwards=True of the source")  # fmt: skip
    host = np.zeros((T, N, I), "f4")
    assert_refused(lambda: on_gpu(LSTM)(host, (h, c)), "h_0 is a Exporter on a GPU, but x is not")
    assert_refused(lambda: on_gpu(LSTM)(host, out=h), "out is a Exporter on a GPU, but x is not")
    numba = types.SimpleNamespace(__cuda_array_interface__={})
    assert_refused(
        lambda: on_gpu(LSTM)(numba), "x is a SimpleNamespace on a GPU without DLPack's m"
    )
    half = LSTM.replace(dtype="float16")
    assert_refused(lambda: on_gpu(half)(host), "x is float32, need float16 like the weights$")
    x, state = inputs(GRU)
    call = Call(GRU, TIME_FIRST, x, state, Exporter, ())
    arrays = call.arrays(device)
    arrays["c_out"] = on_device(device, state * 0)
    assert_refused(lambda: run_on_gpu(call, arrays, 1), "c_out is given, but a GRU has no c")
    changed("x", shape=(N, I))(device, call, arrays)
    call.axes = STEP
    assert_refused(lambda: run_on_gpu(call, arrays, 1), "step.. needs one direction", rl.SpecError)


WRONG_LENGTHS = {
    "past the end": ([4, 0, 5], r"lengths\[2\] is 5, need 0 to 4 = T"),
    "past 32 bits": (np.array([(1 << 32) + 1, 0, 4]), r"lengths\[0\] is 4294967297, need 0 to 4"),
    "negative": ((0, -1, 4), r"lengths\[1\] is -1, need 0 to 4 = T"),
    "too few": ([4, 4], r"lengths: shape \(2,\), expected \(3,\) = \(N,\)"),
    "too many": (np.array([4, 4, 4, 4]), r"lengths: shape \(4,\), expected \(3,\)"),
    "none": ([], r"lengths: shape \(0,\), expected \(3,\)"),
    "of two axes": (np.array([[4, 4, 4]]), r"lengths: shape \(1, 3\), expected \(3,\)"),
    "one number": (4, r"lengths: shape \(\), expected \(3,\)"),
    "too long": ([4, 1 << 64, 4], "lengths is object, need integers"),
    "nearly too long": ([4, (1 << 63) - 1, 4], r"lengths\[1\] is 9223372036854775807, need 0 to"),
    "floats": ([4.0, 0.0, 2.0], "lengths is float64, need integers"),
    "bools": ([True, False, True], "lengths is bool, need integers"),
    "text": (["4", "0", "2"], "lengths is <U1, need integers"),
    "what is None": ([4, None, 2], "lengths is object, need integers"),
    "a dict": ({0: 4, 1: 0, 2: 2}, "lengths is object, need integers"),
}  # fmt: skip


def refused_lengths():
    """As they are refused of NumPy's arrays on the CPU, word for word."""
    device = Device()
    cpu = rl.RNN(weights_of(LSTM), LSTM)
    x, state = inputs(LSTM)
    call = Call(LSTM, TIME_FIRST, x, state, Exporter, NAMES[3:])
    arrays = call.arrays(device)
    for call.lengths, text in WRONG_LENGTHS.values():
        assert_refused(lambda: run_on_gpu(call, arrays, 1), text)
        assert_refused(lambda: cpu(x, state, lengths=call.lengths), text)
    alone = Call(LSTM, TIME_FIRST, x, state, Exporter, (), batched=False, lengths=[4])
    assert_refused(lambda: run_on_gpu(alone, alone.arrays(device), 1), "lengths need a batch")
    call.lengths = Exporter(1 << 40, (N,), "int64")
    assert_refused(lambda: run_on_gpu(call, arrays, 1), "lengths is a .* needed on the host: pa")
    assert device.live("pushed") == 0


def raised():
    """Errors that an array did not cause are raised as they are, and all is given back."""
    device = Device()
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

        for name, where in itertools.product(NAMES, ("__dlpack__", "__dlpack_device__")):
            arrays = call.arrays(device)
            arrays[name] = Broken(arrays[name].address, arrays[name].shape)
            arrays[name].where = where
            try:
                run_on_gpu(call, arrays, 1)
            except kind:
                pass
            else:
                raise AssertionError((kind, name, where))
            gc.collect()
            for array in arrays.values():
                assert array.deleted == len(array.streams), (name, where)


def deleted_once():
    """And a capsule that somebody else has used is refused."""
    device = Device()
    given = on_device(device, inputs(LSTM)[0])
    on_gpu(LSTM)(given)
    assert (given.deleted, given.streams) == (1, [1])
    used = given.capsule()
    Consumed(used)
    given.gives = used
    assert_refused(lambda: on_gpu(LSTM)(given), "did not return a new capsule")


def a_deleter_sees_no_exception():
    device, seen = Device(), []

    class Curious(Exporter):
        @property
        def deleted(self):
            return 0

        @deleted.setter
        def deleted(self, _):
            seen.append(sys.exc_info()[0])

    x = inputs(LSTM)[0]
    assert_refused(lambda: on_gpu(LSTM)(Curious(device.put(x), x.shape, "int32")), "x is int32")
    assert seen == [None, None]  # the first is of __init__()
