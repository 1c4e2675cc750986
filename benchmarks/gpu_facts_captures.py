"""What cuDNN and the driver do in captures: graphs of calls, their handles and their memory."""

import ctypes
import time
from ctypes import byref, c_char, c_int, c_size_t, c_ulonglong, c_void_p

from gpu_ask import fact, new
from gpu_facts_streams import in_a_thread

import rnnlayout as rl

RESULTS = ("y", "hy", "cy")


def clear(forward):
    for name in RESULTS:
        forward.fill(name, bytes(forward.sizes_of[name]))


def graph_of(gpu, stream, record):
    """Return what a function gives while the stream is captured, and the graph; None: it broke."""
    graph, launched = c_void_p(), c_void_p()
    gpu.cudnn("cudnnSetStream", gpu.handle, stream)
    gpu.cu("cuStreamBeginCapture_v2", stream, 1)
    given = record()
    if gpu.driver.cuStreamEndCapture(stream, byref(graph)):
        return given, None
    gpu.cu("cuGraphInstantiateWithFlags", byref(launched), graph, c_ulonglong(0))
    return given, launched


def captured(gpu, problem, more=None, after=None, during=None, first=None):
    """Run the call, capture it, replay it into cleared outputs, and compare.

    first: the changes to the call that runs before, if it is another one; False: none does
    """
    forward = gpu.asked(problem, more)
    if first is None:
        wanted = gpu.results(forward.run())
    elif first is not False:
        gpu.run(problem, first)
    stream = gpu.stream()

    def record():
        if during:
            during()
        return forward.forward()

    status, launched = graph_of(gpu, stream, record)
    if status or not launched:
        return {"status": status, "same": False}
    clear(forward)
    if after:
        after(forward)
    gpu.cu("cuGraphLaunch", launched, stream)
    gpu.sync(stream)
    again = gpu.results(forward)
    if first is not None:
        gpu.cudnn("cudnnSetStream", gpu.handle, None)
        wanted = gpu.results(forward.run())
    names = RESULTS if problem.spec.cell == "lstm" else RESULTS[:2]
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


PERSISTENT = {1: {"rnn": {"algo": 1, "math": 1}}, 3: {"rnn": {"algo": 3, "math": 1}}}


def persistent(gpu, algo, after):
    """Capture a call with a persistent algorithm, and do something before it is replayed."""
    problem = new(spec=rl.Spec("lstm", 128, 128, dtype="float16"), N=8)
    return captured(gpu, problem, PERSISTENT[algo], after=lambda _: after(problem))


@fact()
def graph_of_persistent_after_other_calls(gpu):
    """Whether the kernels keep state in the handle: it makes other calls before the launch."""

    def other(problem, algo):
        gpu.cudnn("cudnnSetStream", gpu.handle, gpu.stream())
        gpu.run(problem, PERSISTENT[algo])
        gpu.run(new(spec=rl.Spec("lstm", 64, 96, 2)))

    return {str(algo): persistent(gpu, algo, lambda p, algo=algo: other(p, algo))
            for algo in PERSISTENT}  # fmt: skip


@fact()
def graph_of_persistent_without_its_handle(gpu):
    """The handle is destroyed before the launch. rnnlayout never destroys one."""

    def destroy(_):
        gpu.cudnn("cudnnDestroy", gpu.handle)
        gpu.handle = None

    return {str(algo): persistent(gpu, algo, destroy) for algo in PERSISTENT}


@fact()
def first_call_in_a_capture(gpu):
    """Whether a call of sizes that never ran can be captured. rnnlayout refuses it."""
    return captured(gpu, new(), first=False)


@fact()
def first_call_without_a_state_in_a_capture(gpu):
    return captured(gpu, new(), {"null": ["hx", "cx"]}, first=False)


@fact(same=True)
def capture_without_a_state_after_one_with(gpu):
    """rnnlayout takes a call with h_0 for the one that must run before a capture without it."""
    return captured(gpu, new(), {"null": ["hx", "cx"]}, first={})


@fact(same=True)
def capture_with_a_state_after_one_without(gpu):
    return captured(gpu, new(), first={"null": ["hx", "cx"]})


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


# ------------------------------------------------------------------------------- memory of a pool


class Pool(ctypes.Structure):
    """CUmemPoolProps"""

    _fields_ = [("type", c_int), ("handles", c_int), ("place", c_int), ("device", c_int),
                ("security", c_void_p), ("more", c_char * 64)]  # fmt: skip


def pool_of(gpu):
    """A pool that keeps free memory, as rnnlayout's."""
    pool, all_of_it = c_void_p(), c_ulonglong(2**64 - 1)
    gpu.cu("cuMemPoolCreate", byref(pool), byref(Pool(1, 0, 1, 0)))
    gpu.cu("cuMemPoolSetAttribute", pool, c_int(4), byref(all_of_it))
    return pool


def with_memory_of(gpu, pool, forward, stream):
    """Make a call whose workspace is taken from a pool in the order of a stream, and given back."""
    at = c_ulonglong()
    nbytes = c_size_t(forward.sizes_of["workspace"])
    gpu.cu("cuMemAllocFromPoolAsync", byref(at), nbytes, pool, stream)
    forward.at["workspace"] = at.value
    status = forward.forward()
    gpu.cu("cuMemFreeAsync", at, stream)
    return status


@fact(same=True)
def workspace_of_a_graph(gpu):
    """The workspace is the graph's own memory: two graphs are launched at the same time."""
    pool, graphs = pool_of(gpu), []
    for seed in (1, 2):
        forward, stream = gpu.asked(new(seed)), gpu.stream()
        wanted = gpu.results(forward.run())
        status, launched = graph_of(
            gpu, stream, lambda f=forward, s=stream: with_memory_of(gpu, pool, f, s)
        )
        if status or not launched:
            return {"status": status, "same": False}
        clear(forward)
        gpu.cudnn("cudnnSetStream", gpu.handle, None)
        graphs.append((forward, stream, launched, wanted))
    for _ in range(3):
        for _, stream, launched, _ in graphs:
            gpu.cu("cuGraphLaunch", launched, stream)
    for _, stream, *_ in graphs:
        gpu.sync(stream)
    return {"same": all(gpu.results(forward) == wanted for forward, _, _, wanted in graphs)}


@fact()
def time_of_a_pool(gpu):
    """The host's time to take and give back 1 MiB, without and with a wait after each pair."""
    pool, at, nbytes, times = pool_of(gpu), c_ulonglong(), c_size_t(1 << 20), 50

    def us(waits):
        began = time.perf_counter()
        for _ in range(times):
            gpu.cu("cuMemAllocFromPoolAsync", byref(at), nbytes, pool, None)
            gpu.cu("cuMemFreeAsync", at, None)
            if waits:
                gpu.sync()
        return round(1e6 * (time.perf_counter() - began) / times, 3)

    us(True)  # the pool gets its memory
    return {"us": us(False), "us, each waited for": us(True)}
