"""How a libcudnn on a GPU is asked, call by call: for gpu_facts.py."""

import ctypes
import sys
from ctypes import c_size_t, c_ulonglong, c_void_p
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from fakes import ask, device
from fakes.problem import Problem
from gpu_device import Driver
from gpu_parity import unit

import rnnlayout as rl


class Gpu(device.Device):
    """A device as the fakes' tests have it, whatever driver is there."""

    def __init__(self, folder):
        self.library = ask.ask_cudnn.Library(folder)
        self.calls = Driver()
        self.driver, self.context, self.handle = self.calls.library, self.calls.context, c_void_p()
        # before 8.9.7 the lengths have to be on the device too; later ones ignore them
        self.needs_lengths = self.library.version < 8907

    def write(self, at, data):
        self.calls.synchronize()
        self.cu("cuMemcpyHtoD_v2", c_ulonglong(at), data, c_size_t(len(data)))
        self.calls.synchronize()  # the copy may return before the last bytes are there

    def read(self, at, nbytes):
        data = ctypes.create_string_buffer(nbytes)
        self.calls.synchronize()
        self.cu("cuMemcpyDtoH_v2", data, c_ulonglong(at), c_size_t(nbytes))
        return data.raw

    def asked(self, problem, more=None, arrays=None):
        """The forward call of a problem, filled and ready. more: what differs in the question."""
        question = {"sequence_lengths": self.needs_lengths} | problem.question
        for key, value in (more or {}).items():
            question[key] = question[key] | value if key == "rnn" else value
        forward = self.forward(question)
        for name, array in (problem.arrays() | (arrays or {})).items():
            forward.fill(name, array.tobytes())
        return forward

    def run(self, problem, more=None, arrays=None):
        """{"y": bytes, "hy": bytes, "cy": bytes}"""
        return self.results(self.asked(problem, more, arrays).run())

    def results(self, forward):
        self.sync()
        return {name: forward.bytes(name) for name in ("y", "hy", "cy")}


def new(seed=1, spec=None, **shape):
    """A random problem; an LSTM unless said otherwise."""
    return Problem(spec or rl.Spec("lstm", 5, 6), np.random.default_rng(seed), **shape)


def off(problem, found):
    """Within 1: what rounding explains."""
    return float(f"{problem.worst(found, unit=unit(problem.spec)):.3g}")


def judged(found):
    """found: {what: how far off}"""
    return {"right": bool(all(value <= 1 for value in found.values())), "off": found}
