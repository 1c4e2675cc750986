"""The same RNN on a GPU in each implementation that gpu_speed.py compares.

A peer is a function (problem, place) that returns (job, y). job(calls) makes this number of calls
and returns {"host", "device", "whole"}, microseconds per call. y() returns their output as a NumPy
array, or None if there is nothing to compare. A peer raises Missing, with the reason, if it cannot
run. All work goes to the legacy stream, whose events measure the device's time.
"""

import os
import time
from dataclasses import dataclass
from importlib import import_module

import numpy as np
from gpu_arrays import Arrays, torch_module
from gpu_device import Clock
from gpu_floor import Missing, raw, raw_by, raw_graph
from workload import outputs

import rnnlayout as rl

STREAM = 1  # the legacy default stream, as protocols count


@dataclass
class Place:
    """The device and libraries for all peers. torch: may be None; where: torch's device."""

    driver: object
    torch: object
    where: str
    cudnn: str | None  # path of the library that rnnlayout uses

    def __post_init__(self):
        self.clock = Clock(self.driver)
        place = "cuda" if self.where == "cuda" else "driver"
        self.arrays = Arrays(place, self.torch, self.driver)

    def timed(self, call):
        return lambda calls: self.clock.microseconds(call, calls)


def space(problem):
    """Return cuDNN's weight space, in the spec's dtype."""
    return rl.pack(problem.weights, problem.spec.replace(dtype="float32"), layout="torch",
                   dtype=problem.spec.dtype)  # fmt: skip


# ------------------------------------------------------------------------------------------- ours


class Ours:
    """A prepared RNN and its arrays, which are reused in every call."""

    def __init__(self, problem, place, **options):
        self.flat = space(problem)
        self.rnn = rl.RNN(self.flat, problem.spec, device="cuda", **options)
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
    """Return (a call of the module, y)."""
    arrays, flat = Arrays(place.where, place.torch), space(problem)
    module = torch_module(place.torch, problem.spec, flat).to(place.where)
    x = arrays.put(problem.x.astype(flat.dtype))
    parts = [arrays.put(part.astype(flat.dtype)) for part in problem.state or ()]
    state = tuple(parts) if len(parts) == 2 else parts[0] if parts else None
    kept = []

    def call():
        kept[:] = [module(x, state)[0]]

    def y():
        made = arrays.get(kept[0], flat.dtype)
        return made[0] if problem.T == 1 else made

    return call, y


def by_torch(problem, place):
    """Its results are new in every call; inference mode is entered once."""
    call, y = torch_job(problem, place)

    def job(calls):
        with place.torch.inference_mode():
            return place.clock.microseconds(call, calls)

    return job, y


def by_torch_outside(problem, place):
    """Outside inference mode, as code that only calls eval() is."""
    call, _ = torch_job(problem, place)
    return place.timed(call), lambda: None


def by_torch_tf32(problem, place):
    """With torch's own default: cuDNN may use TF32 in an RNN."""
    job, _ = by_torch(problem, place)
    cudnn = place.torch.backends.cudnn

    def allowed(calls):
        cudnn.allow_tf32 = True
        try:
            return job(calls)
        finally:
            cudnn.allow_tf32 = False

    return allowed, lambda: None


def ours_tf32(problem, place):
    if problem.spec.dtype != "float32":
        raise Missing("TF32 is of float32")
    made = Ours(problem, place, math="tf32")
    return place.timed(made.call(into=False)), lambda: None


def by_cell(problem, place):
    """torch's LSTMCell and GRUCell, as a loop of steps calls them."""
    torch, spec = place.torch, problem.spec
    kinds = {"lstm": torch.nn.LSTMCell, "gru": torch.nn.GRUCell}
    if problem.T > 1 or spec.num_layers > 1 or spec.cell not in kinds:
        raise Missing("a cell runs a step of one layer")
    sizes, dtype = (spec.input_size, spec.hidden_size), getattr(torch, spec.dtype)
    cell = kinds[spec.cell](*sizes, dtype=dtype).to(place.where)
    put = Arrays(place.where, torch).put
    x, *state = (put(a.astype(spec.dtype)) for a in (problem.x[0], *(
        part[0] for part in problem.state or (np.zeros(problem.state_shape),) * 2)))  # fmt: skip
    state = tuple(state) if spec.cell == "lstm" else state[0]

    def job(calls):
        with torch.inference_mode():
            return place.clock.microseconds(lambda: cell(x, state), calls)

    return job, lambda: None


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
    call, y = torch_job(problem, place)
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


# What each row of gpu_speed.py measures in one process, ours first.
PEERS = {
    "cuDNN": {
        "ours": ours,
        "raw cuDNN": raw,
        "raw cuDNN, persist_static": raw_by("persist_static"),
        "raw cuDNN, persist_small": raw_by("persist_small"),
        "raw cuDNN, graph": raw_graph,
        "ours, new results": ours_new,
    },
    "torch": {
        "ours": ours,
        "torch": by_torch,
        "torch, outside inference mode": by_torch_outside,
        "torch, TF32": by_torch_tf32,
        "torch, cell": by_cell,
        "torch, graph": by_torch_graph,
        "raw cuDNN": raw,
        "ours, new results": ours_new,
        "ours, TF32, new results": ours_tf32,
        "ours, captured": ours_captured,
    },
    "JAX": {"ours": ours, "JAX": by_jax},
}
