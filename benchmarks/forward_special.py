"""Time calls of the forward pass with special input, and short calls, where the overhead counts.

    python benchmarks/forward_special.py [--json FILE]

lengths: batches whose sequences all have T steps, or half of the steps in all.
subnormals: 1 % of the weights subnormal; an input so small that the states are.
short: one sequence, beside the other libraries; also rl.forward, which prepares nothing before.

All run in turn, in one process on one thread, and the least time of many turns counts, so a busy
machine disturbs the ratios little. torch is left out if it is not installed.
"""

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

import forward_peers as peers
import numpy as np
from machine import cpu
from workload import Problem, outputs

import rnnlayout as rl

CELLS = ("lstm", "gru")
LENGTHS = [(1, 100, 128), (1, 50, 512), (4, 100, 128), (8, 100, 128), (64, 50, 32)]  # N, T, H
SUBNORMAL = [(1, 100, 128), (4, 20, 128)]
SHORT = [(1, 1, 128), (1, 100, 128), (1, 50, 256), (1, 10, 512)]
TINY = np.float32(1e-40)
TURNS, TURN = 61, 2e-3  # s


def least(jobs):
    """Run the jobs in turn. Return {name: least seconds of a call}."""
    calls, times = {}, dict.fromkeys(jobs, np.inf)
    for name, job in jobs.items():
        job()
        calls[name] = max(1, round(TURN / seconds(job, 1)))
    for _ in range(TURNS):
        for name, job in jobs.items():
            times[name] = min(times[name], seconds(job, calls[name]))
    return times


def seconds(job, calls):
    start = time.perf_counter()
    for _ in range(calls):
        job()
    return (time.perf_counter() - start) / calls


def row(cell, N, T, H, times):
    """Return one row: least times, and each divided by the same implementation's usual one ("ours"
    for "ours, half") and by ours."""
    usual = {name: times[name.partition(", ")[0]] for name in times}
    return {"cell": cell, "case": f"N={N} T={T} I={H} H={H}",
            "us": {name: round(t * 1e6, 1) for name, t in times.items()},
            "ratios": {name: round(t / usual[name], 2) for name, t in times.items()},
            "times ours": {name: round(t / times["ours"], 2) for name, t in times.items()},
            }  # fmt: skip


def with_lengths(cell, N, T, H):
    problem = Problem(rl.Spec(cell, H, H), T, N)
    rnn, given = rl.RNN(problem.weights), outputs(problem)
    half = np.linspace(0, T, N).round().astype(int) if N > 1 else np.array([T // 2])
    np.random.default_rng(0).shuffle(half)
    lengths = {"ours": None, "ours, all T": np.full(N, T), "ours, half": half}
    return row(cell, N, T, H, least({
        name: lambda some=some: rnn(problem.x, lengths=some, **given)
        for name, some in lengths.items()
    }))  # fmt: skip


def with_subnormals(cell, N, T, H):
    problem = Problem(rl.Spec(cell, H, H), T, N)
    pruned, fading = (Problem(problem.spec, T, N) for _ in range(2))
    rng = np.random.default_rng(1)
    for name, w in pruned.weights.items():
        pruned.weights[name] = np.where(rng.random(w.shape) < 0.01, TINY, w)
        if "bias" in name:
            fading.weights[name] = np.zeros_like(w)
    fading.x = np.full_like(problem.x, TINY)
    every = {"ours": peers.ours} | ({"torch": peers.by_torch} if peers.torch else {})
    jobs = {
        who + what: peer(some, 1)[0]
        for who, peer in every.items()
        for what, some in (("", problem), (", weights", pruned), (", states", fading))
    }
    with peers.inference():
        return row(cell, N, T, H, least(jobs))


def short(cell, N, T, H):
    problem = Problem(rl.Spec(cell, H, H), T, N)
    every = {"ours": peers.ours, "ours, once": peers.ours_once, **peers.found()[0]}
    with peers.inference():
        return row(cell, N, T, H, least({n: peer(problem, 1)[0] for n, peer in every.items()}))


def measure(function, cases):
    found = []
    for N, T, H in cases:
        for cell in CELLS:
            found.append(function(cell, N, T, H))
            print(*found[-1].values())
            sys.stdout.flush()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    rl.set_num_threads(1)
    about = {"cpu": cpu(), "date": time.strftime("%Y-%m-%d"), "tier": rl.cpu_tier(),
             "python": platform.python_version(), **peers.versions(),
             "rnnlayout": rl.__version__, "threads": 1}  # fmt: skip
    result = {"about": about, "lengths": measure(with_lengths, LENGTHS),
              "subnormals": measure(with_subnormals, SUBNORMAL),
              "short": measure(short, SHORT)}  # fmt: skip
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
