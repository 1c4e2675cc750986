"""What the commands share: their names, exit codes, and the options that several of them have."""

from __future__ import annotations

import argparse
import re
from typing import Any

# Exit codes. 1 is verify's "not equal"; argparse exits with 2 itself.
DONE = 0
USAGE = 2
MALFORMED = 3  # a file that is malformed or unsafe, or cannot be read or written
NO_FORM = 4  # the target cannot represent the weights, or they would round under --exact
MISSING = 5  # a requirement is missing: an extra, cuDNN, a GPU, memory
BUG = 70
INTERRUPTED = 130

COMMANDS = ("inspect", "convert", "verify", "run", "doctor", "layouts")

CELLS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
RESETS = ("after", "before")
# How a shell completes a file's name: what shtab calls shtab.FILE.
FILE = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}
# The arguments of load() and convert(), as their errors name them: what to type here.
_OPTIONS = {
    name: f"--{name}"
    for name in (
        "spec",
        "layout",
        "prefix",
        "cell",
        "reset",
        "dtype",
        "rtol",
        "force",
        "device",
        "entry",
    )
} | {"cells": "--cell"}


def add_file(parser: argparse._ActionsContainer, *names: str, **words: Any) -> None:
    """An argument that is a file's name."""
    parser.add_argument(*names, **words).complete = FILE  # type: ignore[attr-defined]


def add_hints(parser: argparse.ArgumentParser) -> None:
    """What the caller knows of the RNNs in a file, where it does not say."""
    hints = parser.add_argument_group("what the file does not say")
    hints.add_argument(
        "--layout", "--from", type=layout, metavar="LAYOUT", help="the layout that the file is in"
    )
    hints.add_argument(
        "--prefix", default="", metavar="P", help="take only tensors whose names begin so"
    )
    hints.add_argument("--cell", choices=CELLS, help="the cell")
    hints.add_argument("--reset", choices=RESETS, help="where a GRU's reset gate acts")
    hints.add_argument(
        "--spec",
        type=spec,
        metavar="SPEC",
        help='all of the RNN: "lstm, input_size 8, hidden_size 16, bidirectional"',
    )


def hints(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of load() that add_hints() asked for."""
    return {name: getattr(options, name) for name in ("spec", "layout", "prefix", "cell", "reset")}


def layout(text: str) -> Any:
    """A layout by its name, or with options: "concat(inputs=xh, z=candidate)"."""
    from rnnlayout import _native
    from rnnlayout._model.layout import Layout

    found = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no layout's name")
    pairs = [option.split("=") for option in (found[2] or "").split(",") if option.strip()]
    if any(len(pair) != 2 for pair in pairs):
        raise argparse.ArgumentTypeError(f"{text!r}: options are written NAME=VALUE")
    try:
        return Layout(found[1], **{key.strip(): value.strip() for key, value in pairs})
    except _native.LayoutError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def spec(text: str) -> Any:
    """A spec as it is printed, "gru, input_size 3, hidden_size 2"; "=" may stand for the space."""
    from dataclasses import fields

    from rnnlayout import _native
    from rnnlayout._model.spec import Spec

    cell, *others = [part.strip() for part in text.split(",")]
    kinds = {field.name: field.type for field in fields(Spec)}
    values: dict[str, Any] = {}
    for part in others:
        name, _, value = re.sub(r"\s*=\s*|\s+", " ", part).partition(" ")
        if name not in kinds or name in values:
            raise argparse.ArgumentTypeError(
                f"{part!r}: need once each, of {', '.join(list(kinds)[1:])}"
            )
        values[name] = _value(name, value, kinds[name])
    try:
        return Spec(cell, **values)
    except _native.SpecError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    except TypeError:
        raise argparse.ArgumentTypeError(f"{text!r}: need input_size and hidden_size") from None


def _value(name: str, text: str, kind: Any) -> Any:
    if kind == "bool":
        if text.lower() not in ("", "true", "false"):
            raise argparse.ArgumentTypeError(f"{name} is {text!r}, need true or false")
        return text.lower() != "false"
    if kind == "int":
        try:
            return int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{name} is {text!r}, need a number") from None
    return text


def with_options(message: str) -> str:
    """An error of the library, with the options that stand for the arguments that it asks for."""
    asked = re.findall(r"(?<![\w.-])([a-z]+)=", message)
    options = dict.fromkeys(_OPTIONS[name] for name in asked if name in _OPTIONS)
    wanted = [option for option in options if option not in message]
    return f"{message}\nhere: {', '.join(wanted)}" if wanted else message
