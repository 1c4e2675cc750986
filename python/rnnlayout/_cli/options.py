"""What the commands share: their names, exit codes, and the options that several of them have."""

from __future__ import annotations

import argparse
import re
from typing import Any

# Exit codes: --help explains them. 1 is verify's; argparse exits with 2 itself.
DONE, USAGE, MALFORMED, LOSSY, MISSING, BUG, INTERRUPTED = 0, 2, 3, 4, 5, 70, 130

COMMANDS = ("inspect", "convert", "verify", "run", "doctor", "layouts")

# How a shell completes a file's name: what shtab calls shtab.FILE.
FILE = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}
# Arguments of load()
HINTS = ("spec", "layout", "prefix", "cell", "reset", "recurrent_activation")
# Arguments that the library's errors ask for. Their options have the same names.
_ASKED = {*HINTS, "dtype", "rtol", "force", "device", "entry", "exact", "batch_first"}


def add_file(parser: argparse._ActionsContainer, *names: str, **options: Any) -> None:
    """Add an argument that is a file's name."""
    parser.add_argument(*names, **options).complete = FILE  # type: ignore[attr-defined]


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print machine-readable JSON")


def add_hints(parser: argparse.ArgumentParser) -> None:
    """Add the options for what a file does not record of its RNNs."""
    group = parser.add_argument_group("options for files that do not describe themselves")
    add = group.add_argument
    add("--layout", type=layout, metavar="LAYOUT", help="layout of the input file")
    add("--prefix", default="", metavar="P", help="use only tensors whose names start with P")
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
        "--spec",
        type=spec,
        metavar="SPEC",
        help='the whole spec: "lstm, input_size 8, hidden_size 16, bidirectional"',
    )


def hints(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of load() that add_hints() asked for."""
    return {name: getattr(options, name) for name in HINTS}


def layout(text: str) -> Any:
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


_FLAGS = {"": True, "true": True, "false": False}
_PARSERS: dict[Any, tuple[Any, str]] = {
    "int": (int, "a number"),
    "bool": (lambda text: _FLAGS[text.lower()], "true or false"),
}


def spec(text: str) -> Any:
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


# An argument of a function in a message, as in "cell='gru'", or a spec alone.
_ARGUMENT = re.compile(
    r"(?<![\w.-])(?:([a-z_]+)=(rl\.\w+\([^()]*\)|'[^']*'|True|(?!\w))|(rl\.Spec\([^()]*\)))"
)


def in_options(message: str, options: argparse.Namespace) -> str:
    """Return an error of the library, with the command's options for the arguments it names."""

    def option(match: re.Match[str]) -> str:
        name, value = match[1] or "spec", match[2] or match[3] or ""
        if name not in _ASKED or not hasattr(options, name):
            return match[0]
        value = re.sub(r"rl\.Spec\((.*)\)", r"\1", value)
        value = re.sub(r"rl\.layout\(('\w+'), (.*)\)", r"\1(\2)", value).replace("'", "")
        flag = f"--{name.replace('_', '-')}"
        if value in ("", "True"):
            return flag
        return f"{flag} {value}" if re.fullmatch(r"[\w./-]+", value) else f'{flag} "{value}"'

    return _ARGUMENT.sub(option, message)
