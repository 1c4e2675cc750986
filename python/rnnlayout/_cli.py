"""The command line: rnnlayout, python -m rnnlayout. Data on stdout, words on stderr."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from rnnlayout import _native

# Exit codes. 2, the usage, is argparse's own.
DONE = 0
MISSING = 5  # something is not there: an extra, cuDNN, a GPU
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read has read enough: nothing more, also not at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rnnlayout", description="LSTM, GRU and RNN weights between cuDNN and the frameworks."
    )
    parser.add_argument("--version", action="version", version=f"rnnlayout {_native.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    doctor = commands.add_parser(
        "doctor",
        help="what can be used here, and why the rest cannot",
        description="What can be used here: kernels of the CPU, cuDNN, the driver, GPUs; and each"
        " place that was looked at for cuDNN. Exit code 0: a GPU can be used; 5: none can.",
    )
    doctor.add_argument("--json", action="store_true", help="the same for programs")
    doctor.set_defaults(run=_doctor)
    return parser


def _doctor(options: argparse.Namespace) -> int:
    from rnnlayout import _doctor

    found = _doctor.examine()
    text = _doctor.as_json(found) if options.json else _doctor.as_text(found)
    encoding = sys.stdout.encoding or "utf-8"  # a path may have what the terminal has not
    print(text.encode(encoding, "backslashreplace").decode(encoding))
    return DONE if found["gpu"]["usable"] else MISSING
