"""convert: its messages, what it writes, what it leaves unchanged."""

import io
import math
import os
import pickle
import re

import numpy as np
import pytest
from oracles.some import normal_weights, prefixed, same_bits
from safetensors.numpy import load_file, save_file

import rnnlayout as rl

SPEC = rl.Spec("lstm", 3, 2)
TORCH = normal_weights("torch", SPEC)
OTHERS = {"embedding": np.arange(5), "out.weight": np.ones((2, 2), "f2")}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("lstm.npz", **prefixed("enc", TORCH), **OTHERS)
    return tmp_path


def test_it_says_what_it_does_and_does_it(rnnlayout, folder):
    told = "enc: rounds: 8 sums of two non-zero biases\n"
    arguments = ["convert", "lstm.npz", "keras.safetensors", "--to", "keras"]
    assert rnnlayout(*arguments, "--dry-run") == (
        0, "", told + "keras.safetensors: nothing written\n",
    )  # fmt: skip
    assert os.listdir() == ["lstm.npz"]
    assert rnnlayout(*arguments) == (0, "", told + "keras.safetensors: written\n")
    found = load_file("keras.safetensors")
    wanted = prefixed("enc", rl.convert(TORCH, to="keras")) | OTHERS
    assert found.keys() == wanted.keys() and same_bits({k: found[k] for k in wanted}, wanted)


def test_what_is_left_out_and_what_is_exact(rnnlayout, folder):
    code, out, err = rnnlayout("convert", "lstm.npz", "flat.bin", "--to", "cudnn", "--prefix=enc")
    assert (code, out) == (0, "")
    assert err == "enc: exact\nleft out: embedding, out.weight\nflat.bin: written\n"
    assert (folder / "flat.bin").read_bytes() == rl.pack(TORCH).tobytes()


@pytest.mark.parametrize("count, more", [(10, ""), (13, " and 3 more")])
def test_ten_names_of_what_is_left_out(rnnlayout, folder, count, more):
    others = [f"other{k:02}" for k in range(count)]
    np.savez("many.npz", **prefixed("enc", TORCH), **dict.fromkeys(others, OTHERS["embedding"]))
    code, _, err = rnnlayout("convert", "many.npz", "flat.bin", "--to", "cudnn", "--prefix=enc")
    assert code == 0 and f"\nleft out: {', '.join(others[:10])}{more}\n" in err


@pytest.mark.parametrize(
    "more, code, said",
    [
        (["--to", "keras", "--exact"], 4, "would be rounded"),
        (["--to", "cudnn", "--dtype", "float16", "--exact"], 4, "float16"),
        (["--to", "keras-cudnn", "--prefix", "nix"], 3, "nix"),
        (["--into", "nix.npz"], 3, "nix.npz does not exist"),
        (["--into", "gru.npz"], 3, "two different RNNs"),
        (["--into", "many.npz"], 3, "pair them with --map enc=a"),
        (["--into", "many.npz", "--map", "enc=c"], 3, "b has no RNN 'c', it has a, b"),
        (["--into", "model.pkl"], 3, "weights cannot be put into a .pkl file"),
        (["--to", "torch", "--only", "end"], 3, "--only takes enc; did you mean 'enc'?"),
        (["--into", "lstm.safetensors"], 3, "needs the same suffix, .safetensors"),
    ],
)
def test_refused_and_nothing_written(rnnlayout, folder, more, code, said):
    np.savez("gru.npz", **normal_weights("torch", rl.Spec("gru", 3, 2)))
    np.savez("many.npz", **prefixed("a", TORCH), **prefixed("b", TORCH))
    save_file(TORCH, "lstm.safetensors")
    rl.save("model.h5", rl.Weights(TORCH).to("keras"))
    (folder / "model.pkl").write_bytes(pickle.dumps(TORCH, 4))
    before = sorted(os.listdir())
    for extra in ([], ["--dry-run"]):
        found, out, err = rnnlayout("convert", "lstm.npz", "out.npz", *more, *extra)
        assert (found, out) == (code, "") and said in err, err
        assert sorted(os.listdir()) == before


def test_into_a_model(rnnlayout, folder):
    """Each RNN gets the layout that it has in the model; the rest is unchanged."""
    model = prefixed("dec", rl.convert(TORCH, to="keras")) | prefixed("gru", normal_weights(
        "torch", rl.Spec("gru", 3, 2))) | OTHERS  # fmt: skip
    save_file(model, "model.safetensors")
    new = prefixed("dec", rl.convert(normal_weights("torch", SPEC, 5), to="onnx"))
    np.savez("new.npz", **new, **prefixed("more", TORCH))
    arguments = ["convert", "new.npz", "out.safetensors", "--into", "model.safetensors"]
    told = (
        "dec: rounds: 8 sums of two non-zero biases\n"
        "note: the file lacks Keras's config: activation tanh, recurrent activation sigmoid,"
        " go_backwards=False assumed; for others pass --activation, --recurrent-activation or set"
        " weights.config in Python\n"
        "note: gru of model.safetensors is unchanged\nleft out: more\n"
    )
    assert rnnlayout(*arguments, "--dry-run")[2] == f"{told}out.safetensors: nothing written\n"
    assert rnnlayout(*arguments) == (0, "", f"{told}out.safetensors: written\n")
    found = load_file("out.safetensors")
    wanted = rl.convert({k.removeprefix("dec."): v for k, v in new.items()}, to="keras")
    assert found.keys() == model.keys()
    assert all(same_bits(found[k], wanted.get(k.removeprefix("dec."), model[k])) for k in model)


class Tty(io.StringIO):
    """Stderr on a terminal."""

    def isatty(self):
        return True


def test_progress_is_for_who_waits(folder, monkeypatch):
    from rnnlayout._cli import main as _cli, terminal

    for after, shown in ((math.inf, False), (-1, True)):
        screen = Tty()
        monkeypatch.setattr(terminal, "_AFTER", after)
        monkeypatch.setattr(terminal, "_EVERY", math.inf)  # a line is not soon written again
        monkeypatch.setattr("sys.stderr", screen)
        arguments = ["convert", "lstm.npz", "o.safetensors", "--to", "onnx", "--force"]
        assert _cli.main(arguments) == 0
        said = screen.getvalue()
        lines = re.findall(r"\rconverting +\d+ %  \d+ of \d+ MB", said)
        assert len(lines) == shown, said
        assert not shown or f"\r{' ' * (len(lines[-1]) - 1)}\renc: exact\n" in said
