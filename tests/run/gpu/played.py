"""Play torch, CuPy or JAX for programs on the fakes: no CUDA build of one is installed."""

import contextlib
import sys
from types import ModuleType, SimpleNamespace
from unittest import mock

import numpy as np
from oracles.bits import DTYPES
from run.gpu.exporters import Consumed, Exporter, exchange_of
from run.gpu.fake_gpu import Device

# The package that defines the class of arrays, and the module with from_dlpack().
LIBRARIES = {"torch": "torch", "cupy": "cupy", "jaxlib": "jax.dlpack"}


class Place(tuple):
    """As CuPy's arrays have it."""

    entered = 0

    def __enter__(self):
        Place.entered += 1

    def __exit__(self, *_):
        Place.entered -= 1


@contextlib.contextmanager
def played(package, home=None, exchange=False):
    """Play a library: yield its class of arrays. `of` is the DeviceArray that one was made of.

    home: a list with the number of the stream in which torch or CuPy work now, 0 by default.
    exchange: whether it has DLPack's functions for its own stream.
    """
    home = home or [0]

    class Array(Exporter):
        is_cuda = True

        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.device = Place(self.device)

        def __dlpack__(self, *, stream=None):
            if package != "jaxlib" and stream not in (-1, home[0] or 1):
                Device().order(home[0], 0 if stream == 1 else stream)
            return super().__dlpack__(stream=stream)

        def new_empty(self, shape):  # torch's
            return empty(shape, self.dtype)

    def from_dlpack(array):
        taken = Consumed(array.__dlpack__(stream=1))
        made = Array(taken.address, taken.shape, taken.dtype, taken.device)
        made.of, made.keeps = array, taken
        return made

    def empty(shape, dtype):
        assert Place.entered or package == "torch"
        return Array(Device().put(np.zeros(shape, DTYPES[dtype][0])), shape, dtype)

    def current(_=None):
        return SimpleNamespace(cuda_stream=home[0], ptr=home[0], is_capturing=lambda: False)

    Array.__module__ = f"{package}.core"
    Array.home = home if package != "jaxlib" else None
    if exchange:
        Array.__dlpack_c_exchange_api__ = exchange_of(home)
    module = sys.modules.get("torch") if package == "torch" else None
    if module is None:
        module = ModuleType(LIBRARIES[package])
        module.is_grad_enabled = lambda: False  # asked of torch
        module.empty = empty
        module.cuda = SimpleNamespace(current_stream=current, get_current_stream=current)
    with mock.patch.dict(sys.modules, {LIBRARIES[package]: module}), \
            mock.patch.object(module, "from_dlpack", from_dlpack, create=True), \
            mock.patch.object(module.cuda, "current_stream", current):  # fmt: skip
        yield Array
