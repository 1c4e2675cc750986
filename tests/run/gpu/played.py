"""Play torch, CuPy or JAX for programs on the fakes: no CUDA build of one is installed."""

import contextlib
import sys
from types import ModuleType, SimpleNamespace
from unittest import mock

import numpy as np
from oracles.bits import DTYPES
from run.gpu.exporters import Consumed
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
def played(package, base):
    """Play a library: yield its class of arrays. `of` is the DeviceArray that one was made of."""

    def from_dlpack(array):
        taken = Consumed(array.__dlpack__(stream=1, max_version=(1, 0)))
        made = Array(taken.address, taken.shape, taken.dtype, taken.device)
        made.of, made.keeps = array, taken
        return made

    def empty(shape, dtype):
        assert Place.entered or package == "torch"
        return Array(Device().put(np.zeros(shape, DTYPES[dtype][0])), shape, dtype)

    def init(self, *args, **kwargs):
        base.__init__(self, *args, **kwargs)
        self.device = Place(self.device)

    Array = type("Array", (base,), {"__module__": f"{package}.core", "__init__": init})
    Array.is_cuda = True
    stream = SimpleNamespace(cuda_stream=0, ptr=0, is_capturing=lambda: False)
    cuda = SimpleNamespace(current_stream=lambda _: stream, get_current_stream=lambda: stream)
    if package == "torch":
        Array.new_empty = lambda self, shape: empty(shape, self.dtype)
    module = sys.modules.get("torch") if package == "torch" else None
    if module is None:
        module = ModuleType(LIBRARIES[package])
        module.is_grad_enabled = lambda: False  # asked of torch
        module.empty = empty
    patched = mock.patch.object(module, "cuda", cuda, create=True)
    if hasattr(module, "nn"):  # torch itself
        patched = mock.patch.object(module.cuda, "current_stream", cuda.current_stream)
    with mock.patch.dict(sys.modules, {LIBRARIES[package]: module}), \
            mock.patch.object(module, "from_dlpack", from_dlpack, create=True), \
            patched:  # fmt: skip
        yield Array
