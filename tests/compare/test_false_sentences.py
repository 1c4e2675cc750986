"""diagnose: what the machine of mistakes (wrong_packers.py, sentences.py) showed to be false."""

from functools import partial

import ml_dtypes
import numpy as np
import pytest
from compare.diagnoses import lost, rules, weights

import rnnlayout as rl

LSTM, GRU, RNN = rl.Spec("lstm", 24, 16, 2), rl.Spec("gru", 7, 5, 2), rl.Spec("rnn_tanh", 5, 4, 2)


def uniform(spec, dtype="float32", seed=0):
    """Return torch's tensors of a network as torch initializes them."""
    rng = np.random.default_rng(seed)
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    bound = spec.hidden_size**-0.5
    return {name: rng.uniform(-bound, bound, x.shape).astype(kind)
            for name, x in weights(spec).items()}  # fmt: skip


def each(tensors, part, change):
    return {
        name: np.ascontiguousarray(change(x.copy())) if part in name else x
        for name, x in tensors.items()
    }


def test_one_large_value_is_no_quantization():
    """All others were nearly 0 beside 7: "quantized to 2 bits, with one scale for all"."""
    like = uniform(rl.Spec("lstm", 16, 256))
    done = {name: x.copy() for name, x in like.items()}
    done["weight_ih_l0"][0, 3] = 7
    assert rules(rl.diagnose(rl.pack(done), like=like)) == ["changed"]


def test_bytes_of_bfloat16_are_counted_by_two():
    like = uniform(rl.Spec("lstm", 5, 3), "bfloat16")
    data = rl.pack(like).tobytes() + bytes(5)
    text = "the buffer has 122 values and 1 byte, expected 120: 5 bytes too many, at the end"
    assert rl.diagnose(data, like=like).text == text


def test_all_matrices_is_not_said_of_some():
    """It was said of all matrices of an RNN when only one was transposed."""
    like = weights(RNN)
    done = each(like, "hh_l1", np.transpose)
    text = "the recurrent matrices of layer 1 are transposed, each gate separately"
    assert rl.diagnose(rl.pack(done, RNN), like=like, spec=RNN).text == text


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_factor_of_short_values_is_one_factor(dtype):
    """It was not found, or another one for each layer; tiny values were "changed", and all values
    were of another dtype."""
    like = uniform(LSTM, dtype)
    places = {"": "all values", "weight_ih": "the input matrices", "bias_ih": "the biases bW"}
    for part, place in places.items():
        done = each(like, part, lambda x: x * x.dtype.type(1e-3))
        found = rl.diagnose(rl.pack(done), like=like)
        assert found.text == f"{place} are multiplied by 0.001"
        assert lost(found) == ["the last bits of the values"]


def test_a_bfloat16_is_not_its_half_by_rounding():
    """ "The biases are halved", sure and without a loss, of biases times 0.45."""
    like = uniform(GRU, "bfloat16")
    done = each(like, "bias", lambda x: x * x.dtype.type(0.45))
    assert rules(rl.diagnose(rl.pack(done), like=like)) == ["multiplied"]


def reset_before_gru():
    """Return the Spec of a reset-before GRU, and its tensors in Keras."""
    spec = rl.Spec("gru", 6, 4, reset="before", bias="input")
    rng = np.random.default_rng(0)
    like = {"kernel": rng.normal(size=(6, 12)), "recurrent_kernel": rng.normal(size=(4, 12)),
            "bias": rng.normal(size=12)}  # fmt: skip
    return spec, {name: x.astype("f4") for name, x in like.items()}


def test_no_sign_of_biases_without_a_value_that_shows_it():
    """The matrices were negated, 2 added to the biases: "negated in the biases", all changed."""
    spec, like = reset_before_gru()
    done = {name: x.copy() for name, x in like.items()}
    done["recurrent_kernel"][:, 4:8] *= -1
    done["bias"][4:8] += 2
    found = rl.diagnose(done, like=like, spec=spec, layout="keras")
    assert [mistake.text for mistake in found.mistakes] == [
        "gate r negated in the recurrent matrices",
        "the biases of gate r have 2 added to them in bW",
    ]


def rolled(x, shift, axis):
    return np.roll(x.reshape(3, 5, -1), shift, axis).reshape(x.shape)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_rolled_columns_and_rows(dtype):
    """The values beside them were taken for the columns that were rolled out, sure."""
    spec = rl.Spec("gru", 7, 5, 2, bidirectional=True)
    like = uniform(spec, dtype)
    for axis, noun in ((1, "columns"), (0, "rows")):
        for shift in (1, -2):
            done = each(like, "weight_hh", partial(rolled, shift=shift, axis=1 + axis))
            found = rl.diagnose(rl.pack(done), like=like)
            words = f"the recurrent matrices are with {noun} rolled by {shift}, as by np.roll"
            assert found.text == words and found.sure
            assert found.fixed.tobytes() == rl.pack(like).tobytes()


def test_a_rolled_column_that_no_sample_is_in():
    """The matrix was read a value later, and the last value of each row was "changed"."""
    spec = rl.Spec("gru", 7, 16)
    small = np.where(np.arange(16) == 15, 1e-3, 1).astype("f4")
    like = each(uniform(spec), "weight_hh", lambda x: x * small)
    done = each(like, "weight_hh", partial(np.roll, shift=1, axis=1))
    done["weight_ih_l0"] = uniform(spec, seed=1)["weight_ih_l0"]
    assert rules(rl.diagnose(rl.pack(done), like=like)) == ["columns rolled by 1", "not found"]


def test_a_stale_vector_is_missing_alone():
    """ "The biases are not in the buffer", although bR was, in its place."""
    like = weights(GRU)
    done = like | {"bias_ih_l1": weights(GRU, 9)["bias_ih_l1"]}
    found = rl.diagnose(rl.pack(done), like=like)
    assert found.text == "layer 1, biases bW are not in the buffer"
    assert [mistake.where for mistake in found.mistakes] == [((1, 0, "bW"),)]
    done["bias_ih_l1"][:5] = like["bias_ih_l1"][:5]  # gate r
    done["bias_hh_l1"] = weights(GRU, 9)["bias_hh_l1"]
    assert rl.diagnose(rl.pack(done), like=like).text == (
        "gates z and n of layer 1, biases bW are not in the buffer; "
        "layer 1, biases bR are not in the buffer"
    )


def test_the_biases_of_forward_twice():
    """ "The biases are sorted by layer, vector, direction", and "bW is in both vectors"."""
    spec = rl.Spec("gru", 8, 5, 2, bidirectional=True)
    like = weights(spec)
    done = {name: like[name.replace("_reverse", "")] if "bias" in name else x
            for name, x in like.items()}  # fmt: skip
    causes = [
        f"layer {layer} backward, biases are not in the tensors: in their place are the biases of"
        f" layer {layer} forward"
        for layer in range(2)
    ]
    found = rl.diagnose(rl.pack(done), like=like)
    assert found.text == "; ".join(causes).replace("tensors", "buffer") and not found.sure
    lines = str(rl.verify(like, done)).splitlines()  # it named no cause
    assert [f"likely cause: {cause} (explains 6 of 12)" for cause in causes] == lines[-2:]


def test_interleaved_biases_with_one_vector_in_another_order():
    """Only the order of gates was named, sure."""
    spec = rl.Spec("lstm", 5, 3)
    like = weights(spec)
    flat, gates = rl.pack(like), [like[name].reshape(4, 3) for name in ("bias_ih_l0", "bias_hh_l0")]
    flat[-24:] = np.concatenate([gates[0][[1, 0, 2, 3]].T.ravel(), gates[1].T.ravel()])
    found = rl.diagnose(flat, like=like)
    assert found.fixed.tobytes() == rl.pack(like).tobytes()
    assert [mistake.text for mistake in found.mistakes] == [
        "gates i and f swapped in the biases bW",
        "the biases are interleaved unit by unit",
    ]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_frequent_values_are_found_by_runs(dtype):
    """With many values of 16 bits, each is in the buffer many times: nothing was found."""
    spec = rl.Spec("lstm", 24, 128)
    like = uniform(spec, dtype)
    G, right = 4, rl.pack(like)
    W, R = (like[f"weight_{part}_l0"].reshape(G, 128, -1) for part in ("ih", "hh"))
    biases = right[-2 * G * 128 :]
    rows = np.concatenate([R, W], 2).ravel()
    turned = np.concatenate([W[:, ::-1].ravel(), R.transpose(0, 2, 1).ravel()])
    for wrong in (rows, turned):
        found = rl.diagnose(np.concatenate([wrong, biases]), like=like)
        assert found.sure and found.fixed.tobytes() == right.tobytes()


def test_the_repair_of_a_reset_before_gru_is_tensors():
    """It was a buffer of cuDNN, which has no such GRU; save() raised LossyError."""
    spec, like = reset_before_gru()
    done = like | {"kernel": np.concatenate(np.split(like["kernel"], 3, 1)[::-1], 1)}
    found = rl.diagnose(done, like=like, spec=spec, layout="keras")
    assert found.text == "gates z and n swapped in the input matrices"
    for array, right in zip(found.fixed.arrays, like.values(), strict=True):
        assert array.tobytes() == right.tobytes()


def test_rounding_is_not_a_factor_of_the_largest_values():
    """Only the largest values were looked at: clipped or rounded ones were "multiplied by 0.92"."""
    like = uniform(rl.Spec("gru", 20, 32), "bfloat16")
    limit = like["weight_hh_l0"].dtype.type(0.16)
    done = each(like, "weight", lambda x: np.clip(x, -limit, limit).astype(x.dtype))
    assert "multiplied" not in rules(rl.diagnose(rl.pack(done), like=like))


def test_the_other_vector_may_have_no_factor():
    """Values of bW times 1.7 were "changed": the factor of bR, 1, was taken for both."""
    like = uniform(rl.Spec("rnn_tanh", 5, 48), "float16")
    spec = rl.Spec("rnn_tanh", 5, 48, dtype="float16")
    done = each(like, "bias_ih", lambda x: x * x.dtype.type(1.7))
    found = rl.diagnose(rl.pack(done, spec), like=like, spec=spec)
    assert found.text == "the biases bW are multiplied by 1.7"


def test_what_is_beside_an_added_number_is_exact():
    """The tolerance of one gate was that of all: 379 of 384 rounded values were "changed"."""
    spec = rl.Spec("gru", 24, 128)
    like = uniform(spec)
    done = {name: x.copy() for name, x in like.items()}
    done["bias_ih_l0"] = done["bias_ih_l0"].astype(ml_dtypes.bfloat16).astype("f4")
    done["bias_hh_l0"][128:256] += np.float32(0.5)
    right, wrong = rl.pack(like)[-768:-384], rl.pack(done)[-768:-384]
    text = rl.diagnose(rl.pack(done), like=like).text
    assert f"; {np.count_nonzero(right != wrong)} of 59136 values are changed" in text


def test_halves_that_are_too_small_are_rounded():
    """The smallest float16 have no half: sure, nothing lost, and other bits."""
    like = uniform(rl.Spec("lstm", 5, 256), "float16")
    like["bias_ih_l0"][:9] = np.arange(1, 10) * np.float16(6e-8)
    done = each(like, "bias", lambda x: x / 2)
    found = rl.diagnose(rl.pack(done), like=like)
    assert rules(found)[0] == "halved" and len(rules(found)) == 2


def test_a_joined_matrix_without_the_other():
    """The form of a matrix was not named if the other one was missing."""
    spec = rl.Spec("lstm", 5, 3)
    like = weights(spec)
    W, R = (like[f"weight_{part}_l0"].reshape(12, -1) for part in ("ih", "hh"))
    flat = np.concatenate([np.concatenate([W, 7 + 0 * R], 1).ravel(), rl.pack(like)[-24:]])
    assert "joined row" in rules(rl.diagnose(flat, like=like))


def test_turned_rows_are_joined_gate_by_gate_too():
    """Joined gate by gate, of which one matrix has its rows reversed, was "row by row" as well."""
    spec = rl.Spec("lstm", 6, 5)
    like = weights(spec)
    W, R = (like[f"weight_{part}_l0"].reshape(4, 5, -1) for part in ("ih", "hh"))
    both = [x.ravel() for gate in zip(W, R[:, ::-1], strict=True) for x in gate]
    found = rl.diagnose(np.concatenate([*both, rl.pack(like)[-40:]]), like=like)
    assert rules(found) == ["reversed", "joined gate"]
    assert found.fixed.tobytes() == rl.pack(like).tobytes()


def test_moved_biases_beside_a_stale_layer():
    """Nothing was said of where the biases are, though the repair moves them."""
    spec = rl.Spec("lstm", 9, 8, 2)
    like, stale = rl.pack(weights(spec)), rl.pack(weights(spec, 9))
    first, size = 4 * 8 * (9 + 8), spec.num_params
    flat = np.concatenate([like[:first], like[size - 128 :], stale[first : size - 128]])
    text = rl.diagnose(flat, like=like, spec=spec).text
    assert f"the biases begin at value {first}, expected {size - 128}" in text


def test_a_matrix_of_zeros_is_not_among_the_biases():
    """It fits at the end of the buffer too, sure: "the values are in another order"."""
    spec = rl.Spec("rnn_tanh", 3, 2)
    like = {name: x if "weight_ih" in name else 0 * x for name, x in weights(spec).items()}
    done = like | {"weight_hh_l0": weights(spec)["weight_hh_l0"]}
    found = rl.diagnose(rl.pack(done, spec), like=like, spec=spec)
    assert not found.sure and found.lost == ["layer 0, recurrent matrix"]


def test_padded_rows_between_gates_are_not_joined_row_by_row():
    """It was "joined row by row" of R, whose rows are padded: the gates alternate."""
    spec = rl.Spec("lstm", 9, 6)
    like = weights(spec)
    W, R, *biases = (x.reshape(4, 6, -1) for x in like.values())
    parts = [W.reshape(4, -1), np.pad(R, [(0, 0), (0, 0), (0, 2)]).reshape(4, -1)]
    flat = np.concatenate([np.hstack(parts).ravel(), *(x.ravel() for x in biases)])
    diagnosis = rl.diagnose(flat, like=like)
    assert "the recurrent matrices are with rows of 8 values, expected 6 (padded?)" in diagnosis.text
    assert "the input and recurrent matrices are joined gate by gate" in diagnosis.text
    assert "row by row" not in diagnosis.text
    assert diagnosis.sure and np.array_equal(diagnosis.fixed, rl.pack(like))
