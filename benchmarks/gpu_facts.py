"""Questions about cuDNN that only a GPU can answer: one case of gpu.py each.

A question is a function of the table FACTS, with what we assume so far, if we assume anything; it
returns a dict. A difference matters to the fakes in tests/fakes and to our GPU path. A wrong
assumption may kill the process.
"""

import ctypes
import threading
from ctypes import byref, c_int, c_ulonglong, c_void_p

import numpy as np
from gpu_device import Array, Arrays, Gpu, new, torch_there
from oracles.reference import FLOAT64

import rnnlayout as rl

RESULTS = ("y", "hy", "cy")


def same(gpu, problem, more, names=RESULTS):
    """Does the call give the same with these changes?"""
    found, right = gpu.run(problem, more), gpu.run(problem)
    return {"same": all(found[name] == right[name] for name in names)}


# ------------------------------------------------------------------------------------- arguments


def growing_lengths(gpu):
    """One RNN, whose workspace grows with the lengths."""
    spec, x = rl.Spec("lstm", 5, 6), new(T=8, N=4).x
    rnn, cpu = (rl.RNN(new(spec=spec).weights, spec, device=device) for device in ("cuda", "cpu"))
    apart = 0.0
    for given in ([1, 1, 1, 1], [1, 2, 0, 1], [4, 2, 5, 1], [8, 8, 8, 7], [8] * 4, [1, 0, 0, 0]):
        found, right = (one(x, lengths=given)[0] for one in (rnn, cpu))
        apart = max(apart, float(np.abs(found - right).max()))
    return {"right": apart < 1e-5, "apart": apart}


def more_than_2_31_elements(gpu):
    """Only the last step of x is not zero, so y is zero before, and then that of one step."""
    if gpu.is_fake:
        return {"left_out": "the fakes have no such memory"}
    spec, T, N = rl.Spec("rnn_tanh", 64, 64, bias="none", dtype="float16"), 4104, 8192
    one = new(spec=spec, T=1, N=N)
    right, step = gpu.run(one, {"null": ["hx"]}), one.x.nbytes
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


# ----------------------------------------------------------------------------- streams, captures


def streams(gpu):
    """The status of cudnnSetStream."""
    call, handle = gpu.library._library.cudnnSetStream, gpu.new_handle()
    return {"legacy": call(handle, None), "per_thread": call(handle, c_void_p(2))}


def stream_destroyed_before_the_next_call(gpu):
    """A call in a stream, which is then destroyed, and one in another, with the same handle."""
    spec = rl.Spec("lstm", 5, 6)
    problem = new(spec=spec)
    rnn, x = rl.RNN(problem.weights, spec, device="cuda"), Array(np.nan_to_num(problem.x))
    right, found = rl.RNN(problem.weights, spec)(problem.x)[0], []
    for _ in range(3):
        stream = gpu.stream()
        found.append(rnn(x, stream=stream.value)[0])
        gpu.cu("cuStreamDestroy_v2", stream)
    ys = [Arrays("driver").get(y, "f4") for y in found]
    return {"right": all(float(np.abs(y - right).max()) < 1e-5 for y in ys)}


def captured(gpu, problem, more=None, after=None, during=None, first=True):
    """Run the call, capture it, replay it into cleared outputs, and compare. first: whether it runs
    before it is captured."""
    forward, stream, graph, launched = (
        gpu.asked(problem, more),
        gpu.stream(),
        c_void_p(),
        c_void_p(),
    )
    wanted = gpu.results(forward.run()) if first else None
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
    small = rl.Spec("lstm", 128, 128, dtype="float16")
    each = {
        "one layer": captured(gpu, new()),
        "two layers": captured(gpu, new(spec=rl.Spec("gru", 5, 6, 2))),
        "both directions": captured(gpu, new(spec=rl.Spec("lstm", 5, 6, 2, True))),
        "lengths": captured(gpu, new(lengths=[2, 4, 3])),
        "algorithm for small H": captured(
            gpu, new(spec=small, N=8), {"rnn": {"algo": 3, "math": 1}}
        ),
    }
    return {"same": all(found["same"] for found in each.values()), "each": each}


def first_call_in_a_capture(gpu):
    """Whether a call of sizes that never ran can be captured."""
    return captured(gpu, new(), first=False)


def handle_during_a_capture(gpu):
    """Whether another thread's call on the handle breaks the capture that has used it. rnnlayout
    uses it in no other stream until the capture ends."""
    if gpu.is_fake:
        return {"left_out": "the fakes end a process over it"}
    beside, done = gpu.asked(new(2)), []

    def call():
        gpu.cu("cuCtxPushCurrent_v2", gpu.context)
        done.append(beside.forward())

    def during():
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    return captured(gpu, new(), during=during) | {"status of the call": done}


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


def torchs_graph(gpu):
    """rl.RNN in one process with torch: its context, its memory, and below torch.cuda.graph(), with
    results that torch makes there, replayed on another x."""
    torch, where, missing = torch_there()
    if where != "cuda":
        return {"left_out": missing}
    spec = rl.Spec("lstm", 64, 96)
    one, two = (torch.randn(20, 4, 64, device="cuda") for _ in range(2))
    before, now = c_void_p(), c_void_p()
    gpu.cu("cuCtxGetCurrent", byref(before))
    rnn = rl.RNN(new(spec=spec).weights, spec, device="cuda")
    right = [rnn(x)[0].clone() for x in (one, two)]
    gpu.cu("cuCtxGetCurrent", byref(now))
    found = {"one_context": before.value == now.value == gpu.context.value}
    found["eager"] = not sum((rnn(one)[0] != right[0]).sum().item() for _ in range(200))
    x, graph, each = one.clone(), torch.cuda.CUDAGraph(), []
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y, _ = rnn(x)
    for given, answer in zip((one, two), right, strict=True):
        x.copy_(given)
        graph.replay()
        each.append(bool((y == answer).all()))
    return found | {"replayed": all(each)}


RIGHT, SAME = {"right": True}, {"same": True}
# A question, and what we assume of its answer.
FACTS = {question.__name__: (question, expected) for question, expected in [
    (growing_lengths, RIGHT), (more_than_2_31_elements, RIGHT),
    (clip, {"cx_is_clamped_as_it_is_read": True, "h_as_of_a_stored_clip": True,
            "cy_is_unclamped": True}),
    (no_first_state, SAME), (no_last_state, SAME), (at_any_element, SAME), (states_in_place, {}),
    (streams, {"legacy": 0, "per_thread": 0}), (stream_destroyed_before_the_next_call, RIGHT),
    (capture, SAME), (first_call_in_a_capture, {}), (handle_during_a_capture, {}),
    (capture_while_this_thread_frees, {"status": 0, **SAME}), (capture_and_other_lengths, {}),
    (torchs_graph, {"one_context": True, "eager": True, "replayed": True}),
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
