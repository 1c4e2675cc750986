"""What every test of meaning asks: do tensors mean the same after a conversion?"""

import numpy as np
from oracles.frameworks import inputs, seeded
from oracles.reference import FLOAT32, distance, forward, from_cudnn, from_onnx, has_cudnn_form
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


def check_meaning(layout, tensors, spec, run, given=None, unit=FLOAT32):
    """Check that the framework has the names and shapes that the table says, that its tensors mean
    after a conversion what it computes from them, and that they come back bit for bit.

    tensors: a dict, or one flat vector. run: (x, h0, c0) -> Run, by the framework. unit: of its
    rounding. Returns the converted tensors and what the reference computes from them.
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
    # 1 is all that the rounding of `unit` explains: reference.Rounded
    assert distance(run(*given), expected, unit) <= 1
    back = rl.convert(there, spec, layout=other, to=layout, exact=True)
    assert same_bits(back if flat else {name: back[name] for name in tensors}, tensors)
    return there, expected
