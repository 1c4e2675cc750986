"""Run all measurements of rnnlayout that need a GPU.

    python benchmarks/gpu.py [--facts] [--parity] [--speed] [--quick] [--json FILE]

facts    test our assumptions about cuDNN, each in a separate process (gpu_facts.py)
parity   compare rl.RNN on the GPU with the recurrence and with torch's cuDNN (gpu_parity.py)
speed    compare it with raw cuDNN, torch and JAX, host and device time separately (gpu_speed.py)

By default all three run, and the results are written to benchmarks/results/gpu-DATE.json, which the
page on performance shows after tools/tables.py --write. Needs rnnlayout installed, the tests' NumPy
and ml_dtypes, and a C compiler for raw cuDNN. torch and JAX with CUDA are used if they are
installed; what is missing is left out and reported. The exit code is 1 if a result was wrong or a
part ended early, and 5 if no GPU can be used.
"""

import argparse
import datetime
import json
import multiprocessing
import platform
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata
from pathlib import Path

import gpu_facts
import gpu_parity
import gpu_speed
import numpy as np
from gpu_device import Driver
from gpu_peers import Place

import rnnlayout as rl
from rnnlayout._run import cudnn

RESULTS = Path(__file__).resolve().parent / "results"
PARTS = ("facts", "parity", "speed")


# ---------------------------------------------------------------------- each in a separate process


def about():
    """Return the versions, the paths of cuDNN and cuBLAS, and whether the GPU is fake."""
    torch, where, _ = gpu_parity.torch_there()
    report, driver = cudnn.find(), Driver()
    found = {
        "date": datetime.date.today().isoformat(),
        "GPU": driver.name(),
        "driver runs CUDA": driver.version(),
        "cuDNN": cudnn.version(report),
        "torch": torch and torch.__version__,
        "torch's cuDNN": torch.backends.cudnn.version() if where == "cuda" else None,
        "JAX": version("jax"),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "rnnlayout": rl.__version__,
    }
    return found, report["path"], report["cublas"], hasattr(driver.library, "fake_log")


def version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def parity_of(cells, quick):
    gpu_parity.torch_there()  # before the search for cuDNN, so that torch's copy is shared
    return gpu_parity.parity(Driver(), quick, cells)


def speed(quick):
    torch, where, _ = gpu_parity.torch_there()
    place = Place(Driver(), torch, where, cudnn.find()["path"])
    return gpu_speed.speed(place, quick)


def in_a_process(function, *arguments):
    """Return the result, or {"died": why}. A failed call may destroy the GPU's context."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        try:
            return process.submit(function, *arguments).result()
        except Exception as why:
            print(f"{function.__name__} ended early: {type(why).__name__}: {why}", flush=True)
            return {"died": f"{type(why).__name__}: {why}"}


def parity(quick):
    """Check all cells, each in a separate process; with --quick all in one process."""
    cells = [gpu_parity.CELLS] if quick else [[cell] for cell in gpu_parity.CELLS]
    parts = [in_a_process(parity_of, some, quick) for some in cells]
    died = [part for part in parts if "died" in part]
    if died:
        return died[0]
    found = gpu_parity.joined(parts)
    gpu_parity.show(found)
    return found


# ------------------------------------------------------------------------------------- the command


def run(parts, quick):
    """Return {"about", and each part}, and whether the GPU is fake."""
    known, path, cublas, fake = in_a_process(about)
    print(json.dumps(known))
    found = {"about": known}
    if "facts" in parts:
        found["facts"] = gpu_facts.all_facts(Path(path).parent, cublas)
    if "parity" in parts:
        print("-- parity", flush=True)
        found["parity"] = parity(quick)
    if "speed" in parts:
        print("-- speed", flush=True)
        found["speed"] = in_a_process(speed, quick)
    return found, fake


def wrong(found):
    """Return whether a result is wrong or a part ended early."""
    ended = [part for part in PARTS if "died" in found.get(part, {})]
    return bool(ended or found.get("parity", {}).get("failures"))


def summary(found):
    news = [name for name, f in found.get("facts", {}).items() if f["as_expected"] is False]
    if "facts" in found:
        print(f"{len(found['facts'])} facts; not as expected: {', '.join(news) or 'none'}")
    reached = [
        g[3] for row in found.get("speed", []) if isinstance(row, dict) for g in row["goals"]
    ]
    if reached:
        print(f"{sum(reached)} goals met, {len(reached) - sum(reached)} missed")


def on_fakes(arguments):
    """Run the same command with the fakes of tests/fakes instead of a driver and cuDNN."""
    from fakes.build import Fakes  # gpu_facts.py has put the tests on the path

    with tempfile.TemporaryDirectory() as folder:
        environment = Fakes(Path(folder)).environment()
        command = [sys.executable, __file__, *arguments]
        return subprocess.run(command, env=environment, check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for part in PARTS:
        parser.add_argument(f"--{part}", action="store_true", help="run this part instead of all")
    parser.add_argument("--quick", action="store_true", help="run only a few cases of each part")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--fakes", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.fakes:
        return on_fakes([word for word in sys.argv[1:] if word != "--fakes"])
    doctor = subprocess.run([sys.executable, "-m", "rnnlayout", "doctor"], text=True,
                            capture_output=True, check=False)  # fmt: skip
    if doctor.returncode:
        print(doctor.stdout + doctor.stderr)
        return 5
    parts = [part for part in PARTS if getattr(args, part)] or PARTS
    found, fake = run(parts, args.quick)
    summary(found)
    whole = parts == PARTS and not args.quick and not fake
    to = args.json or (RESULTS / f"gpu-{found['about']['date']}.json" if whole else None)
    if to:
        to.write_text(json.dumps(found, indent=1) + "\n")
        print(f"written: {to}")
    return 1 if wrong(found) else 0


if __name__ == "__main__":
    sys.exit(main())
