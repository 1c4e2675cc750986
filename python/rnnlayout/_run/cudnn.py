"""Find the cuDNN for this process, and report which one is used or why none is."""

from __future__ import annotations

import os
import sys
from typing import Any

from rnnlayout import _native
from rnnlayout._model.asks import Ask
from rnnlayout._native import CudnnNotFoundError, SpecError

_CHOSEN = ("RNNLAYOUT_CUDNN", "chosen")


def set_cudnn(path: str | os.PathLike[str] | None) -> None:
    """Choose the cuDNN library. Call it before the first use of a GPU in this process.

    path: libcudnn.so.9 or libcudnn.so.8, or a folder that contains it; "off" to use no GPU; None to
        search for cuDNN, as without this call.

    It overrides the environment variable RNNLAYOUT_CUDNN, which takes the same values. The path is
    checked when a GPU is first used. If it is not usable, that raises CudnnNotFoundError, and
    rnnlayout does not search for another cuDNN. Raises SpecError if a cuDNN is already in use.
    """
    if path is None:
        _native.choose_cudnn(None)
        return
    try:
        name = os.fsencode(path)
    except TypeError:
        name = b""
    if not name or b"\0" in name:
        raise SpecError(f"path is {path!r}, need a file, a folder, 'off' or None")
    _native.choose_cudnn(name)


def cudnn_report() -> dict[str, Any]:
    """Return the report of the search, which is made once per process."""
    own = os.path.dirname(os.__file__)  # the standard library, which contains no packages
    texts = [entry for entry in sys.path if isinstance(entry, str) and os.path.isabs(entry)]
    folders = [entry for entry in dict.fromkeys(texts) if os.path.isdir(entry)]
    packages = [entry for entry in folders if entry not in (own, os.path.join(own, "lib-dynload"))]
    environments = dict.fromkeys([sys.prefix, sys.base_prefix])
    return _native.find_cudnn(
        [os.fsencode(entry) for entry in packages], [os.fsencode(entry) for entry in environments]
    )


def require_cudnn(number: int = 0) -> None:
    """Raise CudnnNotFoundError if this GPU cannot be used."""
    report = cudnn_report()
    why_not = report["why_not"]
    if number and report["gpus"] and report["path"]:
        known = number < len(report["gpus"])
        why_not = report["gpus"][number]["why_not"] if known else "this GPU does not exist"
    if why_not:
        lines = [f"cuda:{number} cannot be used: {why_not}", *describe_search(report), "hint: "]
        raise CudnnNotFoundError("\n".join(lines) + cudnn_hint(report))


def describe_search(report: dict[str, Any]) -> list[str]:
    """Return a line for each place that was searched and for each GPU."""
    lines = []
    for place in report["places"]:
        state = (
            place["why_not"]
            or f"in use, cuDNN {cudnn_version(report)} for CUDA {cuda_version(report)}"
        )
        lines.append(f"  {place['origin']}: {place['path']}: {state}")
    if report["cublas"]:
        lines.append(f"  cuBLAS: {report['cublas']}")
    if report["driver"] or report["no_driver"]:
        state = report["no_driver"] or f"runs CUDA {cuda_version(report, 'driver_')} at most"
        lines.append(f"  driver: {report['driver'] or 'none'}: {state}")
    for number, gpu in enumerate(report["gpus"]):
        state = gpu["why_not"] or f"compute capability {compute_capability(gpu)}"
        lines.append(f"  cuda:{number}: {gpu['name'] or 'no name'}: {state}")
    return lines


def cudnn_hint(report: dict[str, Any]) -> str:
    """Return what to do, in one line."""
    if not report["places"]:
        return "use " + Ask("device", "cpu")
    if not report["path"] and report["places"][0]["origin"] in _CHOSEN:
        return "without RNNLAYOUT_CUDNN and set_cudnn(), cuDNN is searched for"
    if not report["path"]:
        known = report["driver_cuda_version"]
        extra = "cu12" if 0 < known < 13_000 else "cu13"
        older = "" if known else ', or "rnnlayout[cu12]" for a driver before CUDA 13'
        return f'pip install "rnnlayout[{extra}]"{older}'
    if report["no_driver"]:
        return "does nvidia-smi list a GPU? A container needs --gpus all"
    return 'pip install --upgrade "rnnlayout[cu13]" installs the newest cuDNN'


def cudnn_version(report: dict[str, Any]) -> str:
    """Return the version of cuDNN: "9.19.0"."""
    number = report["version"]
    unit = 10_000 if number >= 90_000 else 1000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"


def cuda_version(report: dict[str, Any], whose: str = "") -> str:
    """Return the CUDA version that cuDNN is built for, or with "driver_" the driver's: "13.1"."""
    number = report[f"{whose}cuda_version"]
    return f"{number // 1000}.{number % 1000 // 10}"


def compute_capability(gpu: dict[str, Any]) -> str:
    """Return the compute capability: "9.0"."""
    return f"{gpu['capability'] // 10}.{gpu['capability'] % 10}"
