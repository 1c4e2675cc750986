"""pip's packages of cuDNN: which are installed, and which extra of rnnlayout fits.

nvidia-cudnn-cu12 and nvidia-cudnn-cu13 write the same files, in nvidia/cudnn/lib: installing one
over the other replaces the cuDNN of PyTorch. Therefore the other package is never proposed.
"""

from __future__ import annotations

import re
from typing import Any

_PACKAGES = {"nvidia-cudnn-cu12": "cu12", "nvidia-cudnn-cu13": "cu13"}  # package -> extra

Wheels = dict[str, Any]  # installed: {package: version}; torch: the requirement of torch, or None


def find_wheels() -> Wheels:
    """Find the installed cuDNN packages, and the one that the installed torch requires."""
    from importlib.metadata import PackageNotFoundError, requires, version

    installed = {}
    for package in _PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    try:
        requirements = requires("torch") or []
    except PackageNotFoundError:
        requirements = []
    matches = (re.match(r"nvidia-cudnn-cu1[23]==[\d.]+", line) for line in requirements)
    torch = next((match.group() for match in matches if match), None)
    return {"installed": installed, "torch": torch}


def fitting_extra(wheels: Wheels, driver_cuda_version: int) -> str | None:
    """Return the extra for the package that torch requires or that is installed, else for the
    driver. Return None if two packages are installed, or if nothing decides."""
    if wheels["torch"]:
        return _PACKAGES[wheels["torch"].partition("==")[0]]
    if wheels["installed"]:
        extras = [_PACKAGES[package] for package in wheels["installed"]]
        return extras[0] if len(extras) == 1 else None
    return _driver_extra(driver_cuda_version) if driver_cuda_version else None


def describe_wheels(wheels: Wheels, driver_cuda_version: int) -> str:
    """Return one line: the installed packages, and the extra that fits."""
    packages = [f"{package} {version}" for package, version in wheels["installed"].items()]
    line = " and ".join(packages) or "no cuDNN package"
    if len(packages) == 2:
        return f"{line}, which write the same files: at most one of them is complete"
    if wheels["torch"]:
        line += f"; torch requires {wheels['torch']}"
    extra = fitting_extra(wheels, driver_cuda_version)
    if extra and (packages or wheels["torch"]):
        return f"{line}: only rnnlayout[{extra}] fits"
    return f"{line}: rnnlayout[{extra}] fits the driver" if extra else line


def installation_hint(wheels: Wheels, driver_cuda_version: int, lacks_cublas: bool) -> str:
    """Return how pip installs a usable cuDNN, or repairs the installed one."""
    installed, torch = wheels["installed"], wheels["torch"]
    extra = fitting_extra(wheels, driver_cuda_version)
    if len(installed) == 2:
        requirement = torch or f"rnnlayout[{_driver_extra(driver_cuda_version)}]"
        return f'pip uninstall -y {" ".join(installed)}, then pip install "{requirement}"'
    if not installed and not torch:
        older = "" if extra else ', or "rnnlayout[cu12]" for a driver before CUDA 13'
        return f'pip install "rnnlayout[{_driver_extra(driver_cuda_version)}]"{older}'
    if extra == "cu13" and _driver_extra(driver_cuda_version) == "cu12":
        return (
            'install a driver for CUDA 13; or pip install "rnnlayout[cu12]" in a new environment:'
            " here it would overwrite files of nvidia-cudnn-cu13"
        )
    requirement = torch or "".join(f"{name}=={version}" for name, version in installed.items())
    repairs = "--force-reinstall --no-deps " if installed and not lacks_cublas else ""
    return f'pip install {repairs}"{requirement}"'


def upgrade_hint(wheels: Wheels, driver_cuda_version: int) -> str:
    """Return how pip installs the newest cuDNN."""
    if wheels["torch"]:
        return (
            "pip install --upgrade torch: a newer PyTorch brings a newer cuDNN than its"
            f" {wheels['torch']}"
        )
    if len(wheels["installed"]) == 1:  # an extra of rnnlayout would not upgrade it
        return f"pip install --upgrade {next(iter(wheels['installed']))}"
    return installation_hint(wheels, driver_cuda_version, False)


def _driver_extra(driver_cuda_version: int) -> str:
    return "cu12" if 0 < driver_cuda_version < 13_000 else "cu13"
