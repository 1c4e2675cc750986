"""Programs for test_forward.py: calls on a GPU give what they give on the CPU, with arrays of the
host and of the device, of every library, with every algorithm of cuDNN."""

import itertools
import os
import pickle
import random
import re
import sys
from unittest import mock

import numpy as np
import pytest
import torch
from marks import each_pair
from oracles.bits import DTYPES
from run.gpu.calls import (
    BATCH_FIRST,
    NAMES,
    STEP,
    TIME_FIRST,
    Call,
    assert_right,
    on_cpu,
    ours,
    run_on_gpu,
)
from run.gpu.exporters import Exporter
from run.gpu.fake_gpu import (
    GRU,
    LSTM,
    Device,
    H,
    I,
    N,
    T,
    assert_close,
    assert_near,
    both,
    flat,
    gpu_rnn,
    inputs,
    weights_of,
)
from run.gpu.played import LIBRARIES, played

import rnnlayout as rl
from rnnlayout._run.cudnn import cudnn_report

# ----------------------------------------------------------------------------- arrays of the host


def version():
    """Return the version of the cuDNN that the fake plays."""
    return cudnn_report()["version"]


LENGTHS = [  # of T steps and N sequences; cuDNN 9.1 supports no length of 0 beside others
    lambda rng, T, N: None,
    lambda rng, T, N: [T] * N,
    lambda rng, T, N: [T - 1] * N,
    lambda rng, T, N: [0] * N,
    lambda rng, T, N: [rng.randint(1, T - 1) for _ in range(N)],
    lambda rng, T, N: [rng.randint(90100 <= version() < 90200, T) for _ in range(N)],
]


def random_spec(rng):
    cell, skip = rng.choice(["lstm", "gru", "rnn_tanh", "rnn_relu"]), rng.random() < 0.25
    dtypes = [dtype for dtype in DTYPES if dtype != "bfloat16" or version() >= 91300]
    return rl.Spec(
        cell, H if skip else I, H, rng.randint(1, 2), rng.random() < 0.5,
        2 if cell == "lstm" and rng.random() < 0.5 else 0,
        rng.choice(["double", "input", "recurrent", "none"]),
        skip_input=skip, dtype=rng.choice(dtypes),
    )  # fmt: skip


def every_kind():
    """Random RNNs and calls, on arrays of the host, of the device, and with the states in place."""
    device, rng = Device(), random.Random(1)
    for place, lengths_of in itertools.product(("host", "device", "in place"), LENGTHS * 6):
        spec, batch_first, T, N = random_spec(rng), rng.random() < 0.5, *rng.sample(range(2, 6), 2)
        weights = weights_of(spec)
        cpu, gpu = (rl.RNN(weights, spec, device=d, batch_first=batch_first)
                    for d in ("cpu", "cuda"))  # fmt: skip
        assert gpu._native.weights().tobytes() == weights.tobytes()
        x, state = inputs(spec, T, N, batch_first)
        if place != "in place" and rng.random() < 0.3:
            state = None
        lengths = lengths_of(rng, T, N)
        right, named = cpu(x, state, lengths=lengths), {}
        if place != "host":
            x, *states = (device.copy(a) for a in flat((x, state)) if a is not None)
            state = states if spec.cell == "lstm" and states else (states or [None])[0]
        if place == "in place":
            named = dict(zip(("h_out", "c_out"), states, strict=False), stream=1)
        found = gpu(x, state, lengths=lengths, **named)
        device.sync()
        assert_near(found, right)
    assert device.live("pushed") == 0


def numpy_arrays():
    """What only the way to a GPU does: copies of arrays with gaps, steps, no steps; pickles. The
    rest is shared: run/cpu."""
    cpu, gpu, x, (h, c) = both()
    assert (gpu.device, gpu.algo, gpu.math) == ("cuda:0", "auto", "default")
    assert repr(gpu) == "<RNN of lstm, input_size 5, hidden_size 7, on cuda:0>"
    right = cpu(x, (h, c))
    room = np.zeros((T, N, 2 * H), "f4")
    out, h_out = room[..., :H], np.zeros((1, N, 2 * H), "f4")[..., ::2]
    y, (h_n, c_n) = gpu(x, (h, c), out=out, h_out=h_out)
    assert y is out and h_n is h_out and not room[..., H:].any()
    assert_near((y, (h_n, c_n)), right)
    assert_near(gpu(x[::-1], (h, c)), cpu(x[::-1], (h, c)))
    back = rl.Weights(rl.unpack(weights_of(LSTM), LSTM, to="torch"))
    back.config = {"go_backwards": True}
    assert_near(back.rnn(device="cuda")(x, (h, c)), cpu(x[::-1], (h, c)))
    state = h.copy(), c.copy()
    for x_t, right_y in zip(x, right[0], strict=True):
        y, state = gpu.step(x_t, state, h_out=state[0], c_out=state[1])
        assert_close(y, right_y)
    assert_near((right[0], state), right)
    for part in (x[:, 0], x[:, :0]):
        assert_near(gpu(part), cpu(part))
    assert_near(gpu(x[:0], (h, c)), cpu(x[:0], (h, c)))
    for spec, math in ((GRU, "tf32"), (LSTM.replace(dtype="bfloat16"), "default")):
        again = pickle.loads(pickle.dumps(gpu_rnn(spec, math=math)))
        assert (again.device, again.math, again.spec) == ("cuda:0", math, spec)
        assert again._native.weights().tobytes() == weights_of(spec).tobytes()
    gpu.update(weights_of(LSTM) / 2)
    assert_near(gpu(x), rl.RNN(weights_of(LSTM) / 2, LSTM)(x))


def options():
    """An error names what the GPU lacks; "auto" uses the CPU for it."""
    flat = weights_of(LSTM)
    before = rl.Spec("gru", I, H, reset="before")
    tensors = {name: np.ones(s, "f4") for name, s in rl.describe(before, "keras").items()}
    clip = r"cell_clip is \(-1.0, 1.0\), which is not supported on cuda:0: .* use device='cpu'$"
    with pytest.raises(rl.SpecError, match=clip):
        rl.RNN(flat, LSTM, device="cuda", cell_clip=(-1, 1))
    with pytest.raises(rl.SpecError, match=r"tf32.*needs float32 weights, these are float64"):
        rl.RNN(flat.astype("f8"), LSTM.replace(dtype="float64"), device="cuda", math="tf32")
    lacks = "device is 'cuda:0', but cudnn has no reset-before GRU.*use device='cpu'$"
    with pytest.raises(rl.SpecError, match=lacks):
        rl.RNN(tensors, before, layout="keras", device="cuda")
    peeping = LSTM.replace(peepholes=True)
    zeros = {name: np.zeros(s, "f4") for name, s in rl.describe(peeping, "onnx").items()}
    with pytest.raises(rl.SpecError, match="peepholes"):
        rl.RNN(zeros, peeping, layout="onnx", device="cuda")
    with pytest.raises(rl.CudnnNotFoundError, match="cuda:1 cannot be used: this GPU does not exi"):
        rl.RNN(flat, LSTM, device="cuda:1")
    auto = rl.RNN(flat, LSTM, device="auto")
    assert auto.device == "cuda:0" and pickle.loads(pickle.dumps(auto)).device == "cuda:0"
    assert rl.RNN(flat, LSTM, device="auto", math="tf32").device == "cuda:0"
    assert rl.RNN(flat, LSTM, device="auto", math="bfloat16").device == "cpu"
    assert rl.RNN(flat, LSTM, device="auto", cell_clip=(-1, 1)).device == "cpu"
    assert rl.RNN(tensors, before, layout="keras", device="auto").device == "cpu"
    with pytest.raises(rl.SpecError, match=r"^math is 'tf32', need .* on the CPU$"):
        rl.RNN(tensors, before, layout="keras", device="auto", math="tf32")


# --------------------------------------------------------------------------- arrays of the device


def late(address, shape, dtype):
    """DLPack counts bytes before the first element apart from the address."""
    return Exporter(address - 16, shape, dtype, offset=16)


def results():
    """Each kind of array, outputs given or not, with and without a state, a batch, a stream."""
    device = Device()
    with played("torch") as Array:
        # of the inputs, of the outputs, which cannot be DeviceArrays
        kinds = (Array, Array), (Exporter, late), (ours, Exporter), (late, Array)
        cases = [
            case for case in itertools.product(
                [LSTM, GRU, rl.Spec("lstm", I, H, 2, proj_size=2)], kinds,
                (STEP, TIME_FIRST, BATCH_FIRST), (None, 1), ((), ("out", "h_out"), NAMES[3:]))
            if not (case[2] == STEP and case[0].bidirectional)
        ]  # fmt: skip
        for spec, (inner, outer), axes, stream, outs in each_pair(cases):
            for batched in (True,) if axes == STEP else (True, False):
                call = Call(spec, axes, *inputs(spec), inner, outs, batched)
                call.kinds |= dict.fromkeys(NAMES[3:], outer)
                if not batched:  # nor is a state
                    call.given = {n: a for n, a in call.given.items() if n not in NAMES[1:3]}
                assert_right(device, call, stream, waits_for=0 if inner is Array else None)
    assert device.live("pushed") == 0


def longer_lengths():
    """cuDNN's workspace grows with the lengths: that of a call is not enough for longer ones."""
    device = Device()
    for axes in (TIME_FIRST, BATCH_FIRST):
        call = Call(LSTM, axes, *inputs(LSTM), Exporter, NAMES[3:])
        for call.lengths in ([1, 1, 2], [4, 3, 4], [1, 2, 1]):
            assert_right(device, call, 1)


def masks():
    """y of a step that does not count is zero, or of a Keras layer the last one again."""
    mask = np.array([[1, 0, 1, 1], [0, 1, 1, 0], [0, 0, 0, 1]], bool)
    x, state = inputs(LSTM, batch_first=True)
    of_keras = rl.convert(weights_of(LSTM), LSTM, to="keras")
    for source in (weights_of(LSTM), of_keras):
        on_cpu, on_gpu = (
            rl.RNN(source, LSTM, batch_first=True, device=device) for device in ("cpu", "cuda")
        )
        wanted = flat(on_cpu(x, state, mask=mask))
        assert bool(wanted[0][0, 1].any()) == (source is of_keras)
        for result, like in zip(flat(on_gpu(x, state, mask=mask)), wanted, strict=True):
            assert_close(result, like)
        alone = [array[:, 0] for array in state]
        assert_close(on_gpu(x[0], tuple(alone), mask=mask[0])[0], wanted[0][0])


def no_step_and_no_sequence():
    device = Device()
    x, (h, c) = inputs(LSTM)
    with played("torch") as Array:
        for part, kind in itertools.product((x[:0], x[:, :0]), (ours, Exporter, Array)):
            N = part.shape[1]
            call = Call(LSTM, TIME_FIRST, part, (h[:, :N], c[:, :N]), kind, (), lengths=[0] * N)
            assert_right(device, call, 1, waits_for=0 if kind is Array else None)


ENTER = ["cuCtxPushCurrent_v2", "cuThreadExchangeStreamCaptureMode"]
LEAVE = ["cuThreadExchangeStreamCaptureMode", "cuCtxPopCurrent_v2"]
DESCRIBE = [*["cudnnSetRNNDataDescriptor"] * 2, "cudnnGetRNNTempSpaceSizes"]


def one_call():
    """On device arrays of a shape that has run before: one call of cuDNN. The driver also tells
    whether the stream is captured. The same with repeated lengths; new ones are described, of x and
    of y, and may need another size of workspace. Arrays that do not tell their stream are waited
    for."""
    device = Device()
    x, state = inputs(LSTM)
    with played("torch") as Array:
        for (kind, wait), (axes, lengths) in itertools.product(
            ((Exporter, ["cuStreamSynchronize"]), (Array, [])),
            [(STEP, None), (TIME_FIRST, None), (TIME_FIRST, [T, 0, 2])],
        ):
            call = Call(LSTM, axes, x, state, kind, NAMES[3:], lengths=lengths)
            arrays = call.arrays(device)

            def again(call=call, arrays=arrays):
                run_on_gpu(call, arrays)

            again()
            kept = ["cuMemcpyDtoDAsync_v2"] * 2 * bool(lengths)  # h and c of the length 0
            begin = [*ENTER, "cuStreamGetCaptureInfo", "cudnnRNNForward"]
            assert device.calls(again) == [*begin, *kept, *wait, *LEAVE]
            if lengths:
                call.lengths = np.array([1, 2, 3])
                made = device.calls(again)
                assert [name for name in made if name in DESCRIBE] == DESCRIBE
                assert device.calls(again) == [*begin, *wait, *LEAVE]
            device.sync()


def bound_calls():
    """A bound call makes the library calls of one call, also the first time, in the stream of its
    arrays. It reads the arrays and weights of its time."""
    device, home = Device(), [Device().stream()]
    for package, lengths in itertools.product(("torch", "cupy"), (None, [T, 1, 2])):
        cpu, gpu, x, state = both()
        with played(package, home) as Array:
            given, *firsts = (device.copy(a, Array) for a in (x, *state))
            bound = gpu.bind(given, tuple(firsts), lengths=lengths)
            made = device.calls(bound)
            assert made == [*ENTER, "cuStreamGetCaptureInfo", "cudnnRNNForward", *LEAVE]
            results = flat(bound())
            assert all(type(a) is Array for a in results)
            for factor in (1, 3):
                device.sync(home[0])
                device.write(given.address, x * factor)
                cpu.update(weights_of(LSTM) / factor)
                gpu.update(weights_of(LSTM) / factor, stream=home[0])
                again = bound()
                assert all(a is b for a, b in zip(flat(again), results, strict=True))
                device.sync(home[0])
                assert_near(again, cpu(x * factor, state, lengths=lengths))


def bound_calls_in_place():
    device = Device()
    cpu, gpu, x, state = both()
    given, h, c, y = (device.copy(a) for a in (x, *state, cpu(x)[0]))
    bound = gpu.bind(given, (h, c), out=y, h_out=h, c_out=c)
    bound()
    assert_near(bound(), cpu(x, cpu(x, state)[1]))


def bound_calls_that_are_refused():
    device, gpu, (x, state) = Device(), gpu_rnn(), inputs(LSTM)
    plain = device.copy(x)
    for arguments, text in (
        ((x, state), "host's memory, but bind.. of an RNN on a GPU needs"),
        ((plain,), "can make outputs only for tensors of PyTorch and arrays of CuPy: pass out, h_"),
        ((plain, state), "pass out"),
    ):
        with pytest.raises(rl.LayoutError, match=text):
            gpu.bind(*arguments)
    with played("torch") as Array:
        given, h, c = (device.copy(a, Array) for a in (x, *state))
        with pytest.raises(rl.LayoutError, match="c_0: shape"):
            gpu.bind(given, (c, device.copy(x, Array)), lengths=[1, 1, 1])
        with pytest.raises(rl.LayoutError, match=r"expected \(3,\) = \(N,\)"):
            gpu.bind(given, (h, c), lengths=[1, 1])
        with pytest.raises(rl.LayoutError, match="a call with mask needs all arrays"):
            gpu.bind(given, (h, c), mask=np.ones(x.shape[:2], bool))


# ------------------------------------------------------------------- arrays of torch, CuPy and JAX


def results_of_the_library_of_x():
    """Taken from a DeviceArray, as JAX's, or made by the library and written."""
    device = Device()
    for spec, package in itertools.product((LSTM, LSTM.replace(dtype="bfloat16")), LIBRARIES):
        cpu, gpu, x, state = both(spec)
        with played(package) as Array:
            given, *first = (device.copy(a, Array) for a in (x, *state))
            for lengths in (None, [4, 0, 2]):
                found = gpu(given, tuple(first), lengths=lengths)
                assert all(type(a) is Array for a in flat(found))
                assert all(hasattr(a, "of") == (package == "jaxlib") for a in flat(found))
                device.sync()
                assert_near(found, cpu(x, state, lengths=lengths))
            assert type(gpu.step(device.copy(x[0], Array), tuple(first))[0]) is Array


def outputs_of_the_caller():
    """They are returned as they are, whatever x is; x alone decides what new arrays become."""
    device = Device()
    rnn, (x, (h, c)) = gpu_rnn(), inputs(LSTM)
    y = rnn(x, (h, c))[0]
    with played("cupy") as Array:
        for lengths in (None, range(4, 1, -1)):
            theirs, plain = (device.copy(x, kind) for kind in (Array, Exporter))
            mine = device.copy(y * 0, Array), device.copy(h * 0, Exporter)
            found = flat(rnn(theirs, lengths=lengths, out=mine[0], h_out=mine[1]))
            assert found[0] is mine[0] and found[1] is mine[1] and type(found[2]) is Array
            state = tuple(device.copy(a, Array) for a in (h, c))
            found = flat(rnn(plain, state, lengths=lengths, h_out=state[0]))
            assert found[1] is state[0]
            assert type(found[0]) is type(found[2]) is rl.DeviceArray
    with mock.patch.dict(sys.modules):
        sys.modules.pop("cupy", None)  # not imported: it cannot make arrays
        assert type(rnn(device.copy(x, Array))[0]) is rl.DeviceArray
    # JAX's arrays never change, and others may still read a DeviceArray
    given = device.copy(x)
    with played("jaxlib") as Array:
        for name in NAMES[3:]:
            with pytest.raises(rl.LayoutError, match=f"{name} is an array of JAX, which cannot"):
                rnn(given, **{name: device.copy(h, Array)})
    for name, array in zip(NAMES[3:], flat(rnn(given)), strict=True):
        with pytest.raises(rl.LayoutError, match=f"{name} is a DeviceArray which is not to be wr"):
            rnn(given, **{name: array})


class Detached:
    """What Parameter.detach() returns: the same memory, exported as by its owner."""

    def __init__(self, owner):
        self.__dlpack_device__, self.owner = owner.__dlpack_device__, owner
        self.shape, self.dtype = owner.shape, owner.dtype

    def __dlpack__(self, *, stream=None):
        return Exporter.__dlpack__(self.owner, stream=stream)


class Parameter(Exporter):
    """A tensor that requires grad: torch refuses to export it, also under no_grad()."""

    requires_grad = True

    def __dlpack__(self, *, stream=None):
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")

    def detach(self):
        return Detached(self)


def tensors_that_require_grad():
    """The call must refuse them itself, because torch's table of functions exports them. Under
    no_grad() inputs may require grad, such as a learned first state."""
    device = Device()
    for name, lengths in itertools.product(NAMES, (None, range(4, 1, -1))):
        call = Call(LSTM, TIME_FIRST, *inputs(LSTM), Exporter, NAMES[3:], lengths=lengths)
        call.kinds[name] = Parameter
        with pytest.raises(rl.LayoutError, match=f"{name} requires grad"):
            run_on_gpu(call, call.arrays(device))
        with torch.no_grad():
            if name in NAMES[:3]:
                found = flat(run_on_gpu(call, call.arrays(device)))
                for array, right in zip(found, on_cpu(call).values(), strict=True):
                    assert_close(array, right)
                continue
            with pytest.raises(rl.LayoutError, match=r"Can't export tensors that require gradient"):
                run_on_gpu(call, call.arrays(device))


def compiled():
    """torch.compile does not look into a call, and makes a graph before it and one after it."""
    device, seen = Device(), []
    cpu, rnn, x, _ = both()
    right, _ = cpu(x)

    def backend(graph, _):
        seen.append(graph)
        return graph.forward

    torch.compile(lambda: 0, backend="eager")  # imports what asks torch itself about GPUs
    with played("torch") as Array, torch.no_grad():
        given = device.copy(x, Array)

        @torch.compile(backend=backend)
        def calls(before):
            y, state = rnn(given)
            return before + 1, y, state, before * 2

        for _ in range(2):
            one, y, _, two = calls(torch.ones(3))
            assert one.tolist() == [2, 2, 2] and two.tolist() == [2, 2, 2]
            device.sync()
            assert_close(y, right)
    assert seen


# ----------------------------------------------------------------------------- algorithms

STANDARD, SHARED, SMALL = 0, 1, 3


def used(device, do):
    """Return the algorithms of the calls of cudnnRNNForward that do() makes."""
    algos, found = {}, []
    for line in device.log(do):
        if made := re.match(r"cudnnSetRNNDescriptor_v8 desc=(\S+) algo=(\d)", line):
            algos[made[1]] = int(made[2])
        elif ran := re.match(r"cudnnRNNForward .*\brnn=(\S+)", line):
            found.append(algos[ran[1]])
    return found


def algo_of(spec, N=3, **call):
    x, _ = inputs(spec, batch=N, steps=call.pop("T", 4))
    device = Device()
    return used(device, lambda: gpu_rnn(spec)(x, **call))


def small_ones():
    for spec, right in [
        (LSTM, SMALL),
        (GRU, SMALL),
        *[(LSTM.replace(dtype="bfloat16"), STANDARD)] * (version() >= 91300),
        (LSTM.replace(dtype="float16"), STANDARD),  # cuDNN 9.19 computed it wrong
        (LSTM.replace(dtype="float64"), STANDARD),
        (LSTM.replace(proj_size=2), STANDARD),
        *((LSTM.replace(bias=bias), STANDARD) for bias in ("input", "recurrent", "none")),
        (rl.Spec("lstm", 5, 192), SMALL),
        (rl.Spec("gru", 5, 193), STANDARD),
        (rl.Spec("rnn_relu", 5, 384), SMALL),
        (rl.Spec("rnn_tanh", 5, 385), STANDARD),
    ]:
        assert algo_of(spec, N=8, T=1) == [right], spec


HALF = rl.Spec("lstm", 128, 256, dtype="float16")


def shared_ones():
    """Several multiprocessors share the weights."""
    others = [{"dtype": "float32"}, {"num_layers": 2}, {"bidirectional": True}, {"proj_size": 8},
              {"bias": "input"}, {"hidden_size": 128}, {"hidden_size": 320}, {"hidden_size": 1152},
              {"input_size": 64}, {"cell": "gru"}, {"cell": "rnn_tanh"}]  # fmt: skip
    for other in others:
        assert algo_of(HALF.replace(**other), N=8, T=1) == [STANDARD], other
    for cell, units, batch, right in [
        ("lstm", 256, 8, SHARED),
        ("lstm", 256, 12, STANDARD),
        ("lstm", 256, 128, SHARED),
        ("lstm", 256, 136, STANDARD),
        ("rnn_relu", 512, 96, SHARED),
        ("rnn_tanh", 896, 88, SHARED),
        ("rnn_tanh", 896, 96, STANDARD),
    ]:
        spec = HALF.replace(cell=cell, hidden_size=units)
        assert algo_of(spec, N=batch, T=1) == [right], (spec, batch)


def not_shared_before_8_0():
    os.environ["FAKE_CUDA_CAPABILITY"] = "75"
    assert algo_of(HALF, N=8, T=1) == [STANDARD]


def not_shared_on_8_6():
    os.environ["FAKE_CUDA_CAPABILITY"] = "86"
    assert algo_of(HALF, N=8, T=1) == [STANDARD]


def by_call():
    """One RNN runs each call with the algorithm that fits; lengths need the standard one."""
    cpu, gpu, x, state = both()
    device = Device()

    def calls():
        for lengths in (None, [4, 0, 2], [4, 4, 4], [2, 2, 2], None):
            assert_near(gpu(x, state, lengths=lengths), cpu(x, state, lengths=lengths))

    assert used(device, calls) == [SMALL, STANDARD, SMALL, STANDARD, SMALL]
    assert gpu.algo == "auto" and "algo" not in repr(gpu)
    assert used(device, lambda: gpu_rnn(algo="standard")(x)) == [STANDARD]


def refused_by_cudnn():
    """The standard algorithm runs the call, and all later ones."""
    device = Device()
    for where in ("descriptor", "sizes", "forward"):
        os.environ["FAKE_CUDNN_NO_PERSIST"] = where
        cpu, gpu, x, state = both()
        algos = used(device, lambda: [assert_near(gpu(x, state), cpu(x, state)) for _ in range(3)])  # noqa: B023
        assert algos[-3:] == [STANDARD] * 3


def on_an_old_gpu():
    os.environ["FAKE_CUDA_CAPABILITY"] = "50"
    assert algo_of(LSTM) == [STANDARD]
    thin = LSTM.replace(dtype="bfloat16")
    text = "bfloat16 needs a GPU of compute capability 8.0, GPU 0 has 5.0"
    with pytest.raises(rl.SpecError, match=text):
        gpu_rnn(thin)
