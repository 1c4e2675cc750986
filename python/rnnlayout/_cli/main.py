"""The command line: rnnlayout, python -m rnnlayout. Results go to stdout, messages to stderr.

Nothing heavy is imported before a command runs: --help needs neither NumPy nor the library.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module

from rnnlayout._model.errors import asks_written_by

from .options import (
    COMMANDS,
    DONE,
    INTERRUPTED,
    MISSING,
    USAGE,
    Parser,
    report_error,
    write_as_option,
)
from .terminal import discard_text, print_error, print_text, show_progress

DESCRIPTION = """\
Inspect, convert, compare and run the LSTM, GRU and RNN layers in files of
PyTorch, Keras, ONNX and cuDNN."""
EPILOG = """\
examples:
  rnnlayout inspect model.h5
  rnnlayout convert old.h5 new.h5 --to keras
  rnnlayout COMMAND --help

exit codes:
  0    success; for verify: equal; for diagnose: no mistakes; for identify:
       found
  1    for verify: not equal; for diagnose: mistakes; for identify: not found
  2    wrong usage
  3    a file is malformed or unsafe, cannot be read or written, or lacks
       information
  4    the target cannot represent the weights, or --exact and they would round
  5    a requirement is missing: a Python package, cuDNN, a GPU, memory
  70   a bug in rnnlayout: please report it
  130  interrupted"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code. Raises SystemExit after --help and on wrong usage.
    arguments: None for the arguments of the process, which signals may then end."""
    options = argparse.Namespace()
    if arguments is None:
        _prepare_process()
    with asks_written_by(partial(write_as_option, options)):
        try:
            code = _run(arguments, options)
            sys.stdout.flush()
        except KeyboardInterrupt:
            return INTERRUPTED
        except Exception as error:
            code = report_error(error)
    _flush_or_discard()
    return code


def _prepare_process() -> None:
    """Open the streams that the caller has closed (`>&-`), which Python replaces by None. Print
    lines at once, so that results and messages in the same file are in order. Restore the default
    action of SIGINT: at once, also while a library holds Python's lock.

    On Linux outputs have no name before they are complete, so nothing half-written remains.
    Elsewhere Python's KeyboardInterrupt removes them.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        getattr(sys, name).reconfigure(line_buffering=True)
    is_ignored = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    if sys.platform == "linux" and not is_ignored:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run(arguments: Sequence[str] | None, options: argparse.Namespace) -> int:
    """Parse the arguments into `options`, and run the command."""
    parser = make_parser()
    parser.parse_args(arguments, options)
    if options.completion:
        print_text(completion_script(parser, options.completion))
        return DONE
    if options.command is None and not options.version:
        parser.print_help(sys.stderr)
        return USAGE
    try:
        import numpy  # noqa: F401
    except ImportError as error:
        cause = str(error).strip().partition("\n")[0]
        hint = 'hint: python -m pip install --force-reinstall "numpy>=1.26"'
        print_error(f"NumPy cannot be imported: {cause}\n{hint}")
        return MISSING
    if options.version:
        from rnnlayout._native import __version__

        print_text(f"rnnlayout {__version__}")
        return DONE
    command = import_module(f"rnnlayout._cli.commands.{options.command}")
    with show_progress(options.command):
        code: int = command.run(options)
    return code


def _flush_or_discard() -> None:
    """Flush the streams. Discard text that cannot be printed, which would fail again at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            discard_text(stream)


def make_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(prog="rnnlayout", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("-V", "--version", action="store_true", help="print the version and exit")
    parser.add_argument(
        "--completion",
        choices=("bash", "zsh", "fish"),
        help="print a script for this shell that completes commands, and exit",
    )
    commands = parser.add_subparsers(metavar="COMMAND", dest="command")
    for name in COMMANDS:
        module = import_module(f"rnnlayout._cli.commands.{name}")
        epilog = f"examples:\n{module.EXAMPLES}"
        module.add_arguments(
            commands.add_parser(
                name, help=module.SUMMARY, description=module.DESCRIPTION, epilog=epilog
            )
        )
    return parser


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script that makes a shell complete the commands, by shtab."""
    from rnnlayout._model.errors import import_extra
    from rnnlayout._model.layout import known_layouts

    shtab = import_extra("shtab", "completion", "the completion of shells")
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    for command in commands.choices.values():
        for action in command._actions:
            if action.metavar == "LAYOUT":
                action.choices = list(known_layouts())
    text: str = shtab.complete(parser, shell=shell)
    return text
