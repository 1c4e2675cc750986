"""The laws of conversion, tested for every layout on random RNNs with random bits.

I, H, P, L and D are all different, so that no two axes can be confused. The bits contain NaN
payloads, both zeros, subnormals and infinities, in every dtype.
"""

from copy import deepcopy

import numpy as np
import pytest
from convert.walk import places, source, steps, walk
from hypothesis import strategies as st
from marks import examples, more_examples
from oracles.bits import DTYPES, Bits, flat_bits
from oracles.some import LAYOUTS, holds

import rnnlayout as rl
from rnnlayout import _native

CELLS = [("lstm", "after"), ("gru", "after"), ("gru", "before"), ("rnn_tanh", "after"),
         ("rnn_relu", "after")]  # fmt: skip


@st.composite
def specs(draw, a):
    """Draw one of the RNNs that layout a can represent, but for combinations."""
    cells = [one for one in CELLS if can(a, one[0], reset=one[1])]
    cell, reset = draw(st.sampled_from(cells))
    both, layers = draw(st.booleans()), draw(st.integers(1, 4))
    sizes = draw(st.permutations([n for n in range(1, 9) if n not in (layers, 1 + both)]))
    inputs, proj, hidden = sizes[2], *sorted(sizes[:2])
    skip = draw(st.integers(0, 5)) == 0
    return rl.Spec(
        cell, hidden if skip else inputs, hidden, layers, both,
        proj if can(a, cell, proj_size=1) and draw(st.booleans()) else 0,
        draw(st.sampled_from(["double", "input", "recurrent", "none"])), reset, skip_input=skip,
        dtype=draw(st.sampled_from(list(DTYPES))),
        peepholes=can(a, cell, peepholes=True) and draw(st.integers(0, 3)) == 0,
        activation="relu" if can(a, cell, activation="relu") and draw(st.booleans()) else "tanh",
    )  # fmt: skip


def can(a, cell, **fields):
    """Can layout a represent this? RNNs of some cells do not exist."""
    try:
        return holds(a, rl.Spec(cell, 3, 2, **fields))
    except rl.SpecError:
        return False


def held(a):
    """Return specs that layout a can represent."""
    return specs(a).filter(lambda spec: holds(a, spec))


seeds = st.integers(0, 2**32 - 1)
SOME = 4
every_layout = pytest.mark.parametrize("a", LAYOUTS, ids=str)


def others(spec, seed):
    """Return some of the layouts that can represent an RNN."""
    held = [layout for layout in LAYOUTS if holds(layout, spec)]
    return [held[k] for k in np.random.default_rng(seed).permutation(len(held))[:SOME]]


def sums(plan):
    return any(step.op in ("add", "shift") for step in plan)


@every_layout
@examples(4, data=st.data())
def test_every_element_is_in_one_block(a, data):
    """The views of all blocks tile every tensor."""
    spec, has = data.draw(held(a)), data.draw(st.integers(0, 3))
    tensors = _native.tensors(a, spec, has)
    counts = [np.zeros(int(np.prod(shape)), int) for _, shape in tensors]
    for tensor, index in places(a, spec, has).values():
        assert index.min() >= 0
        np.add.at(counts[tensor], index, 1)
    assert all((count == 1).all() for count in counts)
    assert len(dict(tensors)) == len(tensors)


@every_layout
@examples(4, data=st.data())
def test_folding_changes_nothing(a, data):
    """The result is that of the plan, executed step by step; also for weights with biases or
    peepholes that the spec does not have, and for another dtype."""
    spec, seed = data.draw(held(a)), data.draw(seeds)
    dtype = data.draw(st.sampled_from([spec.dtype, *DTYPES]))
    most = 3 if rl.layouts()[a.name]["peepholes"] and spec.cell == "lstm" else 1
    has = data.draw(st.sampled_from([None, *range(most + 1)]))
    to = Bits(dtype)
    for b in others(spec, seed):
        plan = steps(spec, a, b, has)
        weights = source(spec, a, [plan], seed, has, dtype)
        before = deepcopy(weights)
        wanted, num_sums = walk(spec, b, plan, weights, dtype, has)
        found = rl.convert(weights, spec, layout=a, to=b, dtype=dtype)
        for f, w in zip(flat_bits(found, to), wanted, strict=True):
            # which of two NaNs a sum is, and a payload's form in another dtype, is not defined
            assert ((f == w) | (to.is_nan(f) & to.is_nan(w))).all(), (spec, a, b)
            if dtype == spec.dtype and not num_sums:
                assert (f == w).all(), (spec, a, b)
        report = rl.check(weights, spec, layout=a, to=b, dtype=dtype)
        holds_all = np.can_cast(Bits(spec.dtype).dtype, to.dtype)
        assert report.grade == ("exact" if holds_all and not num_sums else "rounds")
        assert report.rounded_sums == num_sums
        assert same(spec, weights, before)


def same(spec, a, b):
    bits = Bits(spec.dtype)
    return all((x == y).all() for x, y in zip(flat_bits(a, bits), flat_bits(b, bits), strict=True))


def must_vanish(plan):
    """Return the blocks of the source that the target lacks: they are zero or the identity, and
    the sign of a zero is lost. One bias may replace the other on the way."""
    blocks = {step.block for step in plan if step.op.startswith("expect")}
    other = {"bW": "bR", "bR": "bW"}
    return blocks | {
        (layer, direction, other.get(role, role), gate) for layer, direction, role, gate in blocks
    }


def assert_agree(spec, layout, found, wanted, vanished):
    """Assert equal bits. In blocks that vanished, zeros and NaNs may differ in sign."""
    bits = Bits(spec.dtype)
    found, wanted = flat_bits(found, bits), flat_bits(wanted, bits)
    for block, (tensor, index) in places(layout, spec).items():
        f, w = found[tensor][index], wanted[tensor][index]
        nans = bits.is_nan(f) & bits.is_nan(w)
        free = (bits.is_zero(f) & bits.is_zero(w) | nans) & (block in vanished)
        assert ((f == w) | free).all(), (spec, layout, block)


@every_layout
@examples(4, data=st.data())
def test_what_must_vanish_is_refused_and_nothing_is_written(a, data):
    """One element that is not zero, not minus the forget bias, or not of the identity."""
    spec, seed = data.draw(held(a)), data.draw(seeds)
    bits, rng = Bits(spec.dtype), np.random.default_rng(seed)
    half = bits.nearest(np.array([0.5]))[0]
    for b in others(spec, seed):
        plan = steps(spec, a, b)
        weights = source(spec, a, [plan], seed)
        out = rl.convert(weights, spec, layout=a, to=b)
        before, expects = deepcopy(out), [one for one in plan if one.op.startswith("expect")]
        for k in rng.permutation(len(expects))[:3]:
            tensor, index = expects[k].src
            flat, at = flat_bits(weights, bits)[tensor], rng.choice(index)
            was, flat[at] = flat[at], half
            with pytest.raises(rl.LossyError, match=r"\] is 0\.5"):
                rl.convert(weights, spec, layout=a, to=b, out=out)
            flat[at] = was
        assert same(spec, out, before)


@every_layout
@examples(4, data=st.data())
def test_there_and_back_or_on_is_bit_identical(a, data):
    """a -> b -> c is a -> c if a -> b makes no sum, and a -> b -> a changes nothing. A zero that c
    has and a lacks may have the other sign if b negates z, and so may a zero or NaN that is a sum
    of two biases."""
    spec, seed = data.draw(held(a)), data.draw(seeds)
    c = data.draw(st.sampled_from(others(spec, seed)))
    direct = steps(spec, a, c)
    new = {step.block for step in direct if step.op in ("zero", "add")}
    for b in others(spec, seed):
        plan = steps(spec, a, b)
        if not sums(plan):
            weights = source(spec, a, [plan, direct], seed)
            there = rl.convert(weights, spec, layout=a, to=b, exact=True)
            back, on = (rl.convert(there, spec, layout=b, to=one) for one in (a, c))
            assert_agree(spec, a, back, weights, must_vanish(plan))
            straight = rl.convert(weights, spec, layout=a, to=c)
            assert_agree(spec, c, on, straight, must_vanish(plan) | new)


LAWS = [
    test_every_element_is_in_one_block,
    test_folding_changes_nothing,
    test_what_must_vanish_is_refused_and_nothing_is_written,
    test_there_and_back_or_on_is_bit_identical,
]


@pytest.mark.long
@every_layout
@pytest.mark.parametrize("law", LAWS)
def test_more_examples(law, a):
    more_examples(6, law, data=st.data())(a)
