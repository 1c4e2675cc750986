"""The lower limit of a time on the GPU: raw_cudnn.c, on the cuDNN that rnnlayout uses."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CELL = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
DTYPE = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
ALGO = {"standard": 0, "small H": 3}


class Missing(Exception):
    """The peer cannot run on this machine; the text says why."""


def build(folder):
    """Compile raw_cudnn.c as a library; return its path, or "" with the reason on stderr."""
    made = Path(folder) / "raw_cudnn.so"
    flags = ["-std=c11", "-O2", "-shared", "-fPIC", "-I", HERE.parent / "csrc", "-o", made]
    try:
        command = [os.environ.get("CC", "cc"), *flags, HERE / "raw_cudnn.c", "-ldl"]
        subprocess.run(command, check=True)
    except (OSError, subprocess.CalledProcessError) as why:
        print(f"raw_cudnn.c: compiling failed: {why}", file=sys.stderr)
        return ""
    return str(made)


def open_library(cudnn):
    """Return raw_cudnn.c as a library, on a libcudnn. RAW_CUDNN has its path: one for all rows."""
    if not os.environ.get("RAW_CUDNN"):
        raise Missing("raw_cudnn.c was not compiled, and RAW_CUDNN does not name the library")
    try:
        library = ctypes.CDLL(os.environ["RAW_CUDNN"])
    except OSError as why:
        raise Missing(f"RAW_CUDNN: {why}") from None
    library.raw_new.restype = ctypes.c_void_p
    library.raw_free.argtypes = [ctypes.c_void_p]
    if library.raw_open(os.fsencode(cudnn)):
        raise Missing("it could not open libcudnn")
    return library


class Raw:
    """An RNN in raw_cudnn.c: a job for gpu_speed.py."""

    def __init__(self, problem, cudnn, algo="standard"):
        self.library, spec = open_library(cudnn), problem.spec
        numbers = (CELL[spec.cell], problem.T, problem.N, spec.input_size, spec.hidden_size,
                   spec.num_layers, spec.num_directions, DTYPE[spec.dtype], ALGO[algo])  # fmt: skip
        made = self.library.raw_new((ctypes.c_int * 9)(*numbers))
        if not made:
            raise Missing("cuDNN refused it")
        self.raw = ctypes.c_void_p(made)

    def __del__(self):
        if hasattr(self, "raw"):
            self.library.raw_free(self.raw)

    def __call__(self, calls):
        us = (ctypes.c_double * 3)()
        if self.library.raw_time(self.raw, calls, us):
            raise Missing("a call failed")
        return dict(zip(("host", "device", "whole"), us, strict=True))
