"""Time conversions against a plain copy and against code that a user would write.

    python benchmarks/convert.py [--quick] [--json FILE]

One process on one core runs everything in turn, round after round, and reports the least and the
median time of each. Times differ between machines: compare the ratios. GB/s are of the source.
Needs torch, ml_dtypes and a C compiler (for the streaming copy, which is the reference).
"""

import argparse
import ctypes
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import torch
from machine import cpu

import rnnlayout as rl

# name -> spec, rounds, calls per turn: the small one is measured warm, as in a user's loop
CASES = {
    "small": (rl.Spec("lstm", 128, 128), 50, 50),
    "middle": (rl.Spec("lstm", 1024, 1024, 4), 9, 1),
    "large": (rl.Spec("lstm", 2048, 2048, 3, bidirectional=True), 5, 1),
}


def nt_copy():
    """Compile nt_copy.c and return its function."""
    folder = tempfile.mkdtemp()
    library = Path(folder) / "nt_copy.so"
    source = Path(__file__).with_name("nt_copy.c")
    subprocess.run(["cc", "-O2", "-mavx2", "-shared", "-fPIC", "-o", library, source], check=True)
    function = ctypes.CDLL(str(library)).nt_copy
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    return lambda out, src: function(out.ctypes.data, src.ctypes.data, src.nbytes)


# ------------------------------------------------------------------ a user's code, and rnnlayout


def matrices_then_biases(spec):
    """Return torch's names in cuDNN's order: in this order packing is only concatenation."""
    names = list(rl.describe(spec, "torch"))
    return [n for n in names if "weight" in n] + [n for n in names if "bias" in n]


def keras_parts(spec, keras):
    """Return the arrays of a Keras LSTM gate by gate in cuDNN's order: transposed matrices, then
    biases, of which Keras has one per gate and cuDNN two."""
    H, layers = spec.hidden_size, [list(keras.values())[k : k + 3] for k in range(0, len(keras), 3)]
    matrices = [
        w[:, g * H : (g + 1) * H].T for layer in layers for w in layer[:2] for g in range(4)
    ]
    biases = [b for layer in layers for b in (layer[2], np.zeros_like(layer[2]))]
    return matrices, biases


def torch_to_cudnn(spec, weights, out, dtype):
    names = matrices_then_biases(spec)
    tensors = {n: torch.from_numpy(w) for n, w in weights.items()}
    np_dtype = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}.get(dtype)
    torch_dtype = {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(dtype)

    def by_numpy():
        parts = [weights[n].ravel() for n in names]
        return np.concatenate([p.astype(np_dtype) for p in parts] if np_dtype else parts)

    def by_torch():
        flat = torch.cat([tensors[n].flatten() for n in names])
        return flat.to(torch_dtype) if torch_dtype else flat

    return {
        "ours, out=": lambda: rl.pack(weights, spec, layout="torch", dtype=dtype, out=out),
        "ours, new": lambda: rl.pack(weights, spec, layout="torch", dtype=dtype),
        "NumPy": by_numpy,
        "torch": by_torch,
    }


def keras_to_cudnn(spec, weights, out, dtype):
    tensors = {n: torch.from_numpy(w) for n, w in weights.items()}

    def by_numpy():
        matrices, biases = keras_parts(spec, weights)
        return np.concatenate([m.ravel() for m in matrices] + biases)

    def by_torch():
        H = spec.hidden_size
        values = list(tensors.values())
        layers = [values[k : k + 3] for k in range(0, len(values), 3)]
        flat = [w[:, g * H : (g + 1) * H].t().reshape(-1)
                for layer in layers for w in layer[:2] for g in range(4)]  # fmt: skip
        return torch.cat(flat + [b for y in layers for b in (y[2], torch.zeros_like(y[2]))])

    return {
        "ours, out=": lambda: rl.pack(weights, spec, layout="keras", dtype=dtype, out=out),
        "ours, new": lambda: rl.pack(weights, spec, layout="keras", dtype=dtype),
        "NumPy": by_numpy,
        "torch": by_torch,
    }


def from_cudnn(layout):
    def jobs(spec, flat, out, dtype):
        H = spec.hidden_size

        def by_numpy():
            result = {}
            for region in rl.regions(spec) if H < 256 else regions(spec):
                at = region["offset"] // flat.itemsize
                block = flat[at : at + region["rows"] * region["cols"]]
                block = block.reshape(region["rows"], region["cols"])
                block = block.T if layout == "keras" else block
                kind = result.setdefault((region["pseudo_layer"], region["role"]), [])
                kind.append(block.astype(out_dtype, copy=False))
            # concatenate() keeps the memory order of transposed blocks: nothing would be transposed
            return [np.ascontiguousarray(np.concatenate(b, axis=int(layout == "keras")))
                    for b in result.values()]  # fmt: skip

        out_dtype = next(iter(out.values())).dtype
        return {
            "ours, out=": lambda: rl.unpack(flat, spec, to=layout, dtype=dtype, out=out),
            "ours, new": lambda: rl.unpack(flat, spec, to=layout, dtype=dtype),
            "NumPy": by_numpy,
        }

    return jobs


_regions = {}


def regions(spec):
    return _regions.setdefault(spec, rl.regions(spec))


# ------------------------------------------------------------------------------------- measuring


def measure(jobs, rounds, calls):
    """Run the jobs in turn, round after round. Return {name: (least, median)}, seconds per call."""
    times = {name: [] for name in jobs}
    for job in jobs.values():
        job()
    for _ in range(rounds):
        for name, job in jobs.items():
            start = time.perf_counter()
            for _ in range(calls):
                job()
            times[name].append((time.perf_counter() - start) / calls)
    return {name: (min(t), statistics.median(t)) for name, t in times.items()}


def arrays(layout, spec, rng):
    return {n: rng.random(s, "f4") - np.float32(0.5) for n, s in rl.describe(spec, layout).items()}


def empty(nelems, dtype):
    out = np.empty(nelems, {"bfloat16": ml_dtypes.bfloat16}.get(dtype, dtype))
    out.view("u1")[::512] = 0  # so that every page is allocated
    return out


def cases(name):
    """Yield (title, nbytes of the source, jobs) of one case, each built when it is needed."""
    spec, *_ = CASES[name]
    rng = np.random.default_rng(0)
    copy = nt_copy()
    flat = rng.random(spec.num_params, "f4") - np.float32(0.5)
    out = empty(spec.num_params, "float32")
    copies = {
        "copy": lambda: np.copyto(out, flat),
        "streaming copy": lambda: copy(out, flat),
    }
    torch_weights, keras_weights = arrays("torch", spec, rng), arrays("keras", spec, rng)
    yield "torch to cuDNN", spec.nbytes, copies | torch_to_cudnn(spec, torch_weights, out, None)
    keras_bytes = sum(w.nbytes for w in keras_weights.values())
    yield "Keras to cuDNN", keras_bytes, copies | keras_to_cudnn(spec, keras_weights, out, None)
    for dtype in ("float16", "bfloat16"):
        narrow = empty(spec.num_params, dtype)
        jobs = copies | torch_to_cudnn(spec, torch_weights, narrow, dtype)
        yield f"torch to cuDNN, {dtype}", spec.nbytes, jobs
        del narrow, jobs
    half = flat.astype("f2")
    for layout, source, dtype in (("torch", flat, None), ("keras", flat, None),
                                  ("torch", half, "float32")):  # fmt: skip
        filled = {n: empty(int(np.prod(s)), "float32").reshape(s)
                  for n, s in rl.describe(spec, layout).items()}  # fmt: skip
        given = spec.replace(dtype="float16" if source is half else "float32")
        title = f"cuDNN to {layout}" + (", from float16" if dtype else "")
        yield title, source.nbytes, copies | from_cudnn(layout)(given, source, filled, dtype)
        del filled


# ------------------------------------------------------------------------------------------- rows


def row(case, title, nbytes, times):
    low = times["ours, out="][0]
    peers = {n: round(t[0] / low, 2) for n, t in times.items() if n != "ours, out="}
    return {
        "case": case,
        "job": title,
        "ms": {n: [round(t * 1e3, 4) for t in both] for n, both in times.items()},
        "GB/s": round(nbytes / low / 1e9, 2),
        "times ours": peers,
    }


def show(r):
    low, median = r["ms"]["ours, out="]
    peers = "  ".join(f"{name} {ratio:.2f}" for name, ratio in r["times ours"].items())
    print(f"{r['case']:7} {r['job']:27} {low:9.3f} ms (median {median:.3f})  {r['GB/s']:6.1f} GB/s")
    print(f"        the others' time divided by ours: {peers}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="skip the largest case")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    args = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    about = {"cpu": cpu(), "date": time.strftime("%Y-%m-%d"), "tier": rl.cpu_tier(),
             "python": platform.python_version(), "numpy": np.__version__,
             "torch": torch.__version__, "rnnlayout": rl.__version__, "threads": 1}  # fmt: skip
    print(json.dumps(about))
    rows = []
    for case in CASES:
        if args.quick and case == "large":
            continue
        for title, nbytes, jobs in cases(case):
            times = measure(jobs, *CASES[case][1:])
            rows.append(row(case, title, nbytes, times))
            show(rows[-1])
    if args.json:
        args.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
