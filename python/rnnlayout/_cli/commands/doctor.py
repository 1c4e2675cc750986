"""rnnlayout doctor"""

from __future__ import annotations

import argparse
from typing import Any

from rnnlayout._cli.options import DONE, MISSING

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
    from rnnlayout._cli.terminal import put, put_json

    found = examine()
    if options.json:
        put_json("doctor", 1, found)
    else:
        put(as_text(found))
    return DONE if found["gpu"]["usable"] else MISSING


def examine() -> dict[str, Any]:
    """Return everything doctor reports, as it goes into the JSON."""
    import platform

    from rnnlayout import _native
    from rnnlayout._run import cudnn

    report = cudnn.find()
    gpus = [
        {
            "device": f"cuda:{number}",
            "name": gpu["name"],
            "capability": cudnn.capability(gpu),
            "why_not": gpu["why_not"],
        }
        for number, gpu in enumerate(report["gpus"])
    ]
    used = report["path"] and {
        "path": report["path"],
        "version": cudnn.version(report),
        "cuda": cudnn.cuda(report),
        "cublas": report["cublas"],
    }
    driver = {
        "path": report["driver"],
        "cuda": cudnn.cuda(report, "driver_") if report["driver_cuda_version"] else None,
        "why_not": report["no_driver"],
    }
    return {
        "rnnlayout": _native.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": {"kernels": _native.cpu_tier(), "threads": _native.num_threads()},
        "gpu": {
            "usable": not report["why_not"],
            "why_not": report["why_not"],
            "hint": cudnn.hint(report) if report["why_not"] else None,
            "cudnn": used,
            "driver": driver,
            "gpus": gpus,
            "places": report["places"],
        },
    }


def as_text(found: dict[str, Any]) -> str:
    """Return the same as text."""
    from rnnlayout._run import cudnn

    report, gpu = cudnn.find(), found["gpu"]
    lines = [
        f"rnnlayout {found['rnnlayout']}, Python {found['python']}, {found['system']}",
        f"CPU: {found['cpu']['kernels']} kernels, up to {found['cpu']['threads']} threads",
        "GPU: can be used" if gpu["usable"] else f"GPU: cannot be used: {gpu['why_not']}",
        *cudnn.describe(report),
    ]
    if gpu["hint"]:
        lines.append(f"hint: {gpu['hint']}")
    return "\n".join(lines)
