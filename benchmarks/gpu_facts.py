"""Questions about cuDNN that only a GPU can answer: one case of gpu.py each.

A question is a function of the table FACTS, with what we assume so far, if we assume anything; it
returns a dict. A difference matters to the fakes in tests/fakes and to our GPU path. A wrong
assumption may kill the process.
"""

import ctypes
import re
import threading
import time
from ctypes import byref, c_int, c_size_t, c_ulonglong, c_void_p
from pathlib import Path

import numpy as np
from fakes import ask
from fakes.problem import BATCH, BIASES, CELLS, PACKED, SEQ, STORED
from gpu_arrays import torch_there
from gpu_ask import Gpu, judged, new, off
from gpu_device import Array, Clock
from oracles.reference import FLOAT32, FLOAT64

import rnnlayout as rl

RESULTS = ("y", "hy", "cy")
SMALL = {1: {"rnn": {"algo": 1, "math": 1}}, 3: {"rnn": {"algo": 3, "math": 1}}}


def in_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def same(gpu, problem, more=None, arrays=None, names=RESULTS):
    """Does the call give the same with these changes?"""
    found, right = gpu.run(problem, more, arrays), gpu.run(problem)
    return {"same": all(found[name] == right[name] for name in names)}


# -------------------------------------------------------------------------------------- results


def start(gpu):
    """The time of a handle and of the first call, and the vendor's libraries that they load."""
    began = time.perf_counter()
    gpu.new_handle()
    created = time.perf_counter()
    gpu.run(new())
    maps = Path("/proc/self/maps").read_text()
    loaded = set(re.findall(r"/([^/\n]*lib(?:cudnn|cublas|nvrtc)[^/\n]*)$", maps, re.MULTILINE))
    return {"create_ms": round(1e3 * (created - began), 2), "loaded": sorted(loaded),
            "first_forward_ms": round(1e3 * (time.perf_counter() - created), 2)}  # fmt: skip


def forms(gpu, *cells):
    """All bias modes; those of a GRU show whether bR_n is inside the reset product."""
    found = {}
    for cell in cells:
        for bias in BIASES:
            for kind in ("plain", "both", "skip", *(["projected"] if cell == "lstm" else [])):
                spec = rl.Spec(
                    cell, 6 if kind == "skip" else 5, 6, 2, kind != "plain", bias=bias,
                    proj_size=4 * (kind == "projected"), skip_input=kind == "skip",
                )  # fmt: skip
                problem = new(spec=spec)
                found[f"{cell}, {bias}, {kind}"] = off(problem, gpu.run(problem))
    return judged(found)


def forward_lstm(gpu):
    return forms(gpu, "lstm")


def forward_gru(gpu):
    return forms(gpu, "gru")


def forward_rnn(gpu):
    return forms(gpu, *CELLS[:2])


def dtypes(gpu):
    found = {}
    for dtype in STORED:
        for cell in ("lstm", "gru"):
            problem = new(spec=rl.Spec(cell, 5, 6, 2, dtype=dtype))
            narrow = {"rnn": {"math": 1}} if dtype.endswith("float16") else {}
            found[f"{cell}, {dtype}"] = off(problem, gpu.run(problem, narrow))
    return judged(found)


def persistent(gpu):
    """Algorithms 1 and 3."""
    found = {}
    for name, algo, spec in [
        ("static, float16", 1, rl.Spec("lstm", 128, 128, dtype="float16")),
        ("small, float32", 3, rl.Spec("lstm", 64, 96, 2)),
        ("small, float16", 3, rl.Spec("gru", 64, 96, 1, True, dtype="float16")),
    ]:
        problem = new(spec=spec, T=8, N=8)
        narrow = {"math": 1} if spec.dtype == "float16" else {}
        found[name] = off(problem, gpu.run(problem, {"rnn": {"algo": algo, **narrow}}))
    return judged(found)


def math(gpu):
    """The error of each arithmetic, in units of float32's rounding, and its time."""
    found = {}
    for dtype in ("float32", "float16", "bfloat16"):
        problem = new(spec=rl.Spec("lstm", 64, 64, dtype=dtype), T=16, N=16)
        for name, number in (("default", 0), ("tensor cores", 1), ("fma", 3)):
            forward = gpu.asked(problem, {"rnn": {"math": number}})
            worst = problem.worst(gpu.results(forward.run()), unit=FLOAT32)
            us = min(Clock(gpu.calls).microseconds(forward.run, 5)["device"] for _ in range(3))
            found[f"{dtype}, {name}"] = {"off": float(f"{worst:.3g}"), "us": round(us, 1)}
    return found


def lengths(gpu):
    """Past the end, y is the fill and NaN in x is not read; an empty sequence keeps its state."""
    found = {}
    for name, layout, given in [
        ("unsorted", SEQ, [2, 4, 3]), ("one empty", SEQ, [4, 0, 2]), ("all empty", SEQ, [0, 0, 0]),
        ("equal and short", SEQ, [2, 2, 2]), ("packed", PACKED, [4, 2, 1]),
        ("batch first", BATCH, [4, 4, 4]), ("batch first, unequal", BATCH, [3, 0, 4]),
    ]:  # fmt: skip
        for spec in (rl.Spec("lstm", 5, 6, 2, True), rl.Spec("gru", 5, 6)):
            problem = new(spec=spec, layout=layout, lengths=given)
            problem.question["rnn"]["flags"] = 1
            found[f"{name}, {spec.cell}"] = off(problem, gpu.run(problem))
    return judged(found)


def growing_lengths(gpu):
    """One RNN, whose workspace grows with the lengths."""
    spec, x = rl.Spec("lstm", 5, 6), new(T=8, N=4).x
    weights = new(spec=spec).weights
    rnn, cpu = (rl.RNN(weights, spec, device=device) for device in ("cuda", "cpu"))
    apart = 0.0
    for given in (
        [1, 1, 1, 1],
        [1, 2, 0, 1],
        [4, 2, 5, 1],
        [8, 8, 8, 7],
        [8, 8, 8, 8],
        [1, 0, 0, 0],
    ):
        found, right = (one(x, lengths=given)[0] for one in (rnn, cpu))
        apart = max(apart, float(np.abs(found - right).max()))
    return {"right": apart < 1e-5, "apart": apart}


def more_than_2_31_elements(gpu):
    """Only the last step of x is not zero, so y is zero before, and then that of one step."""
    if hasattr(gpu.driver, "fake_alloc"):
        return {"left_out": "the fakes have no such memory"}
    spec, T, N = rl.Spec("rnn_tanh", 64, 64, bias="none", dtype="float16"), 4104, 8192
    one = new(spec=spec, T=1, N=N)
    right, forward = gpu.run(one, {"null": ["hx"]}), gpu.asked(new(spec=spec, T=1, N=N))
    step = forward.sizes_of["x"]
    big = gpu.forward(one.question | {"null": ["hx"], "x": {"T": T, "N": N}, "y": {}})
    for at in ("x", "y"):
        gpu.memset(big.at[at], 0, step * T)
    gpu.write(big.at["x"] + step * (T - 1), one.x.tobytes())
    big.fill("weights", one.weights.tobytes())
    big.run()
    last = gpu.read(big.at["y"] + step * (T - 1), step)
    return {"right": last == right["y"] and not any(gpu.read(big.at["y"] + (1 << 32), step))}


def clip(gpu):
    """Where cuDNN clips; rnnlayout clips what it stores, and refuses it on a GPU until then."""
    bounds, spec = (-0.25, 0.125), rl.Spec("lstm", 5, 6, 2, dtype="float64")
    wide = new(spec=spec, clip=bounds, c_size=2)
    one, clamped = gpu.run(wide), gpu.run(wide, arrays={"cx": np.clip(wide.cx, *bounds)})
    found = {"cx_is_clamped_as_it_is_read": one == clamped}
    wide.cx = np.clip(wide.cx, *bounds)
    result = wide.result(clamped)
    found["cy_is_unclamped"] = bool(((result.c < bounds[0]) | (result.c > bounds[1])).any())
    stored = clamped | {"cy": np.clip(result.c, *bounds).tobytes()}
    return found | {"h_as_of_a_stored_clip": bool(wide.worst(stored, unit=FLOAT64) <= 1)}


# --------------------------------------------------------------------------------------- memory


def no_first_state(gpu):
    problem = new()
    problem.hx[:], problem.cx[:] = 0, 0
    return same(gpu, problem, {"null": ["hx", "cx"]})


def no_last_state(gpu):
    return same(gpu, new(), {"null": ["hy", "cy"]}, names=["y"])


def at_any_element(gpu):
    """x and the weights an element after an aligned address."""
    each = {}
    for name in ("x", "weights"):
        for shift, dtype in ((4, "float32"), (2, "float16")):
            problem = new(spec=rl.Spec("lstm", 5, 6, dtype=dtype))
            forward = gpu.asked(problem)
            data = forward.bytes(name)
            forward.at[name] = gpu.alloc(len(data) + 256) + shift
            forward.fill(name, data)
            each[f"{name}, {dtype}"] = gpu.results(forward.run()) == gpu.run(problem)
    return {"same": all(each.values()), "each": each}


def states_in_place(gpu):
    """hy is hx and cy is cx. Not documented; the fakes end the process."""
    problem = new(spec=rl.Spec("lstm", 64, 96, 3), T=20)
    forward = gpu.asked(problem)
    forward.at |= {"hy": forward.at["hx"], "cy": forward.at["cx"]}
    return {"same": gpu.results(forward.run()) == gpu.run(problem)}


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


def workspaces(gpu):
    """Bytes with a real handle and with a block of zeros, for several T and lengths."""
    sizes = {}
    for T, given in [(1, None), (8, None), (8, [8, 5, 2]), (8, [1, 1, 1]), (100, None)]:
        more = {"rnn": {"I": 64, "H": 96, "L": 2, "P": 96, "flags": 1},
                "x": {"T": T, "N": 3, "lengths": given}}  # fmt: skip
        asked = ask.Asked(gpu.library, {"call": "sizes", **more})
        asked.create()
        for name in ask.STEPS:
            getattr(asked, name)()  # writes the sizes, and then fails without a device
        real = gpu.forward(more).workspace.value
        sizes[f"T={T}, lengths={given}"] = [real, asked.workspace.value]
    real = [size[0] for size in sizes.values()]
    rising = real[0] <= real[1] <= real[4] and real[2] <= real[1] and real[3] <= real[1]
    return {"never_falls": rising, "nbytes, real and zeros": sizes}


# ----------------------------------------------------------------------------- streams, captures


def streams(gpu):
    """The status of cudnnSetStream."""
    gpu.new_handle()
    call = gpu.library._library.cudnnSetStream
    return {"legacy": call(gpu.handle, None), "per_thread": call(gpu.handle, c_void_p(2))}


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


def stream_destroyed_before_the_next_call(gpu):
    """A call in a stream, which is then destroyed, and one in another: of one RNN, whose handle and
    memory both use."""
    spec = rl.Spec("lstm", 5, 6)
    problem = new(spec=spec)
    rnn = rl.RNN(problem.weights, spec, device="cuda")
    x, right = (
        Array(gpu.calls, np.nan_to_num(problem.x)),
        rl.RNN(problem.weights, spec)(problem.x)[0],
    )
    found = []
    for _ in range(3):
        stream = gpu.stream()
        y, _ = rnn(x, stream=stream.value)
        found.append(y)
        gpu.cu("cuStreamDestroy_v2", stream)
    gpu.calls.synchronize()
    return {"right": all(float(np.abs(taken(gpu, y) - right).max()) < 1e-5 for y in found)}


def taken(gpu, y):
    """A DeviceArray's numbers, without a wait for its stream."""
    capsule = y.__dlpack__(stream=-1)
    pointer = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    at = c_ulonglong.from_address(pointer(capsule, b"dltensor")).value
    return np.frombuffer(gpu.read(at, 4 * int(np.prod(y.shape))), "f4").reshape(y.shape)


def captured(gpu, problem, more=None, after=None, during=None, first=None):
    """Run the call, capture it, replay it into cleared outputs, and compare. first: False: it does
    not run before."""
    forward, stream, graph, launched = (
        gpu.asked(problem, more),
        gpu.stream(),
        c_void_p(),
        c_void_p(),
    )
    wanted = None if first is False else gpu.results(forward.run())
    gpu.cudnn("cudnnSetStream", gpu.handle or gpu.new_handle(), stream)
    gpu.cu("cuStreamBeginCapture_v2", stream, 1)
    if during:
        during()
    status = forward.forward()
    if gpu.driver.cuStreamEndCapture(stream, byref(graph)) or status:
        return {"status": status, "same": False}
    gpu.cu("cuGraphInstantiateWithFlags", byref(launched), graph, c_ulonglong(0))
    for name in RESULTS:
        forward.fill(name, bytes(forward.sizes_of[name]))
    if after:
        after(forward)
    gpu.cu("cuGraphLaunch", launched, stream)
    gpu.sync(stream)
    again = gpu.results(forward)
    if wanted is None:
        gpu.cudnn("cudnnSetStream", gpu.handle, None)
        wanted = gpu.results(forward.run())
    names = RESULTS if problem.spec.cell == "lstm" else RESULTS[:2]
    return {"same": all(again[name] == wanted[name] for name in names)}


def capture(gpu):
    each = {
        "one layer": captured(gpu, new()),
        "two layers": captured(gpu, new(spec=rl.Spec("gru", 5, 6, 2))),
        "both directions": captured(gpu, new(spec=rl.Spec("lstm", 5, 6, 2, True))),
        "lengths": captured(gpu, new(lengths=[2, 4, 3])),
    }
    return {"same": all(found["same"] for found in each.values()), "each": each}


def capture_of_persistent(gpu):
    """Algorithms 1 and 3, and whether their kernels keep state in the handle: it makes other calls
    before the launch."""
    spec = rl.Spec("lstm", 128, 128, dtype="float16")

    def other(_):
        gpu.cudnn("cudnnSetStream", gpu.handle, gpu.stream())
        gpu.run(new(spec=rl.Spec("lstm", 64, 96, 2)))

    befores = {"alone": None, "after others": other}
    return {f"{algo}, {name}": captured(gpu, new(spec=spec, N=8), SMALL[algo], after=before)
            for algo in SMALL for name, before in befores.items()}  # fmt: skip


def first_call_in_a_capture(gpu):
    """Whether a call of sizes that never ran can be captured."""
    return captured(gpu, new(), first=False)


def handle_during_a_capture(gpu):
    """Whether another thread's call on the handle breaks the capture that has used it. rnnlayout
    lends it to no other stream until the capture ends."""
    if hasattr(gpu.driver, "fake_alloc"):
        return {"left_out": "the fakes end a process over it"}
    beside, done = gpu.asked(new(2)), []

    def call():
        gpu.cu("cuCtxPushCurrent_v2", gpu.context)
        done.append(gpu.driver and beside.forward())

    found = captured(gpu, new(), during=lambda: in_a_thread(call))
    return found | {"status of the call": done}


def capture_while_another_thread_allocates(gpu):
    """In the thread-local mode, which does not restrict other threads."""
    status = []

    def allocate():
        at = c_ulonglong()
        gpu.cu("cuCtxPushCurrent_v2", gpu.context)
        status.append(gpu.driver.cuMemAlloc_v2(byref(at), c_size_t(1 << 20)))

    found = captured(gpu, new(), during=lambda: in_a_thread(allocate))
    return {"status": status[0], **found}


def capture_while_this_thread_frees(gpu):
    """In the relaxed mode, in which rnnlayout frees memory for Python's garbage collector."""
    at, status = gpu.alloc(1 << 20), []

    def free():
        mode = c_int(2)
        gpu.cu("cuThreadExchangeStreamCaptureMode", byref(mode))
        status.append(gpu.driver.cuMemFree_v2(c_ulonglong(at)))
        gpu.cu("cuThreadExchangeStreamCaptureMode", byref(mode))

    return {**captured(gpu, new(), during=free), "status": status[0]}


def capture_and_other_lengths(gpu):
    """Whether lengths set after the capture change the replay. The fakes end the process."""

    def shorten(forward):
        forward.q["x"]["lengths"][:] = forward.q["y"]["lengths"][:] = [1, 1, 1]
        forward.set_x(), forward.set_y()

    return captured(gpu, new(lengths=[2, 4, 3]), after=shorten)


# ---------------------------------------------------------------------------------- beside torch


class Forwarded:
    """A tensor by DLPack alone: results are then DeviceArrays, not tensors."""

    def __init__(self, tensor):
        self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__


def beside_torch(gpu):
    """rl.RNN in one process with torch. Results are passed to a torch stream and dropped at once:
    their memory must not be overwritten while that stream still reads it."""
    torch, where, missing = torch_there()
    if where != "cuda":
        return {"left_out": missing}
    x, spec = Forwarded(torch.ones(20, 4, 64, device="cuda")), rl.Spec("gru", 64, 96)
    before = gpu.calls.current()
    rnn = rl.RNN(new(spec=spec).weights, spec, device="cuda")
    right = torch.from_dlpack(rnn(x)[0]).clone()
    found = {"context_is_left": gpu.calls.current() == before}
    found["one_context"] = before == gpu.context.value
    side, bad = torch.cuda.Stream(), torch.zeros((), device="cuda", dtype=torch.int64)
    side.wait_stream(torch.cuda.current_stream())
    for _ in range(1000):
        y = rnn(x)[0]
        with torch.cuda.stream(side):
            bad += (torch.from_dlpack(y) != right).sum()
        del y
    torch.cuda.synchronize()
    return found | {"wrong_after_a_race": bad.item()}


def torchs_graph(gpu):
    """rl.RNN below torch.cuda.graph(), with results that torch makes there, replayed on another x;
    and without a graph on the same tensors, whose memory torch's allocator gives and takes."""
    torch, where, missing = torch_there()
    if where != "cuda":
        return {"left_out": missing}
    spec = rl.Spec("lstm", 64, 96)
    rnn = rl.RNN(new(spec=spec).weights, spec, device="cuda")
    one, two = (torch.randn(20, 4, 64, device="cuda") for _ in range(2))
    right = [rnn(x)[0].clone() for x in (one, two)]
    wrong = sum((rnn(one)[0] != right[0]).sum().item() for _ in range(200))
    x, graph, each = one.clone(), torch.cuda.CUDAGraph(), []
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y, _ = rnn(x)
    for given, answer in zip((one, two), right, strict=True):
        x.copy_(given)
        graph.replay()
        each.append(bool((y == answer).all()))
    return {"eager": wrong == 0, "replayed": all(each)}


RIGHT, SAME = {"right": True}, {"same": True}
# A question, and what we assume of its answer.
FACTS = {question.__name__: (question, expected) for question, expected in [
    (start, {}), (forward_lstm, RIGHT), (forward_gru, RIGHT), (forward_rnn, RIGHT), (dtypes, RIGHT),
    (persistent, RIGHT), (math, {}), (lengths, RIGHT), (growing_lengths, RIGHT),
    (more_than_2_31_elements, RIGHT),
    (clip, {"cx_is_clamped_as_it_is_read": True, "h_as_of_a_stored_clip": True,
            "cy_is_unclamped": True}),
    (no_first_state, SAME), (no_last_state, SAME), (at_any_element, SAME), (states_in_place, {}),
    (memory_around_the_results, {"untouched": True}), (workspaces, {"never_falls": True}),
    (streams, {"legacy": 0, "per_thread": 0}), (legacy_stream_waits_for_threads, {"waits": True}),
    (stream_destroyed_before_the_next_call, RIGHT),
    (capture, SAME), (capture_of_persistent, {}), (first_call_in_a_capture, {}),
    (handle_during_a_capture, {}), (capture_while_another_thread_allocates, {"status": 0, **SAME}),
    (capture_while_this_thread_frees, {"status": 0, **SAME}), (capture_and_other_lengths, {}),
    (beside_torch, {"context_is_left": True, "one_context": True, "wrong_after_a_race": 0}),
    (torchs_graph, {"eager": True, "replayed": True}),
]}  # fmt: skip


def fact(name, folder, cublas=None):
    """Answer a question. folder: it contains libcudnn; cublas: a library to load before."""
    if cublas:
        ctypes.CDLL(cublas, mode=ctypes.RTLD_GLOBAL)
    return compared(name, FACTS[name][0](Gpu(folder)))


def compared(name, answer):
    """Return {"answer", "expected", "as_expected"}; the last is None if nothing is expected."""
    expected = {} if "left_out" in answer else FACTS[name][1]
    same_as = all(answer.get(key) == value for key, value in expected.items())
    return {"answer": answer, "expected": expected, "as_expected": same_as if expected else None}
