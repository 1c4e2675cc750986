"""diagnose: values that were changed, and values that are not finite."""

import warnings

import numpy as np
import pytest
from compare import mistake_machine as machine
from compare.diagnoses import LSTM, lost, packed_like_the_published_one, rules, weights

import rnnlayout as rl


def test_values_that_became_nan_are_counted():
    flat = rl.pack(weights())
    flat[7] = np.nan
    text = rl.diagnose(flat, like=weights()).text
    assert text.startswith(f"1 of {flat.size} values is changed to NaN: were")
    flat[9] += 0.5
    text = rl.diagnose(flat, like=weights()).text
    assert text.startswith(f"2 of {flat.size} values are changed, 1 of them to NaN, by up to 0.5: ")


def test_values_cut_off_to_bfloat16():
    flat = rl.pack(weights())
    bits = flat.view("u4") >> 16
    for made in ((bits << 16).view("f4"), bits.astype("u2").tobytes()):
        found = rl.diagnose(made, like=weights())
        assert "cut to bfloat16" in rules(found) and "changed" not in found.text, found
        assert "what bfloat16 cannot represent" in lost(found)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_all_dtypes(dtype):
    spec = rl.Spec("gru", 5, 3, 2, True, dtype=dtype)
    like = weights(spec)
    tensors = {n: np.concatenate(np.split(a, 3)[:2][::-1] + np.split(a, 3)[2:]) for n, a in
               like.items()}  # fmt: skip
    found = rl.diagnose(rl.pack(tensors), like=like)
    assert rules(found) == ["gates zrn"] and found.sure
    right = rl.pack(like)
    assert found.fixed.tobytes() == right.tobytes() and found.fixed.dtype == right.dtype


NOT_FINITE = pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])


def with_some(value, spec, count=1):
    """Return weights whose tensors each have so many of a value."""
    like = weights(spec)
    for array in like.values():
        array.reshape(-1)[:count] = value
    return like


@NOT_FINITE
@pytest.mark.parametrize("count", [1, 4, 1000])
def test_a_right_buffer_that_is_not_finite_is_right(value, count):
    """A NaN was equal to nothing, and next to an infinity everything."""
    for spec in (LSTM, rl.Spec("lstm", 3, 1, 2, True), rl.Spec("gru", 5, 3)):
        like = with_some(value, spec, count)
        found = rl.diagnose(machine.right(spec, like), like=like)
        assert found and str(found).startswith("the buffer is right"), found
        one = rl.diagnose(np.append(machine.right(spec, like), 7).astype("f4"), like=like)
        assert rules(one) == ["extra"] and one.fixed.tobytes() == rl.pack(like).tobytes()


@NOT_FINITE
def test_mistakes_in_weights_that_are_not_finite_are_named(value):
    like = with_some(value, rl.Spec("lstm", 5, 3, 2), 2)
    found = rl.diagnose(packed_like_the_published_one(like), like=like)
    assert len(found.mistakes) == 3 and found.sure
    assert found.fixed.tobytes() == rl.pack(like).tobytes()


@NOT_FINITE
def test_other_weights_are_not_taken_for_those_with_an_infinity(value):
    like = with_some(value, LSTM)
    assert not rl.diagnose(rl.pack(weights(seed=1)), like=like).same
    assert not rl.diagnose(np.full(LSTM.num_params, value, "f4"), like=weights()).same
    other = weights() | {n: a for n, a in weights(seed=1).items() if "bias" in n}
    found = rl.diagnose(rl.pack(other), like=weights() | {n: a for n, a in like.items()
                                                          if "bias" in n})  # fmt: skip
    assert "biases not found" in rules(found) and not found.sure


def test_some_values_of_each_gate_may_have_been_changed():
    spec = rl.Spec("lstm", 5, 2)
    for count in (1, 3, 4):
        tensors = weights(spec)
        tensors["weight_ih_l0"][4, :count] += 0.5
        found = rl.diagnose(rl.pack(tensors), like=weights(spec))
        assert rules(found) == ["changed"] and found.text.startswith(f"{count} of 72 values")


def test_a_bias_that_became_infinite_is_not_quantization():
    flat = rl.pack(weights())
    flat[-1] = np.inf
    assert rules(rl.diagnose(flat, like=weights())) == ["changed"]


def test_bytes_that_are_signalling_nans_raise_no_warning():
    flat = np.full(LSTM.num_params, 0x7F800001, "u4").view("f4")
    like = weights(LSTM)
    right = rl.pack(like)
    right[-24:] = flat[-24:]  # casts of these set the flag of an invalid operation
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not rl.diagnose(flat, like=like).same
        assert not rl.diagnose(right, like=like).sure


def test_zeros_are_zeros():
    like = {name: 0 * array for name, array in weights().items()}
    found = rl.diagnose(rl.pack(like), like=like)
    assert found and "bW and bR of like are zero" in str(found)


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_values_are_not_explained(seed):
    """Small RNNs of few bits, in which much is equal by chance."""
    spec = rl.Spec("gru", 3, 2, dtype="bfloat16")
    flat = rl.pack(weights(spec, seed))
    assert not rl.diagnose(np.random.default_rng(seed).permutation(flat), like=flat, spec=spec).sure


@pytest.mark.parametrize("spec", [LSTM, rl.Spec("lstm", 24, 20), rl.Spec("gru", 5, 8, bias=False)])
def test_other_weights_that_are_all_positive_are_not_explained(spec):
    """Their mean alone made them look related: "transposed", "trained further"."""
    rng = np.random.default_rng(0)
    one, other = (
        {name: rng.random(x.shape).astype("f4") for name, x in weights(spec).items()}
        for _ in range(2)
    )
    assert not rl.diagnose(rl.pack(one), like=other).same
