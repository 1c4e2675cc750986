"""The price list: whatever a file lets be used n times is charged n times, and its limit refuses
it. What these charges buy in seconds and bytes: test_uses.py."""

from contextlib import suppress
from dataclasses import replace

import pytest
from files.hostile.growth import write_product

import rnnlayout as rl
from rnnlayout._files.tensor_sets import file_limits
from rnnlayout._files.tensor_sets.file_limits import LIMITS, Budget, BudgetError

# A file of each unit that has one thing, and uses it n times or n x n times.
USED = {
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
N = 50


def test_each_unit_has_a_file():
    assert USED.keys() == LIMITS.keys()


@pytest.mark.parametrize("kind, name", USED.items())
def test_n_uses_are_charged_n_times(kind, name, tmp_path, monkeypatch):
    """A limit of 1.7 times the charge of n uses refuses 2 n, and names the unit."""
    charges = []

    def charge(budget, charged_kind, amount):
        charges.extend([amount] * (charged_kind == kind))

    with monkeypatch.context() as patch, suppress(rl.Error):
        patch.setattr(Budget, "charge", charge)
        rl.load(write_product(tmp_path / "n" / name, N))
    most = int(1.7 * sum(charges))
    assert most > 0
    limits = {each: replace(limit, free=1 << 60) for each, limit in LIMITS.items()}
    limits[kind] = replace(LIMITS[kind], free=most, times=0)
    monkeypatch.setattr(file_limits, "LIMITS", limits)
    with pytest.raises(BudgetError, match=f" {LIMITS[kind].unit}, more than {most:,}, "):
        rl.load(write_product(tmp_path / "2n" / name, 2 * N))
