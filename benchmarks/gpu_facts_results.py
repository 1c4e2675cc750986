"""What cuDNN computes: its results, arithmetic, lengths and clip; and what its start costs."""

import re
import time
from ctypes import byref, c_size_t
from pathlib import Path

import numpy as np
from fakes import device
from fakes.problem import BATCH, BIASES, CELLS, PACKED, SEQ, STORED
from gpu_ask import fact, judged, new, off
from gpu_device import Clock
from oracles.reference import FLOAT32, FLOAT64

import rnnlayout as rl


def mapped():
    """Return the vendor's libraries that are loaded in this process."""
    lines = Path("/proc/self/maps").read_text()
    names = set(re.findall(r"/([^/\n]*lib(?:cudnn|cublas|nvrtc)[^/\n]*)$", lines, re.MULTILINE))
    return sorted(names)


# ---------------------------------------------------------------------------------------- start


@fact()
def start(gpu):
    """The cost of a handle, and the libraries that it and the first forward pass load."""

    def free():
        left, total = c_size_t(), c_size_t()
        gpu.cu("cuMemGetInfo_v2", byref(left), byref(total))
        return left.value

    before, began = free(), time.perf_counter()
    gpu.new_handle()
    found = {"create_ms": round(1e3 * (time.perf_counter() - began), 2),
             "create_nbytes": before - free(), "after_create": mapped()}  # fmt: skip
    began = time.perf_counter()
    gpu.run(new())
    found["first_forward_ms"] = round(1e3 * (time.perf_counter() - began), 2)
    return found | {"after_forward": mapped()}


# -------------------------------------------------------------------------------------- results


def forms(gpu, cell):
    found = {}
    for bias in BIASES:
        for kind in ("plain", "both", "skip", *(["projected"] if cell == "lstm" else [])):
            spec = rl.Spec(
                cell, 6 if kind == "skip" else 5, 6, 2, kind != "plain", bias=bias,
                proj_size=4 * (kind == "projected"), skip_input=kind == "skip",
            )  # fmt: skip
            problem = new(spec=spec)
            found[f"{bias}, {kind}"] = off(problem, gpu.run(problem))
    return judged(found)


@fact(right=True)
def forward_lstm(gpu):
    return forms(gpu, "lstm")


@fact(right=True)
def forward_gru(gpu):
    """The bias modes also show whether bR_n is inside the reset product in every mode."""
    return forms(gpu, "gru")


@fact(right=True)
def forward_rnn(gpu):
    found = {cell: forms(gpu, cell) for cell in CELLS[:2]}
    return {"right": all(f["right"] for f in found.values()), "off": found}


@fact(right=True)
def dtypes(gpu):
    found = {}
    for dtype in STORED:
        for cell in ("lstm", "gru"):
            problem = new(spec=rl.Spec(cell, 5, 6, 2, dtype=dtype))
            narrow = {"rnn": {"math": 1}} if dtype.endswith("float16") else {}
            try:
                found[f"{cell}, {dtype}"] = off(problem, gpu.run(problem, narrow))
            except device.Failed as why:
                if not (dtype == "bfloat16" and gpu.library.major == 8):
                    raise
                found_out = str(why)
                return judged(found) | {"bfloat16": found_out}
    return judged(found)


@fact(right=True)
def persistent(gpu):
    """Algorithms 1 and 3."""
    found = {}
    for name, algo, spec in [
        ("static, float16", 1, rl.Spec("lstm", 128, 128, dtype="float16")),
        ("static, float32", 1, rl.Spec("gru", 64, 64)),
        ("small, float32", 3, rl.Spec("lstm", 64, 96, 2)),
        ("small, float16", 3, rl.Spec("gru", 64, 96, 1, True, dtype="float16")),
    ]:
        problem = new(spec=spec, T=8, N=8)
        narrow = {"math": 1} if spec.dtype == "float16" else {}
        found[name] = off(problem, gpu.run(problem, {"rnn": {"algo": algo, **narrow}}))
    return judged(found)


@fact()
def math(gpu):
    """The error of each arithmetic, in units of float32's rounding, and its time."""
    found = {}
    for dtype in ("float32", "float16", "bfloat16"):
        if dtype == "bfloat16" and gpu.library.major == 8:
            continue
        problem = new(spec=rl.Spec("lstm", 64, 64, dtype=dtype), T=16, N=16)
        for name, number in (("default", 0), ("tensor cores", 1), ("fma", 3)):
            forward = gpu.asked(problem, {"rnn": {"math": number}})
            result = gpu.results(forward.run())
            clock = Clock(gpu.calls)
            us = min(clock.microseconds(forward.run, 5)["device"] for _ in range(3))
            worst = problem.worst(result, unit=FLOAT32)
            found[f"{dtype}, {name}"] = {"off": float(f"{worst:.3g}"), "us": round(us, 1)}
    return found


# -------------------------------------------------------------------------------------- lengths


@fact(right=True)
def lengths(gpu):
    """Past the end, y is the fill and NaN in x is not read; an empty sequence keeps its state."""
    found = {}
    for name, layout, given in [
        ("unsorted", SEQ, [2, 4, 3]), ("one empty", SEQ, [4, 0, 2]), ("short", SEQ, [3, 1, 2]),
        ("equal and short", SEQ, [2, 2, 2]), ("packed", PACKED, [4, 2, 1]),
        ("batch first", BATCH, [4, 4, 4]), ("batch first, unequal", BATCH, [3, 0, 4]),
    ]:  # fmt: skip
        for spec in (rl.Spec("lstm", 5, 6, 2, True), rl.Spec("gru", 5, 6)):
            problem = new(spec=spec, layout=layout, lengths=given)
            problem.question["rnn"]["flags"] = 1
            found[f"{name}, {spec.cell}"] = off(problem, gpu.run(problem))
    return judged(found)


@fact(right=True)
def lengths_all_zero(gpu):
    problem = new(lengths=[0, 0, 0])
    return judged({"lstm": off(problem, gpu.run(problem))})


@fact(untouched=True)
def lengths_without_fill(gpu):
    problem = new(lengths=[2, 4, 0], fill=False)
    before = np.full((4, 3, 6), 7, problem.dtype)
    y = problem.result(gpu.run(problem, arrays={"y": before})).y
    return {"untouched": bool((y[np.arange(4)[:, None] >= problem.lengths] == 7).all())}


@fact(same=True)
def lengths_on_the_device(gpu):
    problem = new(lengths=[2, 4, 3])
    given = [gpu.run(problem, {"sequence_lengths": there}) for there in (gpu.needs_lengths, True)]
    return {"same": given[0] == given[1]}


# ----------------------------------------------------------------------------------------- clip


@fact(cx_is_clamped_as_it_is_read=True, h_as_of_a_stored_clip=True, cy_is_unclamped=True,
      bounds_are_floats=True)  # fmt: skip
def clip(gpu):
    bounds, spec = (-0.25, 0.125), rl.Spec("lstm", 5, 6, 2, dtype="float64")
    wide = new(spec=spec, clip=bounds, c_size=2)
    one, clamped = gpu.run(wide), gpu.run(wide, arrays={"cx": np.clip(wide.cx, *bounds)})
    found = {"cx_is_clamped_as_it_is_read": one == clamped}
    wide.cx = np.clip(wide.cx, *bounds)
    result = wide.result(clamped)
    found["cy_is_unclamped"] = bool(((result.c < bounds[0]) | (result.c > bounds[1])).any())
    stored = clamped | {"cy": np.clip(result.c, *bounds).tobytes()}
    found["h_as_of_a_stored_clip"] = bool(wide.worst(stored, unit=FLOAT64) <= 1)
    # f = 1/2 and i g = 0: the new cell is half of the bound
    single = new(spec=rl.Spec("lstm", 1, 1, bias="none", dtype="float64"), T=1, N=1, clip=(-1, 0.1))
    zero = {name: np.zeros_like(a) for name, a in single.arrays().items()}
    cell = single.result(gpu.run(single, arrays=zero | {"cx": single.cx * 0 + 5})).c.item()
    return found | {"bounds_are_floats": cell == float(np.float32(0.1)) / 2, "cell": cell}
