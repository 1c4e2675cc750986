"""What the error says about a file without an RNN that is found by its names."""

import pickle

import haiku as hk
import jax
import numpy as np
import pytest
from hints.following import LSTM, tensors

import rnnlayout as rl

X = np.random.default_rng(0).standard_normal((6, 3, 5)).astype("f4")
KERNELS = {"kernel": np.ones((12, 28), "f4"), "bias": np.ones(28, "f4")}
TF1 = {f"rnn/basic_lstm_cell/{name}": array for name, array in KERNELS.items()}
DENSE = {f"dense/{name}": array for name, array in KERNELS.items()}


def network(x):
    cell = hk.LSTM(7)
    y, _ = hk.dynamic_unroll(cell, x, cell.initial_state(x.shape[1]))
    return hk.Linear(2)(y)


def haiku_file(path):
    """Write the parameters of an LSTM and a Linear as users of Haiku do."""
    params = hk.without_apply_rng(hk.transform(network)).init(jax.random.key(0), X)
    path.write_bytes(pickle.dumps(jax.tree.map(np.asarray, params)))
    return path


def npz(path, arrays):
    np.savez(path, **arrays)
    return path


def error_of(*args, **options):
    with pytest.raises(rl.Error) as caught:
        rl.load(*args, **options)
    return caught.value


@pytest.mark.parametrize("other", [None, "keras", "torch"])
def test_tensorflow_1_was_asked_to_pass_and_to_omit_layout_in_turn(other, tmp_path):
    path = npz(tmp_path / "a.npz", TF1 | DENSE)
    (ask,) = error_of(path, layout=other).asks
    assert ask == ("layout", rl.layout("tf1", forget_bias=1.0))
    assert [*rl.load(path, layout=ask[1])] == ["rnn"]


@pytest.mark.parametrize("other", [None, "keras", "torch"])
def test_a_pickle_of_haiku_was_asked_to_pass_and_to_omit_layout_in_turn(other, tmp_path):
    path = haiku_file(tmp_path / "a.pkl")
    (ask,) = error_of(path, layout=other).asks
    assert ask == ("layout", rl.layout("haiku"))
    found = rl.load(path, layout=ask[1])
    assert [*found] == ["lstm"] and found["lstm"].spec == LSTM.replace(bias=found["lstm"].spec.bias)
    params = pickle.loads(path.read_bytes())
    y = hk.without_apply_rng(hk.transform(network)).apply(params, X)
    ours = rl.RNN(found["lstm"])(X)[0] @ params["linear"]["w"] + params["linear"]["b"]
    np.testing.assert_allclose(ours, y, atol=1e-5)


@pytest.mark.parametrize("arrays", [
    DENSE, {"mlp/linear/w": np.ones((12, 28), "f4"), "mlp/linear/b": np.ones(28, "f4")},
    {"fc.weight": np.ones((2, 3), "f4"), "fc.bias": np.ones(2, "f4")},
])  # fmt: skip
def test_a_dense_layer_is_not_taken_for_a_cell(arrays, tmp_path):
    assert "layout" not in dict(error_of(npz(tmp_path / "a.npz", arrays)).asks)


def test_a_hand_written_lstm_was_a_list_of_arrays_that_savez_wrote(tmp_path):
    w_ih, w_hh, b_ih, b_hh = (np.split(array, 4) for array in tensors().values())
    hand_written = {
        f"{kind}{gate}": array
        for k, gate in enumerate("ifco")
        for kind, array in {
            "W": np.concatenate([w_ih[k], w_hh[k]], 1), "b": b_ih[k] + b_hh[k]
        }.items()
    }  # fmt: skip
    path = npz(tmp_path / "a.npz", hand_written)
    y = rl.forward(X, tensors())[0]
    for text in (error_of(path).text, error_of(path, layout="torch").text):
        assert "savez" not in text
    assert "rl.identify(tensors, x, y)" in error_of(path).text
    with pytest.raises(rl.LayoutError, match=r"rl\.identify\(tensors, x, y\)"):
        rl.pack(hand_written)
    for source in (path, hand_written):
        np.testing.assert_allclose(rl.RNN(rl.identify(source, X, y).best)(X)[0], y, atol=1e-5)


def test_a_list_of_arrays_still_asks_for_its_layout(tmp_path):
    np.savez(tmp_path / "a.npz", *tensors(layout="keras").values())
    error = error_of(tmp_path / "a.npz")
    assert "np.savez() wrote" in error.text and dict(error.asks) == {"layout": ...}
    assert rl.load(tmp_path / "a.npz", layout="keras")["lstm"].spec == LSTM
