"""Questions about cuDNN that only a GPU can answer: one case of gpu.py each.

A question is a function of the table FACTS, with what we assume so far, if we assume anything; it
takes the folder of libcudnn, and returns a dict. Most ask rnnlayout; what it never does is asked of
cuDNN by ctypes. A wrong assumption may kill the process.
"""

import ctypes
import importlib
import os
import threading
from ctypes import byref, c_double, c_float, c_int, c_size_t, c_uint32, c_ulonglong, c_void_p

import numpy as np
from ask_cudnn import Library
from gpu_device import Array, the_driver, torch_there
from oracles.problem import Problem
from oracles.reference import FLOAT64

import rnnlayout as rl

SPEC = rl.Spec("lstm", 5, 6)
LEGACY, PER_THREAD = 1, 2


def new(seed=1, spec=SPEC, **shape):
    """Return a random problem."""
    return Problem(spec, np.random.default_rng(seed), **shape)


def rnn_of(problem, device="cuda"):
    return rl.RNN(problem.weights, problem.spec, device=device)


def is_right(found, problem):
    """Is y what the CPU gives?"""
    y = found if isinstance(found, np.ndarray) else found.numpy()
    right = rnn_of(problem, "cpu")(problem.x)[0]
    return float(np.abs(y.astype("f8") - right.astype("f8")).max()) < 1e-5


# --------------------------------------------------------------------------------- by rnnlayout


def growing_lengths(folder):
    """One RNN, whose workspace grows with the lengths."""
    problem = new(T=8, N=4)
    gpu, cpu = rnn_of(problem), rnn_of(problem, "cpu")
    apart = 0.0
    for given in ([1, 1, 1, 1], [1, 2, 0, 1], [4, 2, 5, 1], [8, 8, 8, 7], [8] * 4, [1, 0, 0, 0]):
        found, right = (one(problem.x, lengths=given)[0] for one in (gpu, cpu))
        apart = max(apart, float(np.abs(found - right).max()))
    return {"right": apart < 1e-5, "apart": apart}


def more_than_2_31_elements(folder):
    """Only the last step of x is not zero, so y is zero before, and then that of one step."""
    if the_driver().is_fake:
        return {"left_out": "the fakes have no such memory"}
    spec, T, N = rl.Spec("rnn_tanh", 64, 64, bias="none", dtype="float16"), 4104, 8192
    one = new(spec=spec, T=1, N=N)
    rnn, x = rnn_of(one), np.zeros((T, N, 64), "f2")
    x[-1] = one.x[0]
    y = rnn(Array(x))[0].numpy()
    return {"right": not y[:-1].any() and bool((y[-1] == rnn(Array(one.x))[0].numpy()[0]).all())}


def curves_of_small_h(folder):
    """The largest error of tanh in cuDNN's algorithm for small H, which is the default here and in
    torch, and in the standard one."""
    if the_driver().is_fake:
        return {"left_out": "the fakes have one tanh"}
    x = np.linspace(-10, 10, 1 << 15, dtype="f4").reshape(1, -1, 1)
    weights, spec, off = np.array([1, 0, 0, 0], "f4"), rl.Spec("rnn_tanh", 1, 1), {}
    for algo in ("auto", "standard"):
        y, _ = rl.RNN(weights, spec, device="cuda", algo=algo)(x)
        off[algo] = float(np.abs(y - np.tanh(x.astype("f8"))).max())
    return {"right": off["auto"] < 2**-17 and off["standard"] < 2**-23, "error": off}


def no_first_state(folder):
    problem = new()
    zeros = Array(problem.hx * 0), Array(problem.cx * 0)
    rnn, x = rnn_of(problem), Array(problem.x)
    return {"same": bool((rnn(x)[0].numpy() == rnn(x, zeros)[0].numpy()).all())}


def at_any_element(folder):
    """x an element after an aligned address."""
    each = {}
    for dtype in ("float32", "float16"):
        problem = new(spec=SPEC.replace(dtype=dtype))
        rnn, unit = rnn_of(problem), problem.dtype.itemsize
        found = [rnn(Array(problem.x, shift))[0].numpy() for shift in (0, unit)]
        each[dtype] = bool((found[0] == found[1]).all())
    return {"same": all(each.values()), "each": each}


def default_streams(folder):
    problem = new()
    found = [rnn_of(problem)(Array(problem.x), stream=stream) for stream in (LEGACY, PER_THREAD)]
    return {"right": all(is_right(y, problem) for y, _ in found)}


def stream_destroyed_before_the_next_call(folder):
    """A call in a stream, which is then destroyed, and one in another, with the same handle."""
    problem, driver = new(), the_driver()
    rnn, x, found = rnn_of(problem), Array(problem.x), []
    for _ in range(3):
        stream = driver.stream()
        found.append(rnn(x, stream=stream.value)[0])
        driver("cuStreamDestroy_v2", stream)
    return {"right": all(is_right(y, problem) for y in found)}


# ------------------------------------------------------------------- by rnnlayout, beside torch


def captured_by_torch(spec, first=True, during=None, lengths=None):
    """Capture a call below torch.cuda.graph(), replay it on another x, and compare. first: whether
    the call runs before it is captured."""
    torch, _, _ = torch_there()
    dtype = getattr(torch, spec.dtype)
    one, two = (torch.randn(20, 4, spec.input_size, device="cuda", dtype=dtype) for _ in range(2))
    flat = new(spec=spec).weights
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
    for given, answer in zip((one, two), right, strict=True):
        x.copy_(given)
        graph.replay()
        torch.cuda.synchronize()
        if not bool((y == answer).all()):
            return False
    return True


def needs_torch(question):
    def asked(folder):
        _, where, missing = torch_there()
        return question() if where == "cuda" else {"left_out": missing}

    asked.__name__ = question.__name__
    return asked


@needs_torch
def beside_torch():
    """In one process with torch: its context, and its memory."""
    torch, _, _ = torch_there()
    driver, before, now = the_driver(), c_void_p(), c_void_p()
    rnn, x = rnn_of(new(spec=rl.Spec("lstm", 64, 96))), torch.randn(20, 4, 64, device="cuda")
    driver("cuCtxGetCurrent", byref(before))
    right = rnn(x)[0].clone()
    wrong = sum((rnn(x)[0] != right).sum().item() for _ in range(200))
    driver("cuCtxGetCurrent", byref(now))
    return {"one_context": before.value == now.value == driver.context.value, "eager": not wrong}


@needs_torch
def capture():
    each = {
        "one layer": captured_by_torch(rl.Spec("lstm", 64, 256)),
        "two layers": captured_by_torch(rl.Spec("gru", 64, 256, 2)),
        "both directions": captured_by_torch(rl.Spec("lstm", 64, 256, 2, True)),
        "lengths": captured_by_torch(rl.Spec("lstm", 64, 256), lengths=[20, 3, 7, 20]),
        "small H": captured_by_torch(rl.Spec("lstm", 64, 96)),
    }
    return {"same": all(each.values()), "each": each}


@needs_torch
def first_call_in_a_capture():
    """Whether a call of sizes that never ran can be captured."""
    return {"same": captured_by_torch(rl.Spec("lstm", 64, 96), first=False)}


@needs_torch
def capture_while_this_thread_frees():
    """As Python's garbage collector may free a result."""
    problem = new()
    kept = [rnn_of(problem)(Array(problem.x))]
    return {"same": captured_by_torch(rl.Spec("lstm", 64, 96), during=kept.clear)}


@needs_torch
def compiled_by_torch():
    """torch.compile around an RNN is a graph break, not an error."""
    torch, _, _ = torch_there()
    rnn, x = rnn_of(new(spec=rl.Spec("lstm", 64, 96))), torch.randn(20, 4, 64, device="cuda")
    compiled = torch.compile(lambda x: 2 * rnn(x + 1)[0])
    return {"same": bool((compiled(x) == 2 * rnn(x + 1)[0]).all())}


@needs_torch
def results_dropped_at_once():
    """A DeviceArray becomes a tensor, is read in another stream and dropped, many times."""
    torch, _, _ = torch_there()
    problem, side = new(spec=rl.Spec("lstm", 64, 96), T=20, N=4), torch.cuda.Stream()
    rnn, x, wrong = rnn_of(problem), Array(problem.x), 0
    right = torch.from_numpy(rnn(x)[0].numpy()).cuda().sum()
    with torch.cuda.stream(side):
        for _ in range(300):
            wrong = wrong + (torch.from_dlpack(rnn(x)[0]).sum() != right)
    return {"right": not bool(wrong)}


def package(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def beside_cupy(folder):
    """CuPy's arrays, in its default stream and in another."""
    if not (cupy := package("cupy")):
        return {"left_out": "CuPy is not installed"}
    problem = new(spec=rl.Spec("lstm", 64, 96), T=20, N=4)
    rnn, found = rnn_of(problem), []
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        with stream:
            for _ in range(20):
                y = rnn(cupy.asarray(problem.x))[0]
            found.append(isinstance(y, cupy.ndarray) and is_right(y.get(), problem))
    return {"right": all(found)}


def beside_jax(folder):
    """JAX's arrays, whose results are JAX's."""
    if not (jax := package("jax")):
        return {"left_out": "JAX is not installed"}
    if jax.default_backend() != "gpu":
        return {"left_out": "JAX has no GPU"}
    problem = new(spec=rl.Spec("lstm", 64, 96), T=20, N=4)
    rnn, found = rnn_of(problem), []
    for _ in range(20):
        y = rnn(jax.numpy.asarray(problem.x))[0]
        found.append(isinstance(y, jax.Array) and is_right(np.asarray(y + 0), problem))
    return {"right": all(found)}


def forked_child(folder):
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


# ------------------------------------------------------------------------------------- by cuDNN


class Call:
    """A call of cudnnRNNForward for an LSTM, on memory of its own."""

    def __init__(self, folder, problem):
        self.cudnn, self.driver, spec = Library(folder), the_driver(), problem.spec
        self.handle, self.kind = c_void_p(), c_int(spec.dtype == "float64")
        self.cudnn("cudnnCreate", byref(self.handle))
        dropout, self.rnn = self.cudnn.new("Dropout"), self.cudnn.new("RNN")
        self.x, self.y = (self.cudnn.new("RNNData") for _ in range(2))
        self.states, self.work = self.cudnn.new("Tensor"), c_size_t()
        self.T, self.N = problem.T, problem.N
        I, H, L = spec.input_size, spec.hidden_size, spec.num_layers  # noqa: E741
        self.cudnn("cudnnSetDropoutDescriptor", dropout, self.handle, c_float(0), None,
                   c_size_t(0), c_ulonglong(0))  # fmt: skip
        lstm, biases, fma, padded = 2, 2, 3, 1
        numbers = [0, lstm, biases, 0, 0, self.kind.value, self.kind.value, fma, I, H, H, L]
        self.cudnn("cudnnSetRNNDescriptor_v8", self.rnn, *map(c_int, numbers), dropout,
                   c_uint32(padded))  # fmt: skip
        if problem.clip:
            self.cudnn("cudnnRNNSetClip_v9", self.rnn, c_int(1), *map(c_double, problem.clip))
        self.widths = (self.x, I), (self.y, H)
        self.set_lengths(problem.lengths)
        self.cudnn("cudnnSetTensorNdDescriptor", self.states, self.kind, c_int(3),
                   (c_int * 3)(L, self.N, H), (c_int * 3)(self.N * H, H, 1))  # fmt: skip
        self.cudnn("cudnnGetRNNTempSpaceSizes", self.handle, self.rnn, c_int(0), self.x,
                   byref(self.work), None)  # fmt: skip
        y = np.zeros((self.T, self.N, H), problem.dtype)
        self.at = {name: Array(array) for name, array in {
            "x": problem.x, "y": y, "hx": problem.hx, "hy": problem.hx * 0, "cx": problem.cx,
            "cy": problem.cx * 0, "weights": problem.weights,
            "work": np.zeros(self.work.value, "u1")}.items()}  # fmt: skip

    def set_lengths(self, lengths):
        for desc, width in self.widths:
            self.cudnn("cudnnSetRNNDataDescriptor", desc, self.kind, c_int(0), c_int(self.T),
                       c_int(self.N), c_int(width), (c_int * self.N)(*map(int, lengths)),
                       ctypes.create_string_buffer(8))  # fmt: skip

    def submit(self):
        at = {name: c_void_p(array.address) for name, array in self.at.items()}
        self.cudnn("cudnnRNNForward", self.handle, self.rnn, c_int(0), None, self.x, at["x"],
                   self.y, at["y"], self.states, at["hx"], at["hy"], self.states, at["cx"],
                   at["cy"], c_size_t(self.at["weights"].nbytes), at["weights"], self.work,
                   at["work"], c_size_t(0), None)  # fmt: skip

    def results(self):
        return {name: self.at[name].read() for name in ("y", "hy", "cy")}

    def run(self):
        """Return the bytes of y, hy and cy."""
        self.submit()
        return self.results()

    def captured(self, during=None, after=None):
        """Run, capture and replay the call; return whether the results are the same."""
        stream, graph, launched = self.driver.stream(), c_void_p(), c_void_p()
        right = self.run()
        self.cudnn("cudnnSetStream", self.handle, stream)
        self.driver("cuStreamBeginCapture_v2", stream, THREAD_LOCAL)
        self.submit()
        if during:
            during()
        self.driver("cuStreamEndCapture", stream, byref(graph))
        self.driver("cuGraphInstantiateWithFlags", byref(launched), graph, c_ulonglong(0))
        if after:
            after()
        for name in right:
            self.at[name].write(bytes(len(right[name])))
        self.driver("cuGraphLaunch", launched, stream)
        self.driver("cuStreamSynchronize", stream)
        return {"same": self.results() == right}


THREAD_LOCAL = c_int(1)


def clip(folder):
    """Where cuDNN clips; rnnlayout clips what it stores, and refuses it on a GPU until then."""
    if not Library(folder).has("cudnnRNNSetClip_v9"):
        return {"left_out": "the fakes have no clip"}
    bounds, spec = (-0.25, 0.125), rl.Spec("lstm", 5, 6, 2, dtype="float64")
    wide = new(spec=spec, clip=bounds, c_size=2)
    one = Call(folder, wide).run()
    wide.cx = np.clip(wide.cx, *bounds)
    clamped = Call(folder, wide).run()
    found = {"cx_is_clamped_as_it_is_read": one == clamped}
    result = wide.result(clamped)
    found["cy_is_unclamped"] = bool(((result.c < bounds[0]) | (result.c > bounds[1])).any())
    stored = clamped | {"cy": np.clip(result.c, *bounds).tobytes()}
    return found | {"h_as_of_a_stored_clip": bool(wide.worst(stored, unit=FLOAT64) <= 1)}


def states_in_place(folder):
    """hy is hx and cy is cx, for which rnnlayout makes copies. The fakes end the process."""
    apart, same = (Call(folder, new(spec=rl.Spec("lstm", 64, 96, 3), T=20)) for _ in range(2))
    same.at |= {"hy": same.at["hx"], "cy": same.at["cx"]}
    return {"same": apart.run() == same.run()}


def handle_during_a_capture(folder):
    """Whether another thread's call on the handle breaks the capture that has used it. rnnlayout
    uses it in no other stream until the capture ends."""
    call, beside = (Call(folder, new(seed)) for seed in (1, 2))
    beside.handle = call.handle

    def work():
        call.driver("cuCtxPushCurrent_v2", call.driver.context)
        beside.submit()

    def during():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    return call.captured(during=during)


def capture_and_other_lengths(folder):
    """Whether lengths set after the capture change the replay, for which rnnlayout would have to
    keep the descriptors of captured calls."""
    call = Call(folder, new(lengths=[2, 4, 3]))
    return call.captured(after=lambda: call.set_lengths([1, 1, 1]))


RIGHT, SAME = {"right": True}, {"same": True}
# A question, and what we assume of its answer.
FACTS = {question.__name__: (question, expected) for question, expected in [
    (growing_lengths, RIGHT), (curves_of_small_h, RIGHT), (more_than_2_31_elements, RIGHT),
    (no_first_state, SAME), (at_any_element, SAME), (default_streams, RIGHT),
    (stream_destroyed_before_the_next_call, RIGHT),
    (beside_torch, {"one_context": True, "eager": True}), (capture, SAME),
    (first_call_in_a_capture, {}), (capture_while_this_thread_frees, SAME),
    (compiled_by_torch, SAME), (results_dropped_at_once, RIGHT), (beside_cupy, RIGHT),
    (beside_jax, RIGHT), (forked_child, RIGHT),
    (clip, {"cx_is_clamped_as_it_is_read": True, "h_as_of_a_stored_clip": True,
            "cy_is_unclamped": True}),
    (states_in_place, {}), (handle_during_a_capture, {}), (capture_and_other_lengths, {}),
]}  # fmt: skip


def fact(name, folder, cublas=None):
    """Answer a question. folder: it contains libcudnn; cublas: a library to load before."""
    if cublas:
        ctypes.CDLL(cublas, mode=ctypes.RTLD_GLOBAL)
    return compared(name, FACTS[name][0](folder))


def compared(name, answer):
    """Return {"answer", "expected", "as_expected"}; the last is None if nothing is expected."""
    expected = {} if "left_out" in answer else FACTS[name][1]
    same_as = all(answer.get(key) == value for key, value in expected.items())
    return {"answer": answer, "expected": expected, "as_expected": same_as if expected else None}
