"""Time rl.RNN on a GPU against raw cuDNN, torch or JAX: cases of gpu.py.

A row is a workload beside one of the others, timed in turn in one process, so that each ratio is of
times from the same process, and a framework that fails loses only its own row. Host time ends when
the last of some calls has returned, device time is between two events around the calls, whole time
includes the wait for their work; each is divided by the number of calls.
"""

import math
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from gpu_arrays import torch_there
from gpu_device import the_driver
from gpu_floor import Missing
from gpu_peers import PEERS, Place
from workload import Problem

import rnnlayout as rl
from rnnlayout._run import cudnn

# cell, T, N, H, L, dtype; I = H
STEPS = [
    (cell, 1, 1, H, 1, "float32") for cell in ("lstm", "gru") for H in (64, 128, 256, 512, 1024)
]
STEPS += [("lstm", 1, 1, 256, 2, "float32"), ("lstm", 1, 1, 256, 1, "float16"),
          ("rnn_tanh", 1, 1, 256, 1, "float32")]  # fmt: skip
# From Baidu's DeepBench, inference and training.
DEEPBENCH = [
    ("lstm", 150, 1, 256), ("lstm", 150, 4, 256), ("lstm", 25, 1, 512), ("lstm", 25, 4, 512),
    ("lstm", 25, 1, 1024), ("lstm", 50, 1, 1536), ("lstm", 25, 16, 512), ("lstm", 25, 64, 1024),
    ("lstm", 25, 128, 2048), ("gru", 1, 1, 512), ("gru", 1500, 1, 1024), ("gru", 375, 1, 1536),
    ("gru", 375, 1, 2048), ("gru", 375, 1, 2560), ("rnn_tanh", 50, 16, 1760),
    ("rnn_tanh", 50, 64, 2560),
]  # fmt: skip
# The eight that matter most: steps, and sequences of one and of many.
QUICK = [
    ("lstm", 1, 1, 64, 1, "float32"), ("lstm", 1, 1, 256, 1, "float32"),
    ("gru", 1, 1, 128, 1, "float32"), ("lstm", 1, 1, 1024, 1, "float16"),
    ("lstm", 25, 1, 512, 1, "float32"), ("lstm", 25, 16, 512, 1, "float32"),
    ("gru", 150, 4, 256, 1, "float32"), ("lstm", 25, 64, 1024, 1, "float16"),
]  # fmt: skip
CASES = {"quick": QUICK, "full": [
    case for case in STEPS + [(*case, 1, dtype) for dtype in ("float32", "float16")
                              for case in DEEPBENCH] if case not in QUICK]}  # fmt: skip
CASES = {form: {",".join(map(str, case)): case for case in cases} for form, cases in CASES.items()}

ROUNDS = {"quick": 3, "full": 9}
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


def place_of(with_torch):
    torch, where, _ = torch_there() if with_torch else (None, "cpu", None)
    return Place(the_driver(), torch, where, cudnn.cudnn_report()["path"])


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


def measure(jobs, rounds):
    """Return {name: {"host": [least, median], ...}}, in microseconds."""
    calls, times = {}, {name: [] for name in jobs}
    warm(jobs["ours"])
    for name, job in jobs.items():
        calls[name] = max(1, min(MOST_CALLS, math.ceil(TURN / job(2)["whole"])))
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
FLOORS = ("raw cuDNN", "raw cuDNN, persist_static", "raw cuDNN, persist_small")


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


def speed(form, case, beside):
    """Return the row of a workload beside "cuDNN", "torch" or "JAX"."""
    problem, place = problem_of(CASES[form][case]), place_of(with_torch=beside == "torch")
    jobs, missing, failed = jobs_of(problem, place, PEERS[beside])
    us = measure(jobs, ROUNDS[form])
    return {"case": f"{title(problem)}, {beside}", "us": us, "left_out": missing, "failed": failed,
            "times ours": {name: ratios(them, us["ours"]) for name, them in us.items()
                           if name != "ours"},
            "goals": goals(problem, us)}  # fmt: skip


def ratios(them, mine):
    """Return their medians divided by ours."""
    return {kind: round(t[1] / mine[kind][1], 3) for kind, t in them.items() if t and mine[kind][1]}


# ------------------------------------------------------------------------------------------ copies


def copies(form, case):
    """Count rnnlayout's copies per call, without those of raw cuDNN, which are cuDNN's own: in the
    fakes' log or by torch's profiler, which would slow a timing down."""
    problem, place = problem_of(CASES[form][case]), place_of(with_torch=True)
    jobs, *_ = jobs_of(problem, place, {n: PEERS["torch"][n] for n in ("ours", "raw cuDNN")})
    counts = {}
    for name, job in jobs.items():
        job(1)
        counts[name] = counted(place, job)
    if counts["ours"] is None:
        return {"left_out": "the profiler cannot count copies on this machine"}
    more = counts["ours"] - counts.get("raw cuDNN", 0)
    return {"case": title(problem),
            "goals": [("copies of device arrays", "none", str(more), more == 0)]}  # fmt: skip


def counted(place, job):
    if hasattr(place.driver.library, "fake_log"):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            with place.driver.fakes_log(log):
                job(1)
            return log.read_text().count("cuMemcpy")
    if place.where != "cuda":
        return None
    one = place.torch.ones(1, device="cuda")
    if not profiled(place, one.cpu):
        return None  # it has no access to the counters
    return profiled(place, lambda: job(1))


def profiled(place, call):
    profiler = place.torch.profiler
    with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as seen:
        call()
    return sum("memcpy" in event.name.lower() for event in seen.events())
