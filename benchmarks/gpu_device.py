"""A GPU for benchmarks: its driver, arrays and times."""

import contextlib
import ctypes
import functools
import time
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

import numpy as np

import rnnlayout as rl

CUDA = 2  # a GPU, as DLPack numbers kinds of devices


class Driver:
    """cuda:0 and its primary context, which stays current, as with torch."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.is_fake, self.context = hasattr(self.library, "fake_alloc"), c_void_p()
        self("cuInit", c_uint(0))
        self("cuDevicePrimaryCtxRetain", byref(self.context), 0)
        self("cuCtxPushCurrent_v2", self.context)

    def __call__(self, call, *arguments):
        status = getattr(self.library, call)(*arguments)
        if status:
            raise RuntimeError(f"{call}: {status}")

    def stream(self):
        made, non_blocking = c_void_p(), c_uint(1)
        self("cuStreamCreate", byref(made), non_blocking)
        return made


@functools.cache
def the_driver():
    """Return that of this process, whose cases leave its context current."""
    return Driver()


class Tensor(ctypes.Structure):
    """DLManagedTensor of DLPack."""

    _fields_ = [
        ("data", c_void_p), ("device", c_int * 2), ("ndim", c_int), ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", POINTER(ctypes.c_int64)),
        ("strides", POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64), ("context", c_void_p),
        ("deleter", c_void_p),
    ]  # fmt: skip


new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, c_char_p, c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


class Array:
    """A GPU array with DLPack. shift: bytes by which its address is off."""

    def __init__(self, array, shift=0):
        array, self.driver, self.memory = np.ascontiguousarray(array), the_driver(), c_ulonglong()
        self.driver("cuMemAlloc_v2", byref(self.memory), c_size_t(array.nbytes + shift + 1))
        self.address, self.shape = self.memory.value + shift, array.shape
        self.nbytes = array.nbytes
        self.write(array.tobytes())
        code = 4 if array.dtype.name == "bfloat16" else 2
        sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
        self.tensor = Tensor(self.address, (c_int * 2)(CUDA, 0), array.ndim, code,
                             8 * array.dtype.itemsize, 1, sizes)  # fmt: skip

    def read(self):
        data = ctypes.create_string_buffer(self.nbytes)
        self.driver("cuCtxSynchronize")
        self.driver("cuMemcpyDtoH_v2", data, c_ulonglong(self.address), c_size_t(self.nbytes))
        return data.raw

    def write(self, data):
        self.driver("cuCtxSynchronize")
        self.driver("cuMemcpyHtoD_v2", c_ulonglong(self.address), data, c_size_t(self.nbytes))
        self.driver("cuCtxSynchronize")  # the copy may return before the last bytes have arrived

    def __dlpack_device__(self):
        return CUDA, 0

    def __dlpack__(self, *, stream=None):
        return new_capsule(ctypes.addressof(self.tensor), b"dltensor", None)

    def __del__(self):
        with contextlib.suppress(Exception):  # at exit the driver may already be unloaded
            self.driver("cuMemFree_v2", self.memory)


class Clock:
    """Measure the host and device time of calls that work on the legacy stream."""

    def __init__(self):
        self.driver, self.first, self.last = the_driver(), c_void_p(), c_void_p()
        self.driver("cuEventCreate", byref(self.first), c_uint(0))
        self.driver("cuEventCreate", byref(self.last), c_uint(0))

    def microseconds(self, job, calls):
        """Return {"host", "device", "whole"} per call; whole includes the wait for the last one."""
        self.driver("cuStreamSynchronize", None)
        self.driver("cuEventRecord", self.first, None)
        start = time.perf_counter()
        for _ in range(calls):
            job()
        sent = time.perf_counter()
        self.driver("cuEventRecord", self.last, None)
        self.driver("cuEventSynchronize", self.last)
        done = time.perf_counter()
        took = c_float()
        self.driver("cuEventElapsedTime", byref(took), self.first, self.last)
        seconds = {"host": sent - start, "device": took.value / 1e3, "whole": done - start}
        return {kind: 1e6 * s / calls for kind, s in seconds.items()}


# ------------------------------------------------------------------------------------ with torch


def torch_there():
    """Return (torch or None, its device "cuda" or "cpu", what is missing or None)."""
    try:
        import torch
    except ImportError:
        return None, "cpu", "torch is not installed"
    if not torch.cuda.is_available():
        torch.set_num_threads(1)  # with small sizes, more threads only wait for each other
        return torch, "cpu", f"torch {torch.__version__} has no GPU: it runs on the CPU"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    return torch, "cuda", None


class Arrays:
    """Convert NumPy arrays to arrays of a place, and back. place: "cuda" or "cpu" (torch tensors),
    "driver" (Array) or "host" (NumPy arrays)."""

    def __init__(self, place, torch=None):
        self.place, self.torch = place, torch

    def put(self, array):
        if self.place in ("host", "driver"):
            return array if self.place == "host" else Array(array)
        if array.dtype.name == "bfloat16":  # NumPy lacks it, so torch gets the bits
            tensor = self.torch.from_numpy(np.array(array).view("i2")).view(self.torch.bfloat16)
        else:
            tensor = self.torch.from_numpy(np.array(array))
        return tensor.to(self.place)

    def get(self, result, dtype):
        """Return a result as a NumPy array."""
        if isinstance(result, np.ndarray):
            return result
        if self.torch and isinstance(result, self.torch.Tensor):
            bits = result.cpu()
            bits = bits.view(self.torch.int16) if bits.dtype == self.torch.bfloat16 else bits
            return np.array(bits).view(dtype)
        if isinstance(result, rl.DeviceArray):
            return result.numpy()
        return np.frombuffer(result.read(), dtype).reshape(result.shape)


def torch_module(torch, spec, flat):
    """Return nn.LSTM, GRU or RNN with the weights of a weight space."""
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(spec.cell, torch.nn.RNN)
    more = {"nonlinearity": spec.cell[4:]} if spec.cell.startswith("rnn") else {}
    more |= {"proj_size": spec.proj_size} if spec.proj_size else {}
    more |= {"dtype": getattr(torch, spec.dtype), "bidirectional": spec.bidirectional}
    sizes = spec.input_size, spec.hidden_size, spec.num_layers
    module = kind(*sizes, bias=spec.bias != "none", **more)
    rl.assign(module, rl.convert(flat, spec, layout="cudnn", to="torch"))
    return module.eval()
