"""The fake cuDNN computes the same as the reference in NumPy and as torch.

All problems of a test run in one process of their own: no framework in this process must find a
libcuda.so.1 that is a fake.
"""

import itertools
import pickle
import sys

import numpy as np
import pytest
import torch
from commands import TESTS, run
from fakes.problem import (
    BATCH,
    BIASES,
    CELLS,
    NUMBER,
    SEQ,
    STORED,
    Problem,
)
from marks import each_pair
from oracles.reference import FLOAT32, FLOAT64, Run, pairs

import rnnlayout as rl


def run_all(fakes, tmp_path, problems):
    """problems: (question, {name: array}); gives {"y": bytes, "hy": bytes, "cy": bytes} of each"""
    given, made = tmp_path / "given", tmp_path / "made"
    given.write_bytes(pickle.dumps([
        (question, {name: array.tobytes() for name, array in arrays.items()})
        for question, arrays in problems
    ]))  # fmt: skip
    run([sys.executable, "-m", "fakes.device", fakes.cudnn, given, made], cwd=TESTS)
    return pickle.loads(made.read_bytes())


def specs():
    """Every cell, bias mode, direction, skip, projection and dtype."""
    for cell, bias, both, dtype, kind in itertools.product(
        CELLS, BIASES, (False, True), NUMBER, ("plain", "skip", "projected")
    ):
        if kind == "projected" and cell != "lstm":
            continue
        yield rl.Spec(
            cell, 6 if kind == "skip" else 5, 6, num_layers=2, bidirectional=both, bias=bias,
            proj_size=4 if kind == "projected" else 0, skip_input=kind == "skip", dtype=dtype,
        )  # fmt: skip


# How x is stored in memory, and its lengths (of 4 steps).
SHAPES = [(SEQ, None), (SEQ, [2, 4, 3]), (SEQ, [0, 1, 4]), (BATCH, None), (BATCH, [3, 0, 4]),
          (SEQ, [0, 0, 0])]  # fmt: skip


def test_all_forms_are_the_recurrence(fakes, tmp_path):
    rng, cases = np.random.default_rng(1), list(itertools.product(specs(), range(len(SHAPES))))
    cases = each_pair(cases, lambda case: (*case[0].to_dict().values(), case[1]))
    problems = [Problem(spec, rng, layout=SHAPES[k][0], lengths=SHAPES[k][1]) for spec, k in cases]
    found = run_all(fakes, tmp_path, [(p.question, p.arrays()) for p in problems])
    for problem, one in zip(problems, found, strict=True):
        assert problem.worst(one) <= 1, (problem.question, problem.worst(one))


def test_a_wrong_form_is_told(fakes, tmp_path):
    """The tolerance is tight: with two gates exchanged it is exceeded a thousand times."""
    spec = rl.Spec("lstm", 5, 6)
    problem = Problem(spec, np.random.default_rng(2))
    arrays = problem.arrays()
    arrays["weights"] = problem.weights.copy()
    arrays["weights"][:60] = np.roll(problem.weights[:60], 30)
    (found,) = run_all(fakes, tmp_path, [(problem.question, arrays)])
    assert problem.worst(found) > 1000


@pytest.mark.parametrize("kind", ["lstm", "projected", "gru", "rnn_tanh", "rnn_relu"])
def test_torch_says_the_same(fakes, tmp_path, kind):
    """In float64, two layers in both directions, packed sequences."""
    cell = "lstm" if kind == "projected" else kind
    spec = rl.Spec(cell, 5, 6, num_layers=2, bidirectional=True, dtype="float64",
                   proj_size=4 if kind == "projected" else 0)  # fmt: skip
    problem = Problem(spec, np.random.default_rng(3), lengths=[4, 2, 1])
    (found,) = run_all(fakes, tmp_path, [(problem.question, problem.arrays())])
    ours = problem.result(found)

    made = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(cell, torch.nn.RNN)
    more = {"nonlinearity": cell[4:]} if cell.startswith("rnn") else {}
    if spec.proj_size:
        more["proj_size"] = spec.proj_size
    module = made(5, 6, 2, bidirectional=True, dtype=torch.float64, **more)
    state = rl.convert(problem.weights, spec, layout="cudnn", to="torch")
    module.load_state_dict({name: torch.from_numpy(np.array(a)) for name, a in state.items()})
    x = torch.nn.utils.rnn.pack_padded_sequence(
        torch.from_numpy(np.nan_to_num(problem.x)), problem.lengths
    )
    h, c = torch.from_numpy(problem.hx), torch.from_numpy(problem.cx)
    with torch.no_grad():
        y, last = module(x, (h, c) if cell == "lstm" else h)
    y = torch.nn.utils.rnn.pad_packed_sequence(y, total_length=4)[0].numpy()
    last = last if cell == "lstm" else (last, None)
    theirs = Run(y, last[0].numpy(), last[1].numpy() if cell == "lstm" else None)
    # Each is within the rounding of double of the exact result, so the two are within twice that.
    bounds = [4 * FLOAT64 / FLOAT32 * wanted.error for _, wanted in pairs(ours, problem.expected())]
    assert (np.abs(ours.y - theirs.y) <= bounds[0]).all()
    assert (np.abs(ours.h - theirs.h) <= bounds[1]).all()
    assert cell != "lstm" or (np.abs(ours.c - theirs.c) <= bounds[2]).all()


# ------------------------------------------------------------------------- what formats.md says


@pytest.mark.parametrize("dtype", NUMBER)
def test_the_fill_is_past_the_end_and_nothing_without_it(fakes, tmp_path, dtype):
    spec = rl.Spec("gru", 5, 6, dtype=dtype)
    kept, filled = (
        Problem(spec, np.random.default_rng(4), lengths=[2, 4, 0], fill=fill)
        for fill in (False, True)
    )
    before = np.full((4, 3, 6), 7.0, kept.dtype)
    found = run_all(fakes, tmp_path, [(p.question, p.arrays() | {"y": before})
                                      for p in (kept, filled)])  # fmt: skip
    past = np.arange(4)[:, None] >= kept.lengths
    for problem, one, value in zip((kept, filled), found, (7, 0), strict=True):
        y = problem.result(one).y
        assert (y[past] == value).all() and (y[~past] != value).all()


def test_an_empty_sequence_keeps_its_state(fakes, tmp_path):
    problem = Problem(rl.Spec("lstm", 5, 6), np.random.default_rng(5), lengths=[2, 0, 4])
    (found,) = run_all(fakes, tmp_path, [(problem.question, problem.arrays())])
    result = problem.result(found)
    assert (result.h[:, 1] == problem.hx[:, 1]).all() and (result.c[:, 1] == problem.cx[:, 1]).all()


def test_the_clip_acts_where_the_cell_is_read(fakes, tmp_path):
    clip = (-0.25, 0.125)
    spec = rl.Spec("lstm", 5, 6, num_layers=2, dtype="float64")
    # a first state outside the bounds has the same effect as one at the bounds
    wide = Problem(spec, np.random.default_rng(6), clip=clip, c_size=2)
    arrays = wide.arrays()
    found = run_all(fakes, tmp_path, [
        (wide.question, arrays), (wide.question, arrays | {"cx": np.clip(wide.cx, *clip)}),
    ])  # fmt: skip
    assert found[0] == found[1]
    # h is computed from the clipped cell; the last c is returned without the clip
    wide.cx = np.clip(wide.cx, *clip)
    result, expected = wide.result(found[1]), wide.expected()
    assert ((result.c < clip[0]) | (result.c > clip[1])).any()
    clipped = Run(result.y, result.h, np.clip(result.c, *clip))
    for ours, wanted in pairs(clipped, expected):
        assert (np.abs(ours - wanted.value) <= 2 * FLOAT64 / FLOAT32 * wanted.error).all()


def test_the_bounds_of_the_clip_are_floats(fakes, tmp_path):
    spec = rl.Spec("lstm", 1, 1, bias="none", dtype="float64")
    problem = Problem(spec, np.random.default_rng(7), T=1, N=1, clip=(-1.0, 0.1))
    problem.weights[:] = 0
    zero = {name: np.zeros_like(a) for name, a in problem.arrays().items()}
    (found,) = run_all(fakes, tmp_path, [(problem.question, zero | {"cx": problem.cx * 0 + 5})])
    # f = 1/2 and i g = 0, so the new cell is half of the bound
    assert problem.result(found).c[0, 0, 0] == np.float64(np.float32(0.1)) / 2


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_number_is_rounded_once(fakes, tmp_path, dtype):
    """relu(w x) of one unit: the product is exact in double, the stored number is the nearest."""
    spec = rl.Spec("rnn_relu", 1, 1, bias="none", dtype=dtype)
    problem = Problem(spec, np.random.default_rng(8), T=1, N=60000)
    bits = np.random.default_rng(9).integers(0, 2 ** (8 * problem.dtype.itemsize - 1), 60000)
    kind = np.dtype(f"u{problem.dtype.itemsize}")
    x = bits.astype(kind).view(problem.dtype)
    with np.errstate(invalid="ignore"):
        x = np.where(np.isfinite(x.astype(np.float64)), x, problem.dtype.type(1))
    for weight in (1.0, 0.7071, 3e-5, 300.0):
        w = np.array([weight, 0], problem.dtype)
        exact = x.astype(np.float64) * np.float64(w[0])
        arrays = {"x": x, "weights": w, "hx": np.zeros_like(x)}
        (found,) = run_all(fakes, tmp_path, [(problem.question, arrays)])
        with np.errstate(over="ignore"):
            wanted = nearest(exact, problem.dtype)
        assert (np.frombuffer(found["y"], kind) == wanted.view(kind)).all()


def nearest(exact, dtype):
    """Round to a 16-bit type by search: ml_dtypes rounds a double twice, by way of float32."""
    if dtype.itemsize == 4:
        return exact.astype(dtype)
    steps = np.arange({2.0**-11: 0x7C00, 2.0**-8: 0x7F80}[STORED[dtype.name][0]], dtype=np.uint16)
    steps = steps.view(dtype)  # all that are finite and not negative
    values = steps.astype(np.float64)
    at = np.clip(np.searchsorted(values, exact), 1, len(values) - 1)
    low, high = exact - values[at - 1], values[at] - exact
    odd = (at - 1) % 2 == 1
    up = (high < low) | ((high == low) & odd)
    found = steps[np.where(up, at, at - 1)]
    beyond = exact >= values[-1] + (values[-1] - values[-2]) / 2
    return np.where(beyond, dtype.type(np.inf), found)
