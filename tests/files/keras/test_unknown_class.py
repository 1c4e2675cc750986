"""Layers of a user's own class that extends one of Keras's: listed, and read if the user asks."""

import shlex

import keras
import numpy as np
import pytest
import tf_keras
from oracles.frameworks import KERAS_NOISE

import rnnlayout as rl
from rnnlayout._cli import main as _cli

pytestmark = KERAS_NOISE
N, T, WIDTH, UNITS = 2, 4, 5, 3


def model(kit, name):
    """Return a model with a layer of a user's class, alone and in a Bidirectional, and a GRU."""

    class ReversedLSTM(kit.layers.LSTM):
        def call(self, sequences, initial_state=None, mask=None, training=False):
            x = sequences[:, ::-1]
            return super().call(x, initial_state=initial_state, mask=mask, training=training)

    if name == "registered":
        add = kit.saving.register_keras_serializable("mine")
        ReversedLSTM = add(ReversedLSTM)
    x = kit.layers.Input((T, WIDTH))
    y = ReversedLSTM(UNITS, return_sequences=True, name="own")(x)
    with kit.utils.custom_object_scope({"ReversedLSTM": ReversedLSTM}):
        y = kit.layers.Bidirectional(ReversedLSTM(UNITS, return_sequences=True), name="both")(y)
    return kit.Model(x, kit.layers.GRU(UNITS, name="gru")(y))


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
@pytest.mark.parametrize("kit, kind", [
    (keras, "plain"), (keras, "registered"), (tf_keras, "plain"),
], ids=["keras", "keras-registered", "tf_keras"])  # fmt: skip
def test_it_is_listed_and_read_if_accepted(kit, kind, suffix, tmp_path, capsys):
    path = tmp_path / f"a{suffix}"
    own = model(kit, kind)
    own.save(path)
    known = "mine>ReversedLSTM" if kind == "registered" else "ReversedLSTM"
    found = rl.load(path)
    assert list(found) == ["gru"] and list(found.undecided) == ["own", "both"]
    assert not found.refused and not found.others
    assert _cli.main(["inspect", str(path)]) == 0
    text = capsys.readouterr().out
    option = f"--as-class {shlex.quote(f'{known}=LSTM')}"
    assert f"class '{known}', read as LSTM; pass {option}" in text
    assert f"input {WIDTH}, hidden {UNITS}" in text and "tensors of no RNN" not in text

    found = rl.load(path, as_class={known: "LSTM"})
    assert list(found) == ["own", "both", "gru"]
    assert has_arrays(found, own)
    new = tmp_path / "new.npz"
    command = ["convert", str(path), str(new), "--to", "torch", "--as-class", f"{known}=LSTM"]
    assert _cli.main(command) == 0
    assert list(rl.load(new)) == list(found)
    for wrong in ({known: ["LSTM"]}, "LSTM"):
        with pytest.raises(rl.SpecError, match="need a dict"):
            rl.load(path, as_class=wrong)


def has_arrays(found, model):
    return all(
        len(weights) == len(layer) and all(map(np.array_equal, weights.values(), layer))
        for name, weights in found.items()
        for layer in [model.get_layer(name).get_weights()]
    )


def with_cells(kit):
    """Return a model with cells of a user's classes: one alone, two in a stack, one both ways."""
    layers = kit.layers
    own = type("OwnLSTM", (layers.LSTMCell,), {})
    gated = type("OwnGate", (layers.GRUCell,), {})
    x = layers.Input((T, WIDTH))
    with kit.utils.custom_object_scope({"OwnLSTM": own, "OwnGate": gated}):
        y = layers.RNN(own(UNITS), return_sequences=True, name="one")(x)
        y = layers.RNN([gated(UNITS), gated(UNITS)], return_sequences=True, name="two")(y)
        y = layers.Bidirectional(layers.RNN(own(UNITS)), name="both")(y)
    return kit.Model(x, y)


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
@pytest.mark.parametrize("kit", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_a_cell_of_an_unknown_class(kit, suffix, tmp_path):
    path, own = tmp_path / f"a{suffix}", with_cells(kit)
    own.save(path)
    found = rl.load(path)
    assert list(found.undecided) == ["one", "two", "both"] and not found.refused
    with pytest.raises(rl.SpecError, match="class 'OwnLSTM', read as LSTMCell"):
        found["one"]
    for accepted in ({"OwnLSTM": "LSTMCell", "OwnGate": "GRUCell"},
                     {"OwnLSTM": "LSTM", "OwnGate": "GRU"}):  # fmt: skip
        found = rl.load(path, as_class=accepted)
        assert list(found) == ["one", "two", "both"] and has_arrays(found, own)
