"""What every test of meaning asks: do tensors mean the same after a conversion?"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from oracles.frameworks import inputs, seeded
from oracles.reference import distance, forward, from_cudnn, from_onnx, has_cudnn_form
from oracles.some import same_bits

import rnnlayout as rl


def expected_of(source, spec, given, layout=None):
    """Run the reference on a source: converted to cuDNN's weight space if that can represent the
    RNN, else to ONNX's tensors."""
    if has_cudnn_form(spec):
        layers = from_cudnn(rl.pack(source, spec, layout=layout), spec)
    else:
        layers = from_onnx(rl.convert(source, spec, layout=layout, to="onnx"), spec)
    return forward(layers, spec, *given)


@dataclass(frozen=True)
class Framework:
    """make: (spec, rng or None) -> an RNN of the framework, filled by rng. run: (rnn, x, h0, c0) ->
    Run. arrays: its weights as NumPy arrays, in its own order."""

    layout: str
    make: Callable
    run: Callable
    arrays: Callable

    def __str__(self):
        return self.layout


def check_both_ways(framework, spec):
    """Check that an RNN's weights have the shapes that the table says, mean after a conversion what
    it computes from them, and come back bit for bit in another RNN."""
    to = "cudnn" if has_cudnn_form(spec) else "onnx"
    rng = seeded(framework.layout, spec)
    rnn, fresh, given = framework.make(spec, rng), framework.make(spec), inputs(rng, spec)
    arrays = framework.arrays(rnn)
    assert [*rl.describe(spec, framework.layout).values()] == [array.shape for array in arrays]
    there = rl.convert(rnn, to=to, exact=True)
    # 1 is all that float32's rounding explains: reference.Rounded
    assert distance(framework.run(rnn, *given), expected_of(there, spec, given, to)) <= 1
    assert not any(map(np.array_equal, framework.arrays(fresh), arrays))
    rl.assign(fresh, rl.convert(there, spec, layout=to, to=framework.layout, exact=True))
    assert [a.tobytes() for a in framework.arrays(fresh)] == [a.tobytes() for a in arrays]


def check_meaning(layout, tensors, spec, run, given=None):
    """Check that the framework has the names and shapes that the table says, that its tensors mean
    after a conversion what it computes from them, and that they come back bit for bit.

    tensors: a dict, or one flat vector. run: (x, h0, c0) -> Run, by the framework. Return the
    converted tensors and what the reference computes from them.
    """
    flat = isinstance(tensors, np.ndarray)
    if not flat:
        tensors = {name: np.asarray(array) for name, array in tensors.items()}
        shapes = {name: array.shape for name, array in tensors.items()}
        assert rl.describe(spec, layout) == shapes
    given = given or inputs(seeded("meaning", layout, spec), spec)
    other = "torch" if spec.proj_size else "onnx"
    there = rl.convert(tensors, spec, layout=layout, to=other, exact=True)
    expected = expected_of(there, spec, given, other)
    assert distance(run(*given), expected) <= 1
    back = rl.convert(there, spec, layout=other, to=layout, exact=True)
    assert same_bits(back if flat else {name: back[name] for name in tensors}, tensors)
    return there, expected
