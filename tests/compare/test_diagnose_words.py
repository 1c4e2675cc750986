"""diagnose: the words for what was done and for where, and tensors that do not record their RNN."""

import numpy as np
import pytest
from compare.diagnoses import LSTM, weights
from oracles.some import normal_weights

import rnnlayout as rl

TWO, BOTH = rl.Spec("lstm", 5, 3, 2), rl.Spec("lstm", 5, 3, 2, bidirectional=True)


def written(change):
    """Return a buffer in which each gate's matrix is changed, and the weights."""
    like = weights()
    matrices = [change(like[f"weight_{of}_l0"].reshape(4, 3, -1)).ravel() for of in ("ih", "hh")]
    return np.concatenate([*matrices, like["bias_ih_l0"], like["bias_hh_l0"]]), like


def padded(matrices):
    return np.pad(matrices, ((0, 0), (0, 0), (0, 2)))


def interleaved(matrices):
    return np.stack([matrices, *np.zeros((4, *matrices.shape), "f4")], axis=-1)


def transposed_in_two_places():
    like = weights(BOTH)
    names = "weight_ih_l0", "weight_hh_l1_reverse"
    turned = {n: like[n].reshape(4, 3, -1).swapaxes(1, 2).reshape(like[n].shape) for n in names}
    return rl.pack(like | turned), like


def units_reordered(layer):
    """The units of a layer in another order, and with them the columns that they feed."""
    like = weights(TWO)
    order = np.array([2, 0, 1])
    rows = np.concatenate([gate * 3 + order for gate in range(4)])
    made = like | {name: like[name][rows] for name in like if name.endswith(f"_l{layer}")}
    for columns in {f"weight_hh_l{layer}", f"weight_ih_l{layer + 1}"} & like.keys():
        made[columns] = made[columns][:, order]
    return rl.pack(made), like


def biases_between():
    like = weights()
    order = "weight_ih_l0", "bias_ih_l0", "bias_hh_l0", "weight_hh_l0"
    return np.concatenate([like[name].ravel() for name in order]), like


WHAT = [
    (written(padded), "the input matrices are with rows of 7 values, expected 5 (padded?)"),
    (written(lambda m: padded(m.swapaxes(1, 2))),
     "all matrices are transposed, with rows of 5 values (padded?)"),
    (written(interleaved),
     "the recurrent matrices are with strides of 15 and 5 values between rows and columns"),
    (transposed_in_two_places(),
     "the input matrix of layer 0 forward, the recurrent matrix of layer 1 backward are"
     " transposed, each gate separately"),
    (units_reordered(0), "the hidden units of layer 0 are in another order: the same function\n"),
    (units_reordered(1),
     "the hidden units of layer 1 are in another order: the same function, with its outputs in"
     " that order\n"),
    (biases_between(), "the biases are between the matrices\n"),
]  # fmt: skip


@pytest.mark.parametrize("made, text", WHAT)
def test_what_was_done_and_where(made, text):
    buffer, like = made
    found = rl.diagnose(buffer, like=like)
    assert text in str(found), found
    assert np.array_equal(found.fixed, rl.pack(like))


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
        rl.diagnose(given(weights(LSTM)), like=like)


def test_clipped_values():
    like = weights()
    found = rl.diagnose(np.clip(rl.pack(like), -1.5, 1.5), like=like)
    assert found.text == "the values are clipped to 1.5", found
    assert "\ncannot be restored: what is beyond 1.5\n" in str(found)
