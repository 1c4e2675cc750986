"""torch computes what the cuDNN weight space defines, and a module that comes back is the same."""

import numpy as np
import pytest
import torch
from convert.meaning import TORCH, Framework, check_both_ways, parameters
from marks import sample
from oracles import frameworks
from oracles.frameworks import H, I, P, inputs, seeded, stacks
from oracles.reference import GATES, distance, forward, from_cudnn

import rnnlayout as rl

ANSWERS_FOR = ("cudnn", "torch", "torch-cell")

# oneDNN has no projection: torch warns and takes another path
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

SPECS = stacks() + stacks(["lstm"], proj_size=P)
every_cell = pytest.mark.parametrize("cell", GATES)
CELL = Framework("torch-cell", frameworks.torch_cell, frameworks.run_torch_cell, parameters)


@pytest.mark.parametrize("spec", sample(SPECS, 7), ids=str)
def test_the_weight_space_runs_as_the_module_does_and_comes_back(spec):
    module, flat, *_ = check_both_ways(TORCH, spec, "cudnn")
    assert flat.tobytes() == rl.pack(module).tobytes()
    found = rl.unpack(flat, spec, to="torch")
    assert [(n, a.shape) for n, a in found.items()] == [
        (n, tuple(p.shape)) for n, p in module.named_parameters()
    ]


@every_cell
@pytest.mark.parametrize("bias", ["double", "none"])
def test_cells(cell, bias):
    spec = rl.Spec(cell, I, H, bias=bias)
    module, flat, *_ = check_both_ways(CELL, spec, "cudnn")
    assert list(rl.unpack(flat, spec, to="torch-cell")) == list(module.state_dict())
    # a cell has the tensors of a layer under other names; the two biases keep their roles
    renamed = {f"{name}_l0": tensor for name, tensor in module.state_dict().items()}
    assert rl.pack(renamed, spec).tobytes() == flat.tobytes()


# cuDNN's modes with one bias: outside r (R h + bR) in mode "input", inside it in "recurrent".
ONE_BIAS = {"input": ("bW", "bias_hh"), "recurrent": ("bR", "bias_ih")}


@every_cell
@pytest.mark.parametrize("mode", ONE_BIAS)
def test_two_biases_as_one(cell, mode):
    kept, absent = ONE_BIAS[mode]
    spec = rl.Spec(cell, I, H, 2, bidirectional=True, bias=mode)
    rng = seeded("one bias", spec)
    module = frameworks.torch_module(spec, rng)
    if cell == "gru":
        with pytest.raises(rl.LossyError, match=absent):
            rl.pack(module, spec)
        with torch.no_grad():  # the candidate's rows are the last third
            for name, parameter in module.named_parameters():
                if name.startswith(absent):
                    parameter[2 * H :] = 0
    flat = rl.pack(module, spec)
    assert set(rl.regions(spec)["role"]) == {"W", "R", kept}
    given = inputs(rng, spec)
    expected = forward(from_cudnn(flat, spec), spec, *given)
    # bW + bR is rounded once, as in any float32 sum of the two: reference.Rounded
    assert distance(frameworks.run_torch(module, *given), expected) <= 1

    fresh = frameworks.torch_module(spec)
    rl.assign(fresh, rl.unpack(flat, spec, to="torch"))
    assert distance(frameworks.run_torch(fresh, *given), expected) <= 1


def test_a_wrong_way_to_pack_is_far_beyond_rounding():
    """As found in published code: matrices transposed, gates i f o g, biases after each layer."""
    spec = rl.Spec("lstm", I, H, 2)
    rng = seeded("wrong ways", spec)
    module = frameworks.torch_module(spec, rng)
    given = inputs(rng, spec)
    run = frameworks.run_torch(module, *given)
    state = {name: p.detach().numpy() for name, p in module.named_parameters()}
    turned = {n: np.concatenate([g.T.ravel() for g in np.split(a, 4)]) if "weight" in n else a
              for n, a in state.items()}  # fmt: skip
    ordered = {n: a.reshape(4, -1)[[0, 1, 3, 2]] for n, a in state.items()}
    by_kind = sorted(state, key=lambda name: "bias" in name)
    right, *wrong = (
        np.concatenate([tensors[name].ravel() for name in names])
        for tensors, names in [(state, by_kind), (turned, by_kind), (ordered, by_kind),
                               (state, list(state))]
    )  # fmt: skip
    assert right.tobytes() == rl.pack(module).tobytes()
    for flat in wrong:
        assert distance(run, forward(from_cudnn(flat, spec), spec, *given)) > 30_000
