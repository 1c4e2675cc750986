"""What live Keras layers say about themselves: settings, cells, directions. Keras is the oracle."""

import numpy as np
import pytest
import tf_keras
from oracles.frameworks import KERAS_NOISE, keras, seeded, weight
from oracles.some import same_bits

import rnnlayout as rl

pytestmark = KERAS_NOISE
KITS = pytest.mark.parametrize("kit", [keras, tf_keras], ids=["keras", "tf_keras"])
BACKWARDS = {"return_sequences": True, "go_backwards": True}
T, N, I, H = 6, 3, 5, 7  # noqa: E741
X = np.random.default_rng(1).normal(size=(N, T, I)).astype("f4")


def filled(layer, input_size=I):
    """Build a layer and fill it at random."""
    layer.build((N, T, input_size))
    rng = np.random.default_rng(0)
    layer.set_weights([weight(rng, w.shape) for w in layer.get_weights()])
    return layer


def called(layer, x=X):
    return np.asarray(keras.ops.convert_to_numpy(layer(x)))


def same(found, wanted):
    # no error grows from step to step, see weight(); a step of one of 3 layers rounds sums of at
    # most I + 2 H + 2 numbers, together below 8, and a few more: less than 3 * 24 * 8 * 2^-24
    np.testing.assert_allclose(found, wanted, atol=3.5e-5)


@KITS
def test_a_layer_describes_its_settings(kit):
    """run/cpu/test_settings.py has those that are run."""
    both = filled(kit.layers.Bidirectional(kit.layers.GRU(H, return_sequences=True), None))
    assert rl.Weights(both).config == {"merge_mode": None}
    shape = {"batch_input_shape": (N, T, I)} if kit is tf_keras else {}
    layer = kit.layers.LSTM(H, stateful=True, **shape)
    layer.build((N, T, I))
    assert rl.Weights(layer).config == {"stateful": True}


def test_settings_of_layers_that_are_not_one_rnn():
    backwards, upper = (filled(keras.layers.LSTM(H, **BACKWARDS), size) for size in (I, H))
    forwards, lower = (filled(keras.layers.LSTM(H, return_sequences=True), size) for size in (I, H))
    for call in (rl.pack, rl.stack):
        with pytest.raises(rl.LayoutError, match="layer 1 is used with go_backwards=True"):
            call([forwards, upper])
    assert rl.Weights([backwards, lower]).config == {"go_backwards": True}
    both = filled(keras.layers.Bidirectional(keras.layers.LSTM(H)))
    both.backward_layer.go_backwards = False
    with pytest.raises(rl.LayoutError, match=r"of 'bidirectional.*' go in the same dir"):
        rl.Weights(both)
    both.backward_layer.go_backwards, both.backward_layer.stateful = True, True
    with pytest.raises(rl.LayoutError, match=r"directions of .* differ: stateful None and True"):
        rl.Weights(both)


@KITS
def test_recurrent_layers_inside_are_named_with_their_path(kit):
    inner = kit.Sequential([kit.layers.Dense(3), kit.layers.GRU(H, name="g")], name="inner")
    model = kit.Sequential([kit.layers.TimeDistributed(inner, name="td"),
                            kit.layers.Bidirectional(kit.layers.LSTM(H), name="bi")])  # fmt: skip
    model.build((None, 4, 3, 3))
    with pytest.raises(
        rl.LayoutError,
        match=r"2 RNNs: 'td/layer/g' \(GRU\), 'bi' \(Bidirectional\); .* prefix='td/layer/g'",
    ):
        rl.Weights(model)
    gru = rl.pack(inner.layers[-1])
    assert (rl.pack(model, prefix="td") == gru).all()
    assert (rl.pack(model.layers[0]) == gru).all()
    other = seeded("inside").standard_normal(gru.shape).astype("f4")
    assert rl.assign(model.layers[0], rl.Weights(other, rl.Spec("gru", 3, H))) is model.layers[0]
    assert (rl.pack(model, prefix="td/layer/g") == other).all()


@pytest.mark.filterwarnings("ignore:The object being serialized includes a `lambda`")
def test_activations_of_ones_own_are_named_by_their_function():
    def own(x):
        return x

    for activation, name in ((own, "'own'"), (lambda x: x, "a lambda"), ("elu", "'elu'"),
                             (keras.layers.LeakyReLU(0.1), "'LeakyReLU'")):  # fmt: skip
        for layer, text in (
            (keras.layers.LSTM(H, activation=activation), f"has activation {name}, which no other"),
            (keras.layers.GRU(H, recurrent_activation=activation),
             f"recurrent_activation {name}, need sigmoid or"),
        ):  # fmt: skip
            with pytest.raises(rl.LossyError, match=text):
                rl.Weights(filled(layer))


# ------------------------------------------------------------------------------------------ cells

CELLS = pytest.mark.parametrize("make, options", [
    ("LSTMCell", {}), ("LSTMCell", {"recurrent_activation": "hard_sigmoid"}),
    ("LSTMCell", {"activation": "relu"}), ("GRUCell", {"activation": "relu"}),
    ("GRUCell", {"reset_after": False}), ("GRUCell", {"reset_after": True}),
    ("SimpleRNNCell", {"activation": "relu"}), ("SimpleRNNCell", {"use_bias": False}),
])  # fmt: skip


AROUND = {
    "one": lambda L, cell: L.RNN(cell(), return_sequences=True),
    "a stack": lambda L, cell: L.RNN([cell() for _ in range(3)], return_sequences=True),
    "backwards": lambda L, cell: L.RNN([cell() for _ in range(2)], **BACKWARDS),
    "both directions": lambda L, cell: L.Bidirectional(L.RNN(cell(), return_sequences=True)),
}


@KITS
@CELLS
@pytest.mark.parametrize("around", AROUND)
def test_an_rnn_of_cells(kit, make, options, around):
    layer = filled(AROUND[around](kit.layers, lambda: getattr(kit.layers, make)(H, **options)))
    weights = rl.Weights(layer)
    assert weights.config == ({"go_backwards": True} if around == "backwards" else {})
    same(rl.forward(X, layer)[0], called(layer))
    if around in ("one", "a stack"):  # the latter has a StackedRNNCells
        cell = rl.Weights(layer.cell)
        assert cell.spec == weights.spec and (cell.batch_first is None or around == "a stack")
        assert same_bits(cell.tensors, weights.tensors)


@KITS
def test_cells_that_no_layout_represents(kit):
    L = kit.layers
    stack = L.RNN([L.LSTMCell(H), L.LSTMCell(H)], return_sequences=True)
    for layer, kind, text in (
        (L.RNN([L.GRUCell(H), L.GRUCell(4)]), rl.LayoutError, r"differ: hidden_size 7 and 4. They"),
        (L.RNN([L.LSTMCell(H), L.GRUCell(H)]), rl.LayoutError, "differ: cell 'lstm' and 'gru', re"),
        (L.Bidirectional(stack), rl.LossyError, "stack of cells per direction"),
    ):
        with pytest.raises(kind, match=text):
            rl.pack(filled(layer))


class LSTMCell(keras.layers.Layer):
    """Another cell of the same name."""

    def __init__(self, units):
        super().__init__()
        self.units, self.state_size = units, units

    def call(self, x, states):
        return states[0], states


def test_a_cell_of_the_users_own_is_not_taken_for_keras():
    with pytest.raises(rl.LossyError, match="a cell of class 'LSTMCell', which no layout"):
        rl.pack(keras.layers.RNN(LSTMCell(H)))
    # but a subclass that overrides nothing is one of Keras
    cell = type("MyCell", (keras.layers.LSTMCell,), {})(H)
    layer = filled(keras.layers.RNN(cell, return_sequences=True))
    same(rl.forward(X, layer)[0], called(layer))


def test_they_are_targets_too():
    def make():
        return keras.layers.RNN([keras.layers.LSTMCell(H) for _ in range(2)], return_sequences=True)

    source, target = filled(make()), make()
    rl.assign(target, rl.convert(source, to="torch"))  # which builds it
    same(called(target), called(source))
    layers = [keras.layers.LSTM(H, return_sequences=True) for _ in range(2)]
    rl.assign(layers, rl.convert(source, to="keras"))
    same(called(layers[1], called(layers[0])), called(source))
