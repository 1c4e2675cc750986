"""Names that other programs give to the matrices of torch's LSTM."""

import numpy as np
import pytest
import torch

import rnnlayout as rl

I, H = 3, 2  # noqa: E741


def augmented_lstm(seed=0, gates=(4, 4)):
    """Return the state_dict of AllenNLP's AugmentedLstm, without highway: gates (4, 4)."""
    rng, arrays = np.random.default_rng(seed), {}
    for side, inputs, count in zip(("input", "state"), (I, H), gates, strict=True):
        arrays[f"{side}_linearity.weight"] = rng.standard_normal((count * H, inputs))
        arrays[f"{side}_linearity.bias"] = rng.standard_normal(count * H)
    return arrays


def run_augmented_lstm(arrays, x):
    """Return the outputs for x (T, I), as allennlp/modules/augmented_lstm.py computes them."""
    h, c, outputs = np.zeros(H), np.zeros(H), []
    for x_t in x:
        of_x = arrays["input_linearity.weight"] @ x_t + arrays["input_linearity.bias"]
        of_h = arrays["state_linearity.weight"] @ h + arrays["state_linearity.bias"]
        gates = (of_x + of_h).reshape(4, H)
        i, f, o = (1 / (1 + np.exp(-gates[k])) for k in (0, 1, 3))
        c = i * np.tanh(gates[2]) + f * c
        h = o * np.tanh(c)
        outputs.append(h)
    return np.array(outputs)


def test_the_augmented_lstm_of_allennlp(tmp_path):
    x = np.random.default_rng(1).standard_normal((6, I))
    arrays = augmented_lstm()
    y = rl.RNN(arrays)(x)[0]
    # float64: each of 6 steps has a few roundings of values below 4
    np.testing.assert_allclose(y, run_augmented_lstm(arrays, x), rtol=0, atol=1e-13)
    layers = {f"{d}_layer_{k}": augmented_lstm(k) for d in ("forward", "backward") for k in (0, 1)}
    np.savez(tmp_path / "m.npz", **{f"{p}.{k}": v for p, t in layers.items() for k, v in t.items()})
    rnns = rl.load(tmp_path / "m.npz")
    assert rnns.keys() == layers.keys()
    assert all(rnn == rl.Weights(layers[name]) for name, rnn in rnns.items())


def test_an_augmented_lstm_that_is_not_an_lstm_is_refused():
    """With highway it has 6 and 5 gates. ELMo's cell has one bias, a projection and clips."""
    with pytest.raises(rl.LayoutError, match=r"weight_hh_l0: shape \(10, 2\)"):
        rl.pack(augmented_lstm(gates=(6, 5)))
    elmo = augmented_lstm() | {"state_projection.weight": np.ones((H, H))}
    del elmo["input_linearity.bias"]
    with pytest.raises(rl.LayoutError, match=r"unknown 'state_projection\.weight'"):
        rl.pack(elmo)


def test_bidirectional_lstms_that_were_ported_to_mlx(tmp_path):
    module = torch.nn.LSTM(I, H, bidirectional=True)
    names = {"weight_ih": "Wx", "weight_hh": "Wh", "bias_ih": "bias_ih", "bias_hh": "bias_hh"}
    ported = {}
    for name, tensor in module.state_dict().items():
        role, _, side = name.partition("_l0")
        ported[f"{names[role]}_{'backward' if side else 'forward'}"] = tensor.numpy()
    assert (rl.pack(ported) == rl.pack(module)).all()
    np.savez(tmp_path / "m.npz", **{f"text.lstm.{name}": a for name, a in ported.items()})
    assert dict(rl.load(tmp_path / "m.npz")) == {"text.lstm": rl.Weights(ported)}
