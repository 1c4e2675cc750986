"""The command line: rnnlayout, python -m rnnlayout. Results go to stdout, messages to stderr.

Nothing heavy is imported before a command runs: --help needs neither NumPy nor the library.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from .options import (
    BUG,
    COMMANDS,
    DONE,
    INTERRUPTED,
    LOSSY,
    MALFORMED,
    MISSING,
    USAGE,
    in_options,
)
from .terminal import put, say, say_lines

DESCRIPTION = """\
Inspect, convert, compare and run the LSTM, GRU and RNN layers in files of
PyTorch, Keras, ONNX and cuDNN."""
EPILOG = """\
examples:
  rnnlayout inspect model.h5
  rnnlayout convert old.h5 new.h5 --to keras
  rnnlayout COMMAND --help

exit codes:
  0    success; for verify: equal
  1    for verify: not equal
  2    wrong usage
  3    a file is malformed or unsafe, cannot be read or written, or lacks
       information
  4    the target cannot represent the weights, or --exact and they would round
  5    a requirement is missing: a Python package, cuDNN, a GPU, memory
  70   a bug in rnnlayout: please report it
  130  interrupted"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Raises SystemExit after --help and on wrong usage.

    arguments: if None, use those of the process, and let signals end it.
    """
    options = argparse.Namespace()
    if arguments is None:
        _let_ctrl_c_end_the_process()
    try:
        code = _run(arguments, options)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader has closed the pipe: print nothing more, also at exit
        _silence()
        return DONE
    except Exception as error:
        code = _failed(error, options)
        _flush_or_silence()
        return code


def _let_ctrl_c_end_the_process() -> None:
    """Restore the default action of SIGINT: at once, also while a library holds Python's lock.

    Outputs have no name before they are complete, so nothing half-written remains.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run(arguments: Sequence[str] | None, options: argparse.Namespace) -> int:
    """Parse the arguments into `options`, and run the command."""
    parser = make_parser()
    parser.parse_args(arguments, options)
    if options.version:
        from rnnlayout._native import __version__

        put(f"rnnlayout {__version__}")
        return DONE
    if options.completion:
        from . import completion

        put(completion.script(parser, options.completion))
        return DONE
    if options.command is None:
        parser.print_help(sys.stderr)
        return USAGE
    command = import_module(f"rnnlayout._cli.commands.{options.command}")
    code: int = command.run(options)
    return code


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    style: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(
        prog="rnnlayout",
        description=DESCRIPTION,
        epilog=EPILOG,
        **style,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.add_argument(
        "--completion",
        choices=("bash", "zsh", "fish"),
        help="print a script for this shell that completes commands, and exit",
    )
    commands = parser.add_subparsers(metavar="COMMAND", dest="command")
    for name in COMMANDS:
        module = import_module(f"rnnlayout._cli.commands.{name}")
        one = commands.add_parser(
            name,
            help=module.SUMMARY,
            description=module.DESCRIPTION,
            epilog=f"examples:\n{module.EXAMPLES}",
            **style,
        )
        module.add_arguments(one)
    return parser


# ----------------------------------------------------------------------------------------- errors


def _failed(error: Exception, options: argparse.Namespace) -> int:
    """Print an error and return the exit code."""
    from rnnlayout import _native
    from rnnlayout._model.errors import FileError, MissingExtraError

    codes: dict[int, tuple[type[Exception], ...]] = {
        LOSSY: (_native.LossyError,),  # a LayoutError, so before that
        MALFORMED: (FileError, _native.LayoutError, _native.SpecError, OSError),
        MISSING: (MissingExtraError, _native.CudnnNotFoundError, _native.CudnnError, MemoryError),
    }
    for code, kinds in codes.items():
        if isinstance(error, kinds):
            say_lines("rnnlayout: ", _text_of(error, options))
            return code
    say_lines("rnnlayout: this is a bug, please report: ", f"{type(error).__name__}: {error}")
    if os.environ.get("RNNLAYOUT_DEBUG") == "1":
        import traceback

        say("".join(traceback.format_exception(error)))
    return BUG


def _text_of(error: Exception, options: argparse.Namespace) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, OSError) and error.strerror:
        names = [os.fsdecode(n) for n in (error.filename, error.filename2) if isinstance(n, str)]
        return f"{names[0]}: {error.strerror}" if names else error.strerror
    return in_options(str(error), options)


def _flush_or_silence() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _silence()


def _silence() -> None:
    """Discard what is still to be printed, also at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with suppress(OSError, ValueError):
        sys.stderr.flush()
