"""The command line: usage, exit codes, what goes to which stream, and what is never printed."""

import contextlib
import errno
import io
import json
import os
import re
import shlex
import subprocess
import sys
import weakref
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from cli.files import LSTM
from commands import run
from dialects import ASKED, arguments_of_python
from oracles.some import prefixed

import rnnlayout as rl
from rnnlayout._cli import main as _cli, options as _commands, terminal as _terminal
from rnnlayout._cli.commands import doctor as _doctor
from rnnlayout._cli.options import DTYPES
from rnnlayout._model.dtypes import FLOATS
from rnnlayout._model.errors import Ask, asks_written_by, write_in_python

PROGRAM = [sys.executable, "-P", "-m", "rnnlayout"]
ESCAPES = "a\x1b[31mb\x07\x9b2J\u202e\u2066\n\r\u2028\x7f\ud800"


class Tty(io.StringIO):
    """A terminal, of which only what was written to it is of interest."""

    def isatty(self):
        return True


# ---------------------------------------------------------------------------------------- usage


def test_nothing_asked_for_and_the_version(rnnlayout):
    code, out, err = rnnlayout()
    assert (code, out) == (2, "")
    assert err.startswith("usage: rnnlayout") and all(name in err for name in _commands.COMMANDS)
    assert rnnlayout("-V") == rnnlayout("--version") == (0, f"rnnlayout {rl.__version__}\n", "")
    assert DTYPES == FLOATS  # a copy: --help may not import NumPy


@pytest.mark.parametrize("command", [[], *([name] for name in _commands.COMMANDS)])
def test_help_has_examples_that_work_and_fits_a_terminal(rnnlayout, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = rnnlayout(*command, "--help")
    assert (code, err) == (0, "") and max(map(len, out.splitlines())) <= 80
    examples = out.partition("examples:\n")[2].split("\n\n")[0].splitlines()
    assert examples
    for example in examples:
        name, *arguments = shlex.split(example)
        assert name == "rnnlayout"
        if command:  # the parser accepts what users copy
            assert [_cli.make_parser().parse_args(arguments).command] == command


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["inspekt"], "did you mean 'inspect'? (choose from "),
        (["inspect", "a.npz", "--jsn"], "unrecognized arguments: --jsn; did you mean '--json'?"),
        (["inspect", "a.npz", "--cell", "LSTN"], "did you mean 'lstm'?"),
        (["inspect"], "required: FILE"),
        (["identify", "a.npz", "--output", "y.npy"], "required: --input"),
        (["identify", "a.npz", "--input", "x.npy"], "required: --output"),
        (["convert", "a.npz", "b.npz"], "may have several layouts: choose one with --to"),
        (["convert", "a.npz", "b.npz", "--to", "torhc"], "did you mean 'torch'?"),
        (["convert", "a.npz", "b.npz", "-to", "torch"], "did you mean '--to'?"),
        (["map", "lstm 8 16"], 'need the form "lstm, input_size 8, hidden_size 16"'),
        (["convert", "a.npz", "b.npz", "--into", "c.npz", "--map", "a"], "need two names"),
        (["convert", "a.npz", "b.npz", "--to", "torch", "--stack", "a"], "need names, as in"),
        (["convert", "a.npz", "b.keras", "--to", "torch"], "pass --to keras, or give OUT another"),
        (["convert", "a.npz", "b.h5", "--to", "onnx"], "pass --to keras or --to keras-cudnn, or"),
        (["convert", "a.npz", "b.bin", "--to", "onnx"], "pass --to cudnn, or give OUT another"),
        (["convert", "a.npz", "b.kears", "--to", "onnx"], "did you mean '.keras'? Files are"),
        (["convert", "a.npz", "b.npz", "--to", "concat(z"], "is not the name of a layout"),
        (["convert", "a.npz", "b.npz", "--to", "concat(z=up)"], "z"),
        (["convert", "a.npz", "b.npz", "--to", "torch", "--dtype", "int8"], "invalid choice"),
        (["inspect", "a.npz", "--spec", "lstm"], 'need the form "lstm, input_size'),
        (["inspect", "a.npz", "--spec", "lstm, input_size x"], "input_size is 'x', need a number"),
        (["inspect", "a.npz", "--spec", "lstm, layers 2"], "mean 'num_layers'? Need, once each"),
        (["inspect", "a.npz", "--spec", "lstm, units 3"], "'units 3': need, once each, fields"),
        (["inspect", "a.npz", "--spec", "lstn, input_size 3, hidden_size 2"], "'lstm'? Need"),
        (["inspect", "a.npz", "--format", "npy_"], "did you mean 'npy'? Need one of"),
        (["inspect", "a.npz", "--spec", "gru, bidirectional 7"], "need true or false"),
        (["verify", "a.npz", "b.npz", "--rtol", "-1"], "need a number, 0 or greater"),
        (["verify", "a.npz", "b.npz", "--atol", "x"], "'x': need a number, 0 or greater"),
        (["inspect", "a", "--format", "txt"], "txt"),
        (["run", "a.npz", "--input", "x.npy"], "required: --output"),
        (["run", "a.npz", "--input", "x.npy", "--output", "y.npy", "--lengths", "1,a"], "7,5,2"),
        (["--completion", "tcsh"], "invalid choice"),
    ],
)
def test_wrong_usage(rnnlayout, arguments, said):
    code, out, err = rnnlayout(*arguments)
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert err.startswith("error: ") and said in err
    assert re.search(r"\(see rnnlayout.* --help\)$", err)


def test_a_spec_and_a_layout_are_typed_as_they_are_printed():
    for spec in (
        rl.Spec("gru", 3, 2, 4, bidirectional=True, reset="before", dtype="float16"),
        rl.Spec("lstm", 5, 4, proj_size=2, bias="none"),
        rl.Spec("rnn_relu", 4, 4, skip_input=True, recurrent_activation="sigmoid"),
    ):
        assert _commands.parse_spec(str(spec)) == spec
        assert _commands.parse_spec(re.sub(r"(\w) (\w+)", r"\1=\2", str(spec))) == spec
    for layout in (rl.layout("torch"), rl.layout("concat", inputs="xh", z="candidate")):
        assert _commands.parse_layout(str(layout)) == layout
        assert _commands.parse_layout(str(layout).replace(" ", "")) == layout


# ------------------------------------------------------------------------------------ exit codes


@pytest.mark.parametrize(
    "error, code, said",
    [
        (rl.FileError("a.h5 is cut short"), 3, "a.h5 is cut short"),
        (rl.LossyError("no place for a bias"), 4, "no place for a bias"),
        (rl.MissingExtraError("needs h5py: pip install"), 5, "needs h5py: pip install"),
        (rl.CudnnNotFoundError("no cuDNN\n  packages: none"), 5, "no cuDNN\n    packages: none"),
        (MemoryError(), 5, "there is not enough memory"),
        (PermissionError(errno.EACCES, "Permission denied", "a.h5"), 3, "a.h5: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), 3, "No space left on device"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "u\udcff"), 3,
         "u\\udcff: Is a directory"),
        (ValueError(f"a name {ESCAPES}"), 70, None),
        (KeyboardInterrupt(), 130, ""),
    ],
)  # fmt: skip
def test_errors_are_words_and_a_code(rnnlayout, monkeypatch, error, code, said):
    def fails():
        raise error

    monkeypatch.setattr(_doctor, "examine_machine", fails)
    monkeypatch.delenv("RNNLAYOUT_DEBUG", raising=False)
    assert rnnlayout("doctor")[:2] == (code, "")
    _, _, err = rnnlayout("doctor")
    assert "Traceback" not in err
    if said is not None:
        assert err == (said and f"error: {said}\n")
    else:
        kind = type(error).__name__
        assert err.startswith(f"error: this is a bug in rnnlayout, please report: {kind}: ")
    monkeypatch.setenv("RNNLAYOUT_DEBUG", "1")
    assert ("Traceback" in rnnlayout("doctor")[2]) == (code == 70)


def test_memory_that_had_ended_ended_again_in_the_message(rnnlayout, monkeypatch):
    """The error kept the frames of the command, with everything that filled the memory."""

    class Content:
        pass

    def fails():
        content = Content()
        contents.append(weakref.ref(content))
        try:
            raise LookupError
        except LookupError:
            raise MemoryError from None

    contents = []
    monkeypatch.setattr(_doctor, "examine_machine", fails)
    text = _commands.error_text
    monkeypatch.setattr(_commands, "error_text", lambda error: f"{text(error)} {contents[0]()}")
    assert rnnlayout("doctor") == (5, "", "error: there is not enough memory None\n")


@pytest.mark.parametrize(
    "command, ask, said",
    [
        ("inspect", Ask("prefix"), "--prefix"),
        ("inspect", Ask("prefix", "a b"), '--prefix "a b"'),
        ("inspect", Ask("prefix", "a.b/c"), "--prefix a.b/c"),
        ("inspect", Ask("prefix", "$(rm x)"), "--prefix '$(rm x)'"),
        ("inspect", Ask("spec", None), "--spec"),
        ("inspect", Ask("spec", rl.Spec("gru", 3, 2), ("reset",)),
         '--spec "gru, input_size 3, hidden_size 2, reset after"'),
        ("inspect", Ask("layout", rl.layout("torch")), "--layout torch"),
        ("inspect", Ask("layout", rl.layout("concat", inputs="hx", z="state")),
         '--layout "concat(inputs=hx, z=state)"'),
        ("inspect", Ask("as_class", {"A": "LSTM", "B b": "GRU"}),
         '--as-class A=LSTM --as-class "B b=GRU"'),
        ("convert", Ask("force", True), "--force"),
        ("convert", Ask("only", ["a", "b c"]), '--only a --only "b c"'),
        ("verify", Ask("dtype", "float16"), "dtype='float16' in Python"),
        ("doctor", Ask("reset"), "reset= in Python"),
    ],
)  # fmt: skip
def test_an_argument_that_is_asked_for_is_an_option_of_the_command(command, ask, said):
    error = rl.SpecError("it has cell='lstm': pass ", ask, ", or don't")
    with as_options_of(command):
        assert str(error) == f"it has cell='lstm': pass {said}, or don't"
    assert str(error) == f"it has cell='lstm': pass {write_in_python(ask)}, or don't"
    assert error.asks == ((ask.name, ask.value),)


VALUES = (..., None, True, 0.1, "gru", "a b", ["a", "b c"], {"A": "LSTM"}, rl.Spec("gru", 3, 2),
          rl.layout("torch"), rl.layout("concat", inputs="hx"))  # fmt: skip


@pytest.mark.parametrize("command", _commands.COMMANDS)
def test_all_that_texts_ask_for(command):
    """An option that the command has, or an argument that is said to be Python's."""
    known = vars(as_parsed(command))
    assert (len(ASKED) > 20 and command in ("doctor", "layouts")) or {*ASKED} & {*known}
    for name in ASKED:
        for value in VALUES:
            ask = Ask(name, value)
            with as_options_of(command):
                text = str(rl.Error("pass ", ask))
            if name in known:
                assert text.startswith(f"pass --{name.replace('_', '-')}") and "rl." not in text
                assert not arguments_of_python(text)
            else:
                assert text == f"pass {write_in_python(ask)} in Python"
            assert str(rl.Error(ask)).startswith(f"{name}=") and "--" not in str(rl.Error(ask))


def as_parsed(command):
    """Return the options of a command."""
    words = {"convert": "a b --to torch", "verify": "a b", "inspect": "a", "map": "a",
             "diagnose": "a --like b", "run": "a --input x --output y",
             "identify": "a --input x --output y"}  # fmt: skip
    return _cli.make_parser().parse_args([command, *words.get(command, "").split()])


def as_options_of(command):
    """Write what texts ask for as a command does."""
    return asks_written_by(partial(_commands.write_as_option, as_parsed(command)))


def test_no_name_is_an_order_to_the_terminal(rnnlayout, folder):
    """Neither of a file, nor in it."""
    for name in ("\x1b[2J.npz", "\u202e.npz", "\udcff.npz", "a\nb.npz"):
        code, out, err = rnnlayout("inspect", folder / name)
        assert (code, out) == (3, "") and len(name.encode("unicode_escape")) <= len(err)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\udc80-\udcff]", err)
    shown = _terminal.printable(ESCAPES)
    assert shown.isascii() and shown.isprintable() and shown.startswith("a\\x1b[31mb\\x07\\x9b2J")
    wild = "a\x1b[31mb\u202e"
    np.savez("m.npz", **prefixed(wild, LSTM), **prefixed("plain", LSTM))
    code, out, err = rnnlayout("inspect m.npz")
    assert (code, err) == (0, "") and "\na\\x1b[31mb\\u202e\n" in f"\n{out}"
    code, out, err = rnnlayout("inspect m.npz --json")
    assert (code, err) == (0, "") and out.isascii() and "\x1b" not in out
    assert wild in [entry["name"] for entry in json.loads(out)["files"][0]["entries"]]
    code, out, err = rnnlayout("run m.npz --input x.npy --output new.npy")
    assert (code, out) == (3, "") and "--only: a\\x1b[31mb\\u202e, plain" in err


# -------------------------------------------------------------------- streams, colours, the shell


def test_streams_that_take_nothing(folder):
    """A reader that stops early, a full disk, and streams that the caller has closed."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as early, open("/dev/full", "w") as full:
        for stream, code, said in (
            (early, 0, b""), (full, 3, b"error: No space left on device\n")
        ):  # fmt: skip
            done = subprocess.run(
                [*PROGRAM, "layouts"], stdout=stream, stderr=subprocess.PIPE, check=False
            )
            assert (done.returncode, done.stderr) == (code, said)
        differ = [*PROGRAM, "verify", "lstm.npz", "two.npz"]  # it was 0: head -1 has what it needs
        assert subprocess.run(differ, stdout=early, check=False).returncode == 1
        done = subprocess.run([*PROGRAM, "inspect", "none"], stderr=full, check=False)
        assert done.returncode == 3  # it stays
    closed, new = ["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *PROGRAM], "b.npz"
    convert = ["convert", "lstm.npz", new, "--to", "cudnn"]
    for arguments, code in ((["inspect", "lstm.npz"], 0), (convert, 0), (["inspect", "none"], 3)):
        assert subprocess.run([*closed, *arguments], check=False).returncode == code, arguments
    assert rl.verify("lstm.npz", new)


def test_help_needs_neither_numpy_nor_the_library():
    program = """
import sys
from rnnlayout._cli import main as _cli
try:
    _cli.main(["convert", "--help"])
except SystemExit:
    pass
print([name for name in sys.modules if name.startswith(("numpy", "rnnlayout._native"))])
"""
    assert run([sys.executable, "-P", "-c", program]).splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["doctor", "inspect", "--version"])
def test_a_broken_numpy_is_named(tmp_path, command):
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy/__init__.py").write_text("raise ImportError('no libopenblas\\nmore')")
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    arguments = [command, "a.npz"] if command == "inspect" else [command]
    done = subprocess.run([*PROGRAM, *arguments], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr == (
        "error: NumPy cannot be imported: no libopenblas\n"
        'hint: python -m pip install --force-reinstall "numpy>=1.26"\n'
    )


def test_labels_are_coloured_on_a_terminal(rnnlayout, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("FORCE_COLOR", "1")
    for command in (["inspect", tmp_path / "nix.npz"], ["inspekt"]):
        assert "\x1b[1;31merror:\x1b[0m " in rnnlayout(*command)[2]
    _terminal.print_error("no cuDNN\nhint: pip install it")
    assert "\n\x1b[1;36mhint:\x1b[0m pip install it\n" in capsys.readouterr().err
    monkeypatch.delenv("FORCE_COLOR")
    _terminal.print_error("no cuDNN\nhere: none\nhint: pip install it")
    assert capsys.readouterr().err == "error: no cuDNN\n  here: none\nhint: pip install it\n"


@pytest.mark.parametrize(
    "tty, variables, colours",
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (False, {"FORCE_COLOR": "1"}, True),
        (True, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (True, {"TERM": "xterm"}, True),
    ],
)
def test_colours(monkeypatch, tty, variables, colours):
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stream = SimpleNamespace(isatty=lambda: tty)
    assert _terminal.bold_text("lstm", stream) == ("\x1b[1mlstm\x1b[0m" if colours else "lstm")


def test_forty_columns(rnnlayout, folder, monkeypatch):
    np.savez("b.npz", **{name: array + 1 for name, array in LSTM.items()})
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")

    def on_a_terminal(*arguments):
        """Return the lines that a command prints on a terminal of 40 columns."""
        screen = Tty()
        with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
            _cli.main([*arguments])
        return screen.getvalue().splitlines()

    for command in ("inspect lstm.npz", "inspect nix.npz", "verify lstm.npz b.npz",
                    "convert lstm.npz o.npz --to keras --dry-run"):  # fmt: skip
        out, lines = "".join(rnnlayout(*command.split())[1:]), on_a_terminal(*command.split())
        assert "\n".join(lines).split() == out.split()
        assert [line for line in lines if len(line) > 40 and len(line.split()) > 1] == []
    lines = "\n".join(on_a_terminal("inspect", "lstm.npz"))
    assert "  sizes        input 3, hidden 2, layers\n               1, directions 1\n" in lines
    lines = on_a_terminal("layouts")
    assert "onnx\n  lstm        iofg\n  gru         zrn\n" in "\n".join(lines)
    assert max(map(len, lines)) <= 40


def test_shells_complete(rnnlayout, tmp_path, monkeypatch):
    (tmp_path / "model.h5").touch()
    script = rnnlayout("--completion", "bash")[1]

    def completed(*words):
        """Return what bash offers after these words."""
        words = f"""COMP_WORDS=({" ".join(words)} "") COMP_CWORD={len(words)}; _shtab_rnnlayout"""
        program = f"""{script}\n{words}\nprintf '%s\\n' "${{COMPREPLY[@]}}" """
        return run(["bash", "-c", program], cwd=tmp_path).split()

    assert set(_commands.COMMANDS) <= set(completed("rnnlayout"))
    assert "model.h5" in completed("rnnlayout", "inspect")
    assert set(rl.layouts()) <= set(completed("rnnlayout", "convert", "a.h5", "b.h5", "--to"))
    for shell, said in (("zsh", "#compdef rnnlayout"), ("fish", "complete -c rnnlayout")):
        code, out, err = rnnlayout("--completion", shell)
        assert (code, err) == (0, "") and said in out and "keras-cudnn" in out
    monkeypatch.setitem(sys.modules, "shtab", None)
    code, out, err = rnnlayout("--completion", "bash")
    assert (code, out) == (5, "") and 'pip install "rnnlayout[completion]"' in err


# -------------------------------------------------------------------------------------- commands


def test_inspect_several(rnnlayout, folder):
    """The text of one: docs/command-line.md."""
    missing, one = "error: nix.npz does not exist\n", rnnlayout("inspect lstm.npz")[1]
    twice = f"lstm.npz:\n\n{one}\nlstm.npz:\n\n{one}"
    assert rnnlayout("inspect lstm.npz nix.npz lstm.npz") == (3, twice, missing)
    assert rnnlayout("inspect lstm.npz lstm.npz")[1] == twice
    code, out, err = rnnlayout("inspect lstm.npz nix.npz --json")
    assert (code, err) == (3, missing)
    first, second = json.loads(out)["files"]
    assert first["file"] == "lstm.npz" and first["entries"] and second["file"] == "nix.npz"
    assert second["failed"]["error"] == "FileNotFoundError"


def test_layouts(rnnlayout):
    code, out, err = rnnlayout("layouts")
    assert (code, err) == (0, "")
    assert re.search(r"^onnx +iofg +zrn +yes +after, before +- +framework$", out, re.MULTILINE)
    assert max(map(len, out.splitlines())) <= 80
    assert all(re.search(rf"^{name} ", out, re.MULTILINE) for name in rl.layouts())
    assert "mxnet is another name of cudnn\n" in out
    assert out.startswith("layout ")
    words = " ".join(out.split())
    options = [option for info in rl.layouts().values() for option in info["options"].values()]
    for value, note in [pair for option in options for pair in option.items()]:
        assert f" {value} {note}" in words
