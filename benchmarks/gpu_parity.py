"""Compare rl.RNN on a GPU with the float64 recurrence and with torch's cuDNN.

All cells, layers, directions, projection, bias modes and dtypes; full and shorter lengths, batch
first too; whole calls and single steps, device arrays and NumPy arrays, new results and out=.
Each result must be within the rounding bound of its arithmetic (tests/oracles/reference.py
derives it) of the float64 recurrence. torch must be within it too, so the two differ by at most
twice the bound.
"""

import itertools
import sys
from importlib import import_module
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from fakes.problem import CELLS, STORED, Problem
from gpu_device import Array
from oracles.reference import FLOAT32, FLOAT64, Run

import rnnlayout as rl
from rnnlayout._run import cudnn


def torch_there():
    """Return (torch or None, its device "cuda" or "cpu", what is missing or None)."""
    try:
        torch = import_module("torch")
    except ImportError:
        return None, "cpu", "torch is not installed"
    if not torch.cuda.is_available():
        torch.set_num_threads(1)  # with small sizes, more threads only wait for each other
        return torch, "cpu", f"torch {torch.__version__} has no GPU: it runs on the CPU"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    return torch, "cuda", None


# --------------------------------------------------------------------------------------- arrays


class Arrays:
    """Convert NumPy arrays to arrays of a place, and back. place: "cuda" or "cpu" (torch tensors),
    "driver" (gpu_device.py's arrays) or "host" (NumPy arrays)."""

    def __init__(self, place, torch=None, driver=None):
        self.place, self.torch, self.driver = place, torch, driver

    def holds(self, dtype):
        """Return whether the dtype is supported: __cuda_array_interface__ lacks bfloat16."""
        return self.place != "driver" or dtype != "bfloat16"

    def put(self, array):
        if self.place == "host":
            return array
        if self.place == "driver":
            return Array(self.driver, array)
        if array.dtype.name == "bfloat16":  # NumPy lacks it, so torch gets the bits
            tensor = self.torch.from_numpy(np.array(array).view("i2")).view(self.torch.bfloat16)
        else:
            tensor = self.torch.from_numpy(np.array(array))
        return tensor.to(self.place)

    def get(self, result, dtype):
        """Return a result as a NumPy array. result: NumPy's, torch's, or any type with numpy()."""
        if self.torch and isinstance(result, self.torch.Tensor):
            result = result.cpu()
            if result.dtype == self.torch.bfloat16:
                result = result.view(self.torch.int16)
        array = result if isinstance(result, np.ndarray) else result.numpy()
        return np.array(array).view(dtype)


def places(torch, where, driver):
    """Return the places whose arrays rnnlayout accepts: the device, then the host."""
    device = Arrays("cuda", torch) if where == "cuda" else Arrays("driver", torch, driver)
    return [device, Arrays("host", torch)]


# ----------------------------------------------------------------------------------- the problems


def specs():
    for cell, dtype, (layers, both) in itertools.product(
        CELLS, STORED, [(1, False), (2, True), (3, False)]
    ):
        yield rl.Spec(cell, 24, 40, layers, both, dtype=dtype)
        if cell == "lstm" and layers < 3:
            yield rl.Spec(cell, 24, 40, layers, both, 16, dtype=dtype)
    for cell, bias in itertools.product(CELLS, ("none", "input", "recurrent")):
        yield rl.Spec(cell, 24, 40, 2, True, bias=bias)


LENGTHS = [None, [9, 3, 1, 6, 9], [4, 0, 2, 9, 1], [3, 3, 3, 3, 3]]


def problems(quick):
    """Yield (Problem, batch_first): all, or with quick each spec with one kind of lengths."""
    forms = list(itertools.product(LENGTHS, (False, True)))
    for k, spec in enumerate(specs()):
        for lengths, batch_first in [forms[k % len(forms)]] if quick else forms:
            rng = np.random.default_rng(k)
            yield Problem(spec, rng, T=9, N=5, lengths=lengths), batch_first
    for both in (False, True):  # cuDNN returns an unclamped last cell state; rnnlayout clamps it
        spec = rl.Spec("lstm", 24, 40, 2, both)
        rng = np.random.default_rng(both)
        # a first cell state within the bounds: cuDNN clamps it when reading, our CPU path does not
        yield Problem(spec, rng, T=9, N=5, clip=(-0.0625, 0.125), c_size=0.0625), both


def title(problem, batch_first):
    shape = "" if (problem.lengths == problem.T).all() else f", lengths {problem.lengths.tolist()}"
    clip = f", clip {problem.clip}" if problem.clip else ""
    return f"{problem.spec}{shape}{clip}{', batch first' if batch_first else ''}"


def unit(spec):
    """Return the relative rounding error of the arithmetic: h is stored after each step."""
    return FLOAT64 if spec.dtype == "float64" else max(FLOAT32, STORED[spec.dtype][0])


def turned(array, batch_first):
    return np.ascontiguousarray(array.swapaxes(0, 1)) if batch_first else array


# ---------------------------------------------------------------------------------------- the runs


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


def ours(problem, batch_first, arrays, into):
    """Run rnnlayout. into: whether results are written into given arrays."""
    rnn = rl.RNN(problem.weights, problem.spec, device="cuda", batch_first=batch_first,
                 cell_clip=problem.clip)  # fmt: skip
    x, state = arrays.put(turned(problem.x, batch_first)), state_of(problem, arrays)
    lengths = None if (problem.lengths == problem.T).all() else problem.lengths
    given = results(problem, arrays, batch_first) if into else {}
    y, last = rnn(x, state, lengths=lengths, **given)
    if into:
        y, *last = given.values()
        last = last if problem.spec.cell == "lstm" else last[0]
    return run_of(problem, arrays, y, last, batch_first)


def ours_in_steps(problem, arrays):
    rnn = rl.RNN(problem.weights, problem.spec, device="cuda", cell_clip=problem.clip)
    state, ys = state_of(problem, arrays), []
    for x in problem.x:
        y, state = rnn.step(arrays.put(x), state)
        ys.append(arrays.get(y, problem.dtype))
    run = run_of(problem, arrays, ys[0], state, False)
    return Run(np.stack(ys), run.h, run.c)


def torch_has(problem):
    return (problem.spec.bias in ("double", "none") and problem.lengths.min() > 0
            and not problem.clip)  # fmt: skip


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


def torch_module(torch, spec, flat):
    """Return nn.LSTM, GRU or RNN with the weights of a weight space."""
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(spec.cell, torch.nn.RNN)
    more = {"nonlinearity": spec.cell[4:]} if spec.cell.startswith("rnn") else {}
    more |= {"proj_size": spec.proj_size} if spec.proj_size else {}
    more |= {"dtype": getattr(torch, spec.dtype), "bidirectional": spec.bidirectional}
    sizes = spec.input_size, spec.hidden_size, spec.num_layers
    module = kind(*sizes, bias=spec.bias != "none", **more)
    rl.assign(module, rl.convert(flat, spec, layout="cudnn", to="torch"))
    return module.eval()


# ----------------------------------------------------------------------------------------- verdicts


SHOWN = 20  # failures that are printed; the results contain all


class Verdicts:
    """The largest error of each kind, and the results that are out of bounds."""

    def __init__(self):
        self.worst, self.failures, self.checked = {}, [], 0

    def add(self, who, problem, batch_first, run, *arguments):
        """Add run(problem, *arguments). An exception is reported as a failure."""
        self.checked += 1
        try:
            off = problem.distance(run(problem, *arguments), unit=unit(problem.spec))
        except Exception as why:
            self.failures.append([who, title(problem, batch_first), f"{type(why).__name__}: {why}"])
            return
        if not off <= 1:
            self.failures.append([who, title(problem, batch_first), f"{off:.3g}"])
        key = f"{who}, {problem.spec.dtype}"
        self.worst[key] = max(self.worst.get(key, 0), float(f"{off:.3g}"))


def parity(driver, quick=False, cells=CELLS):
    """Check some cells. Return {"checked", "worst": {implementation and dtype: error / bound},
    "failures", "left_out"}."""
    torch, where, missing = torch_there()
    left_out = {"torch's cuDNN": missing} if missing else {}
    narrow = cudnn.find()["version"] >= 90000
    left_out |= {} if narrow else {"bfloat16": "cuDNN 8 has no RNNs in bfloat16"}
    found = Verdicts()
    for k, (problem, batch_first) in enumerate(problems(quick)):
        if problem.spec.cell not in cells or (problem.spec.dtype == "bfloat16" and not narrow):
            continue
        steps = not problem.spec.bidirectional and (problem.lengths == problem.T).all()
        for arrays in places(torch, where, driver):
            if not arrays.holds(problem.spec.dtype):
                continue
            who = f"ours, {arrays.place} arrays"
            found.add(who, problem, batch_first, ours, batch_first, arrays, k % 2)
            if steps:
                found.add(f"{who}, steps", problem, False, ours_in_steps, arrays)
        if torch and not batch_first and torch_has(problem):
            found.add(f"torch, {where}", problem, False, torchs, torch, where)
    return {"checked": found.checked, "worst": found.worst, "failures": found.failures,
            "left_out": left_out}  # fmt: skip


def joined(parts):
    """Join the results of parity() for different cells."""
    worst = {}
    for key, value in (pair for part in parts for pair in part["worst"].items()):
        worst[key] = max(value, worst.get(key, 0))
    left_out = {name: why for part in parts for name, why in part["left_out"].items()}
    return {"checked": sum(part["checked"] for part in parts), "worst": worst,
            "failures": [failure for part in parts for failure in part["failures"]],
            "left_out": left_out}  # fmt: skip


def show(found):
    for who, worst in found["worst"].items():
        print(f"{who:28} error at most {worst:.2g} of the bound")
    for name, why in found["left_out"].items():
        print(f"{name}: left out, {why}")
    for who, what, why in found["failures"][:SHOWN]:
        print(f"WRONG {who}: {what}: {why}")
    print(f"{found['checked']} results checked, {len(found['failures'])} wrong", flush=True)
