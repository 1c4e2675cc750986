"""Programs for fake_gpu.py: calls whose allocations are refused, and leaks."""

import itertools
import sys

import numpy as np
from project.leaks import growth
from project.no_memory import outcome, refuse_each
from run.gpu.calls import (
    NAMES,
    TIME_FIRST,
    Call,
    Forwarding,
    arguments,
    on_gpu,
    ours,
    ours_in,
    run_on_gpu,
)
from run.gpu.fake_gpu import LSTM, Device, inputs

import rnnlayout as rl


def no_memory():
    """Each allocation of Python's refused in turn: MemoryError, and nothing is lost."""
    device = Device()
    native = on_gpu(LSTM)._native
    x, state = inputs(LSTM)
    call, side = Call(LSTM, TIME_FIRST, x, state, ours, NAMES[3:]), device.stream()
    arrays = call.arrays(device)
    forwarded = {name: Forwarding(array) for name, array in arrays.items()}
    inner = {name: Forwarding(array) for name, array in arrays.items() if name in NAMES[:3]}
    small = arrays | {"h_0": arrays["x"]}
    lengths = np.array([4, 0, 2])
    ways = {
        "ours": (arrays, None, 1),
        "in a large stream": (forwarded, None, side),
        "of two streams": (arrays, None, side),
        "DLPack": (forwarded, None, 1),
        "new results": (inner, None, None),
        "lengths": (arrays, lengths, 1),
        "shapes that do not fit": (small, None, 1),
    }
    y = arrays["x"]
    others = {
        "numpy": lambda: y.numpy().shape,
        "DLPack": lambda: y.__dlpack__(stream=1) is not None,
        "DLPack of now": lambda: y.__dlpack__(stream=1, max_version=(1, 0)) is not None,
        "attributes": lambda: (y.shape, y.dtype, y.device, y.stream, repr(y)),
    }
    calls = {}
    for name, (given, steps, stream) in ways.items():

        def way(given=given, steps=steps, stream=stream):
            (x, state, named), outs = arguments(call, given), NAMES[3:]
            found = native.call(
                x, state, steps, *map(named.get, outs), TIME_FIRST, stream, None, None
            )
            return found if isinstance(found, list) else (type(found[0]), *map(type, found[1]))

        calls[name] = way
    shared = [*arrays.values(), *forwarded.values(), lengths, native]
    for name, way in (*calls.items(), *others.items()):
        right, before = outcome(way), [sys.getrefcount(a) for a in shared]
        allocations = refuse_each(way, right)
        assert allocations >= 1, (name, allocations)
        more = growth(lambda way=way, right=right: [refuse_each(way, right) for _ in range(20)],
                      [20, 20, 1 << 40])  # fmt: skip
        assert (more < [20, 20, 1 << 40]).all(), (name, more)
        assert way() == right
        assert [sys.getrefcount(a) for a in shared] == before, name
        device.sync(side)  # the next one may be in another stream
        device.sync()


def leaves_nothing():
    """References, objects and memory of the device, over many calls of each kind of array."""
    device, _ = Device(), on_gpu(LSTM)
    side = device.stream()
    x, state = inputs(LSTM)
    call, kept = Call(LSTM, TIME_FIRST, x, state, ours, NAMES[3:]), []
    arrays = call.arrays(device)
    kept += [arrays, {name: arrays[name] for name in NAMES[:3]}]
    kept.append({name: Forwarding(array) for name, array in kept[0].items()})
    call.kinds = dict.fromkeys(NAMES, ours) | {"h_0": ours_in(side)}
    kept.append(call.arrays(device))
    wrong = [1, 2, 9]
    several = [None, np.array([4, 0, 2], "i4"), [1, 2, 3], wrong]
    given = [array for arrays in kept for array in arrays.values()] + several[1:]

    def calls(times=100):
        for arrays, call.lengths in itertools.product(kept, several):
            for _ in range(times // len(several)):
                try:
                    run_on_gpu(call, arrays, 1)
                except rl.LayoutError:
                    assert call.lengths is wrong
        device.sync()

    calls(5)
    live, before = device.all_live(), [sys.getrefcount(a) for a in given]
    more = growth(calls, [50, 50, 1 << 40])
    assert (more < [50, 50, 1 << 40]).all(), more
    assert device.all_live() == live and [sys.getrefcount(a) for a in given] == before
