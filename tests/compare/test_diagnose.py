"""diagnose: the mistakes that were made are named, and undone."""

import numpy as np
import pytest
from compare import mistake_machine as machine
from compare.diagnoses import BOTH, LSTM, lost, rules, weights

import rnnlayout as rl


def check(verdicts, least):
    """At least this share is named exactly, all are restored, none is wrong with confidence."""
    verdicts = list(verdicts)
    bad = [one for one in verdicts if not one.exactly]
    assert len(bad) <= (1 - least) * len(verdicts), bad
    assert [one for one in verdicts if one.restored is False] == []
    assert [one for one in verdicts if one.wrong] == []
    return len(verdicts)


def test_the_right_buffer_packs_as_cudnn_does():
    """Of the machine: with no mistake it makes what pack() makes."""
    for spec in machine.CELLS:
        like = weights(spec.replace(bias="none" if spec.bias == "none" else "double"))
        made = machine.right(spec, like)
        assert made.size == spec.num_params
        if spec.bias in ("double", "none"):
            assert made.tobytes() == rl.pack(like, spec).tobytes()
        found = rl.diagnose(made, like=made, spec=spec)
        assert found and rules(found) == [] and str(found).startswith("the buffer is right")


@pytest.mark.parametrize("spec", [machine.CELLS[k] for k in (1, 6, 10)], ids=str)
def test_every_single_mistake_is_named(spec):
    assert check(machine.singles([spec]), 1) >= 40


@pytest.mark.long
def test_every_single_mistake_of_all_cells_is_named():
    assert check(machine.singles(), 1) > 600


def test_pairs_and_triples_are_named():
    check(machine.several(30, seed=1), 0.96)  # one may be wrong: the sweep below has the limit


@pytest.mark.long
def test_many_pairs_and_triples_are_named():
    assert check(machine.several(), 0.99) == machine.COMBINED


def test_weights_that_were_packed_twice_are_named():
    like = weights(BOTH)
    forward = {name: like[name.removesuffix("_reverse")] for name in like}
    found = rl.diagnose(rl.pack(forward), like=like)
    assert set(rules(found)) == {"not found", "biases not found"} and not found.sure
    assert {place[1] for one in found.mistakes for place in one.where} == {1}
    assert (
        "layer 1 backward, recurrent matrix is not in the buffer: in its place is layer 1 forward,"
        " recurrent matrix a second time" in found.text
    )
    assert not any("backward" in line for line in found.evidence)
    # but not one that was moved: layers 1 and 2 were exchanged, and one of them is another
    spec = rl.Spec("lstm", 3, 3, 3)
    like = weights(spec)
    moved = like | {"weight_hh_l1": like["weight_hh_l2"],
                    "weight_hh_l2": weights(spec, 9)["weight_hh_l2"]}  # fmt: skip
    found = rl.diagnose(rl.pack(moved), like=like)
    assert "in its place is layer 2, recurrent matrix" in found.text
    assert "a second time" not in found.text and not found.sure


def test_the_report():
    rng = np.random.default_rng(0)
    (one,) = (x for x in machine.single_mistakes(LSTM, rng) if x.rule == "summed")
    like, (_, wrong, _) = weights(), machine.case(LSTM, [one])
    lines = str(rl.diagnose(wrong, like=like)).splitlines()
    assert lines[0] == (
        "the biases are summed (the sum is in bW, and 0 in bR): the same function, as only their"
        " sum matters"
    )
    assert "cannot be restored: how the sums were split between bW and bR" in lines
    assert lines[1] == "  layer 0, input matrix: elements 0 to 60, gates i f g o"
    assert lines[-1] == "correct: wrong = rl.pack(like)"


# ----------------------------------------------------- too many or too few values, or bytes


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
