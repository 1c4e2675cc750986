"""Programs for fake_gpu.py: arrays on the GPU as packages exchange them."""

import gc

import numpy as np
from run.gpu.calls import Tensor
from run.gpu.exporters import CUDA, Consumed, Exporter, OldExporter, address_of
from run.gpu.fake_gpu import LSTM, Device, H, N, T, assert_near, inputs, on_device, weights_of

import rnnlayout as rl


def bytes_before_the_first_element():
    """DLPack counts them apart from the address; both protocols of it, and the table of torch."""
    cpu, gpu = (rl.RNN(weights_of(LSTM), LSTM, device=d) for d in ("cpu", "cuda"))
    d = Device()
    x, state = inputs(LSTM)
    right = cpu(x, state)
    for kind in (Exporter, OldExporter, Tensor):
        given = []
        for array in (x, *state):
            address = d.put(np.concatenate([np.full(4, np.nan, "f4"), array.ravel()]))
            given.append(kind(address, array.shape, offset=16))
        assert_near(gpu(given[0], tuple(given[1:])), right, LSTM)


def protocols():
    """What a DeviceArray exports."""
    gpu = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    d = Device()
    x, _ = inputs(LSTM)
    y, (h, _) = gpu(on_device(d, x))
    right = y.numpy()
    assert (y.shape, y.dtype, y.device, len(y), y.stream) == ((T, N, H), "float32", "cuda:0", T, 1)
    assert repr(y) == "<DeviceArray of shape (4, 3, 7), float32, on cuda:0>"
    assert y.__dlpack_device__() == (CUDA, 0)
    at = address_of(y)
    assert address_of(h) % 256 == at % 256 == 0
    for version, kind in ((None, "dltensor"), ((0, 8), "dltensor"), ((1, 0), "dltensor_versioned"),
                          ((2, 0), "dltensor_versioned")):  # fmt: skip
        capsule = y.__dlpack__(max_version=version)
        assert f'"{kind}"' in repr(capsule)
        taken = Consumed(capsule)
        assert (taken.address, taken.offset, taken.shape) == (at, 0, y.shape)
        assert (taken.strides, taken.dtype) == ((N * H, H, 1), "float32")
        assert taken.device == (CUDA, 0)
    for wrong, kind in [
        (lambda: np.asarray(y), TypeError),
        (lambda: np.from_dlpack(y), (BufferError, RuntimeError)),
        (lambda: y.__dlpack__(stream=0), ValueError), (lambda: y.__dlpack__(1), TypeError),
        (lambda: y.__dlpack__(stream="x"), TypeError),
        (lambda: y.__dlpack__(dl_device=(1, 0)), BufferError),
        (lambda: y.__dlpack__(dl_device=(CUDA, 1)), BufferError),
        (lambda: y.__dlpack__(copy=True), BufferError), (rl.DeviceArray, TypeError),
    ]:  # fmt: skip
        try:
            wrong()
        except kind:
            continue
        raise AssertionError(wrong)
    y.__dlpack__(dl_device=(CUDA, 0), copy=False, stream=None)
    # the consumer's stream waits for the work, unless it wants none of it
    side = d.stream()
    assert d.calls(lambda: y.__dlpack__(stream=side)).count("cuStreamWaitEvent") == 1
    for stream in (-1, None, 1):
        assert d.calls(lambda stream=stream: y.__dlpack__(stream=stream)) == []
    # memory goes when the last of array and consumers has gone
    del h, _
    gc.collect()
    before = d.live("memory")
    capsule = y.__dlpack__(max_version=(1, 1))
    taken = Consumed(capsule)
    del y, capsule
    gc.collect()
    assert d.live("memory") == before
    assert (d.read(at, right) == right).all()
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
