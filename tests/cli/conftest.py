"""The command line, run in the process of the tests, in a folder with files."""

import shlex

import numpy as np
import pytest
from cli.files import GRU, LSTM, X
from dialects import arguments_of_python
from oracles.some import prefixed

import rnnlayout as rl
from rnnlayout._cli import main as _cli


@pytest.fixture
def rnnlayout(capsys):
    """Return a function that runs a command, its words or a line of a shell: exit code, stdout,
    stderr. No command names an argument as Python does."""

    def run(*arguments):
        words = shlex.split(arguments[0]) if len(arguments) == 1 else [*map(str, arguments)]
        try:
            code = _cli.main(words)
        except SystemExit as end:
            code = end.code
        out, err = capsys.readouterr()
        assert "--completion" in words or not arguments_of_python(out + err)
        return code, out, err

    return run


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder: an LSTM in lstm.npz, in flat.npy, and in enc.npz below enc, beside two
    other arrays; two GRUs in two.npz; x.npy, and what the LSTM makes of it, y.npy."""
    monkeypatch.chdir(tmp_path)
    np.savez("lstm.npz", **LSTM)
    np.savez("enc.npz", **prefixed("enc", LSTM), embedding=np.arange(5), out=np.ones((2, 2), "f2"))
    np.savez("two.npz", **prefixed("a", GRU), **prefixed("b", GRU))
    np.save("flat.npy", rl.pack(LSTM))
    np.save("x.npy", X)
    np.save("y.npy", rl.forward(X, LSTM)[0])
    return tmp_path
