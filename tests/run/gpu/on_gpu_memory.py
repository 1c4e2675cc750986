"""Programs for test_forward.py: calls whose allocations are refused, and leaks."""

import itertools
import sys

import numpy as np
from project.leaks import growth
from project.no_memory import outcome, refuse_each
from run.gpu.calls import NAMES, TIME_FIRST, Call, arguments, on_gpu, ours, run_on_gpu
from run.gpu.exporters import address_of
from run.gpu.fake_gpu import LSTM, Device, inputs

import rnnlayout as rl


class Forwarding:
    """Another's array by DLPack, with no Python in between."""

    def __init__(self, array):
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


def arrays_of(device):
    """A call and its arrays: DeviceArrays, which cannot be outputs unless they are forwarded."""
    x, state = inputs(LSTM)
    call = Call(LSTM, TIME_FIRST, x, state, ours, NAMES[3:])
    arrays = call.arrays(device)
    return call, arrays, {name: Forwarding(array) for name, array in arrays.items()}


def no_memory():
    """Each allocation of Python's refused in turn: MemoryError, and nothing is lost."""
    device = Device()
    native = on_gpu(LSTM)._native
    call, arrays, forwarded = arrays_of(device)
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
        assert way() == right
        assert [sys.getrefcount(a) for a in shared] == before, name


def leaves_nothing():
    """References, objects and memory of the device, over many calls of each kind of array."""
    device = Device()
    call, arrays, forwarded = arrays_of(device)
    kept, wrong = [forwarded, {name: arrays[name] for name in NAMES[:3]}], [1, 2, 9]
    several = [None, np.array([4, 0, 2], "i4"), [1, 2, 3], wrong]
    given = [array for arrays in kept for array in arrays.values()] + several[1:]
    assert all(map(address_of, arrays.values()))

    def calls(times=100):
        for arrays, call.lengths in itertools.product(kept, several):
            for _ in range(times // len(several)):
                try:
                    run_on_gpu(call, arrays, 1)
                except rl.LayoutError:
                    assert call.lengths is wrong

    calls(5)
    live, before = device.all_live(), [sys.getrefcount(a) for a in given]
    more = growth(calls, [50, 50, 1 << 40])
    assert (more < [50, 50, 1 << 40]).all(), more
    assert device.all_live() == live and [sys.getrefcount(a) for a in given] == before
