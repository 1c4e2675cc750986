"""diagnose: each sentence about biases and factors is true of every value that it is said of.

Each case had another sentence, most of them with certainty: "the biases are split differently",
"the values are in another order", "replaced by 0", "all values are multiplied", "the biases of each
gate come next to its matrix".
"""

import re

import numpy as np
import pytest
from compare.diagnoses import lost, weights

import rnnlayout as rl

SPECS = [
    rl.Spec("lstm", 5, 3), rl.Spec("lstm", 24, 16, 2, True), rl.Spec("gru", 7, 5, 2),
    rl.Spec("gru", 20, 32),
]  # fmt: skip
LSTMS, LARGE = SPECS[:2], SPECS[1:]


def each(tensors, names, change):
    return {name: change(x.copy()) if re.match(names, name) else x for name, x in tensors.items()}


def swapped(x, spec):
    """Return a vector with its first two gates exchanged."""
    gates = x.reshape(-1, spec.hidden_size)
    return np.concatenate([gates[1], gates[0], *gates[2:]])


def added(number, gate):
    def change(x, spec):
        x[gate * spec.hidden_size : (gate + 1) * spec.hidden_size] += np.float32(number)
        return x

    return change


def first_gates(spec):
    return "i and f" if spec.cell == "lstm" else "r and z"


LAST_BITS = ["the last bits of the values"]
# what was done: the tensors, what was done to each, what is said, what is lost, which networks
CASES = {
    "R negated": ("weight_hh", lambda x, s: -x, "all gates negated in the recurrent matrices", [],
                  SPECS),
    "bR negated": ("bias_hh", lambda x, s: -x, "all gates negated in the biases bR", [], SPECS),
    "bW reordered": ("bias_ih", swapped, "gates {} swapped in the biases bW", [], SPECS),
    "bR reordered": ("bias_hh", swapped, "gates {} swapped in the biases bR", [], SPECS),
    "tiny biases": ("bias", lambda x, s: x * np.float32(1e-6),
                    "the biases are multiplied by 1e-06", LAST_BITS, LARGE),
    "all smaller": ("", lambda x, s: x * np.float32(1e-3),
                    "all values are multiplied by 0.001", LAST_BITS, SPECS),
    "matrices larger": ("weight", lambda x, s: x * np.float32(1.7),
                        "the input matrices and recurrent matrices are multiplied by 1.7",
                        LAST_BITS, SPECS),
    "forget bias 2": ("bias_ih", added(2, 1), "the biases of gate f have 2 added to them in bW (a"
                      " forget bias)", ["the last bits of the biases of gate f"], LSTMS),
    "0.5 less in g": ("bias_hh", added(-0.5, 2), "the biases of gate g have 0.5 subtracted from"
                      " them in bR", ["the last bits of the biases of gate g"], LSTMS),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_sentence(case):
    names, change, says, loses, specs = CASES[case]
    for spec in specs:
        like = weights(spec)
        done = each(like, names, lambda x, spec=spec: change(x, spec))
        found = rl.diagnose(rl.pack(done), like=like)
        assert found.text == says.format(first_gates(spec)) and found.sure
        assert found.lost == loses
        # divided or shifted back: each value was rounded twice, and its sum with 2 as well
        off = abs(found.fixed - rl.pack(like))
        assert (off <= 2 * 2.0**-23 * (abs(rl.pack(like)) + 2 * bool(loses))).all()
        assert loses or not off.any()


def test_the_evidence_has_the_gates_of_each_vector():
    """It had the order of bR for both."""
    spec = SPECS[0]
    like = weights(spec)
    done = each(like, "bias_ih", lambda x: swapped(x, spec))
    evidence = rl.diagnose(rl.pack(done), like=like).evidence
    assert evidence[2:] == (
        "layer 0, biases bW: gates f i g o",
        "layer 0, biases bR: gates i f g o",
    )


def test_a_forget_bias_in_both_vectors():
    """It was "1 added to bW", and verify said that this explains all."""
    like = weights(LSTMS[1])
    done = each(like, "bias", lambda x: added(1, 1)(x, LSTMS[1]))
    found = rl.diagnose(rl.pack(done), like=like)
    assert [mistake.text for mistake in found.mistakes] == [
        f"the biases of gate f have 1 added to them in {role} (a forget bias)"
        for role in ("bW", "bR")
    ]


def test_signs_of_a_vector_beside_a_number_in_the_other():
    """The biases "are not in the buffer", or the values of gate f were "changed"."""
    for spec in LSTMS:
        like = weights(spec)
        done = each(like, "bias_ih", lambda x, spec=spec: added(1, 1)(x, spec))
        done = each(done, "bias_hh", lambda x: -x)
        found = rl.diagnose(rl.pack(done), like=like)
        assert found.sure and [mistake.text for mistake in found.mistakes] == [
            "all gates negated in the biases bR",
            "the biases of gate f have 1 added to them in bW (a forget bias)",
        ]


def test_biases_that_are_0_have_the_signs_of_the_matrices():
    """And what is negated is not called right."""
    spec = SPECS[2]
    H = spec.hidden_size
    like = {name: x.copy() for name, x in weights(spec).items()}
    for name in like:
        like[name][H : 2 * H] *= "bias" not in name  # gate z
    done = each(like, "", lambda x: np.concatenate([x[:H], -x[H : 2 * H], x[2 * H :]]))
    found = rl.diagnose(rl.pack(done), like=like)
    assert found.text.startswith("gate z negated: z scales the old state")
    assert {key[3] for key in found.right} == {"r", "n"}


def test_negated_biases_that_are_interleaved_are_restored():
    """np.negative(out=) errs between the strides of both arrays."""
    spec = rl.Spec("lstm", 6, 5, 2)
    right = rl.pack(weights(spec))
    biases = right[-2 * 2 * 4 * 5 :].reshape(2, 2, 4, 5).copy()
    biases[:, 1, 1] *= -1
    wrong = np.append(right[: -biases.size], biases.transpose(0, 1, 3, 2))
    found = rl.diagnose(wrong, like=weights(spec))
    assert found.text.startswith("gate f negated in the biases bR; the biases are sorted by")
    assert found.fixed.tobytes() == right.tobytes()


@pytest.mark.parametrize("sum_in, other", [("bW", "bR"), ("bR", "bW")])
def test_the_sum_beside_a_vector(sum_in, other):
    first, second = ("bias_ih", "bias_hh") if sum_in == "bW" else ("bias_hh", "bias_ih")
    for spec in SPECS:
        like = weights(spec)
        done = {name: x + like[name.replace(first, second)] if first in name else x
                for name, x in like.items()}  # fmt: skip
        found = rl.diagnose(rl.pack(done), like=like)
        assert found.text == (f"the biases are wrong: the sum is in {sum_in}, and {other} beside"
                              " the sum counts twice")  # fmt: skip
        assert lost(found) == [f"the last bits of {sum_in}"]
        done[f"{first}_l0"][1] *= np.float32(1.0001)
        assert "; 1 of " in rl.diagnose(rl.pack(done), like=like).text


@pytest.mark.parametrize("factor, word", [(0.5, "halved"), (2, "doubled")])
def test_a_factor_of_rounded_biases(factor, word):
    """Another factor is not said: of values far below the largest the difference is small."""
    for spec in LARGE:
        like = each(weights(spec), "bias", lambda x: np.concatenate([20 * x[:1], x[1:]]))
        for near in (1, 1.06):
            done = each(like, "bias", lambda x, by=factor * near: x * np.float32(by))
            found = rl.diagnose(rl.pack(done).astype("f2").astype("f4"), like=like)
            assert (f"the biases are {word}" in found.text) == found.sure == (near == 1)


@pytest.mark.parametrize("size", [8, 32])
def test_padded_hidden_units(size):
    for spec in (SPECS[0], SPECS[2]):
        like, H, parts, biases = weights(spec), spec.hidden_size, [], []
        for name, x in like.items():
            gates = x.reshape(-1, H, x.shape[1] if x.ndim > 1 else 1)
            columns = size - H if "weight_hh" in name else 0
            wide = np.pad(gates, ((0, 0), (0, size - H), (0, columns))).ravel()
            (biases if "bias" in name else parts).append(wide)
        found = rl.diagnose(np.concatenate(parts + biases), like=like)
        assert f"rows of {size} values, expected {H} (padded?)" in found.text
        assert (
            f"the biases of each gate are {size} values apart, expected {H} (padded?)" in found.text
        )


def test_a_stale_layer_says_nothing_of_the_biases_of_others():
    """It was "bR comes before bW", "split differently"."""
    spec = SPECS[2]
    like, other = weights(spec), weights(spec, 9)
    done = {name: other[name] if name.endswith("_l1") else x for name, x in like.items()}
    found = rl.diagnose(rl.pack(done), like=like)
    assert {mistake.rule for mistake in found.mistakes} == {"not found", "biases not found"}
    assert {place[0] for mistake in found.mistakes for place in mistake.where} == {1}


def test_padded_units_are_not_joined_matrices():
    """It was "the input and recurrent matrices are joined gate by gate", sure: each is padded."""
    spec = rl.Spec("lstm", 16, 12)
    like = weights(spec)
    W, R, b, c = (x.reshape(4, 12, -1) for x in like.values())
    parts = [np.pad(W, [(0, 0), (0, 4), (0, 0)]), np.pad(R, [(0, 0), (0, 4), (0, 4)]),
             np.pad(np.stack([b, c], 1), [(0, 0), (0, 0), (0, 4), (0, 0)])]  # fmt: skip
    found = rl.diagnose(np.concatenate([part.ravel() for part in parts]), like=like)
    assert "padded" in found.text and "joined" not in found.text
    assert found.sure and np.array_equal(found.fixed, rl.pack(like))


def test_a_rule_with_equal_values_is_noted():
    like = weights(rl.Spec("gru", 5, 3))
    like["bias_hh_l0"] = like["bias_ih_l0"]
    done = each(like, "bias", lambda x: 2 * x)
    found = rl.diagnose(rl.pack(done), like=like)
    assert found.text == "the biases are summed (the sum is in both vectors and counts twice)"
    assert "note: layer 0, biases may as well be doubled" in str(found)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_backward_biases_of_0_are_not_those_of_the_forward_direction(cell):
    like = weights(rl.Spec(cell, 5, 3, 1, True))
    done = each(like, "bias.*reverse", np.zeros_like)
    found = rl.diagnose(rl.pack(done), like=like)
    assert found.text == "the biases of the backward direction are replaced by 0" and found.sure


def test_vectors_in_no_known_order():
    """For each gate bW of layer 0, bR of layer 1, bR of layer 0, bW of layer 1."""
    like = weights(rl.Spec("lstm", 4, 5, 2))
    flat = rl.pack(like)
    matrices, biases = flat[:-80], flat[-80:].reshape(2, 2, 4, 5)  # layers, vectors, gates, units
    written = np.stack([biases[0, 0], biases[1, 1], biases[0, 1], biases[1, 0]], 1)
    found = rl.diagnose(np.concatenate([matrices, written.ravel()]), like=like)
    assert found.text == (
        "the biases are in the order bW of layer 0, bR of layer 1, bR of layer 0, bW of layer 1;"
        " the biases are written with 20 values from gate to gate, expected 5"
    )
    assert found.sure and np.array_equal(found.fixed, flat)
