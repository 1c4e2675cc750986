"""A live signal: rnl_stepper_run beside RTNeural (github.com/jatinchowdhury18/RTNeural), in turn.

Each compiles for this machine: RTNeural with its Eigen backend, -O3 -march=native -ffast-math. A
case has many short turns, and its least and its median time are reported, so a busy machine
disturbs it little.

    python benchmarks/realtime.py --rtneural ~/RTNeural --json benchmarks/results/realtime.json
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from itertools import product
from pathlib import Path

from convert import cpu

import rnnlayout as rl

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ["-std=c++17", "-O3", "-march=native", "-ffast-math", "-w", "-DNDEBUG",
         "-DRTNEURAL_USE_EIGEN=1", "-DRTNEURAL_DEFAULT_ALIGNMENT=32",
         "-DEIGEN_STACK_ALLOCATION_LIMIT=0"]  # fmt: skip


def build(rtneural, folder):
    """Compile the C library and the programs, and yield the path of each."""
    for command in (
        ["cmake", "-S", ROOT, "-B", folder, "-DCMAKE_BUILD_TYPE=Release"],
        ["cmake", "--build", folder, "--target", "rnnlayout", "--parallel"],
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    for of_input, is_gru in product(("1", "H"), ("false", "true")):
        command = ["g++", *FLAGS, f"-DOF_INPUT(H)={of_input}", f"-DIS_GRU={is_gru}",
                   ROOT / "benchmarks/realtime.cpp", "-I", rtneural,
                   "-I", rtneural / "modules/Eigen", "-I", ROOT / "csrc/include",
                   folder / "librnnlayout.a", "-lpthread", "-ldl", "-lm",
                   "-o", folder / "realtime"]  # fmt: skip
        subprocess.run(command, check=True)
        yield folder / "realtime"


def stay_on_one_core():
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rtneural", type=Path, required=True, help="a git checkout")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    commit = subprocess.run(
        ["git", "-C", options.rtneural, "rev-parse", "--short", "HEAD"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    about = {"cpu": cpu(), "date": time.strftime("%Y-%m-%d"), "tier": rl.cpu_tier(),
             "rnnlayout": rl.__version__, "RTNeural": commit, "threads": 1}  # fmt: skip
    print(json.dumps(about), flush=True)
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for program in build(options.rtneural.resolve(), Path(folder)):
            lines = subprocess.run([program], check=True, capture_output=True, text=True,
                                   preexec_fn=stay_on_one_core).stdout  # fmt: skip
            for case in map(json.loads, lines.splitlines()):
                cases.append(case)
                ratios = [t / o for t, o in zip(case["rtneural"], case["ours"], strict=True)]
                print("{cell:4} I {I:3} H {H:3} steps {steps:2}: {ours[0]:7.1f} ns, RTNeural"
                      " {rtneural[0]:7.1f}".format(**case),
                      "{:5.2f}x, medians {:5.2f}x".format(*ratios), flush=True)  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps({"about": about, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
