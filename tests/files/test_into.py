"""What convert_file(into=) leaves behind, and what stays in the copy."""

import json

import keras
import numpy as np
import pytest
import safetensors.numpy
import torch
from oracles.frameworks import KERAS_NOISE
from oracles.some import normal_weights, prefixed

import rnnlayout as rl
from rnnlayout._cli.main import main
from rnnlayout._model.weights import changed_weights

SPEC = rl.Spec("lstm", 3, 2)
OLD, NEW = (prefixed("rec", normal_weights("torch", SPEC, seed)) for seed in (1, 2))
WORDS = np.arange(12, dtype="f4").reshape(4, 3)


def test_tensors_of_both_files_are_named_unless_they_are_equal(tmp_path):
    model = {**OLD, "lin.weight": np.zeros((1, 2), "f4"), "words": WORDS, "step": np.arange(2)}
    source = {**NEW, "lin.weight": np.ones((1, 2), "f4"), "words": WORDS, "more.weight": WORDS}
    safetensors.numpy.save_file(model, tmp_path / "model.safetensors")
    np.savez(tmp_path / "new.npz", **source, **prefixed("dec", normal_weights("torch", SPEC, 3)))
    out = tmp_path / "out.safetensors"
    done = rl.convert_file(tmp_path / "new.npz", out, into=tmp_path / "model.safetensors")
    assert done.left_out == ("dec", "lin.weight", "more.weight")
    assert done.notes == ("unchanged from model.safetensors: 'lin.weight'",)
    copy = safetensors.numpy.load_file(out)
    assert copy.keys() == model.keys()
    assert all(np.array_equal(copy[name], (NEW if name in NEW else model)[name]) for name in copy)


def test_what_only_and_prefix_do_not_choose_is_left_out(tmp_path):
    np.savez(tmp_path / "m.npz", **OLD)
    np.savez(tmp_path / "new.npz", **NEW, **prefixed("dec", normal_weights("torch", SPEC, 3)))
    for name, choice in (("a", {"only": ["rec"]}), ("b", {"prefix": "rec"})):
        done = rl.convert_file(
            tmp_path / "new.npz", tmp_path / f"{name}.npz", into=tmp_path / "m.npz", **choice
        )
        assert done.left_out == ("dec",)


def test_contents_that_are_not_tensors_are_left_out(tmp_path):
    state = {name: torch.from_numpy(array) for name, array in NEW.items()}
    torch.save({"epoch": 3, "state_dict": state}, tmp_path / "new.ckpt")
    np.savez(tmp_path / "m.npz", **prefixed("state_dict", OLD))
    done = rl.convert_file(tmp_path / "new.ckpt", tmp_path / "a.npz", into=tmp_path / "m.npz")
    assert done.left_out == ("epoch",)


def save_keras_layer(path, name="rec", **settings):
    layer = keras.layers.LSTM(2, name=name, return_sequences=True, **settings)
    keras.Sequential([keras.Input((None, 3)), layer]).save(path)


def save_rnn(path, layout="keras", **config):
    rl.save(path, {"rec": changed_weights(rl.Weights(NEW, prefix="rec").to(layout), config=config)})


@KERAS_NOISE
@pytest.mark.parametrize("setting, model", [
    ({"go_backwards": True}, "m.keras"), ({"go_backwards": True}, "m.h5"),
    ({"clip": 1.0}, "m.onnx"),
])  # fmt: skip
def test_settings_of_the_source_and_of_the_model(setting, model, tmp_path):
    """Each of them was lost without a word: the copy computed something else."""
    paths = {name: tmp_path / f"{name}-{model}" for name in ("with", "without", "out")}
    for path, config in (("with", setting), ("without", {})):
        if model == "m.onnx":
            save_rnn(paths[path], "onnx", **config)
        else:
            save_keras_layer(paths[path], **config)
        save_rnn(tmp_path / f"{path}.npz", "onnx" if model == "m.onnx" else "keras", **config)
    text = rl.load(paths["with"])["rec"].config
    assert text.items() >= setting.items()
    ((key, value),) = setting.items()
    with pytest.raises(rl.LossyError, match=f"rec is used with {key}={value}, and rec of without"):
        rl.convert_file(tmp_path / "with.npz", paths["out"], into=paths["without"])
    assert not paths["out"].exists()
    done = rl.convert_file(tmp_path / "without.npz", paths["out"], into=paths["with"])
    assert done.notes == (
        f"rec of with-{model} is used with {key}={value}, and the source is not: their outputs"
        " differ",
    )
    done = rl.convert_file(tmp_path / "with.npz", paths["out"], into=paths["with"], force=True)
    assert done.notes == ()


class Own(torch.nn.LSTM):
    """A class that no reader knows."""


@KERAS_NOISE
@pytest.mark.filterwarnings("ignore")
def test_an_option_that_only_the_model_needs(tmp_path):
    """as_class did not reach the reading of the model, or was refused by that of the source."""
    torch.save(torch.nn.ModuleDict({"rec": Own(3, 2)}), tmp_path / "m.pt")
    np.savez(tmp_path / "new.npz", **NEW)
    torch.save({name: torch.from_numpy(array) for name, array in NEW.items()}, tmp_path / "new.pt")
    save_keras_layer(tmp_path / "new.keras")
    for source in ("new.npz", "new.pt", "new.keras"):
        call = {"into": tmp_path / "m.pt", "force": True}
        with pytest.raises(rl.Error) as caught:
            rl.convert_file(tmp_path / source, tmp_path / "out.pt", **call)
        ((name, value),) = caught.value.asks
        assert name == "as_class"
        rl.convert_file(tmp_path / source, tmp_path / "out.pt", **call, as_class=value)
        assert rl.verify(tmp_path / "out.pt", tmp_path / source)


@KERAS_NOISE
def test_a_config_that_only_the_model_needs(tmp_path):
    """Its names are those of the config."""
    layer = keras.layers.LSTM(2, name="enc", go_backwards=True)
    model = keras.Sequential([keras.Input((None, 3)), layer])
    model.save_weights(tmp_path / "m.weights.h5")
    save_rnn(tmp_path / "new.npz", go_backwards=True)
    call = {"into": tmp_path / "m.weights.h5", "map": {"rec": "enc"}}
    rl.convert_file(
        tmp_path / "new.npz", tmp_path / "out.weights.h5", **call, keras_config=model.to_json()
    )
    model.load_weights(tmp_path / "out.weights.h5")
    assert rl.verify(layer, rl.load(tmp_path / "new.npz")["rec"])


@KERAS_NOISE
@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_model_of_keras_keeps_its_dense_layer_with_a_note(suffix, tmp_path, capsys):
    layers = [keras.layers.LSTM(2, name="rec"), keras.layers.Dense(1)]
    keras.Sequential([keras.Input((None, 3)), *layers]).save(tmp_path / f"m{suffix}")
    zeros = {name: np.zeros_like(array) for name, array in NEW.items() if "bias_hh" in name}
    np.savez(tmp_path / "new.npz", **NEW | zeros, **{"lin.weight": np.ones((1, 2), "f4")})
    paths = [str(tmp_path / name) for name in ("new.npz", f"out{suffix}", f"m{suffix}")]
    command = ["convert", *paths[:2], "--into", paths[2]]
    assert main([*command, "--dry-run"]) == 0
    said = capsys.readouterr().err
    assert f"note: unchanged from m{suffix}: " in said and "dense" in said
    assert "left out: lin.weight\n" in said
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"] == ["lin.weight"]
