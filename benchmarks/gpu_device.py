"""A GPU by the driver alone: what the benchmarks need where no framework is there to give it."""

import contextlib
import ctypes
import time
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p

import numpy as np


class Failed(Exception):
    """A call of the driver failed."""


class Driver:
    """cuda:0 and its primary context, which stays current, as torch's and JAX's do."""

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
        """The newest CUDA that it runs."""
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
        """What is called in it, one line each, if this driver is a fake; else nothing."""
        if hasattr(self.library, "fake_log"):
            self.library.fake_log(str(path).encode())
            yield
            self.library.fake_log(None)
        else:
            yield


class Array:
    """Memory of the GPU as __cuda_array_interface__ describes it, on the legacy stream."""

    def __init__(self, driver, array):
        array = np.ascontiguousarray(array)
        self.driver, self.dtype, self.shape = driver, array.dtype, array.shape
        self.nbytes, self.address = array.nbytes, c_ulonglong()
        driver("cuMemAlloc_v2", byref(self.address), c_size_t(max(self.nbytes, 1)))
        driver("cuMemcpyHtoD_v2", self.address, c_void_p(array.ctypes.data), c_size_t(self.nbytes))
        driver.synchronize()  # the copy may return before the last bytes are there
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
        with contextlib.suppress(Exception):  # at the end of the process the driver may be gone
            self.driver("cuMemFree_v2", self.address)


class Clock:
    """Host and device time of calls whose work goes to the legacy stream."""

    def __init__(self, driver):
        self.driver, self.first, self.last = driver, c_void_p(), c_void_p()
        driver("cuEventCreate", byref(self.first), c_uint(0))
        driver("cuEventCreate", byref(self.last), c_uint(0))

    def microseconds(self, job, calls):
        """{"host", "device", "whole"} of one call; whole is with the wait for all of them."""
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
