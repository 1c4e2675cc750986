"""Modules of torch around an RNN."""

import torch


class Net(torch.nn.Module):
    """An RNN in a module of the user's own, behind another layer."""

    def __init__(self, rnn):
        super().__init__()
        self.before = torch.nn.Linear(rnn.input_size, rnn.input_size)
        self.enc = rnn

    def forward(self, x):
        return self.enc(self.before(x))[0]


# Where an RNN may be in a model: itself, "0" or "enc".
NESTED = {"alone": lambda rnn: rnn, "in a list": torch.nn.Sequential, "in a module": Net}
