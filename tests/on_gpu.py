"""Programs that run RNNs on the fakes, each in a process of its own: python -m on_gpu NAME FOLDER

FOLDER is empty, for files. test_gpu_forward.py starts them.
"""

import ctypes
import gc
import itertools
import os
import pickle
import sys
import threading
import weakref
from ctypes import byref, c_longlong, c_size_t, c_ulonglong, c_void_p
from pathlib import Path

import numpy as np
from bits import DTYPES
from exporters import CUDA, Exporter, Interface, OldExporter, exchanging

import rnnlayout as rl
from rnnlayout import _cudnn, _native

T, N, I, H, P = 4, 3, 5, 7, 2  # noqa: E741
LENGTHS = [4, 0, 2]
LSTM, GRU = rl.Spec("lstm", I, H), rl.Spec("gru", I, H, 2, True)
BIASES = ["double", "input", "recurrent", "none"]
# The CPU's way and the fake's: that many roundings of a number of about 1
NEAR = {"float64": 1e-14, "float32": 5e-6, "float16": 4e-3, "bfloat16": 4e-2}


def random(spec, *shape):
    return np.random.default_rng(shape[0]).normal(size=shape).astype(DTYPES[spec.dtype][0])


def weights_of(spec):
    return random(spec, spec.num_params) / np.array(4, DTYPES[spec.dtype][0])


def inputs(spec, steps=T, batch=N, batch_first=False):
    x = random(spec, steps, batch, spec.input_size)
    rows = spec.num_layers * spec.num_directions
    h = random(spec, rows, batch, spec.proj_size or spec.hidden_size)
    state = (h, random(spec, rows, batch, spec.hidden_size)) if spec.cell == "lstm" else h
    return (np.ascontiguousarray(x.swapaxes(0, 1)) if batch_first else x), state


def flat(result):
    y, state = result
    return [y, *state] if isinstance(state, tuple) else [y, state]


def assert_near(found, right, spec):
    for a, b in zip(flat(found), flat(right), strict=True):
        a = a.numpy() if isinstance(a, rl.DeviceArray) else a
        assert a.shape == b.shape and a.dtype == b.dtype, (a.dtype, a.shape, b.dtype, b.shape)
        np.testing.assert_allclose(a.astype("f8"), b.astype("f8"), rtol=0, atol=NEAR[spec.dtype])


# -------------------------------------------------------------------------------------- the device


class Device:
    """What the fakes tell of themselves, and memory of somebody else on the GPU."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.driver.fake_alloc.restype = c_ulonglong
        self.driver.fake_live.restype = self.driver.fake_calls.restype = c_longlong

    def put(self, array, device=0):
        """The address of a copy."""
        at = self.driver.fake_alloc(c_size_t(max(array.nbytes, 1)), device, 0)
        self.write(at, array)
        return at

    def write(self, at, array):
        data = np.ascontiguousarray(array).view(np.uint8).tobytes()
        self.driver.fake_write(c_ulonglong(at), data, c_size_t(len(data)))

    def read(self, at, like):
        data = ctypes.create_string_buffer(like.nbytes)
        self.driver.fake_read(c_ulonglong(at), data, c_size_t(like.nbytes))
        return np.frombuffer(data.raw, like.dtype).reshape(like.shape)

    def live(self, kind):
        return self.driver.fake_live(kind.encode())

    def all_live(self):
        kinds = ["pushed", "memory", "pinned", "stream", "event", "rnn", "rnn_data", "tensor"]
        return {kind: self.live(kind) for kind in kinds}

    def calls(self, do):
        """The names of the calls that it makes."""
        log = FOLDER / "log"
        log.unlink(missing_ok=True)
        self.driver.fake_log(os.fsencode(log))
        try:
            do()
        finally:
            self.driver.fake_log(None)
        return [line.split()[0] for line in log.read_text().splitlines()]

    def stream(self):
        """A stream of somebody else."""
        context, made = c_void_p(), c_void_p()
        cuda = self.driver
        assert cuda.cuDevicePrimaryCtxRetain(byref(context), 0) == 0
        assert cuda.cuCtxPushCurrent_v2(context) == 0
        assert cuda.cuStreamCreate(byref(made), 1) == 0
        assert cuda.cuCtxPopCurrent_v2(byref(context)) == 0
        assert cuda.cuDevicePrimaryCtxRelease_v2(0) == 0
        return made.value

    def sync(self, stream=None):
        context = c_void_p()
        assert self.driver.cuDevicePrimaryCtxRetain(byref(context), 0) == 0
        assert self.driver.cuCtxPushCurrent_v2(context) == 0
        assert self.driver.cuStreamSynchronize(c_void_p(stream)) == 0
        assert self.driver.cuCtxPopCurrent_v2(byref(context)) == 0
        assert self.driver.cuDevicePrimaryCtxRelease_v2(0) == 0


def on_device(device, array, kind=Exporter, **more):
    return kind(device.put(array), array.shape, name_of(array), **more)


def name_of(array):
    return array.dtype.name


# ------------------------------------------------------------------------------------ the programs


def numpy_equals_the_cpu(cells):
    """Every cell, bias mode, direction, projection, lengths, axes and dtype."""
    for cell, bias, both, proj, dtype in itertools.product(
        cells, BIASES, (False, True), (0, P), DTYPES
    ):
        if proj and cell != "lstm":
            continue
        spec = rl.Spec(cell, I, H, 2, both, proj, bias, dtype=dtype)
        flat = weights_of(spec)
        for batch_first in (False, True):
            cpu, gpu = (
                rl.RNN(flat, spec, device=d, batch_first=batch_first) for d in ("cpu", "cuda")
            )
            x, state = inputs(spec, batch_first=batch_first)
            for lengths in (None, LENGTHS):
                assert_near(gpu(x, state, lengths=lengths), cpu(x, state, lengths=lengths), spec)
        assert_near(gpu(x), cpu(x), spec)
    clipped = dict(cell_clip=(-0.05, 0.1))
    for proj, lengths in itertools.product((0, P), (None, LENGTHS)):
        spec = rl.Spec("lstm", I, H, 2, proj_size=proj)
        cpu, gpu = (rl.RNN(weights_of(spec), spec, device=d, **clipped) for d in ("cpu", "cuda"))
        x, (h, c) = inputs(spec)
        state = h, c.clip(-0.05, 0.1)  # c_0 beyond the bounds: cuDNN clips it first
        assert_near(gpu(x, state, lengths=lengths), cpu(x, state, lengths=lengths), spec)
    assert Device().live("pushed") == 0


def plain():
    numpy_equals_the_cpu(["gru", "rnn_tanh", "rnn_relu"])


def lstm():
    numpy_equals_the_cpu(["lstm"])


def numpy_arrays():
    """Outputs of any strides, no batch, no steps, steps, torch's tensors; options; pickles."""
    import torch

    cpu, gpu = (rl.RNN(weights_of(LSTM), LSTM, device=d) for d in ("cpu", "cuda:0"))
    assert (gpu.device, gpu.algo, gpu.math) == ("cuda:0", "standard", "default")
    assert repr(gpu) == "<RNN of lstm, input_size 5, hidden_size 7, on cuda:0>"
    x, (h, c) = inputs(LSTM)
    right = cpu(x, (h, c))
    room = np.zeros((T, N, 2 * H), "f4")
    out, h_out = room[..., :H], np.zeros((1, N, 2 * H), "f4")[..., ::2]
    y, (h_n, c_n) = gpu(x, (h, c), out=out, h_out=h_out)
    assert y is out and h_n is h_out and not room[..., H:].any()
    assert_near((y, (h_n, c_n)), right, LSTM)
    assert_near(gpu(x[::-1], (h, c)), cpu(x[::-1], (h, c)), LSTM)
    assert_near(gpu(torch.from_numpy(x), (h, c)), right, LSTM)
    assert_near(gpu(x[:, 0]), cpu(x[:, 0]), LSTM)
    state = h.copy(), c.copy()
    for x_t, right_y in zip(x, right[0], strict=True):
        y, state = gpu.step(x_t, state, h_out=state[0], c_out=state[1])
        np.testing.assert_allclose(y, right_y, atol=NEAR["float32"])
    assert_near((right[0], state), right, LSTM)
    assert_near(gpu(x[:0], (h, c)), cpu(x[:0], (h, c)), LSTM)
    assert_near(gpu(x[:, :0]), cpu(x[:, :0]), LSTM)
    assert_near(gpu(x, (h, c), lengths=[0, 0, 0]), cpu(x, (h, c), lengths=[0, 0, 0]), LSTM)
    assert_near(rl.forward(x, weights_of(LSTM), LSTM, device="cuda", state=(h, c)), right, LSTM)
    again = pickle.loads(pickle.dumps(rl.RNN(weights_of(GRU), GRU, device="cuda", math="tf32")))
    assert (again.device, again.math, again.spec) == ("cuda:0", "tf32", GRU)
    assert again._native.weights().tobytes() == weights_of(GRU).tobytes()
    gpu.update(weights_of(LSTM) / 2)
    assert_near(gpu(x), rl.RNN(weights_of(LSTM) / 2, LSTM)(x), LSTM)
    if OLD:
        return
    half = LSTM.replace(dtype="bfloat16")
    copied = pickle.loads(pickle.dumps(rl.RNN(weights_of(half), half, device="cuda")))
    assert copied._native.weights().tobytes() == weights_of(half).tobytes()


def options():
    """What the GPU has not is said; "auto" takes the CPU for it."""
    flat = weights_of(LSTM)
    before = rl.Spec("gru", I, H, reset="before")
    tensors = {name: np.ones(s, "f4") for name, s in rl.describe("keras", before).items()}
    for wrong, text in [
        (dict(math="bfloat16"), "math is 'bfloat16'; cuda:0 has 'default' and 'tf32'"),
        (
            dict(algo="fast"),
            "algo is 'fast'; cuda:0 has 'standard', 'persist_static' and 'persist_",
        ),
        (dict(cell_clip=(1, -1)), "clip"),
        (dict(cell_clip=7), "cell_clip is 7, need (low, high), two numbers"),
    ]:
        try:
            rl.RNN(flat, LSTM, device="cuda", **wrong)
        except rl.SpecError as error:
            assert text in str(error), error
        else:
            raise AssertionError(wrong)
    try:
        rl.RNN(tensors, before, layout="keras", device="cuda")
    except rl.SpecError as error:
        assert "device is 'cuda:0', and cudnn has no GRU with reset='before'" in str(error), error
        assert str(error).endswith("use device='cpu'")
    try:
        rl.RNN(flat, LSTM, device="cuda:1")
    except rl.CudnnNotFoundError as error:
        assert "cuda:1 cannot be used: there is no cuda:1" in str(error), error
    auto = rl.RNN(flat, LSTM, device="auto")
    assert auto.device == "cuda:0" and pickle.loads(pickle.dumps(auto)).device == "cuda:0"
    assert rl.RNN(flat, LSTM, device="auto", math="tf32").device == "cuda:0"
    assert rl.RNN(flat, LSTM, device="auto", math="bfloat16").device == "cpu"
    assert rl.RNN(tensors, before, layout="keras", device="auto").device == "cpu"
    try:
        rl.RNN(tensors, before, layout="keras", device="auto", math="tf32")
    except rl.SpecError as error:
        assert str(error) == "math is 'tf32'; the CPU has 'default' and 'bfloat16'", error
    else:
        raise AssertionError


def device_arrays():
    """In and out without a copy, by each protocol; results as others see them."""
    for spec in (LSTM, GRU, LSTM.replace(dtype="bfloat16"), LSTM.replace(dtype="float64")):
        if OLD and spec.dtype == "bfloat16":
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
        # and back in again, with no copy of anything
        wide = rl.Spec("rnn_tanh", y.shape[-1], H, dtype=spec.dtype)
        then = rl.RNN(weights_of(wide), wide, device="cuda")
        assert_near(then(y), rl.RNN(weights_of(wide), wide)(y.numpy()), wide)


def protocols():
    """What a DeviceArray tells others."""
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
        taken = _native.take_dlpack(capsule)
        assert taken[1:] == (y.address, y.shape, (N * H, H, 1), "float32", CUDA, 0, False)
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
    # memory goes when the last of array, block mates and consumers has gone
    gc.collect()
    before = d.live("memory")
    capsule = y.__dlpack__(max_version=(1, 1))
    taken = _native.take_dlpack(capsule)
    del y, h, _, capsule
    gc.collect()
    assert d.live("memory") == before
    assert (d.read(interface["data"][0], right) == right).all()
    del taken
    assert d.live("memory") == before - 1
    y, _ = gpu(on_device(d, x))
    capsule = y.__dlpack__()  # that nobody takes
    del y, _
    assert d.live("memory") == before
    del capsule
    assert d.live("memory") == before - 1
    thin = LSTM.replace(dtype="bfloat16")
    y, _ = rl.RNN(weights_of(thin), thin, device="cuda")(on_device(d, inputs(thin)[0]))
    assert not hasattr(y, "__cuda_array_interface__")
    assert _native.take_dlpack(y.__dlpack__())[4] == "bfloat16"


def outputs():
    """out=, h_out=, c_out=: a second run is one call of cuDNN's, and allocates nothing."""
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
            if not (OLD and lengths):  # which 8.9.6 wants on the device too
                assert not [n for n in made if any(w in n for w in ("Alloc", "cpy", "Sync"))], made
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


def streams():
    """The one that is asked for, that of x's owner, else the legacy default one; no race."""
    cpu, gpu = (rl.RNN(weights_of(LSTM), LSTM, device=d) for d in ("cpu", "cuda"))
    d = Device()
    x, _ = inputs(LSTM)
    right = cpu(x)
    side, other = d.stream(), d.stream()
    now = [side]
    Tensorlike = exchanging(lambda: now[0])
    tensor = on_device(d, x, Tensorlike)
    y, _ = gpu(tensor)
    assert y.stream == side and tensor.streams == []
    assert_near((y, _), right, LSTM)
    # torch's way: x and out= of one owner, no stream=; then its current stream is another one
    out = on_device(d, right[0] * 0, Tensorlike)
    for now[0] in (side, 0, other):
        y, _ = gpu(tensor, out=out)
        assert y is out and _[0].stream == (now[0] or 1)
        d.sync(now[0])
        np.testing.assert_allclose(d.read(out.address, right[0]), right[0], atol=1e-5)
    # x of one owner, out of another: each stream waits for the other one's
    there = Interface(d.put(right[0] * 0), right[0].shape, stream=side)
    made = d.calls(lambda: gpu(tensor, out=there))
    assert made.count("cuStreamWaitEvent") >= 2, made
    d.sync(side)
    np.testing.assert_allclose(d.read(there.__cuda_array_interface__["data"][0], right[0]),
                               right[0], atol=1e-5)  # fmt: skip
    # a DeviceArray of one stream in another, both ways
    y, _ = gpu(on_device(d, x), stream=side)
    assert y.stream == side
    wide = rl.Spec("rnn_relu", H, H)
    then = rl.RNN(weights_of(wide), wide, device="cuda")
    made = d.calls(lambda: then(y, stream=other))
    assert made.count("cuStreamWaitEvent") >= 1, made
    z, _ = then(y)
    assert z.stream == side
    again, _ = gpu(on_device(d, x), out=y, stream=other)
    assert again is y and y.stream == other
    assert_near((y, right[1]), right, LSTM)
    # DLPack is asked to let our stream wait
    plain = on_device(d, x)
    gpu(plain)
    gpu(plain, stream=side)
    assert plain.streams == [1, side]
    d.sync(side)
    d.sync(other)


def owners():
    """What a call reads lives as long as it may be read, and no longer."""
    gpu = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    d = Device()
    x, _ = inputs(LSTM)
    array = on_device(d, x)
    seen = weakref.ref(array)
    y, state = gpu(array)
    assert array.deleted == 0
    exporter = array
    del array
    y.numpy()
    assert exporter.deleted == 0  # the block keeps it
    del y, state
    gc.collect()
    assert exporter.deleted == 1
    del exporter
    gc.collect()  # a fake one is a cycle
    assert seen() is None
    # with all outputs given, until the next call in this stream
    outs = [on_device(d, a) for a in flat(gpu(x))]
    named = dict(zip(("out", "h_out", "c_out"), outs, strict=True))
    first, second = on_device(d, x), on_device(d, x)
    gpu(first, stream=1, **named)
    gc.collect()
    assert first.deleted == 0 and [a.deleted for a in outs] == [1, 1, 1]
    gpu(second, stream=1, **named)
    gc.collect()
    assert (first.deleted, second.deleted) == (1, 0)
    d.sync()
    del gpu
    gc.collect()
    assert second.deleted == 1


def errors():
    """Each call of the two libraries fails in turn: an error of ours, and the next call is well."""
    cpu, gpu = (rl.RNN(weights_of(LSTM), LSTM, device=d) for d in ("cpu", "cuda"))
    d = Device()
    x, state = inputs(LSTM)
    right = cpu(x, state)
    given = on_device(d, x)
    least = {"host": 5, "device": 3, "numpy": 3, "new": 8, "pickle": 2}
    ways = {
        "host": lambda: gpu(x, state),
        "device": lambda: gpu(given),
        "numpy": lambda: gpu(given)[0].numpy(),
        "new": lambda: rl.RNN(weights_of(LSTM), LSTM, device="cuda"),
        "pickle": lambda: pickle.dumps(gpu),
    }
    for name, way in ways.items():
        way()
        gc.collect()
        before, count, failed = d.all_live(), len(d.calls(way)), set()
        for k, (cuda, cudnn) in itertools.product(range(1, count + 1), ((801, 5000), (2, 4000))):
            d.driver.fake_fail(c_longlong(k), cuda, cudnn)
            try:
                way()
            except rl.CudnnError as error:
                assert error.status in (cuda, cudnn), (name, k, error)
                assert error.call.startswith("cu") and error.call in str(error), (name, k, error)
                again = pickle.loads(pickle.dumps(error))
                assert (again.status, again.call) == (error.status, error.call)
                failed.add(error.call)
            except MemoryError as error:
                assert cuda == 2 and "memory" in str(error), (name, k, error)
            d.driver.fake_fail(c_longlong(0), 0, 0)
        gc.collect()
        assert len(failed) >= least[name], (name, failed)
        now = d.all_live()
        # a lane or a plan more may have been made, which is kept
        assert now["pushed"] == 0 and now["memory"] <= before["memory"] + 1, (name, now, before)
        assert_near(gpu(x, state), right, LSTM)


def threads():
    """Many calls of one RNN at a time, on host and device arrays, while it is updated."""
    cpu, gpu = (rl.RNN(weights_of(LSTM), LSTM, device=d) for d in ("cpu", "cuda"))
    d = Device()
    x, state = inputs(LSTM)
    right, wrong = cpu(x, state), []

    def work():
        try:
            mine = on_device(d, x)
            firsts = tuple(on_device(d, a) for a in state)
            for _ in range(10):
                assert_near(gpu(x, state), right, LSTM)
                assert_near(gpu(mine, firsts), right, LSTM)
        except BaseException as error:
            wrong.append(error)

    running = [threading.Thread(target=work) for _ in range(6)]
    for thread in running:
        thread.start()
    for _ in range(10):
        gpu.update(weights_of(LSTM))
    for thread in running:
        thread.join()
    if wrong:
        raise wrong[0]


def leaks():
    """Nothing of Python or of the device is left behind by calls, errors and RNNs."""
    from leaks import growth

    gpu = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    d = Device()
    x, state = inputs(LSTM)
    given = Interface(d.put(x), x.shape)
    small = Interface(d.put(x), (*x.shape[:-1], 3))
    outs = {"out": Interface(d.put(np.zeros((T, N, H), "f4")), (T, N, H))}

    def refused():
        try:
            gpu(small)
        except rl.LayoutError:
            return
        raise AssertionError

    def once():
        gpu(x, state)
        y, _ = gpu(given)
        y.numpy()
        y.__dlpack__(max_version=(1, 0))
        _native.take_dlpack(y.__dlpack__())
        gpu(given, stream=1, **outs)
        refused()

    once()
    live = d.all_live()
    # the fakes keep what they have made: the C library's bytes do not count here
    limits = [25, 25, 1 << 40]
    more = growth(lambda: [once() for _ in range(50)], limits)
    assert (more < limits).all(), more
    assert d.all_live() == live


def at_exit():
    """An array, an RNN and a consumer's capsule that live to the end of the process."""
    gpu = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    y, _ = gpu(on_device(Device(), inputs(LSTM)[0]))
    sys.modules["left"] = [gpu, y, _native.take_dlpack(y.__dlpack__()), y.__dlpack__()]


if __name__ == "__main__":
    FOLDER, OLD = Path(sys.argv[2]), _cudnn.find()["version"] < 90_000
    globals()[sys.argv[1]]()
    print("well")
