"""Files of RTNeural and of Neural Amp Modeler, and what their libraries computed from them."""

import json

import keras
import numpy as np
import pytest
import torch
from commands import TESTS
from oracles.frameworks import KERAS_NOISE

import rnnlayout as rl
from rnnlayout._cli.main import main
from rnnlayout._files.write_file import convert_into

pytestmark = KERAS_NOISE
RECORDS = json.loads((TESTS / "data" / "audio.json").read_text())
# float32 sums of up to 9 products below 4, in four layers and 12 steps, whose slopes are below 1
ATOL = 12 * 4 * 9 * 4 * 2.0**-24


def put(name, folder, **more):
    """Write a recorded model; return its path, x, and what the library computed."""
    path = folder / name
    path.write_text(json.dumps(RECORDS[name]["model"] | more, indent=4))
    return path, *(np.array(RECORDS[name][k], "f4") for k in "xy")


def last_layer(path, y):
    """Return the outputs of a model, from those of its RNNs."""
    model = json.loads(path.read_text())
    weights, bias = model["layers"][-1]["weights"]
    return y @ np.array(weights) + np.array(bias)


# --------------------------------------------------------------------------------------- RTNeural


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_layer_of_rtneural(cell, tmp_path):
    path, x, y = put(f"{cell}.json", tmp_path)
    found = rl.load(path)
    assert list(found) == [cell] and found.notes == [] and found.others == ()
    np.testing.assert_allclose(rl.RNN(found[cell])(x)[0], y, rtol=0, atol=ATOL)
    module = getattr(torch.nn, cell.upper())(2, 3)
    rl.assign(module, found[cell])
    with torch.no_grad():
        np.testing.assert_allclose(module(torch.tensor(x))[0], y, rtol=0, atol=ATOL)


def test_a_chain_of_rtneural(tmp_path):
    path, x, y = put("chain.json", tmp_path)
    found = rl.load(path)
    assert list(found) == ["lstm", "lstm_2", "gru"] and found.others == ("dense",)
    for weights in found.values():
        x = rl.RNN(weights)(x)[0]
    np.testing.assert_allclose(last_layer(path, x), y, rtol=0, atol=ATOL)
    rl.convert_file(path, tmp_path / "a.pt", to="torch", stack=[["lstm", "lstm_2"]])
    assert torch.load(tmp_path / "a.pt")["lstm.weight_ih_l1"].shape == (12, 3)


@pytest.mark.parametrize("cell, layers", [("lstm", 1), ("gru", 1), ("lstm", 2)])
def test_a_new_file_is_what_rtneural_s_exporter_writes(cell, layers, tmp_path):
    """python/model_utils.py of RTNeural: the shapes of get_weights(), layer by layer."""
    module = getattr(torch.nn, cell.upper())(5, 3, layers)
    path = tmp_path / "a.json"
    rl.save(path, rl.Weights({name: a.detach() for name, a in module.named_parameters()}
                             | {n: torch.zeros_like(a) for n, a in module.named_parameters()
                                if n.startswith("bias_hh")}))  # fmt: skip
    model = json.loads(path.read_text())
    assert model["in_shape"] == [None, None, 5]
    below = 5
    for one in model["layers"]:
        kind = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU}[cell](3)
        kind.build((None, None, below))
        wanted = {"type": cell, "activation": "tanh", "shape": [None, None, 3]}
        assert {key: one[key] for key in wanted} == wanted
        shapes = [np.shape(array) for array in one["weights"]]
        assert shapes == [array.shape for array in kind.get_weights()]
        below = 3
    again = rl.load(path)[cell]
    assert again.spec.num_layers == layers and again.batch_first is None
    for name, tensor in again.to("torch").items():
        if not name.startswith("bias_hh"):
            assert (
                tensor.tobytes() == dict(module.named_parameters())[name].detach().numpy().tobytes()
            )


def test_new_weights_in_a_chain_keep_its_other_layers(tmp_path):
    path, _, _ = put("chain.json", tmp_path, author="é", esr=0.1)
    rng = np.random.default_rng(3)
    spec = rl.Spec("gru", 3, 4)
    new = {n: rng.normal(size=s).astype("f4") for n, s in rl.describe(spec, "keras").items()}
    rl.save(tmp_path / "new.npz", rl.Weights(new, spec, "keras"))
    done = convert_into(tmp_path / "new.npz", tmp_path / "out.json", into=path)
    assert list(done.reports) == ["gru"]
    before, after = (json.loads(p.read_text()) for p in (path, tmp_path / "out.json"))
    assert after["layers"][2]["weights"] == [a.tolist() for a in new.values()]
    before["layers"][2]["weights"] = after["layers"][2]["weights"]
    assert before == after
    assert rl.load(tmp_path / "out.json")["lstm"] == rl.load(path)["lstm"]


def test_a_stack_moves_into_layers_and_back(tmp_path):
    module = torch.nn.LSTM(2, 3, 2, bias=False)
    rl.save(tmp_path / "a.json", rl.Weights(module.state_dict()))
    found = rl.load(tmp_path / "a.json")["lstm"]
    assert found.spec == rl.Spec("lstm", 2, 3, 2, bias="none")
    torch.save(module.state_dict(), tmp_path / "a.pt")
    convert_into(tmp_path / "a.pt", tmp_path / "b.json", into=tmp_path / "a.json")
    assert (tmp_path / "b.json").read_bytes() == (tmp_path / "a.json").read_bytes()


def test_decimals_that_are_not_float32_are_rounded_once_with_a_note(tmp_path):
    model = json.loads(json.dumps(RECORDS["lstm.json"]["model"]))
    model["layers"][0]["weights"][2][:2] = [0.1, 1 + 2**-24 + 2**-40]
    (tmp_path / "a.json").write_text(json.dumps(model))
    found = rl.load(tmp_path / "a.json")
    assert found["lstm"]["bias"][0] == np.float32(0.1)
    assert found["lstm"]["bias"][1] == 1 + 2**-23
    assert found.notes == ["lstm: bias: 2 of 12 decimals are not float32: rounded once"]


def test_every_finite_float32_is_read_back_bit_for_bit(tmp_path):
    bits = np.random.default_rng(5).integers(0, 2**32, 5 * 12, dtype="u4")
    bits[:4] = [0x80000000, 1, 0x7F7FFFFF, 0x00800000]
    kernel = np.where(bits >> 23 & 255 == 255, bits & 0x807FFFFF, bits).astype("u4").view("f4")
    weights = rl.Weights([kernel.reshape(5, 12), np.ones((3, 12), "f4"), np.ones(12, "f4")],
                         rl.Spec("lstm", 5, 3), "keras")  # fmt: skip
    rl.save(tmp_path / "a.json", weights)
    assert rl.load(tmp_path / "a.json")["lstm"] == weights


@pytest.mark.parametrize("what, says", [
    (torch.nn.RNN(2, 3), "has cell rnn_tanh, which a model of RTNeural cannot represent"),
    (torch.nn.GRU(2, 3, bidirectional=True), "has a second direction"),
    (torch.nn.LSTM(2, 3, dtype=torch.float64), r"has float32: convert it with .to\('keras', dtype"),
])  # fmt: skip
def test_what_rtneural_cannot_represent(what, says, tmp_path):
    for tensor in what.parameters():
        torch.nn.init.zeros_(tensor)
    with pytest.raises(rl.LossyError, match=says):
        rl.save(tmp_path / "a.json", rl.Weights(what))
    weights = rl.Weights(torch.nn.LSTM(2, 3)).to("keras")
    weights.config = {"go_backwards": True}
    with pytest.raises(rl.LossyError, match="used with go_backwards=True, unknown to a model"):
        rl.save(tmp_path / "a.json", weights)


# --------------------------------------------------------------------------- Neural Amp Modeler


@pytest.mark.parametrize("name", ["one.nam", "two.nam"])
def test_a_model_of_nam_starts_from_its_own_state(name, tmp_path):
    path, x, y = put(name, tmp_path)
    found = rl.load(path)
    assert list(found) == ["lstm"] and found.others == ("head.weight", "head.bias")
    rnn = rl.RNN(found["lstm"])
    np.testing.assert_allclose(rnn(x)[0], y[:, :3], rtol=0, atol=ATOL)
    live = rnn.stepper()
    np.testing.assert_allclose([live(one) for one in x], y[:, :3], rtol=0, atol=ATOL)


@pytest.mark.parametrize("name", ["one.nam", "two.nam"])
def test_a_model_of_nam_goes_out_and_back_with_its_states(name, tmp_path):
    path, _, _ = put(name, tmp_path)
    rl.convert_file(path, tmp_path / "a.npz", to="nam")
    done = convert_into(tmp_path / "a.npz", tmp_path / "out.nam", into=path)
    assert json.loads((tmp_path / "out.nam").read_text()) == RECORDS[name]["model"]
    assert done.notes == ("loudness in its metadata are those of the old weights",)


def test_an_lstm_of_torch_in_a_model_of_nam(tmp_path, capsys):
    """It starts from zero, as in torch, and the head stays."""
    path, x, _ = put("two.nam", tmp_path)
    module = torch.nn.LSTM(2, 3, 2)
    for name, tensor in module.named_parameters():
        torch.nn.init.zeros_(tensor) if "bias_hh" in name else torch.nn.init.normal_(tensor)
    torch.save(module.state_dict(), tmp_path / "a.pt")
    assert main(["convert", f"{tmp_path}/a.pt", f"{tmp_path}/out.nam", "--into", str(path)]) == 0
    assert "initial_h and initial_c of two.nam are zero in the copy" in capsys.readouterr().err
    found = rl.load(tmp_path / "out.nam")["lstm"]
    assert not found.config
    with torch.no_grad():
        wanted = module(torch.tensor(x))[0].numpy()
    np.testing.assert_allclose(rl.RNN(found)(x)[0], wanted, rtol=0, atol=ATOL)
    old, new = (json.loads(p.read_text()) for p in (path, tmp_path / "out.nam"))
    assert new["weights"][-4:] == old["weights"][-4:] and new["metadata"] == old["metadata"]


@pytest.mark.parametrize("config, says", [
    ({"initial_h": [[[0.5] * 3] * 2]}, "initial_h has shape .*runs one sequence"),
    ({"initial_h": [[[0.1] * 3]]}, "initial_h is not float32: round it first"),
    ({"clip": 1.0}, "clip=1.0, unknown to a model of Neural"),
])  # fmt: skip
def test_what_a_model_of_nam_cannot_have(config, says, tmp_path):
    path, _, _ = put("one.nam", tmp_path)
    weights = rl.load(path)["lstm"]
    weights.config = config
    rl.save(tmp_path / "a.npz", weights)
    with pytest.raises(rl.LossyError, match=says):
        convert_into(tmp_path / "a.npz", tmp_path / "out.nam", into=path)
    assert not (tmp_path / "out.nam").exists()


def test_states_that_other_files_cannot_have(tmp_path):
    path, _, _ = put("one.nam", tmp_path)
    with pytest.raises(rl.LossyError, match="used with initial_h"):
        rl.convert_file(path, tmp_path / "a.json", to="keras")
    done = rl.convert_file(path, tmp_path / "a.npz", to="torch")
    assert "pass it as the initial state" in done.reports["lstm"].settings
    rl.convert_file(path, tmp_path / "a.onnx", to="onnx")
    assert rl.load(tmp_path / "a.onnx")["lstm"].config == rl.load(path)["lstm"].config


def test_activations_that_rtneural_ignores(tmp_path):
    (layer,) = RECORDS["lstm.json"]["model"]["layers"]
    path, _, _ = put("lstm.json", tmp_path, layers=[layer | {"activation": "relu"}])
    assert rl.load(path).notes == [
        "lstm: its activation 'relu' is not used: RTNeural computes tanh"
    ]
