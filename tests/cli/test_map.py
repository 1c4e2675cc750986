"""rnnlayout map, and the pictures that verify and diagnose write."""

import struct

import numpy as np
import pytest
from oracles.some import normal_weights, prefixed
from svgs import check

import rnnlayout as rl

SPEC = rl.Spec("gru", 5, 3)
TEXT = "gru, input_size 5, hidden_size 3"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, **prefixed("enc", normal_weights("torch", SPEC)))
    return path


def test_a_file_in_letters(rnnlayout, file):
    code, out, err = rnnlayout("map", file)
    assert (code, err) == (0, "")
    assert out == f"enc: {TEXT}\n" + str(rl.picture(SPEC, "torch")).partition("\n")[2] + "\n"


def test_a_spec_in_letters(rnnlayout):
    assert rnnlayout("map", TEXT) == (0, f"{rl.picture(SPEC)}\n", "")
    assert rnnlayout("map", TEXT, "--layout", "keras") == (0, f"{rl.picture(SPEC, 'keras')}\n", "")
    code, out, _ = rnnlayout("map", TEXT, "--layout", "keras", "--to", "onnx")
    assert (code, out) == (0, f"{rl.picture(SPEC, 'keras', 'onnx')}\n")
    assert out.endswith(rl.explain(SPEC, "keras", "onnx").partition("\n")[2] + "\n")


def test_colours_and_width_are_the_terminals(rnnlayout, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert rnnlayout("map", TEXT)[1] == rl.picture(SPEC).text(79, colours=True) + "\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert rnnlayout("map", TEXT)[1] == f"{rl.picture(SPEC)}\n"


def test_files_are_written(rnnlayout, file, tmp_path):
    out = tmp_path / "a.svg", tmp_path / "a.png"
    code, said, told = rnnlayout("map", file, "--to", "cudnn", "--width", 500, "--svg", out[0],
                                 "--png", out[1])  # fmt: skip
    assert (code, said) == (0, "")
    assert told == f"{out[0]}: written\n{out[1]}: written\n"
    assert len(check(out[0].read_text()).blocks) == 2 * 12
    assert out[1].read_bytes()[16:20] == struct.pack(">I", 1000)
    assert rnnlayout("map", TEXT, "--svg", out[0], "--force")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["gru"], 2, "'gru' is not a file; as a spec: 'gru': need input_size and hidden_size"),
        (["gru, input_size 5, hiden_size 3"], 2, "'hiden_size 3': need"),
        ([TEXT, "--layout", "haiku"], 4, "haiku has no reset-after GRU"),
        ([TEXT, "--to", "haiku"], 4, "haiku has no reset-after GRU"),
        ([TEXT, "--width", "100"], 2, "'100': need a number from 240 to 4000"),
        (["nothing.pt"], 3, "nothing.pt does not exist"),
        (["nothing, here.pt"], 2, "is not a file"),
    ],
)
def test_what_is_refused(rnnlayout, arguments, code, said):
    found, out, err = rnnlayout("map", *arguments)
    assert (found, out) == (code, "") and said in err and "Traceback" not in err


def test_what_cannot_be_read_is_named(rnnlayout, tmp_path):
    """Of a GRU without biases the arrays of ONNX do not show where the reset gate acts."""
    spec = rl.Spec("gru", 5, 3, bias=False)
    unclear = rl.convert(normal_weights("torch", spec), to="onnx")
    both = {f"a/{name}": array for name, array in unclear.items()}
    np.savez(tmp_path / "one.npz", **both)
    code, out, err = rnnlayout("map", tmp_path / "one.npz")
    assert (code, out) == (3, "") and "--reset" in err
    both |= prefixed("b", normal_weights("torch", SPEC))
    np.savez(tmp_path / "two.npz", **both)
    code, out, err = rnnlayout("map", tmp_path / "two.npz")
    assert code == 0 and out.startswith("b: gru") and "a: not drawn: " in err and "--reset" in err
    assert rnnlayout("map", tmp_path / "two.npz", "--reset", "after")[2] == ""


def test_verify_and_diagnose_draw_the_difference(rnnlayout, file, tmp_path):
    right, picture = rl.load(file)["enc"], tmp_path / "d.svg"
    other = {name: array.copy() for name, array in right.items()}
    other["weight_hh_l0"][3:6] += 1
    np.savez(tmp_path / "b.npz", **prefixed("enc", other))
    flat = right.pack()
    flat[:45] = flat[:45].reshape(3, 15)[[0, 2, 1]].reshape(-1)
    np.save(tmp_path / "b.npy", flat)
    for command, differ in (
        (["verify", file, tmp_path / "b.npz"], ["layer 0, R of gate z"]),
        (["diagnose", tmp_path / "b.npy", "--like", file],
         ["layer 0, W of gate z", "layer 0, W of gate n"]),
    ):  # fmt: skip
        code, _, told = rnnlayout(*command, "--svg", picture, "--force")
        assert (code, told) == (1, f"{picture}: written\n")
        blocks = [block.words for block in check(picture.read_text()).blocks]
        assert [words.partition(":")[0] for words in blocks if " differ" in words] == differ
