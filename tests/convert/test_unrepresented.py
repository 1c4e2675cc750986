"""A conversion is exact in its bits; what the target's framework lacks is reported beside it.

Each repair is followed, and gives the outputs of the source's framework.
"""

import keras
import numpy as np
import pytest
import torch
from oracles.frameworks import KERAS_NOISE, H, I, N, T, fill_keras, normal, onnx_session, seeded
from oracles.some import normal_weights

import rnnlayout as rl

pytestmark = KERAS_NOISE
X = normal(seeded("x"), T, N, I)
STATE = normal(seeded("state"), 1, N, H)
# Sums of at most I + H products of numbers around 1, T steps on.
NEAR = dict(rtol=0, atol=2.0**-18)


def keras_lstm(_=None, **settings):
    """Return the weights of a Keras layer, and its y (T, N, ...)."""
    merge = settings.pop("merge_mode", None)
    layer = keras.layers.LSTM(H, return_sequences=True, **settings)
    layer = keras.layers.Bidirectional(layer, merge_mode=merge) if merge else layer
    layer.build((N, T, I))
    fill_keras([layer], seeded("keras", str(settings), merge))
    y = keras.ops.convert_to_numpy(layer(X.swapaxes(0, 1)))
    return rl.Weights(layer), y.swapaxes(0, 1)


def onnx_lstm(tmp_path, **config):
    """Return the weights of an ONNX model, and what onnxruntime computes."""
    spec, rng = rl.Spec("lstm", I, H), seeded("onnx")
    weights = rl.Weights({name: normal(rng, *shape)
                          for name, shape in rl.describe(spec, "onnx").items()}, spec)  # fmt: skip
    weights.config = config
    rl.save(tmp_path / "m.onnx", weights)
    session = onnx_session(tmp_path / "m.onnx")
    zeros = {x.name: np.zeros((1, N, H), "f4") for x in session.get_inputs() if x.name != "X"}
    return rl.load(tmp_path / "m.onnx")["lstm"], session.run(["Y"], {"X": X, **zeros})[0]


# the source, its config, the repair, and how that is done: run(x, h_0) runs torch's module
REPAIRS = [
    (keras_lstm, {"go_backwards": True}, "reverse x along time first", lambda run: run(X[::-1])),
    (keras_lstm, {"merge_mode": "sum"}, "join the two directions of y afterwards",
     lambda run: sum(np.split(run(X), 2, -1))),
    (onnx_lstm, {"direction": "reverse"}, "reverse x along time first, and y afterwards",
     lambda run: run(X[::-1])[::-1]),
    (onnx_lstm, {"initial_h": STATE.astype("f8").tolist()}, "pass it as the initial state",
     lambda run: run(X, STATE)),
]  # fmt: skip


@pytest.mark.parametrize("make, config, repair, follow", REPAIRS)
def test_a_repair_gives_the_outputs_of_the_source(make, config, repair, follow, tmp_path):
    weights, wanted = make(tmp_path, **config)
    made = weights.to("torch")
    module = torch.nn.LSTM(I, H, bidirectional=weights.spec.bidirectional)
    rl.assign(module, dict(made))

    def run(x, h_0=None):
        states = None if h_0 is None else (torch.from_numpy(h_0), torch.zeros(1, N, H))
        with torch.no_grad():
            return module(torch.from_numpy(x.copy()), states)[0].numpy()

    assert made.report.grade == "exact"
    assert str(made.report).startswith(f"exact; with {next(iter(config))}=")
    assert str(made.report).endswith(f", which torch cannot represent: {repair}")
    np.testing.assert_allclose(follow(run), wanted, **NEAR)


@pytest.mark.parametrize(
    "key, value, layout, repair",
    [
        ("clip", 0.5, "onnx", "outputs differ where it clips"),
        ("cell_clip", 0.5, "tflite", "outputs differ where it clips the cell state"),
        ("proj_clip", 0.5, "tflite", "outputs differ where it clips h"),
        ("sequence_lens", [2, 3], "onnx", "pass the lengths in the call"),
        ("of_the_future", True, None, "apply it yourself"),
    ],
)
def test_other_settings(key, value, layout, repair):
    spec = rl.Spec("lstm", I, H)
    weights = rl.Weights(normal_weights("torch", spec), spec)
    weights.config = {key: value}
    for to in ("torch", "onnx", "tflite"):
        settings = rl.check(weights, to=to).settings
        assert settings.endswith(f"which {to} cannot represent: {repair}") == (to != layout)
        assert bool(settings) == (to != layout)


@pytest.mark.parametrize("to", ["cudnn", "torch", "keras-cudnn"])
def test_every_way_to_convert_says_the_same(to, tmp_path):
    weights, _ = keras_lstm(go_backwards=True)
    wanted = "" if to.startswith("keras") else f"with go_backwards=True, which {to} cannot"
    reports = [weights.to(to).report, rl.check(weights, to=to)]
    if to != "cudnn":
        reports += [rl.convert(weights, to=to).report for _ in range(2)]
    rl.save(tmp_path / "a.npz", {"a": weights})
    for dry_run in (True, False):
        new = tmp_path / "b.npz"
        reports += [rl.convert_file(tmp_path / "a.npz", new, to=to, dry_run=dry_run).reports["a"]]
    assert {report.settings for report in reports} == {reports[0].settings}
    assert reports[0].settings.startswith(wanted) and bool(reports[0].settings) == bool(wanted)


def test_the_hard_sigmoid_of_keras_2():
    """Keras 3 has another one. The second conversion of the same arrays says it too."""
    spec = rl.Spec("gru", I, H, recurrent_activation="hard_sigmoid_keras2")
    source = normal_weights("onnx", spec)
    for _ in range(3):
        settings = rl.convert(source, spec, layout="onnx", to="keras").report.settings
        assert settings.startswith("with Keras 2's hard_sigmoid, which Keras 3 cannot represent")
    assert not rl.convert(source, spec, layout="onnx", to="onnx").report.settings
