"""Files whose tensors are gradients, `convert --kind`; the states of optimizers, in `inspect`."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from cli.files import LSTM

import rnnlayout as rl

KINDS = ("gradient", "squared_gradient")
GRADIENTS = {name: np.abs(array) for name, array in LSTM.items()}
# both biases of torch have the gradient of their sum
GRADIENTS["bias_hh_l0"] = GRADIENTS["bias_ih_l0"]


@pytest.fixture
def gradients(folder):
    np.savez("g.npz", **GRADIENTS, step=np.float32(3))
    torch.save({name: torch.from_numpy(array) for name, array in GRADIENTS.items()}, "g.pt")
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", ["g.npz", "g.pt"])
@pytest.mark.parametrize("target", ["new.npz", "new.pt", "new.safetensors", "new.msgpack"])
def test_convert_with_a_kind(source, target, kind, gradients, rnnlayout):
    code, _, err = rnnlayout("convert", source, target, "--to", "keras", "--kind", kind)
    assert code == 0 and "lstm: exact" in err
    (weights,) = rl.load(target).values()
    expected = rl.convert(GRADIENTS, to="keras", kind=kind)
    assert weights.kind == kind and [*weights] == [*expected]
    for name, array in expected.items():
        assert weights[name].tobytes() == array.tobytes()
    # as weights the biases would be summed
    assert np.array_equal(weights["bias"], GRADIENTS["bias_ih_l0"])


def test_the_result_keeps_its_kind(gradients, rnnlayout):
    rnnlayout("convert", "g.pt", "k.pt", "--to", "torch", "--kind", "gradient")
    code, _, err = rnnlayout("convert", "k.pt", "b.npz", "--to", "keras")
    assert code == 3 and "is of kind 'gradient', need 'weights': convert it with --kind" in err
    code, _, err = rnnlayout("convert", "k.pt", "b.npz", "--to", "keras", "--kind", KINDS[1])
    assert code == 3 and "need 'squared_gradient'" in err
    assert rnnlayout("convert", "k.pt", "b.npz", "--to", "keras", "--kind", "gradient")[0] == 0
    code, out, _ = rnnlayout("inspect", "b.npz")
    assert code == 0 and "kind         gradient\n" in out
    (entry,) = json.loads(rnnlayout("inspect", "b.npz", "--json")[1])["files"][0]["entries"]
    assert entry["kind"] == "gradient" and entry["optimizer"] is None
    for command in (
        ("run", "b.npz", "--input", "x.npy", "--output", "n.npy"),
        ("verify", "b.npz", "lstm.npz"),
        ("diagnose", "flat.npy", "--like", "b.npz"),
        ("convert", "lstm.npz", "n.npz", "--into", "b.npz"),
    ):
        code, _, err = rnnlayout(*command)
        assert code == 3 and "gradient" in err, command


def test_what_has_no_gradients_is_refused(gradients, rnnlayout):
    rl.save("w.keras", rl.Weights(LSTM).to("keras"))
    np.savez("norm.npz", **{
        "weight_hh_l0_g": np.ones((8, 1), "f4"), "weight_hh_l0_v": GRADIENTS["weight_hh_l0"],
        **{name: array for name, array in GRADIENTS.items() if name != "weight_hh_l0"},
    })  # fmt: skip
    negative = GRADIENTS | {"weight_ih_l0": -GRADIENTS["weight_ih_l0"]}
    np.savez("negative.npz", **negative)
    kind = ("--kind", "squared_gradient")
    for words, reason, exit_code in (
        (("w.keras", "n.npz", "--to", "torch"), "w.keras: a .keras file has weights", 3),
        (("w.keras", "n.keras", "--to", "keras"), "w.keras: a .keras file has weights", 3),
        (("g.npz", "n.onnx"), "n.onnx: a .onnx file has weights", 3),
        (("g.npz", "n.npz", "--into", "lstm.npz"), "kind cannot be used here, because", 3),
        (("norm.npz", "n.npz", "--to", "torch"), "torch computes weight_hh_l0 from", 3),
        (("negative.npz", "n.npz", "--to", "torch"), "negative", 3),
    ):
        code, _, err = rnnlayout("convert", *words, *kind)
        assert code == exit_code and reason in err, (words, err)
        assert not [*gradients.glob("n.*")]
    with pytest.raises(rl.SpecError, match="kind cannot be used here"):
        rl.convert_file("g.npz", "n.npz", into="lstm.npz", kind="gradient")
    with pytest.raises(rl.SpecError, match="kind is 'squares'"):
        rl.convert_file("g.npz", "n.npz", to="keras", kind="squares")


def test_a_kind_of_which_no_rule_is_known_is_refused(gradients):
    rl.convert_file("g.npz", "k.npz", to="keras", kind="gradient")
    rl.convert_file("k.npz", "k.safetensors", to="keras", kind="gradient")
    data = Path("k.safetensors").read_bytes()
    changed = data.replace(b'\\"kind\\": \\"gradient\\"', b'\\"kind\\": \\"grad____\\"')
    assert changed != data
    Path("k.safetensors").write_bytes(changed)
    with pytest.raises(rl.FileError, match="kind is 'grad____'"):
        rl.load("k.safetensors")


def test_inspect_shows_the_state_of_an_optimizer(folder, rnnlayout):
    model = torch.nn.ModuleDict({"lstm": torch.nn.LSTM(3, 2), "gru": torch.nn.GRU(3, 4)})
    adam = torch.optim.Adam(model["lstm"].parameters())
    model["lstm"](torch.ones(4, 1, 3))[0].sum().backward()
    adam.step()
    torch.save({"model": model.state_dict(), "optimizer": adam.state_dict()}, "c.pt")
    code, out, _ = rnnlayout("inspect", "c.pt")
    assert code == 0 and out.count("optimizer    ") == 1
    assert "optimizer    optimizer: exp_avg, exp_avg_sq; step 1\n" in out
    first, second = json.loads(rnnlayout("inspect", "c.pt", "--json")[1])["files"][0]["entries"]
    slots = ["exp_avg", "exp_avg_sq"]
    facts = {"path": "optimizer", "name": None, "step": 1, "slots": slots, "notes": []}
    assert (first["kind"], first["optimizer"], second["optimizer"]) == ("weights", facts, None)
