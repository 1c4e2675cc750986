"""Time rl.RNN on a GPU against raw cuDNN and torch: cases of gpu.py.

A row is a workload, which all run in turn in one process. Host time ends when
the last of some calls has returned, device time is between two events around the calls, whole time
includes the wait for their work; each is divided by the number of calls.

A peer is a function (problem, place) that returns (job, y). job(calls) makes this number of calls
and returns {"host", "device", "whole"}, microseconds per call. y() returns their output as a NumPy
array, or None if there is nothing to compare. A peer raises Missing, with the reason, if it cannot
run. All work goes to the legacy stream, whose events measure the device's time.
"""

import ctypes
import math
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from gpu_device import Arrays, Clock, torch_module, torch_there
from workload import Problem, outputs

import rnnlayout as rl
from rnnlayout._run import cudnn

HERE = Path(__file__).resolve().parent
STEPS = [
    (cell, 1, 1, H, 1, "float32") for cell in ("lstm", "gru") for H in (64, 128, 256, 512, 1024)
]
STEPS += [("lstm", 1, 1, 256, 2, "float32"), ("lstm", 1, 1, 256, 1, "float16")]
# From Baidu's DeepBench, inference and training.
DEEPBENCH = [
    ("lstm", 150, 1, 256), ("lstm", 150, 4, 256), ("lstm", 25, 1, 512), ("lstm", 25, 4, 512),
    ("lstm", 25, 1, 1024), ("lstm", 50, 1, 1536), ("lstm", 25, 16, 512), ("lstm", 25, 64, 1024),
    ("lstm", 25, 128, 2048), ("gru", 1, 1, 512), ("gru", 1500, 1, 1024), ("gru", 375, 1, 1536),
    ("gru", 375, 1, 2048), ("gru", 375, 1, 2560), ("rnn_tanh", 50, 16, 1760),
    ("rnn_tanh", 50, 64, 2560),
]  # fmt: skip
# Those that matter most: steps, and sequences of one and of many.
FIRST = [
    ("lstm", 1, 1, 64, 1, "float32"), ("lstm", 1, 1, 256, 1, "float32"),
    ("gru", 1, 1, 128, 1, "float32"), ("lstm", 1, 1, 1024, 1, "float16"),
    ("lstm", 25, 1, 512, 1, "float32"), ("lstm", 25, 16, 512, 1, "float32"),
    ("gru", 150, 4, 256, 1, "float32"), ("lstm", 25, 64, 1024, 1, "float16"),
]  # fmt: skip
# cell, T, N, H, L, dtype; I = H
CASES = dict.fromkeys([*FIRST, *STEPS, *((*case, 1, dtype) for dtype in ("float32", "float16")
                                         for case in DEEPBENCH)])  # fmt: skip
CASES = {",".join(map(str, case)): case for case in CASES}

ROUNDS = 9
WARM = 0.5  # seconds of work, after which the clocks of an idle GPU have risen
TURN, MOST_CALLS = 2e3, 20  # microseconds; a GPU's queue holds about a thousand kernels
# The largest allowed difference between two right results. This only checks that all run the same
# network, each in its own arithmetic; gpu_parity.py is the strict check.
APART = {"float32": 1e-3, "float16": 3e-2}


class Missing(Exception):
    """The peer cannot run on this machine; the text says why."""


class Place:
    """The device and libraries for all peers. torch: may be None; where: torch's device."""

    def __init__(self):
        self.torch, self.where, self.missing = torch_there()
        self.cudnn, self.clock = cudnn.cudnn_report()["path"], Clock()
        self.arrays = Arrays("cuda" if self.where == "cuda" else "driver", self.torch)

    def needs_torch(self):
        if not self.torch:
            raise Missing(self.missing)
        return self.torch, Arrays(self.where, self.torch)


def space(problem):
    """Return cuDNN's weight space, in the spec's dtype."""
    return rl.pack(problem.weights, problem.spec.replace(dtype="float32"), layout="torch",
                   dtype=problem.spec.dtype)  # fmt: skip


def inputs(problem, arrays, x):
    """Return x, and the state as a call takes it."""
    x, *parts = (arrays.put(a.astype(problem.spec.dtype)) for a in (x, *(problem.state or ())))
    return x, tuple(parts) if len(parts) == 2 else parts[0] if parts else None


# ------------------------------------------------------------------------------------ raw cuDNN


def build_raw(folder):
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


CELL = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
DTYPE = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
STANDARD, SMALL_H = 0, 3


class Raw:
    """The job of an RNN in raw_cudnn.c, on the cuDNN that rnnlayout uses: the lower limit."""

    def __init__(self, problem, path, algo):
        if not os.environ.get("RAW_CUDNN"):
            raise Missing("raw_cudnn.c was not compiled, and RAW_CUDNN does not name the library")
        try:
            self.library = ctypes.CDLL(os.environ["RAW_CUDNN"])
        except OSError as why:
            raise Missing(f"RAW_CUDNN: {why}") from None
        self.library.raw_new.restype = ctypes.c_void_p
        if self.library.raw_open(os.fsencode(path)):
            raise Missing("it could not open libcudnn")
        spec = problem.spec
        numbers = (CELL[spec.cell], problem.T, problem.N, spec.input_size, spec.hidden_size,
                   spec.num_layers, spec.num_directions, DTYPE[spec.dtype], algo)  # fmt: skip
        self.raw = ctypes.c_void_p(self.library.raw_new((ctypes.c_int * 9)(*numbers)))
        if not self.raw:
            raise Missing("cuDNN refused it")

    def __del__(self):
        if getattr(self, "raw", None):
            self.library.raw_free(self.raw)

    def __call__(self, calls):
        us = (ctypes.c_double * 3)()
        if self.library.raw_time(self.raw, calls, us):
            raise Missing("a call failed")
        return dict(zip(("host", "device", "whole"), us, strict=True))


def raw(problem, place, algo=STANDARD):
    return Raw(problem, place.cudnn, algo), lambda: None


# ------------------------------------------------------------------------------- ours and torch's


def ours(problem, place, into=True, graph=False, arrays=None, **options):
    """Prepared once. into: whether results are written into out=, or new in every call; graph:
    whether a call replays a graph that torch has captured; arrays: if not torch's."""
    if options and problem.spec.dtype != "float32":
        raise Missing("TF32 is of float32")
    flat, step, given, kept = space(problem), problem.T == 1, {}, []
    arrays = arrays or place.arrays
    rnn = rl.RNN(flat, problem.spec, device="cuda", **options)
    x, state = inputs(problem, arrays, problem.x[0] if step else problem.x)
    if into:
        made = outputs(problem)
        made["out"] = made["out"][0] if step else made["out"]
        given = {name: arrays.put(array.astype(flat.dtype)) for name, array in made.items()}

    def call():
        kept[:] = [(rnn.step if step else rnn)(x, state, **given)[0]]

    job = partial(place.clock.microseconds, torch_graph(place, call) if graph else call)
    return job, lambda: None if options else arrays.get(kept[0], flat.dtype)


def on_host(problem, place, keeps_state=False):
    """A step on arrays of the host. keeps_state: a stepper, which launches a graph of its own."""
    if (problem.T, problem.N) != (1, 1):
        raise Missing("only a step of one sequence is measured on the host")
    rnn = rl.RNN(space(problem), problem.spec, device="cuda")
    x, *parts = (array.astype(problem.spec.dtype) for array in (problem.x[0], *problem.state))
    state = tuple(parts) if len(parts) == 2 else parts[0]
    y, _ = rnn.step(x, state)
    if not keeps_state:
        return partial(place.clock.microseconds, lambda: rnn.step(x, state)), lambda: y
    rows = tuple(part[:, 0] for part in parts)
    stepper, x_t = rnn.stepper(rows if len(rows) == 2 else rows[0]), x[0]
    y = stepper(x_t)[None]
    return partial(place.clock.microseconds, lambda: stepper(x_t)), lambda: y


def by_torch(problem, place, inference=True, tf32=False, graph=False):
    """Its results are new in every call. inference: whether it runs in inference mode, which is
    entered once, or as code that only calls eval(); tf32: whether cuDNN may use it in an RNN, as is
    torch's own default."""
    (torch, arrays), kept = place.needs_torch(), []
    module = torch_module(torch, problem.spec, space(problem)).to(place.where)
    x, state = inputs(problem, arrays, problem.x)

    def call():
        kept[:] = [module(x, state)[0]]

    def y():
        made = arrays.get(kept[0].detach(), space(problem).dtype)
        return made[0] if problem.T == 1 else made

    torch.backends.cudnn.allow_tf32 = tf32  # for a graph; another job may change it
    run = torch_graph(place, call) if graph else call

    def job(calls):
        torch.backends.cudnn.allow_tf32 = tf32
        with torch.inference_mode(inference):
            return place.clock.microseconds(run, calls)

    return job, y if not tf32 else lambda: None


def by_cell(problem, place):
    """torch's LSTMCell and GRUCell, as a loop of steps calls them."""
    (torch, arrays), spec = place.needs_torch(), problem.spec
    kinds = {"lstm": torch.nn.LSTMCell, "gru": torch.nn.GRUCell}
    if problem.T > 1 or spec.num_layers > 1 or spec.cell not in kinds:
        raise Missing("a cell runs a step of one layer")
    cell = kinds[spec.cell](spec.input_size, spec.hidden_size, dtype=getattr(torch, spec.dtype))
    cell, (x, state) = cell.to(place.where), inputs(problem, arrays, problem.x[0])
    state = tuple(part[0] for part in state) if spec.cell == "lstm" else state[0]

    def job(calls):
        with torch.inference_mode():
            return place.clock.microseconds(lambda: cell(x, state), calls)

    return job, lambda: None


def torch_graph(place, call):
    """Return the replay of a call, captured by torch."""
    if place.where != "cuda":
        raise Missing("torch has no GPU")
    torch, side = place.torch, place.torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.inference_mode(), torch.cuda.stream(side):
        for _ in range(3):
            call()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        call()
    return lambda call=call: graph.replay()  # call keeps the memory that the graph uses


PEERS = {
    "ours": ours,
    "ours, new results": partial(ours, into=False),
    "ours, TF32, new results": partial(ours, into=False, math="tf32"),
    "ours, captured": partial(ours, graph=True),
    "ours, other arrays": partial(ours, arrays=Arrays("driver")),  # each call waits for its work
    "ours, host arrays": on_host,
    "ours, stepper": partial(on_host, keeps_state=True),
    "raw cuDNN": raw,
    "raw cuDNN, small H": partial(raw, algo=SMALL_H),
    "torch": by_torch,
    "torch, outside inference mode": partial(by_torch, inference=False),
    "torch, TF32": partial(by_torch, tf32=True),
    "torch, cell": by_cell,
    "torch, graph": partial(by_torch, graph=True),
}


# ------------------------------------------------------------------------------------------ times


def jobs_of(problem, place, peers):
    """Return {name: job} of the peers that run, with outputs checked; {name: why not} of those that
    cannot run here, and of those that fail."""
    jobs, missing, failed, mine = {}, {}, {}, None
    for name, peer in peers.items():
        try:
            job, y = peer(problem, place)
            job(1)
            made = y()
            mine = made if name == "ours" else mine
            if made is not None:
                check(made, mine, APART[problem.spec.dtype])
            jobs[name] = job
        except Missing as why:
            missing[name] = str(why)
        except Exception as why:
            if name == "ours":
                raise
            failed[name] = f"{type(why).__name__}: {why}"
    return jobs, missing, failed


def check(made, mine, most):
    apart = float(np.abs(made.astype("f8") - mine.astype("f8")).max())
    if not apart <= most:
        raise AssertionError(f"it differs from ours by {apart:.2g}")


def measure(jobs, rounds):
    """Return {name: {"host": [least, median], ...}}, in microseconds."""
    calls, times = {}, {name: [] for name in jobs}
    end = time.perf_counter() + WARM
    while time.perf_counter() < end:
        jobs["ours"](MOST_CALLS)
    for name, job in jobs.items():
        calls[name] = max(1, min(MOST_CALLS, math.ceil(TURN / job(2)["whole"])))
    for _ in range(rounds):
        for name, job in jobs.items():
            job(1)  # warm the caches
            times[name].append(job(calls[name]))
    return {name: {kind: summed([turn[kind] for turn in turns]) for kind in turns[0]}
            for name, turns in times.items()}  # fmt: skip


def summed(values):
    return [round(min(values), 2), round(statistics.median(values), 2)]


def speed(case):
    """Return the row of a workload."""
    cell, T, N, H, L, dtype = CASES[case]
    problem = Problem(rl.Spec(cell, H, H, L, dtype=dtype), T, N)
    jobs, missing, failed = jobs_of(problem, Place(), PEERS)
    us = measure(jobs, ROUNDS)
    mine = us["ours"]
    # their medians divided by ours
    times = {name: {kind: round(them[kind][1] / mine[kind][1], 3) for kind in them}
             for name, them in us.items() if name != "ours"}  # fmt: skip
    return {"case": f"{cell} T={T} N={N} H={H} L={L} {dtype}", "us": us, "times ours": times,
            "left_out": missing, "failed": failed}  # fmt: skip
