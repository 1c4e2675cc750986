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
from rnnlayout._spec import Spec

if TYPE_CHECKING:
    from rnnlayout._assign import assign
    from rnnlayout._convert import Report, Tensors, check, convert, pack, unpack
    from rnnlayout._cudnn import set_cudnn
    from rnnlayout._errors import FileError, MissingExtraError
    from rnnlayout._explain import explain
    from rnnlayout._files import convert_file, load, save
    from rnnlayout._found import Found
    from rnnlayout._infer import infer_spec
    from rnnlayout._rnn import RNN, forward
    from rnnlayout._weights import Weights, stack

__all__ = [
    "RNN",
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
]

# Loaded when first asked for: an import that only describes a layout should cost next to nothing.
_LATER = {
    "FileError": "_errors",
    "Found": "_found",
    "MissingExtraError": "_errors",
    "RNN": "_rnn",
    "Report": "_convert",
    "Tensors": "_convert",
    "Weights": "_weights",
    "assign": "_assign",
    "check": "_convert",
    "convert": "_convert",
    "convert_file": "_files",
    "explain": "_explain",
    "forward": "_rnn",
    "infer_spec": "_infer",
    "load": "_files",
    "pack": "_convert",
    "save": "_files",
    "set_cudnn": "_cudnn",
    "stack": "_weights",
    "unpack": "_convert",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"rnnlayout.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATER])
