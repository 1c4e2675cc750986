"""RNNs of which a file does not record everything: listed with what is known, and asked about; or
an option of Keras is assumed, and a note says so."""

import pickle

import h5py
import numpy as np
import pytest
import tf_keras
from oracles import some
from oracles.frameworks import N, T, normal, seeded

import rnnlayout as rl

I, H = 5, 3  # noqa: E741
TORCH, CONCAT = rl.layout("torch"), rl.layout("concat", inputs="hx", z="state")


def keras_2_weights(path):
    """Write the weights of an LSTM as Keras 2.2 does: without its activations."""
    rng = np.random.default_rng(0)
    shapes = {"kernel": (I, 4 * H), "recurrent_kernel": (H, 4 * H), "bias": (4 * H,)}
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [b"lstm_1"]
        file.attrs["keras_version"] = b"2.2.4"
        group = file.create_group("lstm_1")
        names = [f"lstm_1/{leaf}:0" for leaf in shapes]
        group.attrs["weight_names"] = [name.encode() for name in names]
        for name, shape in zip(names, shapes.values(), strict=True):
            group[name] = rng.standard_normal(shape).astype("f4")
    return {}


def save_arrays(path, **rnns):
    """Write RNNs without a record. rnns: the layout and the cell of each."""
    np.savez(path, **{f"{name}.{key}": value for name, (layout, cell) in rnns.items() for key, value
                      in some.normal_weights(layout, rl.Spec(cell, I, H)).items()})  # fmt: skip


def gru_in_npz(path):
    save_arrays(path, enc=(CONCAT, "gru"))
    return {"layout": CONCAT}


def plain_in_npz(path):
    save_arrays(path, enc=(TORCH, "rnn_relu"))
    return {}


CASES = {
    "h5": ("a.h5", keras_2_weights, "recurrent_activation", {"hard_sigmoid_keras2", "sigmoid"}),
    "reset": ("a.npz", gru_in_npz, "reset", {"after", "before"}),
    "cell": ("a.npz", plain_in_npz, "cell", {"rnn_tanh", "rnn_relu"}),
}


@pytest.fixture(params=CASES)
def undecided(request, tmp_path):
    """A file, hints for it that do not answer all, and the argument that does with its values."""
    name, write, argument, values = CASES[request.param]
    hints = write(tmp_path / name)
    return tmp_path / name, hints, argument, values


def test_it_is_listed_and_only_using_it_asks(undecided):
    path, hints, argument, values = undecided
    found = rl.load(path, **hints)
    (name,) = found.undecided
    assert found.names == [name] and not found and not found.refused
    why = found.undecided[name]
    assert why.arguments == (argument,) and why.reason
    assert {(spec.input_size, spec.hidden_size) for spec in why.specs} == {(I, H)}
    assert {getattr(spec, argument) for spec in why.specs} == values
    for use in (
        lambda: found[name],
        lambda: rl.save(path.parent / "x.npz", found),
    ):
        with pytest.raises(rl.SpecError, match=f"pass {argument}='"):
            use()
    for value in values:
        assert getattr(rl.load(path, **hints, **{argument: value})[name].spec, argument) == value


def test_no_function_skips_it(undecided, tmp_path):
    path, hints, argument, values = undecided
    new = tmp_path / "new.npz"
    with pytest.raises(rl.SpecError, match=f"{argument}=.*nothing was written"):
        rl.convert_file(path, new, to="keras", **hints)
    assert not new.exists()
    compared = rl.verify(rl.load(path, **hints), rl.load(path, **hints))
    assert not compared and argument in str(compared)
    rl.convert_file(path, new, to="keras", **hints, **{argument: min(values)})
    assert getattr(next(iter(rl.load(new).values())).spec, argument) == min(values)


def test_a_file_of_two_gives_one_and_asks_for_the_other(tmp_path):
    save_arrays(tmp_path / "a.npz", a=(TORCH, "lstm"), b=(TORCH, "rnn_tanh"))
    found = rl.load(tmp_path / "a.npz")
    assert list(found) == ["a"] and found["a"].spec.cell == "lstm"
    assert list(found.undecided) == ["b"]
    with pytest.raises(rl.SpecError, match="b: these tensors do not show"):
        found["b"]
    assert rl.pack(found, prefix="a").size == found["a"].spec.num_params
    with pytest.raises(rl.SpecError, match=r"written: convert the others with only=\['a'\]"):
        rl.convert_file(tmp_path / "a.npz", tmp_path / "b.npz", to="keras")
    with pytest.raises(rl.SpecError, match="b: these tensors do not show"):
        rl.load(tmp_path / "a.npz", dtype="float64")["b"]


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
NAMES = ("kernel", "recurrent_kernel", "bias")


def model_of(layer):
    tf_keras.utils.set_random_seed(1)
    return tf_keras.Sequential([tf_keras.Input((None, I)), layer])


def weights_file(model, suffix, folder):
    """Write the weights of a model's only layer; return the path and what load() needs."""
    path = folder / f"model{suffix}"
    arrays = model.get_weights()
    if suffix == ".index":
        model.save_weights(folder / "model", save_format="tf")
    elif suffix in (".h5", ".weights.h5"):
        model.save_weights(path)
    elif suffix == ".npz":
        np.savez(path, *arrays)
        return path, {"layout": "keras"}
    elif suffix == ".pkl":
        path.write_bytes(pickle.dumps(dict(zip(NAMES, arrays, strict=True))))
    return path, {}


@pytest.mark.parametrize("suffix", [".index", ".npz", ".pkl", ".h5", ".weights.h5"])
def test_activations_are_assumed_with_a_note(suffix, tmp_path):
    """A hard_sigmoid GRU ran with sigmoid, 0.014 off, and only for .h5 a note said so."""
    layer = tf_keras.layers.GRU(H, recurrent_activation="hard_sigmoid", return_sequences=True)
    model = model_of(layer)
    path, hints = weights_file(model, suffix, tmp_path)
    x = normal(seeded("assumed"), N, T, I)
    expected = model(x).numpy()
    # |y| <= 1; a step rounds sums of I + H + 2 products and biases, none above 4 here
    error = T * (I + H + 2) * 4 * np.finfo("f4").eps

    def off(found):
        (weights,) = found.values()
        return np.abs(rl.RNN(weights, batch_first=True)(x)[0] - expected).max()

    found = rl.load(path, **hints)
    assert off(found) > 100 * error
    (note,) = found.notes
    assert (
        "Keras's config: activation tanh, recurrent activation sigmoid, go_backwards=False assumed;"
        " for others pass activation=, recurrent_activation= or set weights.config in Python"
        in note
    )
    found = rl.load(path, **hints, **HARD)
    assert off(found) < error
    (note,) = found.notes
    assert "Keras's config: activation tanh, go_backwards=False assumed" in note
    assert "pass activation= or set weights.config in Python" in note
    (note,) = rl.load(path, **hints, **HARD, activation="tanh").notes
    assert "Keras's config: go_backwards=False assumed; for others set weights.config" in note


@pytest.mark.parametrize("suffix", [".index", ".h5", ".weights.h5"])
def test_a_lost_merge_mode_is_named(suffix, tmp_path):
    inner = tf_keras.layers.LSTM(H, return_sequences=True, go_backwards=True)
    model = model_of(tf_keras.layers.Bidirectional(inner, merge_mode="sum"))
    found = rl.load(weights_file(model, suffix, tmp_path)[0])
    (weights,) = found.values()
    (note,) = found.notes
    assert "sigmoid, go_backwards=False, merge_mode='concat' assumed" in note
    x = normal(seeded("assumed"), N, T, I)
    weights.config |= {"go_backwards": True, "merge_mode": "sum"}  # the repair
    error = 2 * T * (I + H + 1) * 4 * np.finfo("f4").eps  # of two directions, as above
    ours = rl.RNN(weights, batch_first=True)(x)[0]
    assert np.abs(ours - model(x).numpy()).max() < error


def test_several_rnns_share_a_note(tmp_path):
    layers = tf_keras.layers
    model = model_of(layers.LSTM(H, return_sequences=True))
    model.add(layers.Bidirectional(layers.LSTM(H, return_sequences=True)))
    model.add(layers.SimpleRNN(H, name="plain"))
    path, _ = weights_file(model, ".index", tmp_path)
    found = rl.load(path, cell="rnn_tanh")
    (note,) = found.notes
    assert len(found) == 3 and "merge_mode" in note
    (plain,) = rl.load(path, cell="rnn_tanh", prefix="layer_with_weights-2").notes
    assert "Keras's config: go_backwards=False assumed" in plain and "activation" not in plain


@pytest.mark.parametrize("suffix", [".h5", ".keras", ".npz", ".weights.h5", "legacy .h5"])
def test_nothing_is_assumed_where_it_is_recorded(suffix, tmp_path):
    model = model_of(tf_keras.layers.GRU(H, recurrent_activation="hard_sigmoid"))
    path = tmp_path / f"model{suffix}"
    hint = {}
    if suffix == "legacy .h5":
        path, _ = weights_file(model, ".h5", tmp_path)
        hint = {"config": model.to_json()}
    elif suffix in (".h5", ".keras"):
        model.save(path)
    else:
        rl.save(path, rl.Weights(model.layers[0]))
    found = rl.load(path, **hint)
    (weights,) = found.values()
    assert weights.spec.recurrent_activation == "hard_sigmoid_keras2" and not found.notes
