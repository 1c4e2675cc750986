"""rnnlayout doctor"""

from __future__ import annotations

import argparse

SUMMARY = "what can be used here, and why the rest cannot"
DESCRIPTION = """\
What can be used here: kernels of the CPU, cuDNN, the driver, GPUs; and each
place that was looked at for cuDNN. Exit code 0: a GPU can be used; 5: none can."""
EXAMPLES = """\
  rnnlayout doctor
  rnnlayout doctor --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same for programs")


def run(options: argparse.Namespace) -> int:
    from rnnlayout import _cli, _doctor
    from rnnlayout._terminal import put, put_json

    found = _doctor.examine()
    if options.json:
        put_json("doctor", 1, found)
    else:
        put(_doctor.as_text(found))
    return _cli.DONE if found["gpu"]["usable"] else _cli.MISSING
