"""What every test of meaning asks: do tensors mean the same after a conversion?"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from oracles.frameworks import inputs, run_torch, seeded, torch_module
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

    def bits(self, rnn):
        return [array.tobytes() for array in self.arrays(rnn)]


def parameters(module):
    return [parameter.detach().numpy() for parameter in module.parameters()]


TORCH = Framework("torch", torch_module, run_torch, parameters)


def check_both_ways(framework, spec, to):
    """Check that an RNN's weights mean after a conversion what it computes from them, and come back
    bit for bit in another RNN. Return the RNN, the converted weights, and for what input what is
    to be expected."""
    rng = seeded(framework.layout, to, spec)
    rnn, fresh, given = framework.make(spec, rng), framework.make(spec), inputs(rng, spec)
    there = rl.convert(rnn, to=to, exact=True)
    expected = expected_of(there, spec, given, to)
    # 1 is all that float32's rounding explains: reference.Rounded
    assert distance(framework.run(rnn, *given), expected) <= 1
    assert framework.bits(fresh) != framework.bits(rnn)
    rl.assign(fresh, rl.convert(there, spec, layout=to, to=framework.layout, exact=True))
    assert framework.bits(fresh) == framework.bits(rnn)
    return rnn, there, given, expected


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
