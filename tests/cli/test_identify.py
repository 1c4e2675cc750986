"""rnnlayout identify: the report, --save, and what it refuses."""

import numpy as np
import pytest
from oracles.some import normal_weights, prefixed

import rnnlayout as rl


@pytest.fixture
def folder(tmp_path):
    """Tensors of torch without their names, and what they make of x, from a state and without."""
    weights = normal_weights("torch", rl.Spec("gru", 3, 2))
    rng = np.random.default_rng(0)
    x, h_0 = rng.normal(size=(6, 4, 3)).astype("f4"), rng.normal(size=(1, 4, 2)).astype("f4")
    np.savez(tmp_path / "arrays.npz", *weights.values())
    np.savez(tmp_path / "two.npz", **prefixed("a", weights), **prefixed("b", weights))
    rl.save(tmp_path / "m.onnx", rl.Weights(weights).to("onnx"))
    np.save(tmp_path / "flat.npy", rl.pack(weights))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "h.npy", h_0)
    np.save(tmp_path / "y.npy", rl.forward(x, weights)[0])
    np.save(tmp_path / "from_h.npy", rl.forward(x, weights, state=h_0)[0])
    return tmp_path


def arguments(folder, file, y="y.npy", *more):
    return ["identify", folder / file, "--input", folder / "x.npy", "--output", folder / y, *more]


@pytest.mark.parametrize("file", ["arrays.npz", "two.npz", "flat.npy", "m.onnx"])
def test_the_report(rnnlayout, folder, file):
    code, out, err = rnnlayout(*arguments(folder, file))
    assert (code, err) == (0, "") and out.startswith("gru in layout ")
    under = ", under 'a'" if file == "two.npz" else ""
    assert f"reset after, sigmoid{under}, x is (T, N, I): agrees with y to" in out


def test_the_state_that_y_begins_from(rnnlayout, folder):
    from_h = arguments(folder, "two.npz", "from_h.npy")
    assert rnnlayout(*from_h)[0] == 1
    assert rnnlayout(*from_h, "--state", folder / "h.npy")[0] == 0


def test_what_was_found_is_saved(rnnlayout, folder):
    new = folder / "new.safetensors"
    code, _, err = rnnlayout(*arguments(folder, "arrays.npz", "from_h.npy", "--save", new))
    assert (code, err) == (1, "") and not new.exists()
    code, _, err = rnnlayout(*arguments(folder, "arrays.npz", "y.npy", "--save", new))
    assert code == 0 and err == f"{new}: written\n"
    (weights,) = rl.load(new).values()
    y = weights.rnn()(np.load(folder / "x.npy"))[0]
    assert np.abs(y - np.load(folder / "y.npy")).max() < 1e-6


def test_a_file_whose_name_does_not_show_its_format(rnnlayout, folder):
    """It was refused: "give the file that suffix"."""
    (folder / "m.onnx").rename(folder / "w.pt")
    command = arguments(folder, "w.pt")
    for format, code in ((), 3), (("--format", "onnx"), 0), (("--format", "h5"), 3):
        found, _, err = rnnlayout(*command, *format)
        assert found == code and ("w.pt" in err) == bool(code)
    (folder / "w.data").write_bytes(b"?")
    assert "if it is one, pass --format" in rnnlayout(*arguments(folder, "w.data"))[2]
    with pytest.raises(rl.SpecError, match=r"^format is for a file, not for a list: omit format=$"):
        rl.identify([np.ones(3)], np.ones((2, 1)), np.ones((2, 1)), format="npz")


@pytest.mark.parametrize(
    "file, more, code, said",
    [
        ("arrays.npz", ["--save", "new.txt"], 2, "unknown format"),
        ("arrays.npz", ["--save", "h.npy", "--state", "h.npy", "--force"], 3, "is the input"),
        ("arrays.npz", ["--state", "h.npy", "h.npy", "h.npy"], 2, "--state takes one file, or two"),
        ("two.npz", ["--prefix", "c"], 3, "no tensors are under 'c'"),
        ("x.npy", ["--prefix", "c"], 3, "omit --prefix"),
        ("none.npz", [], 3, "does not exist"),
    ],
)
def test_what_is_refused(rnnlayout, folder, monkeypatch, file, more, code, said):
    monkeypatch.chdir(folder)
    found, _, err = rnnlayout(*arguments(folder, file, "y.npy", *more))
    assert found == code and said in err and "Traceback" not in err


def test_a_hint_speaks_of_options(rnnlayout, folder):
    y = np.load(folder / "y.npy")
    np.save(folder / "noisy.npy", y + 1e-3 * np.random.default_rng(0).random(y.shape, "f4"))
    code, out, _ = rnnlayout(*arguments(folder, "arrays.npz", "noisy.npy"))
    assert code == 1 and "pass --atol, such as 0.01" in out
    assert rnnlayout(*arguments(folder, "arrays.npz", "noisy.npy", "--atol", "0.01"))[0] == 0
