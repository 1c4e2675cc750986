"""The commands print what the pages show."""

import os
import re
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import torch
from commands import ROOT
from files.keras import old_models as old
from flax import serialization
from marks import download

import rnnlayout as rl

DATA = ROOT / "examples" / "data"
CI_PAGE = ROOT / "docs" / "howto" / "verify-in-ci.md"
CONSOLE = re.compile(r"^```console\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
SHOWN = {
    str(page.relative_to(ROOT)): "".join(CONSOLE.findall(page.read_text()))
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files that the pages name."""
    folder = tmp_path_factory.mktemp("pages")
    lstm = {name: np.ones(shape, "f4")
            for name, shape in rl.describe(rl.Spec("lstm", 3, 2), "torch").items()}  # fmt: skip
    np.savez(folder / "lstm.npz", **lstm)
    lstm["weight_hh_l0"][2, 1] = 2
    np.savez(folder / "other.npz", **lstm)
    rng = np.random.default_rng(0)
    trained = {name: rng.normal(size=array.shape).astype("f4") for name, array in lstm.items()}
    np.savez(folder / "trained.npz", **trained)
    order = np.concatenate([np.arange(2 * k, 2 * k + 2) for k in (0, 1, 3, 2)])  # i f o g
    packed = [trained[name][order] for name in lstm]
    np.save(folder / "packed.npy", np.concatenate([array.T.ravel() for array in packed]))
    order = np.concatenate([np.arange(2 * k, 2 * k + 2) for k in (3, 0, 2, 1)])  # o i g f
    np.savez(folder / "arrays.npz", *[array[order].T for array in trained.values()])
    x = rng.normal(size=(5, 4, 3)).astype("f4")
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", rl.forward(x, trained)[0])
    parts = {"encoder": torch.nn.GRU(8, 16, 2), "head": torch.nn.Linear(16, 3)}
    torch.save(torch.nn.ModuleDict(parts).state_dict(), folder / "model.pt")
    save_for_flax(folder, trained)
    parts = {"encoder": torch.nn.GRU(8, 16), "head": torch.nn.Linear(16, 3)}
    torch.save(torch.nn.ModuleDict(parts).state_dict(), folder / "yours.pt")
    rl.save(folder / "model.onnx", rl.Weights(torch.nn.GRU(8, 16)).to("onnx"))
    keras.Sequential([
        keras.Input((None, 8)), keras.layers.GRU(16, return_sequences=True, name="gru_1"),
        keras.layers.GRU(16, name="gru_2"), keras.layers.Dense(3),
    ]).save(folder / "yours.keras")  # fmt: skip
    shutil.copytree(DATA, folder / "examples" / "data")
    shutil.copy(ROOT / "examples" / "published.py", folder / "examples")
    shutil.copy(DATA / "old.h5", folder)
    gru = old.CUDNN.GRU(5, name="gru")
    old.Sequential([old.Input((4, 3)), gru, old.Dense(2)]).save(folder / "old.keras")
    return folder


def save_for_flax(folder, trained):
    """Write an encoder of torch and a model of Flax with one of the same sizes."""
    zero = {"bias_hh_l0": np.zeros(8, "f4")}  # Flax has one bias per gate: nothing is rounded
    parts = {f"encoder.{name}": torch.tensor(a) for name, a in (trained | zero).items()}
    torch.save(parts, folder / "torch.pt")
    params = {}
    for name, shape in rl.describe(rl.Spec("lstm", 3, 2), "flax-linen").items():
        part, leaf = name.split("/")
        params.setdefault(part, {})[leaf] = np.zeros(shape, "f4")
    model = serialization.to_bytes({"params": {"encoder": params, "head": np.ones(3, "f4")}})
    (folder / "model.msgpack").write_bytes(model)


PAGES = [
    download(page) if "pip download" in shown else page for page, shown in SHOWN.items() if shown
]
SHELL = """
rnnlayout() { "$PYTHON" -P -m rnnlayout "$@"; }
python() { "$PYTHON" "$@" 2>/dev/null; }
pip() { "$PYTHON" -m pip "$@" 2>/dev/null; }
"""


@pytest.mark.parametrize("page", PAGES)
def test_page_shows_what_is_printed(page, folder, tmp_path):
    """One shell runs all commands of a page, with the files that it names, and compares what they
    print.
    """
    named = set(re.findall(r"[\w./-]+", (ROOT / page).read_text()))
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if path.is_file() and named & {str(name), str(name.parent)}:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, tmp_path / name)
    shown = SHOWN[page]
    commands = [line[2:] for line in shown.splitlines() if line.startswith("$ ")]
    script = [SHELL]
    for command in commands:
        script += [f"echo '$ {command}'", command]
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)], text=True, check=True, cwd=tmp_path,
        env=os.environ | {"PYTHON": sys.executable},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.stdout == shown


def test_the_pages_that_people_search_for_have_their_command():
    for page in ("torch-to-cudnn", "cudnn-layers-to-keras3", "torch-and-keras", "onnx-to-torch"):
        assert "$ rnnlayout convert" in SHOWN[f"docs/howto/{page}.md"], page


def test_the_commands_in_yaml_are_those_that_the_page_runs():
    yaml = "".join(re.findall(r"^```yaml\n(.*?)^```\n", CI_PAGE.read_text(), re.M | re.S))
    commands = re.findall(r"(?:entry|run): (rnnlayout .*)", yaml)
    assert len(commands) == 2
    assert all(f"$ {command}\n" in SHOWN["docs/howto/verify-in-ci.md"] for command in commands)
