"""Whole sequences as torch runs them: every form of its modules, PackedSequence for lengths.

The measure is torch's own float64 run of the same module: rl.RNN may be off by twice the error of
torch's float32 run, and a little more if that is small by chance.
"""

import copy

import numpy as np
import pytest
import torch
from oracles.frameworks import TORCH, seeded, torch_cell
from oracles.reference import CURVE, FLOAT32, GATES, Run

import rnnlayout as rl

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

# All different: steps, batch, input, hidden, projected.
T, N, I, H, P = 60, 13, 37, 50, 21  # noqa: E741
LENGTHS = np.array([60, 3, 41, 1, 17, 60, 29, 8, 55, 2, 33, 46, 5])
SPECS = [
    rl.Spec(cell, I, H, layers, both, proj, bias=bias)
    for cell in GATES
    for layers in (1, 3)
    for both in (False, True)
    for bias in ("double", "none")
    for proj in ((0, P) if cell == "lstm" else (0,))
]
every_spec = pytest.mark.parametrize("spec", SPECS, ids=str)


def module_of(spec, rng):
    make, _, options = TORCH[spec.cell]
    if spec.proj_size:
        options = {**options, "proj_size": spec.proj_size}
    torch.manual_seed(int(rng.integers(2**31)))
    return make(spec.input_size, spec.hidden_size, spec.num_layers, bias=spec.bias != "none",
                bidirectional=spec.bidirectional, **options)  # fmt: skip


def given(spec, rng):
    layers = spec.num_layers * spec.num_directions
    h0 = rng.standard_normal((layers, N, spec.proj_size or H), np.float32)
    c0 = rng.standard_normal((layers, N, H), np.float32) if spec.cell == "lstm" else None
    return rng.standard_normal((T, N, I), np.float32), h0, c0


def run_torch(module, x, h0, c0, lengths=None, dtype=torch.float32):
    """Run the module, in another dtype if asked."""
    module = copy.deepcopy(module).to(dtype)
    x, h0, c0 = (None if a is None else torch.from_numpy(a).to(dtype) for a in (x, h0, c0))
    packed = x
    if lengths is not None:
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            x, torch.from_numpy(lengths), enforce_sorted=False
        )
    with torch.no_grad():
        y, last = module(packed, h0 if c0 is None else (h0, c0))
    if lengths is not None:
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, total_length=len(x))
    return Run(*(a.to(torch.float64).numpy() for a in [y, *([last] if c0 is None else last)]))


def run_ours(rnn, x, h0, c0, lengths=None):
    y, last = rnn(x, h0 if c0 is None else (h0, c0), lengths=lengths)
    return Run(y, *([last] if c0 is None else last))


def off(run, exact):
    """Return the largest error of a run in y, h and c."""
    return max(np.abs(getattr(run, k) - wanted).max() for k, wanted in vars(exact).items()
               if wanted is not None)  # fmt: skip


def allowed(theirs, exact):
    """Return twice torch's error plus, in case that is small by chance, the error of one step:
    CURVE roundings of the largest value (reference.Rounded)."""
    return 2 * off(theirs, exact) + CURVE * FLOAT32 * max(1, np.abs(exact.y).max())


def assert_as_near_as_torch(ours, theirs, exact):
    assert off(ours, exact) <= allowed(theirs, exact)


@every_spec
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "packed"])
def test_modules(spec, lengths):
    rng = seeded("forward", spec)
    module, arrays = module_of(spec, rng), given(spec, rng)
    exact = run_torch(module, *arrays, lengths, torch.float64)
    ours = run_ours(rl.RNN(module), *arrays, lengths)
    assert_as_near_as_torch(ours, run_torch(module, *arrays, lengths), exact)
    if lengths is not None:
        past = np.arange(T)[:, None] >= lengths
        assert past.any() and not ours.y[past].any()


@pytest.mark.parametrize("cell", GATES)
def test_batch_first(cell):
    spec = rl.Spec(cell, I, H, 2, True)
    rng = seeded("batch first", spec)
    module = module_of(spec, rng)
    x, h0, c0 = given(spec, rng)
    exact = run_torch(module, x, h0, c0, LENGTHS, torch.float64)
    theirs = run_torch(module, x, h0, c0, LENGTHS)
    swapped = np.ascontiguousarray(x.swapaxes(0, 1))
    ours = run_ours(rl.RNN(module, batch_first=True), swapped, h0, c0, LENGTHS)
    assert_as_near_as_torch(Run(ours.y.swapaxes(0, 1), ours.h, ours.c), theirs, exact)


@pytest.mark.parametrize("cell", GATES)
def test_without_a_batch(cell):
    spec = rl.Spec(cell, I, H, 2, True)
    rng = seeded("no batch", spec)
    module = module_of(spec, rng)
    arrays = [None if a is None else np.ascontiguousarray(a[:, 4]) for a in given(spec, rng)]
    exact = run_torch(module, *arrays, dtype=torch.float64)
    assert_as_near_as_torch(run_ours(rl.RNN(module), *arrays), run_torch(module, *arrays), exact)


@pytest.mark.parametrize("cell", GATES)
def test_steps_of_a_cell(cell):
    spec = rl.Spec(cell, I, H)
    rng = seeded("cell", spec)
    cells = torch_cell(spec, rng)
    x, h0, c0 = given(spec, rng)
    rnn = rl.RNN(cells)
    state = h0 if c0 is None else (h0, c0)
    theirs = [torch.from_numpy(a[0]) for a in (h0, c0) if a is not None]
    exact = [a.double() for a in theirs]
    double = copy.deepcopy(cells).double()
    for step in x[:20]:
        y, state = rnn.step(step, state)
        with torch.no_grad():
            for run, dtype in ((theirs, torch.float32), (exact, torch.float64)):
                on = cells if dtype == torch.float32 else double
                new = on(torch.from_numpy(step).to(dtype), run[0] if c0 is None else tuple(run))
                run[:] = [new] if c0 is None else new
    wanted = Run(exact[0].numpy(), exact[0].numpy())
    assert_as_near_as_torch(Run(y, (state if c0 is None else state[0])[0]),
                            Run(theirs[0].numpy(), theirs[0].numpy()), wanted)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("cell", GATES)
def test_narrow_weights(cell, dtype):
    """A module in half precision: arithmetic is in float32, the result is rounded once."""
    spec = rl.Spec(cell, I, H, 2, True)
    rng = seeded("narrow", spec, dtype)
    module = module_of(spec, rng).to(dtype)
    arrays = [None if a is None else torch.from_numpy(a).to(dtype) for a in given(spec, rng)]
    as_float = [None if a is None else a.float().numpy() for a in arrays]
    exact = run_torch(module, *as_float, dtype=torch.float64)
    theirs = run_torch(module, *as_float, dtype=torch.float32)  # those weights, in float32
    rnn = rl.RNN(module)
    assert_as_near_as_torch(run_ours(rnn, *as_float), theirs, exact)
    u = torch.finfo(dtype).eps / 2
    ours = run_ours(rnn, *arrays)
    for k, found in vars(ours).items():
        if found is None:
            continue
        assert found.dtype == dtype
        found, wanted = found.double().numpy(), getattr(exact, k)
        error = allowed(theirs, exact)
        # rounded once: by half a unit in the last place, or 2^-25 if float16 is subnormal
        most = error + u * (np.abs(wanted) + error) + 2.0**-25
        assert (np.abs(found - wanted) <= most).all()


def test_float64():
    spec = rl.Spec("lstm", I, H, 2, True, P, dtype="float64")
    rng = seeded("double", spec)
    module, arrays = module_of(spec, rng).double(), given(spec, rng)
    exact = run_torch(module, *arrays, LENGTHS, torch.float64)
    single = run_torch(module, *arrays, LENGTHS)
    ours = run_ours(rl.RNN(module), *(a.astype("f8") for a in arrays), LENGTHS)
    assert ours.y.dtype == np.float64
    # torch's float32 run is off by some 2^-24; both double runs are by as many 2^-53
    assert off(ours, exact) <= 4 * off(single, exact) * 2.0**-29


def test_a_state_dict_with_a_prefix_and_an_update():
    spec = rl.Spec("gru", I, H, 2)
    rng = seeded("update", spec)
    first, second = module_of(spec, rng), module_of(spec, rng)
    x, h0, _ = given(spec, rng)
    named = {f"encoder.rnn.{k}": v for k, v in first.state_dict().items()} | {"head": torch.ones(3)}
    rnn = rl.RNN(named, prefix="encoder.rnn")
    exact = run_torch(first, x, h0, None, dtype=torch.float64)
    assert_as_near_as_torch(run_ours(rnn, x, h0, None), run_torch(first, x, h0, None), exact)
    rnn.update(second)
    exact = run_torch(second, x, h0, None, dtype=torch.float64)
    assert_as_near_as_torch(run_ours(rnn, x, h0, None), run_torch(second, x, h0, None), exact)
