"""The states of torch's optimizers in checkpoints: each slot of each RNN, bit for bit; and states
whose parameter is not certain, which are not read but named."""

import numpy as np
import pytest
import torch

import rnnlayout as rl

I, H = 3, 5  # noqa: E741
OPTIM = torch.optim


class Model(torch.nn.Module):
    """With buffers, which in the usual width have the shape of a bias of an RNN."""

    def __init__(self, tied=False, width=4 * H):
        super().__init__()
        self.width, self.norm = width, torch.nn.BatchNorm1d(width)
        self.embed = torch.nn.Embedding(width, I)
        self.first = torch.nn.LSTM(I, H, 2, bidirectional=True)
        self.second = torch.nn.GRU(2 * H, H + 1)
        self.head = torch.nn.Linear(H + 1, width)
        if tied:
            self.also = torch.nn.Embedding(width, I)
            self.also.weight = self.embed.weight

    def forward(self, tokens):
        y = self.head(self.second(self.first(self.embed(tokens))[0])[0])
        return self.norm(y.flatten(0, 1))


def train(model, optimizer, steps=3):
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        optimizer.zero_grad()
        tokens = torch.randint(model.width, (4, 2), generator=generator)
        (model(tokens) ** 3).sum().backward()
        optimizer.step()
    return optimizer


def load(folder, contents):
    torch.save(contents, folder / "a.pt")
    return rl.load(folder / "a.pt")


def checkpoint(folder, model, optimizer):
    return load(folder, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})


def assert_states(weights, rnn, optimizer, slots):
    """Compare all slots of an RNN with the optimizer's own, bit for bit."""
    assert {name: slot.kind for name, slot in weights.optimizer.slots.items()} == slots
    parameters = dict(rnn.named_parameters())
    for name, slot in weights.optimizer.slots.items():
        assert (slot.spec, slot.layout, [*slot]) == (weights.spec, weights.layout, [*weights])
        for tensor, array in slot.items():
            state = optimizer.state[parameters[tensor]][name]
            assert array.tobytes() == state.numpy().tobytes() and array.any(), (name, tensor)


def assert_none(found, *words, names=("model.first",)):
    for name in names:
        assert found[name].optimizer is None
        notes = [note for note in found.notes if note.startswith(f"{name}: no optimizer state")]
        assert len(notes) == 1 and all(word in notes[0] for word in words), notes


ADAM = {"exp_avg": "gradient", "exp_avg_sq": "squared_gradient"}
OPTIMIZERS = {
    "Adam": (OPTIM.Adam, {}, ADAM),
    "amsgrad": (OPTIM.AdamW, {"amsgrad": True}, ADAM | {"max_exp_avg_sq": "squared_gradient"}),
    "SGD": (OPTIM.SGD, {"momentum": 0.9}, {"momentum_buffer": "gradient"}),
    "RMSprop": (
        OPTIM.RMSprop,
        {"momentum": 0.9, "centered": True},
        {"momentum_buffer": "gradient", "square_avg": "squared_gradient", "grad_avg": "gradient"},
    ),
    "Adagrad": (OPTIM.Adagrad, {}, {"sum": "squared_gradient"}),
    "Adadelta": (
        OPTIM.Adadelta, {}, {"square_avg": "squared_gradient", "acc_delta": "squared_gradient"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_slot_is_the_optimizers_own(name, tmp_path):
    kind, options, slots = OPTIMIZERS[name]
    torch.manual_seed(0)
    model = Model(tied=True)
    optimizer = train(model, kind(model.parameters(), lr=0.01, **options))
    found = checkpoint(tmp_path, model, optimizer)
    for entry, rnn in (("model.first", model.first), ("model.second", model.second)):
        assert_states(found[entry], rnn, optimizer, slots)
        state = found[entry].optimizer
        assert state.step == (None if name == "SGD" else 3)
        assert state.hyperparameters["lr"] == 0.01 and "params" not in state.hyperparameters
        assert {k: state.hyperparameters[k] for k in options} == options
        assert (state.path, state.notes) == ("optimizer", ())
    assert not found.notes


def test_a_slot_of_an_unknown_kind_is_named(tmp_path):
    model = Model()
    found = checkpoint(tmp_path, model, train(model, OPTIM.Adamax(model.parameters())))
    state = found["model.first"].optimizer
    assert [*state.slots] == ["exp_avg"]
    assert state.notes == ("optimizer: not read, because their kind is not known: 'exp_inf'",)


def groups_by_decay(model):
    named = dict(model.named_parameters())
    return [
        {"params": [p for n, p in named.items() if ("bias" in n) == is_bias], "weight_decay": decay}
        for is_bias, decay in ((False, 0.0), (True, 0.5))
    ]


def test_groups_that_differ_in_one_hyperparameter(tmp_path):
    model = Model(width=7)
    optimizer = train(model, OPTIM.AdamW(groups_by_decay(model)))
    found = checkpoint(tmp_path, model, optimizer)
    assert_states(found["model.first"], model.first, optimizer, ADAM)
    state = found["model.first"].optimizer
    assert "weight_decay" not in state.hyperparameters and state.hyperparameters["lr"] == 1e-3
    assert state.notes == ("optimizer: weight_decay is not the same for all tensors",)


class Twins(torch.nn.Module):
    width = I

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.LSTM(I, H), torch.nn.LSTM(I, H)

    def forward(self, tokens):
        x = torch.nn.functional.one_hot(tokens, I).float()
        return self.first(x)[0] * self.second(x)[0]


@pytest.mark.parametrize("named", [False, True])
def test_equal_rnns_in_groups_of_unknown_order(named, tmp_path):
    """The shapes do not tell which of the RNNs is the first group's; names do."""
    model = Twins()
    parameters = [
        {"params": [*(rnn.named_parameters(name) if named else rnn.parameters())]}
        for name, rnn in (("second", model.second), ("first", model.first))
    ]
    optimizer = train(model, OPTIM.Adam(parameters))
    found = checkpoint(tmp_path, model, optimizer)
    if named:
        assert_states(found["model.first"], model.first, optimizer, ADAM)
        assert_states(found["model.second"], model.second, optimizer, ADAM)
    else:
        names = ("model.first", "model.second")
        assert_none(found, "several groups, in an unknown order", names=names)


class Stacks(Twins):
    """An RNN of two layers, whose layers have the shapes of the other RNN."""

    width = H

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.LSTM(H, H, 2), torch.nn.LSTM(H, H)

    def forward(self, tokens):
        x = torch.nn.functional.one_hot(tokens, H).float()
        return self.first(x)[0] * self.second(x)[0]


@pytest.mark.parametrize("kind", [Twins, Stacks])
@pytest.mark.parametrize("groups", ["one", "biases"])
def test_an_order_that_only_names_prove(kind, groups, tmp_path):
    """In another order the states are exchanged without a trace, so a note names the doubt."""
    model = kind()
    named = dict(model.named_parameters())
    if groups == "biases":
        named_groups = [
            {"params": [(n, p) for n, p in named.items() if ("bias" in n) == is_bias]}
            for is_bias in (False, True)
        ]
    else:
        named_groups = [{"params": [*named.items()]}]
    plain_groups = [{"params": [p for _, p in group["params"]]} for group in named_groups]
    found = checkpoint(tmp_path, model, train(model, OPTIM.Adam(plain_groups)))
    for name, other in (("first", "second"), ("second", "first")):
        (note,) = found[f"model.{name}"].optimizer.notes
        assert f"'model.{name}', 'model.{other}' have the same shapes" in note
        assert "pass model.named_parameters()" in note
    optimizer = train(model, OPTIM.Adam(named_groups))
    found = checkpoint(tmp_path, model, optimizer)
    for name in ("first", "second"):
        assert not found[f"model.{name}"].optimizer.notes
        assert_states(found[f"model.{name}"], getattr(model, name), optimizer, ADAM)


def test_exchanged_states_have_the_note(tmp_path):
    model = Twins()
    optimizer = train(model, OPTIM.Adam([*model.second.parameters(), *model.first.parameters()]))
    found = checkpoint(tmp_path, model, optimizer)
    with pytest.raises(AssertionError):
        assert_states(found["model.first"], model.first, optimizer, ADAM)
    assert "their states are exchanged" in found["model.first"].optimizer.notes[0]


def test_names_with_other_shapes_than_the_model(tmp_path):
    model = Twins()
    optimizer = train(model, OPTIM.Adam(model.named_parameters())).state_dict()
    names = optimizer["param_groups"][0]["param_names"]
    names[0], names[1] = names[1], names[0]
    found = load(tmp_path, {"model": model.state_dict(), "optimizer": optimizer})
    assert_none(
        found, "names 'model.first.weight_hh_l0', 'model.first.weight_ih_l0'", "with other shapes"
    )


def test_another_order_of_modules_with_equal_shapes(tmp_path):
    model = Model()
    model.third = torch.nn.GRU(H + 1, 2 * H)  # weight_hh: (30, 10); of second: (18, 6)
    model.fourth = torch.nn.GRU(H + 1, 2 * H)
    order = [model.fourth, model.third, model.second, model.first, model.head, model.norm]
    parameters = [p for module in order for p in module.parameters()]
    optimizer = OPTIM.Adam(parameters)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    found = checkpoint(tmp_path, model, optimizer)
    assert_none(found, "in another order", names=("model.third", "model.fourth"))
    assert_states(found["model.second"], model.second, optimizer, ADAM)


def test_frozen_parameters(tmp_path):
    """Passed to the optimizer they have no state; left out they leave a choice, or none."""
    model = Model(width=7)
    model.embed.requires_grad_(False)
    optimizer = train(model, OPTIM.Adam(p for p in model.parameters() if p.requires_grad))
    assert_states(
        checkpoint(tmp_path, model, optimizer)["model.first"], model.first, optimizer, ADAM
    )

    model.first.weight_hh_l0.requires_grad_(False)
    optimizer = train(model, OPTIM.Adam(p for p in model.parameters() if p.requires_grad))
    found = checkpoint(tmp_path, model, optimizer)
    assert_none(found, "parameters of shape (20, 5): 3 in optimizer, 4 in the model")
    assert_states(found["model.second"], model.second, optimizer, ADAM)

    found = checkpoint(tmp_path, model, train(model, OPTIM.Adam(model.parameters())))
    assert_none(found, "optimizer has no state for 'model.first.weight_hh_l0'")


def test_parts_of_a_weight(tmp_path):
    model = Model()
    torch.nn.utils.parametrizations.weight_norm(model.first, "weight_hh_l0")
    found = checkpoint(tmp_path, model, train(model, OPTIM.Adam(model.parameters())))
    assert_none(found, "computed from other tensors")


def test_several_models_and_optimizers(tmp_path):
    model, other = Model(), Twins()
    optimizer, other_optimizer = (train(m, OPTIM.Adam(m.parameters())) for m in (model, other))
    found = load(tmp_path, {
        "model": model.state_dict(), "other": other.state_dict(),
        "optimizer_states": [o.state_dict() for o in (optimizer, other_optimizer)],
    })  # fmt: skip
    assert_states(found["model.first"], model.first, optimizer, ADAM)
    assert_states(found["other.second"], other.second, other_optimizer, ADAM)
    assert found["other.second"].optimizer.path == "optimizer_states.1"

    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    found = load(tmp_path, states | {"average": Model().state_dict()})
    assert_none(found, "fits several models: 'model', 'average'")
    found = load(
        tmp_path, states | {"again": train(model, OPTIM.Adam(model.parameters())).state_dict()}
    )
    assert_none(found, "several optimizers have states for its tensors: 'optimizer', 'again'")
    both = OPTIM.Adam([*other.parameters(), *model.parameters()])
    train(model, both)
    found = load(tmp_path, {
        "other": other.state_dict(), "model": model.state_dict(), "optimizer": both.state_dict(),
    })  # fmt: skip
    assert_states(found["model.first"], model.first, both, ADAM)
    assert_none(
        found, "optimizer has no state for 'other.first.weight_ih_l0'", names=["other.first"]
    )


def test_an_optimizer_without_states(tmp_path):
    model = Model()
    for optimizer in (OPTIM.SGD(model.parameters()), OPTIM.Adam(model.parameters())):
        found = checkpoint(tmp_path, model, optimizer)
        assert_none(found, "optimizer has no states with the shape of a parameter")


@pytest.mark.parametrize("sin", ["index", "group", "state", "shape", "many"])
def test_malformed_states(sin, tmp_path):
    model = Twins()
    state = train(model, OPTIM.Adam(model.parameters())).state_dict()
    contents = {"model": model.state_dict(), "optimizer": state}
    words = "optimizer is malformed"
    if sin == "index":
        state["param_groups"][0]["params"][0] = "0"
    elif sin == "group":
        state["param_groups"] *= 2
    elif sin == "state":
        state["state"][1] = state["state"][0]
    elif sin == "shape":
        state["state"][0]["exp_avg"] = torch.ones(2, 2)
        state["state"][0]["exp_avg_sq"] = torch.ones(2, 2)
        words = "parameters of shape (20, 3): 1 in optimizer, 2 in the model"
    else:
        contents |= {f"optimizer{k}": {**state} for k in range(16)}
        words = "the file has 17 optimizers"
    assert_none(load(tmp_path, contents), words)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_converted_moments_are_those_of_autograd(kind, tmp_path):
    """The moments of half-trained weights, converted to Keras's layout, are computed in float64 of
    the gradients of a loss that is a function of Keras's own tensors."""
    torch.manual_seed(0)
    rnn, steps = getattr(torch.nn, kind)(I, H), 4
    optimizer = OPTIM.Adam(rnn.parameters(), betas=(0.8, 0.9))
    moments = {}
    for _ in range(steps):
        x = torch.randn(6, 2, I)
        keras = {
            name: torch.tensor(array.astype("f8"), requires_grad=True)
            for name, array in rl.convert(rnn, to="keras").items()
        }
        _keras_outputs(kind, keras, x.double()).pow(3).sum().backward()
        for name, tensor in keras.items():
            m, v = moments.get(name, (0, 0))
            moments[name] = (0.8 * m + 0.2 * tensor.grad, 0.9 * v + 0.1 * tensor.grad**2)
        optimizer.zero_grad()
        rnn(x)[0].pow(3).sum().backward()
        optimizer.step()
    state = load(tmp_path, {"model": rnn.state_dict(), "o": optimizer.state_dict()})[
        "model"
    ].optimizer
    slots = state.to("keras").slots
    assert state.step == steps
    for name, arrays in moments.items():
        for slot, array in zip(("exp_avg", "exp_avg_sq"), arrays, strict=True):
            # float32 rounds each of about 200 sums of products in each of 6 steps; the bound is
            # for terms up to the largest gradient
            atol = 200 * 6 * 2.0**-24 * np.abs(array.numpy()).max()
            np.testing.assert_allclose(slots[slot][name], array.numpy(), rtol=0, atol=atol)


def _keras_outputs(kind, tensors, x):
    """Return the outputs of an LSTM or GRU of Keras, by its definition."""
    kernel, recurrent, bias = tensors["kernel"], tensors["recurrent_kernel"], tensors["bias"]
    h = c = torch.zeros(x.shape[1], H, dtype=torch.float64)
    outputs = []
    for x_t in x:
        if kind == "LSTM":
            i, f, g, o = (x_t @ kernel + h @ recurrent + bias).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        else:
            a, b = x_t @ kernel + bias[0], h @ recurrent + bias[1]
            (z, r, n), (rz, rr, rn) = a.chunk(3, -1), b.chunk(3, -1)
            z, r = (z + rz).sigmoid(), (r + rr).sigmoid()
            h = z * h + (1 - z) * (n + r * rn).tanh()
        outputs.append(h)
    return torch.stack(outputs)
