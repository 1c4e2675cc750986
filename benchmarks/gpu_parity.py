"""Compare rl.RNN on a GPU with the float64 recurrence, and with torch's cuDNN: cases of gpu.py.

A case is a spec: all cells, layers, directions, projection, bias modes and dtypes. Each is run with
full and shorter lengths, batch first too; in whole calls and single steps; with device arrays and
NumPy arrays, new results and out=. Each result must be within the rounding bound of its arithmetic
(tests/oracles/reference.py derives it) of the float64 recurrence. torch must be within it too, so
the two differ by at most twice the bound.
"""

import itertools

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


def problems(case):
    """Yield (Problem, batch_first, whether results are written into given arrays)."""
    k = list(SPECS).index(case)
    for j, (lengths, batch_first) in enumerate(itertools.product(LENGTHS, (False, True))):
        problem = Problem(SPECS[case], np.random.default_rng(k), T=9, N=8, lengths=lengths)
        yield problem, batch_first, (j + k // 2) % 2


def title(problem, batch_first):
    shape = "" if is_full(problem) else f", lengths {problem.lengths.tolist()}"
    return f"{problem.spec}{shape}{', batch first' if batch_first else ''}"


def is_full(problem):
    return (problem.lengths == problem.T).all()


# tanh in cuDNN's algorithm for small H is within 2**-17 (the fact curves_of_small_h measures it);
# the reference allows a curve as many units.
SMALL_H = 2.0**-17 / CURVE


def unit(problem, algo="auto"):
    """Return the relative rounding error of the arithmetic: h is stored after each step."""
    spec = problem.spec
    if spec.dtype == "float64":
        return FLOAT64
    small = algo == "auto" and is_full(problem) and spec.bias == "double" and not spec.proj_size
    curves = SMALL_H if small and spec.cell != "rnn_relu" else 0
    return max(FLOAT32, STORED[spec.dtype][0], curves)


def turned(array, batch_first):
    return np.ascontiguousarray(array.swapaxes(0, 1)) if batch_first else array


TF32 = 2.0**-10  # both operands of a product are rounded to 10 bits


def variants(problem):
    """Yield the options to run a problem with besides the default ones, and their unit."""
    spec = problem.spec
    if spec.dtype == "float32":
        yield {"math": "tf32"}, TF32
    if spec.dtype != "float64" and is_full(problem):
        yield {"algo": "standard"}, unit(problem, "standard")


def run_of(problem, arrays, y, last, batch_first):
    last = last if problem.spec.cell == "lstm" else [last]
    y = turned(arrays.get(y, problem.dtype), batch_first)
    return Run(y, *(arrays.get(state, problem.dtype) for state in last))


def state_of(problem, arrays):
    states = [arrays.put(problem.hx)]
    if problem.spec.cell == "lstm":
        return (*states, arrays.put(problem.cx))
    return states[0]


def results(problem, arrays, batch_first):
    """Return arrays for out=, h_out= and c_out= of a call."""
    D, lstm = problem.spec.num_directions, problem.spec.cell == "lstm"
    shape = (problem.T, problem.N, problem.width * D)
    shape = (shape[1], shape[0], shape[2]) if batch_first else shape
    made = {"out": np.full(shape, 7, problem.dtype), "h_out": problem.hx * 0}
    made |= {"c_out": problem.cx * 0} if lstm else {}
    return {name: arrays.put(array) for name, array in made.items()}


def ours(problem, batch_first, arrays, into, options=None):
    """Run rnnlayout. into: whether results are written into given arrays."""
    rnn = rl.RNN(problem.weights, problem.spec, device="cuda", batch_first=batch_first,
                 **(options or {}))  # fmt: skip
    x, state = arrays.put(turned(problem.x, batch_first)), state_of(problem, arrays)
    lengths = None if is_full(problem) else problem.lengths
    given = results(problem, arrays, batch_first) if into else {}
    y, last = rnn(x, state, lengths=lengths, **given)
    if into:
        y, *last = (given[name] for name in ("out", "h_out", "c_out") if name in given)
        last = last if problem.spec.cell == "lstm" else last[0]
    return run_of(problem, arrays, y, last, batch_first)


def ours_in_steps(problem, arrays):
    rnn = rl.RNN(problem.weights, problem.spec, device="cuda")
    state, ys = state_of(problem, arrays), []
    for x in problem.x:
        y, state = rnn.step(arrays.put(x), state)
        ys.append(arrays.get(y, problem.dtype))
    run = run_of(problem, arrays, ys[0], state, False)
    return Run(np.stack(ys), run.h, run.c)


def torch_has(problem):
    spec = problem.spec
    return spec.bias in ("double", "none") and not spec.skip_input and problem.lengths.min() > 0


def torchs(problem, torch, where):
    """Run torch's own module, on its cuDNN."""
    spec, arrays = problem.spec, Arrays(where, torch)
    module = torch_module(torch, spec, problem.weights).to(where)
    x, state = arrays.put(np.nan_to_num(problem.x)), state_of(problem, arrays)
    whole = (problem.lengths == problem.T).all()
    if not whole:
        x = torch.nn.utils.rnn.pack_padded_sequence(
            x, torch.from_numpy(problem.lengths), enforce_sorted=False
        )
    with torch.inference_mode():
        y, last = module(x, state)
    if not whole:
        y = torch.nn.utils.rnn.pad_packed_sequence(y, total_length=problem.T)[0]
    return run_of(problem, arrays, y, last, False)


# ----------------------------------------------------------------------------------------- verdicts


class Verdicts:
    """The largest error of each kind, and the results that are out of bounds."""

    def __init__(self):
        self.worst, self.failures, self.checked = {}, [], 0

    def add(self, who, problem, batch_first, run, *arguments, rounds=None):
        """Add run(problem, *arguments). An exception is reported as a failure. rounds: the unit of
        its arithmetic, if it is not that of the dtype."""
        self.checked += 1
        try:
            made = run(problem, *arguments)
            off = problem.distance(made, unit=rounds or unit(problem))
        except Exception as why:
            self.failures.append([who, title(problem, batch_first), f"{type(why).__name__}: {why}"])
            return
        if not off <= 1:
            self.failures.append([who, title(problem, batch_first), f"{off:.3g}"])
        key = f"{who}, {problem.spec.dtype}"
        self.worst[key] = max(self.worst.get(key, 0), float(f"{off:.3g}"))


def alone(found, problem, batch_first, into):
    """Check rnnlayout without a framework, in all its variants."""
    driver, host = Arrays("driver"), Arrays("host")
    with_arrays(found, problem, batch_first, into, [driver, host])
    for options, rounds in variants(problem):
        (name, value), *_ = options.items()
        found.add(f"ours, {name} {value}", problem, batch_first, ours, batch_first,
                  driver, False, options, rounds=rounds)  # fmt: skip


def beside_torch(found, problem, batch_first, into):
    """Check rnnlayout with torch's arrays, and torch's own module."""
    torch, where, _ = torch_there()
    if where == "cuda":
        with_arrays(found, problem, batch_first, into, [Arrays(where, torch)])
    if not batch_first and torch_has(problem):
        found.add(f"torch, {where}", problem, False, torchs, torch, where)


def with_arrays(found, problem, batch_first, into, places):
    steps = not problem.spec.bidirectional and is_full(problem)
    for arrays in places:
        who = f"ours, {arrays.place} arrays"
        found.add(who, problem, batch_first, ours, batch_first, arrays, into)
        if steps:
            found.add(f"{who}, steps", problem, False, ours_in_steps, arrays)


def parity(case, beside):
    """Return the verdicts of a case. beside: "torch" or "alone"."""
    check, found = beside_torch if beside == "torch" else alone, Verdicts()
    if beside == "torch":
        torch_there()  # before the search for cuDNN, so that torch's copy is shared
    if "bfloat16" in case and cudnn.cudnn_report()["version"] < 91300:
        return vars(found) | {"left_out": {"bfloat16": "cuDNN 9.13 is needed for bfloat16"}}
    for problem, batch_first, into in problems(case):
        check(found, problem, batch_first, into)
    return vars(found)


def forward(cell):
    """Return the verdicts of one small call of a cell, with NumPy arrays."""
    found, spec = Verdicts(), rl.Spec(cell, 5, 6)
    problem = Problem(spec, np.random.default_rng(0))
    found.add("first call", problem, False, ours, False, Arrays("host"), False)
    return vars(found)


def joined(parts):
    """Join the verdicts of all cases."""
    worst = {}
    for key, value in (pair for part in parts for pair in part["worst"].items()):
        worst[key] = max(value, worst.get(key, 0))
    left_out = {name: why for part in parts for name, why in part.get("left_out", {}).items()}
    return {"checked": sum(part["checked"] for part in parts), "worst": worst,
            "failures": [failure for part in parts for failure in part["failures"]],
            "left_out": left_out}  # fmt: skip
