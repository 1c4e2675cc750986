"""A user's script that touches every public name, for type checkers; test_checks.py runs it too."""

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import rnnlayout as rl

folder = Path(sys.argv[1])
spec = rl.Spec("lstm", input_size=4, hidden_size=6, bias=True, dtype=np.float32)
shapes: dict[str, tuple[int, ...]] = rl.describe(spec, "torch")
weights = {name: np.full(shape, 0.1, "f4") for name, shape in shapes.items()}
assert rl.infer_spec(weights, "torch") == spec and spec.cell == "lstm" and spec.dtype == "float32"
flat: np.ndarray = rl.pack(weights)
tensors = rl.unpack(flat, spec, to="keras")
grade: str = tensors.report.grade
options: rl.ReadingOptions = {"prefix": "", "layout": "torch"}
again: rl.Spec = rl.convert(weights, layout="torch", to="onnx").spec
print(flat.nbytes, tensors["kernel"].shape, grade, again.num_params, rl.regions(spec).shape)
report: rl.Report = rl.check(weights, to="concat")
text: str = rl.explain(spec, "torch", rl.layout("concat", inputs="xh"))
moves: rl.Explanation = rl.explain(spec, "torch", "keras")
drawn: rl.Picture = rl.picture(spec, "torch", "keras", width=300)
print(len(drawn.svg), moves.picture().text(60, colours=False))
print(report.reason, len(text.splitlines()), list(rl.layouts()))

if TYPE_CHECKING:  # wrong arguments of reading are errors for a type checker too
    rl.convert(weights, to="keras", prefix=3)  # type: ignore[call-overload]
    rl.pack(weights, cell=1)  # type: ignore[arg-type]
    rl.pack(weights, mmap=False)  # type: ignore[call-arg]
    rl.load(folder, prefx="a")  # type: ignore[call-arg]
    rl.RNN(weights, layout=2)  # type: ignore[arg-type]
    drawn = rl.convert(weights, to="cudnn", prefix="lstm")  # type: ignore[assignment]

one = rl.Weights(weights, layout="torch")
both: rl.Weights = rl.stack([one.to("keras")])
state_of_adam: rl.OptimizerState | None = one.optimizer
print(both.layout.name, one.tensors.keys(), [part.spec.hidden_size for part in one.split()])
rnn: rl.RNN = rl.RNN(one, device="cpu")
y, (h_n, c_n) = rnn(np.zeros((3, 2, 4), "f4"), lengths=np.array([3, 1]))
y, state = rnn.step(np.zeros((2, 4), "f4"))
live: rl.Stepper = rnn.stepper()
bound: rl.BoundCall = rnn.bind(np.zeros((3, 2, 4), "f4"))
bound()
tape: rl.Tape = rnn.record(np.zeros((3, 2, 4), "f4"))
dx, dstate, dweights = tape.backward(np.zeros(tape.y.shape, "f4"))
live(np.zeros(4, "f4"), out=y[0])
print(live.state)
y, state = rl.forward(np.zeros((3, 4), "f4"), one)
rnn.update(weights)
rl.set_num_threads(1)
print(rl.num_threads(), rl.cpu_tier(), rl.__version__, y.shape)

rl.save(folder / "one.safetensors", one)
found: rl.Found = rl.load(folder / "one.safetensors", **options)
names: list[str] = [name for name, entry in found.items() if entry.spec.num_layers == 1]
try:
    found["another"]
except rl.UnknownNameError as error:
    unknown: KeyError = error
done: rl.Converted = rl.convert_file(folder / "one.safetensors", folder / "two.npz", to="keras")
print(names, [r.grade for r in done.reports.values()])
verified: rl.Verified = rl.verify(folder / "one.safetensors", folder / "two.npz")
diagnosed: rl.Diagnosis = rl.diagnose(flat, like=weights)
print(verified.picture(), diagnosed.picture().svg)
identified: rl.Identified = rl.identify(weights, np.ones((2, 1, 4), "f4"), np.ones((2, 1, 6), "f4"))
print(identified.text, identified.candidates[0].layouts, identified.best is not None)
print(verified.equal, diagnosed.fixed is not None, [one.rule for one in diagnosed.mistakes])
with warnings.catch_warnings():
    warnings.simplefilter("ignore", rl.AssumedWarning)
    rl.forward(np.ones((2, 1, 4), "f4"), tensors)
try:
    rl.assign(object(), tensors)
except rl.UndecidedError as error:
    raise SystemExit(f"pass {error.arguments}: it may be any of {error.specs}") from error
except (rl.LossyError, rl.SpecError, rl.CudnnError, rl.CudnnNotFoundError) as error:
    raise SystemExit(str(error)) from error
except rl.Error as error:
    print(
        isinstance(error, rl.LayoutError), isinstance(error, (rl.FileError, rl.MissingExtraError))
    )
