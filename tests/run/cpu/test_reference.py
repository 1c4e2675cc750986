"""An RNN computes what the reference computes: random RNNs of every kind, against reference.py.

I, H, P, L, D, N and T are all different, so no two axes can be confused; hidden sizes go up to
several vectors.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import event, strategies as st
from marks import examples, more_examples
from oracles.bits import DTYPES
from oracles.reference import (
    FLOAT32,
    FLOAT64,
    Run,
    forward,
    from_cudnn,
    from_onnx,
    has_cudnn_form,
    pairs,
)

import rnnlayout as rl

# The rounding of a result to its dtype: relative, and half the smallest step of subnormal ones.
OUTPUT = {"float16": (2.0**-11, 2.0**-25), "bfloat16": (2.0**-8, 0.0), "float32": (0.0, 0.0),
          "float64": (0.0, 0.0)}  # fmt: skip
HARD = ["sigmoid", "hard_sigmoid", "hard_sigmoid_keras2"]
CLIPS = [(-0.25, 0.5), (0.125, 0.125), (-np.inf, 0.25), (-0.0625, np.inf)]


@dataclass
class Problem:
    spec: rl.Spec
    T: int
    N: int
    dtype: str  # of x
    first: str  # the first state: "zero" or "given"
    lengths: list | None
    batch: str  # "first", "second", "none"
    clip: tuple | None
    seed: int


@st.composite
def problems(draw):
    cell = draw(st.sampled_from(["lstm", "gru", "rnn_tanh", "rnn_relu"]))
    both, layers = draw(st.booleans()), draw(st.integers(1, 3))
    taken = {layers, 1 + both, layers * (1 + both)}

    def size(low, high):
        found = draw(st.integers(low, high).filter(lambda n: n not in taken))
        taken.add(found)
        return found

    hidden = size(1, 8) if draw(st.booleans()) else size(9, 75)
    skip = draw(st.integers(0, 7)) == 0
    inputs = hidden if skip else size(1, 40)
    proj = 0
    if cell == "lstm" and hidden > 8 and draw(st.booleans()):
        proj = size(1, hidden - 1)
    reset = draw(st.sampled_from(["after", "before"])) if cell == "gru" else "after"
    squash = "sigmoid"
    if not cell.startswith("rnn") and not proj and draw(st.integers(0, 2)) == 0:
        squash = draw(st.sampled_from(HARD))
    peepholes = cell == "lstm" and not proj and draw(st.booleans())
    relu = not cell.startswith("rnn") and not proj and draw(st.integers(0, 2)) == 0
    activation = "relu" if relu else "tanh"
    special = reset == "before" or squash != "sigmoid" or peepholes or relu
    bias = draw(st.sampled_from(["double", "none"] if special
                                else ["double", "input", "recurrent", "none"]))  # fmt: skip
    weights = draw(st.sampled_from(list(DTYPES)))
    spec = rl.Spec(cell, inputs, hidden, layers, both, proj, bias, reset, squash,
                   skip and not special, weights, peepholes, activation)  # fmt: skip
    T, batch = size(0, 7), draw(st.sampled_from(["first", "second", "none"]))
    N = 1 if batch == "none" else size(0, 14)
    lengths = None
    if batch != "none" and draw(st.booleans()):
        lengths = draw(st.lists(st.integers(0, T), min_size=N, max_size=N))
    return Problem(
        spec,
        T,
        N,
        draw(st.sampled_from([weights, "float32"])) if weights in ("float16", "bfloat16")
        else weights,
        draw(st.sampled_from(["zero", "given"])),
        lengths,
        batch,
        draw(st.sampled_from([None, *CLIPS])) if cell == "lstm" else None,
        draw(st.integers(0, 2**32 - 1)),
    )  # fmt: skip


def random_weights(spec, rng):
    """Return a source, and the PseudoLayers in it. The magnitudes of a row of a matrix sum to less
    than 1, so no rounding error grows from step to step."""
    layout = "cudnn" if has_cudnn_form(spec) else "onnx"
    dtype, _, _ = DTYPES[spec.dtype]

    def numbers(shape, terms):
        return (rng.uniform(-1, 1, shape) / terms).astype(dtype)

    if layout == "onnx":
        tensors = {name: numbers(shape, shape[-1] if len(shape) == 3 else 2)
                   for name, shape in rl.describe(spec, layout).items()}  # fmt: skip
        return tensors, from_onnx(tensors, spec)
    pieces = [numbers((rows, cols), cols if cols > 1 else 2).reshape(-1)
              for *_, rows, cols in rl.regions(spec).tolist()]  # fmt: skip
    flat = np.concatenate(pieces)
    return flat, from_cudnn(flat, spec)


def states(problem, rng):
    """Return (h_0, c_0); c_0 is None if the cell has none."""
    spec = problem.spec
    dtype, _, _ = DTYPES[problem.dtype]

    def state(width):
        shape = spec.num_layers * spec.num_directions, problem.N, width
        values = rng.normal(size=shape) if problem.first == "given" else np.zeros(shape)
        return values.astype(dtype)

    h0 = state(spec.proj_size or spec.hidden_size)
    return h0, state(spec.hidden_size) if spec.cell == "lstm" else None


def run_ours(problem, source, x, h0, c0):
    """Run rl.RNN. The result has the axes of reference.Run, whatever the axes of the call."""
    spec, first = problem.spec, problem.batch == "first"
    rnn = rl.RNN(source, spec, layout="onnx" if isinstance(source, dict) else None,
                 batch_first=first, cell_clip=problem.clip)  # fmt: skip
    alone = problem.batch == "none"
    if alone:
        x, h0, c0 = x[:, 0], h0[:, 0], None if c0 is None else c0[:, 0]
    state = None if problem.first == "zero" else h0 if c0 is None else (h0, c0)
    y, last = rnn(x.swapaxes(0, 1) if first else x, state, lengths=problem.lengths)
    h, c = (last, None) if c0 is None else last
    assert {a.dtype for a in (y, h, c) if a is not None} == {x.dtype}
    if alone:
        y, h, c = y[:, None], h[:, None], None if c is None else c[:, None]
    return Run(y.swapaxes(0, 1) if first else y, h, c)


@examples(200, problem=problems())
def test_what_runs_is_the_recurrence(problem):
    rng = np.random.default_rng(problem.seed)
    spec = problem.spec
    source, layers = random_weights(spec, rng)
    dtype, _, _ = DTYPES[problem.dtype]
    x = rng.normal(size=(problem.T, problem.N, spec.input_size)).astype(dtype)
    h0, c0 = states(problem, rng)
    found = run_ours(problem, source, x, h0, c0)
    exact = [None if a is None else a.astype("f8") for a in (x, h0, c0)]
    expected = forward(layers, spec, *exact, problem.lengths, problem.clip)
    # Rounded derives how far float32 may be from the recurrence. Arithmetic is in float64 if the
    # weights are; the reference's own roundings are FLOAT64. Then the result is rounded.
    unit = FLOAT64 if spec.dtype == "float64" else FLOAT32
    share, least = OUTPUT[problem.dtype]
    for ours, wanted in pairs(found, expected):
        error = wanted.error * (unit + FLOAT64) / FLOAT32
        most = error + share * (np.abs(wanted.value) + error) + least
        assert (np.abs(ours.astype("f8") - wanted.value) <= most).all()
    event(f"{spec.cell} {problem.dtype}")


@pytest.mark.long
def test_more_of_what_runs_is_the_recurrence():
    more_examples(1700, test_what_runs_is_the_recurrence, problem=problems())()
