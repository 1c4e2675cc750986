"""Time the forward pass against torch, onnxruntime, OpenVINO and NumPy.

    python benchmarks/forward.py [--quick] [--threads 1 2] [--avx2] [--more] [--json FILE]
    python benchmarks/forward.py --batches [--json FILE]

There is one process for each number of threads, which may use as many CPUs. It runs everything in
turn, round after round, and reports the least and the median of the turns. Every output is checked
before it is timed. Times differ between machines: compare the ratios, which are of medians.
Needs a C compiler, for the peak of the multipliers. torch, onnx with onnxruntime, and openvino are
left out if they are not installed.
"""

import argparse
import ctypes
import json
import math
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import forward_batches
import forward_more
import forward_peers as peers
import numpy as np
from machine import cpu
from workload import Problem

import rnnlayout as rl

# N, T, I, H, L, bidirectional
CASES = [
    (1, 1, 128, 128, 1, 0),
    (1, 100, 128, 128, 1, 0),
    (1, 100, 256, 256, 2, 0),
    (1, 50, 512, 512, 2, 0),
    (1, 25, 1024, 1024, 1, 0),
    (16, 100, 256, 256, 1, 0),
    (32, 50, 512, 512, 2, 0),
    (64, 25, 1024, 1024, 1, 0),
    (1, 100, 256, 256, 2, 1),
    (8, 200, 256, 320, 3, 1),
]
CELLS = ("lstm", "gru")
NARROW = ("float16", "bfloat16")
COARSE = "bfloat16 math"

# --avx2 limits all to AVX2, except onnxruntime, which has no such switch and is left out.
HELD = {"RNNLAYOUT_CPU": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
        "DNNL_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}  # fmt: skip

# The largest allowed distance of a float32 output from the float64 recurrence at these sizes. Two
# float32 outputs may differ by twice this value.
ERROR = 2e-6
TURN, LONG, IDLE = 2e-3, 20e-3, 60e-3  # seconds


# -------------------------------------------------------------------------------------- the peak


def fma_peak(threads, target=("-march=native",)):
    """Return a job that only multiplies and adds, and its number of operations. target: options of
    the compiler that choose the instructions."""
    library = Path(tempfile.mkdtemp()) / "fma_peak.so"
    source = Path(__file__).with_name("fma_peak.c")
    flags = ["-O3", *target, "-ffp-contract=fast", "-shared", "-fPIC"]
    subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", library, source], check=True)
    function = ctypes.CDLL(str(library)).fma_peak
    function.argtypes = [ctypes.c_int64, *[ctypes.POINTER(ctypes.c_float)] * 2]
    function.restype = ctypes.c_int64
    pool, starts = ThreadPoolExecutor(threads), (ctypes.c_float * 12)()

    def work(_=None):
        return function(500_000, starts, ctypes.c_float())

    def job():
        return sum(pool.map(work, range(threads)))  # ctypes releases the GIL

    return (work if threads == 1 else job), work() * threads


# ------------------------------------------------------------------------------------- measuring


def seconds(job, calls=1):
    start = time.perf_counter()
    for _ in range(calls):
        job()
    return (time.perf_counter() - start) / calls


def measure(jobs, rounds, threads):
    """Run the jobs in turn, each for TURN at least. Return {name: (least, median)}, s per call."""
    calls, times = {}, {name: [] for name in jobs}
    for name, job in jobs.items():
        job()
        calls[name] = math.ceil(TURN / seconds(job))
    for _ in range(rounds):
        for name, job in jobs.items():
            if threads > 1:
                time.sleep(IDLE)  # the previous job's threads spin: onnxruntime's for some 40 ms
            if calls[name] > TURN / LONG:  # warm the caches; a long call does that itself
                seconds(job, 1 + calls[name] // 4)
            times[name].append(seconds(job, calls[name]))
    return {name: (min(t), statistics.median(t)) for name, t in times.items()}


def distance(some, others):
    """Return the largest difference between two lists of arrays."""
    return max(float(np.abs(a.astype("f8") - b.astype("f8")).max())
               for a, b in zip(some, others, strict=True))  # fmt: skip


def run(peer, problem, threads):
    """Return a peer's call, and a copy of its outputs."""
    call, read = peer(problem, threads)
    return call, [np.array(a) for a in read(call())]


def checked(problem, threads, held):
    """Check all outputs, and exit if one is wrong. Return {name: job}, {name: error against
    float64} and {dtype: change by narrower weights}. held: limited to AVX2, float32 only."""
    exact, jobs, errors, changes = peers.reference(problem), {}, {}, {}
    small = problem.N == 1 and problem.spec.hidden_size <= 256
    every = {"ours": peers.ours, **peers.found()[0]}
    every |= {"NumPy": peers.by_numpy} if small else {}
    every |= {"ours, once": peers.ours_once} if problem.N == 1 else {}
    if held:
        every = {n: peer for n, peer in every.items() if n not in ("onnxruntime", "ours, once")}
    for name, peer in every.items():
        jobs[name], given = run(peer, problem, threads)
        errors[name] = distance(given, exact)
        limit = ERROR if name.startswith("ours") else 2 * ERROR
        if not errors[name] <= limit:  # true for a NaN too
            sys.exit(f"{name} is {errors[name]:.2g} from the float64 recurrence, limit {limit}")
        if name == "ours":
            mine = given
        if not distance(given, mine) <= 2 * ERROR:
            sys.exit(f"{name} is {distance(given, mine):.2g} from ours, limit {2 * ERROR}")
    if held:
        return jobs, errors, changes
    for dtype in NARROW if problem.N == 1 and problem.spec.hidden_size >= 256 else ():
        job, given = run(peers.ours_in(dtype), problem, threads)
        _, widened = run(peers.ours_widened(dtype), problem, threads)
        if distance(given, widened):
            sys.exit(f"{dtype}: the result differs from the same weights in float32")
        jobs[f"ours, {dtype}"], changes[dtype] = job, distance(given, mine)
    coarse = {"ours": peers.ours_coarse, **peers.found_coarse()}
    for name, peer in coarse.items() if problem.spec.hidden_size >= 256 else ():
        job, given = run(peer, problem, threads)
        jobs[f"{name}, {COARSE}"], errors[f"{name}, {COARSE}"] = job, distance(given, exact)
    return jobs, errors, changes


# -------------------------------------------------------------------------------------------- rows


def others(times):
    return {n: t for n, t in times.items()
            if not n.startswith(("ours", "peak")) and not n.endswith(COARSE)}  # fmt: skip


def row(problem, threads, times, errors, changes, peak):
    spec = problem.spec
    median = {name: t[1] for name, t in times.items()}
    rate = problem.flops / median["ours"]
    peak /= times["peak"][0]
    of_peak = rate / peak
    return {
        "cell": spec.cell,
        "threads": threads,
        "case": title(problem),
        "us": {n: [round(t * 1e6, 2) for t in both] for n, both in times.items() if n != "peak"},
        "GFLOP/s": round(rate / 1e9, 1),
        "FMA peak, GFLOP/s": round(peak / 1e9, 1),
        "of the FMA peak": round(of_peak, 3),
        "times ours": {n: round(t / median["ours"], 2) for n, t in others(median).items()},
        "error": {n: float(f"{e:.2g}") for n, e in errors.items()},
        "change": {n: float(f"{e:.2g}") for n, e in changes.items()},
    }


def title(problem):
    spec = problem.spec
    text = f"N={problem.N} T={problem.T} I={spec.input_size} H={spec.hidden_size}"
    return f"{text} L={spec.num_layers} D={spec.num_directions}"


def show(r):
    least, median = r["us"]["ours"]
    print(f"{r['cell']:4} {r['threads']}t {r['case']:34} {median:10.1f} us (least {least:.1f})"
          f"  {r['GFLOP/s']:6.1f} GFLOP/s, {r['of the FMA peak']:.0%} of the FMA peak")  # fmt: skip
    theirs = "  ".join(f"{name} {ratio:.2f}" for name, ratio in r["times ours"].items())
    print(f"        the others' time divided by ours: {theirs}")
    mine = [f"{n[6:]} {t[1]:.1f} us" for n, t in r["us"].items() if n.startswith("ours, ")]
    if mine:
        print(f"        ours, other variants: {'  '.join(mine)}")
    errors = "  ".join(f"{n} {e:.1e}" for n, e in r["error"].items())
    print(f"        whole outputs checked; largest distance from float64: {errors}")
    if r["change"]:
        changes = "  ".join(f"{n} {e:.1e}" for n, e in r["change"].items())
        print(f"        narrower weights change the output by at most: {changes}")
    sys.stdout.flush()


# ------------------------------------------------------------------------------------------- runs


def rows(threads, quick, held):
    """Measure every case with this number of threads, in a process with as many CPUs."""
    peak_job, peak = fma_peak(threads)
    found = []
    for N, T, I, H, L, both in CASES:  # noqa: E741
        if quick and H > 256:
            continue
        for cell in CELLS:
            problem = Problem(rl.Spec(cell, I, H, L, bool(both)), T, N)
            with peers.inference():
                jobs, errors, changes = checked(problem, threads, held)
                times = measure(jobs | {"peak": peak_job}, 5 if quick else 9, threads)
            found.append(row(problem, threads, times, errors, changes, peak))
            show(found[-1])
    return found


def batch_rows(held):
    return forward_batches.rows(measure, run, distance, fma_peak, held)


def on_cpus(threads, function, *args):
    """Return function(*args), run in a new process that may use `threads` CPUs from its start:
    thread pools are sized by the number of CPUs."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(mine)[-threads:])
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            return process.submit(function, *args).result()
    finally:
        os.sched_setaffinity(0, mine)


def limited_to_avx2(function, *args):
    """Return function(*args, True), run in a new process with one CPU and HELD."""
    print("limited to AVX2")
    os.environ |= HELD
    try:
        return on_cpus(1, function, *args, True)
    finally:
        for name in HELD:
            del os.environ[name]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="skip cases with H > 256")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument("--avx2", action="store_true", help="measure again, limited to AVX2")
    parser.add_argument("--batches", action="store_true",
                        help="only float32 and bfloat16 by the number of sequences")  # fmt: skip
    parser.add_argument("--more", action="store_true", help="also memory, allocations and growth")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    args = parser.parse_args()
    about = {"cpu": cpu(), "date": time.strftime("%Y-%m-%d"), "tier": rl.cpu_tier(),
             "python": platform.python_version(), **peers.versions(),
             "rnnlayout": rl.__version__}  # fmt: skip
    print(json.dumps(about))
    for name in peers.found()[1]:
        print(f"{name} is not installed: left out")
    if args.batches:
        result = {
            "about": about,
            "rows": limited_to_avx2(batch_rows) + on_cpus(1, batch_rows, False),
        }
        if args.json:
            args.json.write_text(json.dumps(result, indent=1) + "\n")
        return
    found, more = [], {}
    for threads in args.threads:
        if threads > len(os.sched_getaffinity(0)):
            print(f"{threads} threads on {len(os.sched_getaffinity(0))} CPUs: left out")
            continue
        found += on_cpus(threads, rows, threads, args.quick, False)
    held = limited_to_avx2(rows, 1, args.quick) if args.avx2 else []
    behind = sum(min(r["times ours"].values(), default=1) < 1 for r in found)
    print(f"in {behind} of {len(found)} cases another is faster")
    if args.more:
        cpus = len(os.sched_getaffinity(0))
        more = on_cpus(min(2, cpus), forward_more.everything, args.quick)
    if args.json:
        result = {"about": about, "rows": found, "avx2": held} | ({"more": more} if more else {})
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
