"""The command line: rnnlayout, python -m rnnlayout. Data on stdout, words on stderr.

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
from typing import Any, NoReturn

from .options import (
    BUG,
    COMMANDS,
    DONE,
    INTERRUPTED,
    MALFORMED,
    MISSING,
    NO_FORM,
    USAGE,
    with_options,
)
from .terminal import put, say, say_lines

EPILOG = """\
examples:
  rnnlayout inspect model.h5
  rnnlayout convert old.h5 new.h5 --to keras
  rnnlayout COMMAND --help

exit codes: 0 done or equal; 1 not equal; 2 usage; 3 input malformed or unsafe;
4 no form in the target, or rounding under --exact; 5 something missing here
(an extra, cuDNN, a GPU); 130 interrupted"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. SystemExit: after --help, and of a wrong usage.

    arguments: None: those of the process, which it then is: signals end it.
    """
    if arguments is None:
        _let_ctrl_c_end_the_process()
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read has read enough: nothing more, also not at exit
        _silence()
        return DONE
    except Exception as error:
        code = _failed(error)
        _flush_or_silence()
        return code


def _let_ctrl_c_end_the_process() -> None:
    """Restore the default action of SIGINT: at once, also while a library holds Python's lock.

    Outputs have no name before they are complete, so nothing half-written remains.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run(arguments: Sequence[str] | None) -> int:
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help(sys.stderr)
        return USAGE
    command = import_module(f"rnnlayout._cli.commands.{options.command}")
    code: int = command.run(options)
    return code


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    words: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(
        prog="rnnlayout",
        description="LSTM, GRU and RNN weights between cuDNN and the frameworks, and their files.",
        epilog=EPILOG,
        **words,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version, and exit")
    parser.add_argument(
        "--completion",
        action=_Completion,
        choices=("bash", "zsh", "fish"),
        help="print a script that completes commands in this shell, and exit",
    )
    commands = parser.add_subparsers(metavar="COMMAND", dest="command")
    for name in COMMANDS:
        module = import_module(f"rnnlayout._cli.commands.{name}")
        one = commands.add_parser(
            name,
            help=module.SUMMARY,
            description=module.DESCRIPTION,
            epilog=f"examples:\n{module.EXAMPLES}",
            **words,
        )
        module.add_arguments(one)
    return parser


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from rnnlayout._native import __version__

        put(f"rnnlayout {__version__}")
        parser.exit()


class _Completion(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Any, shell: Any, option: Any = None
    ) -> NoReturn:
        from . import completion

        put(completion.script(make_parser(), shell))
        parser.exit()


# ------------------------------------------------------------------------------- how it may end


def _failed(error: Exception) -> int:
    """Say what went wrong; the exit code."""
    from rnnlayout import _native
    from rnnlayout._model.errors import FileError, MissingExtraError

    codes: dict[int, tuple[type[Exception], ...]] = {
        NO_FORM: (_native.LossyError,),  # a LayoutError, so before that
        MALFORMED: (FileError, _native.LayoutError, _native.SpecError, OSError),
        MISSING: (MissingExtraError, _native.CudnnNotFoundError, _native.CudnnError, MemoryError),
    }
    for code, kinds in codes.items():
        if isinstance(error, kinds):
            say_lines("rnnlayout: ", _words(error))
            return code
    say_lines("rnnlayout: this is a bug, please report: ", f"{type(error).__name__}: {error}")
    if os.environ.get("RNNLAYOUT_DEBUG") == "1":
        import traceback

        say("".join(traceback.format_exception(error)))
    return BUG


def _words(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, OSError) and error.strerror:
        names = [os.fsdecode(n) for n in (error.filename, error.filename2) if isinstance(n, str)]
        return f"{names[0]}: {error.strerror}" if names else error.strerror
    return with_options(str(error))


def _flush_or_silence() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _silence()


def _silence() -> None:
    """What is still to be printed, at exit too, goes nowhere."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with suppress(OSError, ValueError):
        sys.stderr.flush()
