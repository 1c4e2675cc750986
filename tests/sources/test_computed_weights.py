"""Weights that torch computes from stored parts: pruning, weight norm; and wrapped modules' names.

torch recomputes the attribute of a pruned or old-style normed weight only when the module is
called. torch, after a call, is the oracle.
"""

import copy

import numpy as np
import pytest
import torch
from oracles.frameworks import seeded, torch_cell, torch_module
from oracles.some import same_bits
from torch.nn.utils import parametrizations, parametrize, prune

import rnnlayout as rl

I, H = 5, 7  # noqa: E741
SPEC = rl.Spec("gru", I, H)
PRUNED = {
    "pruned": lambda m, name: prune.random_unstructured(m, name, 0.5),
    "pruned twice": lambda m, name: (prune.random_unstructured(m, name, 0.3),
                                     prune.ln_structured(m, name, 0.3, n=2, dim=0)),
}  # fmt: skip
NORMED = {
    "weight norm": lambda m, name: torch.nn.utils.weight_norm(m, name),
    "weight norm of columns": lambda m, name: torch.nn.utils.weight_norm(m, name, dim=1),
    "weight norm of all": lambda m, name: torch.nn.utils.weight_norm(m, name, dim=None),
}
NAMES = {torch_module: "weight_hh_l0", torch_cell: "weight_hh"}


def changed(make, how):
    """Return a module with a computed weight, whose attribute is stale."""
    module, name = make(SPEC, seeded(how)), NAMES[make]
    (PRUNED | NORMED)[how](module, name)
    stale = getattr(module, name).detach().clone()
    other = copy.deepcopy(module.state_dict())
    module.load_state_dict({key: value if "mask" in key else 1.5 * value
                            for key, value in other.items()})  # fmt: skip
    assert torch.equal(getattr(module, name), stale)
    return module, name


def called(module, name):
    """Return what the module computes with."""
    with torch.no_grad():
        module(torch.zeros(1, I))
    return getattr(module, name).detach().numpy()


@pytest.mark.parametrize("make", NAMES)
@pytest.mark.parametrize("how", PRUNED | NORMED)
def test_a_computed_weight_was_stale_after_load_state_dict(make, how):
    """How its state_dict is read: below, and files/torch/test_torch.py."""
    module, name = changed(make, how)
    found = rl.Weights(module)
    assert same_bits(found.tensors, rl.Weights(module.state_dict()).tensors)
    assert (rl.check(module, to="keras").grade == "exact") == (how in PRUNED)
    # torch rounds the sum of at most 3 H H squares of a norm, and a few times more
    rtol = 0 if how in PRUNED else (3 * H * H + 4) * 2.0**-24
    np.testing.assert_allclose(found[name], called(module, name), rtol=rtol, atol=0)


@pytest.mark.parametrize("shape", [(1, H), (3 * H,)])
def test_a_mask_of_another_shape(shape):
    """NumPy would repeat a mask of one row."""
    state = torch_module(SPEC, seeded("mask")).state_dict()
    state["weight_hh_l0_orig"] = state.pop("weight_hh_l0")
    state["weight_hh_l0_mask"] = torch.ones(shape)
    with pytest.raises(rl.LayoutError, match=r"^weight_hh_l0: a mask of float32 .* for float32 "):
        rl.Weights(state)


@pytest.mark.parametrize("as_source", [lambda m: m, lambda m: m.state_dict()])
def test_what_was_rounded_says_so(as_source):
    module, name = changed(torch_module, "weight norm")
    source = as_source(module)
    report = rl.check(source, to="onnx")
    assert report.grade == "rounds" and f"{name} computed from weight norm" in report.reason
    once = rl.convert(source, to="onnx")
    assert once.report == rl.Weights(source).to("onnx").report == report
    assert rl.check(once, to="torch").grade == "exact"  # its numbers are these
    assert rl.check(source, to="concat", dtype="float64").grade == "unrepresentable"
    narrow = rl.check(source, to="torch", dtype="float16").reason
    assert narrow == f"{name} computed from weight norm and float32 to float16"
    out = np.zeros(SPEC.num_params, "f4")
    for call in (lambda: rl.pack(source, exact=True, out=out),
                 lambda: rl.Weights(source).pack(exact=True),
                 lambda: rl.stack([rl.Weights(source)]).to("onnx", exact=True)):  # fmt: skip
        with pytest.raises(rl.LossyError, match=f"{name}: a weight is rounded .*remove weight nor"):
            call()
    assert not out.any()
    torch.nn.utils.remove_weight_norm(module, name)  # what the error says
    assert rl.pack(module, exact=True).any()


# ------------------------------------------------------------------------------------ state_dicts


@pytest.mark.parametrize("wrapper", ["", "module.", "_orig_mod.", "_orig_mod.module."])
@pytest.mark.parametrize("how", [*PRUNED, *NORMED, "new weight norm"])
def test_a_state_dict_means_in_memory_what_it_means_in_a_file(wrapper, how, tmp_path):
    module = torch.nn.Sequential(torch_module(SPEC, seeded(how)), torch.nn.Linear(H, 2))
    if how == "new weight norm":
        parametrizations.weight_norm(module[0], "weight_hh_l0")
    else:
        (PRUNED | NORMED)[how](module[0], "weight_hh_l0")
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1.5)
    state = {wrapper + name: value for name, value in module.state_dict().items()}
    torch.save(state, tmp_path / "m.pt")
    (filed,) = rl.load(tmp_path / "m.pt").values()
    for prefix in {"0", f"{wrapper}0", f"{wrapper}0."}:
        assert same_bits(rl.Weights(state, prefix=prefix).tensors, filed.tensors)
    arrays = {name: value.numpy() for name, value in state.items()}
    assert same_bits(rl.pack(arrays, prefix="0"), filed.pack())


def test_a_wrapped_module_alone_needs_no_prefix():
    module = torch_module(SPEC, seeded("wrapped"))
    state = torch.nn.DataParallel(module).state_dict()
    assert next(iter(state)) == "module.weight_ih_l0"
    assert same_bits(rl.pack(state), rl.pack(module))
    assert same_bits(rl.pack(state, prefix="module"), rl.pack(module))


def test_a_plain_weight_beside_its_parts_is_what_is_used():
    module = torch_module(SPEC, seeded("both"))
    weights = {name: value.numpy() for name, value in module.state_dict().items()}
    parts = {"weight_hh_l0_orig": np.ones((3 * H, H), "f4"),
             "weight_hh_l0_mask": np.ones((3 * H, H), "f4")}  # fmt: skip
    assert same_bits(rl.pack(weights | parts), rl.pack(weights))


def test_a_tensor_called_module_is_no_wrapper():
    with pytest.raises(rl.LayoutError, match="'module'"):
        rl.pack({"module": np.ones(3)})


# ------------------------------------------------------------------- computed in ways not known


def old_spectral_norm(module):
    torch.nn.utils.spectral_norm(module, "weight_hh_l0")
    return lambda: torch.nn.utils.remove_spectral_norm(module, "weight_hh_l0")


def pruned_weight_norm(module):
    prune.random_unstructured(torch.nn.utils.weight_norm(module, "weight_hh_l0"),
                              "weight_hh_l0_v", 0.5)  # fmt: skip

    def repair():
        prune.remove(module, "weight_hh_l0_v")
        torch.nn.utils.remove_weight_norm(module, "weight_hh_l0")

    return repair


@pytest.mark.parametrize("change", [old_spectral_norm, pruned_weight_norm])
def test_a_stale_weight_of_another_kind_is_refused_by_name(change):
    """It was the attribute, as of the last call."""
    module = torch_module(SPEC, seeded("other"))
    repair = change(module)
    for source in (module, module.state_dict()):
        with pytest.raises(rl.LayoutError, match=r"weight_hh_l0 is stored as .*_spectral_norm\)"):
            rl.pack(source)
    module(torch.zeros(1, I))
    repair()
    assert same_bits(rl.Weights(module)["weight_hh_l0"], called(module, "weight_hh_l0"))


def test_the_newer_kind_is_computed_by_torch_and_only_its_state_dict_refused():
    module = torch_module(SPEC, seeded("newer"))
    parametrizations.spectral_norm(module, "weight_hh_l0")
    module.eval()
    assert same_bits(rl.Weights(module)["weight_hh_l0"], called(module, "weight_hh_l0"))
    with pytest.raises(rl.LayoutError, match="not known how torch computes it"):
        rl.pack(module.state_dict())
    parametrize.remove_parametrizations(module, "weight_hh_l0")
    assert rl.pack(module.state_dict()).size == SPEC.num_params


def test_reading_a_module_in_training_changed_it():
    """Spectral norm makes a step of its power iteration whenever its weight is computed."""
    module = torch_module(SPEC, seeded("training"))
    parametrizations.spectral_norm(module, "weight_hh_l0")
    x = torch.ones(4, I)
    with torch.no_grad():
        wanted = module(x)[0].numpy()
    before = copy.deepcopy(module.state_dict())
    first, second = rl.pack(module), rl.pack(module)
    assert same_bits(first, second) and module.parametrizations.weight_hh_l0[0].training
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())
    # 4 steps of sums of at most I + H + 2 numbers below 1, rounded to float32
    np.testing.assert_allclose(rl.forward(x.numpy(), module)[0], wanted, atol=4 * 14 * 2.0**-24)
