"""What torch.onnx.export writes by default since 2.9: weights in a second file, nodes named by
number, and a record of the modules that they come from."""

import re

import numpy as np
import pytest
import torch
from files.onnx.models import export, node_of, run_file, write
from files.outputs import assert_computes
from marks import pairwise
from oracles.frameworks import (
    H,
    I,
    N,
    T,
    inputs,
    normal,
    onnx_model,
    onnx_tensors,
    seeded,
    torch_module,
)
from oracles.reference import GATES, Run

import rnnlayout as rl
from rnnlayout._cli import main as _cli
from rnnlayout._files.formats.onnx import write as writer

LSTM = rl.Spec("lstm", I, H)
# The exporters: the default one; the older one, which folds constants if it may.
BOTH = [{}, {"dynamo": False}]
ALL = [*BOTH, {"dynamo": False, "do_constant_folding": False}]


class Inside(torch.nn.Module):
    """An RNN as self.enc.rnn."""

    def __init__(self, rnn):
        super().__init__()
        self.enc = torch.nn.ModuleDict({"rnn": rnn})

    def forward(self, x, *states):
        y, last = self.enc["rnn"](x, *states)
        return (y, *last) if isinstance(last, tuple) else (y, last)


@pytest.mark.parametrize(
    ("cell", "layers", "both", "batch_first", "states", "nested", "options"),
    pairwise(GATES, [1, 2], [False, True], [False, True], [False, True], [False, True], ALL,
             fits=lambda cell, *more: cell[:3] != "rnn" or more[-1]),
)  # fmt: skip
def test_torch_exports(cell, layers, both, batch_first, states, nested, options, tmp_path):
    """Each model of the default exporter was refused: its weights are in another file."""
    spec = rl.Spec(cell, I, H, layers, both)
    module = torch_module(spec, seeded("exported", spec))
    module.batch_first = batch_first
    x, h0, c0 = inputs(seeded("inputs", spec), spec)
    if not states:
        h0 = c0 = None
    first = [one for one in (h0, c0) if one is not None]
    given = [x.transpose(1, 0, 2).copy() if batch_first else x, *first]
    tensors = [torch.from_numpy(one) for one in given]
    arguments = [tensors[0], tuple(tensors[1:])] if c0 is not None else tensors
    whole = Inside(module) if nested else module
    path = export(whole, tmp_path / "m.onnx", *arguments, **options)
    assert (tmp_path / "m.onnx.data").exists() == (not options)

    found = rl.load(path)
    assert not found.notes and all(not one.config for one in found.values())
    name = "enc.rnn" if nested else cell
    if not options:
        assert [*found] == ([name] if layers == 1 else [f"{name}_0", f"{name}_1"])
    read = rl.stack(found.values())
    assert read.spec == spec and read.pack().tobytes() == rl.pack(module).tobytes()

    y, *last = run_file(path, *given)
    assert_computes(read, Run(y.transpose(1, 0, 2) if batch_first else y, *last), x, h0, c0)


@pytest.mark.parametrize(("text", "name"), [
    ("['', 'a', 'a.b', 'lstm_1']", "a.b"), ("['', 'lstm']", "lstm"), ("['', 'a/b', 'lstm']", "a/b"),
    ("['lstm']", "node"), ("[]", "node"), ("", "node"), ("['a', __import__('os')]", "node"),
    ("['a', 'b'", "node"), ("['a','b']", "node"), ("['a\\x00', 'b']", "node"),
    ("[" * 100_000 + "]" * 100_000, "node"), ("['" + "a" * 100_000 + "', 'b']", "a" * 100_000),
])  # fmt: skip
def test_the_record_of_modules_is_not_evaluated(text, name, tmp_path):
    model = onnx_model(onnx_tensors(LSTM, seeded("recorded")), LSTM)
    node_of(model.graph).name = "node"
    node_of(model.graph).metadata_props.add(key="pkg.torch.onnx.name_scopes", value=text)
    assert [*rl.load(write(model, tmp_path / "m.onnx"))] == [name]


# ------------------------------------------------------------------------------- what is not a node


class Decomposed(torch.nn.Module):
    def __init__(self, rnn):
        super().__init__()
        self.enc, self.dec = rnn, torch.nn.GRU(I, H)

    def forward(self, x):
        return self.enc(x)[0], self.dec(x)[0]


def test_an_rnn_that_the_exporter_decomposed_is_named(tmp_path):
    """It was left out without a word."""
    rnn, x = torch.nn.RNN(I, H), torch.zeros(T, N, I)
    found = rl.load(export(Decomposed(rnn), tmp_path / "both.onnx", x))
    assert [*found] == ["dec"]
    (note,) = found.notes
    assert "module 'enc' (nn.RNN): the exporter replaced the RNN by MatMul" in note
    with pytest.raises(rl.FileError, match=r"the model itself \(nn.RNN\).*dynamo=False"):
        rl.load(export(rnn, tmp_path / "alone.onnx", x))


def test_a_model_without_rnns(tmp_path):
    model = onnx_model(onnx_tensors(LSTM, seeded("none")), LSTM)
    node_of(model.graph).op_type, model.producer_name = "MatMul", "pytorch"
    with pytest.raises(rl.FileError, match="none of its nodes is an LSTM, GRU or RNN: export it "):
        rl.load(write(model, tmp_path / "m.onnx"))


# ------------------------------------------------------------------- other weights in such a model


class Two(torch.nn.Module):
    """An LSTM of two layers beside a GRU, so that names matter."""

    def __init__(self, label):
        super().__init__()
        self.enc = torch_module(rl.Spec("lstm", I, H, 2, True), seeded(label, "enc"))
        gru = torch_module(rl.Spec("gru", 2 * H, H), seeded(label, "gru"))
        self.towers = torch.nn.ModuleList([gru])

    def forward(self, x):
        return self.towers[0](self.enc(x)[0])[0]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The model Two("old"), as each exporter writes it."""
    folder = tmp_path_factory.mktemp("two")
    return [
        export(Two("old"), folder / f"{k}.onnx", torch.zeros(T, N, I), **options)
        for k, options in enumerate(BOTH)
    ]


@pytest.mark.parametrize("exporter, gru, large", [
    (0, "towers.0", False), (0, "towers.0", True), (1, "/towers.0/GRU", False),
])  # fmt: skip
@pytest.mark.parametrize("renamed", [False, True])
def test_new_weights_for_each_layer_of_an_exported_stack(
    two, exporter, gru, large, renamed, tmp_path, monkeypatch, capsys
):
    """Also by the advice for other names. large: beyond 2 GB, lowered here."""
    monkeypatch.chdir(tmp_path)
    if large:
        model, data = (
            two[0].with_suffix(suffix).stat().st_size for suffix in (".onnx", ".onnx.data")
        )
        monkeypatch.setattr(writer, "LARGEST", model + data // 2)
    x, new = normal(seeded("x"), T, N, I), Two("new")
    prefix = "m." if renamed else ""
    torch.save({prefix + name: w for name, w in new.state_dict().items()}, "new.pt")
    command = ["convert", "new.pt", "new.onnx", "--into", str(two[exporter])]
    if renamed:
        assert _cli.main(command) == 3
        told = re.search(r"pair them with (--map \S+)", capsys.readouterr().err)[1]
        assert told == "--map m.enc=enc"
        command += [*told.split(), "--map", f"m.towers.0={gru}"]
    assert _cli.main(command) == 0
    assert (tmp_path / "new.onnx.data").exists() == large
    (y,) = run_file("new.onnx", x)
    with torch.no_grad():
        expected, before = (one(torch.from_numpy(x)).numpy() for one in (new, Two("old")))
    # three layers, each of T steps of sums of at most 3 H products of numbers below 1, rounded by
    # half a unit each: below 3 T 3 H units in all
    assert np.abs(y - expected).max() < 9 * T * H * np.finfo("f4").eps
    assert np.abs(y - before).max() > 0.01
