"""A live signal: rnl_stepper_run beside RTNeural (github.com/jatinchowdhury18/RTNeural), in turn.

Each compiles for this machine: RTNeural with its Eigen backend, -O3 -march=native -ffast-math. The
time of a case is the least of several turns, so a busy machine disturbs it little.

    python benchmarks/realtime.py --rtneural ~/RTNeural
"""

import argparse
import json
import subprocess
import tempfile
from itertools import product
from pathlib import Path

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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rtneural", type=Path, required=True, help="a git checkout")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    commit = subprocess.run(
        ["git", "-C", options.rtneural, "rev-parse", "HEAD"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    print("RTNeural", commit, flush=True)
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for program in build(options.rtneural.resolve(), Path(folder)):
            lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout
            for case in map(json.loads, lines.splitlines()):
                cases.append(case)
                ratio = case["rtneural_ns"] / case["ours_ns"]
                text = "{cell:4} I {I:3} H {H:3} steps {steps:2}: {ours_ns:7.1f} ns, RTNeural"
                print((text + " {rtneural_ns:7.1f}").format(**case), f"{ratio:5.2f}x", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"rtneural": commit, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
