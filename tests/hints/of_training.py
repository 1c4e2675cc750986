"""Cases of hints of rnnlayout.torch, written as those in of_models.py."""

import copy

import keras
import torch
from hints.following import asked, evaluated
from torch import nn

import rnnlayout
import rnnlayout as rl
import rnnlayout.torch as rlt

LAYER = rlt.RNN(nn.GRU(5, 7))
PACKED = nn.utils.rnn.pack_sequence([torch.ones(4, 5)])


def settings_that_torch_lacks():
    source = keras.layers.LSTM(7, return_sequences=True, go_backwards=True, dropout=0.5)
    source.build((None, 4, 5))
    text = yield lambda: rlt.RNN(source)
    code = text.partition("To train without that: ")[2]
    exec(code, {"source": source, "rl": rl, "rnnlayout": rnnlayout})


lengths_of_a_packed_sequence = asked(LAYER, PACKED, lengths=[4])
views_in_another_order = evaluated(
    lambda: LAYER.tensors("keras"), "copy them with (.*)", layer=LAYER
)
an_x_of_another_dtype = evaluated(
    lambda: LAYER(torch.ones(4, 3, 5).double()), "call (.*)",
    use=LAYER, x=torch.ones(4, 3, 5).double(), torch=torch,
)  # fmt: skip


def tensors_on_a_gpu():
    def call():
        with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):  # no GPU is needed
            LAYER(torch.ones(4, 3, 5, device="cuda"))

    state = yield from evaluated(call, r"weights of (.*)", use=dict, layer=LAYER)()
    assert state is None


def models_to_replace():
    model = nn.GRU(5, 7)
    yield from evaluated(lambda: rlt.replace(model), "use (.*)", model=model, rnnlayout=rnnlayout)()
    whole = nn.Sequential(model)
    yield lambda: rlt.replace(copy.deepcopy(whole).to("meta"))
    whole.cpu()
    assert rlt.replace(whole) == ["0"]
