"""What load() returns of RNNs of which a file does not record everything: they are listed beside
those that are decided, and asked about; or an option of Keras is assumed, and a note says so."""

import pickle
from collections.abc import Mapping

import numpy as np
import pytest
import tf_keras
import torch
from files.keras.old_models import write_arrays
from oracles import some
from oracles.frameworks import N, T, normal, seeded
from oracles.some import same_bits

import rnnlayout as rl

I, H = 5, 3  # noqa: E741
CONCAT = rl.layout("concat", inputs="hx", z="state")


def arrays(cell, layout=rl.layout("torch")):  # noqa: B008
    return some.normal_weights(layout, rl.Spec(cell, I, H))


LSTM, PLAIN = arrays("lstm"), arrays("rnn_tanh")
BAD = {**LSTM, "weight_hh_l0": LSTM["weight_hh_l0"][:-1]}


def save_arrays(path, **rnns):
    """Write RNNs without a record."""
    np.savez(path, **{f"{n}.{k}": array for n, one in rnns.items() for k, array in one.items()})
    return path


# -------------------------------------------------------------------------------------- a mapping


@pytest.fixture
def found(tmp_path):
    return rl.load(save_arrays(tmp_path / "a.npz", a=LSTM, b=PLAIN, c=BAD))


def test_it_was_not_a_mapping_if_one_rnn_is_undecided(found):
    """dict(found), .items() and .get("b") raised an error, and "b" in found was true."""
    assert isinstance(found, Mapping)
    assert list(found) == list(found.keys()) == list(dict(found)) == ["a"]
    assert len(found) == 1 and bool(found)
    assert found == dict(found) == {**found} and found != {}
    ((name, weights),) = found.items()
    assert name == "a" and same_bits(weights.tensors, LSTM) and [*found.values()] == [weights]
    for name in "bc":
        assert name not in found and found.get(name) is None and found.get(name, 7) == 7
    assert list(found.undecided) == ["b"] and list(found.refused) == ["c"]
    for name, error, says in (
        ("b", rl.UndecidedError, r"b: .*pass cell='rnn_tanh'"),
        ("c", rl.LayoutError, r"c: .*weight_hh_l0"),
        ("d", rl.UnknownNameError, "'a', 'b', 'c'"),
    ):
        with pytest.raises(error, match=says):
            found[name]


@pytest.mark.parametrize("name", ["encoder", "encodr", "state_dict.encoder.lstm", "", 0, None])
def test_a_name_that_does_not_exist_was_a_bare_key_error(tmp_path, name):
    model = torch.nn.ModuleDict({"encoder": torch.nn.LSTM(I, H), "decoder": torch.nn.GRU(I, H)})
    torch.save({"state_dict": model.state_dict()}, tmp_path / "m.pt")
    found = rl.load(tmp_path / "m.pt")
    with pytest.raises(KeyError) as caught:
        found[name]
    text = str(caught.value)
    assert isinstance(caught.value, rl.UnknownNameError) and isinstance(caught.value, rl.Error)
    assert f"no RNN is named {name!r}" in text
    assert "'state_dict.encoder', 'state_dict.decoder'" in text
    meant = name in ("encoder", "encodr", "state_dict.encoder.lstm")
    assert ("; did you mean 'state_dict.encoder'? There are 'state_dict.e" in text) == meant
    assert found.get(name) is None and name not in found


# ------------------------------------------------------------------------------ what is asked about


def keras_2_weights(path):
    """Write the weights of an LSTM as Keras 2.2 does: without its activations."""
    made = {f"lstm_1/{name}": array for name, array in arrays("lstm", rl.layout("keras")).items()}
    write_arrays(path, {"lstm_1": made}, "2.2.4")


# A function that writes a file, hints that do not answer all, the argument that does, its values.
CASES = {
    "a.h5": (keras_2_weights, {}, "recurrent_activation", {"hard_sigmoid_keras2", "sigmoid"}),
    "reset.npz": (lambda path: save_arrays(path, enc=arrays("gru", CONCAT)), {"layout": CONCAT},
                  "reset", {"after", "before"}),
    "cell.npz": (lambda path: save_arrays(path, enc=PLAIN), {}, "cell", {"rnn_tanh", "rnn_relu"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_is_listed_and_only_using_it_asks(name, tmp_path):
    path, new, (write, hints, argument, values) = tmp_path / name, tmp_path / "x.npz", CASES[name]
    write(path)
    found = rl.load(path, **hints)
    (name,) = found.undecided
    assert found.names == [name] and not found and not found.refused
    why = found.undecided[name]
    assert why.arguments == (argument,) and why.reason
    assert {(spec.input_size, spec.hidden_size) for spec in why.specs} == {(I, H)}
    assert {getattr(spec, argument) for spec in why.specs} == values
    for use in (
        lambda: found[name],
        lambda: rl.save(new, found),
        lambda: rl.convert_file(path, new, to="keras", **hints),
    ):
        with pytest.raises(rl.SpecError, match=f"{argument}='"):
            use()
    assert not new.exists()
    compared = rl.verify(found, rl.load(path, **hints))
    assert not compared and argument in str(compared)
    for value in values:
        assert getattr(rl.load(path, **hints, **{argument: value})[name].spec, argument) == value
        rl.convert_file(path, new, to="keras", **hints, **{argument: value}, force=True)
        assert getattr(next(iter(rl.load(new).values())).spec, argument) == value


def test_a_spec_that_does_not_mention_the_activation_does_not_decide_it(tmp_path):
    """sigmoid is a Spec's default: the question remains until it is answered."""
    path = tmp_path / "a.h5"
    keras_2_weights(path)
    spec = rl.Spec("lstm", I, H)
    with pytest.raises(rl.SpecError, match="recurrent_activation='sigmoid'"):
        rl.load(path, spec)["lstm_1"]
    assert rl.load(path, spec, recurrent_activation="sigmoid")["lstm_1"].spec == spec
    hard = spec.replace(recurrent_activation="hard_sigmoid_keras2")
    assert rl.load(path, hard)["lstm_1"].spec == hard


# --------------------------------------------------------------------- what is assumed, with a note


HARD = {"recurrent_activation": "hard_sigmoid_keras2"}
# |y| <= 1; a step rounds sums of I + H + 2 products and biases, none above 4 here
ERROR = T * (I + H + 2) * 4 * np.finfo("f4").eps


def model_of(*layers):
    tf_keras.utils.set_random_seed(1)
    return tf_keras.Sequential([tf_keras.Input((None, I)), *layers])


def weights_file(model, suffix, folder):
    """Write the weights of a model's layers; return the path and what load() needs."""
    path, arrays = folder / f"model{suffix}", model.get_weights()
    if suffix == ".index":
        model.save_weights(folder / "model", save_format="tf")
    elif suffix in (".h5", ".weights.h5"):
        model.save_weights(path)
    elif suffix == ".npz":
        np.savez(path, *arrays)
    else:
        names = ("kernel", "recurrent_kernel", "bias")
        path.write_bytes(pickle.dumps(dict(zip(names, arrays, strict=True))))
    return path, {"layout": "keras"} if suffix == ".npz" else {}


def off(found, model):
    """Return how much the outputs of the only RNN differ from the model's."""
    x, (weights,) = normal(seeded("assumed"), N, T, I), found.values()
    return np.abs(rl.RNN(weights, batch_first=True)(x)[0] - model(x).numpy()).max()


@pytest.mark.parametrize("suffix", [".index", ".npz", ".pkl", ".h5", ".weights.h5"])
def test_activations_are_assumed_with_a_note(suffix, tmp_path):
    """A hard_sigmoid GRU ran with sigmoid, 0.014 off, and only for .h5 a note said so."""
    layer = tf_keras.layers.GRU(H, recurrent_activation="hard_sigmoid", return_sequences=True)
    model = model_of(layer)
    path, hints = weights_file(model, suffix, tmp_path)
    assert off(rl.load(path, **hints), model) > 100 * ERROR
    assert off(rl.load(path, **hints, **HARD), model) < ERROR
    for told, assumed in (
        ({}, "activation tanh, recurrent activation sigmoid, go_backwards=False, no mask assumed;"
             " for others pass activation=, recurrent_activation= or set weights.config in Python"),
        (HARD, "activation tanh, go_backwards=False, no mask assumed; for others pass activation="
               " or set weights.config in Python"),
        (HARD | {"activation": "tanh"}, "go_backwards=False, no mask assumed; for others"),
    ):  # fmt: skip
        note, *_ = rl.load(path, **hints, **told).notes
        assert f"Keras's config: {assumed}" in note


@pytest.mark.parametrize("suffix", [".index", ".h5", ".weights.h5"])
def test_a_lost_merge_mode_is_named(suffix, tmp_path):
    inner = tf_keras.layers.LSTM(H, return_sequences=True, go_backwards=True)
    model = model_of(tf_keras.layers.Bidirectional(inner, merge_mode="sum"))
    found = rl.load(weights_file(model, suffix, tmp_path)[0])
    (weights,), (note, *_) = found.values(), found.notes
    assert "sigmoid, go_backwards=False, no mask, merge_mode='concat' assumed" in note
    weights.config |= {"go_backwards": True, "merge_mode": "sum"}  # the repair
    assert off(found, model) < 2 * ERROR  # of two directions


@pytest.mark.parametrize("suffix", [".h5", ".keras", ".npz", ".weights.h5", "legacy .h5"])
def test_nothing_is_assumed_where_it_is_recorded(suffix, tmp_path):
    model = model_of(tf_keras.layers.GRU(H, recurrent_activation="hard_sigmoid"))
    path, hint = tmp_path / f"model{suffix}", {}
    if suffix == "legacy .h5":
        path, _ = weights_file(model, ".h5", tmp_path)
        hint = {"keras_config": model.to_json()}
    elif suffix in (".h5", ".keras"):
        model.save(path)
    else:
        rl.save(path, rl.Weights(model.layers[0]))
    found = rl.load(path, **hint)
    (weights,) = found.values()
    assert weights.spec.recurrent_activation == "hard_sigmoid_keras2" and not found.notes
