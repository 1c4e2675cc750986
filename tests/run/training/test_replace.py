"""rnnlayout.torch.replace: a model with our layers is the model of torch."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import rnnlayout as rl
import rnnlayout.torch as rlt

T, N, I = 5, 3, 4  # noqa: E741
# 30 steps of sums of fewer than 100 products of size 1, in float64
CLOSE = {"rtol": 0, "atol": 30 * 100 * 2.0**-53}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(I, 5)
        self.lstm = nn.LSTM(5, 6, 2, batch_first=True, dropout=0.3, bidirectional=True)
        self.rest = nn.ModuleList([nn.GRU(12, 12, batch_first=True)])
        self.shared = self.rest[0]
        self.cell = nn.LSTMCell(12, 3)
        self.last = nn.RNN(3, 2, nonlinearity="relu", bias=False)

    def forward(self, x):
        y, _ = self.lstm(self.embed(x))
        y, h = self.shared(self.rest[0](y)[0])
        h, c = self.cell(h[0])
        return y, *self.last(torch.stack([h, c]))


def models():
    torch.manual_seed(0)
    model = Model().double()
    replaced = copy.deepcopy(model)
    assert rlt.replace(replaced) == ["lstm", "shared", "last", "rest.0"]
    return model, replaced


def test_outputs_and_gradients_are_those_of_the_model():
    model, replaced = models()
    assert replaced.rest[0] is replaced.shared
    assert not any(isinstance(module, nn.RNNBase) for module in replaced.modules())
    for is_training in (True, False):
        results = []
        for one in (model.train(is_training), replaced.train(is_training)):
            one.zero_grad()
            torch.manual_seed(1)
            x = torch.linspace(-1, 1, N * T * I, dtype=torch.float64).view(N, T, I).requires_grad_()
            outputs = one(x)
            sum(tensor.sin().sum() for tensor in outputs).backward()
            results.append([*outputs, x.grad, one.embed.weight.grad])
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b, **CLOSE)
        gru = replaced.shared
        weights = rl.unpack(gru.weight_space.grad, gru.spec, to="torch", kind="gradient")
        for name, parameter in model.shared.named_parameters():
            torch.testing.assert_close(torch.from_numpy(weights[name]), parameter.grad, **CLOSE)


def test_checkpoints_fit_both_models():
    model, replaced = models()
    assert list(replaced.state_dict()) == list(model.state_dict())
    torch.manual_seed(2)
    other = Model().double()
    for wanted in (other, Model()):  # in another dtype too
        assert (
            str(replaced.load_state_dict(wanted.state_dict())) == "<All keys matched successfully>"
        )
        model.load_state_dict(wanted.state_dict())
        for name, tensor in replaced.state_dict().items():
            assert torch.equal(tensor, model.state_dict()[name]), name
    assert replaced.lstm.weight_space.dtype == torch.float64
    replaced.load_state_dict(Model().state_dict(), assign=True)
    assert replaced.lstm.weight_space.dtype == torch.float32
    assert isinstance(replaced.lstm.weight_space, nn.Parameter)
    kept = replaced.state_dict(keep_vars=True)["lstm.weight_hh_l1"]
    kept.sum().backward()
    assert replaced.lstm.weight_space.grad.sum() == kept.numel()


def test_a_checkpoint_that_does_not_fit_is_refused_in_the_words_of_torch():
    model, replaced = models()
    checkpoint = model.state_dict()
    before = checkpoint["rest.0.weight_ih_l0"].clone()
    del checkpoint["rest.0.weight_ih_l0"]
    del checkpoint["shared.weight_ih_l0"]
    checkpoint["rest.0.weight"] = torch.ones(1)
    checkpoint["lstm.bias_ih_l1"] = torch.ones(3)
    texts = []
    for one in (model, replaced):
        with pytest.raises(RuntimeError) as error:
            one.load_state_dict(checkpoint)
        texts.append(str(error.value))
    assert texts[0] == texts[1]
    del checkpoint["lstm.bias_ih_l1"]
    checkpoint = {name: torch.zeros_like(tensor) for name, tensor in checkpoint.items()}
    found, wanted = (one.load_state_dict(checkpoint, strict=False) for one in (replaced, model))
    assert found == wanted
    assert torch.equal(replaced.state_dict()["rest.0.weight_ih_l0"], before)
    assert not replaced.state_dict()["rest.0.weight_hh_l0"].any()


def test_packed_sequences_states_and_training_mode():
    torch.manual_seed(0)
    model = nn.ModuleDict({"lstm": nn.LSTM(I, 3, batch_first=True)}).eval()
    replaced = copy.deepcopy(model)
    rlt.replace(replaced)
    assert not replaced["lstm"].training and replaced["lstm"].batch_first
    replaced["lstm"].flatten_parameters()
    packed = pack_sequence([torch.randn(n, I) for n in (2, T, 1)], enforce_sorted=False)
    (y, last), (wanted, wanted_last) = (one["lstm"](packed) for one in (replaced, model))
    for a, b in zip((y.data, *last), (wanted.data, *wanted_last), strict=True):
        torch.testing.assert_close(a, b)
    assert replaced["lstm"].hidden_size == 3


def frozen(model):
    model.lstm.weight_hh_l0.requires_grad_(False)


def tied(model):
    model.rest.append(nn.GRU(12, 12))
    model.rest[1].weight_ih_l0 = model.rest[0].weight_ih_l0


def normed(model):
    nn.utils.parametrizations.weight_norm(model.last, "weight_hh_l0")


def hooked(model):
    model.lstm.register_forward_hook(lambda module, x, y: None)


def moved(model):
    model.last.to("meta")


@pytest.mark.parametrize(
    "change, text",
    [
        (frozen, r"lstm\.weight_hh_l0 is frozen and other parameters of lstm are not"),
        (tied, r"shared\.weight_ih_l0 is a parameter of another module too"),
        (normed, r"last has parametrizations, weight_hh_l0: remove the weight norm"),
        (hooked, r"LSTM has the forward hook"),
        (moved, r"last\.weight_ih_l0 is on meta"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_cannot_be_replaced_is_named_and_nothing_changes(change, text):
    model = Model()
    change(model)
    before = dict(model.named_modules())
    with pytest.raises(rl.LayoutError, match=text):
        rlt.replace(model)
    assert dict(model.named_modules()) == before


def test_frozen_rnns_stay_frozen_and_an_rnn_alone_is_refused():
    model = Model().requires_grad_(False)
    rlt.replace(model)
    assert not any(parameter.requires_grad for parameter in model.parameters())
    with pytest.raises(rl.LayoutError, match=r"itself an LSTM: use rnnlayout\.torch\.RNN\(model\)"):
        rlt.replace(nn.LSTM(2, 3))
    assert rlt.replace(nn.Linear(2, 3)) == []
