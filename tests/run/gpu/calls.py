"""For programs on the fakes: calls on arrays on the GPU, and what a call has to give and do."""

import functools
import gc

import numpy as np
from run.gpu.exporters import Exporter, address_of
from run.gpu.fake_gpu import assert_close, flat, weights_of

import rnnlayout as rl
from rnnlayout import _native

STEP, TIME_FIRST, BATCH_FIRST = _native.STEP, _native.TIME_FIRST, _native.BATCH_FIRST
NAMES = ("x", "h_0", "c_0", "out", "h_out", "c_out")


@functools.cache
def on_gpu(spec, batch_first=False):
    return rl.RNN(weights_of(spec), spec, device="cuda", batch_first=batch_first)


def ours(address, shape, dtype):
    """A DeviceArray in memory of its own: a result of an RNN of one input."""
    spec = rl.Spec("rnn_tanh", 1, shape[-1], dtype=dtype)
    return on_gpu(spec)(Exporter(address, (*shape[:-1], 1), dtype))[0]


class Call:
    """The arrays of one call, and the kinds in which they are passed."""

    def __init__(self, spec, axes, x, state, kind, outs, batched=True, lengths=None):
        self.spec, self.axes, self.kinds = spec, axes, dict.fromkeys(NAMES, kind)
        self.lengths = lengths
        x = np.ascontiguousarray(x.swapaxes(0, 1)) if axes == BATCH_FIRST else x
        x = x[0] if axes == STEP else x
        firsts = list(state) if isinstance(state, tuple) else [state]
        if not batched:
            x = np.ascontiguousarray(x[:, 0] if axes == TIME_FIRST else x[0])
            firsts = [np.ascontiguousarray(a[:, 0]) for a in firsts]
        width = spec.num_directions * (spec.proj_size or spec.hidden_size)
        y = np.full((*x.shape[:-1], width), 7, x.dtype)
        after = [y, *(a * 0 + 7 for a in firsts)]
        self.all = dict(zip(NAMES, [x, *firsts], strict=False))
        self.all |= dict(zip(NAMES[3:], after, strict=False))
        self.given = {n: a for n, a in self.all.items() if n in NAMES[:3] or n in outs}

    def arrays(self, device):
        made = {name: self.kinds[name](device.put(array), array.shape, array.dtype.name)
                for name, array in self.given.items()}  # fmt: skip
        for name, array in made.items():
            if isinstance(array, rl.DeviceArray) and self.given[name].size:
                device.write(address_of(array), self.given[name])
        return made


def arguments(call, arrays):
    """x, state, and the others by their names, as an RNN takes them."""
    firsts = [arrays[name] for name in ("h_0", "c_0") if name in arrays]
    state = tuple(firsts) if call.spec.cell == "lstm" and firsts else (firsts or [None])[0]
    named = {name: arrays[name] for name in NAMES[3:] if name in arrays}
    if call.lengths is not None:
        named["lengths"] = call.lengths
    return arrays["x"], state, named


def run(rnn, call, arrays, stream=None):
    x, state, named = arguments(call, arrays)
    return (rnn.step if call.axes == STEP else rnn)(x, state, stream=stream, **named)


def run_on_gpu(call, arrays, stream=None):
    return run(on_gpu(call.spec, call.axes == BATCH_FIRST), call, arrays, stream)


def on_cpu(call):
    """The results of the same call on the CPU, by the names of the outputs."""
    rnn = rl.RNN(weights_of(call.spec), call.spec, batch_first=call.axes == BATCH_FIRST)
    found = run(rnn, call, {name: call.given[name] for name in NAMES[:3] if name in call.given})
    return dict(zip(NAMES[3:], flat(found), strict=False))


def assert_right(device, call, stream, runs_in=1, waits_for=None):
    """Make a call twice: results, the stream that the owners of the arrays are asked for, and all
    is given back. waits_for: the stream to wait for; None: the call waits itself. Returns the
    log of the second call."""
    right = on_cpu(call)
    for _ in range(2):
        arrays, results = call.arrays(device), []
        made = device.log(lambda: results.append(run_on_gpu(call, arrays, stream)))  # noqa: B023
        if waits_for is not None:
            device.sync(waits_for)
        found = flat(results.pop())
        for (name, like), array in zip(right.items(), found, strict=True):
            given = arrays.get(name)
            assert array is given or given is None, name
            assert_close(array, like)
        del found, array
        gc.collect()
        for name, array in arrays.items():
            if isinstance(array, Exporter):
                asked = streams_asked(array, type(arrays["x"]), runs_in)
                assert (array.streams, array.deleted) == (asked, len(asked)), name
    return made


def streams_asked(array, kind, runs_in):
    """The streams for which a call asks an array by __dlpack__(). In the one in which x's library
    works nothing waits: it is -1, or with DLPack's functions for it, that method is not called."""
    home = getattr(kind, "home", None)
    if type(array) is not kind or not home or (home[0] or 1) != runs_in:
        return [runs_in]
    return [] if hasattr(kind, "__dlpack_c_exchange_api__") else [-1]
