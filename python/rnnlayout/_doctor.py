"""What can be used here, and why the rest cannot: rnnlayout doctor."""

from __future__ import annotations

import platform
from typing import Any

from rnnlayout import _cudnn, _native


def examine() -> dict[str, Any]:
    """All that there is to know, as it goes into the JSON."""
    report = _cudnn.find()
    gpus = [
        {
            "device": f"cuda:{number}",
            "name": gpu["name"],
            "capability": _cudnn.capability(gpu),
            "why_not": gpu["why_not"],
        }
        for number, gpu in enumerate(report["gpus"])
    ]
    cudnn = report["path"] and {
        "path": report["path"],
        "version": _cudnn.version(report),
        "cuda": _cudnn.cuda(report),
        "cublas": report["cublas"],
    }
    driver = {
        "path": report["driver"],
        "cuda": _cudnn.cuda(report, "driver_") if report["driver_cuda_version"] else None,
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
            "hint": _cudnn.hint(report) if report["why_not"] else None,
            "cudnn": cudnn,
            "driver": driver,
            "gpus": gpus,
            "places": report["places"],
        },
    }


def as_text(found: dict[str, Any]) -> str:
    report, gpu = _cudnn.find(), found["gpu"]
    lines = [
        f"rnnlayout {found['rnnlayout']}, Python {found['python']}, {found['system']}",
        f"CPU: {found['cpu']['kernels']} kernels, up to {found['cpu']['threads']} threads",
        "GPU: can be used" if gpu["usable"] else f"GPU: cannot be used: {gpu['why_not']}",
        *_cudnn.describe(report),
    ]
    if gpu["hint"]:
        lines.append(f"hint: {gpu['hint']}")
    return "\n".join(lines)
