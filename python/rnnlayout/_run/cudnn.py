"""Find the cuDNN for this process, and report which one is used or why none is."""

from __future__ import annotations

import copy
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from rnnlayout import _native
from rnnlayout._model.errors import Ask, Message
from rnnlayout._native import CudnnNotFoundError, SpecError

_LIBRARY = "libcudnn.so.9"
_CHOSEN = ("RNNLAYOUT_CUDNN", "chosen")
_WHEELS = ("nvidia/cudnn/lib", "nvidia/cudnn_jit/lib", "torch/lib")
_TOOLKIT = ("lib64", "lib", "", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")
_TOOLKITS = ("CUDNN_PATH", "CUDNN_HOME", "CUDA_PATH", "CUDA_HOME")

Place = dict[str, Any]  # origin, path, why_not: None for the cuDNN in use


class _Process:
    """The search of this process."""

    lock = threading.Lock()
    chosen: str | None = None  # by set_cudnn()
    report: dict[str, Any] | None = None  # None: not searched yet


def set_cudnn(path: str | os.PathLike[str] | None) -> None:
    """Choose the cuDNN library. Call it before the first use of a GPU in this process.

    path: libcudnn.so.9, or a folder that contains it; "off" to use no GPU; None to search for
        cuDNN, as without this call.

    It overrides the environment variable RNNLAYOUT_CUDNN, which takes the same values. The path is
    checked when a GPU is first used. If it is not usable, that raises CudnnNotFoundError, and
    rnnlayout does not search for another cuDNN. Raises SpecError if a cuDNN is already in use.
    """
    name = None
    if path is not None:
        try:
            name = os.fsdecode(path)
        except TypeError:
            name = ""
        if not name or "\0" in name:
            raise SpecError(f"path is {path!r}, need a file, a folder, 'off' or None")
    with _Process.lock:
        if used := _Process.report and _Process.report["path"]:
            raise SpecError(
                f"the process already uses {used} and cannot change to another cuDNN: choose one"
                " before the first use of a GPU"
            )
        _Process.chosen, _Process.report = name, None


def cudnn_report() -> dict[str, Any]:
    """Return the report of the search, which is made once per process."""
    with _Process.lock:
        if _Process.report is None:
            chosen = _Process.chosen or os.environ.get("RNNLAYOUT_CUDNN")
            _Process.report = _report(chosen, _CHOSEN[bool(_Process.chosen)])
        return copy.deepcopy(_Process.report)


def _report(chosen: str | None, origin: str) -> dict[str, Any]:
    why_not: str | None
    if chosen == "off":
        nothing: dict[str, Any] = dict.fromkeys(("path", "cublas", "driver", "no_driver"))
        found = nothing | {"version": 0, "cuda_version": 0, "driver_cuda_version": 0, "gpus": []}
        places, why_not = [_place(origin, chosen, "switched off")], "cuDNN is switched off"
    else:
        places, found = _search(chosen, origin), _native.describe_cudnn()
        why_not = found["gpus"][0]["why_not"] if found["gpus"] else None
        if found["no_driver"]:
            why_not = "no NVIDIA driver with a GPU was found"
        if not found["path"]:
            why_not = "no usable cuDNN was found"
    return {"why_not": why_not, "places": places, **found}


def _search(chosen: str | None, origin: str) -> list[Place]:
    """Open the first usable cuDNN, and return all places that were tried."""
    places: list[Place] = []
    if chosen:
        path = os.path.abspath(chosen)
        if not os.path.exists(path):
            return [_place(origin, chosen, "no such file or folder")]
        if not os.path.isdir(path):
            return [_opened(origin, path)]
        _opens_one_of([(origin, path, _TOOLKIT)], places)
        return places
    if _is_loaded():
        places.append(_opened("already loaded", None))
    else:
        places.append(_place("already loaded", _LIBRARY, "not loaded in this process"))
    if places[-1]["why_not"] is None or _opens_one_of(_roots(), places):
        return places
    if _is_loaded() or any(p["origin"] == "LD_LIBRARY_PATH" and p["path"].endswith(_LIBRARY)
                           for p in places):  # fmt: skip
        why = "not asked: it would load one of the above"  # for frameworks imported later too
        return [*places, _place("loader", _LIBRARY, why)]
    return [*places, _opened("loader", None)]


def _is_loaded() -> bool:
    """Return whether the process has loaded a libcudnn."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return any(f"/{_LIBRARY}" in line for line in maps)
    except OSError:
        return False


def _roots() -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield (origin, root, its folders) of the places to search, in their order."""
    own = os.path.dirname(os.__file__)  # the standard library, which contains no packages
    texts = [entry for entry in sys.path if isinstance(entry, str) and os.path.isabs(entry)]
    for entry in dict.fromkeys(texts):
        if os.path.isdir(entry) and entry not in (own, os.path.join(own, "lib-dynload")):
            yield "packages", entry, _WHEELS
    if root := os.environ.get("CONDA_PREFIX"):
        yield "CONDA_PREFIX", root, ("lib",)
    for root in dict.fromkeys([sys.prefix, sys.base_prefix]):
        yield "environment", root, ("lib",)
    for name in _TOOLKITS:
        if root := os.environ.get(name):
            yield name, root, _TOOLKIT
    for root in ("/usr/local/cuda", "/opt/cuda"):
        yield "usual folders", root, _TOOLKIT
    for root in os.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":"):
        if root:
            yield "LD_LIBRARY_PATH", root, ("",)


def _opens_one_of(roots: Any, places: list[Place]) -> bool:
    """Open the cuDNN of the first root that has a usable one; add each place once."""
    for origin, root, folders in roots:
        found = [path for folder in folders
                 for path in (os.path.join(root, folder, _LIBRARY),
                              os.path.join(root, folder, "libcudnn.so.8"))
                 if os.path.exists(path)]  # fmt: skip
        known = [place["path"] for place in places]
        for path in found:
            if path not in known:
                places.append(_opened(origin, path))
                if places[-1]["why_not"] is None:
                    return True
        if not found and root not in known:
            named = [folder or "itself" for folder in folders]
            where = f" in {', '.join(named)}" if named != ["itself"] else ""
            none = "no such folder" if not os.path.isdir(root) else f"no {_LIBRARY}{where}"
            places.append(_place(origin, root, none))
    return False


def _opened(origin: str, path: str | None) -> Place:
    """Open a cuDNN, None for that of the process or the loader, and return its place."""
    try:
        _native.open_cudnn(os.fsencode(path) if path else None)
    except CudnnNotFoundError as error:
        why = str(error) if path else str(error).removeprefix(f"{_LIBRARY}: ")
        return _place(origin, path or _LIBRARY, why)
    return _place(origin, path or _native.describe_cudnn()["path"], None)


def _place(origin: str, path: str, why_not: str | None) -> Place:
    return {"origin": origin, "path": path, "why_not": why_not}


def require_cudnn(number: int = 0) -> None:
    """Raise CudnnNotFoundError if this GPU cannot be used."""
    report = cudnn_report()
    why_not = report["why_not"]
    if number and report["gpus"] and report["path"]:
        known = number < len(report["gpus"])
        why_not = report["gpus"][number]["why_not"] if known else "this GPU does not exist"
    if why_not:
        lines = [f"cuda:{number} cannot be used: {why_not}", *describe_search(report), "hint: "]
        raise CudnnNotFoundError("\n".join(lines), cudnn_hint(report))


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


def cudnn_hint(report: dict[str, Any]) -> str | Message:
    """Return what to do, in one line."""
    if not report["places"]:
        return Message("use ", Ask("device", "cpu"))
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
    return f"{number // 10_000}.{number % 10_000 // 100}.{number % 100}"


def cuda_version(report: dict[str, Any], whose: str = "") -> str:
    """Return the CUDA version that cuDNN is built for, or with "driver_" the driver's: "13.1"."""
    number = report[f"{whose}cuda_version"]
    return f"{number // 1000}.{number % 1000 // 10}"


def compute_capability(gpu: dict[str, Any]) -> str:
    """Return the compute capability: "9.0"."""
    return f"{gpu['capability'] // 10}.{gpu['capability'] % 10}"
