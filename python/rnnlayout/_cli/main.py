"""The command line: rnnlayout, python -m rnnlayout. Results go to stdout, messages to stderr.

Nothing heavy is imported before a command runs: --help needs neither NumPy nor the library.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from .failures import numpy_works, report_error
from .options import DONE, INTERRUPTED, MISSING, USAGE
from .parser import completion_script, make_parser
from .terminal import print_text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Raises SystemExit after --help and on wrong usage.

    arguments: if None, use those of the process, and let signals end it.
    """
    options = argparse.Namespace()
    if arguments is None:
        _let_ctrl_c_end_the_process()
        _discard_what_closed_streams_get()
    try:
        code = _run(arguments, options)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if _is_broken_pipe(error):  # its reader has closed it: print nothing more, also at exit
            _silence()
            return DONE
        code = report_error(error, options)
        _flush_or_silence()
        return code


def _let_ctrl_c_end_the_process() -> None:
    """Restore the default action of SIGINT: at once, also while a library holds Python's lock.

    On Linux outputs have no name before they are complete, so nothing half-written remains.
    Elsewhere Python's KeyboardInterrupt removes them.
    """
    if sys.platform != "linux":
        return
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _discard_what_closed_streams_get() -> None:
    """Open the streams that the caller has closed (`>&-`), which Python replaces by None."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


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
    if not numpy_works():
        return MISSING
    if options.version:
        from rnnlayout._native import __version__

        print_text(f"rnnlayout {__version__}")
        return DONE
    command = import_module(f"rnnlayout._cli.commands.{options.command}")
    code: int = command.run(options)
    return code


def _is_broken_pipe(error: Exception) -> bool:
    """Return whether a stream's reader has closed it. Windows reports EINVAL, for no file."""
    if isinstance(error, OSError) and sys.platform == "win32" and error.filename is None:
        return error.errno in (errno.EPIPE, errno.EINVAL)
    return isinstance(error, BrokenPipeError)


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
