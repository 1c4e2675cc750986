"""A live signal: rnl_stepper_run beside RTNeural (github.com/jatinchowdhury18/RTNeural), in turn.

Each compiles for this machine: RTNeural with -O3 -march=native -ffast-math, with its Eigen backend
and, if a checkout of xsimd is named, with that one too. A case has many short turns, and its least
and its median time are reported, so a busy machine disturbs it little. One file per kind of CPU.

    python benchmarks/realtime.py --rtneural ~/RTNeural --xsimd ~/xsimd \\
        --json benchmarks/results/realtime-zen4.json
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from itertools import product
from pathlib import Path

from machine import cpu

import rnnlayout as rl

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ["-std=c++17", "-O3", "-march=native", "-ffast-math", "-w", "-DNDEBUG"]


def backends(rtneural, xsimd):
    """Each backend of RTNeural, with its options. xsimd loads whole vectors, which are aligned."""
    yield "Eigen", ["-DRTNEURAL_USE_EIGEN=1", "-DRTNEURAL_DEFAULT_ALIGNMENT=32",
                    "-DEIGEN_STACK_ALLOCATION_LIMIT=0",
                    "-I", rtneural / "modules/Eigen"]  # fmt: skip
    if xsimd:
        yield "xsimd", ["-DRTNEURAL_USE_XSIMD=1", "-DRTNEURAL_DEFAULT_ALIGNMENT=64",
                        "-I", xsimd / "include"]  # fmt: skip


def build(rtneural, xsimd, folder):
    """Compile the C library and the programs, and yield the backend and the path of each."""
    for command in (
        ["cmake", "-S", ROOT, "-B", folder, "-DCMAKE_BUILD_TYPE=Release"],
        ["cmake", "--build", folder, "--target", "rnnlayout", "--parallel"],
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    cases = product(backends(rtneural, xsimd), ("1", "H"), ("false", "true"))
    for (backend, options), of_input, is_gru in cases:
        command = ["g++", *FLAGS, *options, f"-DOF_INPUT(H)={of_input}", f"-DIS_GRU={is_gru}",
                   ROOT / "benchmarks/realtime.cpp", "-I", rtneural, "-I", ROOT / "csrc/include",
                   folder / "librnnlayout.a", "-lpthread", "-ldl", "-lm",
                   "-o", folder / "realtime"]  # fmt: skip
        subprocess.run(command, check=True)
        yield backend, folder / "realtime"


def commit_of(checkout):
    command = ["git", "-C", checkout, "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def stay_on_one_core():
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rtneural", type=Path, required=True, help="a git checkout")
    parser.add_argument("--xsimd", type=Path, help="a git checkout")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    about = {"cpu": cpu(), "date": time.strftime("%Y-%m-%d"), "tier": rl.cpu_tier(),
             "rnnlayout": rl.__version__, "RTNeural": commit_of(options.rtneural),
             "xsimd": commit_of(options.xsimd) if options.xsimd else "-", "threads": 1}  # fmt: skip
    print(json.dumps(about), flush=True)
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        programs = build(options.rtneural.resolve(), options.xsimd and options.xsimd.resolve(),
                         Path(folder))  # fmt: skip
        for backend, program in programs:
            lines = subprocess.run([program], check=True, capture_output=True, text=True,
                                   preexec_fn=stay_on_one_core).stdout  # fmt: skip
            for case in map(json.loads, lines.splitlines()):
                cases.append({"backend": backend} | case)
                ratios = [t / o for t, o in zip(case["rtneural"], case["ours"], strict=True)]
                print("{backend} {cell:4} I {I:3} H {H:3} steps {steps:2}: {ours[0]:7.1f} ns,"
                      " RTNeural {rtneural[0]:7.1f}".format(**cases[-1]),
                      "{:5.2f}x, medians {:5.2f}x".format(*ratios), flush=True)  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps({"about": about, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
