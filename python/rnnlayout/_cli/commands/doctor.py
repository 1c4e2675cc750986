"""rnnlayout doctor"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from typing import Any

from ..options import DONE, MISSING, Parser
from ..terminal import align_columns, print_json, print_wrapped

SUMMARY = "check which CPU kernels, packages, cuDNN and GPUs are available"
DESCRIPTION = """\
Check what is available on this machine: kernels for its CPU, optional packages,
cuDNN, the CUDA driver and GPUs; list each place that was searched for cuDNN. On
each GPU one small RNN is run. Exit code 0; with --require gpu 5 if no GPU can
be used."""
EXAMPLES = """\
  rnnlayout doctor
  rnnlayout doctor --json
  rnnlayout doctor --require gpu"""

# package -> extra of rnnlayout, purpose
_PACKAGES = {
    "h5py": ("h5", "to write Keras files"),
    "onnx": ("onnx", "to read and write ONNX files"),
    "torch": ("torch", "to write .pt files"),
    "ml_dtypes": ("bf16", "for bfloat16 in NumPy arrays"),
    "matplotlib": ("plot", "to write pictures as .png"),
    "shtab": ("completion", "for completion in shells"),
}
_SECONDS = 120  # for a small RNN on a GPU; the first call of a process loads cuDNN
_TRIAL = """
import numpy, rnnlayout, sys
spec = rnnlayout.Spec("rnn_tanh", 1, 1, bias="none")
y, _ = rnnlayout.forward(numpy.ones((1, 1), "f4"), numpy.ones(2, "f4"), spec, device=sys.argv[1])
assert abs(float(y[0, 0]) - 0.7616) < 0.01, f"tanh(1) is {float(y[0, 0])}"
"""


def add_arguments(parser: Parser) -> None:
    parser.add_json()
    parser.add_argument(
        "--require", choices=("gpu",), help="exit with 5 if this cannot be used: gpu"
    )


def run(options: argparse.Namespace) -> int:
    report = examine_machine()
    if options.json:
        print_json("doctor", 2, report)
    else:
        print_wrapped(machine_text(report))
    return MISSING if options.require and not report["gpu"]["usable"] else DONE


def _why_not(device: str) -> str | None:
    """Run a small RNN on a GPU; return the reason for a failure, None on success. The RNN runs in
    a new process: a broken installation may abort the process, or hang."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _TRIAL, device],
            timeout=_SECONDS,
            text=True,
            check=False,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
    except subprocess.TimeoutExpired:
        return f"an RNN of one unit did not end within {_SECONDS} seconds"
    if done.returncode == 0:
        return None
    ended = done.stderr.strip().rpartition("\n")[2] or "without a message"
    if done.returncode < 0:
        ended = f"the process ended with {signal.Signals(-done.returncode).name}"
    return f"an RNN of one unit failed on it: {ended}"


def examine_machine() -> dict[str, Any]:
    """Return everything that doctor reports, ready for JSON."""
    import platform
    from concurrent.futures import ThreadPoolExecutor
    from importlib.metadata import PackageNotFoundError, version

    from rnnlayout import _native
    from rnnlayout._run import cudnn, cudnn_wheels

    packages = []
    for name, (extra, needed) in _PACKAGES.items():  # none is imported
        try:
            installed = version(name)
        except PackageNotFoundError:
            installed = None
        packages.append({"name": name, "version": installed, "extra": extra, "needed": needed})
    report = cudnn.cudnn_report()
    devices = [f"cuda:{k}" for k, gpu in enumerate(report["gpus"]) if not gpu["why_not"]]
    with ThreadPoolExecutor() as pool:
        tried = pool.map(_why_not, devices if not report["why_not"] else ())
    failed = dict(zip(devices, tried, strict=False))
    why_not = report["why_not"] or failed.get("cuda:0")
    gpus = [
        {
            "device": f"cuda:{number}",
            "name": gpu["name"],
            "capability": cudnn.compute_capability(gpu),
            "why_not": gpu["why_not"] or failed.get(f"cuda:{number}"),
        }
        for number, gpu in enumerate(report["gpus"])
    ]
    used = report["path"] and {
        "path": report["path"],
        "version": cudnn.cudnn_version(report),
        "cuda": cudnn.cuda_version(report),
        "cublas": report["cublas"],
    }
    driver = {
        "path": report["driver"],
        "cuda": cudnn.cuda_version(report, "driver_") if report["driver_cuda_version"] else None,
        "why_not": report["no_driver"],
    }
    wheels = report["wheels"]
    pip = {
        "installed": wheels["installed"],
        "torch_requires": wheels["torch"],
        "extra": cudnn_wheels.fitting_extra(wheels, report["driver_cuda_version"]),
    }
    return {
        "rnnlayout": _native.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": {"kernels": _native.cpu_tier(), "threads": _native.num_threads()},
        "packages": packages,
        "gpu": {
            "usable": not why_not,
            "why_not": why_not,
            "hint": cudnn.cudnn_hint(report) if why_not else None,
            "cudnn": used,
            "pip": pip,
            "driver": driver,
            "gpus": gpus,
            "places": report["places"],
        },
    }


def machine_text(machine: dict[str, Any]) -> str:
    """Return the report of examine_machine() as text."""
    from rnnlayout._run import cudnn

    cpu, gpu, report = machine["cpu"], machine["gpu"], cudnn.cudnn_report()
    for probed, tried in zip(report["gpus"], gpu["gpus"], strict=True):
        probed["why_not"] = tried["why_not"]
    packages = [
        (
            package["name"],
            package["version"] or "-",
            package["needed"]
            if package["version"]
            else f'{package["needed"]}: pip install "rnnlayout[{package["extra"]}]"',
        )
        for package in machine["packages"]
    ]
    lines = [
        f"rnnlayout {machine['rnnlayout']}, Python {machine['python']}, {machine['system']}",
        f"CPU: {cpu['kernels']} kernels, up to {cpu['threads']} threads",
        "Packages:",
        *align_columns(packages, 2),
        "GPU: can be used" if gpu["usable"] else f"GPU: cannot be used: {gpu['why_not']}",
        *cudnn.describe_search(report),
    ]
    return "\n".join(lines + ([f"hint: {gpu['hint']}"] if gpu["hint"] else []))
