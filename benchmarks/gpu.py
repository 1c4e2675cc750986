"""Run all measurements of rnnlayout that need a GPU.

    python benchmarks/gpu.py --out DIR      all of it, two minutes on an H100 or H200
    python benchmarks/gpu.py --join DIR     the results again, without a GPU

The order is doctor; a call of every cell, and questions on what cuDNN does (gpu_facts.py); parity,
a comparison with the recurrence and with torch's cuDNN (gpu_parity.py); speed, against raw cuDNN
and torch (gpu_speed.py).

Two processes run the cases, one without torch and one beside it. They append a row to
DIR/rows.jsonl when a case begins, and when it has its answer. A case that ends its process, or is
over its time limit, loses its own answer only: another process runs the rest. The same command
again, also after a kill, runs the cases without an answer. At its end the command writes
DIR/gpu-DATE.json, and if DIR is benchmarks/results, the page on performance.

The results have the commit of the source tree, and the CPU. A copy without a repository needs the
variable COMMIT.

Needs rnnlayout[bf16] installed, and of the source tree only the folders benchmarks, csrc, tests and
tools. torch is used if it is installed. Without a C compiler raw cuDNN is left out, unless the
variable RAW_CUDNN names the library that another machine has made of it:

    cc -O2 -shared -fPIC -I csrc benchmarks/raw_cudnn.c -ldl -o raw_cudnn.so

The exit code is 1 if a result of rnnlayout was wrong, an answer was not what it assumes or a case
failed, 5 if no GPU can be used.
"""

import argparse
import ctypes
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from fnmatch import fnmatch
from importlib import import_module, metadata
from pathlib import Path

from machine import cpu

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parent / "tools")]

RESULTS = HERE / "results"
# What a case calls, by its first word: a module is imported only in the process that needs it.
CALLS = {"forward": "gpu_parity", "fact": "gpu_facts", "parity": "gpu_parity",
         "speed": "gpu_speed"}  # fmt: skip
PR_SET_PDEATHSIG = 1  # sys/prctl.h
DOCTOR = 120  # seconds; it has a time limit for each GPU too


def doctor():
    """Return what `rnnlayout doctor --json` prints, or None if no GPU can be used."""
    command = [sys.executable, "-P", "-m", "rnnlayout", "doctor", "--require", "gpu"]
    more = {"timeout": DOCTOR, "check": False}
    done = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, text=True, **more)
    if done.returncode:
        subprocess.run(command, **more)
        return None
    return json.loads(done.stdout)


def version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def commit():
    """Return the commit of the source tree, with "-dirty" if a file differs. In a copy without a
    repository, the variable COMMIT tells it."""
    command = ["git", "-C", HERE, "describe", "--always", "--dirty", "--exclude=*"]
    with suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return os.environ.get("COMMIT")


def about(report):
    """Return what the results depend on: the machine and the versions."""
    gpu = report["gpu"]
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "CPU": cpu(),
        "GPU": gpu["gpus"][0]["name"],
        "driver runs CUDA": gpu["driver"]["cuda"],
        "cuDNN": gpu["cudnn"]["version"],
        "torch": version("torch"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
        "rnnlayout": report["rnnlayout"],
    }


# ----------------------------------------------------------------------------- cases and their rows


def cases(torch):
    """Return the cases in their order, a list for each process. torch: whether it is installed."""
    import gpu_facts
    import gpu_parity
    import gpu_speed

    alone = [f"forward {cell}" for cell in gpu_parity.CELLS]
    alone += [f"fact {name}" for name in gpu_facts.FACTS]
    alone += [f"parity {case} alone" for case in gpu_parity.SPECS]
    beside = [f"parity {case} torch" for case in gpu_parity.SPECS] if torch else []
    return [alone, beside + [f"speed {case}" for case in gpu_speed.CASES]]


def add(path, row):
    """Append a row. It begins a line, whatever a killed process has left there."""
    with path.open("a") as file:
        file.write(f"\n{json.dumps(row)}")
        file.flush()
        os.fsync(file.fileno())


def read(path):
    """Return {case: its last row}."""
    known = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        with suppress(ValueError):  # a line that was cut off
            row = json.loads(line)
            known[row["case"]] = row
    return known


def serve(path, limit):
    """Run the cases that stdin names, in this process."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # end with the command
    for case in sys.stdin.read().splitlines():
        add(path, {"case": case, "failed": "its process was ended"})
        signal.alarm(limit)  # which ends a process that hangs in a library, too
        began = time.monotonic()
        what, *words = case.split()
        found = getattr(import_module(CALLS[what]), what)(*words)
        seconds = round(time.monotonic() - began, 1)
        add(path, {"case": case, "seconds": seconds, "found": found})
        print(f"{case}, {seconds} s: {json.dumps(found)[:160]}", flush=True)
    os._exit(0)  # a framework may take seconds to end


def fill(path, chosen, limit):
    """Run cases in one process after the other, until each was tried."""
    left = [case for case in chosen if "found" not in read(path).get(case, {})]
    while left:
        command = [sys.executable, __file__, "--serve", path, "--limit", str(limit)]
        with tempfile.TemporaryFile("w+", errors="replace") as errors:
            done = subprocess.run(command, input="\n".join(left), text=True, stderr=errors,
                                  check=False)  # fmt: skip
            errors.seek(0)
            said = ([line for line in errors.read().splitlines() if line] or [""])[-1][-300:]
        known = read(path)
        # it has tried those before the one that ended it
        ended = next((case for case in left if "found" not in known.get(case, {})), None)
        if ended is None:
            return
        late = done.returncode == -signal.SIGALRM
        why = f"no answer within {limit} seconds" if late else f"exit code {done.returncode}"
        add(path, {"case": ended, "failed": why, "said": said})
        print(f"FAILED {ended}: {why}: {said}", flush=True)
        left = left[left.index(ended) + 1 :]


# ------------------------------------------------------------------------------------- the results


def joined(rows):
    """Return {"about", "facts", "parity", "speed", "failed"} of the rows."""
    import gpu_parity

    kinds, failed = {what: {} for what in ("about", *CALLS)}, {}
    for case, row in rows.items():
        what, _, rest = case.partition(" ")
        if "found" in row:
            kinds[what][rest] = row["found"]
        else:
            failed[case] = f"{row['failed']}: {row.get('said', '')}"
    speed = list(kinds["speed"].values())
    failed |= {f"{row['case']}: {name}": why
               for row in speed for name, why in row["failed"].items()}  # fmt: skip
    parity = gpu_parity.joined([*kinds["forward"].values(), *kinds["parity"].values()])
    return {"about": kinds["about"][""], "facts": kinds["fact"], "parity": parity,
            "speed": speed, "failed": failed}  # fmt: skip


def write(folder):
    """Write and print the results of the rows; return the exit code."""
    results = joined(read(folder / "rows.jsonl"))
    to = folder / f"gpu-{results['about']['date']}.json"
    to.write_text(json.dumps(results, indent=1) + "\n")
    wrong = [name for name, answer in results["facts"].items() if answer.get("right") is False]
    print(
        f"{len(results['facts'])} questions answered; not as expected: {', '.join(wrong) or 'none'}"
    )
    verdicts = results["parity"]
    left_out = [verdicts["left_out"], *(row["left_out"] for row in results["speed"])]
    for name, why in {name: why for some in left_out for name, why in some.items()}.items():
        print(f"{name}: left out, {why}")
    for who, what, why in verdicts["failures"]:
        print(f"WRONG {who}: {what}: {why}")
    print(f"{verdicts['checked']} results checked, {len(verdicts['failures'])} wrong")
    for case, why in results["failed"].items():
        print(f"FAILED {case}: {why}")
    print(f"written: {to}")
    if folder.resolve() == RESULTS:
        subprocess.run([sys.executable, HERE.parent / "tools/tables.py", "--write"], check=True)
    wrong += [who for who, *_ in verdicts["failures"] if not who.startswith("torch")]
    return 1 if results["failed"] or wrong else 0


# ------------------------------------------------------------------------------------- the command


def measure(folder, only, limit):
    """Run the cases that are asked for; return the exit code."""
    report = doctor()
    if report is None:
        return 5
    folder.mkdir(parents=True, exist_ok=True)
    found, path = about(report), folder / "rows.jsonl"
    known = read(path).get("about", {}).get("found", found)
    for what in ("commit", "CPU", "GPU", "driver runs CUDA", "cuDNN", "rnnlayout"):
        if known[what] != found[what]:
            sys.exit(f"{path} has results of {what} {known[what]}, not {found[what]}: give another "
                     "folder to --out")  # fmt: skip
    add(path, {"case": "about", "found": found})
    with tempfile.TemporaryDirectory() as built:
        if "RAW_CUDNN" not in os.environ:
            os.environ["RAW_CUDNN"] = import_module("gpu_speed").build_raw(built)
        for some in cases(found["torch"]):
            fill(path, [case for case in some if any(fnmatch(case, o) for o in only)], limit)
    return write(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the results")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=["*"],
                        help="run only the cases of these names, such as 'fact *'")  # fmt: skip
    parser.add_argument("--join", type=Path, metavar="DIR",
                        help="make the results of rows.jsonl, without a GPU")  # fmt: skip
    parser.add_argument("--limit", type=int, default=120, metavar="SECONDS",
                        help="time limit of a case (default: 120)")  # fmt: skip
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(args.serve, args.limit)
    if args.out:
        return measure(args.out, args.only, args.limit)
    if not args.join:
        parser.error("--out or --join is needed")
    if "about" not in read(args.join / "rows.jsonl"):
        parser.error(f"--join {args.join}: no rows.jsonl of this command is there")
    return write(args.join)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted: the same command goes on, --join writes the results so far")
