"""What the commands share: their names, exit codes, and the options that several of them have."""

from __future__ import annotations

import argparse
import math
import re
from shlex import quote
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rnnlayout._files.tensor_sets.found import Found

# Exit codes: --help explains them. 1 is of verify, diagnose and identify; 2 is argparse's own.
DONE, USAGE, MALFORMED, LOSSY, MISSING, BUG, INTERRUPTED = 0, 2, 3, 4, 5, 70, 130
DTYPES = ("float16", "bfloat16", "float32", "float64")  # as in _model, which --help does not import

COMMANDS = (
    "inspect",
    "convert",
    "verify",
    "diagnose",
    "identify",
    "map",
    "run",
    "doctor",
    "layouts",
)

# How a shell completes a file's name: what shtab calls shtab.FILE.
FILE = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}
# Arguments of load()
HINTS = (
    "spec", "layout", "prefix", "cell", "reset", "recurrent_activation", "activation", "as_class",
    "config", "format", "mmap",
)  # fmt: skip


def add_file(parser: argparse._ActionsContainer, *names: str, **options: Any) -> None:
    """Add an argument that is a file's name."""
    parser.add_argument(*names, **options).complete = FILE  # type: ignore[attr-defined]


def add_pictures(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the options that write a picture."""
    add_file(parser, "--svg", metavar="OUT", help=f"write {what} as SVG")
    add_file(parser, "--png", metavar="OUT", help=f"write {what} as PNG: needs matplotlib")
    parser.add_argument(
        "--width", type=_parse_pixels, metavar="N", help="of the picture, in pixels (default: 760)"
    )


def _parse_pixels(text: str) -> int:
    from rnnlayout._model.picture.layouts import NARROWEST, WIDEST

    if not text.isdecimal() or not NARROWEST <= int(text) <= WIDEST:
        raise argparse.ArgumentTypeError(f"{text!r}: need a number from {NARROWEST} to {WIDEST}")
    return int(text)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print machine-readable JSON")


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose RNNs of a file, and join layers."""
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="use only this RNN; may be repeated"
    )
    parser.add_argument(
        "--stack",
        action="append",
        type=_parse_stack,
        metavar="NAME,NAME",
        help="make one RNN of these layers, bottom first; may be repeated",
    )


def _parse_stack(text: str) -> list[str]:
    names = text.split(",")
    if len(names) < 2 or not all(names):
        raise argparse.ArgumentTypeError(f"{text!r}: need names, as in lstm_1,lstm_2")
    return names


def add_map(parser: argparse.ArgumentParser, help: str) -> None:
    """Add the option that pairs names of two files."""
    parser.add_argument("--map", action="append", type=_parse_pair, metavar="A=B", help=help)


def map_pairs(options: argparse.Namespace) -> dict[str, str]:
    """Return what --map says."""
    told = dict(options.map or ())
    if len(told) < len(options.map or ()) or len(set(told.values())) < len(told):
        options.wrong("--map pairs one RNN twice")
    return told


def _parse_pair(text: str) -> tuple[str, str]:
    return _split_pair(text.partition("="), "need two names, as in encoder=lstm_1")


def _parse_class(text: str) -> tuple[str, str]:
    return _split_pair(text.rpartition("="), "write CLASS=LSTM, CLASS=GRU ...")


def _split_pair(parts: tuple[str, str, str], needed: str) -> tuple[str, str]:
    """Return what is before and after the equals sign. Raise an error if one of them is empty;
    needed: how to write them, as the error says.
    """
    if not all(parts):
        raise argparse.ArgumentTypeError(f"{''.join(parts)!r}: {needed}")
    return parts[0], parts[2]


def add_reading(parser: argparse.ArgumentParser, *, whose: str = "the input file") -> None:
    """Add the options for how a file is read, and for what it does not record of its RNNs."""
    add = parser.add_argument
    add("--prefix", default="", metavar="P", help="use only tensors whose names start with P")
    add_file(parser, "--config", metavar="MODEL.json",
             help="the to_json() of a Keras model, if the file has only its weights")  # fmt: skip
    add(
        "--as-class",
        type=_parse_class,
        action="append",
        metavar="CLASS=LSTM",
        help="read layers of your own class in a Keras or PyTorch file as LSTM, GRU, SimpleRNN or"
        " RNN, cells as LSTMCell ...",
    )
    add_format(parser)
    group = parser.add_argument_group("options for files that do not describe themselves")
    add = group.add_argument
    add("--layout", type=parse_layout, metavar="LAYOUT", help=f"layout of {whose}")
    add("--cell", choices=("lstm", "gru", "rnn_tanh", "rnn_relu"), help="cell of the RNNs")
    add(
        "--reset",
        choices=("after", "before"),
        help="where a GRU's reset gate acts: after or before the product R h",
    )
    add(
        "--recurrent-activation",
        metavar="NAME",
        choices=("sigmoid", "hard_sigmoid", "hard_sigmoid_keras2"),
        help="of LSTMs and GRUs: sigmoid, hard_sigmoid (Keras 3) or hard_sigmoid_keras2",
    )
    add(
        "--activation",
        choices=("tanh", "relu"),
        help="of the candidate and the output of LSTMs and GRUs",
    )
    add(
        "--spec",
        type=parse_spec,
        metavar="SPEC",
        help='the whole spec: "lstm, input_size 8, hidden_size 16, bidirectional"',
    )


def add_format(parser: argparse.ArgumentParser) -> None:
    """Add the options for a file whose name does not show its format, and for how it is opened."""
    parser.add_argument(
        "--format",
        type=parse_file_format,
        metavar="F",
        help="format of the file whose name does not show it: pt, h5, keras, npz ...",
    )
    parser.add_argument(
        "--no-mmap",
        dest="mmap",
        action="store_false",
        help="read files into memory instead of mapping them, if others may truncate them",
    )


def load_hints(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of load() that add_reading() asked for."""
    found = {name: getattr(options, name) for name in HINTS if hasattr(options, name)}
    if "as_class" in found:
        found["as_class"] = dict(found["as_class"] or ())
    return found


def load_chosen(path: str, options: argparse.Namespace) -> Found:
    """Return the RNNs of a file that --only and --stack choose, or all."""
    from rnnlayout._files.files import load
    from rnnlayout._files.tensor_sets.choose_rnns import choose_rnns

    return choose_rnns(load(path, **load_hints(options)), options.only, options.stack)


def parse_file_format(text: str) -> str:
    """Parse the name of a format that is read."""
    from rnnlayout._files.formats.registry import format_named
    from rnnlayout._model.errors import FileError

    try:
        format_named(text)
    except FileError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def parse_layout(text: str) -> Any:
    """Parse a layout: a name, or a name with options: "concat(inputs=xh, z=candidate)"."""
    from rnnlayout import _native
    from rnnlayout._model.layout import Layout

    found = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a layout")
    pairs = [option.split("=") for option in (found[2] or "").split(",") if option.strip()]
    if any(len(pair) != 2 for pair in pairs):
        raise argparse.ArgumentTypeError(f"{text!r}: write options as NAME=VALUE")
    try:
        return Layout(found[1], **{key.strip(): value.strip() for key, value in pairs})
    except _native.LayoutError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_tolerance(text: str) -> float:
    """Parse a tolerance."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: need a number, 0 or greater")
    return value


_FLAGS = {"": True, "true": True, "false": False}
_PARSERS: dict[Any, tuple[Any, str]] = {
    "int": (int, "a number"),
    "bool": (lambda text: _FLAGS[text.lower()], "true or false"),
}


def parse_spec(text: str) -> Any:
    """Parse a spec as printed: "gru, input_size 3, hidden_size 2"; "=" may replace a space."""
    from dataclasses import fields

    from rnnlayout import _native
    from rnnlayout._model.spec import Spec

    cell, *others = [part.strip() for part in text.split(",")]
    kinds = {field.name: field.type for field in fields(Spec)}
    values: dict[str, Any] = {"cell": cell}
    for part in others:
        name, _, value = re.sub(r"\s*=\s*|\s+", " ", part).partition(" ")
        if name not in kinds or name in values:
            raise argparse.ArgumentTypeError(
                f"{part!r}: need, once each, fields of {', '.join(list(kinds)[1:])}"
            )
        parse, needed = _PARSERS.get(kinds[name], (str, ""))
        try:
            values[name] = parse(value)
        except (ValueError, KeyError):
            raise argparse.ArgumentTypeError(f"{name} is {value!r}, need {needed}") from None
    try:
        return Spec(**values)
    except _native.SpecError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    except TypeError:
        raise argparse.ArgumentTypeError(f"{text!r}: need input_size and hidden_size") from None


def in_options(message: str, options: argparse.Namespace) -> str:
    """Return a message of the library, with the command's options for the arguments it asks for."""
    from rnnlayout._model.asks import spell_message

    return spell_message(message, lambda ask: _option_text(ask, options))


def _option_text(ask: Any, options: argparse.Namespace) -> str:
    if not hasattr(options, ask.name):  # an argument of Python alone
        return str(ask)
    option = f"--{ask.name.replace('_', '-')}"
    return " ".join(f"{option} {_quote_value(value)}" for value in _option_values(ask)) or option


def _option_values(ask: Any) -> list[str]:
    """Return the values to pass, one for each time that the option is to be given."""
    from rnnlayout._model.spec import Spec, spec_in_words

    if ask.value in (..., None, True):
        return []
    if isinstance(ask.value, Spec):
        return [spec_in_words(ask.value, ask.also)]
    if isinstance(ask.value, dict):
        return [f"{key}={value}" for key, value in ask.value.items()]
    return ask.value if isinstance(ask.value, list) else [str(ask.value)]


def _quote_value(value: str) -> str:
    """Return a value as a shell reads it: a name in a file may contain anything."""
    harmless = re.fullmatch(r"[\w ,=()./:-]+", value)
    return f'"{value}"' if harmless and not re.fullmatch(r"[\w./=-]+", value) else quote(value)
