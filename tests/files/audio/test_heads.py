"""The head of a model, the dense layer above its RNN, and settings of plug-ins beside an RNN."""

import json

import keras
import numpy as np
import pytest
import torch
from files.audio.test_audio import RECORDS, put, read_json, torch_rnn
from oracles.frameworks import KERAS_NOISE

import rnnlayout as rl
from rnnlayout._cli.main import main

pytestmark = KERAS_NOISE
# sums of H + 1 products below 4 of outputs that differ by 2^-20, H = 3
ATOL = 4 * 4 * 2.0**-20


def save_torch_model(path, cell="LSTM", outputs=1, layers=1):
    """Write the state_dict of an RNN `rec` with a dense layer `lin`; return the function."""
    torch.manual_seed(7)
    rnn, lin = torch_rnn(cell, 2, 3, layers), torch.nn.Linear(3, outputs)
    model = torch.nn.ModuleDict({"rec": rnn, "lin": lin})
    torch.save(model.state_dict(), path)

    def run(x):
        with torch.no_grad():
            return lin(rnn(torch.tensor(x))[0]).numpy()

    return run


def write_rtneural(path, below=(), **dense):
    """Write a model of an LSTM and a dense layer, as recorded from RTNeural's own exporter."""
    model = json.loads(json.dumps(RECORDS["lstm.json"]["model"]))
    kernel = np.arange(3.0).reshape(3, 1).tolist()
    head = {"type": "dense", "activation": "", "shape": [None, None, 1], "weights": [kernel, [1.0]]}
    model["layers"] += [*below, head | dense]
    path.write_text(json.dumps(model))
    return path


def run_rtneural(path, x):
    """Compute the model of an RNN and a dense layer from the numbers of the file, as RTNeural's
    Dense does: the matrix is (inputs, outputs)."""
    (name,) = found = rl.load(path)
    kernel, bias = map(np.array, read_json(path)["layers"][-1]["weights"])
    return rl.RNN(found[name])(x)[0] @ kernel + bias


def run_nam(path, x):
    """Compute a model from the numbers of the file, as NAM/lstm.cpp does: the matrix of the head is
    (outputs, hidden_size), row after row."""
    model = read_json(path)
    outputs = model["config"].get("out_channels", 1)
    numbers = np.array(model["weights"][-4 * outputs :])
    weight, bias = numbers[: 3 * outputs].reshape(outputs, 3), numbers[3 * outputs :]
    return rl.RNN(rl.load(path)["lstm"])(x)[0] @ weight.T + bias


# --------------------------------------------------------------------------------- a new head


def test_a_model_of_torch_becomes_a_model_of_rtneural(tmp_path):
    run, path = save_torch_model(tmp_path / "a.pt"), write_rtneural(tmp_path / "amp.json")
    x = np.array(RECORDS["lstm.json"]["x"], "f4")
    done = rl.convert_file(tmp_path / "a.pt", tmp_path / "new.json", into=path, head="lin")
    np.testing.assert_allclose(run_rtneural(tmp_path / "new.json", x), run(x), rtol=0, atol=ATOL)
    assert done.left_out == ()
    assert done.notes == ("dense of amp.json has the numbers of lin.weight, lin.bias",)


@pytest.mark.parametrize("name, layers", [("one.nam", 1), ("two.nam", 2)])
def test_a_model_of_torch_becomes_a_model_of_nam(name, layers, tmp_path):
    """With the recorded numbers, run_nam() computes what the library recorded."""
    path, x, y = put(name, tmp_path)
    np.testing.assert_allclose(run_nam(path, x), y[:, 3:], rtol=0, atol=ATOL)
    run = save_torch_model(tmp_path / "a.pt", layers=layers)
    done = rl.convert_file(tmp_path / "a.pt", tmp_path / "new.nam", into=path, head="lin")
    np.testing.assert_allclose(run_nam(tmp_path / "new.nam", x), run(x), rtol=0, atol=ATOL)
    assert done.left_out == ()
    assert f"the head of {name} has the numbers of lin.weight, lin.bias" in done.notes


def test_a_head_with_several_outputs(tmp_path):
    rng = np.random.default_rng(3)
    model = RECORDS["one.nam"]["model"]
    model = model | {"config": model["config"] | {"out_channels": 2}}
    model = model | {"weights": model["weights"] + rng.normal(size=4).tolist()}
    (tmp_path / "a.nam").write_text(json.dumps(model))
    run = save_torch_model(tmp_path / "a.pt", outputs=2)
    rl.convert_file(tmp_path / "a.pt", tmp_path / "new.nam", into=tmp_path / "a.nam", head="lin")
    x = np.array(RECORDS["one.nam"]["x"], "f4")
    np.testing.assert_allclose(run_nam(tmp_path / "new.nam", x), run(x), rtol=0, atol=ATOL)
    again = rl.convert_file(
        tmp_path / "new.nam", tmp_path / "again.nam", into=tmp_path / "a.nam", head="head"
    )
    assert again.left_out == () and read_json(tmp_path / "again.nam") == read_json(
        tmp_path / "new.nam"
    )


@pytest.mark.parametrize("suffix", [".keras", ".h5", ".weights.h5"])
@pytest.mark.parametrize("outputs", [1, 3])  # 3 = H: only the names show the orientation
def test_a_model_of_keras_with_its_head(suffix, outputs, tmp_path):
    layers = [keras.layers.LSTM(3, return_sequences=True), keras.layers.Dense(outputs, name="out")]
    model = keras.Sequential([keras.Input((None, 2)), *layers])
    layers[1].bias.assign(np.arange(1.0, 1 + outputs))
    save = model.save_weights if suffix == ".weights.h5" else model.save
    save(tmp_path / f"m{suffix}")
    path = write_rtneural(
        tmp_path / "amp.json",
        shape=[None, None, outputs],
        weights=[np.zeros((3, outputs)).tolist(), [0.0] * outputs],
    )
    name = "out" if suffix == ".h5" else "dense"  # Keras 3 names variables after classes
    rl.convert_file(tmp_path / f"m{suffix}", tmp_path / "new.json", into=path, head=name)
    x = np.array(RECORDS["lstm.json"]["x"], "f4")
    expected = keras.ops.convert_to_numpy(model(x[None]))[0]
    np.testing.assert_allclose(run_rtneural(tmp_path / "new.json", x), expected, rtol=0, atol=ATOL)
    done = rl.convert_file(tmp_path / "new.json", tmp_path / "third.json", into=path, head="dense")
    assert done.left_out == ()
    assert read_json(tmp_path / "third.json") == read_json(tmp_path / "new.json")


@pytest.mark.parametrize("layout, is_inputs_first", [("torch", False), ("paddle", True)])
def test_a_square_head_has_the_orientation_of_its_framework(layout, is_inputs_first, tmp_path):
    """nn.Linear of Paddle is (inputs, outputs)."""
    matrix = np.arange(9, dtype="f4").reshape(3, 3)
    rnn = {f"rec.{name}": array for name, array in rl.Weights(torch_rnn()).to(layout).items()}
    np.savez(tmp_path / "a.npz", **rnn, **{"lin.weight": matrix})
    path = write_rtneural(
        tmp_path / "amp.json", shape=[None, None, 3], weights=[np.zeros((3, 3)).tolist(), [0.0] * 3]
    )
    rl.convert_file(tmp_path / "a.npz", tmp_path / "n.json", into=path, head="lin", layout=layout)
    kernel, bias = read_json(tmp_path / "n.json")["layers"][-1]["weights"]
    assert kernel == (matrix if is_inputs_first else matrix.T).tolist() and bias == [0.0] * 3


def test_a_head_in_float64_is_rounded_with_a_note_and_not_with_exact(tmp_path):
    rnn = {f"rec.{name}": array for name, array in rl.Weights(torch_rnn()).items()}
    np.savez(tmp_path / "a.npz", **rnn, **{"lin.weight": np.full((1, 3), 0.1)})
    call = {"into": write_rtneural(tmp_path / "amp.json"), "head": "lin"}
    done = rl.convert_file(tmp_path / "a.npz", tmp_path / "n.json", **call)
    assert done.notes[-1].endswith("has the numbers of lin.weight, rounded once to float32")
    with pytest.raises(rl.LossyError, match=r"^lin: its numbers are not float32"):
        rl.convert_file(tmp_path / "a.npz", tmp_path / "n2.json", exact=True, **call)
    assert not (tmp_path / "n2.json").exists()


# ------------------------------------------------------------------------------ without a head


def test_without_head_the_old_head_stays_with_a_message(tmp_path, capsys):
    save_torch_model(tmp_path / "a.pt")
    model, new = write_rtneural(tmp_path / "amp.json"), tmp_path / "new.json"
    command = ["convert", f"{tmp_path}/a.pt", str(new), "--into", str(model)]
    assert main(command) == 0
    said = capsys.readouterr().err
    assert "note: unchanged from amp.json: 'dense.kernel', 'dense.bias'; to replace" in said
    assert "pass --head lin\n" in said and "\nleft out: lin.weight, lin.bias\n" in said
    assert read_json(new)["layers"][1] == read_json(model)["layers"][1]
    assert main([*command, "--force", "--head", "lin", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"] == []
    assert read_json(new)["layers"][1] != read_json(model)["layers"][1]


@pytest.mark.parametrize("head, outputs, error, text", [
    ("lin", 2, rl.LayoutError, r"lin: its matrix has shape \(2, 3\) = \(outputs, inputs\), dense of"
     " amp.json has 3 inputs and 1 outputs"),
    ("line", 1, rl.FileError, "no dense layer 'line'; did you mean 'lin'\\? head= takes 'lin'"),
    ("rec", 1, rl.FileError, "no dense layer 'rec'"),
])  # fmt: skip
def test_heads_that_do_not_fit(head, outputs, error, text, tmp_path):
    save_torch_model(tmp_path / "a.pt", outputs=outputs)
    path = write_rtneural(tmp_path / "amp.json")
    with pytest.raises(error, match=text):
        rl.convert_file(tmp_path / "a.pt", tmp_path / "new.json", into=path, head=head)
    assert not (tmp_path / "new.json").exists()


def test_the_head_of_an_onnx_model_is_not_one_that_does_not_exist(tmp_path):
    """The error said that the source has no dense layer, which was not looked for."""
    rl.save(tmp_path / "a.onnx", rl.Weights(torch.nn.LSTM(2, 3)))
    path = write_rtneural(tmp_path / "amp.json")
    with pytest.raises(rl.FileError, match=r"a\.onnx: only RNNs are read from it: for head= pass"):
        rl.convert_file(tmp_path / "a.onnx", tmp_path / "new.json", into=path, head="lin")


def test_a_model_with_two_dense_layers_or_none(tmp_path):
    save_torch_model(tmp_path / "a.pt")
    more = read_json(write_rtneural(tmp_path / "amp.json"))["layers"][-1]
    path = write_rtneural(tmp_path / "amp.json", below=[more | {"activation": "tanh"}])
    with pytest.raises(rl.FileError, match=r"has 2 dense layers \(dense, dense_2\) above"):
        rl.convert_file(tmp_path / "a.pt", tmp_path / "new.json", into=path, head="lin")
    path, _, _ = put("lstm.json", tmp_path)
    with pytest.raises(rl.FileError, match="has no dense layer above the RNN"):
        rl.convert_file(tmp_path / "a.pt", tmp_path / "new.json", into=path, head="lin")


def test_the_activation_of_a_head_stays_with_a_note(tmp_path):
    save_torch_model(tmp_path / "a.pt")
    path = write_rtneural(tmp_path / "amp.json", activation="tanh")
    done = rl.convert_file(tmp_path / "a.pt", tmp_path / "new.json", into=path, head="lin")
    assert "dense keeps its activation 'tanh'" in done.notes


# ------------------------------------------------------------------- keys beside the weights


def test_settings_of_a_plug_in_are_named(tmp_path):
    """AIDA-X: src/aidadsp-plugin.cpp adds the input if in_skip is 1; gains are decibels."""
    path, _, _ = put(
        "lstm.json", tmp_path, in_skip=1, in_gain=-6.0, out_gain=0, samplerate=48000, esr=0.1
    )
    assert rl.load(path).notes == [
        "in_skip=1: the plug-in adds its first input, x[..., 0] after in_gain, to the output of the"
        " last layer: do the same",
        "in_gain=-6.0: the plug-in multiplies its input by 10 ** (in_gain / 20): multiply x first",
        "not used, as RTNeural does not: 'esr'",
    ]


@pytest.mark.parametrize("key, value, is_read", [
    ("bidirectional", True, False), ("bidirectional", False, True), ("go_backwards", 1, False),
    ("time_major", True, False), ("name", "lstm_1", True), ("reset_after", False, False),
    ("reset_after", True, True), ("recurrent_activation", "hard_sigmoid", False),
    ("layer_norm", 0.5, False), ("layer_norm", None, True),
])  # fmt: skip
def test_unknown_keys_of_a_recurrent_layer(key, value, is_read, tmp_path):
    (layer,) = RECORDS["lstm.json"]["model"]["layers"]
    path, _, _ = put("lstm.json", tmp_path, layers=[layer | {key: value}])
    if is_read:
        assert rl.load(path)["lstm"]
        return
    with pytest.raises(rl.LayoutError, match=f"^lstm has {key}={value!r}, which may change"):
        rl.load(path)


@pytest.mark.parametrize("key, value, is_read", [
    ("bidirectional", True, False), ("bidirectional", False, True), ("train_burn_in", 4096, True),
    ("in_channels", 1, False), ("in_channels", 2, True), ("skip", 1, False),
])  # fmt: skip
def test_unknown_keys_of_a_model_of_nam(key, value, is_read, tmp_path):
    config = RECORDS["one.nam"]["model"]["config"] | {key: value}
    path, _, _ = put("one.nam", tmp_path, config=config)
    if is_read:
        assert rl.load(path)["lstm"]
        return
    with pytest.raises(rl.FileError, match=f"config has {key}={value!r}, which may change"):
        rl.load(path)
