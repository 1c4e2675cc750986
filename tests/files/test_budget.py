"""The budget of a file: each limit of the table ends the reading of some file, with the numbers."""

import re
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from files.hostile import onnxes
from files.hostile.good import LAYOUTS, beside, good
from files.hostile.growth import write_product
from files.hostile.test_hostile import CASES

import rnnlayout as rl
from rnnlayout._files.tensor_sets import file_limits
from rnnlayout._files.tensor_sets.file_limits import LIMITS, Budget

EXCEEDS = {  # kind -> a hostile file that exceeds this limit
    "unpacked": "zip, a member that is a bomb.npz",
    "arrays": "arrays again, 4800.pdparams",
    "weights": "a group of many layers, used 500 times.keras",
    "uses": "layers of zeros, used 500 times.npz",
    "names": "graphs, 4800.onnx",
    "tensors": "very many tensors.index",
    "metadata": "a description of 20 MB.bin",
    "headers": "long headers, 4800.npz",
    "structures": "texts again, 4800.h5",
    "texts": "names that all lie in one place.h5",
    "copied": "pickle, a text that is copied 4,000 times, bare.pt",
    "steps": "uses of a chain, 480.onnx",
    "computed": "ONNX, scales that grow.onnx",
}


@pytest.mark.parametrize("kind", LIMITS)
def test_a_file_that_exceeds_its_budget(kind, tmp_path):
    path = tmp_path / EXCEEDS[kind]
    CASES[path.name].write(path)
    numbers = rf"([\d,]+) {LIMITS[kind].unit}, more than ([\d,]+), the limit for a file of ([\d,]+)"
    with pytest.raises(rl.FileError, match=LIMITS[kind].cause) as refused:
        rl.load(path)
    found = re.search(numbers, str(refused.value))
    used, most, size = (int(number.replace(",", "")) for number in found.groups())
    assert used > most == LIMITS[kind].free + int(LIMITS[kind].times * size)
    assert size >= path.stat().st_size  # and the data beside it


USED = {  # kind -> a file that stores one thing, and uses it n times or n x n times
    "unpacked": "zeros.npz",
    "arrays": "stride 0.pt",
    "weights": "lengths of many nodes.onnx",
    "uses": "layers of zeros.npz",
    "names": "paths in a config.keras",
    "tensors": "packed weights.packed.pt",
    "metadata": "wrappers.keras",
    "headers": "long headers.npz",
    "structures": "spellings.h5",
    "texts": "a layer again.h5",
    "copied": "pairs again.pkl",
    "steps": "outputs of a function.onnx",
    "computed": "inputs of Concat.onnx",
}


@pytest.mark.parametrize("kind", LIMITS)
def test_n_uses_are_charged_n_times(kind, tmp_path, monkeypatch):
    """A limit of 1.7 times the charge of 50 uses refuses 100 uses."""
    charges = []

    def charge(budget, charged_kind, amount):
        charges.extend([amount] * (charged_kind == kind))

    with monkeypatch.context() as patch, suppress(rl.Error):
        patch.setattr(Budget, "charge", charge)
        rl.load(write_product(tmp_path / "50" / USED[kind], 50))
    most = int(1.7 * sum(charges))
    assert most > 0
    limits = {each: replace(limit, free=1 << 60) for each, limit in LIMITS.items()}
    limits[kind] = replace(LIMITS[kind], free=most, times=0)
    monkeypatch.setattr(file_limits, "LIMITS", limits)
    with pytest.raises(rl.FileError, match=f" {LIMITS[kind].unit}, more than {most:,}, "):
        rl.load(write_product(tmp_path / "100" / USED[kind], 100))


@pytest.mark.parametrize("kind", LIMITS)
def test_what_is_charged_adds_up(kind):
    budget, most = Budget("a", 1000), LIMITS[kind].free + int(1000 * LIMITS[kind].times)
    budget.charge(kind, most - 1)
    budget.charge(kind, 1)
    with pytest.raises(rl.FileError, match=f"^a: {most + 1:,} {LIMITS[kind].unit}"):
        budget.charge(kind, 1)


def test_an_archive_of_zeros(tmp_path):
    """As docs/security.md says: 4 MB of weights in a few kilobytes."""
    spec, path = rl.Spec("lstm", 360, 360), tmp_path / "a.npz"
    weights = rl.Weights(np.zeros(spec.num_params, "f4"), spec, "cudnn")
    np.savez_compressed(path, **weights.to("torch").tensors)
    assert path.stat().st_size < 6000 and 4 * spec.num_params > 4_000_000
    with pytest.raises(rl.FileError, match="bytes of weights, more than"):
        rl.load(path)


def tied(path):
    """Two RNNs of 2 MB that are one."""
    tensors = torch.nn.LSTM(256, 256).state_dict()
    names = [(side, name) for side in ("encoder", "decoder") for name in tensors]
    torch.save({f"{side}.{name}": tensors[name] for side, name in names}, path)


def shared(path):
    """Two nodes of ONNX with the same weights, of 2 MB."""
    arrays = {"W": (1, 1024, 256), "R": (1, 1024, 256), "B": (1, 2048)}
    made = onnxes.model_of({name: np.ones(shape, "f4") for name, shape in arrays.items()})
    made.graph.node[0].attribute[0].i = 256
    made.graph.node.append(made.graph.node[0])
    made.graph.node[1].name, made.graph.node[1].output[0] = "again", "Y2"
    path.write_bytes(made.SerializeToString())


def write_good(path):
    path.write_bytes(good("".join(path.suffixes)))
    beside(path)


@pytest.mark.parametrize("write, name", [
    (tied, "tied.pt"), (shared, "shared.onnx"),
    *((write_good, f"a{suffix}") for suffix in LAYOUTS if suffix != ".npy"),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_good_files_take_a_tenth_of_their_budget(write, name, tmp_path, monkeypatch):
    charge, budgets = Budget.charge, {}

    def charged(self, kind, amount):
        budgets[id(self)] = self
        charge(self, kind, amount)

    monkeypatch.setattr(Budget, "charge", charged)
    write(tmp_path / name)
    assert rl.load(tmp_path / name)
    for budget in budgets.values():
        for kind, used in budget._used.items():
            limit = LIMITS[kind]
            assert used <= (limit.free + limit.times * budget.size) / 10, kind
