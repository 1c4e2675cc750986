"""Modules of torch that were changed before torch saved them whole, or traced them."""

import pytest
import torch

import rnnlayout as rl

from .sources import CHANGED, KEPT


def model():
    torch.manual_seed(0)
    modules = {CHANGED: torch.nn.LSTM(5, 3, 2, bidirectional=True), KEPT: torch.nn.GRU(6, 4)}
    return torch.nn.ModuleDict(modules | {"head": torch.nn.Linear(4, 2)})


def removed(*parts):
    def change(modules):
        parameters = modules[CHANGED]._parameters
        for name in [name for name in parameters if any(part in name for part in parts)]:
            del parameters[name]

    return change


def rename(modules):
    parameters = modules[CHANGED]._parameters
    parameters["weight_xx"] = parameters.pop("weight_hh_l0")


def hook(modules):
    modules[CHANGED].register_forward_hook(torch.tanh)


REFUSED = {
    "one tensor": (removed("weight_hh_l1"), "missing 'weight_hh_l1'"),
    "one bias": (removed("bias_hh_l0"), "missing 'bias_hh_l0'"),
    "renamed": (rename, "missing 'weight_hh_l0'"),
    "all biases": (removed("bias"), "its module has bias True"),
    "the last layer": (removed("_l1"), "its module has num_layers 2"),
    "a direction": (removed("_reverse"), "weight_ih_l1: shape"),
    "a hook": (hook, "with the forward hook"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_changed_module_is_refused(case, tmp_path):
    change, message = REFUSED[case]
    modules = model()
    change(modules)
    torch.save(modules, tmp_path / "a.pt")
    found = rl.load(tmp_path / "a.pt")
    assert list(found) == [KEPT] and message in str(found.unread[CHANGED])


def frozen(modules):
    return modules.requires_grad_(False).eval()


def with_more(modules):
    """A module of torch's own class computes nothing from further parameters."""
    modules[CHANGED].register_parameter("gain", torch.nn.Parameter(torch.ones(3)))
    return modules


@pytest.mark.parametrize("form", ["module", "state_dict"])
@pytest.mark.parametrize(
    "wrap", [frozen, with_more, torch.nn.DataParallel, torch.compile, torch.nn.Sequential]
)
def test_a_wrapped_module_is_the_same(wrap, form, tmp_path):
    modules = model()
    expected = [rl.Weights(modules[name].state_dict()) for name in (CHANGED, KEPT)]
    wrapped = wrap(modules)
    torch.save(wrapped if form == "module" else wrapped.state_dict(), tmp_path / "a.pt")
    found = rl.load(tmp_path / "a.pt")
    if wrap is with_more:
        assert f"{CHANGED}.gain" in found.others
        found = rl.load(tmp_path / "a.pt", ignore=[] if form == "module" else ["*.gain"])
    assert [*found.values()] == expected and not found.unread


def double(module, x, y=None):
    return (x[0] * 2,) if y is None else (y[0] * 2, y[1])


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook", ""])
def test_a_hook_in_a_traced_rnn(register, batch_first, tmp_path):
    """Tracing makes the hook a part of the program: its RNN was read without the hook."""
    for x in (torch.ones(4, 2, 5), torch.ones(4, 5)):
        rnn = torch.nn.LSTM(5, 3, batch_first=batch_first)
        if register:
            getattr(rnn, register)(double)
        torch.jit.save(torch.jit.trace(rnn, x), tmp_path / "a.pt")
        found = rl.load(tmp_path / "a.pt")
        if register:
            assert "with the forward hook 'torch.mul'" in str(found.undecided["lstm"])
            found = rl.load(tmp_path / "a.pt", as_class={"LSTM": "LSTM"})
        assert found["lstm"] == rl.Weights(rnn.state_dict())


class Scaled(torch.nn.LSTM):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.gain = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return super().forward(x)[0] * self.gain


def exported(model, x, path, decomposed=False):
    program = torch.export.export(model, (x,))
    torch.export.save(program.run_decompositions() if decomposed else program, path)
    return rl.load(path)


@pytest.mark.parametrize("cell", ["LSTM", "LSTMCell"])
@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
def test_a_hook_in_an_exported_rnn(register, cell, tmp_path):
    """A .pt2 was read without the hook."""
    rnn = getattr(torch.nn, cell)(5, 3)
    getattr(rnn, register)(double)
    found = exported(torch.nn.Sequential(rnn), torch.ones(4, 5), tmp_path / "a.pt2")
    assert "with the forward hook 'torch.mul'" in str(found.undecided["0"])
    found = rl.load(tmp_path / "a.pt2", as_class={cell: cell})
    assert found["0"] == rl.Weights(rnn.state_dict())


@pytest.mark.parametrize("decomposed", [False, True])
def test_a_class_of_the_user_in_an_exported_program(decomposed, tmp_path):
    """A .pt2 was read as torch's LSTM, with its gain among the left out tensors."""
    model = torch.nn.ModuleDict({CHANGED: Scaled(5, 3), KEPT: torch.nn.GRU(3, 4)})
    model.forward = lambda x: model[KEPT](model[CHANGED](x))
    found = exported(model, torch.ones(4, 2, 5), tmp_path / "a.pt2", decomposed)
    assert list(found) == [KEPT]
    assert "as_class={'Scaled': 'LSTM'}" in str(found.undecided[CHANGED])
