"""Which axis of x is the batch: what each live source says, and who keeps it."""

import copy
import pickle

import pytest
import tf_keras
import torch
from oracles.frameworks import KERAS_NOISE, keras

import rnnlayout as rl

pytestmark = KERAS_NOISE
I, H = 5, 7  # noqa: E741


def keras_layer(kit, both=False, input_size=I, **options):
    layer = kit.layers.LSTM(H, return_sequences=True, **options)
    layer = kit.layers.Bidirectional(layer) if both else layer
    layer.build((None, None, input_size))
    return layer


SOURCES = [
    (lambda: torch.nn.LSTM(I, H, batch_first=True), True),
    (lambda: torch.nn.GRU(I, H, 2, bidirectional=True, batch_first=True), True),
    (lambda: torch.nn.RNN(I, H, batch_first=True), True),
    (lambda: torch.nn.RNN(I, H), False),
    (lambda: torch.nn.LSTMCell(I, H), None),
    (lambda: torch.nn.LSTM(I, H, batch_first=True).state_dict(), None),
    (lambda: keras_layer(keras), True),
    (lambda: keras_layer(keras, True), True),
    (lambda: keras_layer(tf_keras), True),
    (lambda: keras_layer(tf_keras, time_major=True), False),
    (lambda: keras_layer(tf_keras, True, time_major=True), False),
    (lambda: [keras_layer(keras), keras_layer(keras, input_size=H)], True),
    (lambda: keras_layer(keras).cell, None),
]


@pytest.mark.parametrize("make, wanted", SOURCES)
def test_every_source_says_it_and_every_result_keeps_it(make, wanted):
    source = make()
    weights = rl.Weights(source)
    kept = [
        weights, weights.to("keras"), weights.to("cudnn"), weights.to("keras", dtype="float64"),
        *weights.split(), weights.layer(0), rl.stack(weights.split()), rl.stack([weights]),
        rl.Weights(weights), rl.Weights(weights, weights.spec), copy.deepcopy(weights),
        pickle.loads(pickle.dumps(weights)), rl.convert(source, to="keras"),
        rl.convert(weights, to="torch"), rl.convert(rl.convert(source, to="torch"), to="keras"),
        rl.Weights(rl.convert(source, to="keras")),
        rl.Weights(rl.convert(source, to="keras"), weights.spec),
    ]  # fmt: skip
    assert [one.batch_first for one in kept] == [wanted] * len(kept)
    for one in [source, *kept]:
        assert rl.RNN(one).batch_first is bool(wanted)


def test_layers_that_contradict_each_other():
    first, second = torch.nn.GRU(I, H, batch_first=True), torch.nn.GRU(H, H)
    with pytest.raises(rl.LayoutError, match=r"layer 0 reads \(N, T, I\), layer 1 \(T, N, I\)"):
        rl.stack([first, second])
    silent = rl.Weights(second.state_dict())
    for parts in ([first, silent], [rl.Weights(first), silent]):
        assert rl.stack(parts).batch_first is True
    two = [keras_layer(tf_keras), keras_layer(tf_keras, input_size=H, time_major=True)]
    with pytest.raises(rl.LayoutError, match="time_major"):
        rl.pack(two)
