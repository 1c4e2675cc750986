"""diagnose: what the report says of one thing that was done, and what is restored."""

import warnings

import numpy as np
import pytest
from compare import mistake_machine as machine
from compare.diagnoses import BOTH, LSTM, lost, rules, weights
from marks import pairwise
from oracles.some import normal_weights

import rnnlayout as rl

STACK = rl.Spec("lstm", 5, 3, 2)


def put(array, at, value):
    new = array.copy()
    new[at] = value
    return new


def each(like, part, change):
    return like | {name: change(x) for name, x in like.items() if part in name}


def by_gate(change, gates=4):
    """Return a change of a matrix or vector as (gates, rows, columns)."""
    return lambda x: change(x.reshape(gates, len(x) // gates, -1)).reshape(x.shape)


def interleaved(like):
    """Return a buffer in which each value of a matrix is followed by four zeros."""
    matrices = [like[f"weight_{of}_l0"].reshape(4, 3, -1) for of in ("ih", "hh")]
    spread = [np.stack([one, *np.zeros((4, *one.shape), "f4")], axis=-1) for one in matrices]
    biases = [like["bias_ih_l0"], like["bias_hh_l0"]]
    return np.concatenate([x.ravel() for x in [*spread, *biases]])


def packed_like_the_published_one(like):
    """An LSTM packer as one finds them: transposes, orders gates i f o g, goes layer by layer."""
    parts = []
    for layer in range(2):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            i, f, g, o = np.split(like[f"{name}_l{layer}"], 4)
            parts.append(np.concatenate([i, f, o, g]).T.ravel())
    return np.concatenate(parts)


def directions_of_layer_1_exchanged(like):
    """Each has its own biases' names."""
    turned = {name: name.removesuffix("_reverse") if "reverse" in name else f"{name}_reverse"
              for name in like if "l1" in name}  # fmt: skip
    return rl.pack({name: like[turned.get(name, name)] for name in like})


def with_some(value, spec, count=1):
    """Return weights whose tensors each have so many of a value."""
    like = weights(spec)
    for array in like.values():
        array.reshape(-1)[:count] = value
    return like


def in_order(like, order):
    """Return a buffer with the matrices of an LSTM of three layers in this order."""
    names = {"W": "weight_ih", "R": "weight_hh"}
    parts = [like[f"{names[role]}_l{layer}"].ravel() for layer, role in order]
    return np.concatenate([*parts, *(array for name, array in like.items() if "bias" in name)])


ONE, OTHER, TWO, BIDIRECTIONAL = weights(), weights(seed=1), weights(STACK), weights(BOTH)
WIDE = weights(STACK.replace(bidirectional=True))
SMALL, LARGE = weights(rl.Spec("lstm", 5, 2)), weights(rl.Spec("lstm", 5, 40))
FLAT = rl.pack(ONE)
ONES = each(TWO, "bias", np.ones_like)
BITS = FLAT.view("u4") >> 16
BETWEEN = "weight_ih_l0", "bias_ih_l0", "bias_hh_l0", "weight_hh_l0"
TRANSPOSED = {
    name: WIDE[name].reshape(4, 3, -1).swapaxes(1, 2).reshape(WIDE[name].shape)
    for name in ("weight_ih_l0", "weight_hh_l1_reverse")
}
# Clipped values, of which more are equal than are compared; directions of one seed; zeros.
CLIPPED, SEEDED = weights(rl.Spec("lstm", 5, 8, 2)), weights(LSTM.replace(bidirectional=True))
CLIPPED["weight_hh_l0"] = np.minimum(abs(CLIPPED["weight_hh_l0"]), np.float32(0.5))
SEEDED["weight_hh_l0_reverse"] = SEEDED["weight_hh_l0"]
ZERO, THREE = ONE | {"weight_hh_l0": np.zeros((12, 3), "f4")}, weights(rl.Spec("lstm", 5, 3, 3))
NO_NEST = [(0, "W"), (1, "R"), (1, "W"), (0, "R"), (2, "W"), (2, "R")]
UP_DOWN = [(2, "W"), (2, "R"), (1, "W"), (1, "R"), (0, "W"), (0, "R")]
NOT_FINITE = [np.nan, np.inf, -np.inf]
PUBLISHED = (
    "all matrices are transposed, all gates together; gates g and o swapped; the biases of each"
    " layer come next to its matrices, expected: after all matrices\n"
)

# what is given, the true weights, words of the report or its rules
RESTORED = [
    (interleaved(ONE), ONE,
     "the recurrent matrices are with strides of 15 and 5 values between rows and columns"),
    (rl.pack(WIDE | TRANSPOSED), WIDE,
     "the input matrix of layer 0 forward, the recurrent matrix of layer 1 backward are"
     " transposed, each gate separately"),
    (np.concatenate([ONE[name].ravel() for name in BETWEEN]), ONE,
     "the biases are between the matrices\n"),
    (directions_of_layer_1_exchanged(BIDIRECTIONAL), BIDIRECTIONAL,
     "the biases are in the order bW of layer 0, bR of layer 0, bW of layer 0 backward, bR of layer"
     " 0 backward, bW of layer 1 backward, bR of layer 1 backward, bW of layer 1, bR of layer 1"),
    *((packed_like_the_published_one(like), like, PUBLISHED)
      for like in [TWO, *(with_some(value, STACK, 2) for value in NOT_FINITE),
                   *(each(TWO, bias, lambda x: 0 * x) for bias in ("bias", "bias_ih", "bias_hh")),
                   ONES]),
    *((rl.pack(each(like, "", by_gate(lambda x: x[[1, 0, 2]], 3))), like, "gates r and z swapped")
      for dtype in ("float16", "bfloat16", "float64")
      for like in [weights(rl.Spec("gru", 5, 3, 2, True, dtype=dtype))]),
    (np.roll(rl.pack(ONES), 12), ONES,
     "the biases are in 2 parts, expected: one, after all matrices\n"),
    (machine.Packer(rl.Spec("lstm", 5, 8, 2), CLIPPED, roles=["R", "W"]).pack(), CLIPPED,
     "['roles R W']"),
    *((machine.Packer(LSTM.replace(bidirectional=True), SEEDED, sides=(1, 0), joined=one).pack(),
       SEEDED, f"'joined {one}'") for one in ("gate", "row")),
    (np.concatenate([np.zeros(36, "f4"), rl.pack(ZERO)]), ZERO, "['extra']"),
    (in_order(THREE, NO_NEST), THREE, "the matrices are in the order W of layer 0, R of layer 1, W"
     " of layer 1, R of layer 0, W of layer 2, R of layer 2\n"),
    (in_order(THREE, UP_DOWN), THREE, "['layers 2 1 0', 'layers of biases']"),
]  # fmt: skip

W = SMALL["weight_ih_l0"]
# values that were changed stay
CHANGED = [
    (put(FLAT, 7, np.nan), ONE, "1 of 120 values is changed to NaN (layer 0, input matrix of gate"
     " i at (1, 2)): were the weights trained"),
    (put(put(FLAT, 9, FLAT[9] + 0.5), 7, np.nan), ONE,
     "2 of 120 values are changed, 1 of them to NaN, by up to 0.5 (layer 0, input matrix of gate i"
     " at (1, 2); layer 0, input matrix of gate i at (1, 4)): were"),
    (put(FLAT, -1, np.inf), ONE, "1 of 120 values is changed, by up to inf (layer 0, biases, bR"
     " of gate o[2]): were"),
    *((rl.pack(SMALL | {"weight_ih_l0": put(W, (4, slice(n)), W[4, :n] + 0.5)}), SMALL,
       f"{n} of 72 values") for n in (1, 3, 4)),
]  # fmt: skip

NO_BFLOAT16 = "what bfloat16 cannot represent"
RECURRENT = "layer 0, recurrent matrix is not in the buffer"
# what is given, the true weights, the first line of the report, what cannot be restored
LOST = [
    ((BITS << 16).view("f4"), ONE, "the values are cut off to bfloat16, not rounded", NO_BFLOAT16),
    (BITS.astype("u2").tobytes(), ONE, "the values are bfloat16, expected float32; the values are"
     " cut off to bfloat16, not rounded", NO_BFLOAT16),
    (np.clip(FLAT, -1.5, 1.5), ONE, "the values are clipped to 1.5", "what is beyond 1.5"),
    (rl.pack(each(ONE, "weight_ih", by_gate(lambda x: x[[0, 0, 2, 3]]))), ONE,
     "gate f of layer 0, input matrix is not in the buffer: in its place is gate i a second time",
     "gate f of layer 0, input matrix"),
    (rl.pack(OTHER), ONE, "none of the 2 matrices was found in any form that is searched for", ""),
    (rl.pack(OTHER | {"weight_ih_l0": ONE["weight_ih_l0"]}), ONE,
     f"{RECURRENT}; layer 0, biases are not in the buffer",
     "layer 0, recurrent matrix; layer 0, biases"),
    (FLAT[:-3], ONE, "the buffer has 117 values, expected 120: the last 3 are missing",
     "the last 3 values"),
    *((rl.convert(LARGE, to=to), LARGE, "the biases of gate f are rounded, as 1 was added and"
       " subtracted again (a forget bias)", "the last bits of the biases of gate f")
      for to in ("tf1", "haiku")),
]  # fmt: skip


@pytest.mark.parametrize("given, like, words", RESTORED + CHANGED)
def test_what_was_done_is_named_and_restored(given, like, words):
    found = rl.diagnose(given, like=like)
    assert words in f"{found}\n{rules(found)}" and found.sure and not found, found
    right = given if rules(found) == ["changed"] else rl.pack(like)
    assert found.fixed.tobytes() == right.tobytes()


@pytest.mark.parametrize("order, rule", [(NO_NEST, "not found"), (UP_DOWN, "layers 2 1 0")])
def test_an_order_is_named_if_it_has_a_rule_or_all_matrices_are_known(order, rule):
    other = {"weight_hh_l1": weights(rl.Spec("lstm", 5, 3, 3), 1)["weight_hh_l1"]}
    found = rl.diagnose(in_order(THREE | other, order), like=THREE)
    assert {rule, "not found"} <= {*rules(found)} and "order" not in rules(found)
    assert not found.sure


@pytest.mark.parametrize("given, like, line, cannot", LOST)
def test_what_is_lost_is_named(given, like, line, cannot):
    found = rl.diagnose(given, like=like)
    assert found.text == line and not found, found
    assert ("; ".join(lost(found)) if cannot else "") == cannot
    assert found.sure == ("found" not in line and "not in" not in line and "missing" not in line)
    assert found.same == bool(cannot)


@pytest.mark.parametrize("value", NOT_FINITE)
def test_numbers_that_are_not_finite(value):
    """A NaN was equal to nothing, and next to an infinity everything."""
    for spec, count in ((LSTM, 1), (rl.Spec("lstm", 3, 1, 2, True), 4), (BOTH, 1000)):
        like = with_some(value, spec, count)
        found = rl.diagnose(rl.pack(like), like=like)
        assert found and str(found).startswith("the buffer is right"), found
        one = rl.diagnose(np.append(rl.pack(like), 7).astype("f4"), like=like)
        assert rules(one) == ["extra"] and one.fixed.tobytes() == rl.pack(like).tobytes()
    like = with_some(value, LSTM)
    assert not rl.diagnose(rl.pack(OTHER), like=like).same
    assert not rl.diagnose(np.full(LSTM.num_params, value, "f4"), like=ONE).same
    biases = {name: like[name] for name in like if "bias" in name}
    found = rl.diagnose(rl.pack(ONE | {name: OTHER[name] for name in biases}), like=ONE | biases)
    assert "biases not found" in rules(found) and not found.sure
    signalling = np.full(LSTM.num_params, 0x7F800001, "u4").view("f4")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not rl.diagnose(signalling, like=ONE).same
        # casts of these set the flag of an invalid operation
        assert not rl.diagnose(put(FLAT, slice(-24, None), signalling[-24:]), like=ONE).sure


@pytest.mark.parametrize("part, words", [("", "bW and bR"), ("bias_ih", "bW"), ("bias_hh", "bR")])
def test_zero_biases_do_not_show_what_was_done(part, words):
    like = each(TWO, part, lambda x: 0 * x)
    found = rl.diagnose(rl.pack(like), like=like)
    assert found
    assert found.notes == (f"{words} of like are zero: they do not show what was done to them",)


def test_other_weights_are_not_explained():
    """Shuffled values of small RNNs of few bits, in which much is equal by chance; and positive
    ones: their mean alone made them look related, "transposed" or "trained further"."""
    spec = rl.Spec("gru", 3, 2, dtype="bfloat16")
    for seed in range(5):
        flat, rng = rl.pack(weights(spec, seed)), np.random.default_rng(seed)
        assert not rl.diagnose(rng.permutation(flat), like=flat, spec=spec).sure
    for spec in (LSTM, rl.Spec("lstm", 24, 20), rl.Spec("gru", 5, 8, bias=False)):
        one, other = ({name: rng.random(x.shape).astype("f4") for name, x in weights(spec).items()}
                      for _ in range(2))  # fmt: skip
        assert not rl.diagnose(rl.pack(one), like=other).same


def test_the_lines_of_evidence_are_cut():
    """There are at most 40, one for each matrix, and none for a right buffer."""
    for layers, cut in ((20, ""), (22, "\n  and 4 more\n")):
        like = weights(rl.Spec("lstm", 2, 2, layers, bias=False))
        found = str(rl.diagnose(-rl.pack(like), like=like))
        assert found.count(" matrix: elements ") == 40, found
        assert cut in found and (" more\n" in found) == bool(cut)
        assert str(rl.diagnose(rl.pack(like), like=like)) == "the buffer is right"


@pytest.mark.parametrize("from_file", [False, True])
def test_tensors_that_do_not_record_their_reset(tmp_path, from_file):
    """It is then that of like; all else must be the same."""
    spec = rl.Spec("gru", 5, 3, bias=False, reset="before")
    like = rl.Weights(normal_weights(rl.layout("keras"), spec), spec, "keras")

    def given(tensors):
        if not from_file:
            return tensors
        np.savez(tmp_path / "given.npz", **tensors)
        return tmp_path / "given.npz"

    assert rl.diagnose(given(dict(like)), like=like)
    wrong = dict(like) | {"kernel": like["kernel"][:, [3, 4, 5, 0, 1, 2, 6, 7, 8]]}
    found = rl.diagnose(given(wrong), like=like)
    assert found.text == "gates r and z swapped in the input matrices"
    with pytest.raises(rl.SpecError, match="two different RNNs: cell lstm and gru"):
        rl.diagnose(given(ONE), like=like)


# ----------------------------------------------------------------------- sums of two biases


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
    like, stale = weights(spec), weights(spec, 9)["weight_hh_l0"]  # which shows no order of gates
    stale = split_by(like, moved) | {"weight_hh_l0": stale}
    assert rules(rl.diagnose(rl.pack(stale), like=like)) == ["split", "not found"]


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
