"""Layers and cells of a user's own class that extends one of Keras's: listed, and read if the user
asks."""

import itertools
import shlex

import keras
import pytest
import tf_keras
from files.keras.comparison import same_arrays
from oracles.frameworks import KERAS_NOISE

import rnnlayout as rl
from rnnlayout._cli import main as _cli

pytestmark = KERAS_NOISE
T, WIDTH, UNITS = 4, 5, 3


def model(kit, registered):
    """Return a model with layers and cells of a user's classes, and a GRU."""
    layers, options = kit.layers, {"return_sequences": True}
    own = type("OwnLSTM", (layers.LSTM,), {})
    if registered:
        kit.saving.register_keras_serializable("mine")(own)
    cell, gated = (type(f"Own{one.__name__}", (one,), {}) for one in
                   (layers.LSTMCell, layers.GRUCell))  # fmt: skip
    x = layers.Input((T, WIDTH))
    y = own(UNITS, **options, name="own")(x)
    with kit.utils.custom_object_scope({one.__name__: one for one in (own, cell, gated)}):
        y = layers.Bidirectional(own(UNITS, **options), name="both")(y)
        y = layers.RNN(cell(UNITS), **options, name="one")(y)
        y = layers.RNN([gated(UNITS), gated(UNITS)], **options, name="two")(y)
        y = layers.Bidirectional(layers.RNN(cell(UNITS), **options), name="cells")(y)
    return kit.Model(x, layers.GRU(UNITS, name="gru")(y))


@pytest.mark.parametrize("kit, suffix", [
    *itertools.product((keras, tf_keras), (".h5", ".keras")), (keras, ".weights.h5"),
])  # fmt: skip
def test_a_layer_of_convolutions_is_refused_by_name(kit, suffix, tmp_path):
    """The file was said to have no recurrent layer; beside an LSTM nothing was said."""
    layers, path = kit.layers, tmp_path / f"a{suffix}"
    conv, both = layers.ConvLSTM2D(3, 2, name="conv"), layers.ConvLSTM1D(2, 2, name="one")
    top = layers.LSTM(UNITS, name="enc")
    made = kit.Sequential([
        layers.Input((T, 6, 6, 2)), conv, layers.Reshape((5, 5, 3)), layers.Bidirectional(both),
        layers.Reshape((4, 4)), top,
    ])  # fmt: skip
    (made.save_weights if "weights" in suffix else made.save)(path)
    found = rl.load(path)
    assert [*found] == ["enc"] and not found.undecided and len(found.refused) == 2
    assert same_arrays(found["enc"], top.get_weights())
    class_name = "kernel: shape (2, 2, 2, 12)" if "weights" in suffix else "class 'ConvLSTM2D'"
    assert class_name in str(found.refused["conv"])
    if suffix == ".weights.h5":
        (tmp_path / "config.json").write_text(made.to_json())
        found = rl.load(path, keras_config=tmp_path / "config.json")
        assert [*found] == ["enc"] and "class 'ConvLSTM2D'" in str(found.refused["conv"])


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
@pytest.mark.parametrize("kit", [keras, tf_keras])
def test_a_subclass_of_rnn_is_refused_by_name(kit, suffix, tmp_path):
    """In a .keras file alone it was read as the cell inside; the others have no recurrent layer."""
    own = kit.saving.register_keras_serializable("mine")(type("OwnRNN", (kit.layers.RNN,), {}))
    path, layer = tmp_path / f"a{suffix}", own(kit.layers.LSTMCell(UNITS), name="own")
    kit.Sequential([kit.layers.Input((T, WIDTH)), layer]).save(path)
    with pytest.raises(rl.LossyError, match=r"'own' is a recurrent layer of class 'mine>OwnRNN'"):
        rl.load(path)
    (loaded,) = kit.models.load_model(path).layers  # as the error says
    assert same_arrays(rl.Weights(loaded), layer.get_weights())


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
@pytest.mark.parametrize("kit, registered", [
    (keras, False), (keras, True), (tf_keras, False),
], ids=["keras", "keras-registered", "tf_keras"])  # fmt: skip
def test_it_is_listed_and_read_if_accepted(kit, registered, suffix, tmp_path, capsys):
    path, new = tmp_path / f"a{suffix}", tmp_path / "new.npz"
    made = model(kit, registered)
    made.save(path)
    own = "mine>OwnLSTM" if registered else "OwnLSTM"
    found = rl.load(path)
    assert list(found) == ["gru"] and not found.refused and not found.others
    assert list(found.undecided) == ["own", "both", "one", "two", "cells"]
    with pytest.raises(rl.SpecError, match="class 'OwnLSTMCell', read as LSTMCell"):
        found["one"]
    assert _cli.main(["inspect", str(path)]) == 0
    text = capsys.readouterr().out
    assert f"class '{own}', read as LSTM; pass --as-class {shlex.quote(f'{own}=LSTM')}" in text
    assert f"input {WIDTH}, hidden {UNITS}" in text and "tensors of no RNN" not in text

    for cells in ({"OwnLSTMCell": "LSTMCell", "OwnGRUCell": "GRUCell"},
                  {"OwnLSTMCell": "LSTM", "OwnGRUCell": "GRU"}):  # fmt: skip
        accepted = {own: "LSTM"} | cells
        found = rl.load(path, as_class=accepted)
        assert list(found) == ["own", "both", "one", "two", "cells", "gru"]
        for name, weights in found.items():
            assert same_arrays(weights, made.get_layer(name).get_weights())
    options = [f"--as-class={name}={known}" for name, known in accepted.items()]
    assert _cli.main(["convert", str(path), str(new), "--to", "torch", *options]) == 0
    assert list(rl.load(new)) == list(found)
    for wrong in ({own: ["LSTM"]}, "LSTM"):
        with pytest.raises(rl.SpecError, match="need a dict"):
            rl.load(path, as_class=wrong)


@pytest.mark.parametrize("name, difference", [
    ("PeepholeLSTMCell", "peepholes"), ("LayerNormLSTMCell", "normalizes"),
    ("ZoneoutLSTMCell", "old state"), ("GRUD", "decays with time"),
])  # fmt: skip
@pytest.mark.parametrize("kit, suffix", [(keras, ".keras"), (keras, ".h5"), (tf_keras, ".h5")])
def test_a_class_that_computes_something_else(kit, suffix, name, difference, tmp_path, capsys):
    """as_class= was offered for them. Here the name alone shows it: it has no further tensors."""
    base = kit.layers.GRUCell if name == "GRUD" else kit.layers.LSTMCell
    cell = type(name, (base,), {})
    kit.saving.register_keras_serializable("Addons")(cell)
    x = kit.layers.Input((T, WIDTH))
    path = tmp_path / f"a{suffix}"
    y = kit.layers.RNN(cell(UNITS), return_sequences=True, name="rnn")(x)
    kit.Model(x, kit.layers.LSTM(UNITS, name="plain")(y)).save(path)
    found = rl.load(path)
    assert list(found) == ["plain"] and not found.undecided
    error = str(found.refused["rnn"])
    assert f"class 'Addons>{name}' is not supported" in error and difference in error
    assert "as_class" not in error
    assert _cli.main(["inspect", str(path)]) == 0
    assert "--as-class" not in capsys.readouterr().out
    read_as = base.__name__
    assert list(rl.load(path, as_class={f"Addons>{name}": read_as})) == ["rnn", "plain"]
