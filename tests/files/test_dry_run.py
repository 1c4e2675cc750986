"""A dry run writes nothing, not even for a moment, and finds the errors that a conversion finds."""

import os
import sys

import keras
import numpy as np
import pytest
import torch
from oracles.frameworks import (
    KERAS_NOISE,
    H,
    I,
    fill_keras,
    onnx_model,
    onnx_tensors,
    seeded,
    torch_module,
)

import rnnlayout as rl
from rnnlayout._files.formats.registry import writable_suffixes

pytestmark = KERAS_NOISE
SPEC = rl.Spec("lstm", I, H)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
KERAS = (".keras", ".h5", ".hdf5", ".weights.h5", ".json")
TO = {".onnx": "onnx", ".c": "the forward pass", **dict.fromkeys(KERAS, "keras")}
SOURCES = ["a.keras", "a.h5", "a.pt", "a.npz", "a.safetensors", "a.onnx"]
WRITTEN = writable_suffixes()
opened = []  # what was opened to be written
watching = []


def watch(event, arguments):
    if watching and event == "open":
        path, _, flags = arguments
        if flags & WRITING and not str(path).startswith("/proc/self/fd/"):
            opened.append((path, flags))


sys.addaudithook(watch)  # which cannot be removed


@pytest.fixture
def watched():
    watching.append(1)
    yield opened
    watching.clear()
    opened.clear()


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Whole models, and files with other tensors too: what conversions rewrite."""
    folder = tmp_path_factory.mktemp("sources")
    layers = [keras.layers.LSTM(H, name="lstm"), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((None, I)), *layers])
    fill_keras(layers, seeded("dry"))
    model.save(folder / "a.keras")
    model.save(folder / "a.h5")
    state = torch.nn.ModuleDict({"lstm": torch_module(SPEC, seeded("dry"))}).state_dict()
    torch.save({"epoch": 1, "state_dict": state}, folder / "a.pt")
    np.savez(folder / "a.npz", other=np.ones(3), **{k: v.numpy() for k, v in state.items()})
    rl.save(folder / "a.safetensors", rl.load(folder / "a.pt"))
    (folder / "a.onnx").write_bytes(onnx_model(onnx_tensors(SPEC, seeded("dry")), SPEC)
                                    .SerializeToString())  # fmt: skip
    return folder


@pytest.mark.parametrize(
    "source, suffix",
    [(source, suffix) for k, suffix in enumerate(WRITTEN)
     for source in (SOURCES[k % 6], SOURCES[(k + 1) % 6], f"a{suffix}") if source in SOURCES],
)  # fmt: skip
def test_a_dry_run_opens_nothing_to_write(source, suffix, sources, tmp_path, watched):
    target, to = tmp_path / f"new{suffix}", TO.get(suffix, "cudnn")
    dry = rl.convert_file(sources / source, target, to=to, dry_run=True)
    assert watched == [] and not list(tmp_path.iterdir())
    done = rl.convert_file(sources / source, target, to=to)
    assert watched and target.exists()
    assert dry == done


@pytest.mark.parametrize("target", ["none/new.keras", "new.h5"])
def test_a_folder_that_cannot_be_written_to(target, sources, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(rl.FileError, match=r"cannot be written: (No such file|Permission denied)"):
        rl.convert_file(sources / "a.h5", tmp_path / target, to="keras", dry_run=True)
