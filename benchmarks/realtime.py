"""A live signal: rnl_stepper_run beside RTNeural (github.com/jatinchowdhury18/RTNeural), in turn.

Each compiles for this machine: RTNeural with its Eigen backend, -O3 -march=native -ffast-math. The
time of a case is the least of several turns, so a busy machine disturbs it little.

    python benchmarks/realtime.py --rtneural ~/RTNeural
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ["-std=c++17", "-O3", "-march=native", "-ffast-math", "-w", "-DRTNEURAL_USE_EIGEN=1",
         "-DRTNEURAL_DEFAULT_ALIGNMENT=32", "-DEIGEN_STACK_ALLOCATION_LIMIT=0"]  # fmt: skip


def build(rtneural, folder):
    """Compile the C library and the program, and return the program's path."""
    for command in (
        ["cmake", "-S", ROOT, "-B", folder, "-DCMAKE_BUILD_TYPE=Release"],
        ["cmake", "--build", folder, "--target", "rnnlayout", "--parallel"],
        ["g++", *FLAGS, ROOT / "benchmarks/realtime.cpp", "-I", rtneural,
         "-I", rtneural / "modules/Eigen", "-I", ROOT / "csrc/include", folder / "librnnlayout.a",
         "-lpthread", "-ldl", "-lm", "-o", folder / "realtime"],
    ):  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / "realtime"


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
        program = build(options.rtneural.resolve(), Path(folder))
        with subprocess.Popen([program], stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                case = json.loads(line)
                cases.append(case)
                ratio = case["rtneural_ns"] / case["ours_ns"]
                text = "{cell:4} I {I:3} H {H:3} steps {steps:2}: {ours_ns:7.1f} ns, RTNeural"
                print((text + " {rtneural_ns:7.1f}").format(**case), f"{ratio:5.2f}x", flush=True)
    if process.returncode:
        raise SystemExit(process.returncode)
    if options.json:
        options.json.write_text(json.dumps({"rtneural": commit, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
