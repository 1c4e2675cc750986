"""A GPU through the driver alone, for benchmarks without a framework."""

import contextlib
import ctypes
import functools
import time
from ctypes import (
    POINTER,
    byref,
    c_char_p,
    c_float,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_uint8,
    c_uint16,
    c_uint64,
    c_ulonglong,
    c_void_p,
    py_object,
)

import numpy as np

CUDA = 2  # a GPU, as DLPack numbers kinds of devices


class Failed(Exception):
    """A call of the driver failed."""


class Driver:
    """cuda:0 and its primary context, which stays current, as with torch and JAX."""

    def __init__(self):
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as why:
            raise Failed(f"no driver: {why}") from None
        self("cuInit", c_uint(0))
        self.context = c_void_p()
        self("cuDevicePrimaryCtxRetain", byref(self.context), 0)
        self("cuCtxPushCurrent_v2", self.context)

    def __call__(self, call, *arguments):
        status = getattr(self.library, call)(*arguments)
        if status:
            raise Failed(f"{call}: {status}")

    def name(self):
        text = ctypes.create_string_buffer(128)
        self("cuDeviceGetName", text, 128, 0)
        return text.value.decode()

    def version(self):
        """Return the newest CUDA version that the driver supports."""
        number = c_int()
        self("cuDriverGetVersion", byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def current(self):
        found = c_void_p()
        self("cuCtxGetCurrent", byref(found))
        return found.value

    def synchronize(self):
        self("cuCtxSynchronize")

    @contextlib.contextmanager
    def fakes_log(self, path):
        """Log all calls to path, one line each, if the driver is a fake; otherwise do nothing."""
        if hasattr(self.library, "fake_log"):
            self.library.fake_log(str(path).encode())
            yield
            self.library.fake_log(None)
        else:
            yield


@functools.cache
def the_driver():
    """Return that of this process, whose cases leave its context current."""
    return Driver()


class Tensor(ctypes.Structure):
    """DLManagedTensor of DLPack."""

    _fields_ = [
        ("data", c_void_p), ("device", c_int * 2), ("ndim", c_int), ("code", c_uint8),
        ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)), ("offset", c_uint64), ("context", c_void_p),
        ("deleter", c_void_p),
    ]  # fmt: skip


new_capsule = ctypes.PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


class Array:
    """A GPU array with DLPack, on the legacy stream."""

    def __init__(self, driver, array):
        array = np.ascontiguousarray(array)
        self.driver, self.dtype, self.shape = driver, array.dtype, array.shape
        self.nbytes, self.address = array.nbytes, c_ulonglong()
        driver("cuMemAlloc_v2", byref(self.address), c_size_t(max(self.nbytes, 1)))
        driver("cuMemcpyHtoD_v2", self.address, c_void_p(array.ctypes.data), c_size_t(self.nbytes))
        driver.synchronize()  # the copy may return before the last bytes have arrived
        code = 4 if array.dtype.name == "bfloat16" else 2
        sizes = (c_int64 * array.ndim)(*array.shape)
        self.tensor = Tensor(self.address.value, (c_int * 2)(CUDA, 0), array.ndim, code,
                             8 * array.dtype.itemsize, 1, sizes)  # fmt: skip

    def __dlpack_device__(self):
        return CUDA, 0

    def __dlpack__(self, *, stream=None, max_version=None):
        return new_capsule(ctypes.addressof(self.tensor), b"dltensor", None)

    def numpy(self):
        made = np.empty(self.shape, self.dtype)
        self.driver.synchronize()
        self.driver("cuMemcpyDtoH_v2", c_void_p(made.ctypes.data), self.address,
                    c_size_t(self.nbytes))  # fmt: skip
        return made

    def __del__(self):
        with contextlib.suppress(Exception):  # at exit the driver may already be unloaded
            self.driver("cuMemFree_v2", self.address)


class Clock:
    """Measure the host and device time of calls that work on the legacy stream."""

    def __init__(self, driver):
        self.driver, self.first, self.last = driver, c_void_p(), c_void_p()
        driver("cuEventCreate", byref(self.first), c_uint(0))
        driver("cuEventCreate", byref(self.last), c_uint(0))

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
