"""Programs for test_forward.py: arrays on the GPU as packages exchange them, and what a call
refuses."""

import gc
import itertools
import types

import numpy as np
import pytest
import torch
from oracles.bits import DTYPES
from run.gpu.calls import NAMES, STEP, TIME_FIRST, Call, arguments, on_gpu, run_on_gpu
from run.gpu.exporters import CPU, CUDA, MANAGED, PINNED, ROCM, Consumed, Exporter, address_of
from run.gpu.fake_gpu import (
    GRU,
    LSTM,
    Device,
    H,
    I,
    N,
    T,
    assert_near,
    both,
    gpu_rnn,
    inputs,
    weights_of,
)

import rnnlayout as rl


def what_a_device_array_exports():
    cpu, gpu, x, _ = both()
    d, right = Device(), cpu(x)[0]
    y, (h, _) = gpu(d.copy(x))
    assert (y.shape, y.dtype, y.device) == ((T, N, H), "float32", "cuda:0")
    assert repr(y) == "<DeviceArray of shape (4, 3, 7), float32, on cuda:0>"
    assert y.__dlpack_device__() == (CUDA, 0)
    at = address_of(y)
    assert address_of(h) % 256 == at % 256 == 0
    side = d.stream()
    for more in ({}, {"stream": side}, {"max_version": (1, 0), "copy": False, "stream": -1},
                 {"dl_device": (CUDA, 0), "copy": None}):  # fmt: skip
        capsules = []
        calls = d.calls(lambda more=more, to=capsules: to.append(y.__dlpack__(**more)))
        taken = Consumed(capsules.pop())
        assert calls == [] and taken.device == (CUDA, 0)
        assert (taken.address, taken.offset, taken.shape) == (at, 0, y.shape)
        assert (taken.strides, taken.dtype) == ((N * H, H, 1), "float32")
    for kind, wrong in [
        (TypeError, lambda: np.asarray(y)),
        ((BufferError, RuntimeError), lambda: np.from_dlpack(y)),
        (TypeError, lambda: y.__dlpack__(1)),
        (BufferError, lambda: y.__dlpack__(dl_device=(1, 0))),
        (BufferError, lambda: y.__dlpack__(dl_device=(CUDA, 1))),
        (TypeError, lambda: y.__dlpack__(dl_device=7)),
        (BufferError, lambda: y.__dlpack__(copy=True)),
        (TypeError, rl.DeviceArray),
    ]:
        with pytest.raises(kind):
            wrong()
    # memory goes when the last of array and consumers has gone
    del h, _, taken
    gc.collect()
    before = d.live("memory")
    capsule = y.__dlpack__()
    taken = Consumed(capsule)
    del y, capsule
    gc.collect()
    assert d.live("memory") == before
    np.testing.assert_allclose(d.read(at, right), right, atol=5e-6)
    del taken
    assert d.live("memory") == before - 1
    y = gpu(d.copy(x))[0]
    gc.collect()
    capsule = y.__dlpack__()  # that nobody takes
    del y
    assert d.live("memory") == before
    del capsule
    assert d.live("memory") == before - 1
    thin = LSTM.replace(dtype="bfloat16")
    y, _ = gpu_rnn(thin)(d.copy(inputs(thin)[0]))
    assert Consumed(y.__dlpack__()).dtype == "bfloat16"


def a_copy_on_the_host():
    """Of every dtype, and of an array without elements."""
    d = Device()
    for dtype in DTYPES:
        cpu, gpu, x, state = both(LSTM.replace(dtype=dtype))
        y, (h, c) = gpu(d.copy(x), tuple(d.copy(a) for a in state))
        assert_near((y.numpy(), (h.numpy(), c.numpy())), cpu(x, state))
        assert y.numpy() is not y.numpy()
    assert gpu(d.copy(x[:0]))[0].numpy().shape == (0, N, H)
    d.fail(3, 700, 5000)
    with pytest.raises(rl.CudnnError, match="cuMemcpyDtoHAsync"):
        y.numpy()
    assert d.live("pushed") == 0


class Lying(Exporter):
    """Of its device, until it is asked for the array."""

    def __dlpack_device__(self):
        return CUDA, 0


# What an array is instead: arguments of Exporter -> how the text goes on after its name.
WRONG = [
    ({"dtype": "float64"}, " is float64, need float32 like the weights"),
    ({"dtype": "bool8"}, " is bool8, need float32"),
    ({"dtype": "?"}, " is an unknown type of bits 9, need float32"),
    ({"lanes": 4}, " is float32 in vectors, need float32"),
    ({"device": (CUDA, 1)}, " is on cuda:1, this RNN is on cuda:0"),
    ({"device": (ROCM, 2)}, " is on device 2 of DLPack's type 10, this"),
    ({"device": (MANAGED, 0)}, " is in managed memory, which is not"),
    ({"kind": Lying, "device": (CPU, 0)}, " is on device 0 of DLPack's"),
    ({"kind": Lying, "device": (CUDA, 1)}, " is on cuda:1"),
    ({"shape": (T, N, 6)}, r": shape \(4, 3, 6\), expected \("),
    ({"shape": (1, T, N, I)}, ": a shape of 4 axes, need at most 3"),
    ({"shape": (-T, N, I)}, ": an axis has the size -4"),
    ({"shape": (1 << 40, 1 << 40, I)}, ": an axis has the size 1"),
    ({"shape": (T, N, I), "strides": (I, T * I, 1)},
     r": strides \(5, 20, 1\) \(in elements\) with shape \(4, 3, 5\): it must be"),
    ({"shape": (1, N, H), "strides": (N * H, 1, N)}, ": strides"),
    ({"address": None}, ": its address is 0, but it has elements"),
    ({"address": None, "offset": 16}, ": its address is 0, but it has"),
    ({"offset": 2}, r"\)? begins at 0x\w+, which is not a multiple of the 4 bytes"),
    ({"gives": BufferError("no way")}, " does not export its memory: no way"),
    ({"gives": "x"}, " does not export .*did not return a new capsule"),
]  # fmt: skip
NOT_LIKE_X = [np.zeros((T, N, I), "f4"), torch.zeros(T, N, I), 7,
              Exporter(1 << 40, (T, N, I), device=(PINNED, 0))]  # fmt: skip
# An output, what it is over, by how many bytes it is off, and the arrays that the text names.
OVERLAPS = [
    ("out", "x", 0, r"y \(out\) overlaps x in memory: pass separate arrays"),
    ("out", "x", 4, r"y \(out\) overlaps x"),
    ("out", "h_0", 0, r"y \(out\) overlaps h_0"),
    ("h_out", "h_0", 4, r"h_n \(h_out\) overlaps h_0"),
    ("h_out", "c_0", 0, r"h_n \(h_out\) overlaps c_0"),
    ("c_out", "h_out", 0, r"overlaps [hc]_n \([hc]_out\)"),
]


def assert_refused(do, text, kind=rl.LayoutError):
    with pytest.raises(kind, match=text) as error:
        do()
    assert error.type is kind


def a_call(spec=LSTM, outs=NAMES[3:]):
    """A device, and a call with some outputs."""
    return Device(), Call(spec, TIME_FIRST, *inputs(spec), Exporter, outs)


def replaced(device, array, change):
    """Return what is passed instead of an array."""
    how = {"address": device.put(array), "shape": array.shape} | change
    return how.pop("kind", Exporter)(how.pop("address"), how.pop("shape"), **how)


def assert_given_back(arrays):
    gc.collect()
    for name, array in arrays.items():
        if isinstance(array, Exporter) and not array.gives:
            assert array.deleted == len(array.streams), name
            # no other kind of device is asked with a stream of CUDA
            assert array.__dlpack_device__()[0] == CUDA or not array.streams, name


def refused():
    """Arrays: by their text, before anything is called, and they are given back."""
    device, call = a_call()
    run_on_gpu(call, call.arrays(device), 1)

    def refuse(arrays, text):
        made = device.calls(lambda: assert_refused(lambda: run_on_gpu(call, arrays, 1), text))
        assert "cudnnRNNForward" not in made and "cuMemAlloc_v2" not in made, (text, made)
        assert_given_back(arrays)

    for name, (change, text) in itertools.product(NAMES, WRONG):
        wrong = replaced(device, call.all[name], change)
        refuse(call.arrays(device) | {name: wrong}, rf"\b{name}{text}")
    for name, other in itertools.product(NAMES[1:], NOT_LIKE_X):
        text = rf"\b{name} is a \w+ without DLPack's methods or not on a GPU, as x is: all arrays"
        refuse(call.arrays(device) | {name: other}, text)
    for name, other, off, text in OVERLAPS:
        arrays = call.arrays(device)
        over = Exporter(arrays[other].address + off, call.all[name].shape)
        refuse(arrays | {name: over}, text)
    assert device.live("pushed") == 0


def refused_otherwise():
    """A capsule that somebody has used, streams, states, what a GRU and the host lack."""
    device, call = a_call()
    used = device.copy(call.all["x"])
    used.gives = used.capsule()
    Consumed(used.gives)
    assert_refused(lambda: on_gpu(LSTM)(used), "did not return a new capsule")
    assert_refused(lambda: run_on_gpu(call, call.arrays(device), 2.0), "stream is", rl.SpecError)
    given, (h, c), named = arguments(call, call.arrays(device))
    for wrong in (h, (h,), (h, c, c), [h], {}, (h, None), "hc"):
        assert_refused(lambda s=wrong: on_gpu(LSTM)(given, s, stream=1, **named), "")
    backwards = rl.Weights(weights_of(LSTM), LSTM, "cudnn")
    backwards.config = {"go_backwards": True}
    turned = rl.RNN(backwards, device="cuda")
    assert_refused(lambda: turned(given),
                   "x is a Exporter on a GPU, where go_backwards=True of the source")  # fmt: skip
    host = np.zeros((T, N, I), "f4")
    for x in (host, 7):
        only = "stream= is only for arrays on a GPU; x is on the host"
        assert_refused(lambda x=x: on_gpu(LSTM)(x, stream=1), only, rl.SpecError)
    assert_refused(lambda: on_gpu(LSTM)(host, (h, c)), "h_0 is a Exporter on a GPU, but x is not")
    assert_refused(lambda: on_gpu(LSTM)(host, out=h), "out is a Exporter on a GPU, but x is not")
    numba = types.SimpleNamespace(__cuda_array_interface__={})
    assert_refused(lambda: on_gpu(LSTM)(numba), "x is a SimpleNamespace on a GPU without DLPack's")
    half = LSTM.replace(dtype="float16")
    assert_refused(lambda: on_gpu(half)(host), "x is float32, need float16 like the weights$")
    device, call = a_call(GRU, ())
    arrays = call.arrays(device)
    arrays["c_out"] = arrays["h_0"]
    assert_refused(lambda: run_on_gpu(call, arrays, 1), "c_out is given, but a GRU has no c")
    arrays["x"], call.axes = replaced(device, host, {"shape": (N, I)}), STEP
    assert_refused(lambda: run_on_gpu(call, arrays, 1), "step.. needs one direction", rl.SpecError)


def refused_lengths():
    """By the checks of the CPU, run/cpu/test_errors.py; arrays of a GPU only here."""
    device, call = a_call()
    arrays = call.arrays(device)
    for call.lengths, text in (
        ([4, 0, 5], r"lengths\[2\] is 5, need 0 to 4 = T"),
        (Exporter(1 << 40, (N,), "int64"), "lengths is a .* needed on the host: pass lengths.cpu"),
    ):
        assert_refused(lambda: run_on_gpu(call, arrays, 1), text)
        assert_given_back(arrays)


def raised():
    """Errors that an array did not cause are raised as they are, and all is given back."""
    device, call = a_call()
    wheres = ("__dlpack__", "__dlpack_device__")
    for kind, name, where in itertools.product((KeyboardInterrupt, MemoryError), NAMES, wheres):

        def fail(self, kind=kind):
            raise kind("no matter of the array")

        arrays = call.arrays(device)
        broken = type("Broken", (Exporter,), {where: property(fail)})
        arrays[name] = broken(arrays[name].address, arrays[name].shape)
        with pytest.raises(kind):
            run_on_gpu(call, arrays, 1)
        assert arrays.pop(name).streams == []
        assert_given_back(arrays)
