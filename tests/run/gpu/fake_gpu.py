"""For programs on the fakes: small RNNs, the device, memory and streams of other owners."""

import contextlib
import ctypes
import os
from ctypes import byref, c_longlong, c_size_t, c_ulonglong, c_void_p

import numpy as np
from oracles.bits import DTYPES
from run.gpu.exporters import Exporter, address_of

import rnnlayout as rl

T, N, I, H = 4, 3, 5, 7  # noqa: E741
LSTM, GRU = rl.Spec("lstm", I, H), rl.Spec("gru", I, H, 2, True)
# The largest difference between the CPU and the fake: some roundings of a number of about 1.
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


def gpu_rnn(spec=LSTM, **options):
    return rl.RNN(weights_of(spec), spec, device="cuda", **options)


def both(spec=LSTM):
    """Return the same RNN on the CPU and on the GPU, x, and a state."""
    return rl.RNN(weights_of(spec), spec), gpu_rnn(spec), *inputs(spec)


def flat(result):
    y, state = result
    return [y, *state] if isinstance(state, tuple) else [y, state]


def assert_close(found, right):
    """Compare an array of the host or of the device with one of the host."""
    if isinstance(found, (rl.DeviceArray, Exporter)):
        assert found.shape == right.shape and found.dtype == right.dtype.name
        found = Device().read(address_of(found), right) if right.size else right
    assert found.shape == right.shape and found.dtype == right.dtype
    near = NEAR[right.dtype.name]
    np.testing.assert_allclose(found.astype("f8"), right.astype("f8"), rtol=0, atol=near)


def assert_near(found, right):
    """Compare the results of two calls."""
    for one, like in zip(flat(found), flat(right), strict=True):
        assert_close(one, like)


# -------------------------------------------------------------------------------------- the device

GLOBAL, THREAD_LOCAL = 0, 1  # whom the mode of a capture forbids to allocate and to wait


class Device:
    """Queries of the fakes, and memory of another owner on the GPU."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.driver.fake_alloc.restype = c_ulonglong
        self.driver.fake_live.restype = self.driver.fake_calls.restype = c_longlong

    def put(self, array):
        """Copy an array to the device and return its address."""
        at = self.driver.fake_alloc(c_size_t(max(array.nbytes, 1)))
        self.write(at, array)
        return at

    def copy(self, array, kind=Exporter, **more):
        """Return a copy on the device."""
        return kind(self.put(array), array.shape, array.dtype.name, **more)

    def write(self, at, array):
        data = np.ascontiguousarray(array).view(np.uint8).tobytes()
        self.driver.fake_write(c_ulonglong(at), data, c_size_t(len(data)))

    def read(self, at, like):
        data = ctypes.create_string_buffer(like.nbytes)
        self.driver.fake_read(c_ulonglong(at), data, c_size_t(like.nbytes))
        return np.frombuffer(data.raw, like.dtype).reshape(like.shape)

    def fail(self, call, cuda, cudnn):
        """Make the call with this number from now on fail, with a status of its library's."""
        self.driver.fake_fail(c_longlong(call), cuda, cudnn)

    def live(self, kind):
        return self.driver.fake_live(kind.encode())

    def all_live(self):
        kinds = ["pushed", "memory", "stream", "event", "rnn", "rnn_data", "tensor"]
        return {kind: self.live(kind) for kind in kinds}

    def calls(self, do):
        """Return the names of the library calls that do() makes."""
        return [line.split()[0] for line in self.log(do)]

    def log(self, do):
        with open(os.environ["FAKE_LOG"]) as log:
            log.seek(0, os.SEEK_END)
            do()
            return log.read().splitlines()

    def cuda(self, name, *arguments):
        """Make a call of the driver as another owner does, in the device's context."""
        context = c_void_p()
        for call, *given in (
            ("cuInit", 0),
            ("cuDevicePrimaryCtxRetain", byref(context), 0),
            ("cuCtxPushCurrent_v2", context),
            (name, *arguments),
            ("cuCtxPopCurrent_v2", byref(context)),
            ("cuDevicePrimaryCtxRelease_v2", 0),
        ):
            assert getattr(self.driver, call)(*given) == 0, call

    def stream(self, flags=1):
        """Return a stream of another owner."""
        made = c_void_p()
        self.cuda("cuStreamCreate", byref(made), flags)
        return made.value

    def sync(self, stream=None):
        self.cuda("cuStreamSynchronize", c_void_p(stream))

    def order(self, before, after):
        """Make a stream wait for another one, as their owner does."""
        event = c_void_p()
        self.cuda("cuEventCreate", byref(event), 2)
        self.cuda("cuEventRecord", event, c_void_p(before))
        self.cuda("cuStreamWaitEvent", c_void_p(after), event, 0)
        self.cuda("cuEventDestroy_v2", event)

    def fill(self, at, nbytes, stream):
        """Submit work of another owner in its stream."""
        self.cuda("cuMemsetD8Async", c_ulonglong(at), 0, c_size_t(nbytes), c_void_p(stream))

    @contextlib.contextmanager
    def capture(self, stream=None, mode=THREAD_LOCAL):
        """Capture a stream, by default a new one; the capture must not be broken by what happens.
        Yields the stream and the graph, which is there when the capture has ended."""
        stream, graph = stream or self.stream(), c_void_p()
        self.cuda("cuStreamBeginCapture_v2", c_void_p(stream), mode)
        yield stream, graph
        self.cuda("cuStreamEndCapture", c_void_p(stream), byref(graph))

    @contextlib.contextmanager
    def fork(self, stream):
        """Yield a new stream that waits for a stream, and is joined to it at the end."""
        branch = self.stream()
        self.order(stream, branch)
        yield branch
        self.order(branch, stream)
