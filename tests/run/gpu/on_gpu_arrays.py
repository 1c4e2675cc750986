"""Programs for fake_gpu.py: arrays on the GPU, and streams."""

import gc

import numpy as np
from run.gpu.calls import Tensor
from run.gpu.exporters import CUDA, Consumed, Exporter, Interface, OldExporter
from run.gpu.fake_gpu import (
    GRU,
    LENGTHS,
    LSTM,
    NEAR,
    Device,
    H,
    N,
    T,
    assert_near,
    flat,
    inputs,
    is_old,
    on_device,
    weights_of,
)

import rnnlayout as rl


def device_arrays():
    """Inputs and outputs without a copy, by each protocol; results as other packages see them."""
    for spec in (LSTM, GRU, LSTM.replace(dtype="bfloat16"), LSTM.replace(dtype="float64")):
        if is_old() and spec.dtype == "bfloat16":
            continue
        cpu, gpu = (rl.RNN(weights_of(spec), spec, device=d) for d in ("cpu", "cuda"))
        d = Device()
        x, state = inputs(spec)
        right = cpu(x, state)
        parts = state if spec.cell == "lstm" else (state,)
        kinds = [Exporter, OldExporter]
        if spec.dtype != "bfloat16":
            kinds.append(lambda at, shape, dtype: Interface(at, shape, np.dtype(dtype).str))
        for kind in kinds:
            given = [on_device(d, a, kind) for a in (x, *parts)]
            result = []

            def call(given=given, result=result, gpu=gpu):
                first = tuple(given[1:]) if len(given) == 3 else given[1]
                result.append(gpu(given[0], first))

            call()
            assert not [name for name in d.calls(call) if "cpy" in name]
            for found in result:
                assert all(isinstance(a, rl.DeviceArray) for a in flat(found))
                assert_near(found, right, spec)
        y = result[-1][0]
        assert (y.shape, y.dtype, y.device, len(y), y.stream) == (
            right[0].shape, spec.dtype, "cuda:0", T, 1,
        )  # fmt: skip
        assert repr(y) == f"<DeviceArray of shape {y.shape}, {spec.dtype}, on cuda:0>"
        first = rl.RNN(weights_of(spec), spec, device="cuda", batch_first=True)
        turned = on_device(d, np.ascontiguousarray(x.swapaxes(0, 1)))
        for lengths in (None, LENGTHS):
            y, last = first(turned, lengths=lengths)
            right_y, right_last = cpu(x, lengths=lengths)
            assert_near((y, last), (right_y.swapaxes(0, 1), right_last), spec)
        (y, _), alone = result[-1], on_device(d, np.ascontiguousarray(x[:, 0]))
        assert_near(first(alone), cpu(x[:, 0]), spec)  # one sequence
        # and back in again, with no copy of anything
        wide = rl.Spec("rnn_tanh", y.shape[-1], H, dtype=spec.dtype)
        then = rl.RNN(weights_of(wide), wide, device="cuda")
        assert_near(then(y), rl.RNN(weights_of(wide), wide)(y.numpy()), wide)


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
    assert y.__dlpack_device__() == (CUDA, 0)
    interface = y.__cuda_array_interface__
    assert interface == {"shape": y.shape, "typestr": "<f4", "data": (y.address, False),
                         "strides": None, "stream": 1, "version": 3}  # fmt: skip
    assert h.address % 256 == y.address % 256 == 0
    for version, kind in ((None, "dltensor"), ((0, 8), "dltensor"), ((1, 0), "dltensor_versioned"),
                          ((2, 0), "dltensor_versioned")):  # fmt: skip
        capsule = y.__dlpack__(max_version=version)
        assert f'"{kind}"' in repr(capsule)
        taken = Consumed(capsule)
        assert (taken.address, taken.offset, taken.shape) == (y.address, 0, y.shape)
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
    assert (d.read(interface["data"][0], right) == right).all()
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
    assert not hasattr(y, "__cuda_array_interface__")
    assert Consumed(y.__dlpack__()).dtype == "bfloat16"


def outputs():
    """out=, h_out=, c_out=: a second run is one call of cuDNN's, and waits for nothing."""
    for spec, lengths in ((LSTM, None), (LSTM, LENGTHS), (GRU, LENGTHS)):
        cpu, gpu = (rl.RNN(weights_of(spec), spec, device=d) for d in ("cpu", "cuda"))
        d = Device()
        x, state = inputs(spec)
        right = cpu(x, state, lengths=lengths)
        for stream in (1, d.stream()):
            arrays = [on_device(d, a) for a in (x, *flat((state, state))[1:])]
            outs = [on_device(d, np.full_like(a, 7)) for a in flat(right)]
            first = tuple(arrays[1:]) if spec.cell == "lstm" else arrays[1]
            named = dict(zip(("out", "h_out", "c_out"), outs, strict=False))

            options = {"lengths": lengths, "stream": stream, **named}

            def call(arrays=arrays, first=first, named=named, gpu=gpu, options=options):
                found = gpu(arrays[0], first, **options)
                assert flat(found) == list(named.values())

            call()
            call()
            made = d.calls(call)
            own = [name for name in made if name.startswith("cudnn")]
            assert own == ["cudnnRNNForward"], made
            if not (is_old() and lengths):  # which 8.9.6 wants on the device too
                waits = ("Alloc_", "Free_", "cpy", "Sync")
                assert not [n for n in made if any(w in n for w in waits)], made
            d.sync(stream)
            for given, a in zip(outs, flat(right), strict=True):
                found = d.read(given.address, a)
                np.testing.assert_allclose(found, a, rtol=0, atol=NEAR[spec.dtype])
        # the state after over the state before
        right = cpu(x, lengths=lengths)
        states = [on_device(d, a * 0) for a in flat(right)[1:]]
        first = tuple(states) if spec.cell == "lstm" else states[0]
        more = dict(zip(("h_out", "c_out"), states, strict=False))
        y, _ = gpu(arrays[0], first, lengths=lengths, stream=1, **more)
        y = y.numpy()
        for found, a in zip(
            [y, *(d.read(s.address, a) for s, a in zip(states, flat(right)[1:], strict=True))],
            flat(right),
            strict=True,
        ):
            np.testing.assert_allclose(found, a, rtol=0, atol=NEAR[spec.dtype])
