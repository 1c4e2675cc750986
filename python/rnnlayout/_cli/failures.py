"""From an exception to a message on stderr and an exit code."""

from __future__ import annotations

import argparse
import os
from contextlib import suppress

from .options import BUG, LOSSY, MALFORMED, MISSING, in_options
from .terminal import print_error, print_message


def report_error(error: Exception, options: argparse.Namespace, file: str = "") -> int:
    """Print an error and return the exit code. file: the file's name, which is printed first if the
    error may not contain it."""
    from rnnlayout import _native
    from rnnlayout._model.errors import FileError, MissingExtraError

    codes: dict[int, tuple[type[Exception], ...]] = {
        LOSSY: (_native.LossyError,),  # a LayoutError, so before that
        MALFORMED: (FileError, _native.LayoutError, _native.SpecError, OSError),
        MISSING: (MissingExtraError, _native.CudnnNotFoundError, _native.CudnnError, MemoryError),
    }
    for code, kinds in codes.items():
        if isinstance(error, kinds):
            text = error_text(error, options)
            with suppress(OSError):  # the code says it too if stderr cannot be written
                print_error(text if file in text else f"{file}: {text}")
            return code
    print_error(f"this is a bug in rnnlayout, please report: {type(error).__name__}: {error}")
    if os.environ.get("RNNLAYOUT_DEBUG") == "1":
        import traceback

        print_message("".join(traceback.format_exception(error)))
    return BUG


def error_text(error: Exception, options: argparse.Namespace) -> str:
    """Return the message of an error, with options for the arguments that it names."""
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, OSError) and error.strerror:
        names = [os.fsdecode(n) for n in (error.filename, error.filename2) if isinstance(n, str)]
        return f"{names[0]}: {error.strerror}" if names else error.strerror
    return in_options(str(error), options)
