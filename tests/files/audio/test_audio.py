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
from rnnlayout._files.write_into import convert_into

pytestmark = KERAS_NOISE
RECORDS = json.loads((TESTS / "data" / "audio.json").read_text())
# float32 sums of up to 9 products below 4, in four layers and 12 steps, whose slopes are below 1
ATOL = 12 * 4 * 9 * 4 * 2.0**-24


def put(name, folder, **more):
    """Write a recorded model; return its path, x, and what the library computed."""
    path = folder / name
    path.write_text(json.dumps(RECORDS[name]["model"] | more, indent=4))
    return path, *(np.array(RECORDS[name][k], "f4") for k in "xy")


def torch_rnn(cell="LSTM", *sizes, **options):
    """Return a module of torch whose second biases are zero, as formats with one bias need it."""
    module = getattr(torch.nn, cell)(*sizes or (2, 3), **options)
    for name, tensor in module.named_parameters():
        if "bias_hh" in name:
            torch.nn.init.zeros_(tensor)
    return module


def read_json(path):
    return json.loads(path.read_text())


# --------------------------------------------------------------------------------------- RTNeural


def test_a_chain_of_rtneural(tmp_path):
    path, x, y = put("chain.json", tmp_path)
    found = rl.load(path)
    assert list(found) == ["lstm", "lstm_2", "gru"] and found.others == (
        "dense.kernel",
        "dense.bias",
    )
    for weights in found.values():
        x = rl.RNN(weights)(x)[0]
    weights, bias = map(np.array, read_json(path)["layers"][-1]["weights"])
    np.testing.assert_allclose(x @ weights + bias, y, rtol=0, atol=ATOL)
    rl.convert_file(path, tmp_path / "a.pt", to="torch", stack=[["lstm", "lstm_2"]])
    assert torch.load(tmp_path / "a.pt")["lstm.weight_ih_l1"].shape == (12, 3)


@pytest.mark.parametrize("cell, layers", [("lstm", 1), ("gru", 1), ("lstm", 2)])
def test_a_new_file_is_what_rtneural_s_exporter_writes(cell, layers, tmp_path):
    """python/model_utils.py of RTNeural: the shapes of get_weights(), layer by layer."""
    state, path = torch_rnn(cell.upper(), 5, 3, layers).state_dict(), tmp_path / "a.json"
    weights = rl.Weights(state)
    rl.save(path, weights)
    model, below = read_json(path), 5
    assert model["in_shape"] == [None, None, 5]
    for one in model["layers"]:
        kind = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU}[cell](3)
        kind.build((None, None, below))
        wanted = {"type": cell, "activation": "tanh", "shape": [None, None, 3]}
        assert one.items() >= wanted.items()
        shapes = [np.shape(array) for array in one["weights"]]
        assert shapes == [array.shape for array in kind.get_weights()]
        below = 3
    again = rl.load(path)[cell]
    assert again.batch_first is None and rl.verify(again, weights)
    assert all(again.to("torch")[n].tobytes() == weights[n].tobytes()
               for n in weights if "bias_hh" not in n)  # fmt: skip


def test_new_weights_in_a_chain_keep_its_other_layers(tmp_path):
    path, _, _ = put("chain.json", tmp_path, author="é", esr=0.1)
    rng = np.random.default_rng(3)
    spec = rl.Spec("gru", 3, 4)
    new = {n: rng.normal(size=s).astype("f4") for n, s in rl.describe(spec, "keras").items()}
    rl.save(tmp_path / "new.npz", rl.Weights(new, spec, "keras"))
    done = convert_into(tmp_path / "new.npz", tmp_path / "out.json", into=path)
    assert list(done.reports) == ["gru"]
    before, after = read_json(path), read_json(tmp_path / "out.json")
    assert after["layers"][2]["weights"] == [a.tolist() for a in new.values()]
    before["layers"][2]["weights"] = after["layers"][2]["weights"]
    assert before == after
    assert rl.load(tmp_path / "out.json")["lstm"] == rl.load(path)["lstm"]


def test_decimals_are_rounded_once_and_activations_not_used_with_a_note(tmp_path):
    (layer,) = json.loads(json.dumps(RECORDS["lstm.json"]["model"]["layers"]))
    layer["weights"][2][:2] = [0.1, 1 + 2**-24 + 2**-40]
    path, _, _ = put("lstm.json", tmp_path, layers=[layer | {"activation": "relu"}])
    found = rl.load(path)
    assert found["lstm"]["bias"][:2].tolist() == [np.float32(0.1), 1 + 2**-23]
    assert set(found.notes) == {
        "lstm: bias: 2 of 12 decimals are not float32: rounded once",
        "lstm: its activation 'relu' is not used: RTNeural computes tanh",
    }


def test_every_finite_float32_is_read_back_bit_for_bit(tmp_path):
    bits = np.random.default_rng(5).integers(0, 2**32, 5 * 12, dtype="u4")
    bits[:4] = [0x80000000, 1, 0x7F7FFFFF, 0x00800000]
    kernel = np.where(bits >> 23 & 255 == 255, bits & 0x807FFFFF, bits).astype("u4").view("f4")
    weights = rl.Weights([kernel.reshape(5, 12), np.ones((3, 12), "f4"), np.ones(12, "f4")],
                         rl.Spec("lstm", 5, 3), "keras")  # fmt: skip
    rl.save(tmp_path / "a.json", weights)
    assert rl.load(tmp_path / "a.json")["lstm"] == weights


@pytest.mark.parametrize("what, config, says", [
    (torch_rnn("RNN"), {}, "has cell rnn_tanh, which a model of RTNeural cannot represent"),
    (torch_rnn("GRU", bidirectional=True), {}, "has a second direction"),
    (torch_rnn(dtype=torch.float64), {}, r"has float32: convert it with .to\('keras', dtype"),
    (torch_rnn(), {"go_backwards": True}, "used with go_backwards=True, unknown to a model"),
])  # fmt: skip
def test_what_rtneural_cannot_represent(what, config, says, tmp_path):
    weights = rl.Weights(what)
    weights.config = config
    with pytest.raises(rl.LossyError, match=says):
        rl.save(tmp_path / "a.json", weights)


# --------------------------------------------------------------------------- Neural Amp Modeler


@pytest.mark.parametrize("name", ["one.nam", "two.nam"])
def test_a_model_of_nam_starts_from_its_own_state_and_keeps_it(name, tmp_path):
    path, x, y = put(name, tmp_path)
    found = rl.load(path)
    assert list(found) == ["lstm"] and found.others == ("head.weight", "head.bias")
    rnn = rl.RNN(found["lstm"])
    np.testing.assert_allclose(rnn(x)[0], y[:, :3], rtol=0, atol=ATOL)
    live = rnn.stepper()
    np.testing.assert_allclose([live(one) for one in x], y[:, :3], rtol=0, atol=ATOL)
    rl.convert_file(path, tmp_path / "a.npz", to="nam")
    done = convert_into(tmp_path / "a.npz", tmp_path / "out.nam", into=path)
    assert read_json(tmp_path / "out.nam") == RECORDS[name]["model"]
    assert done.notes == (
        "loudness in its metadata are those of the old weights",
        f"unchanged from {name}: 'head.weight', 'head.bias'",
    )


def test_an_lstm_of_torch_in_a_model_of_nam(tmp_path, capsys):
    """It starts from zero, as in torch, and the head stays."""
    path, x, _ = put("two.nam", tmp_path)
    module = torch_rnn("LSTM", 2, 3, 2)
    torch.save(module.state_dict(), tmp_path / "a.pt")
    assert main(["convert", f"{tmp_path}/a.pt", f"{tmp_path}/out.nam", "--into", str(path)]) == 0
    assert "initial_h and initial_c of two.nam are zero in the copy" in capsys.readouterr().err
    found = rl.load(tmp_path / "out.nam")["lstm"]
    assert not found.config
    with torch.no_grad():
        wanted = module(torch.tensor(x))[0].numpy()
    np.testing.assert_allclose(rl.RNN(found)(x)[0], wanted, rtol=0, atol=ATOL)
    old, new = read_json(path), read_json(tmp_path / "out.nam")
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
