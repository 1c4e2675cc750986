"""convert_file() names the state of an optimizer that it leaves behind, with a line of Python that
converts the state: the line works when pasted."""

import numpy as np
import pytest
import torch

import rnnlayout as rl

I, H = 3, 5  # noqa: E741


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.LSTM(I, H), torch.nn.GRU(H, H + 1)

    def forward(self, x):
        return self.second(self.first(x)[0])[0]


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A model that was trained for two steps; its checkpoint is old.pt, in the current folder."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model = Model()
    model.adam = torch.optim.Adam(model.parameters(), amsgrad=True)
    for _ in range(2):
        model(torch.randn(4, 2, I)).pow(3).sum().backward()
        model.adam.step()
    torch.save({"model": model.state_dict(), "optimizer": model.adam.state_dict()}, "old.pt")
    return model


def states_by_note(done):
    """Return name -> state, by the lines of Python in the notes."""
    states = {}
    for note in done.notes:
        name, found, line = note.partition(": its optimizer's ")
        if found:
            facts, _, line = line.partition(" are not converted: in Python, ")
            states[name] = eval(line, {"rl": rl})
            told = {*facts.replace(" and step (2)", "").split(", ")}
            assert told == {*states[name].slots, *states[name].hyperparameters}
    return states


def assert_state(state, rnn, adam, to):
    kinds = {"exp_avg": "gradient", "exp_avg_sq": "squared_gradient",
             "max_exp_avg_sq": "squared_gradient"}  # fmt: skip
    assert state.step == 2 and state.slots.keys() == kinds.keys()
    for slot, kind in kinds.items():
        moments = {n: adam.state[p][slot] for n, p in rnn.named_parameters()}
        expected = rl.convert(moments, to=to, kind=kind)
        assert [*state.slots[slot]] == [*expected]
        for name, array in expected.items():
            assert state.slots[slot][name].tobytes() == array.tobytes() and array.any()


@pytest.mark.parametrize("target, to", [
    ("new.keras", "keras"), ("new.npz", "keras"), ("new.onnx", "onnx"),
    ("new.safetensors", rl.layout("tf1", forget_bias=0.0)),
])  # fmt: skip
def test_each_state_is_named_with_a_line_that_converts_it(target, to, model):
    only = ["model.first"] if not isinstance(to, str) else None
    states = states_by_note(rl.convert_file("old.pt", target, to=to, only=only))
    assert [*states] == (only or ["model.first", "model.second"])
    for name, state in states.items():
        assert_state(state, getattr(model, name[6:]), model.adam, to)


def test_the_line_reads_the_file_as_the_caller_did(model):
    done = rl.convert_file("old.pt", "new.npz", to="keras", prefix="model.second", format="ckpt")
    (state,) = states_by_note(done).values()
    assert_state(state, model.second, model.adam, "keras")
    spec = rl.load("old.pt")["model.first"].spec
    tensors = model.state_dict() | {"first.h0": torch.ones(7)}  # the RNN is undecided with it
    torch.save({"model": tensors, "optimizer": model.adam.state_dict()}, "old.pt")
    options = {"spec": spec, "prefix": "model.first", "dtype": "f2", "ignore": ["*.h0"]}
    done = rl.convert_file("old.pt", "b.npz", to="keras", **options)
    (state,) = states_by_note(done).values()
    assert_state(state, model.first, model.adam, "keras")


def test_the_states_of_layers_that_are_joined_are_named(model):
    lstm = torch.nn.ModuleDict({f"l_{k}": torch.nn.LSTM(H, H) for k in range(2)})
    adam = torch.optim.Adam(lstm.named_parameters(), amsgrad=True)
    for _ in range(2):
        lstm["l_1"](lstm["l_0"](torch.randn(4, 2, H))[0])[0].pow(3).sum().backward()
        adam.step()
    torch.save({"model": lstm.state_dict(), "optimizer": adam.state_dict()}, "two.pt")
    names = ["model.l_0", "model.l_1"]
    states = states_by_note(rl.convert_file("two.pt", "new.npz", to="keras", stack=[names]))
    assert [*states] == names
    for name, state in states.items():
        assert_state(state, lstm[name[6:]], adam, "keras")


def test_into_a_model(model):
    rl.save("into.keras", {"a": rl.load("old.pt")["model.first"].to("keras")})
    done = rl.convert_file("old.pt", "new.keras", into="into.keras", map={"model.first": "a"})
    states = states_by_note(done)
    assert_state(states["model.first"], model.first, model.adam, "keras")


def test_a_file_without_an_optimizer_has_no_note(model):
    torch.save(model.state_dict(), "plain.pt")
    assert not rl.convert_file("plain.pt", "new.npz", to="keras").notes
    state = rl.load("old.pt")["model.first"].optimizer
    assert np.isfinite(state.slots["exp_avg"]["weight_ih_l0"]).all()
