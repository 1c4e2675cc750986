"""Chainer and MXNet, whose development has ended: their recorded answers are what their weights
compute after a conversion. tests/data/record_chainer_mxnet.py made the records."""

import itertools

import numpy as np
import pytest
from commands import TESTS
from oracles.reference import Run, distance, forward, from_cudnn, from_onnx

import rnnlayout as rl

ANSWERS_FOR = ("mxnet-gluon", "chainer-nstep", "chainer-links")

with np.load(TESTS / "data" / "chainer-mxnet.npz") as file:
    RECORDS = {
        tuple(case): {name.split()[4]: file[name] for name in names}
        for case, names in itertools.groupby(file.files, lambda name: name.split()[:4])
    }
CASES = [case[:3] for case in RECORDS if case[3] == "params"]
every_case = pytest.mark.parametrize("case", CASES, ids=" ".join)


def record(case):
    """Return the layout, parameters, spec, inputs and answers of a case."""
    layout, cell, both = case
    params, given, answers = (RECORDS[*case, kind] for kind in ("params", "inputs", "answers"))
    hints = {"cell": cell} if cell.startswith("rnn") else {}
    spec = rl.infer_spec(params, layout, **hints)
    (layers, _, H), I = given["h0"].shape, given["x"].shape[2]  # noqa: E741
    two = both == "both"
    assert (spec.cell, spec.input_size, spec.hidden_size) == (cell, I, H)
    assert (spec.num_layers, spec.bidirectional) == (layers // (1 + two), two)
    return layout, params, spec, given.values(), Run(*answers.values(), *[None] * (cell != "lstm"))


@every_case
def test_the_weights_compute_what_the_framework_computed(case):
    layout, params, spec, given, answers = record(case)
    if spec.reset == "before":
        weights = from_onnx(rl.convert(params, spec, layout=layout, to="onnx"), spec)
    else:
        weights = from_cudnn(rl.pack(params, spec, layout=layout, exact=True), spec)
    # a sum of two biases is rounded, one of the additions that reference.Rounded counts
    assert distance(answers, forward(weights, spec, *given)) <= 1


@every_case
def test_names_and_shapes_are_those_of_the_framework(case):
    layout, params, spec, _, _ = record(case)
    assert rl.describe(spec, layout) == {
        name: params[name].shape for name in rl.describe(spec, layout)
    }
    assert len(params) == len(rl.describe(spec, layout))
    assert rl.describe(spec.replace(bias="none"), layout) == rl.describe(spec, layout)


@every_case
def test_back_to_the_framework(case):
    """From torch, which keeps both biases, or through the one layout that keeps reset before."""
    layout, params, spec, _, _ = record(case)
    other = "torch" if spec.reset == "after" else "onnx"
    there = rl.convert(params, spec, layout=layout, to=other, exact=True)
    back = rl.convert(there, spec, layout=other, to=layout, exact=True)
    assert all(back[name].tobytes() == params[name].tobytes() for name in params)


def test_a_file_of_chainer(tmp_path):
    """As chainer.serializers.save_npz writes a model: the names are paths."""
    params = RECORDS["chainer-nstep", "gru", "both", "params"]
    model = {f"encoder/{name}": array for name, array in params.items()}
    model |= {"head/W": np.ones((2, 3), "f4"), "mlp/w0": np.ones(3), "mlp/w1": np.ones(3)}
    np.savez(tmp_path / "model.npz", **model)
    found = rl.load(tmp_path / "model.npz")
    assert list(found) == ["encoder"]
    direct = rl.convert(params, layout="chainer-nstep", to="torch")
    converted = found["encoder"].to("torch")
    assert all(converted[name].tobytes() == direct[name].tobytes() for name in direct)
