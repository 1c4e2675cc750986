"""Errors: which there are; what they say has at most 600 characters, and none that controls a
terminal."""

import numpy as np
import pytest

import rnnlayout as rl
from rnnlayout._model.asks import Ask, spell_message
from rnnlayout._model.printable import LONGEST

ERRORS = {
    "SpecError": ValueError,
    "UndecidedError": rl.SpecError,
    "LayoutError": ValueError,
    "LossyError": rl.LayoutError,
    "FileError": ValueError,
    "UnknownNameError": KeyError,
    "MissingExtraError": ImportError,
    "CudnnNotFoundError": RuntimeError,
    "CudnnError": RuntimeError,
}


def test_every_error_is_an_error_of_rnnlayout_and_of_python():
    assert dir(rl) == rl.__all__
    classes = {name: getattr(rl, name) for name in rl.__all__}
    found = {n for n, c in classes.items() if isinstance(c, type) and issubclass(c, Exception)}
    assert found == {"Error", *ERRORS}
    for name, base in ERRORS.items():
        assert issubclass(classes[name], rl.Error) and issubclass(classes[name], base)
    with pytest.raises(rl.Error, match="no layout is called 'theano'"):
        rl.layout("theano")


LONG = "a" * 1_000_000
EVIL = "\x1b[2J\u202e\r\x00\ud800"
MATRIX = np.ones((12, 5), "f4")
MANY = {f"{k}.weight_ih_l0": MATRIX for k in range(1000)}


def good():
    shapes = rl.describe(rl.Spec("lstm", 5, 3), "torch")
    return {name: np.ones(shape, "f4") for name, shape in shapes.items()}


LIVE = {
    "a key of a megabyte": lambda: rl.Weights({LONG: MATRIX}),
    "a key with control characters": lambda: rl.Weights({EVIL: MATRIX}),
    "1,000 names": lambda: rl.Weights(MANY),
    "1,000 RNNs": lambda: rl.Weights(
        {f"{k}.{n}": a for k in range(1000) for n, a in good().items()}
    ),
    "a prefix of a megabyte": lambda: rl.Weights(good(), prefix=LONG),
    "one name more": lambda: rl.Weights(good() | {f"weight_{LONG}": MATRIX}, layout="torch"),
    "a layout of a megabyte": lambda: rl.Weights(good(), layout=LONG),
    "a cell of a megabyte": lambda: rl.Spec(LONG, 5, 3),
    "a dict in a dict": lambda: rl.Weights({LONG: {LONG: {EVIL: MATRIX}}}),
    "a path": lambda: rl.load(EVIL.replace("\x00", "") + ".pt"),
    "a path of a megabyte": lambda: rl.load(LONG),
    "a format": lambda: rl.load(__file__, format=LONG),
}


@pytest.mark.parametrize("call", LIVE.values(), ids=LIVE)
def test_an_error_about_a_live_object(call):
    with pytest.raises((rl.Error, FileNotFoundError)) as refused:
        call()
    if isinstance(refused.value, rl.Error):
        shown = str(refused.value)
        assert len(shown) <= LONGEST and shown.replace("\n", "").isprintable(), shown


def test_the_whole_text_is_an_attribute_and_what_is_asked_for_is_not_cut():
    """Nobody types a value of a megabyte, so that one is left out."""
    error = rl.FileError("b" + LONG + "c")
    assert len(str(error)) == LONGEST and error.args[0] == "b" + LONG + "c"
    assert str(error).startswith("baa") and str(error).endswith("aac")
    # but the places that were searched are all listed
    lines = "\n".join(f"  packages: /place/{k}: no libcudnn.so.9" for k in range(40))
    assert str(rl.CudnnNotFoundError(lines)) == lines
    error = rl.FileError(LONG + " pass " + Ask("cell", "gru") + f" for {LONG}")
    assert len(str(error)) <= LONGEST and "cell='gru'" in str(error)
    assert "--cell gru" in spell_message(str(error), lambda ask: f"--{ask.name} {ask.value}")
    error = rl.FileError("pass " + Ask("only", [LONG]))
    assert str(error) == "pass only=" and error.asks == (("only", [LONG]),)
