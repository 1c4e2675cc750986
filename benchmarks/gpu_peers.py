"""The same RNN on a GPU in each implementation that gpu_speed.py compares.

A peer is a function (problem, place) that returns (job, y). job(calls) makes this number of calls
and returns {"host", "device", "whole"}, microseconds per call. y() returns their output as a NumPy
array, or None if there is nothing to compare. A peer raises Missing, with the reason, if it cannot
run. All work goes to the legacy stream, whose events measure the device's time.
"""

import ctypes
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
from forward_peers import outputs
from gpu_device import Clock
from gpu_parity import Arrays, places, torch_module

import rnnlayout as rl

HERE = Path(__file__).resolve().parent
STREAM = 1  # the legacy default stream, as protocols count
CELL = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
DTYPE = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}


class Missing(Exception):
    """The peer cannot run on this machine; the text says why."""


@dataclass
class Place:
    """The device and libraries for all peers. torch: may be None; where: torch's device."""

    driver: object
    torch: object
    where: str
    cudnn: str | None  # path of the library that rnnlayout uses

    def __post_init__(self):
        self.clock = Clock(self.driver)
        self.arrays = places(self.torch, self.where, self.driver)[0]

    def timed(self, call):
        return lambda calls: self.clock.microseconds(call, calls)


def space(problem):
    """Return cuDNN's weight space, in the spec's dtype."""
    return rl.pack(problem.weights, problem.spec.replace(dtype="float32"), layout="torch",
                   dtype=problem.spec.dtype)  # fmt: skip


# ------------------------------------------------------------------------------------------- ours


class Ours:
    """A prepared RNN and its arrays, which are reused in every call."""

    def __init__(self, problem, place):
        self.flat = space(problem)
        self.rnn = rl.RNN(self.flat, problem.spec, device="cuda")
        put = place.arrays.put
        self.step = problem.T == 1
        x = problem.x[0] if self.step else problem.x
        given = outputs(problem)
        given["out"] = given["out"][0] if self.step else given["out"]
        self.x, self.given = put(self.cast(x)), {n: put(self.cast(a)) for n, a in given.items()}
        parts = [put(self.cast(part)) for part in problem.state or ()]
        self.state = tuple(parts) if len(parts) == 2 else parts[0] if parts else None
        self.get = place.arrays.get

    def cast(self, array):
        return array.astype(self.flat.dtype)

    def call(self, into=True):
        run = self.rnn.step if self.step else self.rnn
        given = self.given if into else {}
        return lambda: run(self.x, self.state, stream=STREAM, **given)

    def call_in(self, torch):
        """Return a call in torch's current stream, which a capture changes."""
        run = self.rnn.step if self.step else self.rnn
        return lambda: run(self.x, self.state, stream=torch.cuda.current_stream(), **self.given)

    def y(self):
        return self.get(self.given["out"], self.flat.dtype)


def ours(problem, place):
    """Device arrays; results written into out=."""
    made = Ours(problem, place)
    return place.timed(made.call()), made.y


def ours_new(problem, place):
    """Results are newly allocated in every call."""
    made = Ours(problem, place)
    return place.timed(made.call(into=False)), lambda: None


def ours_captured(problem, place):
    """In a graph captured by the caller."""
    made = Ours(problem, place)
    return place.timed(torch_graph(place, made.call_in(place.torch))), made.y


# ------------------------------------------------------------------------------------------ torch


def torch_job(problem, place):
    """Return (module, a call of it, y)."""
    if not place.torch:
        raise Missing("torch is not installed")
    arrays, flat = Arrays(place.where, place.torch), space(problem)
    module = torch_module(place.torch, problem.spec, flat).to(place.where)
    x = arrays.put(problem.x.astype(flat.dtype))
    parts = [arrays.put(part.astype(flat.dtype)) for part in problem.state or ()]
    state = tuple(parts) if len(parts) == 2 else parts[0] if parts else None
    kept = []

    def call(run=module):
        kept[:] = [run(x, state)[0]]

    def y():
        made = arrays.get(kept[0], flat.dtype)
        return made[0] if problem.T == 1 else made

    return module, call, y


def inside(place, call):
    """Return a function that runs call() in torch's inference mode."""

    def run():
        with place.torch.inference_mode():
            call()

    return run


def by_torch(problem, place):
    _, call, y = torch_job(problem, place)
    return place.timed(inside(place, call)), y


def by_torch_compiled(problem, place):
    module, call, y = torch_job(problem, place)
    if place.where != "cuda":
        raise Missing("torch has no GPU")
    if problem.T > 1:
        raise Missing("only single steps: compiling more takes long")
    compiled = place.torch.compile(module)
    try:
        inside(place, lambda: call(compiled))()
    except Exception as why:
        raise Missing(f"torch.compile: {type(why).__name__}: {str(why)[:200]}") from None
    return place.timed(inside(place, lambda: call(compiled))), y


def torch_graph(place, call):
    """Return the replay of a call, captured by torch."""
    if place.where != "cuda":
        raise Missing("torch has no GPU")
    torch = place.torch
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.inference_mode(), torch.cuda.stream(side):
        for _ in range(3):
            call()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        call()
    return graph.replay


def by_torch_graph(problem, place):
    _, call, y = torch_job(problem, place)
    return place.timed(torch_graph(place, call)), y


# -------------------------------------------------------------------------------------------- JAX


def by_jax(problem, place):
    """jax.experimental.rnn, which only has LSTMs and calls cuDNN. It uses its own streams, so the
    events cannot measure it."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leave memory to the others
    try:
        jax, rnn = import_module("jax"), import_module("jax.experimental.rnn")
    except ImportError:
        raise Missing("JAX is not installed") from None
    spec = problem.spec
    if not any(device.platform == "gpu" for device in jax.devices()):
        raise Missing("JAX has no GPU")
    if spec.cell != "lstm" or spec.dtype != "float32":
        raise Missing("it only has a float32 LSTM")
    sizes = spec.input_size, spec.hidden_size, spec.num_layers, 0.0, spec.bidirectional
    x = jax.numpy.asarray(problem.x.swapaxes(0, 1))
    states = problem.state or [np.zeros(problem.state_shape, "f4")] * 2
    h, c = map(jax.numpy.asarray, states)
    lengths = jax.numpy.full(problem.N, problem.T, "int32")
    weights, precision = jax.numpy.asarray(space(problem)), jax.lax.Precision.HIGHEST
    call = jax.jit(lambda x, h, c, w, n: rnn.lstm(x, h, c, w, n, *sizes, precision=precision))
    made = jax.block_until_ready(call(x, h, c, weights, lengths))

    def job(calls):
        start = time.perf_counter()
        for _ in range(calls):
            last = call(x, h, c, weights, lengths)
        sent = time.perf_counter()
        jax.block_until_ready(last)
        done = time.perf_counter()
        us = 1e6 / calls
        return {"host": us * (sent - start), "device": None, "whole": us * (done - start)}

    def y():
        found = np.asarray(made[0]).swapaxes(0, 1)
        return found[0] if problem.T == 1 else found

    return job, y


# -------------------------------------------------------------------------------------- the floor


class Raw:
    """raw_cudnn.c as a library, on rnnlayout's libcudnn; built once per process."""

    _library = None

    @classmethod
    def library(cls, place):
        if cls._library is None:
            if not place.cudnn:
                raise Missing("no libcudnn")
            made = Path(tempfile.mkdtemp()) / "raw_cudnn.so"
            compiler = os.environ.get("CC", "cc")
            flags = ["-std=c11", "-O2", "-shared", "-fPIC", "-I", HERE.parent / "csrc", "-o", made]
            try:
                subprocess.run([compiler, *flags, HERE / "raw_cudnn.c", "-ldl"], check=True)
            except (OSError, subprocess.CalledProcessError) as why:
                raise Missing(f"compiling failed: {why}") from None
            library = ctypes.CDLL(str(made))
            library.raw_new.restype = ctypes.c_void_p
            library.raw_free.argtypes = [ctypes.c_void_p]
            if library.raw_open(place.cudnn.encode()):
                raise Missing("it could not open libcudnn")
            cls._library = library
        return cls._library

    def __init__(self, problem, place, by_graph):
        self.opened, self.by_graph, spec = self.library(place), by_graph, problem.spec
        numbers = (CELL[spec.cell], problem.T, problem.N, spec.input_size, spec.hidden_size,
                   spec.num_layers, spec.num_directions, DTYPE[spec.dtype])  # fmt: skip
        made = self.opened.raw_new((ctypes.c_int * 8)(*numbers))
        if not made:
            raise Missing("cuDNN refused it")
        self.raw = ctypes.c_void_p(made)

    def __del__(self):
        if hasattr(self, "raw"):
            self.opened.raw_free(self.raw)

    def __call__(self, calls):
        us = (ctypes.c_double * 3)()
        if self.opened.raw_time(self.raw, calls, self.by_graph, us):
            raise Missing("a call failed")
        return dict(zip(("host", "device", "whole"), us, strict=True))


def raw(problem, place):
    return Raw(problem, place, 0), lambda: None


def raw_graph(problem, place):
    return Raw(problem, place, 1), lambda: None


PEERS = {
    "ours": ours,
    "raw cuDNN": raw,
    "torch": by_torch,
    "ours, new results": ours_new,
    "ours, captured": ours_captured,
    "raw cuDNN, graph": raw_graph,
    "torch, graph": by_torch_graph,
    "torch, compiled": by_torch_compiled,
    "JAX": by_jax,
}
