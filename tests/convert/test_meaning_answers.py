"""Frameworks that are too large, or too old, for the tests' environment: what they once computed.

tools/record_answers.py made the data: weights in the framework's own tensors, inputs and outputs.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from oracles.frameworks import run_onnx, run_torch
from oracles.reference import (
    Run,
    distance,
    distance_between,
    forward,
    from_cudnn,
    from_onnx,
)

import rnnlayout as rl

ANSWERS_FOR = ("paddle", "openvino", "onednn")

DATA = Path(__file__).resolve().parent.parent / "data"


def recorded(framework):
    """Return case -> (spec, tensors, inputs, outputs) of a framework."""
    with np.load(DATA / f"answers-{framework}.npz") as file:
        arrays = dict(file)
    cases = json.loads(arrays.pop("about").tobytes())["cases"]

    def below(path):
        return {
            name.removeprefix(path): array
            for name, array in arrays.items()
            if name.startswith(path)
        }

    return {
        case: (
            rl.Spec(**about),
            below(f"{case}/tensors/"),
            list(below(f"{case}/given/").values()),
            Run(**below(f"{case}/results/")),
        )
        for case, about in cases.items()
    }


# framework -> case -> what was recorded. MXNet's tensor is one flat vector.
FRAMEWORKS = "paddle", "mxnet", "openvino", "onednn"
ANSWERS = {framework: recorded(framework) for framework in FRAMEWORKS}
CASES = [(framework, case) for framework, cases in ANSWERS.items() for case in cases
         if case not in ("lstm peepholes", "lstm projected")]  # fmt: skip


def source(framework, tensors):
    return tensors["weight_space"] if framework == "mxnet" else tensors


@pytest.mark.parametrize("framework, case", CASES)
def test_both_ways(framework, case):
    """onnxruntime computes from the converted weights what the framework computed; its tensors
    come back bit for bit."""
    spec, tensors, given, answer = ANSWERS[framework][case]
    own = source(framework, tensors)
    there = rl.convert(own, spec, layout=framework, to="onnx", exact=True)
    expected = forward(from_onnx(there, spec), spec, *given)
    assert distance(answer, expected) <= 1  # reference.Rounded
    assert distance_between(answer, run_onnx(there, spec, *given), expected) <= 1
    back = rl.convert(there, spec, to=framework, exact=True)
    if framework == "mxnet":
        assert back.tobytes() == own.tobytes()
    else:
        assert back.keys() == own.keys()
        assert all(back[name].tobytes() == own[name].tobytes() for name in own)


@pytest.mark.parametrize("framework, case", CASES)
def test_the_names_and_shapes_are_those_of_the_framework(framework, case):
    spec, tensors, *_ = ANSWERS[framework][case]
    shapes = {name: array.shape for name, array in tensors.items()}
    assert rl.describe(spec, framework) == shapes
    if framework != "mxnet":
        assert rl.infer_spec(tensors, framework, cell=spec.cell) == spec


def test_openvinos_gru_with_a_fourth_bias():
    """The recurrent bias of the candidate stands apart only with linear_before_reset."""
    after, before = (rl.Spec("gru", 5, 4, reset=reset) for reset in ("after", "before"))
    assert rl.describe(after, "openvino")["B"] == (1, 16)
    assert rl.describe(before, "openvino")["B"] == (1, 12)
    tensors = {name: np.zeros(shape, "f4") for name, shape in rl.describe(after, "torch").items()}
    tensors["bias_hh_l0"][8:] = [1, 2, 3, 4]  # of n
    converted = rl.convert(tensors, to="openvino", exact=True)
    assert converted["B"][0].tolist() == [0] * 12 + [1, 2, 3, 4]


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_onednns_projection():
    """ONNX has none: PyTorch computes from the converted weights what oneDNN computed."""
    spec, tensors, given, answer = ANSWERS["onednn"]["lstm projected"]
    assert rl.infer_spec(tensors) == spec
    flat = rl.pack(tensors, exact=True)
    expected = forward(from_cudnn(flat, spec), spec, *given)
    assert distance(answer, expected) <= 1  # reference.Rounded
    module = torch.nn.LSTM(spec.input_size, spec.hidden_size, proj_size=spec.proj_size)
    rl.assign(module, rl.unpack(flat, spec, to="torch", exact=True))
    assert distance_between(answer, run_torch(module, *given), expected) <= 1
    back = rl.unpack(flat, spec, to="onednn", exact=True)
    assert list(back) == list(tensors)
    assert all(back[name].tobytes() == tensors[name].tobytes() for name in tensors)


def test_onednns_peepholes():
    """Those of i, f and o, and o's are multiplied with the new cell state; ONNX orders i, o, f."""
    spec, tensors, given, answer = ANSWERS["onednn"]["lstm peepholes"]
    there = rl.convert(tensors, to="onnx", exact=True)
    found = run_onnx(there, spec, *given)
    # A gate is a sum of 5 + 4 + 2 products of numbers below 4, so rounded by less than
    # 11 * 11 * 4 * 2^-24 = 3e-5; its slope is at most 1, and 3 steps add up.
    for mine, theirs in ((found.y, answer.y), (found.h, answer.h), (found.c, answer.c)):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-4)
    without = {name: array for name, array in there.items() if name != "P"}
    assert np.abs(run_onnx(without, spec, *given).y - answer.y).max() > 0.01
    back = rl.convert(there, to="onednn", exact=True)
    assert back["weights_peephole"].tobytes() == tensors["weights_peephole"].tobytes()


def test_onednn_runs_several_layers_one_by_one():
    """Its primitive of several layers needs equal sizes, and does not join the directions."""
    names = list(rl.describe(rl.Spec("gru", 5, 4, 2, True), "onednn"))
    assert names == [f"{k}/{name}" for k in (0, 1)
                     for name in ("weights_layer", "weights_iter", "bias")]  # fmt: skip
    stack = {name: np.zeros((2, *shape[1:]), "f4")
             for name, shape in rl.describe(rl.Spec("gru", 4, 4), "onednn").items()}  # fmt: skip
    with pytest.raises(rl.LayoutError, match=r"weights_layer: shape \(2, 1, 4, 3, 4\), expected"):
        rl.convert(stack, layout="onednn", to="torch")


def test_a_projection_of_paddle_is_refused():
    """Its weight_ho is (H, P), and state_dict() gives it the name of another tensor: with two
    layers, that of weight_ih_l1."""
    with pytest.raises(rl.LossyError, match="paddle has no projection"):
        rl.describe(rl.Spec("lstm", 5, 4, proj_size=2), "paddle")


def test_tensors_that_look_like_another_layouts_are_read_in_it_only_if_it_is_named():
    """paddle's names are torch's: without layout= they are torch's."""
    _, tensors, *_ = ANSWERS["paddle"]["lstm"]
    assert rl.Weights(tensors).layout == rl.layout("torch")
    assert rl.Weights(tensors, layout="paddle").layout == rl.layout("paddle")
    _, tensors, *_ = ANSWERS["openvino"]["lstm"]
    said = r"B: shape \(2, 16\), expected \(2, 32\).*; these tensors fit layout='openvino'"
    with pytest.raises(rl.LayoutError, match=said):
        rl.infer_spec(tensors)
