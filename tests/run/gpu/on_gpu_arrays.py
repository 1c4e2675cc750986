"""Programs for fake_gpu.py: arrays on the GPU as packages exchange them."""

import gc
from ctypes import c_longlong

import numpy as np
import pytest
from oracles.bits import DTYPES
from run.gpu.exporters import CUDA, Consumed, Exporter, address_of
from run.gpu.fake_gpu import LSTM, Device, H, N, T, assert_near, inputs, on_device, weights_of

import rnnlayout as rl


def bytes_before_the_first_element():
    """DLPack counts them apart from the address."""
    cpu, gpu = (rl.RNN(weights_of(LSTM), LSTM, device=d) for d in ("cpu", "cuda"))
    d, given = Device(), []
    x, state = inputs(LSTM)
    for array in (x, *state):
        address = d.put(np.concatenate([np.full(4, np.nan, "f4"), array.ravel()]))
        given.append(Exporter(address, array.shape, offset=16))
    assert_near(gpu(given[0], tuple(given[1:])), cpu(x, state), LSTM)


def what_a_device_array_exports():
    gpu = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    d = Device()
    x, _ = inputs(LSTM)
    y, (h, _) = gpu(on_device(d, x))
    right = rl.RNN(weights_of(LSTM), LSTM)(x)[0]
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
    for wrong, kind in [
        (lambda: np.asarray(y), TypeError),
        (lambda: np.from_dlpack(y), (BufferError, RuntimeError)),
        (lambda: y.__dlpack__(1), TypeError),
        (lambda: y.__dlpack__(dl_device=(1, 0)), BufferError),
        (lambda: y.__dlpack__(dl_device=(CUDA, 1)), BufferError),
        (lambda: y.__dlpack__(dl_device=7), TypeError),
        (lambda: y.__dlpack__(copy=True), BufferError), (rl.DeviceArray, TypeError),
    ]:  # fmt: skip
        try:
            wrong()
        except kind:
            continue
        raise AssertionError(wrong)
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
    y = gpu(on_device(d, x))[0]
    gc.collect()
    capsule = y.__dlpack__()  # that nobody takes
    del y
    assert d.live("memory") == before
    del capsule
    assert d.live("memory") == before - 1
    thin = LSTM.replace(dtype="bfloat16")
    y, _ = rl.RNN(weights_of(thin), thin, device="cuda")(on_device(d, inputs(thin)[0]))
    assert Consumed(y.__dlpack__()).dtype == "bfloat16"


def a_copy_on_the_host():
    """Of every dtype, and of an array without elements."""
    d = Device()
    for dtype in DTYPES:
        spec = LSTM.replace(dtype=dtype)
        cpu, gpu = (rl.RNN(weights_of(spec), spec, device=one) for one in ("cpu", "cuda"))
        x, state = inputs(spec)
        y, (h, c) = gpu(on_device(d, x), tuple(on_device(d, a) for a in state))
        assert_near((y.numpy(), (h.numpy(), c.numpy())), cpu(x, state), spec)
        assert y.numpy() is not y.numpy()
    assert gpu(on_device(d, x[:0]))[0].numpy().shape == (0, N, H)
    d.driver.fake_fail(c_longlong(3), 700, 5000)
    with pytest.raises(rl.CudnnError, match="cuMemcpyDtoHAsync"):
        y.numpy()
    assert d.live("pushed") == 0
