"""verify: files and sources of any layout, gate by gate."""

import json
import shlex
import warnings

import numpy as np
import pytest
import torch
from oracles.some import normal_weights, prefixed

import rnnlayout as rl

SPEC = rl.Spec("lstm", 3, 2, 2, True)
TORCH = normal_weights("torch", SPEC)


@pytest.fixture
def saved(tmp_path):
    """Return a function that writes an .npz and returns its path."""

    def save(name, tensors):
        np.savez(tmp_path / name, **tensors)
        return tmp_path / name

    return save


def changed(name, at, value):
    """Return TORCH with one element changed."""
    array = TORCH[name].copy()
    array[at] = value
    return {**TORCH, name: array}


def test_equal_in_whatever_layout_and_by_whatever_name(rnnlayout, saved):
    a = saved("a.npz", prefixed("encoder.rnn", TORCH))
    b = saved("b.npz", rl.convert(TORCH, to="onnx"))
    assert rnnlayout("verify", a, b) == (0, "encoder.rnn and lstm: equal\n", "")
    assert rl.verify(a, str(b)) and rl.verify(rl.load(a), b)


def test_one_element(rnnlayout, saved):
    a = saved("a.npz", TORCH)
    b = saved("b.npz", changed("weight_hh_l1_reverse", (5, 1), 7.5))
    value = float(TORCH["weight_hh_l1_reverse"][5, 1])
    code, out, err = rnnlayout("verify", a, b)
    assert (code, err) == (1, "")
    first, second = out.splitlines()
    assert first.startswith("lstm: 1 of 64 blocks differ between a (layout('torch')"[:26])
    assert second.startswith("  layer 1 backward, recurrent matrix of gate g: 1 of 4 differ,")
    assert second.endswith(f"at (1, 1): {value:.7f} and 7.5")
    (pair,) = json.loads(rnnlayout("verify", a, b, "--json")[1])["pairs"]
    assert pair["blocks"] == [{
        "layer": 1, "direction": 1, "role": "R", "gate": "g", "differ": 1, "size": 4,
        "largest": 7.5 - value, "at": [1, 1], "values": [value, 7.5],
    }]  # fmt: skip
    assert rnnlayout("verify", a, b, "--atol", 7.5 - value + 1e-6)[0] == 0


def test_merged_biases_are_compared_as_sums(rnnlayout, saved):
    cell = normal_weights("torch-cell", rl.Spec("lstm", 3, 2))
    a, b = saved("a.npz", cell), saved("b.npz", rl.convert(cell, to="keras"))
    said = "one has one bias per gate, the other two: their sums are compared"
    assert rnnlayout("verify", a, b) == (0, f"lstm: equal\n  {said}\n", "")


def test_several(rnnlayout, saved):
    both = prefixed("enc", TORCH) | prefixed("dec", changed("bias_ih_l0", 0, 3))
    a, b = saved("a.npz", both), saved("b.npz", both | prefixed("more", TORCH))
    assert rnnlayout("verify", a, b) == (1, "enc: equal\ndec: equal\nmore: only in b\n", "")
    assert rl.verify(b, a).only_a == ("more",)


def test_sources_that_are_no_files():
    weights = rl.Weights(TORCH)
    assert rl.verify(TORCH, weights.to("cudnn")) and rl.verify({"x": weights}, TORCH)
    weights.config = {"go_backwards": True}
    assert str(rl.verify(weights, TORCH)) == (
        "equal\n  used with go_backwards=True in a and nothing more in b"
    )


def test_a_stack_and_its_layers(rnnlayout, tmp_path):
    """In Keras each layer of a stack is an RNN, and names contain no dot."""
    whole = rl.Weights(TORCH)
    entries = {"enc.rnn": whole, "one.more": rl.Weights(torch.nn.GRU(3, 2))}
    a, b = tmp_path / "a.safetensors", tmp_path / "b.keras"
    rl.save(a, entries)
    rl.save(b, {one: w.to("keras") for one, w in entries.items()})
    assert not {*entries} & {*rl.load(b)}
    for first, second in ((a, b), (b, a)):
        code, out, _ = rnnlayout("verify", first, second)
        assert code == 0 and out.count("equal") == 2, out
    rl.save(tmp_path / "one.safetensors", whole)  # by no name
    rl.save(tmp_path / "any.keras", {"any": whole.to("keras")})
    assert rnnlayout("verify", tmp_path / "one.safetensors", tmp_path / "any.keras")[0] == 0
    # each in the layer that it is in, bottom first
    parts = whole.split()
    turned = {"x_0": parts[0], "x_1": rl.Weights(changed("bias_hh_l1", 0, 7)).split()[1]}
    other = rl.Weights({name: array.copy() for name, array in whole.items()})
    found = rl.verify({"x": whole, "y": other}, turned)
    assert "layer 1 forward, recurrent bias of gate i" in str(found) and found.only_a == ("y",)
    for wrong in ({"x_0": parts[0]}, {"x_0": parts[0], "x_2": parts[1]},
                  {"x_0": parts[1], "x_1": parts[0]}):  # fmt: skip
        assert rl.verify({"x": whole, "y": other}, wrong).only_b == tuple(wrong)


def test_layers_that_are_used_otherwise_are_no_stack():
    parts = rl.Weights(TORCH).split()
    parts[0].config["merge_mode"] = "sum"
    found = rl.verify({"x": rl.Weights(TORCH)}, {"x_0": parts[0], "x_1": parts[1]})
    assert found.only_a == ("x",) and found.only_b == ("x_0", "x_1")


def test_hard_sigmoids_that_are_not_equal(saved):
    """The gates are compared times 1.2, candidates and projections as they are."""
    spec = rl.Spec("lstm", 3, 2, recurrent_activation="hard_sigmoid_keras2")
    new = spec.replace(recurrent_activation="hard_sigmoid")
    weights = normal_weights("keras", spec)
    factors = np.repeat([1.2, 1.2, 1, 1.2], 2)  # of the gates i, f, g, o
    scaled = {name: (array * factors).astype("f4") for name, array in weights.items()}
    a, b = rl.Weights(weights, spec, "keras"), rl.Weights(scaled, new, "keras")
    assert rl.verify(a, b) and "compared times 1.2" in str(rl.verify(b, a))
    scaled["kernel"][0, 4] += 1
    found = rl.verify(a, rl.Weights(scaled, new, "keras"))
    assert [gap.key[2:] for gap in found.pairs[0].gaps] == [("W", "g")]
    assert not rl.verify(a, rl.Weights(weights, new, "keras"))
    assert not rl.verify(a, rl.Weights(weights, spec.replace(recurrent_activation="sigmoid")))


def test_relu_and_tanh_are_two_networks(rnnlayout, tmp_path):
    """The weights are the same bits, which the arrays of a .npz do not tell apart."""
    relu = rl.Spec("lstm", 3, 2, activation="relu")
    weights = normal_weights("keras", relu)
    np.savez(tmp_path / "a.npz", **{f"lstm/{name}": a for name, a in weights.items()})
    rl.save(tmp_path / "b.onnx", rl.Weights(weights, relu).to("onnx"))
    files = tmp_path / "a.npz", tmp_path / "b.onnx"
    code, out, err = rnnlayout("verify", *files)
    assert (code, err) == (1, "") and "two different RNNs" in out
    assert "activation tanh and relu" in out
    assert rnnlayout("verify", *files, "--activation", "relu")[0] == 0


def test_hints_are_for_the_file_that_needs_them(rnnlayout, saved, tmp_path):
    flat = tmp_path / "flat.npy"
    np.save(flat, rl.pack(TORCH))
    a = saved("a.npz", TORCH)
    for pair in ((a, flat), (flat, a)):
        assert rnnlayout("verify", *pair, "--spec", str(SPEC))[0] == 0
    assert rnnlayout("verify", flat, flat)[0] == 3
    code, _, err = rnnlayout("verify", a, a, "--cell", "gru")
    assert code == 3 and "weight_ih_l0: shape (8, 3), expected (6, 3)" in err
    with pytest.raises(rl.SpecError, match=r"pass layout to load\(\) or Weights\(\)"):
        rl.verify(rl.load(a), rl.Weights(TORCH), layout="torch")


def test_a_prefix_is_for_the_side_with_names(saved):
    path = saved("a.npz", prefixed("enc", TORCH) | prefixed("dec", changed("bias_hh_l0", 0, 9.0)))
    for source in (rl.Weights(TORCH), rl.pack(TORCH)):
        spec = None if isinstance(source, rl.Weights) else SPEC
        assert rl.verify(source, path, prefix="enc", spec=spec)
        assert not rl.verify(source, path, prefix="dec", spec=spec)


def test_another_rnn_that_does_not_record_everything_is_asked_for(rnnlayout, saved):
    """It was read with the other's spec, which does not fit, and the answer was about shapes."""
    a = saved("a.npz", TORCH)
    b = saved("b.npz", normal_weights("torch", rl.Spec("rnn_tanh", 3, 2)))
    for first, second, side in ((a, b, "b"), (b, a, "a")):
        code, out, err = rnnlayout("verify", first, second)
        assert (code, out) == (3, "")
        assert err.startswith(f"error: {side}: ") and "pass --cell rnn_tanh or --cell rnn_r" in err
        code, out, err = rnnlayout("verify", first, second, "--cell", "rnn_tanh")
        assert (code, err) == (1, "") and "two different RNNs" in out


class _OneAfterTheOther(torch.nn.ModuleDict):
    def forward(self, x):
        for rnn in self.values():
            x, _ = rnn(x)
        return x


def export(model, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the exporter's age, and batch sizes
        torch.onnx.export(model, (torch.zeros(4, 2, 3),), path, dynamo=False)


@pytest.mark.parametrize("suffix, layers", [(".h5", 1), (".keras", 2), (".weights.h5", 2)])
def test_names_that_our_conversion_changed_are_matched(rnnlayout, tmp_path, suffix, layers):
    """Keras allows no slashes in names: /enc/LSTM is written as _enc_LSTM."""
    rnns = {"enc": torch.nn.LSTM(3, 2, layers), "dec": torch.nn.GRU(2, 4, layers)}
    model, new = tmp_path / "m.onnx", tmp_path / f"new{suffix}"
    export(_OneAfterTheOther(rnns), model)
    torch.save(_OneAfterTheOther(rnns).state_dict(), tmp_path / "m.pt")
    for pair in ((tmp_path / "m.pt", model), (model, tmp_path / "m.pt")):
        code, out, _ = rnnlayout("verify", *pair)
        assert code == 0 and out.count(": equal\n") == 2, out
    assert rnnlayout("convert", model, new, "--to", "keras")[0] == 0
    assert not {*rl.load(model)} & {*rl.load(new)}
    for pair in ((model, new), (new, model)):
        code, out, err = rnnlayout("verify", *pair)
        assert (code, err) == (0, "") and out.count(": equal\n") == 2 * layers, out


def test_what_may_be_the_same_under_another_name_is_suggested(rnnlayout, saved):
    """The suggestion works as it is printed. RNNs of one shape are paired if they are equal."""
    gru, more = (normal_weights("torch", rl.Spec("gru", 3, 2), k) for k in (0, 1))
    a = saved("a.npz", prefixed("enc", TORCH) | prefixed("x y", gru) | prefixed("z", more))
    new = changed("bias_hh_l0", 0, 7)
    b = saved("b.npz", prefixed("c", more) | prefixed("d", gru) | prefixed("first", new))
    code, out, err = rnnlayout("verify", a, b)
    *_, last = out.splitlines()
    assert (code, err) == (1, "")
    told = '--map enc=first --map "x y=d" --map z=c'
    assert last == f"pass {told} if these are the same RNNs"
    code, out, err = rnnlayout("verify", a, b, *shlex.split(told))
    assert out.count(": equal") == 2 and "enc and first: 1 of 64 blocks differ" in out
    found = rl.verify(a, b, map={"z": "c"})
    assert rl.verify(a, b, map=found.alike, atol=10) and str(found.alike) in str(found)
    lone = saved("lone.npz", prefixed("any", more) | prefixed("enc", TORCH))
    same = prefixed("x", gru) | prefixed("y", gru) | prefixed("enc", TORCH)
    assert "pass --map" not in rnnlayout("verify", saved("c.npz", same), lone)[1]


class CalledTwice(torch.nn.Module):
    """A module with two names, which is called twice."""

    def __init__(self, layers):
        super().__init__()
        self.rnn = self.alias = torch.nn.LSTM(3, 3, layers)

    def forward(self, x):
        return self.rnn(self.rnn(x)[0])[0]


@pytest.mark.parametrize("layers", [1, 2])
def test_a_module_that_is_called_twice_is_one_rnn(rnnlayout, tmp_path, layers):
    """The second call was "only in b", and a module against two nodes of one name had no pair."""
    model, file, onnx = CalledTwice(layers), tmp_path / "m.pt", tmp_path / "m.onnx"
    torch.save(model.state_dict(), file)
    export(model, onnx)
    code, out, _ = rnnlayout("verify", file, onnx)
    assert code == 0 and "alias in a: rnn again\n/rnn_1/LSTM in b: /rnn/LSTM again\n" in out
    assert rl.verify(model, onnx) and rl.verify(file, model) and rl.diagnose(onnx, like=model)
    tensors = {name: array.numpy() for name, array in model.state_dict().items()}
    np.savez(tmp_path / "m.npz", **tensors)  # equal, but not the same arrays
    found = rl.verify(tmp_path / "m.npz", onnx)
    assert found.only_a == ("alias",) and not found
    tensors["alias.weight_hh_l0"] = tensors["alias.weight_hh_l0"] + 1
    np.savez(tmp_path / "m.npz", **tensors)
    found = rl.verify(file, tmp_path / "m.npz")
    assert not found and [pair.name for pair in found.pairs if pair] == ["alias"]
