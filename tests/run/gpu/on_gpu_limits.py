"""Programs for test_forward.py: what cuDNN, a GPU or its memory cannot do; what a call survives."""

import gc
import os
import pickle
import sys

import numpy as np
import pytest
from project.leaks import growth
from project.no_memory import outcome, refuse_each
from run.gpu.calls import NAMES, TIME_FIRST, Call, arguments, on_gpu, ours
from run.gpu.exporters import Consumed, Exporter
from run.gpu.fake_gpu import LSTM, Device, H, T, assert_near, both, gpu_rnn, inputs, weights_of
from run.gpu.played import played

import rnnlayout as rl
from rnnlayout._run.cudnn import cudnn_report


def calls_that_no_gpu_makes():
    gpu, d = gpu_rnn(), Device()
    for n, text in ((1 << 31, "N is 2147483648: cuDNN supports 2147483647 at most"),
                    ((1 << 31) - 1, "needs arrays larger than cuDNN supports: split")):  # fmt: skip
        x, out, h_out, c_out = (Exporter(d.put(np.zeros(1)), shape) for shape in
                                ((T, n, 5), (T, n, H), (1, n, H), (1, n, H)))  # fmt: skip
        with pytest.raises(rl.SpecError, match=text):
            gpu(x, stream=1, out=out, h_out=h_out, c_out=c_out)


def more_steps_than_cudnn_describes():
    """cuDNN describes 65,535 steps at most: longer calls are made in parts, which pass the state
    on. Each part is computed as by a call of its own, so the tolerance is that of one call."""
    spec, d, now, steps = rl.Spec("lstm", 2, 1, 2), Device(), [0], 65_535 + 2
    cpu, gpu = rl.RNN(weights_of(spec), spec), gpu_rnn(spec)
    x, state = inputs(spec, steps, 2)
    for lengths in (None, [steps, 3], [65_536, 0]):
        right = cpu(x, state, lengths=lengths)
        assert_near(gpu(x, state, lengths=lengths), right)
        with played("torch", now) as Array:
            given, *firsts = (d.copy(a, Array) for a in (x, *state))
            found = gpu(given, tuple(firsts), lengths=lengths, h_out=firsts[0], c_out=firsts[1])
            d.sync()
            assert_near(found, right)
    one = np.ascontiguousarray(x[:, :1].swapaxes(0, 1))
    y, last = cpu(x[:, :1])
    right = np.ascontiguousarray(y.swapaxes(0, 1)), last
    assert_near(gpu_rnn(spec, batch_first=True)(one), right)


def more_steps_that_cannot_be_split():
    x = np.zeros((65_536, 2, 5), "f4")
    with pytest.raises(
        rl.SpecError, match=r"T is 65536, cuDNN supports 65535 at most, and an RNN w"
    ):
        gpu_rnn(LSTM.replace(bidirectional=True))(x)
    with pytest.raises(rl.SpecError, match="at most, and parts of batch-first arrays"):
        gpu_rnn(batch_first=True)(np.zeros((2, 65_536, 5), "f4"))


def bfloat16_before_9_13():
    os.environ["FAKE_CUDNN"] = "91002"
    with pytest.raises(rl.SpecError, match=r"bfloat16 needs cuDNN 9.13, this is 9.10.2"):
        gpu_rnn(LSTM.replace(dtype="bfloat16"))


def empty_sequences_of_9_1():
    os.environ["FAKE_CUDNN"] = "90100"
    cpu, gpu, x, state = both()
    for lengths in ([1, 4, 3], [0, 0, 0], [3, 3, 3]):
        assert_near(gpu(x, state, lengths=lengths), cpu(x, state, lengths=lengths))
    with pytest.raises(rl.SpecError, match=r"a length is 0, which cuDNN 9.1.0 does not support"):
        gpu(x, state, lengths=[4, 0, 3])


def empty_sequences_since_9_2():
    os.environ["FAKE_CUDNN"] = "90200"
    cpu, gpu, x, state = both()
    assert_near(gpu(x, state, lengths=[4, 0, 3]), cpu(x, state, lengths=[4, 0, 3]))


def little_memory():
    os.environ["FAKE_CUDA_MEMORY"] = "100000"
    cpu, gpu, x, _ = both()
    for given in (x, Device().copy(x)):
        assert_near(gpu(given), cpu(x))
    with pytest.raises(MemoryError, match=r"GPU 0 is out of memory: .* for the workspace"):
        gpu(np.zeros((T, 500, 5), "f4"))
    assert_near(gpu(x), cpu(x))
    with pytest.raises(MemoryError, match="for weights; free some"):
        gpu_rnn(rl.Spec("lstm", 5, 100))


def less_memory_for_the_same_call():
    """If memory is short, a call asks for no more than it needs, then for the workspace of the
    standard algorithm."""
    d, right, (x, state) = Device(), rl.RNN(weights_of(LSTM), LSTM), inputs(LSTM, 200)

    def log_of_a_call():
        gpu, results = gpu_rnn(), []
        log = d.log(lambda: results.append(gpu(x, state)))
        assert_near(results.pop(), right(x, state))
        return log

    (nbytes,) = (int(line.split("=")[1]) for line in log_of_a_call() if "cuMemAlloc" in line)
    for share, algo in ((1.0, 3), (0.9, 3), (0.5, 0)):
        gc.collect()
        os.environ["FAKE_CUDA_MEMORY"] = str(LSTM.nbytes + int(share * nbytes))
        *_, last = (line for line in log_of_a_call() if "SetRNNDescriptor" in line)
        assert f"algo={algo} " in last


def an_error_that_sticks():
    """The driver repeats it: every call raises an error, and says what to do."""
    _, gpu, x, _ = both()
    d = Device()
    given = d.copy(x)
    y = gpu(given)
    for status in (700, 719):
        d.fail(4, status, 5000)
        for _ in range(2):
            with pytest.raises(rl.CudnnError, match=r"only be used from a new process|restart the"):
                gpu(given)
        with pytest.raises(rl.CudnnError):
            gpu_rnn()
        d.fail(0, 0, 0)
    d.fail(1, 700, 5000)
    with pytest.raises(rl.CudnnError):
        gpu(given)
    del gpu, y  # which ends without a crash
    gc.collect()
    assert d.live("pushed") == 0


def first_calls_that_fail():
    """The handle, stream and descriptor of the first call are made piece by piece: after a failure
    the next call makes the rest."""
    cudnn_report()  # finds the GPU
    d = Device()
    for k, call in ((10, "cuStreamCreate"), (4, "cudnnCreate"), (4, "cudnnCreateDropoutDescriptor"),
                    (4, "cudnnSetDropoutDescriptor")):  # fmt: skip
        d.fail(k, 999, 5000)
        with pytest.raises(rl.CudnnError) as error:
            gpu_rnn()
        assert error.value.call == call
    assert "cudnnSetDropoutDescriptor" in d.calls(gpu_rnn)
    cpu, gpu, x, state = both()
    assert_near(gpu(x, state), cpu(x, state))
    assert [d.live(kind) for kind in ("handle", "dropout", "stream", "pushed")] == [1, 1, 1, 0]


# ------------------------------------------------------------------------------------------- forks


def a_fork():
    """The child cannot use the parent's RNN, and may drop it."""
    cpu, gpu, x, _ = both()
    y, _ = gpu(Device().copy(x))
    child = os.fork()
    if child == 0:
        ways = [lambda: gpu(x), lambda: y.numpy(), gpu_rnn]
        with played("torch") as Array:
            here = Array(1 << 40, x.shape)
            ways.append(lambda: gpu(here))  # which asks for the size of the workspace first
            for way in ways:
                try:
                    way()
                except rl.CudnnNotFoundError as error:
                    assert "forked process: start processes with spawn" in str(error)
                    continue
                os._exit(2)
        del gpu, y
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert_near((y, cpu(x)[1]), cpu(x))
    assert_near(gpu(x), cpu(x))


# ----------------------------------------------------------------- allocations refused, and leaks


class Forwarding:
    """Another's array by DLPack, with no Python in between."""

    def __init__(self, array):
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


def no_memory():
    """Each allocation of Python's refused in turn: MemoryError, and nothing is lost."""
    device = Device()
    native = on_gpu(LSTM)._native
    # DeviceArrays, which cannot be outputs unless they are forwarded
    call = Call(LSTM, TIME_FIRST, *inputs(LSTM), ours, NAMES[3:])
    arrays = call.arrays(device)
    forwarded = {name: Forwarding(array) for name, array in arrays.items()}
    inner = {name: arrays[name] for name in NAMES[:3]}
    lengths, y = np.array([4, 0, 2]), arrays["x"]
    ways = {
        "outputs given": (forwarded, None, 1),
        "in a large stream": (forwarded, None, device.stream()),
        "new results": (inner, None, None),
        "lengths": (forwarded, lengths, 1),
        "shapes that do not fit": (forwarded | {"h_0": forwarded["x"]}, None, 1),
    }
    calls = {
        "DLPack": lambda: y.__dlpack__(stream=1) is not None,
        "attributes": lambda: (y.shape, y.dtype, y.device, repr(y)),
    }
    for name, (given, steps, stream) in ways.items():

        def way(given=given, steps=steps, stream=stream):
            (x, state, named), outs = arguments(call, given), NAMES[3:]
            found = native.call(
                x, state, steps, *map(named.get, outs), TIME_FIRST, stream, None, None
            )
            return found if isinstance(found, list) else (type(found[0]), *map(type, found[1]))

        calls[name] = way
    shared = [*arrays.values(), *forwarded.values(), lengths, native]
    for name, way in calls.items():
        right, before = outcome(way), [sys.getrefcount(a) for a in shared]
        allocations = refuse_each(way, right)
        assert allocations >= 1, (name, allocations)
        more = growth(lambda way=way, right=right: [refuse_each(way, right) for _ in range(20)],
                      [20, 20, 1 << 40])  # fmt: skip
        assert (more < [20, 20, 1 << 40]).all(), (name, more)
        live = device.all_live()
        assert way() == right
        assert [sys.getrefcount(a) for a in shared] == before and device.all_live() == live, name


# -------------------------------------------------------------------- memory, failures, the end


def many_sizes():
    """The description of one is kept, and one block, which grows and is the RNN's until its end."""
    cpu, gpu, *_ = both()
    d = Device()
    for k in range(1, 80):
        x, state = inputs(LSTM, 1 + k % 20, 1 + k % 8)
        found = gpu(d.copy(x), tuple(d.copy(a) for a in state))
        assert_near(found, cpu(x, state))
    del found
    gc.collect()
    assert (d.live("rnn_data"), d.live("memory")) == (2, 2)  # the weights and the block
    calls = d.calls(lambda g=gpu: (g(x), g(x)))
    assert calls.count("cuMemAlloc_v2") <= 1
    del gpu
    gc.collect()
    assert d.live("memory") == 0


def a_call_that_fails():
    """c/check_gpu.c makes each call of both libraries fail. Its work is done when the error is
    raised: the copies of states that it was to overwrite."""
    cpu, gpu, x, state = both(LSTM.replace(proj_size=2))  # which has one algorithm
    d, right = Device(), cpu(x, state)
    given, out, *states = (d.copy(a) for a in (x, right[0], *state))

    def call():
        gpu(given, tuple(states), out=out, h_out=states[0], c_out=states[1])

    for way, name in ((call, "cudnnRNNForward"), (lambda: gpu(given), "cudnnRNNForward"),
                      (gpu_rnn, "cudnnGetRNNWeightSpaceSize")):  # fmt: skip
        way()
        gc.collect()
        live = d.all_live()
        d.fail(d.calls(way).index(name) + 1, 801, 5000)
        with pytest.raises(rl.CudnnError, match=name) as error:
            way()
        again = pickle.loads(pickle.dumps(error.value))
        assert (again.status, again.call) == (5000, name)
        del error
        gc.collect()
        assert d.all_live() == live
    d.write(states[0].address, state[0])
    assert_near(gpu(x, state), right)


def at_exit():
    """An array, an RNN and a consumer's capsule that live to the end of the process."""
    gpu = gpu_rnn()
    y, _ = gpu(Device().copy(inputs(LSTM)[0]))
    sys.modules["left"] = [gpu, y, Consumed(y.__dlpack__()), y.__dlpack__()]
    sys.exit()
