"""rnnlayout diagnose: the report, --fix, and what it refuses."""

import shlex

import numpy as np
import pytest
from oracles.some import normal_weights

import rnnlayout as rl


@pytest.fixture
def files(tmp_path):
    """The weights, and a buffer with the gates f and g swapped everywhere."""
    like = normal_weights("torch", rl.Spec("lstm", 5, 3))
    rl.save(tmp_path / "like.safetensors", rl.Weights(like))
    swapped = {n: a.reshape(4, 3, -1)[[0, 2, 1, 3]].reshape(a.shape) for n, a in like.items()}
    np.save(tmp_path / "wrong.npy", rl.pack(swapped))
    np.save(tmp_path / "other.npy", rl.pack(normal_weights("torch", rl.Spec("lstm", 5, 3), 1)))
    return tmp_path


def test_the_report_and_the_fix(rnnlayout, files):
    wrong, like, out = files / "wrong.npy", files / "like.safetensors", files / "out.npy"
    code, said, words = rnnlayout("diagnose", wrong, "--like", like, "--fix", out)
    assert code == 1 and words == f"{out}: written\n"
    assert said.splitlines()[0] == "gates f and g swapped"
    right = files / "right-wrong.npy"
    line = said.splitlines()[-1].removeprefix("correct: rnnlayout ")
    assert line == f"convert {like} {right} --to cudnn"
    assert rnnlayout(*line.split())[0] == 0
    assert rnnlayout("diagnose", right, "--like", like)[0] == 0
    assert rnnlayout("diagnose", out, "--like", like) == (0, "the buffer is right\n", "")


def test_what_the_fix_lacks_is_said(rnnlayout, files):
    """Of a sum of two biases, how it was split: a GRU's gate n needs that."""
    like = normal_weights("torch", rl.Spec("gru", 5, 3))
    summed = like | {"bias_ih_l0": like["bias_ih_l0"] + like["bias_hh_l0"],
                     "bias_hh_l0": 0 * like["bias_hh_l0"]}  # fmt: skip
    rl.save(files / "gru.npz", rl.Weights(like))
    np.save(files / "summed.npy", rl.pack(summed))
    out = files / "out.npy"
    code, said, words = rnnlayout(
        "diagnose", files / "summed.npy", "--like", files / "gru.npz", "--fix", out
    )
    assert code == 1 and "\ncannot be restored: how " in said
    assert words == f"{out}: written, without what cannot be restored\n"


def test_other_weights_are_not_repaired(rnnlayout, files):
    other, like, out = files / "other.npy", files / "like.safetensors", files / "out.npy"
    code, said, _ = rnnlayout("diagnose", other, "--like", like)
    assert code == 1 and said.startswith("none of the 2 matrices was found")
    code, _, words = rnnlayout("diagnose", other, "--like", like, "--fix", out)
    assert code == 3 and "cannot be repaired" in words and not out.exists()
    assert rnnlayout("diagnose", other, "--like", like, "--fix", files / "out.txt")[0] == 2


def test_a_file_of_tensors_is_repaired_as_it_was_given(rnnlayout, files):
    """With its other tensors, under its own names; and the command to paste does the same."""
    like = files / "like.safetensors"
    tensors = dict(rl.load(like)["lstm"].to("keras"))
    tensors["kernel"] = tensors["kernel"].reshape(5, 4, 3)[:, [0, 2, 1, 3]].reshape(5, 12)
    wrong, out = files / "my model.npz", files / "out.npz"
    np.savez(wrong, head=np.ones(3, "f4"), **{f"enc/{name}": x for name, x in tensors.items()})
    code, said, words = rnnlayout("diagnose", wrong, "--like", like, "--fix", out)
    assert code == 1 and words == f"{out}: written\n"
    assert "  kernel (layer 0, input matrix): gates i g f o\n" in said
    line = said.splitlines()[-1].removeprefix("correct: rnnlayout ")
    assert rnnlayout(*shlex.split(line))[0] == 0
    for made in (out, files / "right-my model.npz"):
        assert {*np.load(made)} >= {"head", "enc/kernel"}
        assert rnnlayout("verify", made, like)[0] == 0


def test_hints_are_in_the_command_to_paste(rnnlayout, files):
    gru = normal_weights("onnx", rl.Spec("gru", 5, 3))
    np.savez(files / "gru.npz", **{f"a.{name}": x for name, x in gru.items()})
    right = rl.Weights(gru, reset="after").pack()
    np.save(files / "zeros.npy", 0 * right)
    said = rnnlayout("diagnose", files / "zeros.npy", "--like", files / "gru.npz", "--prefix", "a",
                     "--reset", "after")[1]  # fmt: skip
    line = said.splitlines()[-1].removeprefix("correct: rnnlayout ")
    assert line.endswith("right-zeros.npy --to cudnn --prefix a --reset after")
    assert rnnlayout(*line.split())[0] == 0
    assert np.load(files / "right-zeros.npy").tobytes() == right.tobytes()
