"""benchmarks/forward.py --amx: bfloat16 beside float32, for CPUs whose tiles multiply bfloat16."""

import forward_peers as peers
from workload import Problem

import rnnlayout as rl

# N, T, and H = I of an LSTM with one layer.
CASES = [(1, 100, 256), (1, 25, 1024), (16, 100, 256), (32, 50, 512), (64, 25, 1024),
         (128, 50, 1024)]  # fmt: skip
ROUNDS = 24


def rows(measure, run, distance):
    """Measure all in turn in this process, with one thread. The arguments are functions of
    benchmarks/forward.py. Print a table, and return its rows: GFLOP/s of the fastest turn, and the
    largest distance from the float64 recurrence."""
    every = {"ours, float32": peers.ours, "ours, bfloat16": peers.ours_coarse}
    every |= {f"{name}, float32": peer for name, peer in peers.found()[0].items()}
    every |= {f"{name}, bfloat16": peer for name, peer in peers.found_coarse().items()}
    print("| N, T, H |", " | ".join(every), "|")
    print("|" + " --- |" * (1 + len(every)))
    found = []
    for N, T, H in CASES:
        problem = Problem(rl.Spec("lstm", H, H), T, N)
        exact, jobs, errors = peers.reference(problem), {}, {}
        with peers.inference():
            for name, peer in every.items():
                jobs[name], given = run(peer, problem, 1)
                errors[name] = distance(given, exact)
            times = measure(jobs, ROUNDS, 1)
        rates = {name: problem.flops / least / 1e9 for name, (least, _) in times.items()}
        cells = (f"{rates[name]:.0f} ({errors[name]:.0e})" for name in every)
        print(f"| {N}, {T}, {H} |", " | ".join(cells), "|", flush=True)
        found.append({
            "case": [N, T, H],
            "GFLOP/s": {name: round(rate, 1) for name, rate in rates.items()},
            "error": {name: float(f"{e:.2g}") for name, e in errors.items()},
        })  # fmt: skip
    return found
