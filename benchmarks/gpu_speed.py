"""Time rl.RNN on a GPU against raw cuDNN or torch: cases of gpu.py.

A row is a workload beside one of the others, timed in turn in one process, so that each ratio is of
times from the same process, and a framework that fails loses only its own row. Host time ends when
the last of some calls has returned, device time is between two events around the calls, whole time
includes the wait for their work; each is divided by the number of calls.

A peer is a function (problem, place) that returns (job, y). job(calls) makes this number of calls
and returns {"host", "device", "whole"}, microseconds per call. y() returns their output as a NumPy
array, or None if there is nothing to compare. A peer raises Missing, with the reason, if it cannot
run. All work goes to the legacy stream, whose events measure the device's time.
"""

import math
import statistics
import time

import numpy as np
from gpu_device import Arrays, Clock, torch_module, torch_there
from gpu_floor import Missing, Raw
from workload import Problem, outputs

import rnnlayout as rl
from rnnlayout._run import cudnn

# cell, T, N, H, L, dtype; I = H
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
CASES = dict.fromkeys([*FIRST, *STEPS, *((*case, 1, dtype) for dtype in ("float32", "float16")
                                         for case in DEEPBENCH)])  # fmt: skip
CASES = {",".join(map(str, case)): case for case in CASES}

ROUNDS = 9
WARM = 0.5  # seconds of work, after which the clocks of an idle GPU have risen
TURN, MOST_CALLS = 2e3, 20  # microseconds; a GPU's queue holds about a thousand kernels
# The largest allowed difference between two right results. This only checks that all run the same
# network, each in its own arithmetic; gpu_parity.py is the strict check.
APART = {"float32": 1e-3, "float16": 3e-2}


def problem_of(case):
    cell, T, N, H, L, dtype = case
    return Problem(rl.Spec(cell, H, H, L, dtype=dtype), T, N)


def title(problem):
    spec = problem.spec
    text = f"{spec.cell} T={problem.T} N={problem.N} H={spec.hidden_size} L={spec.num_layers}"
    return f"{text} {spec.dtype}"


# ----------------------------------------------------------------------------------------- peers


class Place:
    """The device and libraries for all peers. torch: may be None; where: torch's device."""

    def __init__(self, with_torch):
        self.torch, self.where, _ = torch_there() if with_torch else (None, "cpu", None)
        self.cudnn, self.clock = cudnn.cudnn_report()["path"], Clock()
        self.arrays = Arrays("cuda" if self.where == "cuda" else "driver", self.torch)

    def timed(self, call):
        return lambda calls: self.clock.microseconds(call, calls)

    def inference(self, call):
        """Time a call of torch in inference mode, which is entered once."""

        def job(calls):
            with self.torch.inference_mode():
                return self.clock.microseconds(call, calls)

        return job


def space(problem):
    """Return cuDNN's weight space, in the spec's dtype."""
    return rl.pack(problem.weights, problem.spec.replace(dtype="float32"), layout="torch",
                   dtype=problem.spec.dtype)  # fmt: skip


def ours(problem, place, into=True, **options):
    """Prepared once; results written into out=, or new in every call."""
    flat, put, step = space(problem), place.arrays.put, problem.T == 1
    rnn = rl.RNN(flat, problem.spec, device="cuda", **options)
    given = outputs(problem) if into else {}
    if step and into:
        given["out"] = given["out"][0]
    given = {name: put(array.astype(flat.dtype)) for name, array in given.items()}
    x = put((problem.x[0] if step else problem.x).astype(flat.dtype))
    parts = [put(part.astype(flat.dtype)) for part in problem.state or ()]
    state = tuple(parts) if len(parts) == 2 else parts[0] if parts else None
    run, kept = rnn.step if step else rnn, []

    def call():
        kept[:] = [run(x, state, **given)[0]]

    return call, lambda: place.arrays.get(kept[0], flat.dtype)


def ours_into(problem, place):
    call, y = ours(problem, place)
    return place.timed(call), y


def ours_new(problem, place):
    call, y = ours(problem, place, into=False)
    return place.timed(call), y


def ours_tf32(problem, place):
    if problem.spec.dtype != "float32":
        raise Missing("TF32 is of float32")
    return place.timed(ours(problem, place, into=False, math="tf32")[0]), lambda: None


def ours_captured(problem, place):
    """In a graph captured by the caller."""
    call, y = ours(problem, place)
    return place.timed(torch_graph(place, call)), y


def raw(problem, place, algo="standard"):
    return Raw(problem, place.cudnn, algo), lambda: None


def raw_small(problem, place):
    return raw(problem, place, "small H")


def torch_call(problem, place):
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
        made = arrays.get(kept[0].detach(), flat.dtype)
        return made[0] if problem.T == 1 else made

    return call, y


def by_torch(problem, place):
    """Its results are new in every call."""
    call, y = torch_call(problem, place)
    return place.inference(call), y


def by_torch_outside(problem, place):
    """Outside inference mode, as code that only calls eval() is."""
    return place.timed(torch_call(problem, place)[0]), lambda: None


def by_torch_tf32(problem, place):
    """With torch's own default: cuDNN may use TF32 in an RNN."""
    job, switch = by_torch(problem, place)[0], place.torch.backends.cudnn

    def allowed(calls):
        switch.allow_tf32 = True
        try:
            return job(calls)
        finally:
            switch.allow_tf32 = False

    return allowed, lambda: None


def by_cell(problem, place):
    """torch's LSTMCell and GRUCell, as a loop of steps calls them."""
    torch, spec, put = place.torch, problem.spec, Arrays(place.where, place.torch).put
    kinds = {"lstm": torch.nn.LSTMCell, "gru": torch.nn.GRUCell}
    if problem.T > 1 or spec.num_layers > 1 or spec.cell not in kinds:
        raise Missing("a cell runs a step of one layer")
    sizes, dtype = (spec.input_size, spec.hidden_size), getattr(torch, spec.dtype)
    cell = kinds[spec.cell](*sizes, dtype=dtype).to(place.where)
    states = problem.state or (np.zeros(problem.state_shape),) * 2
    x, *state = (put(a.astype(spec.dtype)) for a in (problem.x[0], *(part[0] for part in states)))
    state = tuple(state) if spec.cell == "lstm" else state[0]
    return place.inference(lambda: cell(x, state)), lambda: None


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
    return lambda call=call: graph.replay()  # call keeps the memory that the graph uses


def by_torch_graph(problem, place):
    call, y = torch_call(problem, place)
    return place.timed(torch_graph(place, call)), y


# What each row measures in one process, ours first.
PEERS = {
    "cuDNN": {"ours": ours_into, "raw cuDNN": raw, "raw cuDNN, small H": raw_small,
              "ours, new results": ours_new},
    "torch": {
        "ours": ours_into,
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
}  # fmt: skip


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


def warm(job):
    end = time.perf_counter() + WARM
    while time.perf_counter() < end:
        job(MOST_CALLS)


def measure(jobs, rounds, most):
    """Return {name: {"host": [least, median], ...}}, in microseconds. most: calls in a turn; 1 for
    calls that wait for their work."""
    calls, times = {}, {name: [] for name in jobs}
    warm(jobs["ours"])
    for name, job in jobs.items():
        calls[name] = max(1, min(most, math.ceil(TURN / job(2)["whole"])))
    for _ in range(rounds):
        for name, job in jobs.items():
            job(1)  # warm the caches
            times[name].append(job(calls[name]))
    return {name: {kind: summed([turn[kind] for turn in turns]) for kind in turns[0]}
            for name, turns in times.items()}  # fmt: skip


def summed(values):
    if values[0] is None:
        return None
    return [round(min(values), 2), round(statistics.median(values), 2)]


# ------------------------------------------------------------------------------------------ goals

SHARE, MICROSECONDS, TIMES = 0.02, 3, 2
FLOORS = ("raw cuDNN", "raw cuDNN, small H")


def goals(problem, us):
    """Return [(goal, limit, value, met)]; the first three are texts for the table."""
    found = []
    mine, torchs = us["ours"], us.get("torch")
    floors = [us[name]["whole"][1] for name in FLOORS if name in us]
    if floors:
        ours, least = mine["whole"][1], min(floors)
        over = ours - least
        met = over <= max(MICROSECONDS, SHARE * least)
        limit = f"at most {SHARE:.0%} or {MICROSECONDS} us"
        found.append(("over raw cuDNN", limit, f"{over:.1f} us, {over / least:.1%}", met))
    if torchs and problem.T == 1 and problem.spec.hidden_size <= 256:
        times = torchs["host"][1] / mine["host"][1]
        limit = f"at least {TIMES} times faster"
        found.append(("host time of a step, against torch", limit, f"{times:.2f}", times >= TIMES))
    return [(what, limit, value, bool(met)) for what, limit, value, met in found]


def speed(case, beside):
    """Return the row of a workload beside "cuDNN" or "torch"."""
    problem, place = problem_of(CASES[case]), Place(beside == "torch")
    jobs, missing, failed = jobs_of(problem, place, PEERS[beside])
    us = measure(jobs, ROUNDS, 1 if place.arrays.place == "driver" else MOST_CALLS)
    return {"case": f"{title(problem)}, {beside}", "us": us, "left_out": missing, "failed": failed,
            "times ours": {name: ratios(them, us["ours"]) for name, them in us.items()
                           if name != "ours"},
            "goals": goals(problem, us)}  # fmt: skip


def ratios(them, mine):
    """Return their medians divided by ours."""
    return {kind: round(t[1] / mine[kind][1], 3) for kind, t in them.items() if t and mine[kind][1]}
