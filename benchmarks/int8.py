"""Weights of one byte: math="int8" beside torch's and onnxruntime's dynamic quantization.

All in one process on one thread, in turn. The error is the largest difference of y from the
recurrence in float64 with the weights as they were before they were rounded.

    python benchmarks/int8.py --json benchmarks/results/int8.json
"""

import argparse
import json
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from forward_peers import (
    by_onnxruntime,
    by_torch,
    inference,
    onnx_feed,
    onnx_model,
    onnx_outputs,
    ours,
    reference,
)
from machine import cpu
from onnxruntime.quantization import QuantType, quantize_dynamic
from workload import Problem

import rnnlayout as rl

CASES = [("lstm", 1, 100, 128), ("lstm", 1, 100, 256), ("lstm", 1, 50, 512), ("lstm", 1, 25, 1024),
         ("gru", 1, 50, 512), ("gru", 1, 25, 1024), ("lstm", 16, 50, 256),
         ("lstm", 32, 25, 512)]  # fmt: skip
TURNS, CALLS = 15, 3


def by_torch_in_bytes(problem):
    """torch's quantize_dynamic: weights of one byte, x and h rounded to one byte in each step."""
    spec = problem.spec
    module = getattr(torch.nn, spec.cell.upper())(spec.input_size, spec.hidden_size)
    module.load_state_dict({n: torch.from_numpy(w) for n, w in problem.weights.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated in favour of a package of its own
        quantized = torch.ao.quantization.quantize_dynamic(
            torch.nn.ModuleDict({"rnn": module.eval()}), {type(module)}, torch.qint8
        )["rnn"]
    x = torch.from_numpy(problem.x)
    return lambda: quantized(x), lambda result: [result[0].numpy()]


def by_onnxruntime_in_bytes(problem):
    """onnxruntime's DynamicQuantizeLSTM, with a scale per row; it has no GRU."""
    with tempfile.TemporaryDirectory() as folder:
        whole, narrow = (str(Path(folder) / name) for name in ("whole.onnx", "narrow.onnx"))
        Path(whole).write_bytes(onnx_model(problem))
        quantize_dynamic(whole, narrow, per_channel=True, weight_type=QuantType.QInt8)
        assert {node.op_type for node in onnx.load(narrow).graph.node} & {"DynamicQuantizeLSTM"}
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(narrow, options, ["CPUExecutionProvider"])
    feed = onnx_feed(problem)
    return lambda: session.run(None, feed), onnx_outputs(problem)


def peers_of(problem):
    peers = {
        "int8": ours(problem, 1, math="int8"),
        "float32": ours(problem, 1),
        "torch": by_torch(problem, 1),
        "torch, int8": by_torch_in_bytes(problem),
        "onnxruntime": by_onnxruntime(problem, 1),
    }
    if problem.spec.cell == "lstm":
        peers["onnxruntime, int8"] = by_onnxruntime_in_bytes(problem)
    return peers


def measured(problem):
    """Return (least us, median us, error) of each."""
    peers, expected = peers_of(problem), reference(problem)[0]
    times = {name: [] for name in peers}
    for _ in range(TURNS):
        for name, (call, _) in peers.items():
            for _ in range(CALLS):
                began = time.perf_counter()
                call()
                times[name].append((time.perf_counter() - began) * 1e6)
    errors = {
        name: np.abs(read(call())[0] - expected).max() for name, (call, read) in peers.items()
    }
    return {n: (min(t), float(np.median(t)), float(errors[n])) for n, t in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    about = {"cpu": cpu(), "date": time.strftime("%Y-%m-%d"), "tier": rl.cpu_tier(),
             "rnnlayout": rl.__version__, "torch": torch.__version__,
             "onnxruntime": onnxruntime.__version__, "threads": 1}  # fmt: skip
    print(json.dumps(about), flush=True)
    cases = []
    for cell, N, T, H in CASES:
        with inference():
            found = measured(Problem(rl.Spec(cell, H, H), T, N))
        cases.append({"cell": cell, "N": N, "T": T, "H": H, "measured": found})
        least, median, error = found["int8"]
        print(f"{cell:4} N {N:2} T {T:3} H {H:4}: {least:8.0f} us, error {error:.1e};",
              *(f"{name} {t / least:.2f}x {m / median:.2f}x, {e:.1e};"
                for name, (t, m, e) in found.items() if name != "int8"), flush=True)  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps({"about": about, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
