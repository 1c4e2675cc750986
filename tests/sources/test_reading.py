"""The arguments that say how a source is read: one list, in signatures, types, help and errors."""

import inspect
import pydoc
from dataclasses import fields

import numpy as np
import pytest

import rnnlayout as rl
from rnnlayout._model.reading_options import DEFAULTS, UNRECORDED
from rnnlayout._sources.reading import Reading

MEMORY = ("layout", "prefix", "ignore", *UNRECORDED, "dtype")
FILES = ("as_class", "keras_config", "format", "mmap")
TAKEN = {  # the arguments of reading in each signature, without those that the function names
    rl.infer_spec: ("layout", "prefix", "ignore", *UNRECORDED),
    rl.convert: MEMORY, rl.pack: MEMORY, rl.check: MEMORY, rl.RNN: MEMORY, rl.forward: MEMORY,
    rl.Weights: MEMORY,
    rl.load: (*MEMORY, *FILES), rl.convert_file: (*MEMORY, *FILES),
    rl.verify: (*MEMORY[:-1], *FILES), rl.diagnose: (*MEMORY[:-1], *FILES),
}  # fmt: skip
FUNCTIONS = pytest.mark.parametrize("function", TAKEN, ids=lambda function: function.__name__)
CELL = {"weight_ih": np.ones((8, 3), "f4"), "weight_hh": np.ones((8, 2), "f4")}


def test_the_three_lists_are_one():
    assert {*DEFAULTS} == {*rl.ReadingOptions.__annotations__}
    names = {one.name for one in fields(Reading)} - {"spec", "fields", "kind"}
    assert names | {*UNRECORDED} == {*DEFAULTS}
    assert all(DEFAULTS[one.name] == one.default for one in fields(Reading)[3:-1])


@FUNCTIONS
def test_a_signature_names_each_argument_with_its_default(function):
    parameters = inspect.signature(function).parameters
    assert {*parameters} & {*DEFAULTS} == {*TAKEN[function]}
    assert {parameters[name].default for name in TAKEN[function]} <= {None, "", (), True}
    assert all(parameters[name].default == DEFAULTS[name] for name in TAKEN[function])
    kinds = {one.kind for one in parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds
    assert parameters["prefix"].annotation == "str"


@FUNCTIONS
def test_help_shows_the_arguments_and_where_they_are_described(function):
    text = pydoc.plain(pydoc.render_doc(function))
    assert "recurrent_activation: 'str | None' = None" in text
    assert "ReadingOptions" in text or function in (rl.pack, rl.check, rl.forward)
    described = pydoc.plain(pydoc.render_doc(rl.ReadingOptions))
    assert all(f"{name}:" in described or f"{name}," in described for name in TAKEN[function])


CALLS = {
    "infer_spec": lambda **more: rl.infer_spec(CELL, **more),
    "convert": lambda **more: rl.convert(CELL, to="keras", **more),
    "pack": lambda **more: rl.pack(CELL, **more),
    "check": lambda **more: rl.check(CELL, to="keras", **more),
    "RNN.__init__": lambda **more: rl.RNN(CELL, **more),
    "forward": lambda **more: rl.forward(np.ones((1, 3), "f4"), CELL, **more),
    "Weights.__init__": lambda **more: rl.Weights(CELL, **more),
    "load": lambda **more: rl.load("lstm.npz", **more),
    "convert_file": lambda **more: rl.convert_file("a.npz", "b.npz", to="keras", **more),
    "verify": lambda **more: rl.verify(CELL, CELL, **more),
    "diagnose": lambda **more: rl.diagnose(np.ones(3, "f4"), like=CELL, **more),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_unknown_argument_is_the_error_of_python(name):
    with pytest.raises(TypeError) as error:
        CALLS[name](prefx="lstm")
    text = f"{name}() got an unexpected keyword argument 'prefx'"
    assert str(error.value) == text + "; did you mean 'prefix'?"


@pytest.mark.parametrize("name, wrong, meant", [
    ("convert", {"format": "npz"}, ""), ("verify", {"dtype": "float32"}, ""),
    ("load", {"config": {}}, "; did you mean 'keras_config'?"),
    ("RNN.__init__", {"devise": "cpu"}, "; did you mean 'device'?"),
    ("convert_file", {"dryrun": True}, "; did you mean 'dry_run'?"),
])  # fmt: skip
def test_an_argument_of_another_function_is_unknown(name, wrong, meant):
    with pytest.raises(TypeError) as error:
        CALLS[name](**wrong)
    assert str(error.value).endswith(f"unexpected keyword argument {next(iter(wrong))!r}{meant}")


@pytest.mark.parametrize("name", [name for name in CALLS if "file" not in name and name != "load"])
def test_the_defaults_may_be_passed(name):
    (function,) = (one for one in TAKEN if one.__name__ == name.partition(".")[0])
    if name == "diagnose":
        packed = rl.pack(CELL)
        assert rl.diagnose(packed, like=CELL, **{key: DEFAULTS[key] for key in TAKEN[function]})
        return
    expected, result = CALLS[name](), CALLS[name](**{key: DEFAULTS[key] for key in TAKEN[function]})
    assert str(result) == str(expected)


def test_readings_are_equal_if_they_ask_for_one_rnn():
    """Which RNN tensors are is looked up by these alone."""
    spec = rl.Spec("lstm", 3, 2)
    assert Reading(spec, prefix="a", mmap=False) == Reading(spec, prefix="b", keras_config={})
    assert hash(Reading(spec, prefix="a")) == hash(Reading(spec))
    assert Reading(spec) != Reading() and Reading(fields={"cell": "gru"}) != Reading()
