"""Frameworks that are too large, or too old, for the tests' environment: what they once computed.

tools/record_answers.py and tests/data/record_chainer_mxnet.py made the data: weights in the
framework's own tensors, inputs and outputs; tests/data/record_audio.py those of Neural Amp Modeler.
"""

import itertools
import json

import numpy as np
import pytest
from commands import TESTS
from convert.meaning import check_meaning, expected_of
from oracles.frameworks import run_onnx
from oracles.reference import Run, distance_between
from oracles.some import same_bits

import rnnlayout as rl

ANSWERS_FOR = ("paddle", "openvino", "onednn", "mxnet-gluon", "chainer-nstep", "chainer-links",
               "nam", "keras", "coreml")  # fmt: skip


def recorded(framework):
    """Return case -> (spec, tensors, inputs, outputs) of a framework."""
    with np.load(TESTS / "data" / f"answers-{framework}.npz") as file:
        arrays = dict(file)
    cases = json.loads(arrays.pop("about").tobytes())["cases"]

    def below(path):
        return {n.removeprefix(path): a for n, a in arrays.items() if n.startswith(path)}

    return {
        case: (
            rl.Spec(**about),
            below(f"{case}/tensors/"),
            list(below(f"{case}/given/").values()),
            Run(**below(f"{case}/results/")),
        )
        for case, about in cases.items()
    }


ANSWERS = {name: recorded(name) for name in ("paddle", "mxnet", "openvino", "onednn", "coreml")}
CASES = [(framework, case) for framework, cases in ANSWERS.items() for case in cases]


@pytest.mark.parametrize("framework, case", CASES)
def test_both_ways(framework, case):
    spec, tensors, given, answer = ANSWERS[framework][case]
    spec = spec.replace(peepholes=case.endswith("peepholes"))
    tensors = tensors.get("weight_space", tensors)  # MXNet has one flat vector
    there, expected = check_meaning(framework, tensors, spec, lambda *_: answer, given)
    if not spec.proj_size:  # ONNX has none
        assert distance_between(answer, run_onnx(there, spec, *given), expected) <= 1
    if framework != "mxnet":
        told = {"cell": spec.cell, "activation": spec.activation}
        assert rl.infer_spec(tensors, framework, **told) == spec


with np.load(TESTS / "data" / "chainer-mxnet.npz") as file:
    RECORDS = {
        tuple(case): {name.split()[4]: file[name] for name in names}
        for case, names in itertools.groupby(file.files, lambda name: name.split()[:4])
    }


@pytest.mark.parametrize(
    "case", [case[:3] for case in RECORDS if case[3] == "params"], ids=" ".join
)
def test_chainer_and_gluon(case):
    layout, cell, both = case
    params, given, answers = (RECORDS[*case, kind] for kind in ("params", "inputs", "answers"))
    spec = rl.infer_spec(params, layout, **({"cell": cell} if cell.startswith("rnn") else {}))
    (rows, _, H), I, two = given["h0"].shape, given["x"].shape[2], both == "both"  # noqa: E741
    assert spec == rl.Spec(cell, I, H, rows // (1 + two), two, reset=spec.reset)
    answer = Run(*answers.values(), *[None] * (cell != "lstm"))
    given = [*given.values()] + [None] * (cell != "lstm")
    check_meaning(layout, params, spec, lambda *_: answer, given)
    assert rl.describe(spec.replace(bias="none"), layout) == rl.describe(spec, layout)


def test_a_file_of_chainer(tmp_path):
    """As chainer.serializers.save_npz writes a model: the names are paths."""
    params = RECORDS["chainer-nstep", "gru", "both", "params"]
    model = {f"encoder/{name}": array for name, array in params.items()}
    model |= {"head/W": np.ones((2, 3), "f4"), "mlp/w0": np.ones(3), "mlp/w1": np.ones(3)}
    np.savez(tmp_path / "model.npz", **model)
    found = rl.load(tmp_path / "model.npz")
    assert list(found) == ["encoder"]
    assert found["encoder"] == rl.Weights(params, layout="chainer-nstep")


def test_openvinos_gru_with_a_fourth_bias():
    """The recurrent bias of the candidate stands apart only with linear_before_reset."""
    before = rl.Spec("gru", 5, 4, reset="before")
    assert rl.describe(before, "openvino")["B"] == (1, 12)
    tensors = {name: np.zeros(shape, "f4") for name, shape in rl.describe(before, "onnx").items()}
    tensors["B"][0, 20:] = [1, 2, 3, 4]  # R of n
    converted = rl.convert(tensors, layout="onnx", reset="after", to="openvino", exact=True)
    assert converted["B"].tolist() == [[0] * 12 + [1, 2, 3, 4]]


# -------------------------------------------------------------------------- Neural Amp Modeler

AUDIO = json.loads((TESTS / "data" / "audio.json").read_text())


def cut(weights, I, H, L):  # noqa: E741
    """Return the tensors of layout nam, the initial h and c of each layer, and the head, cut from
    "weights" as lstm.cpp does."""
    rest, tensors, states = np.array(weights, np.float32), {}, []
    for k in range(L):
        inputs = H if k else I
        sizes = np.cumsum([4 * H * (inputs + H), 4 * H, H, H])
        w, b, *state, rest = np.split(rest, sizes)
        prefix = f"{k}/" if L > 1 else ""
        tensors |= {f"{prefix}W": w.reshape(4 * H, inputs + H), f"{prefix}b": b}
        states.append(state)
    h, c = np.array(states).swapaxes(0, 1)
    return tensors, h, c, rest


@pytest.mark.parametrize("name", ["one.nam", "two.nam"])
def test_the_lstms_of_neural_amp_modeler_mean_what_its_library_computed(name):
    record = AUDIO[name]
    config = record["model"]["config"]
    I, H, L = config["input_size"], config["hidden_size"], config["num_layers"]  # noqa: E741
    spec = rl.Spec("lstm", I, H, L)
    tensors, h, c, head = cut(record["model"]["weights"], I, H, L)
    given = [np.float32(a)[:, None] for a in (record["x"], h, c)]
    expected = expected_of(tensors, spec, given, "nam")
    y, out = np.split(np.array(record["y"]), [H], -1)
    answer = Run(y[:, None], expected.h.value, expected.c.value)
    check_meaning("nam", tensors, spec, lambda *_: answer, given)
    # float32 sums of H + 1 products below 4
    np.testing.assert_allclose(y @ head[:H] + head[H], out[:, 0], rtol=0, atol=24 * 2.0**-24)


# --------------------------- published: a Keras GRU and the flat vector that cuDNN received for it

EXAMPLE = json.loads((TESTS / "data/keras-gru-worked-example.json").read_text())
WEIGHTS = {name: np.array(values, "float32") for name, values in EXAMPLE["keras"].items()}
PRINTED = np.array(EXAMPLE["cudnn_flat"])


def test_weights_pack_to_the_printed_vector_and_it_unpacks_to_the_weights():
    flat, spec = rl.pack(WEIGHTS), rl.infer_spec(WEIGHTS)
    assert spec == rl.Spec("gru", 2, 3)
    assert same_bits(dict(rl.unpack(flat, spec, to="keras")), WEIGHTS)
    # Half a unit of the sixth decimal. One element is an exact tie in decimal, which float32 may
    # miss by one ulp of the largest magnitude below 1, 2^-24.
    most = 0.5e-6 + 2.0**-24
    assert np.abs(flat.astype("float64") - PRINTED).max() <= most
    back = rl.unpack(PRINTED, spec.replace(dtype="float64"), to="keras")
    assert all(np.abs(back[name] - array).max() <= most for name, array in WEIGHTS.items())
