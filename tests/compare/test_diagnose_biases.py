"""diagnose: what was done to biases."""

import numpy as np
import pytest
from compare import mistake_machine as machine
from compare.diagnoses import LSTM, rules, weights
from marks import pairwise

import rnnlayout as rl


def sums(flat):
    """Return the sums of the two biases, and all else."""
    tensors = rl.unpack(flat, LSTM, to="torch")
    return tensors["bias_ih_l0"] + tensors["bias_hh_l0"], tensors["weight_hh_l0"]


@pytest.mark.parametrize(
    "rule", ["summed", "summed-recurrent", "sum-twice", "sum-halved", "forget bias +1"]
)
def test_what_is_left_of_summed_biases_is_the_same_function(rule):
    rng = np.random.default_rng(0)
    (one,) = (x for x in machine.single_mistakes(LSTM, rng) if x.rule == rule)
    _, wrong, right = machine.case(LSTM, [one])
    found = rl.diagnose(wrong, like=weights())
    # each value is rounded at most three times, to 24 bits; none is larger than 2 * 3 + 1 < 8
    for a, b in zip(sums(found.fixed), sums(right), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=3 * 8 * 2.0**-24)
    assert rules(found) == [rule] and "cannot be restored" in str(found)


def test_biases_around_the_matrices_are_not_those_of_each_layer():
    spec = rl.Spec("rnn_tanh", 5, 3, 2)
    like = weights(spec)
    like |= {name: 0 * array + 1 for name, array in like.items() if "bias" in name}
    right = machine.right(spec, like)
    found = rl.diagnose(np.concatenate([right[-3:], right[:-3]]), like=like, spec=spec)
    assert found.text == "the biases are in 2 parts, expected: one, after all matrices"
    assert found.sure and found.fixed.tobytes() == right.tobytes()


def split_by(like, moved):
    """Return the tensors with so much moved from each recurrent bias to its input bias."""
    more = {name: like[name] + moved[name] for name in like if "bias_ih" in name}
    return like | more | {
        name: like[name] - moved[name.replace("hh", "ih")] for name in like if "bias_hh" in name
    }  # fmt: skip


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_biases_that_were_split_at_random_are_that_and_no_more(layers):
    """They were exchanged vectors, or layers in another order."""
    spec = rl.Spec("lstm", 5, 7, layers)
    for seed in range(6):
        like, rng = weights(spec, seed), np.random.default_rng(seed)
        if seed == 5:
            like |= {name: 0 * array for name, array in like.items() if "bias" in name}
        moved = {name: rng.normal(size=28).astype("f4") for name in like}
        for found in (rl.diagnose(rl.pack(split_by(like, moved)), like=like),
                      rl.diagnose(split_by(like, moved), like=like)):  # fmt: skip
            assert rules(found) == ["split"] and found.sure, found


@pytest.mark.parametrize(
    "H, off, units", pairwise([3, 30, 300], [0.05, 1e-5], [1, -1, slice(None)])
)
def test_split_biases_with_wrong_sums_are_another_function(H, off, units):
    """Also by less than a near match may be off, and in units that the search does not read."""
    like = weights(rl.Spec("lstm", 5, H))
    tensors = split_by(like, {"bias_ih_l0": np.float32(4)})
    tensors["bias_hh_l0"][units] += np.float32(off)
    found = rl.diagnose(rl.pack(tensors), like=like)
    assert not found.sure and "the same function" not in found.text, found
    assert "the same function" not in str(rl.verify(like, tensors))


@pytest.mark.parametrize("unit", [5, -1])
def test_summed_biases_are_compared_in_all_units(unit):
    like = weights(rl.Spec("lstm", 5, 40))
    tensors = like | {"bias_ih_l0": like["bias_ih_l0"] + like["bias_hh_l0"],
                      "bias_hh_l0": 0 * like["bias_hh_l0"]}  # fmt: skip
    assert rules(rl.diagnose(rl.pack(tensors), like=like)) == ["summed"]
    tensors["bias_ih_l0"][unit] += 1
    found = rl.diagnose(rl.pack(tensors), like=like)
    assert rules(found) == ["summed", "changed"] and "1 of 7520 values is changed" in found.text
