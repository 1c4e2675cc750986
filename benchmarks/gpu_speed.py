"""Time rl.RNN on a GPU against raw cuDNN, torch and JAX, in turn, in one process.

Host time ends when the last of some calls has returned, device time is between two events around
the calls, whole time includes the wait for their work; each is divided by the number of calls.
"""

import math
import statistics
import tempfile
from pathlib import Path

import numpy as np
from forward_peers import Problem
from gpu_peers import PEERS, Missing

import rnnlayout as rl

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
CASES = STEPS + [(*case, 1, dtype) for dtype in ("float32", "float16") for case in DEEPBENCH]
QUICK = [("lstm", 1, 1, 64, 1, "float32"), ("gru", 1, 1, 32, 1, "float16"),
         ("lstm", 6, 2, 32, 2, "float32")]  # fmt: skip

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


def jobs_of(problem, place):
    """Return {name: job} of the peers that run, with outputs checked, and {name: why not}."""
    jobs, missing, mine = {}, {}, None
    for name, peer in PEERS.items():
        try:
            job, y = peer(problem, place)
            job(1)
        except Missing as why:
            missing[name] = str(why)
            continue
        made = y()
        mine = made if name == "ours" else mine
        if made is not None:
            apart = float(np.abs(made.astype("f8") - mine.astype("f8")).max())
            if not apart <= APART[problem.spec.dtype]:
                raise AssertionError(f"{title(problem)}: {name} differs from ours by {apart:.2g}")
        jobs[name] = job
    return jobs, missing


def measure(jobs, rounds):
    """Return {name: {"host": [least, median], ...}}, in microseconds."""
    calls, times = {}, {name: [] for name in jobs}
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


def goals(problem, us, copies):
    """Return [(goal, limit, value, met)]; the first three are text or numbers for the table."""
    found = []
    mine, floor, torchs = us["ours"], us.get("raw cuDNN"), us.get("torch")
    if floor:
        ours, least = mine["whole"][1], floor["whole"][1]
        over = ours - least
        met = over <= max(MICROSECONDS, SHARE * least)
        limit = f"at most {SHARE:.0%} or {MICROSECONDS} us"
        found.append(("over raw cuDNN", limit, f"{over:.1f} us, {over / least:.1%}", met))
    if torchs and problem.T == 1 and problem.spec.hidden_size <= 256:
        times = torchs["host"][1] / mine["host"][1]
        limit = f"at least {TIMES} times faster"
        found.append(("host time of a step, against torch", limit, f"{times:.2f}", times >= TIMES))
    if copies is not None:
        found.append(("copies of device arrays", "none", str(copies), copies == 0))
    return [(what, limit, value, bool(met)) for what, limit, value, met in found]


def copies_of(place, jobs):
    """Return rnnlayout's copies per call, minus those of raw cuDNN, which are cuDNN's own. They are
    counted in the fakes' log or by torch's profiler; None without either."""
    counts = {}
    for name in ("ours", "raw cuDNN"):
        if name in jobs:
            jobs[name](1)
            counts[name] = counted(place, jobs[name])
    if counts["ours"] is None:
        return None
    return counts["ours"] - counts.get("raw cuDNN", 0)


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
        return None  # the profiler has no access to the counters on this machine
    return profiled(place, lambda: job(1))


def profiled(place, call):
    profiler = place.torch.profiler
    with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as seen:
        call()
    return sum("memcpy" in event.name.lower() for event in seen.events())


def row(problem, place, rounds):
    jobs, missing = jobs_of(problem, place)
    copies = copies_of(place, jobs)
    us = measure(jobs, rounds)
    return {"case": title(problem), "us": us, "left_out": missing, "copies": copies,
            "times ours": {name: ratios(them, us["ours"]) for name, them in us.items()
                           if name != "ours"},
            "goals": goals(problem, us, copies)}  # fmt: skip


def ratios(them, mine):
    """Return their medians divided by ours."""
    return {kind: round(t[1] / mine[kind][1], 3) for kind, t in them.items() if t and mine[kind][1]}


def show(found):
    print(found["case"])
    for name, us in found["us"].items():
        parts = (f"{kind} {t[1]:9.1f}" for kind, t in us.items() if t)
        times = found["times ours"].get(name, {}).get("whole")
        print(f"    {name:20} {'  '.join(parts)} us{f'  {times:.2f} times ours' if times else ''}")
    for what, limit, value, met in found["goals"]:
        print(f"    {'met   ' if met else 'MISSED'} {what}, {limit}: {value}", flush=True)


def speed(place, quick=False):
    """Return a row for each case."""
    rows = []
    for case in QUICK if quick else CASES:
        rows.append(row(problem_of(case), place, 3 if quick else 9))
        show(rows[-1])
    for name, why in {n: w for r in rows for n, w in r["left_out"].items()}.items():
        print(f"{name}: left out, {why}")
    return rows
