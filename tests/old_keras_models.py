"""Models of Keras 2 with real CuDNNLSTM and CuDNNGRU layers, as files, and what they compute.

tf_keras builds and saves these layers on a CPU but cannot run them there. What they compute comes
from a twin: the same model with LSTM and GRU in place, which takes its weights from the same file
by tf_keras's own loader. A model is a function of a namespace of layers, so that both are one text.
"""

import json
from types import SimpleNamespace

import h5py
import numpy as np
import tf_keras
from tf_keras import Model, Sequential
from tf_keras.src.layers.rnn.cudnn_gru import CuDNNGRU
from tf_keras.src.layers.rnn.cudnn_lstm import CuDNNLSTM

layers = tf_keras.layers
Input, Dense, Bidirectional = layers.Input, layers.Dense, layers.Bidirectional
N, T, IN = 4, 6, 3


def plain_gru(units, **options):
    return layers.GRU(units, recurrent_activation="sigmoid", reset_after=True, **options)


CUDNN = SimpleNamespace(LSTM=CuDNNLSTM, GRU=CuDNNGRU)
PLAIN = SimpleNamespace(LSTM=layers.LSTM, GRU=plain_gru)


def sequential(rnn):
    return Sequential([
        Input((T, IN)), rnn.LSTM(5, return_sequences=True), rnn.GRU(4), Dense(2),
    ])  # fmt: skip


def first_layer_knows_the_shape(rnn):
    return Sequential([rnn.GRU(4, input_shape=(T, IN), name="first"), Dense(2)])


def any_length(rnn):
    return Sequential([Input((None, IN)), rnn.LSTM(5, return_sequences=True), rnn.GRU(2)])


def text(rnn):
    return Sequential([
        layers.Embedding(11, IN, input_length=T, input_shape=(T,)), layers.SpatialDropout1D(0.3),
        Bidirectional(rnn.GRU(5, return_sequences=True)), layers.Dropout(0.5),
        layers.BatchNormalization(), rnn.LSTM(4), layers.LeakyReLU(0.1),
        Dense(2, activation="softmax", kernel_regularizer="l2"),
    ])  # fmt: skip


def merged(cell, mode, sequences):
    def bidirectional(rnn):
        x = Input((T, IN))
        layer = getattr(rnn, cell)(4, return_sequences=sequences, name="reader")
        y = Bidirectional(layer, merge_mode=mode, name="both_ways")(x)
        return Model(x, y)

    return bidirectional


def backward_layer(rnn):
    x = Input((T, IN))
    there = rnn.LSTM(4, return_sequences=True, name="there")
    back = rnn.LSTM(4, return_sequences=True, go_backwards=True, name="back")
    return Model(x, Bidirectional(there, backward_layer=back)(x))


def several_inputs(rnn):
    a, b = Input((T, IN), name="b"), Input((T + 1, 2), name="a")
    masked = layers.LSTM(2)(layers.Masking(0.0)(b))  # no cuDNN layer takes a mask
    left, right = rnn.GRU(4)(a), rnn.LSTM(5)(b)
    joined = layers.Concatenate()([right, left, masked])
    return Model([a, b], [Dense(3)(joined), left])


def encoder_decoder(rnn):
    source, target = Input((T, IN)), Input((None, 2))
    _, h, c = rnn.LSTM(4, return_state=True, name="encoder")(source)
    y, *_ = rnn.LSTM(4, return_sequences=True, return_state=True, name="decoder")(
        target, initial_state=[h, c]
    )
    return Model([source, target], Dense(3)(y))


def states_of_a_gru(rnn):
    source, start = Input((T, IN)), Input((2,))
    y, h = rnn.GRU(4, return_state=True)(source, initial_state=Dense(4)(start))
    return Model([source, start], [y, rnn.GRU(4)(source, initial_state=h)])


def states_both_ways(rnn):
    source, target = Input((T, IN)), Input((T - 1, 2))
    _, *states = Bidirectional(rnn.LSTM(4, return_state=True))(source)
    return Model([source, target], Bidirectional(rnn.LSTM(4))(target, initial_state=states))


def nested(rnn):
    inner_x = Input((T, 4))
    inner = Model(inner_x, layers.BatchNormalization()(rnn.LSTM(5)(inner_x)), name="inner")
    middle = Sequential([Input((T, IN)), rnn.GRU(4, return_sequences=True)], name="middle")
    x = Input((T, IN))
    y = middle(x)
    return Model(x, Dense(2)(layers.Add()([inner(y), inner(layers.Dropout(0.2)(y))])))


def nested_in_sequential(rnn):
    reader = Sequential([Input((T, IN)), Bidirectional(rnn.LSTM(4, return_sequences=True))])
    model = Sequential([reader, Sequential([Input((T, 8)), rnn.GRU(5), Dense(3)]), Dense(2)])
    model.build((None, T, IN))
    return model


def nested_partly_frozen(rnn):
    inner_x = Input((T, IN))
    frozen = rnn.LSTM(4, return_sequences=True, trainable=False)(inner_x)
    inner = Model(inner_x, rnn.GRU(5)(frozen))
    x = Input((T, IN))
    return Model(x, Dense(2)(inner(x)))


def time_distributed_model(rnn):
    inner = Sequential([Input((T, IN)), rnn.GRU(4), Dense(2)])
    x = Input((2, T, IN))
    return Model(x, rnn.LSTM(5)(layers.TimeDistributed(inner)(x)))


def time_distributed_layers(rnn):
    x = Input((2, T, IN))
    y = layers.TimeDistributed(Bidirectional(rnn.LSTM(4, return_sequences=True)))(x)
    return Model(x, layers.TimeDistributed(rnn.GRU(5))(y))


def backwards(rnn):
    return Sequential([
        Input((T, IN)), rnn.LSTM(4, go_backwards=True, return_sequences=True),
        rnn.GRU(5, go_backwards=True),
    ])  # fmt: skip


def stateful(rnn):
    return Sequential([
        rnn.LSTM(4, stateful=True, return_sequences=True, batch_input_shape=(N, T, IN)),
        rnn.GRU(5, stateful=True),
    ])  # fmt: skip


def shared(rnn):
    a, b = Input((T, IN)), Input((T + 2, IN))
    reader = Bidirectional(rnn.GRU(4), name="reader")
    return Model([a, b], layers.Subtract()([reader(a), reader(b)]))


MODELS = {
    f.__name__: f
    for f in (
        sequential, first_layer_knows_the_shape, any_length, text, backward_layer, several_inputs,
        encoder_decoder, states_of_a_gru, states_both_ways, nested, nested_in_sequential,
        nested_partly_frozen, time_distributed_model, time_distributed_layers, backwards, stateful,
        shared,
    )
}  # fmt: skip
MODELS |= {
    f"bidirectional_{cell}_{mode}_{sequences}": merged(cell, mode, sequences)
    for cell, sequences in (("LSTM", True), ("GRU", False))
    for mode in ("concat", "sum", "mul", "ave", None)
}
