"""Shared parts of the commands: names, exit codes, parser, options, outputs and messages."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NoReturn

from rnnlayout._model.errors import Ask, write_in_python
from rnnlayout._model.reading_options import DEFAULTS, UNRECORDED, ComparisonOptions
from rnnlayout._model.similar import did_you_mean, unknown_name

from .terminal import print_error, print_message, printable

if TYPE_CHECKING:
    from rnnlayout._files.tensor_sets.file_rnns import Found
    from rnnlayout._model.picture.picture import Picture

# Exit codes, explained in --help. 1 is of verify, diagnose and identify; 2 is also argparse's.
DONE, USAGE, MALFORMED, LOSSY, MISSING, BUG, INTERRUPTED = 0, 2, 3, 4, 5, 70, 130
# As in _model, which --help does not import.
KINDS = ("weights", "gradient", "squared_gradient")
DTYPES = ("float16", "bfloat16", "float32", "float64")

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

# How a shell completes a file's name: equal to shtab.FILE.
FILE = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}


class Parser(argparse.ArgumentParser):
    """The parser of a command, or of all commands. Parsed options have error() as .wrong."""

    def __init__(self, **style: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **style)
        self.set_defaults(wrong=self.error)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown options here, where the options of the command are known."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        """Print the mistake in the arguments and the likely intention, and exit."""
        if match := re.search(r"invalid choice: '(.*)'( \(choose from (.*)\))", message):
            meant = did_you_mean(match[1], re.findall(r"[\w-]+", match[3]))
            message = message[: match.start(2)] + meant + message[match.start(2) :]
        elif match := re.search(r"(.*'(.*)'), (need one of: (.*))", message):
            message = unknown_name(match[1], match[2], match[4].split(", "), match[3]).text
        elif match := re.search(r"unrecognized arguments: .*?(--?[a-z][\w-]*)", message):
            message += did_you_mean(match[1], self._option_string_actions)
        print_error(f"{message} (see {self.prog} --help)")
        raise SystemExit(USAGE)

    def add_file(self, *names: str, group: Any = None, **options: Any) -> None:
        """Add an argument that is a file's name, by default to no group."""
        action: Any = (group or self).add_argument(*names, **options)
        action.complete = FILE

    def add_pictures(self, subject: str) -> None:
        """Add the options that write a picture."""
        self.add_file("--svg", metavar="OUT", help=f"write {subject} as SVG")
        self.add_file("--png", metavar="OUT", help=f"write {subject} as PNG: needs matplotlib")
        width = "of the picture, in pixels (default: 760)"
        self.add_argument("--width", type=_parse_pixels, metavar="N", help=width)

    def add_force(self, help_text: str = "overwrite OUT if it exists") -> None:
        self.add_argument("--force", action="store_true", help=help_text)

    def add_json(self) -> None:
        self.add_argument("--json", action="store_true", help="print machine-readable JSON")

    def add_choice(self) -> None:
        """Add the options that choose RNNs of a file, and join layers."""
        only = "use only this RNN; may be repeated"
        self.add_argument("--only", action="append", metavar="NAME", help=only)
        layers = "make one RNN of these layers, bottom first; may be repeated"
        self.add_argument(
            "--stack", action="append", type=_parse_stack, metavar="NAME,NAME", help=layers
        )

    def add_map(self, help: str) -> None:
        """Add the option that pairs names of two files."""
        parse = partial(_parse_pair, False, "need two names, as in encoder=lstm_1")
        self.add_argument("--map", action="append", type=parse, metavar="A=B", help=help)

    def add_reading(self, *names: str, owner: str = "the input file") -> None:
        """Add the options that say how a file is read, by default all. owner: of the layout."""
        facts = self.add_argument_group("options for files that do not describe themselves")
        for name in names or READING:
            group: Any = facts if name in ("spec", "layout", *UNRECORDED) else self
            form = {"default": DEFAULTS.get(name), **_READING_FORMS[name]}
            form["help"] = form["help"].format(owner=owner)
            flag = "--no-mmap" if name == "mmap" else _flag(name)
            action = group.add_argument(flag, dest=name, **form)
            if name == "keras_config":
                action.complete = FILE


def map_pairs(options: argparse.Namespace) -> dict[str, str]:
    """Return {name in A: name in B} of --map."""
    pairs = dict(options.map or ())
    if len(pairs) < len(options.map or ()) or len(set(pairs.values())) < len(pairs):
        options.wrong("--map pairs one RNN twice")
    return pairs


def reading_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of load() from the options of add_reading()."""
    reading = {name: getattr(options, name) for name in READING if hasattr(options, name)}
    if "as_class" in reading:
        reading["as_class"] = dict(reading["as_class"] or ())
    return reading


def load_chosen(path: str, options: argparse.Namespace) -> Found:
    """Return the RNNs of a file that --only and --stack choose, or all."""
    from rnnlayout._files.files import load
    from rnnlayout._files.tensor_sets.choose_rnns import choose_rnns

    return choose_rnns(load(path, **reading_options(options)), options.only, options.stack)


# -------------------------------------------------------------------------------- values of options


def _parse_pixels(text: str) -> int:
    from rnnlayout._model.picture.picture import NARROWEST, WIDEST

    if not text.isdecimal() or not NARROWEST <= int(text) <= WIDEST:
        raise argparse.ArgumentTypeError(f"{text!r}: need a number from {NARROWEST} to {WIDEST}")
    return int(text)


def _parse_stack(text: str) -> list[str]:
    names = text.split(",")
    if len(names) < 2 or not all(names):
        raise argparse.ArgumentTypeError(f"{text!r}: need names, as in lstm_1,lstm_2")
    return names


def _parse_pair(at_last: bool, needed: str, text: str) -> tuple[str, str]:
    """Return the texts before and after the first or last equals sign."""
    before, _, after = text.rpartition("=") if at_last else text.partition("=")
    if not before or not after:
        raise argparse.ArgumentTypeError(f"{text!r}: {needed}")
    return before, after


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
    """Parse a layout: a name, or a name with options: "concat(inputs=xh, z=candidate)"; a file of
    JSON with a row, or the row itself."""
    from rnnlayout import _native
    from rnnlayout._model.layout import Layout, layout_from_json

    if text.endswith(".json") or text.startswith("{"):
        try:
            return layout_from_json(text.encode() if text[0] == "{" else Path(text).read_bytes())
        except (OSError, _native.LayoutError, _native.SpecError) as error:
            raise argparse.ArgumentTypeError(f"{text}: {error_text(error)}") from None
    match = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a layout")
    pairs = [option.split("=") for option in (match[2] or "").split(",") if option.strip()]
    if any(len(pair) != 2 for pair in pairs):
        raise argparse.ArgumentTypeError(f"{text!r}: write options as NAME=VALUE")
    try:
        return Layout(match[1], **{key.strip(): value.strip() for key, value in pairs})
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


_SPEC_FORM = 'the form "lstm, input_size 8, hidden_size 16"'


def parse_spec(text: str) -> Any:
    """Parse a spec as printed: "gru, input_size 3, hidden_size 2"; "=" may replace a space."""
    from dataclasses import fields

    from rnnlayout import _native
    from rnnlayout._model.spec import Spec

    cell, *parts = [part.strip() for part in text.split(",")]
    kinds = {field.name: field.type for field in fields(Spec)}
    values: dict[str, Any] = {"cell": cell}
    for part in parts:
        name, _, value = re.sub(r"\s*=\s*|\s+", " ", part).partition(" ")
        if name not in kinds or name in values:
            listing = f"need, once each, fields of {', '.join(list(kinds)[1:])}"
            unused = [field for field in kinds if field not in values and name not in values]
            raise argparse.ArgumentTypeError(unknown_name(repr(part), name, unused, listing).text)
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
        raise argparse.ArgumentTypeError(f"{text!r}: need {_SPEC_FORM}") from None


# ------------------------------------------------------------------- how a file is read, by option

# The spec, and all options of a reading except the dtype, which few commands have.
READING = ("spec", *(name for name in DEFAULTS if name in ComparisonOptions.__annotations__))
_READING_FORMS: dict[str, dict[str, Any]] = {
    "spec": {
        "type": parse_spec,
        "metavar": "SPEC",
        "help": 'the whole spec: "lstm, input_size 8, hidden_size 16, bidirectional"',
    },
    "layout": {
        "type": parse_layout,
        "metavar": "LAYOUT",
        "help": "layout of {owner}: a name, or a .json file with a row of your own",
    },
    "prefix": {"metavar": "P", "help": "use only tensors whose names start with P"},
    "ignore": {
        "action": "append",
        "default": None,
        "metavar": "NAME",
        "help": "leave out tensors that change nothing: 'rnn.norm.*'; may be repeated",
    },
    "cell": {"choices": ("lstm", "gru", "rnn_tanh", "rnn_relu"), "help": "cell of the RNNs"},
    "reset": {
        "choices": ("after", "before"),
        "help": "where a GRU's reset gate acts: after or before the product R h",
    },
    "recurrent_activation": {
        "choices": ("sigmoid", "hard_sigmoid", "hard_sigmoid_keras2"),
        "metavar": "NAME",
        "help": "of LSTMs and GRUs: sigmoid, hard_sigmoid (Keras 3) or hard_sigmoid_keras2",
    },
    "activation": {
        "choices": ("tanh", "relu"),
        "help": "of the candidate and the output of LSTMs and GRUs",
    },
    "as_class": {
        "action": "append",
        "type": partial(_parse_pair, True, "write CLASS=LSTM, CLASS=GRU ..."),
        "metavar": "CLASS=LSTM",
        "help": "read layers of your own class in a Keras or PyTorch file as LSTM, GRU, SimpleRNN"
        " or RNN, cells as LSTMCell ...",
    },
    "keras_config": {
        "metavar": "MODEL.json",
        "help": "the to_json() of a Keras model, if the file has only its weights",
    },
    "format": {
        "type": parse_file_format,
        "metavar": "F",
        "help": "format of the file whose name does not show it: pt, h5, keras, npz ...",
    },
    "mmap": {
        "action": "store_false",
        "help": "read files into memory instead of mapping them, if others may truncate them",
    },
}


def _flag(name: str) -> str:
    """Return the option of the command line for an argument of Python."""
    return f"--{name.replace('_', '-')}"


# ------------------------------------------------------------------------------------------ outputs


def check_outputs(options: argparse.Namespace, paths: Sequence[Any], *sources: str) -> None:
    """Raise the errors of outputs that cannot be written, before anything is read."""
    from rnnlayout._files.tensor_sets.output_file import check_free

    for path in filter(None, paths):
        check_free(Path(path), options.force, *sources)


def check_rnn_file(options: argparse.Namespace, path: str, *sources: str) -> None:
    """Refuse a file that cannot be written with RNNs, before anything is read."""
    from rnnlayout._files.formats.registry import format_to_write
    from rnnlayout._model.errors import FileError

    try:
        format_to_write(path)
    except FileError as error:
        options.wrong(str(error))
    check_outputs(options, [path], *sources)


def write_pictures(draw: Callable[..., Picture], options: argparse.Namespace) -> None:
    """Write a picture to the files that the options name, if any. draw: called with width=."""
    from rnnlayout._files.tensor_sets.output_file import write_whole_file
    from rnnlayout._model.picture.picture import WIDTH

    if not (options.svg or options.png):
        return
    picture = draw(width=options.width or WIDTH)
    for path, suffix in (options.svg, ".svg"), (options.png, ".png"):
        if path:
            with write_whole_file(path, force=options.force) as output:
                picture.save(output.path, suffix=suffix)
            print_message(f"{printable(path)}: written")


# ----------------------------------------------------------------------------------------- messages


def write_as_option(options: argparse.Namespace, ask: Ask) -> str:
    """Return an argument that a text asks for as an option of the command."""
    from rnnlayout._model.spec import Spec, spec_in_words

    if not hasattr(options, ask.name):
        return f"{write_in_python(ask)} in Python"
    option, value = _flag(ask.name), ask.value
    if ask == ("batch_first", False, ask.also):  # `run` has an option for either order
        return "--time-first"
    if value in (..., None, True):
        return option
    if isinstance(value, Spec):
        values = [spec_in_words(value, ask.also)]
    elif getattr(value, "json", ""):
        values = [value.json]
    elif isinstance(value, dict):
        values = [f"{key}={text}" for key, text in value.items()]
    else:
        values = value if isinstance(value, list) else [str(value)]
    return " ".join(f"{option} {_quote_value(text)}" for text in values)


def _quote_value(value: str) -> str:
    """Return a value quoted for a shell: names in files may contain any character."""
    harmless = re.fullmatch(r"[\w ,=()./:-]+", value)
    return f'"{value}"' if harmless and not re.fullmatch(r"[\w./=-]+", value) else quote(value)


def report_error(error: Exception, file: str = "") -> int:
    """Print an error and return the exit code. file: printed first if not named in the error."""
    from rnnlayout import _native
    from rnnlayout._model.errors import FileError, MissingExtraError

    if isinstance(error, MemoryError):  # what the command still holds is needed for the message
        error.__traceback__ = error.__context__ = None
    codes: dict[int, tuple[type[Exception], ...]] = {
        LOSSY: (_native.LossyError,),  # a LayoutError, so before that
        MALFORMED: (FileError, _native.LayoutError, _native.SpecError, OSError),
        MISSING: (MissingExtraError, _native.CudnnNotFoundError, _native.CudnnError, MemoryError),
    }
    for code, kinds in codes.items():
        if isinstance(error, kinds):
            text = error_text(error)
            with suppress(OSError):  # stderr may be closed; the exit code is enough
                print_error(text if file in text else f"{file}: {text}")
            return code
    print_error(f"this is a bug in rnnlayout, please report: {type(error).__name__}: {error}")
    if os.environ.get("RNNLAYOUT_DEBUG") == "1":
        import traceback

        print_message("".join(traceback.format_exception(error)))
    return BUG


def error_text(error: Exception) -> str:
    """Return the message of an error."""
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, OSError) and error.strerror:
        names = [os.fsdecode(n) for n in (error.filename, error.filename2) if isinstance(n, str)]
        return f"{names[0]}: {error.strerror}" if names else error.strerror
    return str(error)
