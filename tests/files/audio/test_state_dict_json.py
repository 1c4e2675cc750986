"""Models of GuitarML, and other state_dicts as JSON."""

import json
import re

import numpy as np
import pytest
import torch
from files.audio.test_audio import read_json
from hints.following import command, tensors

import rnnlayout as rl

# sums of H + 1 products below 4 of outputs that differ by 2^-20, H = 3
ATOL = 4 * 4 * 2.0**-20
SIZES = {"LSTM": (2, 3, 1), "GRU": (2, 3, 2), "RNN": (1, 3, 1)}


class SimpleRNN(torch.nn.Module):
    """The network of CoreAudioML's networks.py, by its equation."""

    def __init__(self, unit_type, skip=1, bias=True):
        super().__init__()
        self.rec = getattr(torch.nn, unit_type)(*SIZES[unit_type])
        self.lin = torch.nn.Linear(3, 1, bias=bias)
        self.skip = skip

    def forward(self, x):
        y = self.lin(self.rec(x)[0])
        return y + x[..., : self.skip] if self.skip else y

    def save(self, path):
        """Write the model with the keys that save_model() writes."""
        rec, lin = self.rec, self.lin
        facts = {"model": "SimpleRNN", "input_size": rec.input_size, "skip": self.skip,
                 "output_size": 1, "unit_type": rec._get_name(), "num_layers": rec.num_layers,
                 "hidden_size": rec.hidden_size, "bias_fl": lin.bias is not None}  # fmt: skip
        state = {name: tensor.tolist() for name, tensor in self.state_dict().items()}
        path.write_text(json.dumps({"model_data": facts, "state_dict": state}))
        return path


def run(path, x):
    """Compute a model from the numbers of its file and the RNN that load() returns."""
    model, found = read_json(path), rl.load(path)
    state, skip = model["state_dict"], model["model_data"]["skip"]
    y = rl.RNN(found["rec"])(x)[0] @ np.array(state["lin.weight"]).T + state["lin.bias"]
    return y + x[..., :skip] if skip else y


def wanted(model, x):
    with torch.no_grad():
        return model(torch.tensor(x)).numpy()


@pytest.fixture
def x():
    return np.random.default_rng(1).standard_normal((6, 2, 2), "f4")


@pytest.mark.parametrize("unit_type", ["LSTM", "GRU"])
def test_a_model_of_guitarml(unit_type, x, tmp_path):
    model = SimpleRNN(unit_type)
    path = model.save(tmp_path / "amp.json")
    found = rl.load(path)
    assert list(found) == ["rec"] and found.others == ("lin.weight", "lin.bias")
    assert found["rec"] == rl.Weights(model.rec) and found["rec"].batch_first is False
    assert found.notes == [
        "skip=1: the model adds x[..., :skip], of its inputs x, to the outputs of its dense layer:"
        " do the same"
    ]
    np.testing.assert_allclose(run(path, x), wanted(model, x), rtol=0, atol=ATOL)


def test_a_plain_rnn_computes_tanh_and_nothing_is_added_without_skip(tmp_path):
    found = rl.load(SimpleRNN("RNN", skip=0).save(tmp_path / "amp.json"))
    assert found["rec"].spec.cell == "rnn_tanh" and not found.notes


def test_new_weights_and_a_new_head_keep_the_skip(x, tmp_path):
    """The trained model is a checkpoint of torch; the copy computes the same with the old skip."""
    old, new = SimpleRNN("LSTM"), SimpleRNN("LSTM")
    path = old.save(tmp_path / "amp.json")
    torch.save(new.state_dict(), tmp_path / "new.pt")
    done = rl.convert_file(tmp_path / "new.pt", tmp_path / "new.json", into=path, head="lin")
    assert done.left_out == () and any(note.startswith("skip=1") for note in done.notes)
    assert read_json(tmp_path / "new.json") == read_json(new.save(tmp_path / "wanted.json"))
    np.testing.assert_allclose(run(tmp_path / "new.json", x), wanted(new, x), rtol=0, atol=ATOL)
    done = rl.convert_file(tmp_path / "new.pt", tmp_path / "b.json", into=path)
    assert done.notes[-1].endswith("a dense layer of the source pass head='lin'")
    assert read_json(tmp_path / "b.json")["state_dict"]["lin.bias"] == old.lin.bias.tolist()


def test_a_head_with_a_bias_in_a_model_without_one(tmp_path):
    path = SimpleRNN("LSTM", bias=False).save(tmp_path / "amp.json")
    torch.save(SimpleRNN("LSTM").state_dict(), tmp_path / "new.pt")
    with pytest.raises(rl.LossyError, match=r"lin: its bias is not zero, and lin of amp\.json has"):
        rl.convert_file(tmp_path / "new.pt", tmp_path / "n.json", into=path, head="lin")


def test_settings_that_the_program_does_not_know(tmp_path):
    model = SimpleRNN("LSTM")
    weights = rl.Weights(model.rec)
    weights.config["cell_clip"] = 3.0
    rl.save(tmp_path / "new.npz", {"rec": weights})
    path = model.save(tmp_path / "amp.json")
    with pytest.raises(rl.LossyError, match=r"cell_clip=3\.0, unknown to a state_dict as JSON"):
        rl.convert_file(tmp_path / "new.npz", tmp_path / "n.json", into=path)


@pytest.mark.parametrize("facts, says", [
    ({"unit_type": "GRU"}, r"shape \(12, 3\), expected \(12, 4\) .*gru in torch"),
    ({"num_layers": 2}, "its module has num_layers 2, its tensors are of num_layers 1"),
    ({"hidden_size": 4}, "its module has hidden_size 4"),
])  # fmt: skip
def test_facts_that_contradict_the_tensors(facts, says, tmp_path):
    path = SimpleRNN("LSTM").save(tmp_path / "amp.json")
    model = read_json(path)
    path.write_text(json.dumps(model | {"model_data": model["model_data"] | facts}))
    with pytest.raises(rl.LayoutError, match=says):
        rl.load(path)


def test_each_block_of_a_recnet_may_have_a_skip(tmp_path):
    """CoreAudioML's BasicRNNBlock adds one input by default."""
    blocks = {"0": {"block_type": "LSTM"}, "1": {"block_type": "LSTM", "skip": 0}}
    state = {f"layers.block_{k}.rec.{name}": array.tolist()
             for k in (1, 2) for name, array in tensors().items()}  # fmt: skip
    model = {"model_data": {"model": "RecNet", "skip": 0}, "blocks": blocks, "state_dict": state}
    (tmp_path / "a.json").write_text(json.dumps(model))
    found = rl.load(tmp_path / "a.json")
    assert list(found) == ["layers.block_1.rec", "layers.block_2.rec"]
    assert [note[:21] for note in found.notes] == ["skip=1: block 0 adds "]


def test_a_state_dict_in_objects_is_converted_whole(tmp_path):
    """Without the object "state_dict"; one of a convolution has three axes."""
    lstm = torch.nn.LSTM(3, 2, 2, bidirectional=True)
    rnn = {name: tensor.tolist() for name, tensor in lstm.state_dict().items()}
    conv = np.arange(12.0).reshape(2, 3, 2)
    model = {"encoder": {"conv.weight": conv.tolist(), "rnn": rnn}, "words": ["a"], "epoch": 3}
    (tmp_path / "a.json").write_text(json.dumps(model))
    done = rl.convert_file(tmp_path / "a.json", tmp_path / "a.npz", to="torch")
    assert rl.load(tmp_path / "a.npz")["encoder.rnn"] == rl.Weights(lstm)
    with np.load(tmp_path / "a.npz") as arrays:
        assert np.array_equal(arrays["encoder.conv.weight"], conv.astype("f4"))
    assert done.left_out == ("epoch", "words")


def test_a_new_file_was_refused_as_only_read(tmp_path, monkeypatch):
    """Followed literally, the message writes the weights into a model."""
    monkeypatch.chdir(tmp_path)
    old, new = SimpleRNN("LSTM").save(tmp_path / "a.json"), torch.nn.LSTM(*SIZES["LSTM"])
    old.rename("MODEL.state_dict.json")
    weights = rl.Weights(new)
    rl.save("IN.npz", weights)
    with pytest.raises(rl.FileError, match="needs the description of a network") as caught:
        rl.save("n.state_dict.json", weights)
    words = re.search(r"rnnlayout convert IN (.*)", caught.value.text)[1].split()
    assert words == ["n.state_dict.json", "--into", "MODEL.state_dict.json"]
    command("convert", "IN.npz", *words)
    assert rl.pack(rl.load("n.state_dict.json")["rec"]).tobytes() == rl.pack(weights).tobytes()
