"""Programs for fake_gpu.py: allocations refused to the short way, and leaks."""

import itertools
import sys

import numpy as np
from project.leaks import growth
from project.no_memory import outcome, refuse_each
from run.gpu.exporters import Interface
from run.gpu.fake_gpu import LSTM, Device, inputs, weights_of
from run.gpu.two_ways import (
    NAMES,
    TIME_FIRST,
    Call,
    Cupylike,
    Forwarding,
    arguments,
    ours,
    ours_in,
    plain_interface,
    short,
)

import rnnlayout as rl


def no_memory():
    """Each allocation of Python's refused in turn: MemoryError, and nothing is lost."""
    device = Device()
    rnn = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    x, state = inputs(LSTM)
    call, side = Call(LSTM, TIME_FIRST, x, state, ours, NAMES[3:]), device.stream()
    arrays = call.arrays(device)
    forwarded = {name: Forwarding(array) for name, array in arrays.items()}
    interfaces = {name: Interface(array.address, array.shape, stream=1)
                  for name, array in arrays.items()}  # fmt: skip
    inner = {name: Forwarding(array) for name, array in arrays.items() if name in NAMES[:3]}
    lengths = [np.array([4, 0, 2]), [1, 1000, 3]]
    ways = {
        "ours": (arrays, None, 1),
        "in a large stream": (forwarded, None, side),
        "of two streams": (interfaces, None, side),
        "DLPack": (forwarded, None, 1),
        "the interface": (interfaces, None, 1),
        "new results": (inner, None, None),
        "lengths": (arrays, lengths[0], 1),
    }
    shared = [*arrays.values(), *forwarded.values(), *interfaces.values(), *lengths, rnn._native]
    for name, (given, call.lengths, stream) in ways.items():
        given = arguments(call, given)

        def way(given=given, stream=stream):
            y, (h, c) = rnn._native.call(*given, TIME_FIRST, stream, False)
            return type(y), type(h), type(c)

        right, before = outcome(way), [sys.getrefcount(a) for a in shared]
        assert isinstance(right, tuple), (name, right)
        allocations = refuse_each(way, right)
        assert allocations >= 2, (name, allocations)
        more = growth(lambda way=way, right=right: [refuse_each(way, right) for _ in range(20)],
                      [20, 20, 1 << 40])  # fmt: skip
        assert (more < [20, 20, 1 << 40]).all(), (name, more)
        assert way() == right
        assert [sys.getrefcount(a) for a in shared] == before, name
        device.sync(side)  # the next one may be in another stream
        device.sync()


def leaves_nothing():
    """References, objects and memory of the device, over many calls of each kind of array."""
    device = Device()
    rnn, side = rl.RNN(weights_of(LSTM), LSTM, device="cuda"), device.stream()
    x, state = inputs(LSTM)
    call, kept = Call(LSTM, TIME_FIRST, x, state, ours, NAMES[3:]), []
    for call.kinds in (dict.fromkeys(NAMES, kind) for kind in (ours, Cupylike, plain_interface)):
        arrays = call.arrays(device)
        kept += [arrays, {name: arrays[name] for name in NAMES[:3]}]
    kept.append({name: Forwarding(array) for name, array in kept[0].items()})
    call.kinds = dict.fromkeys(NAMES, ours) | {"h_0": ours_in(side)}
    kept.append(call.arrays(device))
    wrong = [1, 2, "3"]
    several = [None, np.array([4, 0, 2], "i4"), [1, 2, 3], wrong]
    given = [array for arrays in kept for array in arrays.values()] + several[1:]

    def calls(times=100):
        for arrays, call.lengths in itertools.product(kept, several):
            taken = call.lengths is not wrong
            for _ in range(times // len(several)):
                assert (short(rnn, call, arrays, 1) is not None) == taken
        device.sync()

    calls(5)
    live, before = device.all_live(), [sys.getrefcount(a) for a in given]
    more = growth(calls, [50, 50, 1 << 40])
    assert (more < [50, 50, 1 << 40]).all(), more
    assert device.all_live() == live and [sys.getrefcount(a) for a in given] == before
