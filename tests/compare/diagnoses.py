"""Helpers of the tests of diagnose."""

import numpy as np
from compare.packed_arrays import Arrays
from oracles.some import normal_weights

import rnnlayout as rl

LSTM = rl.Spec("lstm", 5, 3)
BOTH = rl.Spec("gru", 5, 3, 2, bidirectional=True)


def weights(spec=LSTM, seed=0):
    return normal_weights(rl.layout("torch"), spec, seed)


def rules(found):
    return [one.rule for one in found.mistakes]


def lost(found):
    (line,) = [x for x in str(found).splitlines() if x.startswith("cannot be restored: ")]
    return line.removeprefix("cannot be restored: ").split("; ")


def swapped_in(tensors, parts=4):
    """Return the input matrices of torch's tensors with gates f and g exchanged."""
    return {name: np.concatenate([np.split(x, parts)[k] for k in (0, 2, 1, 3)])
            if "weight_ih" in name else x for name, x in tensors.items()}  # fmt: skip


def in_keras(spec, flat):
    """Return the tensors of a GRU with its reset before, by Keras's names: gates z r n."""
    arrays = Arrays(spec, flat)
    W, R = (arrays.matrices[0, 0, role][[1, 0, 2]] for role in "WR")
    return {
        "kernel": np.ascontiguousarray(W.reshape(-1, W.shape[2]).T),
        "recurrent_kernel": np.ascontiguousarray(R.reshape(-1, R.shape[2]).T),
        "bias": arrays.biases[0, 0][0, [1, 0, 2]].reshape(-1),
    }


def from_keras(spec, tensors):
    W, R, b = (np.asarray(x) for x in tensors)
    H, order = spec.hidden_size, [1, 0, 2]
    parts = [np.ascontiguousarray(x.T).reshape(3, H, -1)[order] for x in (W, R)]
    return np.concatenate([*(part.ravel() for part in parts), b.reshape(3, H)[order].ravel()])


def diagnosis_of(case):
    """Return the diagnosis of a case, and its `fixed` in cuDNN's order."""
    spec = case.spec.replace(dtype=case.dtype)
    if spec.reset == "before":
        like, written = (in_keras(spec, x) for x in (case.like, case.written))
        diagnosis = rl.diagnose(written, like=like, spec=spec, layout="keras")
        fixed = diagnosis.fixed
        if isinstance(fixed, np.ndarray):
            return diagnosis, fixed[: case.like.size]
        arrays = () if fixed is None else [x.view(case.like.dtype) for x in fixed.arrays]
        return diagnosis, None if fixed is None else from_keras(spec, arrays)
    diagnosis = rl.diagnose(case.written, like=case.like, spec=spec)
    fixed = diagnosis.fixed
    return diagnosis, None if fixed is None else np.asarray(fixed)
