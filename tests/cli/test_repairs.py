"""Each repair that an error prints works where it is printed: its options are given, literally."""

import re
import shlex

import numpy as np
import pytest
from cli.files import LSTM, SPEC
from oracles.some import normal_weights, prefixed

import rnnlayout as rl

OPTION = re.compile(
    r'--(?:spec|layout|only) "[^"]+"|--(?:cell|reset|only|map) [\w.=]+|--only(?=:)|--prefix'
)


def two(layout, spec):
    return prefixed("a", normal_weights(layout, spec)) | prefixed("b", normal_weights(layout, spec))


FILES = {
    "a GRU in onnx": normal_weights("onnx", rl.Spec("gru", 3, 2)),
    "two of them": two("onnx", rl.Spec("gru", 3, 2)),
    "tanh or relu": normal_weights("torch", rl.Spec("rnn_relu", 3, 2)),
    "two of these": two("torch", rl.Spec("rnn_relu", 3, 2)),
    "one of them beside an LSTM": prefixed("x", normal_weights("torch", rl.Spec("rnn_relu", 3, 2)))
    | prefixed("y", LSTM),
    "the textbook": normal_weights("concat", rl.Spec("gru", 3, 2)),
}
COMMANDS = {
    "inspect": ["inspect", "m.npz"],
    "convert": ["convert", "m.npz", "new.npz", "--to", "onnx", "--force"],
    "into": ["convert", "m.npz", "new.npz", "--into", "m.npz", "--force"],
    "verify": ["verify", "m.npz", "m.npz"],
    "run": ["run", "m.npz", "--input", "x.npy", "--output", "y.npy", "--force"],
}


def walk(rnnlayout, command, steps=3):
    """Run a command, and again with each repair it prints, until it succeeds.

    Where the message leaves a name to the user, it is one of those that it lists.
    """
    code, out, err = rnnlayout(*command)
    told = list(dict.fromkeys(OPTION.findall(out + err)))
    assert bool(told) == bool(code) and steps >= 0, (command, out + err)
    for repair in told:
        option = shlex.split(repair)
        if len(option) == 1:
            listed = re.search(rf"{repair}(?:: |.*? one of )'?(\w+)", out + err)
            assert listed, (repair, err)
            option.append(listed[1])
        walk(rnnlayout, [*command, *option], steps - 1)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("file", FILES)
def test_repairs_work(rnnlayout, folder, file, command):
    np.savez("m.npz", **FILES[file])
    walk(rnnlayout, COMMANDS[command])


@pytest.mark.parametrize("command", ["inspect", "convert", "verify", "run"])
def test_arrays_without_names(rnnlayout, folder, command):
    """A list of arrays, a weight space: what only the user knows."""
    np.savez("list.npz", *normal_weights("keras", SPEC).values())
    np.savez("flat.npz", w=rl.pack(LSTM))
    for file, known, missing in (
        ("list.npz", [], ["--layout", "keras"]),
        ("flat.npz", ["--layout", "cudnn"], ["--spec", str(SPEC)]),
    ):
        words = [file if word == "m.npz" else word for word in COMMANDS[command]] + known
        code, _, err = rnnlayout(*words)
        assert code == 3 and f"pass {missing[0]}" in err
        assert rnnlayout(*words, *missing)[0] == 0
    np.savez("m.npz", **LSTM)
    assert "omit --layout" in rnnlayout("inspect", "m.npz", "--layout", "keras")[2]


SINGLE = "can store one RNN, found 'a', 'b': choose one with --prefix"


@pytest.mark.parametrize(
    "line, said",
    [
        ("convert two.npz new.c", SINGLE),
        ("convert two.npz new.npy --to cudnn", SINGLE),
        ("convert two.npz new.bin --to cudnn", SINGLE),
        ("inspect flat.npy", "does not record its RNN: pass --spec, which describes it"),
        ("run flat.npy --input x.npy --output new.npy", "pass --spec, which describes it"),
        ("inspect model.json", "read the file that has them, and pass this one as --keras-config"),
        ("verify lstm.npz wide.npz --json", "with equal values: to ignore the dtypes pass --rtol"),
        ("convert keras.npz new.npz --to torch --json", "pass --activation, --recurrent-"),
        ("inspect gru.npz --reset before --cell lstm", "an RNN with cell 'lstm', reset 'before'"),
        (f'inspect lstm.npz --spec "{SPEC.replace(dtype="float64")}"',
         "pass dtype='float64' in Python to convert, or --spec"),
    ],
)  # fmt: skip
def test_what_was_written_as_in_python(rnnlayout, folder, line, said):
    """What an f-string took was a text of Python's, and so were notes and reports in JSON."""
    rl.save("wide.npz", rl.Weights(LSTM, dtype="float64"))
    np.savez("keras.npz", **normal_weights("keras", SPEC))
    np.savez("gru.npz", **FILES["a GRU in onnx"])
    (folder / "model.json").write_text('{"class_name": "Sequential", "config": {}}')
    _, out, err = rnnlayout(line)
    assert said in out + err


def test_one_reason_is_said_once(rnnlayout, folder):
    np.savez("m.npz", **FILES["one of them beside an LSTM"])
    code, out, _ = rnnlayout("verify", "m.npz", "m.npz")
    assert code == 1 and out.count("pass --cell rnn_tanh") == 1
    assert "\na: x, b: x: cannot be read: these tensors do not show" in out


@pytest.fixture
def misnamed(folder):
    """Files whose names show no format, or a wrong one; RNNs of one spec."""
    for name in ("wrong.h5", "wrong.onnx"):
        (folder / name).write_bytes((folder / "lstm.npz").read_bytes())
    rl.pack(LSTM).tofile("unknown")


@pytest.mark.parametrize("files", [["wrong.h5", "lstm.npz"], ["lstm.npz", "wrong.h5"]])
def test_verify_takes_the_format_that_it_asks_for(rnnlayout, misnamed, files):
    code, _, err = rnnlayout("verify", *files)
    assert code == 3 and "pass --format npz" in err
    assert rnnlayout("verify", *files, "--format", "npz") == (0, "lstm: equal\n", "")


def test_a_model_has_the_format_of_its_name(rnnlayout, misnamed):
    """--format is that of IN."""
    for model, repair in (("wrong.onnx", "rename it to wrong.npz\n"), ("unknown", "suffix\n")):
        code, _, err = rnnlayout("convert", "lstm.npz", "new.onnx", "--into", model)
        assert code == 3 and "format=" not in err and "--format" not in err
        assert err.endswith(repair)
