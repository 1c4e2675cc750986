"""LSTM, GRU and RNN weights, exactly, between cuDNN's packed weight space and every framework.

    >>> import numpy as np, rnnlayout as rl
    >>> spec = rl.Spec("lstm", input_size=2, hidden_size=3)
    >>> weights = {name: np.ones(shape, "f4") for name, shape in rl.describe("torch", spec).items()}
    >>> rl.pack(weights).shape            # cuDNN's weight space
    (84,)
    >>> sorted(rl.convert(weights, dst="keras"))
    ['bias', 'kernel', 'recurrent_kernel']

Letters in the documentation: T steps, N batch, I input, H hidden, P projected (P = H where there
is no projection), L layers, D directions, G gates.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from rnnlayout import _threadpools as _threadpools

if TYPE_CHECKING:
    from rnnlayout._assign import assign
    from rnnlayout._convert import Report, Tensors, check, convert, pack, unpack
    from rnnlayout._cudnn import set_cudnn
    from rnnlayout._errors import FileError, MissingExtraError
    from rnnlayout._explain import explain
    from rnnlayout._files import convert_file, load, save
    from rnnlayout._formats import Converted
    from rnnlayout._found import Found
    from rnnlayout._infer import infer_spec
    from rnnlayout._layouts import Layout, describe, layout, layouts, regions
    from rnnlayout._native import (
        CudnnError,
        CudnnNotFoundError,
        DeviceArray,
        LayoutError,
        LossyError,
        SpecError,
        __version__,
        cpu_tier,
        num_threads,
        set_num_threads,
    )
    from rnnlayout._rnn import RNN, forward
    from rnnlayout._spec import Spec
    from rnnlayout._verify import Verified, verify
    from rnnlayout._weights import Weights, stack

__all__ = [
    "RNN",
    "Converted",
    "CudnnError",
    "CudnnNotFoundError",
    "DeviceArray",
    "FileError",
    "Found",
    "Layout",
    "LayoutError",
    "LossyError",
    "MissingExtraError",
    "Report",
    "Spec",
    "SpecError",
    "Tensors",
    "Verified",
    "Weights",
    "__version__",
    "assign",
    "check",
    "convert",
    "convert_file",
    "cpu_tier",
    "describe",
    "explain",
    "forward",
    "infer_spec",
    "layout",
    "layouts",
    "load",
    "num_threads",
    "pack",
    "regions",
    "save",
    "set_cudnn",
    "set_num_threads",
    "stack",
    "unpack",
    "verify",
]

# Loaded when first asked for, NumPy too: the command line answers --help without them.
_LATER = {
    "Converted": "_formats",
    "CudnnError": "_native",
    "CudnnNotFoundError": "_native",
    "DeviceArray": "_native",
    "FileError": "_errors",
    "Found": "_found",
    "Layout": "_layouts",
    "LayoutError": "_native",
    "LossyError": "_native",
    "MissingExtraError": "_errors",
    "RNN": "_rnn",
    "Report": "_convert",
    "Spec": "_spec",
    "SpecError": "_native",
    "Tensors": "_convert",
    "Verified": "_verify",
    "Weights": "_weights",
    "__version__": "_native",
    "assign": "_assign",
    "check": "_convert",
    "convert": "_convert",
    "convert_file": "_files",
    "cpu_tier": "_native",
    "describe": "_layouts",
    "explain": "_explain",
    "forward": "_rnn",
    "infer_spec": "_infer",
    "layout": "_layouts",
    "layouts": "_layouts",
    "load": "_files",
    "num_threads": "_native",
    "pack": "_convert",
    "regions": "_layouts",
    "save": "_files",
    "set_cudnn": "_cudnn",
    "set_num_threads": "_native",
    "stack": "_weights",
    "unpack": "_convert",
    "verify": "_verify",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"rnnlayout.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATER])
