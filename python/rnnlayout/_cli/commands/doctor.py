"""rnnlayout doctor"""

from __future__ import annotations

import argparse
from typing import Any

from rnnlayout._cli.options import DONE, MISSING, add_json
from rnnlayout._cli.terminal import put, put_json

SUMMARY = "check which CPU kernels, cuDNN and GPUs are available"
DESCRIPTION = """\
Check what is available on this machine: kernels for its CPU, cuDNN, the CUDA
driver and GPUs; list each place that was searched for cuDNN. Exit code 0: a GPU
can be used; 5: no GPU can be used."""
EXAMPLES = """\
  rnnlayout doctor
  rnnlayout doctor --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    found = examine()
    if options.json:
        put_json("doctor", 1, found)
    else:
        put(as_text(found))
    return DONE if found["gpu"]["usable"] else MISSING


def examine() -> dict[str, Any]:
    """Return everything that doctor reports, as it goes into the JSON."""
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

    cpu, gpu = found["cpu"], found["gpu"]
    lines = [
        f"rnnlayout {found['rnnlayout']}, Python {found['python']}, {found['system']}",
        f"CPU: {cpu['kernels']} kernels, up to {cpu['threads']} threads",
        "GPU: can be used" if gpu["usable"] else f"GPU: cannot be used: {gpu['why_not']}",
        *cudnn.describe(cudnn.find()),
    ]
    return "\n".join(lines + ([f"hint: {gpu['hint']}"] if gpu["hint"] else []))
