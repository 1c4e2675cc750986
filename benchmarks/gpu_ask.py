"""Call a libcudnn on a GPU, call by call, for the questions of gpu_facts.py."""

import ctypes
from ctypes import c_size_t, c_ulonglong, c_void_p

import numpy as np
from fakes import ask, device
from fakes.problem import Problem
from gpu_device import the_driver
from gpu_parity import unit

import rnnlayout as rl


class Gpu(device.Device):
    """A device with the interface of the fakes' tests, on the installed driver."""

    def __init__(self, folder):
        self.library = ask.ask_cudnn.Library(folder)
        self.calls = the_driver()
        self.driver, self.context, self.handle = self.calls.library, self.calls.context, c_void_p()

    def write(self, at, data):
        self.calls.synchronize()
        self.cu("cuMemcpyHtoD_v2", c_ulonglong(at), data, c_size_t(len(data)))
        self.calls.synchronize()  # the copy may return before the last bytes have arrived

    def read(self, at, nbytes):
        data = ctypes.create_string_buffer(nbytes)
        self.calls.synchronize()
        self.cu("cuMemcpyDtoH_v2", data, c_ulonglong(at), c_size_t(nbytes))
        return data.raw

    def asked(self, problem, more=None, arrays=None):
        """Return the forward call of a problem, ready to run. more: changes to the question."""
        question = dict(problem.question)
        for key, value in (more or {}).items():
            question[key] = question[key] | value if key == "rnn" else value
        forward = self.forward(question)
        for name, array in (problem.arrays() | (arrays or {})).items():
            forward.fill(name, array.tobytes())
        return forward

    def run(self, problem, more=None, arrays=None):
        """Run a problem. Return {"y": bytes, "hy": bytes, "cy": bytes}."""
        return self.results(self.asked(problem, more, arrays).run())

    def results(self, forward):
        self.sync()
        return {name: forward.bytes(name) for name in ("y", "hy", "cy")}


def new(seed=1, spec=None, **shape):
    """Return a random problem; by default an LSTM."""
    return Problem(spec or rl.Spec("lstm", 5, 6), np.random.default_rng(seed), **shape)


def off(problem, found):
    """Return the largest error; up to 1 is explained by rounding."""
    return float(f"{problem.worst(found, unit=unit(problem.spec)):.3g}")


def judged(found):
    """Return the verdict. found: {case: error as off() returns it}."""
    return {"right": bool(all(value <= 1 for value in found.values())), "off": found}
