"""Errors: which there are; the parts of their texts; what they show has at most 600 characters, and
none that controls a terminal."""

import copy
import pickle
import sys

import numpy as np
import pytest
from commands import run

import rnnlayout as rl
from rnnlayout._model.errors import Ask, Message, asks_written_by, error_with_name
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
    assert found == {"Error", "AssumedWarning", *ERRORS}
    assert issubclass(rl.AssumedWarning, UserWarning)
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
    assert len(str(error)) == LONGEST and error.text == error.args[0] == "b" + LONG + "c"
    assert str(error).startswith("baa") and str(error).endswith("aac")
    # but the places that were searched are all listed
    lines = "\n".join(f"  packages: /place/{k}: no libcudnn.so.9" for k in range(40))
    assert str(rl.CudnnNotFoundError(lines)) == lines
    error = rl.FileError(f"{LONG} pass ", Ask("cell", "gru"), f" for {LONG}")
    assert len(str(error)) <= LONGEST and "cell='gru'" in str(error)
    with asks_written_by(lambda ask: f"--{ask.name} {ask.value}"):
        assert len(str(error)) <= LONGEST and "--cell gru" in str(error)
    error = rl.FileError("pass ", Ask("only", [LONG]))
    assert str(error) == "pass only=" and error.asks == (("only", [LONG]),)


# ------------------------------------------------------------------------------ parts of a text

GRU = rl.Spec("gru", 3, 2)
ASKS = (Ask("cell", "gru"), Ask("spec", GRU, ("reset",)), Ask("layout", rl.layout("torch")),
        Ask("layout", rl.layout("concat", inputs="hx")), Ask("map", {"a": "b"}), Ask("prefix"),
        Ask("spec"), Ask("spec", None))  # fmt: skip
TEXTS = ("cell='gru'", "spec=rl.Spec('gru', input_size=3, hidden_size=2, reset='after')",
         "layout='torch'", "layout=rl.layout('concat', inputs='hx')", "map={'a': 'b'}", "prefix=",
         "spec=rl.Spec(...)", "spec=")  # fmt: skip


def all_errors():
    """Return an error of each class, with parts of all kinds."""
    nested = rl.LayoutError("these fit ", ASKS[0])
    parts = "a: ", nested, Message("; pass ", *ASKS), "; ", ValueError("else"), " b"
    classes = [getattr(rl, name) for name in ERRORS if name != "UndecidedError"]
    weights = rl.Weights(good())
    undecided = rl.UndecidedError(
        *parts, candidates=[weights], arguments=["cell", "reset"], reason="cell"
    )
    return [*(one(*parts) for one in [rl.Error, *classes]), undecided]


@pytest.mark.parametrize("error", all_errors(), ids=lambda error: type(error).__name__)
def test_a_text_is_made_of_its_parts(error):
    """UnknownNameError is a KeyError, whose str() is a repr."""
    text = f"a: these fit cell='gru'; pass {''.join(TEXTS)}; else b"
    assert str(error) == error.text == f"{error}" == text
    assert error.parts == ("a: these fit ", ASKS[0], "; pass ", *ASKS, "; else b")
    assert error.asks == tuple((ask.name, ask.value) for ask in (ASKS[0], *ASKS))
    with asks_written_by(lambda ask: f"<{ask.name}>"):
        assert str(error).startswith("a: these fit <cell>; pass <cell><spec><layout>")
        with asks_written_by(lambda ask: ""):
            assert str(error) == "a: these fit ; pass ; else b"
        assert "<cell>" in str(error)
    assert str(error) == text


@pytest.mark.parametrize("error", all_errors(), ids=lambda error: type(error).__name__)
def test_a_pickled_copied_or_named_error_keeps_its_parts(error):
    for same in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(same) is type(error) and same.parts == error.parts and str(same) == str(error)
    named = error_with_name(error, "enc")
    assert type(named) is type(error) and named.asks == error.asks
    assert str(named) == f"enc: {error}" and error.parts[0] == "a: these fit "
    with pytest.raises(type(error)) as caught:
        try:
            raise ValueError("cause")
        except ValueError as cause:
            raise named from cause
    assert str(caught.value.__cause__) == "cause"


def test_a_question_keeps_what_it_knows():
    error = all_errors()[-1]
    for same in (pickle.loads(pickle.dumps(error)), error_with_name(error, "enc")):
        assert same.arguments == ("cell", "reset") and same.reason == "cell"
        assert same.repair == "cell= and reset=" and same.layout == "torch"
        assert same.specs == (rl.Spec("lstm", 5, 3),) and same.shapes["bias_ih_l0"] == (12,)
        with asks_written_by(lambda ask: f"--{ask.name}"):
            assert same.repair == "--cell and --reset"


def test_no_string_loses_what_a_text_asks_for():
    """An f-string did: the command line printed "choose one with prefix="."""
    for part in (Ask("cell", "gru"), Message("pass ", Ask("cell", "gru"))):
        for lose in (
            lambda part: f"it is {part}",
            lambda part: f"{part!s:>9}",
            lambda part: "pass " + part,
            lambda part: "".join(["pass ", part]),
            lambda part: "pass {}".format(part),  # noqa: UP032
            lambda part: "pass %s" % (part,),  # noqa: UP031
            str,
            print,
        ):
            with pytest.raises(TypeError, match=r"a string would lose .*Ask\(name='cell'|str"):
                lose(part)
        assert "pass it" not in repr(part)


def test_an_error_of_the_core_has_parts_from_the_first_import_on():
    """It had no `asks` until something imported them."""
    code = """
import rnnlayout as rl
try:
    rl.set_num_threads("many")
except rl.SpecError as error:
    print(error.parts, error.asks, error)
"""
    text = "n is a <class 'str'>, need a whole number"
    assert run([sys.executable, "-c", code]) == f'("{text}",) () {text}\n'
