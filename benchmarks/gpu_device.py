"""A GPU through the driver alone, for benchmarks without a framework."""

import contextlib
import ctypes
import time
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

import numpy as np


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


class Array:
    """A GPU array with __cuda_array_interface__, on the legacy stream."""

    def __init__(self, driver, array):
        array = np.ascontiguousarray(array)
        self.driver, self.dtype, self.shape = driver, array.dtype, array.shape
        self.nbytes, self.address = array.nbytes, c_ulonglong()
        driver("cuMemAlloc_v2", byref(self.address), c_size_t(max(self.nbytes, 1)))
        driver("cuMemcpyHtoD_v2", self.address, c_void_p(array.ctypes.data), c_size_t(self.nbytes))
        driver.synchronize()  # the copy may return before the last bytes have arrived
        self.__cuda_array_interface__ = {
            "shape": self.shape, "typestr": self.dtype.str, "version": 3, "stream": 1,
            "data": (self.address.value, False), "strides": None,
        }  # fmt: skip

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
