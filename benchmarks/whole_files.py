"""Time inspecting and converting a file of 1 GB, compared with `cp` of that file.

    python benchmarks/whole_files.py [--quick] [--folder FOLDER] [--json FILE]

Every task runs in a separate process, in turn, round after round. The file is in the page cache,
and the disk has no pending writes when the clock starts. The results are the least time divided by
the least time of cp, the median divided by cp's median, and the peak memory of the process
(ru_maxrss) divided by the size of its output. Needs 4 GB in FOLDER.
"""

import argparse
import json
import multiprocessing
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

import rnnlayout as rl
from rnnlayout._files.formats import safetensors
from rnnlayout._files.tensor_sets.tensor_set import FileTensor, TensorSet

# name -> RNNs by prefix, and the shapes of other tensors
CASES = {
    "three RNNs and others": (
        {
            "encoder": rl.Spec("lstm", 1024, 1024, 2, bidirectional=True),
            "decoder": rl.Spec("lstm", 1024, 1024, 4),
            "post": rl.Spec("gru", 2048, 2048, 2),
        },
        {"embedding.weight": (100_000, 1024), "out.weight": (32_000, 1024), "out.bias": (32_000,)},
    ),
    "one stack": ({"lstm": rl.Spec("lstm", 2048, 2048, 8)}, {}),
}
# name -> command, which gets SRC and DST as arguments
TASKS = {
    "cp": ["cp"],
    "inspect": [sys.executable, "-c", "import sys, rnnlayout as rl; print(rl.load(sys.argv[1]))"],
    "convert to cudnn": [
        sys.executable,
        "-c",
        "import sys, rnnlayout as rl; rl.convert_file(*sys.argv[1:], to='cudnn')",
    ],
    "convert to keras": [
        sys.executable,
        "-c",
        "import sys, rnnlayout as rl; rl.convert_file(*sys.argv[1:], to='keras')",
    ],
}
LIMIT_TIME, LIMIT_MEMORY = 1.5, 1.2


def make(path, rnns, others, part):
    """Write the state_dict of such a model. part: factor for all sizes."""
    shapes = {}
    for prefix, spec in rnns.items():
        spec = spec.replace(
            input_size=int(spec.input_size * part), hidden_size=int(spec.hidden_size * part)
        )
        for name, shape in rl.describe(spec, "torch").items():
            shapes[f"{prefix}.{name}"] = shape
    shapes |= {name: tuple(max(1, int(n * part)) for n in shape) for name, shape in others.items()}
    rng = np.random.default_rng(0)

    def filled(shape):
        return FileTensor("float32", shape, lambda: rng.random(shape, np.float32) - np.float32(0.5))

    bag = TensorSet({name: filled(shape) for name, shape in shapes.items()}, {"format": "pt"})
    safetensors.write_tensors(path, bag)


def run(command, src, dst):
    """Return the seconds, the CPU seconds and the peak memory in bytes."""
    dst.unlink(missing_ok=True)
    os.sync()
    start = time.perf_counter()
    process = subprocess.Popen([*command, src, dst], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        sys.exit(f"{command[0]} failed")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def measure(folder, case, rounds, part):
    src, dst = folder / "model.safetensors", folder / "out.safetensors"
    maker = multiprocessing.Process(target=make, args=(src, *CASES[case], part))
    maker.start()  # in a separate process: a child inherits the peak memory of its parent
    maker.join()
    times, cores, peaks, written = {}, {}, {}, {}
    for _ in range(rounds):
        for task, command in TASKS.items():
            seconds, core, peak = run(command, src, dst)
            cores.setdefault(task, []).append(core)
            times.setdefault(task, []).append(seconds)
            peaks.setdefault(task, []).append(peak)
            written[task] = dst.stat().st_size if dst.exists() else src.stat().st_size
    dst.unlink(missing_ok=True)
    return {
        "nbytes": src.stat().st_size,
        "tasks": {
            task: {
                "s": min(times[task]),
                "of_cp": min(times[task]) / min(times["cp"]),
                "median_of_cp": median(times[task]) / median(times["cp"]),
                "core_s": min(cores[task]),
                "peak_of_output": min(peaks[task]) / written[task],
            }
            for task in TASKS
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="use a file of some MB, one round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="a folder on the disk to measure")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    rounds, part = (1, 1 / 16) if options.quick else (options.rounds, 1)
    results = {}
    print(
        f"{'':24} {'task':18} {'s':>7} {'of cp':>7} {'median':>7} {'CPU s':>7}"
        f" {'peak / output':>14}"
    )
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for case in CASES:
            results[case] = measure(Path(folder), case, rounds, part)
            for task, found in results[case]["tasks"].items():
                print(
                    f"{case:24} {task:18} {found['s']:7.2f} {found['of_cp']:7.2f}"
                    f" {found['median_of_cp']:7.2f} {found['core_s']:7.2f}"
                    f" {found['peak_of_output']:14.2f}"
                )
    if options.json:
        about = {"cpu": platform.machine(), "python": platform.python_version(), "rounds": rounds}
        options.json.write_text(json.dumps({**about, "cases": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
