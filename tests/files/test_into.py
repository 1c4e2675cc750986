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
