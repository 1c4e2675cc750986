"""Questions that only a GPU can answer, on what rnnlayout assumes of cuDNN and of packages beside
it: one case of gpu.py each.

A question is a function of the table FACTS. It returns a dict with "right", or with "left_out" and
the reason.
"""

import importlib
import os
from ctypes import byref, c_void_p

import numpy as np
from gpu_device import Array, the_driver, torch_there
from oracles.problem import Problem

import rnnlayout as rl

SPEC, WIDE = rl.Spec("lstm", 5, 6), rl.Spec("lstm", 64, 96)
LEGACY, PER_THREAD = 1, 2


def new(spec=SPEC, **shape):
    """Return a random problem."""
    return Problem(spec, np.random.default_rng(1), **shape)


def rnn_of(problem, device="cuda"):
    return rl.RNN(problem.weights, problem.spec, device=device)


def is_right(y, problem):
    """Is y what the CPU gives?"""
    right = rnn_of(problem, "cpu")(problem.x)[0]
    return float(np.abs(y - right).max()) < 1e-5


def package(name):
    """Return a package that has a GPU, or raise LookupError."""
    if name == "torch":
        torch, where, missing = torch_there()
        if where != "cuda":
            raise LookupError(missing)
        return torch
    try:
        found = importlib.import_module(name)
    except ImportError:
        raise LookupError(f"{name} is not installed") from None
    if name == "jax" and found.default_backend() != "gpu":
        raise LookupError("JAX has no GPU")
    return found


def needs_memory():
    if the_driver().is_fake:
        raise LookupError("the fakes lack it")


# ------------------------------------------------------------------------------ without a framework


def growing_lengths():
    """One RNN, whose workspace grows with the lengths."""
    problem, apart = new(T=8, N=4), 0.0
    gpu, cpu = rnn_of(problem), rnn_of(problem, "cpu")
    for given in ([1, 1, 1, 1], [1, 2, 0, 1], [4, 2, 5, 1], [8, 8, 8, 7], [8] * 4, [1, 0, 0, 0]):
        found, right = (one(problem.x, lengths=given)[0] for one in (gpu, cpu))
        apart = max(apart, float(np.abs(found - right).max()))
    return {"right": apart < 1e-5, "apart": apart}


def more_than_2_31_elements():
    """Only the last step of x is not zero, so y is zero before, and then that of one step."""
    needs_memory()
    spec, T, N = rl.Spec("rnn_tanh", 64, 64, bias="none", dtype="float16"), 4104, 8192
    one = new(spec, T=1, N=N)
    rnn, x = rnn_of(one), np.zeros((T, N, 64), "f2")
    x[-1] = one.x[0]
    y = rnn(Array(x))[0].numpy()
    return {"right": not y[:-1].any() and bool((y[-1] == rnn(Array(one.x))[0].numpy()[0]).all())}


def curves_of_small_h():
    """The largest error of tanh in cuDNN's algorithm for small H, which is the default here and in
    torch, and in the standard one."""
    needs_memory()
    x = np.linspace(-10, 10, 1 << 15, dtype="f4").reshape(1, -1, 1)
    weights, spec, off = np.array([1, 0, 0, 0], "f4"), rl.Spec("rnn_tanh", 1, 1), {}
    for algo in ("auto", "standard"):
        y, _ = rl.RNN(weights, spec, device="cuda", algo=algo)(x)
        off[algo] = float(np.abs(y - np.tanh(x.astype("f8"))).max())
    return {"right": off["auto"] < 2**-17 and off["standard"] < 2**-23, "error": off}


def at_any_element():
    """x an element after an aligned address."""
    each = {}
    for dtype in ("float32", "float16"):
        problem = new(SPEC.replace(dtype=dtype))
        rnn, unit = rnn_of(problem), problem.dtype.itemsize
        found = [rnn(Array(problem.x, shift))[0].numpy() for shift in (0, unit)]
        each[dtype] = bool((found[0] == found[1]).all())
    return {"right": all(each.values()), "each": each}


def streams():
    """The default streams; then a stream that is destroyed before the next call of the handle."""
    problem, driver = new(), the_driver()
    rnn, x = rnn_of(problem), Array(problem.x)
    found = [rnn(x, stream=stream)[0] for stream in (LEGACY, PER_THREAD)]
    for _ in range(3):
        stream = driver.stream()
        found.append(rnn(x, stream=stream.value)[0])
        driver("cuStreamDestroy_v2", stream)
    return {"right": all(is_right(y.numpy(), problem) for y in found)}


def forked_child():
    """A child of a process that has used the GPU is refused, and the parent goes on."""
    problem = new()
    rnn = rnn_of(problem)
    rnn(problem.x)
    if not (child := os.fork()):
        try:
            rnn(problem.x)
        except rl.CudnnNotFoundError:
            os._exit(0)
        os._exit(1)
    refused = os.waitpid(child, 0)[1] == 0
    return {"right": refused and is_right(rnn(problem.x)[0], problem)}


def steppers():
    """A step as a graph of our own, also after an update, and of a network with several layers."""
    each = {}
    for spec in (WIDE, rl.Spec("gru", 5, 128, 2), rl.Spec("lstm", 64, 256, 2)):
        problem = new(spec, T=9, N=1)
        rnn, right = rnn_of(problem), rnn_of(problem, "cpu")
        s, x, apart = rnn.stepper(), np.ascontiguousarray(problem.x[:, 0]), 0.0
        for factor in (1, 0.5):
            for one in (rnn, right):
                one.update(problem.weights * np.float32(factor))
            s.state = None
            apart = max(apart, float(np.abs(s(x) - right.stepper()(x)).max()))
        each[str(spec)] = apart
    return {"right": max(each.values()) < 1e-5, "apart": each}


# ------------------------------------------------------------------------------- beside a framework


def captured(spec, first=True, during=None, lengths=None):
    """Capture a call below torch.cuda.graph(), replay it on another x, and compare. first: whether
    the call runs before it is captured."""
    torch = package("torch")
    one, two = (torch.randn(20, 4, spec.input_size, device="cuda") for _ in range(2))
    flat = new(spec).weights
    other, rnn = (rl.RNN(flat, spec, device="cuda") for _ in range(2))
    right = [other(x, lengths=lengths)[0].clone() for x in (one, two)]
    if first:
        rnn(one, lengths=lengths)
    x, graph = one.clone(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y, _ = rnn(x, lengths=lengths)
        if during:
            during()
    if lengths:
        rnn(one, lengths=[1] * 4)  # other lengths must not change the graph
    for given, answer in zip((one, two), right, strict=True):
        x.copy_(given)
        graph.replay()
        torch.cuda.synchronize()
        if not bool((y == answer).all()):
            return False
    return True


def capture():
    """Calls in graphs: also one of sizes that never ran, and one during which this thread frees a
    result, as Python's garbage collector may."""
    problem = new()
    kept = [rnn_of(problem)(Array(problem.x))]
    each = {
        "one layer": captured(rl.Spec("lstm", 64, 256)),
        "two layers": captured(rl.Spec("gru", 64, 256, 2)),
        "both directions": captured(rl.Spec("lstm", 64, 256, 2, True)),
        "lengths": captured(rl.Spec("lstm", 64, 256), lengths=[20, 3, 7, 20]),
        "small H": captured(WIDE),
        "first call": captured(WIDE, first=False),
        "frees": captured(WIDE, during=kept.clear),
    }
    return {"right": all(each.values()), "each": each}


def beside_torch():
    """In one process with torch: its context, and its memory."""
    torch, driver = package("torch"), the_driver()
    before, now, x = c_void_p(), c_void_p(), torch.randn(20, 4, 64, device="cuda")
    rnn = rnn_of(new(WIDE))
    driver("cuCtxGetCurrent", byref(before))
    right = rnn(x)[0].clone()
    wrong = sum((rnn(x)[0] != right).sum().item() for _ in range(200))
    driver("cuCtxGetCurrent", byref(now))
    return {"right": not wrong and before.value == now.value == driver.context.value}


def compiled_by_torch():
    """torch.compile around an RNN is a graph break, not an error."""
    torch = package("torch")
    rnn, x = rnn_of(new(WIDE)), torch.randn(20, 4, 64, device="cuda")
    compiled = torch.compile(lambda x: 2 * rnn(x + 1)[0])
    return {"right": bool((compiled(x) == 2 * rnn(x + 1)[0]).all())}


def results_dropped_at_once():
    """A DeviceArray becomes a tensor, is read in another stream and dropped, many times."""
    torch = package("torch")
    problem, side = new(WIDE, T=20, N=4), torch.cuda.Stream()
    rnn, x, wrong = rnn_of(problem), Array(problem.x), 0
    right = torch.from_numpy(rnn(x)[0].numpy()).cuda().sum()
    with torch.cuda.stream(side):
        for _ in range(300):
            wrong = wrong + (torch.from_dlpack(rnn(x)[0]).sum() != right)
    return {"right": not bool(wrong)}


def beside_cupy():
    """CuPy's arrays, in its default stream and in another."""
    cupy, problem = package("cupy"), new(WIDE, T=20, N=4)
    rnn, found = rnn_of(problem), []
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        with stream:
            for _ in range(20):
                y = rnn(cupy.asarray(problem.x))[0]
            found.append(isinstance(y, cupy.ndarray) and is_right(y.get(), problem))
    return {"right": all(found)}


def beside_jax():
    """JAX's arrays, whose results are JAX's."""
    jax, problem = package("jax"), new(WIDE, T=20, N=4)
    rnn, found = rnn_of(problem), []
    for _ in range(20):
        y = rnn(jax.numpy.asarray(problem.x))[0]
        found.append(isinstance(y, jax.Array) and is_right(np.asarray(y + 0), problem))
    return {"right": all(found)}


FACTS = {question.__name__: question for question in (
    growing_lengths, curves_of_small_h, more_than_2_31_elements, at_any_element, streams, steppers,
    beside_torch, capture, compiled_by_torch, results_dropped_at_once, beside_cupy, beside_jax,
    forked_child,
)}  # fmt: skip


def fact(name):
    """Answer a question."""
    try:
        return FACTS[name]()
    except LookupError as why:
        return {"left_out": str(why)}
