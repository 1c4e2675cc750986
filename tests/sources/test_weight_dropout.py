"""Weight dropout (AWD-LSTM): the trained matrix is kept as `_raw`, beside the last masked copy.

The classes are those of fastai (v1 and v2) and of Salesforce's awd-lstm-lm, shortened; the oracle
is the module in evaluation, which computes with all of the trained matrix.
"""

import warnings

import pytest
import torch
from oracles.frameworks import seeded, torch_module
from oracles.some import same_bits
from torch.nn.functional import dropout

import rnnlayout as rl

I, H = 5, 7  # noqa: E741


class Fastai(torch.nn.Module):
    """WeightDropout of fastai v2: the masked copy is an attribute of the module."""

    def __init__(self, module, names=("weight_hh_l0",)):
        super().__init__()
        self.module, self.names = module, names
        for name in names:
            raw = getattr(module, name)
            delattr(module, name)
            self.register_parameter(f"{name}_raw", torch.nn.Parameter(raw.data))
            self.put(name, raw.clone())

    def put(self, name, value):
        setattr(self.module, name, value)

    def forward(self, *args):
        for name in self.names:
            self.put(name, dropout(getattr(self, f"{name}_raw"), 0.5, self.training))
        with warnings.catch_warnings(action="ignore"):  # the weights are not one chunk of memory
            return self.module(*args)


class Fastai1(Fastai):
    """fastai v1: the masked copy is in the state_dict too."""

    def put(self, name, value):
        self.module._parameters[name] = value


class Salesforce(torch.nn.Module):
    """WeightDrop of awd-lstm-lm: the trained matrix is a parameter of the inner module."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        raw = module._parameters.pop("weight_hh_l0")
        module.register_parameter("weight_hh_l0_raw", torch.nn.Parameter(raw.data))
        module.weight_hh_l0 = raw.clone()

    def forward(self, *args):
        self.module.weight_hh_l0 = dropout(self.module.weight_hh_l0_raw, 0.5, self.training)
        with warnings.catch_warnings(action="ignore"):
            return self.module(*args)


WRAPPERS = [Fastai, Fastai1, Salesforce]


def trained(wrapper, **options):
    """Return a module with weight dropout after a step of training, and its weights in evaluation.

    Its masked copy has zeros, and is older than the trained matrix.
    """
    spec = rl.Spec("lstm", I, H, **options)
    module = wrapper(torch_module(spec, seeded("dropout")))
    module.train()
    module(torch.zeros(1, I))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1.5)
    other = wrapper(torch_module(spec))
    missing = other.load_state_dict(module.state_dict(), strict=False).missing_keys
    assert missing in ([], ["module.weight_hh_l0"])
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
    (note,) = found.notes
    assert "weight_hh_l0: trained with weight dropout" in note and f"{path}" in note


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_live_module(wrapper):
    module, wanted = trained(wrapper, bidirectional=True, num_layers=2)
    assert same_bits(rl.Weights(module).tensors, wanted)
    assert rl.check(module, to="onnx").grade == "exact"


def test_several_dropped_matrices():
    module, wanted = trained(lambda inner: Fastai(inner, ("weight_hh_l0", "weight_ih_l0")))
    for source in (rl.Weights(module), rl.Weights(module.state_dict(), prefix="module")):
        assert same_bits(source.tensors, wanted)


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
