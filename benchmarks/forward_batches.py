"""benchmarks/forward.py --batches: float32 and bfloat16, from one sequence to 128, with one thread.

One process limited to AVX2 times rnnlayout, one that is not limited times it and the others.
"""

import forward_peers as peers
from workload import Problem

import rnnlayout as rl

# H = I of an LSTM with one layer: its number of steps.
STEPS = {256: 40, 512: 16, 1024: 10}
CASES = [(N, STEPS[H], H) for H in STEPS for N in (1, 16, 32, 64, 128)]
ROUNDS = 4
SIZE = 1024  # of torch's matrix product: what a large product reaches on this machine


def product_rate(measure):
    """Return the GFLOP/s of torch's product of two matrices (SIZE, SIZE), or None."""
    if not peers.torch:
        return None
    peers.torch.set_num_threads(1)
    a, b = (peers.torch.rand(SIZE, SIZE) for _ in range(2))
    with peers.inference():
        times = measure({"product": lambda: peers.torch.mm(a, b)}, ROUNDS, 1)
    return 2 * SIZE**3 / times["product"][0] / 1e9


def rows(measure, run, distance, fma_peak, held):
    """Measure all cases in turn in this process. The functions are those of benchmarks/forward.py.
    held: limited to AVX2, rnnlayout alone. Return a row for each case: GFLOP/s of the fastest turn,
    their shares of the peak of float32's multiply-adds, and the errors against float64."""
    every = {"ours, float32": peers.ours}
    if not held:
        every["ours, bfloat16"] = peers.ours_coarse
        every |= {f"{name}, float32": peer for name, peer in peers.found()[0].items()}
        every |= {f"{name}, bfloat16": peer for name, peer in peers.found_coarse().items()}
    peak_job, peak_flops = fma_peak(1, ["-mavx2", "-mfma"] if held else ["-march=native"])
    print(f"tier {rl.cpu_tier()}; torch's product of matrices:", product_rate(measure), "GFLOP/s")
    found = []
    for N, T, H in CASES:
        problem = Problem(rl.Spec("lstm", H, H), T, N)
        exact, jobs, errors = peers.reference(problem), {}, {}
        with peers.inference():
            for name, peer in every.items():
                jobs[name], given = run(peer, problem, 1)
                errors[name] = distance(given, exact)
            times = measure(jobs | {"peak": peak_job}, ROUNDS, 1)
        peak = peak_flops / times.pop("peak")[0] / 1e9
        rates = {name: problem.flops / least / 1e9 for name, (least, _) in times.items()}
        found.append({
            "case": [N, T, H],
            "tier": rl.cpu_tier(),
            "FMA peak, GFLOP/s": round(peak, 1),
            "GFLOP/s": {name: round(rate, 1) for name, rate in rates.items()},
            "of the FMA peak": {name: round(rate / peak, 3) for name, rate in rates.items()},
            "error": {name: float(f"{e:.2g}") for name, e in errors.items()},
        })  # fmt: skip
        show(found[-1], header=len(found) == 1)
    return found


def show(row, header):
    if header:
        names = list(row["GFLOP/s"])
        print("| N, T, H | peak |", " | ".join(names), "|")
        print("|" + " --- |" * (2 + len(names)))
    shares = row["of the FMA peak"]
    cells = (f"{rate:.0f} ({shares[name]:.0%})" for name, rate in row["GFLOP/s"].items())
    case = ", ".join(map(str, row["case"]))
    print(f"| {case} | {row['FMA peak, GFLOP/s']:.0f} |", " | ".join(cells), "|", flush=True)
