"""How the cases of hints are written: what raises one, and then what it asks for."""

import contextlib
import io
import json
import re
from pathlib import Path

import numpy as np
from dialects import arguments_of_python, options_in
from oracles.some import normal_weights

import rnnlayout as rl
from rnnlayout._cli import main as _cli
from rnnlayout._model.errors import Ask, write_in_python

LSTM = rl.Spec("lstm", 5, 7)
GRU = rl.Spec("gru", 5, 7)
RELU = rl.Spec("rnn_relu", 5, 7)
X = np.ones((4, 3, 5), "f4")


def tensors(spec=LSTM, layout="torch", seed=0, prefix=""):
    made = normal_weights(rl.layout(layout) if isinstance(layout, str) else layout, spec, seed)
    return {prefix + name: array for name, array in made.items()}


def two(spec=LSTM, layout="torch"):
    """Return the tensors of two RNNs, enc and dec."""
    return tensors(spec, layout, prefix="enc.") | tensors(spec, layout, 1, prefix="dec.")


def write_model_with_head(path, outputs=1, count=1):
    """Write a model of RTNeural: an LSTM and dense layers."""
    rl.save(path, rl.Weights(tensors()).to("keras"))
    model = json.loads(Path(path).read_text())
    for inputs in (7, outputs)[:count]:
        weights = [np.zeros((inputs, outputs)).tolist(), [0.0] * outputs]
        model["layers"].append({"type": "dense", "shape": [None, outputs], "weights": weights})
    Path(path).write_text(json.dumps(model))


def asked(does, *args, known=None, before=lambda: None, **more):
    """Return a case: a call that fails, and then succeeds with each argument that the message asks
    for as it is written there, or without one that it says to omit.

    known: what only the caller knows of these. before: writes the files.
    """

    asks = []

    def call():
        try:
            does(*args, **more)
        except rl.Error as error:
            asks.extend(part for part in error.parts if isinstance(part, Ask))
            raise

    def case():
        before()
        text = yield call
        assert asks, text
        for ask in asks:
            rest = {name: value for name, value in more.items() if name != ask.name}
            told = write_in_python(ask).partition("=")[2]
            value = known[ask.name] if ask.value is ... else eval(told or "None", {"rl": rl})
            does(*args, **rest | ({} if value is None else {ask.name: value}))

    return case


def repaired(does, repair, before=lambda: None):
    """Return a case: a call that fails, and what the message asks for instead."""

    def case():
        before()
        yield does
        repair()

    return case


def evaluated(does, pattern, use=lambda found: found, before=lambda: None, **names):
    """Return a case: what the pattern shows in the message is evaluated and used."""

    def case():
        before()
        text = yield does
        use(followed(text, pattern, **names))

    return case


def message_of(call):
    """Return the text of the error that a call raises, or the text that it returns. A command does
    not write arguments as Python does, and Python does not write options."""
    try:
        text = call()
    except CommandFailed as error:
        assert not arguments_of_python(str(error)), error
        return str(error)
    except Exception as error:
        text = str(error)
    assert isinstance(text, str), "no error and no text"
    assert not options_in(text), text
    return text


def followed(text, pattern, **names):
    """Return what the part of a message that the pattern shows evaluates to."""
    found = re.search(pattern, text)
    assert found, text
    return eval(found[1], {"rl": rl, "np": np, **names})


def each(pattern, text):
    """Return what the pattern finds in a message, which is something."""
    found = re.findall(pattern, text)
    assert found, text
    return found


class CommandFailed(Exception):
    """A command's exit code was not 0; the text is what it printed."""


def command(*arguments):
    """Run a command and return what it prints. Raises CommandFailed."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        try:
            code = _cli.main(list(arguments))
        except SystemExit as end:
            code = end.code
    if code:
        raise CommandFailed(shown.getvalue())
    return shown.getvalue()


def notes(found):
    return "\n".join(found.notes)


def convert(*arguments, **options):
    """Convert a file; return the notes."""
    return notes(rl.convert_file(*arguments, force=True, **options))
