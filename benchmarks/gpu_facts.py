"""Questions about cuDNN that only a GPU can answer, each asked in a separate process.

    python benchmarks/gpu_facts.py NAME FOLDER [CUBLAS]     one answer, as JSON on the last line

FOLDER contains libcudnn. gpu.py asks all questions. An answer is a dict. It is compared with what
we assume so far, if we assume anything; a difference matters to the fakes in tests/fakes and to our
GPU path. A wrong assumption may kill the process and the GPU's context, hence the processes.
"""

import ctypes
import json
import re
import subprocess
import sys
import threading
import time
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import gpu_parity
from fakes import ask, device
from fakes.problem import BATCH, BIASES, CELLS, PACKED, SEQ, STORED
from gpu_ask import Gpu, judged, new, off
from gpu_device import Clock
from oracles.reference import FLOAT32, FLOAT64

import rnnlayout as rl

SECONDS = 600  # a question that hangs; none takes two seconds
FACTS = {}


def fact(**expected):
    """Register a function (gpu) -> dict that answers a question. expected: what we assume."""

    def register(function):
        FACTS[function.__name__] = (function, expected)
        return function

    return register


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


# ------------------------------------------------------------------------------------- pointers


@fact(same=True)
def no_first_state(gpu):
    problem = new()
    zero = {"hx": problem.hx * 0, "cx": problem.cx * 0}
    return {"same": gpu.run(problem, {"null": ["hx", "cx"]}) == gpu.run(problem, arrays=zero)}


@fact(same=True)
def no_last_state(gpu):
    problem = new()
    return {"same": gpu.run(problem, {"null": ["hy", "cy"]})["y"] == gpu.run(problem)["y"]}


def elsewhere(gpu, name, shift):
    """Make the same call with one array a few bytes after an aligned address."""
    problem = new(spec=rl.Spec("lstm", 5, 6, dtype="float16" if shift == 2 else "float32"))
    forward = gpu.asked(problem)
    data = forward.bytes(name)
    forward.at[name] = gpu.alloc(len(data) + 256) + shift
    forward.fill(name, data)
    return {"same": gpu.results(forward.run()) == gpu.run(problem)}


@fact(same=True)
def x_behind_by_4_bytes(gpu):
    return elsewhere(gpu, "x", 4)


@fact(same=True)
def x_behind_by_2_bytes(gpu):
    return elsewhere(gpu, "x", 2)


@fact(same=True)
def weights_behind_by_4_bytes(gpu):
    return elsewhere(gpu, "weights", 4)


@fact(same=True)
def weights_behind_by_2_bytes(gpu):
    return elsewhere(gpu, "weights", 2)


@fact()
def states_in_place(gpu):
    """hy is hx and cy is cx. Not documented; the fakes end the process."""
    same = {}
    for name, spec, steps in [("one layer", rl.Spec("lstm", 5, 6), 1),
                              ("three layers", rl.Spec("lstm", 64, 96, 3), 20)]:  # fmt: skip
        problem = new(spec=spec, T=steps)
        forward = gpu.asked(problem)
        forward.at |= {"hy": forward.at["hx"], "cy": forward.at["cx"]}
        same[name] = gpu.results(forward.run()) == gpu.run(problem)
    return {"same": same}


@fact(untouched=True)
def memory_around_the_results(gpu):
    """Nothing is written outside y, hy, cy and the workspace."""
    problem, guard = new(spec=rl.Spec("lstm", 5, 7, 2, True), T=5, N=3), bytes([0xA5]) * 512
    forward, blocks = gpu.asked(problem), {}
    for name in ("y", "hy", "cy", "workspace"):
        nbytes = forward.sizes_of[name]
        blocks[name] = gpu.alloc(nbytes + 1024)
        gpu.write(blocks[name], guard)
        gpu.write(blocks[name] + 512 + nbytes, guard)
        forward.at[name] = blocks[name] + 512
    forward.run()
    kept = {name: gpu.read(at, 512) == guard == gpu.read(at + 512 + forward.sizes_of[name], 512)
            for name, at in blocks.items()}  # fmt: skip
    return {"untouched": all(kept.values()), "each": kept}


# ------------------------------------------------------------------------- descriptors and sizes


@fact()
def no_dropout_descriptor(gpu):
    """Not documented; the fakes end the process."""
    problem = new()
    return {"same": gpu.run(problem, {"dropout": "null"}) == gpu.run(problem)}


@fact()
def texts_of_errors(gpu):
    """The status and the error text of cuDNN 9 for calls that it refuses."""
    found = {}
    for name, more in [("small workspace", {"workspace_bytes": -1}),
                       ("no weights", {"null": ["weights"]}),
                       ("shorter weights", {"weight_bytes": -1})]:  # fmt: skip
        status = gpu.asked(new(), more).forward()
        text = ctypes.create_string_buffer(512)
        if gpu.library.has("cudnnGetLastErrorString"):
            gpu.library._library.cudnnGetLastErrorString(text, c_size_t(512))
        found[name] = [status, text.value.decode()]
    return found


def workspace(gpu, more):
    asked = ask.Asked(gpu.library, {"call": "sizes", **more})
    asked.create()
    for name in ask.STEPS:
        getattr(asked, name)()  # 9 writes the sizes, then fails: the handle has no device
    return asked.workspace.value


@fact(never_falls=True)
def workspaces(gpu):
    """Bytes with a real handle and with a block of zeros, for several T and lengths."""
    rnn = {"I": 64, "H": 96, "L": 2, "P": 96}
    sizes = {}
    for T, given in [(1, None), (8, None), (8, [8, 5, 2]), (8, [1, 1, 1]), (100, None)]:
        more = {"rnn": rnn | {"flags": 1}, "x": {"T": T, "N": 3, "lengths": given}}
        forward = gpu.forward(more)
        sizes[f"T={T}, lengths={given}"] = [forward.workspace.value, workspace(gpu, more)]
    real = [size[0] for size in sizes.values()]
    rising = real[0] <= real[1] <= real[4] and real[2] <= real[1] and real[3] <= real[1]
    return {"never_falls": rising, "nbytes, real and zeros": sizes}


# -------------------------------------------------------------------------------------- capture


def in_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def captured(gpu, problem, more=None, after=None, during=None):
    """Run the call, capture it, replay it into cleared outputs, and compare."""
    forward = gpu.asked(problem, more)
    wanted = gpu.results(forward.run())
    stream, graph, launched = gpu.stream(), c_void_p(), c_void_p()
    gpu.cudnn("cudnnSetStream", gpu.handle, stream)
    gpu.cu("cuStreamBeginCapture_v2", stream, 1)
    if during:
        during()
    status = forward.forward()
    gpu.cu("cuStreamEndCapture", stream, byref(graph))
    if status:
        return {"status": status}
    gpu.cu("cuGraphInstantiateWithFlags", byref(launched), graph, c_ulonglong(0))
    for name in ("y", "hy", "cy"):
        forward.fill(name, bytes(forward.sizes_of[name]))
    if after:
        after(forward)
    gpu.cu("cuGraphLaunch", launched, stream)
    gpu.sync(stream)
    again = gpu.results(forward)
    names = wanted if problem.spec.cell == "lstm" else ("y", "hy")
    return {"same": all(again[name] == wanted[name] for name in names)}


@fact(same=True)
def capture(gpu):
    each = {}
    for name, spec, more in [
        ("one layer", rl.Spec("lstm", 5, 6), {}), ("two layers", rl.Spec("gru", 5, 6, 2), {}),
        ("both directions", rl.Spec("lstm", 5, 6, 2, True), {}),
    ]:  # fmt: skip
        each[name] = captured(gpu, new(spec=spec), more)
    padded = new(lengths=[2, 4, 3])
    each["lengths"] = captured(gpu, padded)
    return {"same": all(found.get("same") for found in each.values()), "each": each}


@fact()
def capture_of_persistent(gpu):
    """Algorithms 1 and 3."""
    spec = rl.Spec("lstm", 128, 128, dtype="float16")
    return {str(algo): captured(gpu, new(spec=spec, N=8), {"rnn": {"algo": algo, "math": 1}})
            for algo in (1, 3)}  # fmt: skip


@fact(status=0, same=True)
def capture_while_another_thread_allocates(gpu):
    """In the thread-local mode, which does not restrict other threads."""
    problem, status = new(), []

    def allocate():
        at = c_ulonglong()
        gpu.cu("cuCtxPushCurrent_v2", gpu.context)
        status.append(gpu.driver.cuMemAlloc_v2(byref(at), c_size_t(1 << 20)))

    found = captured(gpu, problem, during=lambda: in_a_thread(allocate))
    return {"status": status[0], **found}


@fact(status=0, same=True)
def capture_while_this_thread_frees(gpu):
    """In the relaxed mode, in which rnnlayout frees memory for Python's garbage collector."""
    at, status = gpu.alloc(1 << 20), []

    def free():
        mode = c_int(2)
        gpu.cu("cuThreadExchangeStreamCaptureMode", byref(mode))
        status.append(gpu.driver.cuMemFree_v2(c_ulonglong(at)))
        gpu.cu("cuThreadExchangeStreamCaptureMode", byref(mode))

    return {**captured(gpu, new(), during=free), "status": status[0]}


@fact()
def capture_and_other_lengths(gpu):
    """Whether lengths set after the capture change the replay. The fakes end the process."""

    def shorten(forward):
        forward.q["x"]["lengths"][:] = forward.q["y"]["lengths"][:] = [1, 1, 1]
        forward.set_x(), forward.set_y()

    return captured(gpu, new(lengths=[2, 4, 3]), after=shorten)


# ------------------------------------------------------------------------------------- pointers


@fact(
    device=[0, 2, 0, 0], behind=[0, 2, 0, 0], freed=[0, 0], host=[0, 0], pinned=[0, 1], null=[0, 0]
)
def pointers(gpu):
    """cuPointerGetAttributes for all kinds of memory: status and type, for device memory also its
    device and whether it is managed; and the time of a query. rnnlayout asks once per array."""
    told = {2: c_uint(7), 8: c_uint(7), 9: c_uint(7)}
    kinds = (c_uint * 3)(*told)
    values = (c_void_p * 3)(*map(ctypes.addressof, told.values()))

    def ask(at, known):
        status = gpu.driver.cuPointerGetAttributes(c_uint(3), kinds, values, c_ulonglong(at))
        return [status, *(found.value for found in told.values())][:known]

    at, freed, host = gpu.alloc(1 << 20), gpu.alloc(1 << 20), ctypes.create_string_buffer(64)
    gpu.free(freed)
    began = time.perf_counter()
    for _ in range(1000):
        ask(at, 4)
    us = round(1e3 * (time.perf_counter() - began), 3)
    return {"device": ask(at, 4), "behind": ask(at + 4096, 4), "freed": ask(freed, 2),
            "host": ask(ctypes.addressof(host), 2), "pinned": ask(gpu.pinned(64).value, 2),
            "null": ask(0, 2), "us, with Python's": us}  # fmt: skip


# -------------------------------------------------------------------------------------- streams


@fact(legacy=0, per_thread=0)
def streams(gpu):
    """The status of cudnnSetStream, and its time in microseconds."""
    gpu.new_handle()
    stream = gpu.stream()

    def us(one, other):
        began = time.perf_counter()
        for _ in range(500):
            gpu.cudnn("cudnnSetStream", gpu.handle, one)
            gpu.cudnn("cudnnSetStream", gpu.handle, other)
        return round(1e3 * (time.perf_counter() - began), 3)

    call = gpu.library._library.cudnnSetStream
    return {"legacy": call(gpu.handle, None), "per_thread": call(gpu.handle, c_void_p(2)),
            "unchanged_us": us(stream, stream), "changed_us": us(stream, None)}  # fmt: skip


@fact()
def stream_numbers_come_again(gpu):
    """Whether a new stream can have the number of a destroyed one."""
    streams = [gpu.stream().value for _ in range(2)]
    gpu.cu("cuStreamDestroy_v2", c_void_p(streams[0]))
    return {"again": gpu.stream().value in streams}


@fact(waits=True)
def legacy_stream_waits_for_threads(gpu):
    """The legacy stream waits for another thread's per-thread stream, as rnnlayout assumes."""
    at, host = gpu.alloc(4), gpu.pinned(4)
    gpu.write(at, bytes(4))

    def work():
        gpu.cu("cuCtxPushCurrent_v2", gpu.context)
        if hasattr(gpu.driver, "cuLaunchHostFunc"):  # the fakes delay work themselves
            usleep = ctypes.cast(ctypes.CDLL(None).usleep, c_void_p)
            gpu.cu("cuLaunchHostFunc", c_void_p(2), usleep, c_void_p(200_000))
        gpu.memset(at, 7, 4, c_void_p(2))

    in_a_thread(work)
    gpu.download(host, at, 4)
    gpu.sync()
    return {"waits": ctypes.string_at(host, 4) == b"\7\7\7\7"}


@fact()
def stream_of_another_context(gpu):
    gpu.new_handle()
    if not hasattr(gpu.driver, "cuCtxCreate_v2"):
        return {"status": None}
    other = c_void_p()
    gpu.cu("cuCtxCreate_v2", byref(other), c_uint(0), c_int(0))
    stream = gpu.stream()
    gpu.cu("cuCtxPopCurrent_v2", None)
    return {"status": gpu.library._library.cudnnSetStream(gpu.handle, stream)}


class Forwarded:
    """A tensor by DLPack alone: results are then DeviceArrays, not tensors."""

    def __init__(self, tensor):
        self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__


@fact(context_is_left=True, one_context=True, one_cudnn=True, wrong_after_a_race=0)
def beside_torch(gpu):
    """rl.RNN in one process with torch. Results are passed to a torch stream and dropped at once:
    their memory must not be overwritten while that stream still reads it."""
    torch, where, missing = gpu_parity.torch_there()
    if where != "cuda":
        return {"left_out": missing}
    x = Forwarded(torch.ones(20, 4, 64, device="cuda"))
    before = gpu.calls.current()
    rnn = rl.RNN(new(spec=rl.Spec("gru", 64, 96)).weights, rl.Spec("gru", 64, 96), device="cuda")
    right = torch.from_dlpack(rnn(x)[0]).clone()
    found = {"context_is_left": gpu.calls.current() == before}
    found["one_context"] = before == gpu.context.value
    paths = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()
             if re.search(r"/libcudnn\.so\.\d", line)}  # fmt: skip
    found["one_cudnn"] = len(paths) == 1
    side, bad = torch.cuda.Stream(), torch.zeros((), device="cuda", dtype=torch.int64)
    side.wait_stream(torch.cuda.current_stream())
    for _ in range(1000):
        y = rnn(x)[0]
        with torch.cuda.stream(side):
            bad += (torch.from_dlpack(y) != right).sum()
        del y
    torch.cuda.synchronize()
    return found | {"wrong_after_a_race": bad.item()}


@fact()
def time_of_an_event(gpu):
    """The device time between two events with nothing between them."""
    clock, took = Clock(gpu.calls), c_float()
    gpu.cu("cuEventRecord", clock.first, None)
    gpu.cu("cuEventRecord", clock.last, None)
    gpu.cu("cuEventSynchronize", clock.last)
    gpu.cu("cuEventElapsedTime", byref(took), clock.first, clock.last)
    return {"us": round(1e3 * took.value, 2)}


# --------------------------------------------------------------------------------------- asking


def ask_in_a_process(name, folder, cublas):
    """Return the answer, or {"died": code, "said": text}, or {"seconds": limit} after a timeout."""
    command = [sys.executable, __file__, name, str(folder), *([cublas] if cublas else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"seconds": SECONDS}
    if done.returncode:
        return {"died": done.returncode, "said": (done.stderr.splitlines() or [""])[-1][-300:]}
    return json.loads(done.stdout.splitlines()[-1])


def all_facts(folder, cublas=None, names=None):
    """Return {name: {"answer", "expected", "as_expected"}}; the last may be None."""
    found = {}
    for name in names or FACTS:
        expected, answer = FACTS[name][1], ask_in_a_process(name, folder, cublas)
        expected = {} if "left_out" in answer else expected
        same = all(answer.get(key) == value for key, value in expected.items())
        found[name] = {"answer": answer, "expected": expected,
                       "as_expected": same if expected else None}  # fmt: skip
        show(name, found[name])
    return found


def show(name, found):
    said = {True: "as expected", False: "DIFFERS", None: "is"}[found["as_expected"]]
    print(f"{name:28} {said}: {json.dumps(found['answer'])[:200]}", flush=True)


def main():
    name, folder, *cublas = sys.argv[1:]
    for path in cublas:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    print(json.dumps(FACTS[name][0](Gpu(folder))))


if __name__ == "__main__":
    main()
