"""Cases of hints about options. A function yields a command, and then does what it says."""

import re
import shlex
from pathlib import Path

import numpy as np
from hints.following import GRU, LSTM, command, tensors, two, write_model_with_head

import rnnlayout as rl

CONVERT = ("convert", "w.npz", "n.npz", "--force")
RUN = ("run", "w.npz", "--input", "x.npy", "--output", "y.npy", "--force")


def told(text, option):
    """Return the arguments of an option, each time that a message has it."""
    found = re.findall(rf"""{option}(?: (?:"[^"]*"|'[^']*'|[^\s"'-][^\s,;]*))?""", text)
    assert found, text
    return [shlex.split(one) for one in dict.fromkeys(found)]


def options_that_need_others():
    np.savez("w.npz", **two())
    yield lambda: command(*CONVERT, "--into", "w.npz", "--dtype", "float16")
    command(*CONVERT, "--to", "torch", "--dtype", "float16")
    yield lambda: command(*CONVERT, "--to", "torch", "--map", "enc=dec")
    command(*CONVERT, "--into", "w.npz", "--map", "enc=dec")
    command(*CONVERT, "--to", "torch", "--only", "enc")
    rl.save("w.json", rl.Weights(tensors(), layout="torch").to("keras"))
    yield lambda: command(*CONVERT[:2], "n.json", "--to", "keras", "--head", "lin")
    write_model_with_head("m.json")
    np.savez("w.npz", **tensors(prefix="rec."), **{"lin.weight": np.ones((1, 7), "f4")})
    head = (*CONVERT[:2], "n.json", "--force", "--into", "m.json", "--head", "lin")
    command(*head)


def options_of_pairs():
    np.savez("w.npz", **two())
    yield lambda: command("verify", "w.npz", "w.npz", "--map", "enc")
    command(*CONVERT, "--into", "w.npz", "--map", "enc=dec")
    yield lambda: command("inspect", "w.npz", "--layout", "concat(hx)")
    np.savez("w.npz", **tensors(layout=rl.layout("concat", inputs="hx")))
    command("inspect", "w.npz", "--layout", "concat(inputs=hx)")
    rl.save("w.keras", rl.Weights(tensors(layout="keras")))
    yield lambda: command("inspect", "w.keras", "--as-class", "Own")


def a_row_of_your_own():
    np.savez("w.npz", W=np.ones((5, 12)), U=np.ones((3, 12)))
    text = yield lambda: command("inspect", "w.npz")
    (row,) = re.findall(r"--layout '(\{.*\})'", " ".join(text.split()))
    command("inspect", "w.npz", "--layout", row)
    Path("mine.json").write_text(row)
    command("inspect", "w.npz", "--layout", "mine.json")


def one_rnn_of_several():
    np.savez("w.npz", **two())
    np.save("x.npy", np.full((4, 3, 5), 0.1))
    text = yield lambda: command(*RUN)
    one = (*RUN, "--only", re.search(r"--only: (\w+)", text)[1])
    text = yield lambda: command(*one)
    for option in told(text, "--dtype"):
        command(*one, *option)
    text = yield lambda: command("inspect", "w.npz", "--spec", str(LSTM))
    prefix = re.search(r"with --prefix, for example one of '(\w+)'", text)[1]
    command("inspect", "w.npz", "--spec", str(LSTM), "--prefix", prefix)
    text = yield lambda: command("diagnose", "w.npz", "--like", "w.npz")
    assert "(enc, dec)" in text and "choose it with --prefix" in text
    command("diagnose", "w.npz", "--like", "w.npz", "--prefix", "enc")


def what_a_file_does_not_record():
    rl.save("w.npz", rl.Weights(tensors()))
    yield lambda: command("convert", "w.npz", "w2.npz", "--to", "keras", "--only", "rnn")
    command("convert", "w.npz", "w2.npz", "--to", "keras", "--only", "lstm")
    text = yield lambda: command("convert", "w.npz", "w2.npz", "--to", "torch")
    assert "already exists: pass --force" in text
    command("convert", "w.npz", "w2.npz", "--to", "torch", "--force")


def what_a_comparison_needs():
    rl.save("a.npz", {"x": rl.Weights(tensors()), "y": rl.Weights(tensors(GRU))})
    rl.save("b.npz", {"z": rl.Weights(tensors()), "y": rl.Weights(tensors(GRU))})
    text = yield lambda: command("verify", "a.npz", "b.npz")
    command("verify", "a.npz", "b.npz", *told(text, "--map")[0])
    for dtype, tolerance in (("float64", "1e-12"), ("float16", "1e-3")):
        rnns = {"x": rl.Weights(tensors(), dtype=dtype), "y": rl.Weights(tensors(GRU))}
        rl.save("b.npz", rnns)
        yield lambda: command("verify", "a.npz", "b.npz")
        command("verify", "a.npz", "b.npz", "--rtol", tolerance)


def a_layout_that_a_format_cannot_have():
    np.savez("w.npz", **tensors())
    yield lambda: command("convert", "w.npz", "n.c", "--to", "keras")
    command("convert", "w.npz", "n.c")
