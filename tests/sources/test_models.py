"""A torch module that contains one RNN, or one that a prefix chooses, in the place of the RNN."""

import pytest
import torch
from oracles.frameworks import seeded, torch_module

import rnnlayout as rl

N, T, I, H = 2, 3, 5, 4  # noqa: E741
SPEC = rl.Spec("gru", I, H, 2, bidirectional=True)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch_module(SPEC, seeded("encoder"))
        self.encoder.batch_first = True
        self.head = torch.nn.Linear(2 * H, 2)

    def forward(self, x):
        return self.head(self.encoder(x)[0])


class Two(Model):
    def __init__(self):
        super().__init__()
        self.cell = torch_module(rl.Spec("lstm", I, H), seeded("cell"))
        self.same = self.encoder

    def forward(self, x):
        return self.encoder(x)[0], self.same(x)[0], self.cell(x)[0]


WRAPPED = {
    "itself": lambda model: model,
    "Sequential": torch.nn.Sequential,
    "DataParallel": torch.nn.DataParallel,
    "compiled": torch.compile,
    "scripted": torch.jit.script,
    "compiled inside DataParallel": lambda model: torch.nn.DataParallel(torch.compile(model)),
}
scripts = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@scripts
@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_a_model_with_one_rnn(wrap):
    """And an RNN that is wrapped itself."""
    model = Model()
    wrapped = wrap(model)
    weights = rl.Weights(wrapped)
    assert weights.spec == SPEC and weights.batch_first is True
    assert (weights.pack() == rl.pack(model.encoder)).all()
    other = torch_module(SPEC, seeded("other"))
    assert rl.assign(wrapped, rl.Weights(other)) is wrapped
    assert (rl.pack(wrapped) == rl.pack(wrap(other))).all()
    wrong = "no RNN in this Sequential" if wrap is torch.nn.Sequential else "omit prefix="
    with pytest.raises(rl.LayoutError, match=wrong):
        rl.pack(wrap(other), prefix="a")


@scripts
def test_a_traced_model_is_not_a_target():
    model = Model()
    traced = torch.jit.trace(model, torch.zeros(N, T, I))
    with pytest.raises(rl.LayoutError, match=r"a traced RNN .* trace it again"):
        rl.assign(traced, model)


@pytest.mark.parametrize("wrap", [lambda model: model, torch.nn.DataParallel, torch.jit.script])
@scripts
def test_a_prefix_chooses_among_several(wrap):
    model = Two()
    wrapped = wrap(model)
    # TorchScript has no object for a module that has two names
    with pytest.raises(
        rl.LayoutError, match=r"contains [23] RNNs: 'encoder' \(.*\), 'cell' \(.*prefix='encoder'"
    ):
        rl.pack(wrapped)
    assert (rl.pack(wrapped, prefix="cell") == rl.pack(model.cell)).all()
    assert (rl.pack(wrapped, prefix="encoder.") == rl.pack(model.encoder)).all()
    with pytest.raises(rl.LayoutError, match=r"prefix 'head'; with prefix= these would work: 'enc"):
        rl.pack(wrapped, prefix="head")


def test_a_model_without_an_rnn():
    class LSTM(torch.nn.Module):
        """A user's own class of the same name."""

        def forward(self, x):
            return 2 * x

    for model in (torch.nn.Linear(2, 3), torch.jit.script(LSTM())):
        with pytest.raises(rl.LayoutError, match=r" is not an nn.LSTM, .* and contains none"):
            rl.pack(model)
