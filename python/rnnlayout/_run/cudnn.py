"""Find the cuDNN for this process, and report the cuDNN in use, or why no cuDNN is usable."""

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

from .cudnn_wheels import describe_wheels, find_wheels, installation_hint, upgrade_hint

_LIBRARY = "libcudnn.so.9"
_CHOSEN = ("RNNLAYOUT_CUDNN", "chosen")
_WHEELS = ("nvidia/cudnn/lib", "torch/lib")
_TOOLKIT = ("lib64", "lib", "", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")
_TOOLKITS = ("CUDNN_PATH", "CUDNN_HOME", "CUDA_PATH", "CUDA_HOME")

Place = dict[str, Any]  # origin, path, why_not (None for the cuDNN in use)


class _Process:
    """The state of the search of this process."""

    lock = threading.Lock()
    chosen: str | None = None  # by set_cudnn()
    report: dict[str, Any] | None = None  # None before the search


def set_cudnn(path: str | os.PathLike[str] | None) -> None:
    """Choose the cuDNN library. Call set_cudnn() before the first use of a GPU in this process.

    path: libcudnn.so.9, or a folder that contains it; "off" to use no GPU; None to search for
        cuDNN, as without this call.

    set_cudnn() overrides the environment variable RNNLAYOUT_CUDNN, which takes the same values. The
    first use of a GPU checks the path. If no cuDNN at the path is usable, the first use raises
    CudnnNotFoundError, and rnnlayout does not search for another cuDNN. Raises SpecError if a cuDNN
    is already in use.
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
        if path_in_use := _Process.report and _Process.report["path"]:
            raise SpecError(
                f"the process already uses {path_in_use} and cannot change to another cuDNN: choose"
                " one before the first use of a GPU"
            )
        _Process.chosen, _Process.report = name, None


def cudnn_report() -> dict[str, Any]:
    """Return the report of the search for cuDNN. The first call of a process searches."""
    with _Process.lock:
        if _Process.report is None:
            chosen = _Process.chosen or os.environ.get("RNNLAYOUT_CUDNN")
            _Process.report = _report(chosen, _CHOSEN[bool(_Process.chosen)])
        return copy.deepcopy(_Process.report)


def _report(chosen: str | None, origin: str) -> dict[str, Any]:
    why_not: str | None
    if chosen == "off":
        nothing: dict[str, Any] = dict.fromkeys(("path", "cublas", "driver", "no_driver"))
        report = nothing | {"version": 0, "cuda_version": 0, "driver_cuda_version": 0, "gpus": []}
        places, why_not = [_place(origin, chosen, "switched off")], "cuDNN is switched off"
    else:
        places, report = _search(chosen, origin), _native.describe_cudnn()
        why_not = report["gpus"][0]["why_not"] if report["gpus"] else None
        if report["no_driver"]:
            why_not = "no NVIDIA driver with a GPU was found"
        if not report["path"]:
            why_not = "no usable cuDNN was found"
    return {"why_not": why_not, "places": places, "wheels": find_wheels(), **report}


def _search(chosen: str | None, origin: str) -> list[Place]:
    """Open the first usable cuDNN, and return all places up to that cuDNN."""
    places: list[Place] = []
    if chosen:
        path = os.path.abspath(chosen)
        if not os.path.exists(path):
            return [_place(origin, chosen, "no such file or folder")]
        if not os.path.isdir(path):
            return [_open_place(origin, path)]
        _open_first_usable([(origin, path, _TOOLKIT)], places)
        return places
    if _is_loaded():
        places.append(_open_place("already loaded", None))
    else:
        places.append(_place("already loaded", _LIBRARY, "not loaded in this process"))
    if places[-1]["why_not"] is None or _open_first_usable(_roots(), places):
        return places
    if _is_loaded() or any(
        place["origin"] == "LD_LIBRARY_PATH" and place["path"].endswith(_LIBRARY)
        for place in places
    ):
        # the library would stay loaded, also for frameworks that are imported later
        why = "not asked: it would load one of the above"
        return [*places, _place("loader", _LIBRARY, why)]
    return [*places, _open_place("loader", None)]


def _is_loaded() -> bool:
    """Return whether the process has loaded a libcudnn."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return any(f"/{_LIBRARY}" in line for line in maps)
    except OSError:
        return False


def _roots() -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield (origin, root, folders of the root) of the places to search, in order."""
    stdlib = os.path.dirname(os.__file__)  # contains no packages
    folders = [entry for entry in sys.path if isinstance(entry, str) and os.path.isabs(entry)]
    for entry in dict.fromkeys(folders):
        if os.path.isdir(entry) and entry not in (stdlib, os.path.join(stdlib, "lib-dynload")):
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


def _open_first_usable(roots: Any, places: list[Place]) -> bool:
    """Open the first usable cuDNN; add each place once. Return whether a cuDNN is usable."""
    for origin, root, folders in roots:
        libraries = [
            path
            for folder in folders
            for path in (
                os.path.join(root, folder, _LIBRARY),
                os.path.join(root, folder, "libcudnn.so.8"),
            )
            if os.path.exists(path)
        ]
        listed_paths = [place["path"] for place in places]
        for path in libraries:
            if path not in listed_paths:
                places.append(_open_place(origin, path))
                if places[-1]["why_not"] is None:
                    return True
        if not libraries and root not in listed_paths:
            folder_names = [folder or "itself" for folder in folders]
            where = f" in {', '.join(folder_names)}" if folder_names != ["itself"] else ""
            reason = "no such folder" if not os.path.isdir(root) else f"no {_LIBRARY}{where}"
            places.append(_place(origin, root, reason))
    return False


def _open_place(origin: str, path: str | None) -> Place:
    """Open a cuDNN, and return the place. path: None for the cuDNN of the process or the loader."""
    try:
        _native.open_cudnn(os.fsencode(path) if path else None)
    except CudnnNotFoundError as error:
        why = str(error) if path else str(error).removeprefix(f"{_LIBRARY}: ")
        return _place(origin, path or _LIBRARY, why)
    return _place(origin, path or _native.describe_cudnn()["path"], None)


def _place(origin: str, path: str, why_not: str | None) -> Place:
    return {"origin": origin, "path": path, "why_not": why_not}


def require_cudnn(number: int = 0) -> None:
    """Raise CudnnNotFoundError if a GPU cannot be used."""
    report = cudnn_report()
    why_not, hint = report["why_not"], None
    if number and report["gpus"] and report["path"]:
        if number < len(report["gpus"]):
            why_not = report["gpus"][number]["why_not"]
        else:
            why_not, hint = "this GPU does not exist", "nvidia-smi lists the GPUs"
    if why_not:
        lines = [f"cuda:{number} cannot be used: {why_not}", *describe_search(report), "hint: "]
        raise CudnnNotFoundError("\n".join(lines), hint or cudnn_hint(report))


def describe_search(report: dict[str, Any]) -> list[str]:
    """Return a line for each searched place and for each GPU."""
    lines = []
    for place in report["places"]:
        state = (
            place["why_not"]
            or f"in use, cuDNN {cudnn_version(report)} for CUDA {cuda_version(report)}"
        )
        lines.append(f"  {place['origin']}: {place['path']}: {state}")
    if report["places"]:
        lines.append(f"  pip: {describe_wheels(report['wheels'], report['driver_cuda_version'])}")
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
    """Return the repair in one line."""
    if not report["places"]:
        return Message("use ", Ask("device", "cpu"))
    if not report["path"] and report["places"][0]["origin"] in _CHOSEN:
        return "without RNNLAYOUT_CUDNN and set_cudnn(), cuDNN is searched for"
    wheels, driver_cuda_version = report["wheels"], report["driver_cuda_version"]
    if not report["path"]:
        lacks_cublas = any("libcublasLt" in place["why_not"] for place in report["places"])
        return installation_hint(wheels, driver_cuda_version, lacks_cublas)
    if report["no_driver"]:
        return "does nvidia-smi list a GPU? A container needs --gpus all"
    return upgrade_hint(wheels, driver_cuda_version)


def cudnn_version(report: dict[str, Any]) -> str:
    """Return the version of cuDNN: "9.19.0"."""
    number = report["version"]
    return f"{number // 10_000}.{number % 10_000 // 100}.{number % 100}"


def cuda_version(report: dict[str, Any], prefix: str = "") -> str:
    """Return the CUDA version of cuDNN, or, with prefix "driver_", of the driver: "13.1"."""
    number = report[f"{prefix}cuda_version"]
    return f"{number // 1000}.{number % 1000 // 10}"


def compute_capability(gpu: dict[str, Any]) -> str:
    """Return the compute capability: "9.0"."""
    return f"{gpu['capability'] // 10}.{gpu['capability'] % 10}"
