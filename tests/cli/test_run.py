"""run: RNNs in files run on arrays in files, as their framework runs them."""

import os

import numpy as np
import pytest
import torch
from oracles.frameworks import KERAS_NOISE, keras
from oracles.some import normal_weights

import rnnlayout as rl

SPEC = rl.Spec("lstm", 3, 2, 2, True)
TORCH = normal_weights("torch", SPEC)
X = np.random.default_rng(7).normal(size=(5, 4, 3)).astype("f4")
# Sums of at most 5 + 2 products of numbers around 1, five steps on: some units of the last place
# of numbers up to 8, half of which is 2^-22.
NEAR = dict(rtol=0, atol=16 * 2.0**-22)


@pytest.fixture
def folder(tmp_path):
    np.savez(tmp_path / "m.npz", **TORCH)
    np.save(tmp_path / "x.npy", X)
    return tmp_path


def arguments(folder, **names):
    files = {"input": "x.npy", "output": "y.npy"} | names
    told = [part for key, name in files.items() for part in (f"--{key}", folder / name)]
    return ["run", folder / "m.npz", *told]


def test_it_runs(rnnlayout, folder):
    y, (h_n, c_n) = rl.forward(X, TORCH)
    code, out, err = rnnlayout(*arguments(folder, states="s.npz"))
    assert (code, out) == (0, "")
    assert err == f"lstm: {SPEC}, on cpu: y (5, 4, 4)\n"
    assert np.array_equal(np.load(folder / "y.npy"), y)
    states = np.load(folder / "s.npz")
    assert np.array_equal(states["h_n"], h_n) and np.array_equal(states["c_n"], c_n)


def test_it_says_what_inspect_says(rnnlayout, folder):
    """The settings that it applied, and the notes of the file."""
    model = torch.nn.utils.parametrizations.weight_norm(torch.nn.GRU(3, 2), "weight_hh_l0")
    torch.save(model.state_dict(), folder / "m.pt")
    code, _, err = rnnlayout("run", folder / "m.pt", *arguments(folder)[2:])
    assert code == 0 and "\nnote: weight_hh_l0: weight norm" in err
    weights = rl.load(folder / "m.npz")["lstm"]
    weights.config = {"go_backwards": True, "merge_mode": "sum"}
    rl.save(folder / "m.npz", weights)
    code, _, err = rnnlayout(*arguments(folder), "--force")
    assert code == 0 and err.endswith("lstm: used with go_backwards=True, merge_mode='sum'\n")


def test_x_is_rounded_only_if_dtype_says_so(rnnlayout, folder):
    for x in (X.astype("f8"), np.asfortranarray(X.astype("f2")), np.arange(60).reshape(5, 4, 3)):
        np.save(folder / "x.npy", x)
        assert rnnlayout(*arguments(folder), "--force")[0] == 0
        assert np.array_equal(np.load(folder / "y.npy"), rl.forward(x.astype("f4"), TORCH)[0])
    x = np.nextafter(X.astype("f8"), 10)
    np.save(folder / "x.npy", x)
    code, _, err = rnnlayout(*arguments(folder), "--force")
    assert code == 3 and "cannot represent every value of it" in err
    repair = err.strip().rpartition("pass ")[2].split()
    assert rnnlayout(*arguments(folder), *repair, "--force")[0] == 0
    assert np.array_equal(np.load(folder / "y.npy"), rl.forward(X, TORCH)[0])
    assert rnnlayout(*arguments(folder), "--dtype", "float64", "--force")[0] == 0
    double = rl.Weights(TORCH, dtype="float64")
    assert np.array_equal(np.load(folder / "y.npy"), rl.forward(x, double)[0])


def test_options(rnnlayout, folder):
    np.save(folder / "x.npy", X.swapaxes(0, 1).astype(">f4"))
    y, _ = rl.forward(X, TORCH, lengths=[5, 0, 3, 1])
    more = ["--batch-first", "--lengths", "5,0,3,1", "--device", "auto", "--only", "lstm"]
    assert rnnlayout(*arguments(folder), *more)[0] == 0
    assert np.array_equal(np.load(folder / "y.npy"), y.swapaxes(0, 1))


@pytest.mark.parametrize(
    "change, code, said",
    [
        (["--device", "cuda:99"], 5, "cuda:99"),
        (["--device", "gpu"], 2, "device is 'gpu', need 'cpu', 'cuda', 'cuda:N' or 'auto'"),
        (["--lengths", "9,9,9,9"], 3, "lengths"),
        (["--only", "gru"], 3, "no RNN is named 'gru': --only takes lstm"),
        (["--output", "y.npz"], 2, "y.npz: the name must end in .npy"),
        (["--states", "s.npy"], 2, "s.npy: the name must end in .npz"),
        (["--input", "nix.npy"], 3, "nix.npy does not exist"),
        (["--input", "object.npy"], 3, "Python objects"),
        (["--input", "short.npy"], 3, "cut short"),
        (["--input", "whole.npy"], 3, "x is complex64"),
    ],
)
def test_what_cannot_be_run(rnnlayout, folder, monkeypatch, change, code, said):
    monkeypatch.chdir(folder)
    np.save("object.npy", np.array([{}]), allow_pickle=True)
    np.save("whole.npy", np.ones(X.shape, "c8"))
    header = {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 4, 3)}
    with open("short.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
    before = sorted(os.listdir())
    found, out, err = rnnlayout(*arguments(folder), *change)
    assert (found, out) == (code, "") and said in err, err
    assert sorted(os.listdir()) == before


@KERAS_NOISE
def test_the_settings_and_axes_of_the_file_are_applied(rnnlayout, folder):
    layer = keras.layers.GRU(2, go_backwards=True, return_sequences=True, return_state=True)
    y, h_n = layer(X)
    keras.Sequential([keras.layers.Input(X.shape[1:]), layer]).save(folder / "m.keras")
    command = arguments(folder, states="s.npz")
    command[1] = folder / "m.keras"
    assert rnnlayout(*command)[0] == 0  # the file is batch first
    np.testing.assert_allclose(np.load(folder / "y.npy"), keras.ops.convert_to_numpy(y), **NEAR)
    np.testing.assert_allclose(
        np.load(folder / "s.npz")["h_n"][0], keras.ops.convert_to_numpy(h_n), **NEAR
    )
    first = np.load(folder / "y.npy")
    np.save(folder / "x.npy", X.swapaxes(0, 1))
    assert rnnlayout(*command, "--time-first", "--force")[0] == 0
    assert np.array_equal(np.load(folder / "y.npy").swapaxes(0, 1), first)
