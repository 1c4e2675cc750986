"""--no-mmap: each command that reads a file reads it without mapping it into memory."""

import mmap

import numpy as np
import pytest
from oracles.some import normal_weights

import rnnlayout as rl

COMMANDS = {
    "inspect": ["inspect", "a.safetensors"],
    "convert": ["convert", "a.safetensors", "new.npz", "--to", "onnx"],
    "convert, into": ["convert", "a.safetensors", "new.msgpack", "--into", "a.msgpack"],
    "verify": ["verify", "a.safetensors", "a.msgpack"],
    "diagnose": ["diagnose", "flat.npy", "--like", "a.safetensors"],
    "diagnose, .bin": ["diagnose", "flat.bin", "--like", "a.safetensors"],
    "diagnose, tensors": ["diagnose", "a.msgpack", "--like", "a.safetensors"],
    "identify": ["identify", "a.safetensors", "--input", "x.npy", "--output", "y.npy"],
    "identify, .npy": ["identify", "flat.npy", "--input", "x.npy", "--output", "y.npy"],
    "map": ["map", "a.safetensors", "--to", "onnx"],
    "run": ["run", "a.safetensors", "--input", "x.npy", "--output", "new.npy"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_nothing_is_mapped(command, rnnlayout, tmp_path, monkeypatch):
    weights = rl.Weights(normal_weights("torch", rl.Spec("lstm", 5, 3)))
    for suffix in (".safetensors", ".msgpack"):
        rl.save(tmp_path / f"a{suffix}", {"lstm": weights})
    for suffix in (".npy", ".bin"):
        rl.save(tmp_path / f"flat{suffix}", weights)
    x = np.random.default_rng(0).standard_normal((6, 2, 5)).astype("f4")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", weights.rnn()(x)[0])
    mapped = []

    class Map(mmap.mmap):
        def __new__(cls, *arguments, **more):
            mapped.append(arguments)
            return super().__new__(cls, *arguments, **more)

    monkeypatch.setattr(mmap, "mmap", Map)
    monkeypatch.chdir(tmp_path)
    code, _, words = rnnlayout(*command, "--no-mmap")
    assert (code, mapped) == (0, []), words
    for made in tmp_path.glob("new*"):
        made.unlink()
    assert rnnlayout(*command)[0] == 0 and mapped
