"""Numbers through a conversion: every dtype becomes every other as NumPy and ml_dtypes round it,
and what is easily lost is kept. c/check_kernels.c compares the kernels of all tiers with the
function that this asks."""

import numpy as np
import pytest
from oracles.bits import DTYPES, Bits
from oracles.some import same_bits

import rnnlayout as rl


def patterns(name):
    """Return all patterns of a two-byte dtype. Of others: every exponent with every mantissa at,
    below or above a power of two or a run of leading ones (ties and their neighbours, carries,
    overflow borders, subnormals, all kinds of NaN), in both signs; then random bits."""
    _, integer, mantissa = DTYPES[name]
    if integer.itemsize == 2:
        return np.arange(1 << 16, dtype=integer)
    powers = integer.type(1) << np.arange(mantissa, dtype=integer)
    runs = integer.type(1 << mantissa) - powers
    near = [a + d for a in (powers, runs) for d in np.array([0, 1, -1]).astype(integer)]
    tops = np.arange(1 << 8 * integer.itemsize - mantissa, dtype=integer) << mantissa
    edges = tops[:, None] | np.concatenate(near) & integer.type((1 << mantissa) - 1)
    some = np.random.default_rng(1).bytes(integer.itemsize << 18)
    return np.append(edges, np.frombuffer(some, integer))


@pytest.mark.parametrize("to", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_becomes_every_other(dtype, to):
    given, target = Bits(dtype), Bits(to)
    bits = patterns(dtype)
    wanted = target.nearest(given.numbers(bits))
    fits = target.is_finite(wanted) | ~given.is_finite(bits)  # others are refused
    bits, wanted = bits[fits], wanted[fits]
    spec = rl.Spec("rnn_tanh", bits.size - 1, 1, bias="none", dtype=dtype)
    found = rl.convert(bits.view(given.dtype), spec, to="cudnn", dtype=to).view(target.integer)
    assert ((found == wanted) | target.is_nan(found) & target.is_nan(wanted)).all()
    assert (found & target.sign == wanted & target.sign).all()
    assert dtype != to or (found == bits).all()
    assert wanted.size > 30000


def test_the_identity_negated_twice():
    """The zeros of -identity are -0, so that a second negation gives the identity bit for bit."""
    spec = rl.Spec("gru", 3, 3, skip_input=True)
    for z in ("state", "candidate"):
        layout = rl.layout("concat", z=z)
        made = rl.convert(np.zeros(spec.num_params, "f4"), spec, to=layout)
        plain = rl.convert(made, spec.replace(skip_input=False), layout=layout, to="torch")
        assert same_bits(plain["weight_ih_l0"], np.tile(np.eye(3, dtype="f4"), (3, 1)))


def test_a_nan_is_not_zero():
    """A layout without biases refuses it."""
    spec = rl.Spec("lstm", 3, 2, bias="none")
    tensors = rl.unpack(np.zeros(spec.num_params, "f4"), spec, to="torch")
    tensors |= {"bias_ih_l0": np.zeros(8, "f4"), "bias_hh_l0": np.zeros(8, "f4")}
    assert not rl.convert(tensors, spec, layout="torch", to="cudnn").any()
    tensors["bias_hh_l0"][5] = np.nan
    with pytest.raises(rl.LossyError, match=r"bias_hh_l0\[5\] is nan"):
        rl.convert(tensors, spec, layout="torch", to="cudnn")
