"""Weights that torch computes from stored parts: pruning, weight norm, weight dropout; and wrapped
modules' names.

torch recomputes the attribute of a pruned or old-style normed weight only when the module is
called. torch, after a call, is the oracle.
"""

import copy
import warnings

import numpy as np
import pytest
import torch
from oracles.frameworks import seeded, torch_cell, torch_module
from oracles.some import prefixed, same_bits
from torch.nn.functional import dropout
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
    narrow = rl.check(source, to="torch", dtype="float16").reason
    assert narrow == f"{name} computed from weight norm and float32 to float16"
    out = np.zeros(SPEC.num_params, "f4")
    for call in (lambda: rl.pack(source, exact=True, out=out),
                 lambda: rl.stack([rl.Weights(source)]).to("onnx", exact=True)):  # fmt: skip
        with pytest.raises(rl.LossyError, match=f"{name}: a weight is rounded .*remove weight nor"):
            call()
    assert not out.any()


# ------------------------------------------------------------------------------------ state_dicts


def test_a_wrapped_module_alone_needs_no_prefix():
    module = torch_module(SPEC, seeded("wrapped"))
    state = torch.nn.DataParallel(module).state_dict()
    assert next(iter(state)) == "module.weight_ih_l0"
    assert same_bits(rl.pack(state), rl.pack(module))
    assert same_bits(rl.pack(state, prefix="module"), rl.pack(module))
    assert same_bits(rl.pack(prefixed("_orig_mod", state)), rl.pack(module))
    parts = dict.fromkeys(["weight_hh_l0_orig", "weight_hh_l0_mask"], torch.ones(3 * H, H))
    assert same_bits(rl.pack(state | prefixed("module", parts)), rl.pack(module))  # are not used
    with pytest.raises(rl.LayoutError, match="'module'"):
        rl.pack({"module": np.ones(3)})


# ------------------------------------------------------------------- computed in ways not known


@pytest.mark.parametrize("kind", ["spectral norm", "pruned weight norm"])
def test_a_stale_weight_of_another_kind_is_refused_by_name(kind):
    """It was the attribute, as of the last call."""
    module, name = torch_module(SPEC, seeded("other")), "weight_hh_l0"
    if kind == "spectral norm":
        torch.nn.utils.spectral_norm(module, name)
    else:
        prune.random_unstructured(torch.nn.utils.weight_norm(module, name), f"{name}_v", 0.5)
    for source in (module, module.state_dict()):
        with pytest.raises(rl.LayoutError, match=r"weight_hh_l0 is stored as .*_spectral_norm\)"):
            rl.pack(source)
    module(torch.zeros(1, I))  # and what the error says:
    if kind == "spectral norm":
        torch.nn.utils.remove_spectral_norm(module, name)
    else:
        prune.remove(module, f"{name}_v")
        torch.nn.utils.remove_weight_norm(module, name)
    assert same_bits(rl.Weights(module)[name], called(module, name))


def test_the_newer_kind_is_computed_by_torch_and_only_its_state_dict_refused():
    """Spectral norm makes a step of its power iteration whenever its weight is computed: to read a
    module in training changed it."""
    module, x = torch_module(SPEC, seeded("newer")), torch.ones(4, I)
    parametrizations.spectral_norm(module, "weight_hh_l0")
    with torch.no_grad():
        wanted = module(x)[0].numpy()
    before = copy.deepcopy(module.state_dict())
    first, second = rl.pack(module), rl.pack(module)
    assert same_bits(first, second) and module.parametrizations.weight_hh_l0[0].training
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())
    # 4 steps of sums of at most I + H + 2 numbers below 1, rounded to float32
    np.testing.assert_allclose(rl.forward(x.numpy(), module)[0], wanted, atol=4 * 14 * 2.0**-24)
    module.eval()
    assert same_bits(rl.Weights(module)["weight_hh_l0"], called(module, "weight_hh_l0"))
    with pytest.raises(rl.LayoutError, match="not known how torch computes it"):
        rl.pack(module.state_dict())
    parametrize.remove_parametrizations(module, "weight_hh_l0")
    assert rl.pack(module.state_dict()).size == SPEC.num_params


# --------------------------------------------------------------------------------- weight dropout


class Fastai(torch.nn.Module):
    """WeightDropout of fastai v2, shortened: the trained matrix is kept as _raw, and the last
    masked copy is an attribute of the module inside."""

    def __init__(self, module, names=("weight_hh_l0",)):
        super().__init__()
        self.module, self.names = module, names
        for name in names:
            raw = module._parameters.pop(name).data
            self.owner().register_parameter(f"{name}_raw", torch.nn.Parameter(raw))
            self.put(name, raw.clone())

    def owner(self):
        return self

    def put(self, name, value):
        setattr(self.module, name, value)

    def forward(self, *args):
        for name in self.names:
            self.put(name, dropout(getattr(self.owner(), f"{name}_raw"), 0.5, self.training))
        with warnings.catch_warnings(action="ignore"):  # the weights are not one chunk of memory
            return self.module(*args)


class Fastai1(Fastai):
    """fastai v1: the masked copy is in the state_dict too."""

    def put(self, name, value):
        self.module._parameters[name] = value


class Salesforce(Fastai):
    """WeightDrop of awd-lstm-lm: the trained matrix is a parameter of the inner module."""

    def owner(self):
        return self.module


def two_matrices(module):
    return Fastai(module, ("weight_hh_l0", "weight_ih_l0"))


WRAPPERS = [Fastai, Fastai1, Salesforce, two_matrices]


def trained(wrapper, **options):
    """Return a module with weight dropout after a step of training, and its weights in evaluation,
    the oracle. Its masked copy has zeros, and is older than the trained matrix."""
    spec = rl.Spec("lstm", I, H, **options)
    module = wrapper(torch_module(spec, seeded("dropout")))
    module.train()
    module(torch.zeros(1, I))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1.5)
    other = wrapper(torch_module(spec))
    other.load_state_dict(module.state_dict(), strict=False)
    other.eval()(torch.zeros(1, I))
    wanted = {
        name: getattr(other.module, name).detach().numpy() for name in rl.describe(spec, "torch")
    }
    assert (module.module.weight_hh_l0 == 0).sum() > 10 and wanted["weight_hh_l0"].all()
    return module, wanted


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("path", ["", "0.rnns.0.", "module.0."])
def test_a_state_dict_was_read_with_the_values_that_dropout_left(wrapper, path, tmp_path):
    module, wanted = trained(wrapper)
    state = {path + name: value.detach() for name, value in module.state_dict().items()}
    state["1.weight"] = torch.ones(2, 2)
    for prefix in {path or "module", f"{path}module"}:
        rest = state if path else module.state_dict()
        assert same_bits(rl.Weights(rest, prefix=prefix).tensors, wanted)
    torch.save(state, tmp_path / "m.pt")
    found = rl.load(tmp_path / "m.pt")
    (weights,) = found.values()
    assert same_bits(weights.tensors, wanted)
    assert found.others == ("1.weight",)
    assert "weight_hh_l0: trained with weight dropout" in found.notes[0] and path in found.notes[0]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_live_module_with_weight_dropout(wrapper):
    module, wanted = trained(wrapper, bidirectional=True, num_layers=2)
    assert same_bits(rl.Weights(module).tensors, wanted)
    assert rl.check(module, to="onnx").grade == "exact"


@pytest.mark.parametrize("wrapper", [Fastai, Fastai1])
def test_what_has_only_the_masked_copy_is_neither_read_nor_a_target(wrapper):
    module, _ = trained(wrapper)
    match = "weight_hh_l0 is not a parameter of LSTM,.* pass the module around it$"
    with pytest.raises(rl.LayoutError, match=match):
        rl.pack(module.module)
    before = module.weight_hh_l0_raw.clone()
    with pytest.raises(rl.LayoutError, match=r"not a plain parameter of Fastai1?: .* weight drop"):
        rl.assign(module, rl.Weights(torch_module(rl.Spec("lstm", I, H))))
    assert torch.equal(before, module.weight_hh_l0_raw)
