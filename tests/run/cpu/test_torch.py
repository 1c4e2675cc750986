"""Whole sequences as torch runs them: every form of its modules, PackedSequence for lengths.

Each step of each layer is as near to an exact step from the same h as its roundings explain
(reference.Rounded). No useful bound of this kind exists for many steps: in the worst case each
multiplies the errors before it, and 60 would allow any number. There torch's own float64 run is the
measure: the errors of rl.RNN are about as large as those of torch's float32 run.
"""

import copy

import numpy as np
import pytest
import torch
from marks import each_pair
from oracles.frameworks import seeded, torch_module
from oracles.reference import GATES, Run, distance, forward, from_cudnn
from run.cpu.running import flat

import rnnlayout as rl

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

# All different: steps, batch, input, hidden, projected.
T, N, I, H, P = 60, 13, 37, 50, 21  # noqa: E741
LENGTHS = np.array([60, 3, 41, 1, 17, 60, 29, 8, 55, 2, 33, 46, 5])
CASES = each_pair([
    (rl.Spec(cell, I, H, layers, both, proj, bias=bias), has_lengths)
    for cell in GATES
    for layers in (1, 3)
    for both in (False, True)
    for bias in ("double", "none")
    for proj in ((0, P) if cell == "lstm" else (0,))
    for has_lengths in (False, True)
], lambda case: (*case[0].to_dict().values(), case[1]))  # fmt: skip

NARROW = list(zip(GATES, [torch.float16, torch.bfloat16] * 2, strict=True))


def module_of(spec, rng):
    torch.manual_seed(int(rng.integers(2**31)))
    return torch_module(spec)


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
    return Run(*flat(rnn(x, h0 if c0 is None else (h0, c0), lengths=lengths)))


def assert_each_step_is_explained(source, spec, x, h0, c0, lengths=None):
    """Run layer by layer, and compare each step with an exact one. Together the layers have the
    bits of one run of them all, which is returned."""
    whole = run_ours(rl.RNN(source, spec), x, h0, c0, lengths)
    D, last_h, last_c = spec.num_directions, [], []
    for k, layer in enumerate(rl.Weights(source, spec).split()):
        states = [None if s is None else s[k * D : (k + 1) * D] for s in (h0, c0)]
        run = run_ours(layer.rnn(), x, *states, lengths)
        exact = forward(from_cudnn(layer.pack(), layer.spec), layer.spec, x.astype("f8"), *states,
                        lengths, outputs=run.y)  # fmt: skip
        assert distance(run, exact) <= 1
        x = run.y
        last_h.append(run.h)
        last_c.append(run.c)
    assert np.array_equal(whole.y, x) and np.array_equal(whole.h, np.concatenate(last_h))
    assert c0 is None or np.array_equal(whole.c, np.concatenate(last_c))
    return whole


def assert_as_near_as_torch(ours, theirs, exact):
    """The root mean square of the errors is at most twice that of torch's. This is measured, not
    derived: 1.0 to 1.6 times, because torch adds the products of a gate in several chains, and
    rnnlayout in one. The largest error would depend on chance, unlike this mean of thousands."""
    for k, wanted in vars(exact).items():
        if wanted is not None:
            errors = [np.linalg.norm(getattr(run, k) - wanted) for run in (ours, theirs)]
            assert errors[0] <= 2 * errors[1]


@pytest.mark.parametrize("spec, has_lengths", CASES, ids=str)
def test_modules(spec, has_lengths):
    lengths = LENGTHS if has_lengths else None
    rng = seeded("forward", spec)
    module, arrays = module_of(spec, rng), given(spec, rng)
    exact = run_torch(module, *arrays, lengths, torch.float64)
    ours = assert_each_step_is_explained(module, spec, *arrays, lengths)
    assert_as_near_as_torch(ours, run_torch(module, *arrays, lengths), exact)
    if lengths is not None:
        past = np.arange(T)[:, None] >= lengths
        assert past.any() and not ours.y[past].any()


@pytest.mark.parametrize("cell, dtype", NARROW, ids=str)
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
    single = run_ours(rnn, *as_float)
    assert_as_near_as_torch(single, theirs, exact)
    ours = run_ours(rnn, *arrays)
    for k, found in vars(ours).items():
        if found is not None:
            assert found.dtype == dtype
            assert torch.equal(found, torch.from_numpy(getattr(single, k)).to(dtype))


@pytest.mark.parametrize("cell", GATES)
def test_one_step_with_wide_weights(cell):
    """Large sums lose more by their roundings than torch's error on the same numbers, which may be
    small by chance, lets one expect."""
    for seed in range(50):
        rng = seeded("wide", cell, seed)
        I, H = (int(n) for n in rng.integers(2, 60, 2))  # noqa: E741
        spec = rl.Spec(cell, I, H)
        weights = {name: rng.standard_normal(shape, np.float32) / 2
                   for name, shape in rl.describe(spec, "torch").items()}  # fmt: skip
        x, h0, c0 = (rng.standard_normal((1, 3, n), np.float32) for n in (I, H, H))
        assert_each_step_is_explained(weights, spec, x, h0, c0 if cell == "lstm" else None)


@pytest.mark.long
def test_torch_compile_around_calls():
    """It cannot trace __dlpack_device__(), and ended with an internal error."""
    spec = rl.Spec("lstm", I, H)
    rng = seeded("compile", spec)
    rnn = rl.RNN(module_of(spec, rng))
    x, *state = map(torch.from_numpy, given(spec, rng))

    def calls(x, state):
        return (
            rnn(x * 2)[0] * 3,
            rnn(x, state)[1][1] * 3,
            rnn(x, lengths=torch.from_numpy(LENGTHS))[0] * 3,
            rnn(x, out=torch.empty(T, N, H))[0] * 3,
            rnn.step(x[0], state)[0] * 3,
        )

    with torch.no_grad():
        found = torch.compile(calls, backend="eager")(x, tuple(state))
        assert all(map(torch.equal, found, calls(x, tuple(state))))
