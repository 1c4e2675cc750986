"""diagnose: the mistakes that were made are named, and undone."""

import numpy as np
import pytest
from compare import mistake_machine as machine
from compare.diagnoses import BOTH, LSTM, rules, weights

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
    bottom = {name: like[name.replace("hh_l1", "hh_l0")] for name in like}
    found = rl.diagnose(rl.pack(bottom), like=like)
    assert "in its place is layer 0 backward, recurrent matrix a second time" in found.text
    assert {place[0] for one in found.mistakes for place in one.where} == {1}


def test_a_matrix_whose_largest_values_are_equal_is_found_elsewhere():
    """More equal ones per gate than are compared: clipped values."""
    spec = rl.Spec("lstm", 5, 8, 2)
    like = weights(spec)
    like["weight_hh_l0"] = np.minimum(abs(like["weight_hh_l0"]), np.float32(0.5))
    assert ((like["weight_hh_l0"] == 0.5).reshape(4, 64).sum(axis=1) > 24).all()
    found = rl.diagnose(machine.Packer(spec, like, roles=["R", "W"]).pack(), like=like)
    assert rules(found) == ["roles R W"] and found.fixed.tobytes() == rl.pack(like).tobytes()


NO_NEST = [(0, "W"), (1, "R"), (1, "W"), (0, "R"), (2, "W"), (2, "R")]
UP_DOWN = [(2, "W"), (2, "R"), (1, "W"), (1, "R"), (0, "W"), (0, "R")]


@pytest.mark.parametrize(
    "order, other, named",
    [
        (NO_NEST, None, {"order"}),
        (NO_NEST, "weight_hh_l0", {"not found"}),
        (UP_DOWN, None, {"layers 2 1 0", "layers of biases"}),
        (UP_DOWN, "weight_hh_l1", {"layers 2 1 0", "layers of biases", "not found"}),
    ],
)
def test_an_order_is_named_if_it_has_a_rule_or_all_matrices_are_known(order, other, named):
    spec = rl.Spec("lstm", 5, 3, 3)
    like = weights(spec)
    tensors = like | ({other: weights(spec, seed=1)[other]} if other else {})
    names = {"W": "weight_ih", "R": "weight_hh"}
    parts = [tensors[f"{names[role]}_l{layer}"].ravel() for layer, role in order]
    biases = [tensors[f"bias_{x}_l{k}"] for k in range(3) for x in ("ih", "hh")]
    found = rl.diagnose(np.concatenate([*parts, *biases]), like=like)
    assert {*rules(found)} == named and found.sure == (other is None)
    if named == {"order"}:
        said = ", ".join(f"{role} of layer {layer}" for layer, role in order)
        assert found.text == f"the matrices are in the order {said}"
        assert found.fixed.tobytes() == rl.pack(like).tobytes()


@pytest.mark.parametrize("joined", ["gate", "row"])
def test_joined_matrices_are_those_of_one_direction(joined):
    """Also if the recurrent matrices of both are equal, as those of a seeded initializer are."""
    spec = rl.Spec("lstm", 5, 3, bidirectional=True)
    like = weights(spec)
    like["weight_hh_l0_reverse"] = like["weight_hh_l0"]
    packer = machine.Packer(spec, like, sides=(1, 0), joined=joined)
    found = rl.diagnose(packer.pack(), like=like)
    assert {*rules(found)} == {f"joined {joined}", "directions swapped"}
    assert found.fixed.tobytes() == rl.pack(like).tobytes()


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


def test_a_matrix_that_was_moved_is_not_there_a_second_time():
    """The matrices of layers 1 and 2 were exchanged, and one of them is another."""
    spec = rl.Spec("lstm", 3, 3, 3)
    like = weights(spec)
    moved = like | {"weight_hh_l1": like["weight_hh_l2"],
                    "weight_hh_l2": weights(spec, 9)["weight_hh_l2"]}  # fmt: skip
    found = rl.diagnose(rl.pack(moved), like=like)
    assert "in its place is layer 2, recurrent matrix" in found.text
    assert "a second time" not in found.text and not found.sure
