"""The options for reading a source: a single list for all functions and the command line.

This file imports nothing slow: the command line makes options from the list before --help.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict, TypeVar

from .similar import did_you_mean

if TYPE_CHECKING:
    from .layout import Layout

# A TypedDict per kind of function. A common base declares the keys that two kinds share.


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
    """The options of verify() and diagnose(). The results have no dtype."""

    as_class: Mapping[str, str] | None
    keras_config: Any
    format: str | None
    mmap: bool


class ReadingOptions(ComparisonOptions, total=False):
    """The options for reading a source; the same for all functions.

    load() and convert_file() take all options, verify() and diagnose() all but dtype. Functions for
    sources in memory take the options before as_class. `help` and the signature show the options of
    a function.

    spec: the RNN. By default inferred from the names and shapes of the tensors; if names and shapes
        are not enough, the error asks for spec. For a file, only if the file has a single RNN.
    layout: the layout of the source, a name or a Layout. By default inferred from the names.
    prefix: use only tensors whose names start with the prefix, as "encoder.rnn"; a final dot is
        optional. For a model or a file with several RNNs, prefix is also the name of the RNN to
        read.
    ignore: patterns for names of tensors that change nothing: ["rnn.norm.*"]. The source is read as
        if without the tensors. `*` stands for any characters.
    cell, reset, recurrent_activation, activation: fields of the spec that tensors do not record:
        cell "rnn_tanh" or "rnn_relu" of a plain RNN; reset of a GRU in ONNX, concat, or Keras
        without biases; "sigmoid" and "tanh" by default. A contradicting source is an error.
    dtype: the dtype of the result, by default the dtype of the source. A narrower dtype rounds
        once, to nearest even.
    as_class: for layers of classes outside Keras, or modules of classes outside torch in a PyTorch
        file, the class to read the layer or module as: {"MyLSTM": "LSTM"}.
    keras_config: for a Keras file with weights alone, the result of model.to_json(): the path of a
        file with the text, the text, or the dict that json.loads() makes of the text.
    format: the format of the file, as a suffix without the dot ("keras"), if the file's name lacks
        the suffix.
    mmap: False to read the whole file into memory instead of mapping the file, for a file that
        another process may truncate: reading a truncated map ends the process.
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
    """Put the options in place of **options: Unpack[kind] into the signature of a function."""
    types = kind.__annotations__
    options = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=default,
            annotation=getattr(types[name], "__forward_arg__", types[name]),
        )
        for name, default in DEFAULTS.items()
        if name in types
    ]

    def decorate(function: _Function) -> _Function:
        declared = signature(function)
        *parameters, _ = declared.parameters.values()
        vars(function)["__signature__"] = declared.replace(parameters=[*parameters, *options])
        return function

    return decorate


def check_options(function: Callable[..., Any], options: Mapping[str, object]) -> None:
    """Raise the TypeError of Python if the caller of a function passed an unknown argument."""
    full_signature: Signature = vars(function)["__signature__"]
    for name in options:
        if name not in full_signature.parameters:
            _refuse_option(function, name, full_signature)


def _refuse_option(function: Callable[..., Any], name: str, full_signature: Signature) -> NoReturn:
    names = [parameter for parameter in full_signature.parameters if parameter != "self"]
    raise TypeError(
        f"{function.__qualname__}() got an unexpected keyword argument {name!r}"
        + did_you_mean(name, names)
    )
