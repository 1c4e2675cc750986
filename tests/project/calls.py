"""Calls of the binding for the tests of memory: each one, and each error."""

import _imp
import sys
from functools import partial

import numpy as np

import rnnlayout as rl
from rnnlayout import _native

LSTM, GRU = rl.Spec("lstm", 3, 2), rl.Spec("gru", 3, 2)
LARGE = LSTM.replace(input_size=1000, hidden_size=2000)  # numbers that Python does not cache
BEFORE = GRU.replace(reset="before")
TORCH, KERAS, CUDNN = rl.layout("torch"), rl.layout("keras"), rl.layout("cudnn")
CONCAT = rl.layout("concat", inputs="xh", z="candidate")

ARRAYS, GRU_ARRAYS = (
    [np.ones(shape, "f4") for shape in rl.describe(spec, "torch").values()] for spec in (LSTM, GRU)
)
FLAT, RESULT = np.ones(LSTM.num_params, "f4"), np.empty(LSTM.num_params, "f4")
# made beforehand: only the call itself is measured
OVERLAPPING, NO_ARRAY, WRONG = ([*ARRAYS[:3], last] for last in (RESULT[:8], 7, RESULT))
TOO_FEW, WRONG_TARGET = ARRAYS[:3], [RESULT[1:]]
PLAN = _native.Plan(LSTM, TORCH, _native.HAS_BIAS, CUDNN)
SUMS = _native.Plan(GRU, TORCH, _native.HAS_BIAS, CONCAT)
X, H, C = np.ones((4, 5, 3), "f4"), np.ones((1, 5, 2), "f4"), np.ones((1, 5, 2), "f4")
Y, LENGTHS, STATE = np.ones((4, 5, 2), "f4"), np.array([4, 0, 2, 1, 3]), (H, C)
RNN = _native.Rnn(LSTM, FLAT, (-1.0, 1.0))
FLAT_GRU = np.ones(GRU.num_params, "f4")
GRU_RNN = _native.Rnn(GRU, FLAT_GRU)
STEPPER = _native.Stepper(RNN, lambda *_: None, lambda _: (H[:, 0].copy(), C[:, 0].copy()))
STEP, CALL = _native.STEP, _native.TIME_FIRST
# The references to these objects are counted.
SHARED = [X, H, C, Y, LENGTHS, STATE, RNN, STEPPER, FLAT_GRU, GRU_RNN,
          LSTM, GRU, BEFORE, TORCH, KERAS, CUDNN, CONCAT, FLAT, RESULT, PLAN, SUMS,
          *ARRAYS, *GRU_ARRAYS, PLAN.sources, PLAN.targets]  # fmt: skip


class Duck:
    """An object with a spec's attributes, which the binding must check itself."""

    def __init__(self, **changes):
        vars(self).update(peepholes=False, activation="tanh", **LSTM.to_dict() | changes)


DUCKS = {
    "no attribute": Duck(),
    "a name that is none": Duck(cell=7),
    "a size that is none": Duck(hidden_size="2"),
    "a size of many bits": Duck(hidden_size=1 << 70),
    "a flag that is none": Duck(skip_input=np.ones(2)),
    "no sense": Duck(proj_size=5),
}
del DUCKS["no attribute"].cell


class Options:
    """An object with a layout's attributes."""

    def __init__(self, name, options):
        self.name, self.options, self.rows = name, options, None


ROW_JSON = b'{"gates": {"lstm": "ifgo"}, "tensors": {"W": "W (G*H, I)", "R": "R (G*H, H)"}}'
LAYOUTS = {
    "no name": Options(7, ()),
    "no options": Options("torch", 7),
    "no pair": Options("concat", ("z",)),
    "no text": Options("concat", ((1, 2),)),
    "no such option": Options("concat", (("y", "state"),)),
    "no such value": Options("concat", (("z", "h"),)),
    "a NUL": Options("concat", (("z\0", "h\0"),)),
}


def run(plan=PLAN, src=ARRAYS, dst=(RESULT,), types=("float32", "float32"), exact=False):
    return plan.run(src, dst, *types, exact, False)


def load(spec=_native.__spec__):
    """Load the extension module once more, as a second interpreter would."""
    module = _imp.create_dynamic(spec)
    _imp.exec_dynamic(module)
    return module.__name__


def call(rnn=RNN, x=X, state=None, lengths=None, outputs=(None,) * 3, axes=CALL, states=False):
    return rnn.run(x, state, lengths, None, *outputs, axes, False, states) is not None


def gpu_rnn(spec, weights):
    return _native.GpuRnn(spec, weights, 0, False, True)


def call_once(x):
    """Make, run and free an Rnn that borrows its weights."""
    return call(_native.Rnn(LSTM, FLAT, None, "default", True), x)


# CPython 3.13 itself crashes if it has no memory while it makes a type.
BINDING = {"import": load} if sys.version_info < (3, 13) else {}
BINDING |= {
    "check": lambda: _native.check(LSTM, TORCH),
    "check_layout": lambda: _native.check_layout(CONCAT),
    "tensors": lambda: _native.tensors(CONCAT, GRU),
    "tensors of": lambda: _native.tensors(TORCH, LARGE, _native.HAS_BIAS),
    "blocks": lambda: _native.blocks(TORCH, LARGE, _native.HAS_BIAS),
    "names": lambda: _native.names(TORCH),
    "rows": _native.rows,
    "read_rows": lambda: _native.read_rows(ROW_JSON)[0],
    "write_rows": lambda: _native.write_rows(CONCAT),
    "layout_rows": lambda: _native.layout_rows(CONCAT),
    "Plan": lambda: _native.Plan(LSTM, TORCH, _native.HAS_BIAS, KERAS).num_ops,
    "Plan.sources": lambda: (PLAN.sources, PLAN.targets, PLAN.num_ops),
    "Plan.block_ops": SUMS.block_ops,
    "Plan.moves": lambda: SUMS.moves() is None and len(PLAN.moves()) > 1,
    "Plan.run": run,
    "Plan.run dry": lambda: run(dst=None),
    "Rnn": lambda: _native.Rnn(LSTM, FLAT, (-1.0, 1.0)) is not None,
    "Rnn for one call, direct": lambda: call_once(X[:1, :1]),
    "Rnn for one call, packed": lambda: call_once(X),
    "Rnn.weights": lambda: RNN.weights() is not None,
    "Rnn.weights borrowed": lambda: _native.Rnn(LSTM, FLAT, borrows=True).weights() is not None,
    "Rnn.run": lambda: call(RNN, X, STATE, LENGTHS, (Y, H, C), states=True),
    "Rnn.run to new arrays": call,
    "Rnn.run of one state": lambda: call(GRU_RNN, X[0], H, None, (None, H, None), STEP),
    "Rnn.run the long way": lambda: call(state=7),
    "Rnn.run on outputs that do not fit": lambda: call(outputs=(None, Y, None)),
    "Stepper": lambda: STEPPER(X[0, 0]) is not None and STEPPER.state is not None,
    "Stepper of a state": lambda: setattr(STEPPER, "state", 7),
    "Stepper of a new one": lambda: _native.Stepper(GRU_RNN, len, len) is not None,
    "Stepper the long way": lambda: STEPPER(7, out=7),
    "set_num_threads": lambda: _native.set_num_threads(0),
    "num_threads": _native.num_threads,
    "itemsize": lambda: _native.itemsize("float16"),
    "describe_cudnn": _native.describe_cudnn,
}
# what has no name, no attribute or no sense, and the errors of Python itself
OF_A_DUCK = (rl.SpecError, TypeError, ValueError)
OF_OPTIONS = (rl.LayoutError, TypeError, IndexError)
BINDING_ERRORS = {
    "open_cudnn": (rl.CudnnNotFoundError, lambda: _native.open_cudnn(b"/nowhere/libcudnn.so.9")),
    "open_cudnn by no bytes": (TypeError, lambda: _native.open_cudnn("/nowhere")),
    "a GpuRnn without a GPU": (rl.CudnnNotFoundError, lambda: gpu_rnn(LSTM, FLAT)),
    "a GpuRnn of too few weights": (TypeError, lambda: gpu_rnn(LSTM, FLAT[1:])),
    "a GpuRnn that cuDNN lacks": (rl.LossyError, lambda: gpu_rnn(BEFORE, FLAT_GRU)),
    "no spec": (rl.SpecError, lambda: _native.check(7)),
    "no layout": (AttributeError, lambda: _native.check_layout(7)),
    "a dtype": (rl.SpecError, lambda: _native.itemsize("int8")),
    "a dtype that is not a text": (TypeError, lambda: _native.itemsize(7)),
    "a name with a NUL": (rl.SpecError, lambda: _native.itemsize("float16\0")),
    "half a character": (rl.SpecError, lambda: _native.itemsize("\ud800")),
    **{name: (OF_A_DUCK, partial(_native.check, duck)) for name, duck in DUCKS.items()},
    **{f"{name} of a layout": (OF_OPTIONS, partial(_native.check_layout, layout))
       for name, layout in LAYOUTS.items()},
    "no rows": (rl.SpecError, lambda: _native.read_rows(ROW_JSON[:-1])),
    "rows of no bytes": (TypeError, lambda: _native.read_rows("{}")),
    "no form": (rl.LossyError, lambda: _native.tensors(TORCH, BEFORE)),
    "no blocks": (rl.LossyError, lambda: _native.blocks(TORCH, BEFORE)),
    "no number of has": (TypeError, lambda: _native.tensors(TORCH, LSTM, "1")),
    "no plan": (rl.LossyError, lambda: _native.Plan(BEFORE, KERAS, 1, TORCH)),
    "no source": (rl.LossyError, lambda: _native.Plan(BEFORE, TORCH, 1, KERAS)),
    "no place": (rl.LossyError, lambda: run(SUMS, GRU_ARRAYS, None)),
    "not exact": (rl.LossyError, lambda: run(types=("float32", "float16"), dst=None, exact=True)),
    "overlap": (rl.LayoutError, lambda: run(src=OVERLAPPING)),
    "no array": (TypeError, lambda: run(src=NO_ARRAY)),
    "too few arrays": (TypeError, lambda: run(src=TOO_FEW)),
    "a wrong array": (TypeError, lambda: run(src=WRONG)),
    "a wrong target": (TypeError, lambda: run(dst=WRONG_TARGET)),
    "no sequence": (TypeError, lambda: run(src=7)),
    "no truth": (ValueError, lambda: run(exact=RESULT)),
    "no weights": (TypeError, lambda: _native.Rnn(LSTM, Y)),
    "no spec of an Rnn": (rl.SpecError, lambda: _native.Rnn(7, FLAT)),
    "no clip": (TypeError, lambda: _native.Rnn(LSTM, FLAT, 7)),
    "float32 that rounds": (rl.SpecError, lambda: _native.Rnn(LSTM, FLAT, None, "bfloat16")),
    "no such math": (TypeError, lambda: _native.Rnn(LSTM, FLAT, None, "int4")),
    "a clip of nothing": (rl.SpecError, lambda: _native.Rnn(LSTM, FLAT, (1.0, -1.0))),
    "a clip of a GRU": (rl.SpecError, lambda: _native.Rnn(GRU, FLAT_GRU, (-1.0, 1.0))),
    "too few arguments": (TypeError, lambda: RNN.run(X)),
    "axes of no kind": (TypeError, lambda: call(axes="tn", states=True)),
    "axes past the last": (TypeError, lambda: call(axes=3, states=True)),
    "no x": (TypeError, lambda: call(x=None, states=True)),
    "an output that does not fit": (TypeError, lambda: call(outputs=(None, Y, None), states=True)),
    "a length past the end": (rl.LayoutError, lambda: call(x=X[:1], lengths=LENGTHS)),
    "no number of threads": (rl.SpecError, lambda: _native.set_num_threads("2")),
}  # fmt: skip
