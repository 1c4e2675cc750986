"""RNNs of which a file does not record everything: listed with what is known, and asked about."""

import json

import h5py
import keras
import numpy as np
import pytest
from oracles import some
from oracles.frameworks import KERAS_NOISE

import rnnlayout as rl
from rnnlayout._cli import main as _cli

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


def test_inspect_lists_it(undecided, capsys):
    path, hints, argument, values = undecided
    option = "--" + argument.replace("_", "-")
    more = ["--layout", str(hints["layout"])] if hints else []
    assert _cli.main(["inspect", str(path), *more]) == 0
    text = capsys.readouterr().out
    assert f"input {I}, hidden {H}" in text
    (line,) = [line for line in text.splitlines() if "undecided" in line]
    assert line.endswith(f"; pass {option}")
    assert all(value.removeprefix("rnn_") in text for value in values)
    assert _cli.main(["inspect", str(path), *more, "--json"]) == 0
    (file,) = json.loads(capsys.readouterr().out)["files"]
    (told,) = file["undecided"]
    assert told["arguments"] == [argument]
    assert {entry["spec"][argument] for entry in told["fits"]} == values


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


@KERAS_NOISE
def test_the_activation_of_a_spec_is_taken(tmp_path):
    """A file with weights alone does not record it."""
    layer = keras.layers.GRU(H, activation="relu", name="gru")
    model = keras.Sequential([keras.Input((4, I)), layer])
    model.save_weights(tmp_path / "a.weights.h5")
    spec = rl.Spec("gru", I, H, activation="relu")
    (found,) = rl.load(tmp_path / "a.weights.h5", spec).values()
    assert found.spec == spec == rl.Weights(layer).spec
