"""The arguments that say how to read a source: one list for all functions and the command line.

Nothing heavy is imported here: the command line makes its options from this list before --help.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict, TypeVar

from .similar import did_you_mean

if TYPE_CHECKING:
    from .layout import Layout

# A TypedDict per kind of function. Keys that two kinds share are declared in their common base.


class TensorOptions(TypedDict, total=False):
    """The options of infer_spec() and Weights(), whose layout is positional."""

    prefix: str
    ignore: Sequence[str]
    cell: str | None
    reset: str | None
    recurrent_activation: str | None
    activation: str | None


class SourceOptions(TensorOptions, total=False):
    """The options that functions for sources in memory and for files share."""

    layout: str | Layout | None


class MemoryOptions(SourceOptions, total=False):
    """The options of convert(), pack(), check(), RNN() and forward()."""

    dtype: Any


class ComparisonOptions(SourceOptions, total=False):
    """The options of verify() and diagnose(), whose result has no dtype."""

    as_class: Mapping[str, str] | None
    keras_config: Any
    format: str | None
    mmap: bool


class ReadingOptions(ComparisonOptions, total=False):
    """The arguments that say how to read a source; the same for all functions.

    load() and convert_file() take all of them, verify() and diagnose() all but dtype. Functions for
    sources in memory take those before as_class. `help` and the signature of a function show which.

    spec: the RNN. By default it is inferred from the names and shapes of the tensors; where they
        show too little, the error asks for it. Of a file, only for one with a single RNN.
    layout: the layout of the source, a name or a Layout. By default inferred from the names.
    prefix: use only the tensors whose names start with it, as "encoder.rnn"; the dot after it is
        optional. Of a model or a file with several RNNs it chooses one by its name.
    ignore: patterns for names of tensors that change nothing: ["rnn.norm.*"]. The source is read as
        if it lacked these tensors. `*` stands for any characters.
    cell, reset, recurrent_activation, activation: fields of the spec that tensors do not record:
        tanh or relu of a plain RNN, in the name of its cell; the reset of a GRU in ONNX, concat, or
        Keras without biases; "sigmoid" and "tanh" unless something else is passed. A source that
        records another value contradicts them, which is an error.
    dtype: of the result, by default that of the source. A narrower one rounds once, to nearest
        even.
    as_class: how to read layers of classes that are not Keras's own, or modules in a PyTorch file
        of classes that are not torch's own: {"MyLSTM": "LSTM"}.
    keras_config: of a Keras file with weights alone, what model.to_json() returned: the path of a
        file with it, the text itself, or the dict that json.loads() makes of it.
    format: of the file, as a suffix without the dot ("keras"), if its name does not show it.
    mmap: False to read the whole file into memory instead of mapping it, for a file that another
        process may truncate: reading a truncated map ends the process.
    """

    dtype: Any


# Each option with its default, in the order of a signature.
DEFAULTS: dict[str, Any] = {
    "layout": None,
    "prefix": "",
    "ignore": (),
    "cell": None,
    "reset": None,
    "recurrent_activation": None,
    "activation": None,
    "as_class": None,
    "keras_config": None,
    "dtype": None,
    "format": None,
    "mmap": True,
}
# Fields of a spec that tensors may not show: the activations, and others.
ACTIVATIONS = ("recurrent_activation", "activation")
UNRECORDED = ("cell", "reset", *ACTIVATIONS)
OF_FORMATS = ("as_class", "keras_config")  # options that not every format takes
OF_FILES = (*OF_FORMATS, "format")  # options that no source in memory takes; nor does it mmap

_Function = TypeVar("_Function", bound=Callable[..., Any])


def takes_options(kind: type) -> Callable[[_Function], _Function]:
    """Make the signature of a function, which ends in **options: Unpack[kind], name the options."""
    types = kind.__annotations__
    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default,
                  annotation=getattr(types[name], "__forward_arg__", types[name]))
        for name, default in DEFAULTS.items() if name in types
    ]  # fmt: skip

    def decorate(function: _Function) -> _Function:
        described = signature(function)
        *parameters, _ = described.parameters.values()
        vars(function)["__signature__"] = described.replace(parameters=[*parameters, *options])
        return function

    return decorate


def check_options(function: Callable[..., Any], options: Mapping[str, object]) -> None:
    """Raise the TypeError of Python if the caller of a function passed an unknown argument."""
    known: Signature = vars(function)["__signature__"]
    for name in options:
        if name not in known.parameters:
            _refuse_option(function, name, known)


def _refuse_option(function: Callable[..., Any], name: str, known: Signature) -> NoReturn:
    names = [one for one in known.parameters if one != "self"]
    raise TypeError(
        f"{function.__qualname__}() got an unexpected keyword argument {name!r}"
        + did_you_mean(name, names)
    )
