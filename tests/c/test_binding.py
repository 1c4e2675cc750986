"""A function of the binding has one signature: in its C text, in the stub and in what it takes.

The C text has the names and defaults, above the documentation, and the stub (_native.pyi) adds
types. mypy.stubtest compares functions and methods, but no constructors, and calls nothing.
"""

import __future__

import inspect
import re

import numpy as np
import pytest
from commands import ROOT

from rnnlayout import _native

PATH = ROOT / "python" / "rnnlayout" / "_native.pyi"
STUB: dict = {"__name__": "stub"}
exec(compile(PATH.read_text(), PATH, "exec", __future__.annotations.compiler_flag), STUB)
NAMES = [name for name, value in STUB.items() if getattr(value, "__module__", "") == "stub"]
FUNCTIONS = [name for name in NAMES if inspect.isfunction(STUB[name])]
METHODS = [(name, key) for name in NAMES if name not in FUNCTIONS
           for key in vars(STUB[name]) if inspect.isfunction(getattr(STUB[name], key))]  # fmt: skip
# Stepper has users' documentation in place of a signature: RNN.stepper() makes it.
MADE = [name for name, method in METHODS if method == "__new__" and name != "Stepper"]
SHOWN = [at for at in METHODS if not at[1].startswith("__")]


def parameters(function, skipped=0):
    """Return (name, kind, default) of each parameter, without the first ones."""
    every = [*inspect.signature(function).parameters.values()]
    return [(p.name, p.kind, p.default) for p in every[skipped:]]


def stubbed_constructor(name):
    return parameters(STUB[name].__new__, 1)


def test_the_stub_names_every_function_and_type():
    public = [name for name, value in vars(_native).items()
              if callable(value) and not name.endswith("Error")]  # fmt: skip
    assert sorted(public) == sorted(NAMES)
    assert {"Plan", "Rnn", "GpuRnn"} <= {*MADE}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_the_signature_of_the_stub(name):
    assert parameters(getattr(_native, name)) == parameters(STUB[name])


@pytest.mark.parametrize("name, attribute", SHOWN)
def test_a_method_has_the_signature_of_the_stub(name, attribute):
    method, stub = getattr(getattr(_native, name), attribute), getattr(STUB[name], attribute)
    assert parameters(method, 1) == parameters(stub, 1)


@pytest.mark.parametrize("name", MADE)
def test_a_constructor_has_the_signature_of_the_stub(name):
    assert parameters(getattr(_native, name)) == stubbed_constructor(name)


@pytest.mark.parametrize(
    "names", [[name] for name in NAMES] + [[*at] for at in SHOWN], ids=".".join
)
def test_help_shows_documentation(names):
    """A text before "--" that Python cannot read as a signature would be shown too."""
    value = _native
    for name in names:
        value = getattr(value, name)
    assert re.match("[A-Z]", value.__doc__) and "--\n" not in value.__doc__


# ------------------------------------------------------------------------------ what it takes

REFUSED = r"takes (no|exactly|at)|expected at|required argument|(invalid|unexpected) keyword"
CHECKED_TYPES = {"optional": 0, "weights": np.zeros(1, "f4"), "device": 0}


def refusal(function, args, kwargs=None):
    """Return the text of the error that a call with useless values raises."""
    with pytest.raises(Exception) as error:
        function(*args, **kwargs or {})
    return str(error.value)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_takes_the_arguments_of_its_signature(name):
    function, expected = getattr(_native, name), parameters(STUB[name])
    required = [default for _, _, default in expected if default is inspect.Parameter.empty]
    assert re.search(REFUSED, refusal(function, [None] * (len(expected) + 1)))
    if required:
        for count in (len(required), len(expected)):
            assert not re.search(REFUSED, refusal(function, [object()] * count))
        assert re.search(REFUSED, refusal(function, [None] * (len(required) - 1)))


@pytest.mark.parametrize("name", MADE)
def test_a_constructor_takes_the_keywords_of_its_signature(name):
    kind, expected = getattr(_native, name), stubbed_constructor(name)
    values = {key: CHECKED_TYPES.get(key, object()) for key, _, _ in expected}
    required = [key for key, _, default in expected if default is inspect.Parameter.empty]
    for keys in (values, required):
        assert not re.search(REFUSED, refusal(kind, [], {key: values[key] for key in keys}))
    assert re.search(REFUSED, refusal(kind, [], values | {"another": 0}))
    for missing in required:
        rest = {key: value for key, value in values.items() if key != missing}
        assert re.search(REFUSED, refusal(kind, [], rest)), missing
