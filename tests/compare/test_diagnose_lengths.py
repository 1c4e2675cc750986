"""diagnose: buffers with more or fewer values, or bytes, than the weights have."""

import numpy as np
import pytest
from compare import mistake_machine as machine
from compare.diagnoses import LSTM, lost, rules, weights
from marks import sample
from oracles.some import normal_weights

import rnnlayout as rl

# Matrices with more values than a search looks at.
OF_ANY_LENGTH = [
    rl.Spec(cell, 9, 7, layers, both, proj)
    for cell, proj in [("lstm", 0), ("lstm", 6), ("gru", 0), ("rnn_tanh", 0), ("rnn_relu", 0)]
    for layers in (1, 2, 3)
    for both in (False, True)
]


def of_other_lengths(right, biases, first, rng):
    """Yield buffers that are cut or padded, and how many values they lack in front and behind.

    biases, first: how many values the biases, and the first matrix, have.
    """
    cuts = {1, biases // 2, biases - 1, biases, biases + 1, biases + first // 2, biases + first}
    for cut in {*cuts, *rng.integers(1, right.size, 4)}:
        yield right[: right.size - cut], 0, cut
        yield right[cut:], cut, 0
    for more in (1, 32, first):
        for fill in (np.zeros(more, "f4"), rng.normal(size=more).astype("f4"), right[:more]):
            yield np.concatenate([right, fill]), 0, -more
            yield np.concatenate([fill, right]), -more, 0


@pytest.mark.parametrize("spec", sample(OF_ANY_LENGTH, 13), ids=str)
def test_a_buffer_of_another_length_is_not_repaired_by_guessing(spec):
    rng = np.random.default_rng(spec.num_params)
    like = normal_weights(rl.layout("torch"), spec, 0)
    right = machine.right(spec, like)
    biases = sum(array.size for name, array in like.items() if "bias" in name)
    one = spec.num_layers * spec.num_directions == 1
    known = {biases: ("biases left out", "the biases")}
    known |= {biases // 2: ("one vector", "bR")} if one else {}
    for flat, front, behind in of_other_lengths(right, biases, like["weight_ih_l0"].size, rng):
        found = rl.diagnose(flat, like=like, spec=spec)
        case = f"{front} in front, {behind} behind: {found}"
        if behind in known:
            assert (*rules(found), *lost(found)) == known[behind] and found.sure, case
            continue
        assert not found and found.sure == (found.fixed is not None), case
        sizes = f"the buffer has {flat.size} values, expected {right.size}: "
        if (cut := front + behind) < 0:
            where = "in front" if front else "at the end"
            assert found.text.removesuffix(f", {where}") == f"{sizes}{-cut} too many", case
            if found.fixed is not None:
                assert where in found.text and found.fixed.tobytes() == right.tobytes(), case
            continue
        missing = f"the {'first' if front else 'last'} {f'{cut} are' if cut > 1 else 'one is'}"
        assert found.text.startswith(f"{sizes}{missing} missing") and not found.sure, case
        matrices = sum("weight" in name for name in like)
        none = f"none of the {matrices} matrices is in it bit for bit"
        assert found.text.split("; ")[1:] == [none] * (not found.evidence), case


def test_a_changed_matrix_is_no_evidence_in_a_cut_buffer():
    flat = rl.pack(weights())[:-5].copy()
    flat[3] += 1
    found = rl.diagnose(flat, like=weights())
    assert found.evidence == ("layer 0, recurrent matrix: elements 60 to 96, gates i f g o",)
    assert lost(found) == ["5 values"] and not found.sure


def test_one_bias_vector_is_explained_only_if_all_its_values_are():
    """More units than a search compares, the last of which is changed."""
    spec = rl.Spec("lstm", 5, 30, 2)
    like = weights(spec)
    parts = [like[f"weight_{x}_l{k}"].ravel() for k in (0, 1) for x in ("ih", "hh")]
    parts += [like[f"bias_ih_l{k}"] + like[f"bias_hh_l{k}"] for k in (0, 1)]
    flat = np.concatenate(parts)
    found = rl.diagnose(flat, like=like)
    assert rules(found) == ["one vector", "summed"] and found.sure
    for k, role in enumerate(("bias_ih", "bias_hh")):
        own = [rl.unpack(found.fixed, spec, to="torch")[f"{role}_l{j}"] for j in (0, 1)]
        np.testing.assert_array_equal(np.concatenate(own), flat[-240:] * (1 - k))
    flat[-1] += 1
    found = rl.diagnose(flat, like=like)
    assert rules(found) == ["too short"] and not found.sure and found.fixed is None
    assert found.text == f"the buffer has {flat.size} values, expected {flat.size + 240}"


def test_bytes_that_are_not_whole_values_are_not_explained():
    right = rl.pack(weights())
    none = "; none of the 2 matrices is in it bit for bit"
    double = "; the values are float64, expected float32"
    for flat, text in (
        (right.tobytes()[:-1], "119 values and 3 bytes, expected 120: the last one is missing"),
        (right.tobytes()[:8], f"2 values, expected 120: the last 118 are missing{none}"),
        (b"", f"0 values, expected 120{none}"),
        (right.astype("f8")[:-2], f"118 values, expected 120: the last 2 are missing{double}"),
    ):
        found = rl.diagnose(flat, like=weights())
        assert found.text == f"the buffer has {text}" and not found.sure and found.fixed is None


def test_a_zero_matrix_is_not_found_in_zeros_in_front():
    like = weights() | {"weight_hh_l0": np.zeros((12, 3), "f4")}
    right = rl.pack(like)
    found = rl.diagnose(np.concatenate([np.zeros(36, "f4"), right]), like=like)
    assert rules(found) == ["extra"] and found.fixed.tobytes() == right.tobytes()


@pytest.mark.parametrize("count", [1, 3, 6])
def test_a_buffer_that_is_moved_and_cut_is_not_explained_with_certainty(count):
    """As many zeros in front as values are missing at the end: the gates of the biases seemed to be
    in another order, and some values changed."""
    for spec in (LSTM, rl.Spec("lstm", 5, 3, 2, True), rl.Spec("lstm", 3, 1, 2)):
        like = weights(spec)
        right = machine.right(spec, like)
        moved = np.concatenate([np.zeros(count, "f4"), right[:-count]])
        found = rl.diagnose(moved, like=like)
        assert not found and not found.sure, found
