"""Play torch, CuPy or JAX for programs on the fakes: no CUDA build of one is installed."""

import contextlib
import sys
from types import ModuleType
from unittest import mock

from run.gpu.exporters import Consumed

# The package that defines the class of arrays, and the module with from_dlpack().
LIBRARIES = {"torch": "torch", "cupy": "cupy", "jaxlib": "jax.dlpack"}


@contextlib.contextmanager
def played(package, base):
    """Play a library: yield its class of arrays. `of` is the DeviceArray that one was made of."""

    def from_dlpack(array):
        taken = Consumed(array.__dlpack__(stream=1, max_version=(1, 0)))
        made = Array(taken.address, taken.shape, taken.dtype, taken.device)
        made.of, made.keeps = array, taken
        return made

    Array = type("Array", (base,), {"__module__": f"{package}.core"})
    module = sys.modules.get("torch") if package == "torch" else None
    if module is None:
        module = ModuleType(LIBRARIES[package])
        module.is_grad_enabled = lambda: False  # asked of torch
    with mock.patch.dict(sys.modules, {LIBRARIES[package]: module}), \
            mock.patch.object(module, "from_dlpack", from_dlpack, create=True):  # fmt: skip
        yield Array
