"""Compare rl.RNN on a GPU with the float64 recurrence, and with torch's cuDNN: cases of gpu.py.

A case is a spec: all cells, layers, directions, projection, bias modes and dtypes. Each is run with
full and shorter lengths, batch first too; in whole calls and single steps; with device arrays and
NumPy arrays, new results and out=. Each result must be within the rounding bound of its arithmetic
(tests/oracles/reference.py derives it) of the float64 recurrence. torch must be within it too, so
the two differ by at most twice the bound.
"""

import itertools
from functools import partial

import numpy as np
from gpu_device import Arrays, torch_module, torch_there
from oracles.problem import STORED, Problem
from oracles.reference import CURVE, FLOAT32, FLOAT64, Run

import rnnlayout as rl
from rnnlayout._run import cudnn

CELLS = ["rnn_relu", "rnn_tanh", "lstm", "gru"]


def specs():
    for cell, dtype, (layers, both) in itertools.product(
        CELLS, STORED, [(1, False), (2, True), (3, False)]
    ):
        yield rl.Spec(cell, 24, 40, layers, both, dtype=dtype)
        if cell == "lstm" and layers < 3:
            yield rl.Spec(cell, 24, 40, layers, both, 16, dtype=dtype)
    for cell, bias in itertools.product(CELLS, ("none", "input", "recurrent")):
        yield rl.Spec(cell, 24, 40, 2, True, bias=bias)
    for cell in CELLS:
        yield rl.Spec(cell, 40, 40, 2, skip_input=True)
        yield rl.Spec(cell, 128, 256, dtype="float16")  # several multiprocessors share the weights


def name_of(spec):
    words = [spec.cell, f"L={spec.num_layers}", f"D={spec.num_directions}", spec.dtype]
    words += ["H=256"] * (spec.hidden_size == 256)
    words += [f"P={spec.proj_size}"] * bool(spec.proj_size) + ["skip"] * spec.skip_input
    return ",".join([*words, *[f"bias={spec.bias}"] * (spec.bias != "double")])


SPECS = {name_of(spec): spec for spec in specs()}
LENGTHS = [None, [9, 3, 1, 6, 9, 9, 2, 5], [4, 0, 2, 9, 1, 0, 0, 3], [3] * 8]


def is_full(problem):
    return (problem.lengths == problem.T).all()


# tanh in cuDNN's algorithm for small H is within 2**-17 (the fact curves_of_small_h measures it);
# the reference allows a curve as many units.
SMALL_H = 2.0**-17 / CURVE
TF32 = 2.0**-10  # both operands of a product are rounded to 10 bits


def unit(problem, algo="auto"):
    """Return the relative rounding error of the arithmetic: h is stored after each step."""
    spec = problem.spec
    if spec.dtype == "float64":
        return FLOAT64
    small = algo == "auto" and is_full(problem) and spec.bias == "double" and not spec.proj_size
    curves = SMALL_H if small and spec.cell != "rnn_relu" else 0
    return max(FLOAT32, STORED[spec.dtype][0], curves)


# --------------------------------------------------------------------------------------------- runs


def turned(array, batch_first):
    return np.ascontiguousarray(array.swapaxes(0, 1)) if batch_first else array


def run_of(problem, arrays, y, last, batch_first=False):
    last = last if problem.spec.cell == "lstm" else [last]
    y = turned(arrays.get(y, problem.dtype), batch_first)
    return Run(y, *(arrays.get(state, problem.dtype) for state in last))


def state_of(problem, arrays):
    h = arrays.put(problem.hx)
    return (h, arrays.put(problem.cx)) if problem.spec.cell == "lstm" else h


def ours(problem, arrays, batch_first=False, into=False, **options):
    """Run rnnlayout. into: whether results are written into given arrays."""
    rnn = rl.RNN(problem.weights, problem.spec, device="cuda", batch_first=batch_first, **options)
    x, state = turned(problem.x, batch_first), state_of(problem, arrays)
    lengths, given = None if is_full(problem) else problem.lengths, {}
    if into:
        width = problem.width * problem.spec.num_directions
        given = {"out": np.full((*x.shape[:2], width), 7, problem.dtype), "h_out": problem.hx * 0}
        given |= {"c_out": problem.cx * 0} if problem.spec.cell == "lstm" else {}
        given = {name: arrays.put(array) for name, array in given.items()}
    y, last = rnn(arrays.put(x), state, lengths=lengths, **given)
    if into:
        y, *last = given.values()
        last = last if problem.spec.cell == "lstm" else last[0]
    return run_of(problem, arrays, y, last, batch_first)


def ours_in_steps(problem, arrays):
    rnn = rl.RNN(problem.weights, problem.spec, device="cuda")
    state, ys = state_of(problem, arrays), []
    for x in problem.x:
        y, state = rnn.step(arrays.put(x), state)
        ys.append(arrays.get(y, problem.dtype))
    return run_of(problem, arrays, np.stack(ys), state)


def torchs(problem, arrays):
    """Run torch's own module, on its cuDNN."""
    torch = arrays.torch
    module = torch_module(torch, problem.spec, problem.weights).to(arrays.place)
    x, state = arrays.put(np.nan_to_num(problem.x)), state_of(problem, arrays)
    if not is_full(problem):
        x = torch.nn.utils.rnn.pack_padded_sequence(
            x, torch.from_numpy(problem.lengths), enforce_sorted=False
        )
    with torch.inference_mode():
        y, last = module(x, state)
    if not is_full(problem):
        y = torch.nn.utils.rnn.pad_packed_sequence(y, total_length=problem.T)[0]
    return run_of(problem, arrays, y, last)


def runs(problem, beside, batch_first, into):
    """Yield (who, how to run it, the unit of its arithmetic). beside: "torch" or "alone"."""
    spec, usual = problem.spec, unit(problem)
    places = [Arrays("driver"), Arrays("host")]
    if beside == "torch":
        torch, where, _ = torch_there()
        places = [Arrays(where, torch)] if where == "cuda" else []
        if not batch_first and spec.bias in ("double", "none") and not spec.skip_input \
                and problem.lengths.min() > 0:  # fmt: skip
            yield f"torch, {where}", partial(torchs, arrays=Arrays(where, torch)), usual
    elif spec.dtype != "float64":
        more = [("math", "tf32", TF32)] * (spec.dtype == "float32")
        more += [("algo", "standard", unit(problem, "standard"))] * bool(is_full(problem))
        for name, value, its in more:
            how = {"arrays": places[0], "batch_first": batch_first, name: value}
            yield f"ours, {name} {value}", partial(ours, **how), its
    for arrays in places:
        who = f"ours, {arrays.place} arrays"
        yield who, partial(ours, arrays=arrays, batch_first=batch_first, into=into), usual
        if not (spec.bidirectional or batch_first) and is_full(problem):
            yield f"{who}, steps", partial(ours_in_steps, arrays=arrays), usual


# ----------------------------------------------------------------------------------------- verdicts


def verdicts(problems, beside):
    """Return the largest error of each kind, and the results that are out of bounds or failed."""
    found = {"worst": {}, "failures": [], "checked": 0}
    for problem, batch_first, into in problems:
        what = f"{problem.spec}, lengths {problem.lengths.tolist()}" + ", batch first" * batch_first
        expected = problem.expected()
        for who, run, its in runs(problem, beside, batch_first, into):
            found["checked"] += 1
            try:
                off = problem.distance(run(problem), expected, its)
            except Exception as why:
                found["failures"].append([who, what, f"{type(why).__name__}: {why}"])
                continue
            if not off <= 1:
                found["failures"].append([who, what, f"{off:.3g}"])
            key = f"{who}, {problem.spec.dtype}"
            found["worst"][key] = max(found["worst"].get(key, 0), float(f"{off:.3g}"))
    return found


def parity(case, beside):
    """Return the verdicts of a case."""
    if beside == "torch":
        torch_there()  # before the search for cuDNN, so that torch's copy is shared
    if "bfloat16" in case and cudnn.cudnn_report()["version"] < 91300:
        return verdicts([], beside) | {"left_out": {"bfloat16": "cuDNN 9.13 is needed for it"}}
    k = list(SPECS).index(case)
    ways = enumerate(itertools.product(LENGTHS, (False, True)))
    problems = ((Problem(SPECS[case], np.random.default_rng(k), T=9, N=8, lengths=lengths),
                 batch_first, (j + k // 2) % 2) for j, (lengths, batch_first) in ways)  # fmt: skip
    return verdicts(problems, beside)


def forward(cell):
    """Return the verdicts of one small call of a cell."""
    problem = Problem(rl.Spec(cell, 5, 6), np.random.default_rng(0))
    return verdicts([(problem, False, False)], "alone")


def joined(parts):
    """Join the verdicts of all cases."""
    worst = {}
    for key, value in (pair for part in parts for pair in part["worst"].items()):
        worst[key] = max(value, worst.get(key, 0))
    left_out = {name: why for part in parts for name, why in part.get("left_out", {}).items()}
    return {"checked": sum(part["checked"] for part in parts), "worst": worst,
            "failures": [failure for part in parts for failure in part["failures"]],
            "left_out": left_out}  # fmt: skip
