"""Run all measurements of rnnlayout that need a GPU.

    python benchmarks/gpu.py --out DIR      all of it, three minutes on an H200
    python benchmarks/gpu.py --join DIR     the results again, without a GPU

The order is doctor, and one call of every cell; facts: our assumptions about cuDNN (gpu_facts.py);
parity: a comparison with the recurrence and with torch's cuDNN (gpu_parity.py); speed, against raw
cuDNN and torch (gpu_speed.py).

A process for each peer runs the cases (gpu_rows.py). Each result is appended to DIR/rows.jsonl at
once. A case that dies, or is over its time limit, is a row that says so. The same command again,
also after a kill, runs the cases that have no result yet. At its end the command writes
DIR/gpu-DATE.json, and if DIR is benchmarks/results, the page on performance; --join does the same
with the rows of a command that was killed.

Needs rnnlayout[bf16] installed, and of the source tree only the folders benchmarks, csrc, tests and
tools. torch is used if it is installed. Without a C compiler raw cuDNN is left out, unless the
variable RAW_CUDNN names the library that another machine has made of it:

    cc -O2 -shared -fPIC -I csrc benchmarks/raw_cudnn.c -ldl -o raw_cudnn.so

The exit code is 1 if a result was wrong or a case failed, 5 if no GPU can be used.
"""

import argparse
import ctypes
import datetime
import json
import math
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from fnmatch import fnmatch
from importlib import import_module, metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

import gpu_floor
from gpu_rows import Case, Rows

# What a case calls, by its first word: a module is imported only in the process that needs it.
CALLS = {"forward": "gpu_parity", "fact": "gpu_facts", "parity": "gpu_parity",
         "speed": "gpu_speed"}  # fmt: skip
PR_SET_PDEATHSIG = 1  # sys/prctl.h
RESULTS = Path(__file__).resolve().parent / "results"
DOCTOR = 120  # seconds; it has a time limit for each GPU too


def answer(what, *words):
    """Run one case, in this process."""
    return getattr(import_module(CALLS[what]), what)(*words)


# --------------------------------------------------------------------------------------- the cases


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


def about(report):
    """Return what the results depend on: the machine and the versions."""
    gpu = report["gpu"]
    return {
        "date": datetime.date.today().isoformat(),
        "GPU": gpu["gpus"][0]["name"],
        "driver runs CUDA": gpu["driver"]["cuda"],
        "cuDNN": gpu["cudnn"]["version"],
        "torch": version("torch"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
        "rnnlayout": report["rnnlayout"],
    }


def cases(found, cudnn):
    """Return all cases in order. found: as about() returns it; cudnn: as doctor reports it."""
    import gpu_facts
    import gpu_parity
    import gpu_speed

    libraries = (str(Path(cudnn["path"]).parent), *filter(None, [cudnn["cublas"]]))
    torch = ["torch"] * bool(found["torch"])
    made = [Case(("forward", cell)) for cell in gpu_parity.CELLS]
    made += [Case(("fact", name), libraries) for name in gpu_facts.FACTS]
    for what, cases, first in (("parity", gpu_parity.SPECS, "alone"),
                               ("speed", gpu_speed.CASES, "cuDNN")):  # fmt: skip
        made += [Case((what, case, peer), peer=peer) for case in cases for peer in [first, *torch]]
    return made


# ------------------------------------------------------------------------------------- the results


def joined(found, rows):
    """Return {"about", "facts", "parity", "speed", "failed"} of the rows."""
    import gpu_facts
    import gpu_parity

    kinds, failed = {what: {} for what in CALLS}, {}
    for name, row in rows.items():
        what, _, rest = name.partition(" ")
        if "found" in row:
            kinds[what][rest] = row["found"]
        elif what == "fact":  # that a question kills its process is an answer
            died = {"died": row["failed"], "said": row["said"]}
            kinds[what][rest] = gpu_facts.compared(rest, died)
        else:
            failed[name] = f"{row['failed']}: {row['said']}"
    verdicts = gpu_parity.joined([*kinds["forward"].values(), *kinds["parity"].values()])
    speed = list(kinds["speed"].values())
    failed |= {f"{row['case']}: {name}": why
               for row in speed for name, why in row["failed"].items()}  # fmt: skip
    return {"about": found, "facts": kinds["fact"], "parity": verdicts, "speed": speed,
            "failed": failed}  # fmt: skip


def show(row):
    said = json.dumps(row["found"]) if "found" in row else f"FAILED, {row['failed']}: {row['said']}"
    print(f"{row['case']}, {row['seconds']} s: {said[:160]}", flush=True)


def summary(results):
    news = [name for name, f in results["facts"].items() if f["as_expected"] is False]
    print(f"{len(results['facts'])} facts; not as expected: {', '.join(news) or 'none'}")
    goals = [(row["case"], *goal) for row in results["speed"] for goal in row["goals"]]
    missed = [goal for goal in goals if not goal[-1]]
    for case, what, limit, value, _ in missed:
        print(f"MISSED {case}: {what}, {limit}: {value}")
    print(f"{len(goals) - len(missed)} goals met, {len(missed)} missed")
    verdicts = results["parity"]
    left_out = [verdicts["left_out"], *(row["left_out"] for row in results["speed"])]
    for name, why in {name: why for some in left_out for name, why in some.items()}.items():
        print(f"{name}: left out, {why}")
    for who, what, why in verdicts["failures"]:
        print(f"WRONG {who}: {what}: {why}")
    print(f"{verdicts['checked']} results checked, {len(verdicts['failures'])} wrong")
    for name, why in results["failed"].items():
        print(f"FAILED {name}: {why}")


def write(folder, found, rows):
    """Write the results of the rows; return the exit code."""
    results = joined(found, {name: row for name, row in rows.known.items() if name != "about"})
    to = folder / f"gpu-{found['date']}.json"
    to.write_text(json.dumps(results, indent=1) + "\n")
    summary(results)
    print(f"written: {to}")
    if folder.resolve() == RESULTS:
        subprocess.run([sys.executable, RESULTS.parents[1] / "tools/tables.py", "--write"])
    return 1 if results["failed"] or results["parity"]["failures"] else 0


# ------------------------------------------------------------------------------------- the command


def serve(file):
    """Run the cases that the command sends, each with a line of JSON, until it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # end with the command
    answers = os.fdopen(file, "w")
    for line in sys.stdin:
        print(json.dumps(answer(*json.loads(line))), file=answers, flush=True)
    os._exit(0)  # a framework may take seconds to end


def on_fakes(arguments):
    """Run the same command with the fakes of tests/fakes instead of a driver and cuDNN."""
    from fakes.build import Fakes

    with tempfile.TemporaryDirectory() as folder:
        environment = Fakes(Path(folder)).environment()
        command = [sys.executable, __file__, *arguments]
        return subprocess.run(command, env=environment, check=False).returncode


def same_machine(rows, found):
    """Add a row on the machine, or exit if the rows are from another one."""
    known = rows.known.get("about", {}).get("found", found)
    other = [what for what in ("GPU", "driver runs CUDA", "cuDNN", "rnnlayout")
             if known[what] != found[what]]  # fmt: skip
    if other:
        was = ", ".join(f"{what} {known[what]}, not {found[what]}" for what in other)
        sys.exit(f"{rows.path} has results of {was}: give another folder to --out")
    rows.add({"case": "about", "found": found})


def measure(args, parser):
    """Run the cases that are asked for."""
    until = time.monotonic() + 60 * args.minutes
    report = doctor()
    if report is None:
        return 5
    args.out.mkdir(parents=True, exist_ok=True)
    found, rows = about(report), Rows(args.out / "rows.jsonl")
    same_machine(rows, found)
    chosen = cases(found, report["gpu"]["cudnn"])
    if args.only:
        chosen = [case for case in chosen if any(fnmatch(case.name, name) for name in args.only)]
    if not chosen:
        parser.error(
            f"--only {' '.join(args.only)}: no such case; names begin with {', '.join(CALLS)}"
        )
    with tempfile.TemporaryDirectory() as folder:
        if "RAW_CUDNN" not in os.environ:
            os.environ["RAW_CUDNN"] = gpu_floor.build(folder)
        if left := rows.fill(chosen, args.limit, until, show):
            print(f"time is up: {left} of {len(chosen)} cases are left; the same command goes on")
    return write(args.out, found, rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=math.inf,
                        help="run the cases in their order for this time")  # fmt: skip
    parser.add_argument("--only", nargs="+", metavar="NAME",
                        help="run only the cases of these names, such as 'fact *'")  # fmt: skip
    parser.add_argument("--join", type=Path, metavar="DIR",
                        help="make the results of rows.jsonl, without a GPU")  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the results")
    parser.add_argument("--limit", type=float, default=120, metavar="SECONDS",
                        help="time limit of a case (default: 120)")  # fmt: skip
    parser.add_argument("--fakes", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve is not None:
        return serve(args.serve)
    if args.join:
        rows = Rows(args.join / "rows.jsonl")
        if "about" not in rows.known:
            parser.error(f"--join {args.join}: no rows.jsonl of this command is there")
        return write(args.join, rows.known["about"]["found"], rows)
    if args.out is None:
        parser.error("--out or --join is needed")
    if args.fakes:
        return on_fakes([word for word in sys.argv[1:] if word != "--fakes"])
    return measure(args, parser)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted: the same command goes on, --join writes the results so far")
