"""diagnose: buffers with more or fewer values, or bytes, than the weights have. At random places:
test_odd_packers.py."""

import numpy as np
import pytest
from compare import mistake_machine as machine
from compare.diagnoses import LSTM, lost, rules, weights

import rnnlayout as rl


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
