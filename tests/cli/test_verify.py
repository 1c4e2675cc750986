"""verify: files and sources of any layout, gate by gate."""

import json
import warnings
import weakref

import numpy as np
import pytest
import torch
from cli.files import LSTM
from oracles.some import normal_weights, prefixed

import rnnlayout as rl
from rnnlayout._compare import sides

SPEC = rl.Spec("lstm", 3, 2, 2, True)
TORCH = normal_weights("torch", SPEC)


def changed(name, at, value):
    """Return TORCH with one element changed."""
    array = TORCH[name].copy()
    array[at] = value
    return {**TORCH, name: array}


def test_equal_in_whatever_layout_and_by_whatever_name(rnnlayout, folder):
    np.savez("a.npz", **prefixed("encoder.rnn", TORCH))
    np.savez("b.npz", **rl.convert(TORCH, to="onnx"))
    assert rnnlayout("verify a.npz b.npz") == (0, "encoder.rnn and lstm: equal\n", "")
    assert rl.verify("a.npz", "b.npz") and rl.verify(rl.load("a.npz"), "b.npz")
    weights = rl.Weights(TORCH)
    assert rl.verify(TORCH, weights.to("cudnn")) and rl.verify({"x": weights}, TORCH)
    weights.config = {"go_backwards": True}
    assert str(rl.verify(weights, TORCH)) == (
        "equal\n  used with go_backwards=True in a and nothing more in b"
    )
    np.savez("b.npz", **rl.convert(LSTM, to="keras"))
    said = "one has one bias per gate, the other two: their sums are compared"
    assert rnnlayout("verify lstm.npz b.npz") == (0, f"lstm: equal\n  {said}\n", "")


def test_what_differs(rnnlayout, folder):
    """The report of one block: compare/test_testing.py."""
    np.savez("a.npz", **TORCH)
    np.savez("b.npz", **changed("weight_hh_l1_reverse", (5, 1), 7.5))
    value = float(TORCH["weight_hh_l1_reverse"][5, 1])
    code, out, err = rnnlayout("verify a.npz b.npz")
    conclusion, first, *_ = out.splitlines()
    assert (code, err) == (1, "") and first.startswith("lstm: 1 of 64 blocks differ between a (")
    assert conclusion.startswith("a.npz and b.npz are different: 1 of 240 values is changed")
    (pair,) = json.loads(rnnlayout("verify a.npz b.npz --json")[1])["pairs"]
    assert pair["blocks"] == [{
        "layer": 1, "direction": 1, "role": "R", "gate": "g", "differ": 1, "size": 4,
        "largest": 7.5 - value, "at": [1, 1], "values": [value, 7.5],
    }]  # fmt: skip
    assert rnnlayout(f"verify a.npz b.npz --atol {7.5 - value + 1e-6}")[0] == 0
    both = prefixed("enc", TORCH) | prefixed("dec", changed("bias_ih_l0", 0, 3))
    np.savez("a.npz", **both)
    np.savez("b.npz", **both, **prefixed("more", TORCH))
    told = "a.npz and b.npz are different: 1 only in b\nenc: equal\ndec: equal\nmore: only in b\n"
    assert rnnlayout("verify a.npz b.npz") == (1, told, "")
    assert rl.verify("b.npz", "a.npz").only_a == ("more",)


def test_how_two_files_are_related(rnnlayout, folder):
    """Numbers that differ need not change the outputs: only the sum of two biases matters."""
    np.savez("a.npz", **TORCH)
    halves = {f"bias_{side}_l0": TORCH["bias_hh_l0"] + 0 for side in ("ih", "hh")}
    exchanged = {f"bias_{a}_l0": TORCH[f"bias_{b}_l0"] for a, b in (("ih", "hh"), ("hh", "ih"))}
    units = np.array([1, 0])  # of layer 0: rows of each gate, columns of what reads the states
    permuted = dict(TORCH)
    for name in (name for name in TORCH if "l0" in name and "reverse" not in name):
        rows = TORCH[name].reshape(4, 2, -1)[:, units].reshape(TORCH[name].shape)
        permuted[name] = rows[:, units] if "weight_hh" in name else rows
    for name in ("weight_ih_l1", "weight_ih_l1_reverse"):
        permuted[name] = TORCH[name][:, [1, 0, 2, 3]]
    for other, relation in (
        (TORCH, "equal"), (TORCH | exchanged, "same function"), (permuted, "same function"),
        ({name: a.astype("f8") for name, a in TORCH.items()}, "same function"),
        (TORCH | halves, "different"), (normal_weights("torch", SPEC, 1), "different"),
    ):  # fmt: skip
        np.savez("b.npz", **other)
        code, out, _ = rnnlayout("verify a.npz b.npz --json")
        answer = json.loads(out)
        relations = answer["relation"], answer["pairs"][0]["relation"], code
        assert relations == (relation, relation, int(relation != "equal")), out
    reverse = rl.Weights(TORCH | exchanged)
    reverse.config = {"go_backwards": True}
    assert rl.verify(TORCH, reverse).relation == "different"
    assert str(rl.verify(TORCH, TORCH | exchanged)).startswith("a and b compute the same function")
    unrelated = str(rl.verify(TORCH, normal_weights("torch", SPEC, 1)))
    assert unrelated.startswith("a and b are different: other weights: ")
    relu = rl.Weights(normal_weights("torch", rl.Spec("rnn_relu", 3, 2)), cell="rnn_relu")
    assert str(rl.verify(TORCH, relu)).startswith("a and b are different: two different RNNs\ntwo ")


def test_a_stack_and_its_layers(rnnlayout, folder):
    """In Keras each layer of a stack is an RNN, and names contain no dot."""
    whole = rl.Weights(TORCH)
    entries = {"enc.rnn": whole, "one.more": rl.Weights(torch.nn.GRU(3, 2))}
    rl.save("a.safetensors", entries)
    rl.save("b.keras", {one: w.to("keras") for one, w in entries.items()})
    assert not {*entries} & {*rl.load("b.keras")}
    for pair in ("a.safetensors b.keras", "b.keras a.safetensors"):
        code, out, _ = rnnlayout(f"verify {pair}")
        assert code == 0 and out.count("equal") == 2, out
    rl.save("one.safetensors", whole)  # by no name
    rl.save("any.keras", {"any": whole.to("keras")})
    assert rnnlayout("verify one.safetensors any.keras")[0] == 0
    # each in the layer that it is in, bottom first
    parts = whole.split()
    turned = {"x_0": parts[0], "x_1": rl.Weights(changed("bias_hh_l1", 0, 7)).split()[1]}
    other = rl.Weights({name: array.copy() for name, array in whole.items()})
    found = rl.verify({"x": whole, "y": other}, turned)
    assert "layer 1 forward, recurrent bias of gate i" in str(found) and found.only_a == ("y",)
    merged = whole.split()[0]
    merged.config["merge_mode"] = "sum"  # it is used otherwise
    for wrong in (
        {"x_0": parts[0]}, {"x_0": parts[0], "x_2": parts[1]},
        {"x_0": parts[1], "x_1": parts[0]}, {"x_0": merged, "x_1": parts[1]},
    ):  # fmt: skip
        assert rl.verify({"x": whole, "y": other}, wrong).only_b == tuple(wrong)


def test_hard_sigmoids_that_are_not_equal():
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


def test_hints_are_for_the_file_that_needs_them(rnnlayout, folder):
    np.save("flat.npy", rl.pack(TORCH))
    np.savez("a.npz", **TORCH)
    for pair in ("a.npz flat.npy", "flat.npy a.npz"):
        assert rnnlayout(f"verify {pair} --spec '{SPEC}'")[0] == 0
    assert rnnlayout("verify flat.npy flat.npy")[0] == 3
    code, _, err = rnnlayout("verify a.npz a.npz --cell gru")
    assert code == 3 and "weight_ih_l0: shape (8, 3), expected (6, 3)" in err
    with pytest.raises(rl.SpecError, match=r"pass layout to load\(\) or Weights\(\)"):
        rl.verify(rl.load("a.npz"), rl.Weights(TORCH), layout="torch")
    # a prefix is for the side with names
    np.savez("two.npz", **prefixed("enc", TORCH), **prefixed("dec", changed("bias_hh_l0", 0, 9.0)))
    for source, spec in ((rl.Weights(TORCH), None), (rl.pack(TORCH), SPEC)):
        assert rl.verify(source, "two.npz", prefix="enc", spec=spec)
        assert not rl.verify(source, "two.npz", prefix="dec", spec=spec)
    # the weights of relu and tanh are the same bits, which the arrays of a .npz do not tell apart
    relu = rl.Spec("lstm", 3, 2, activation="relu")
    weights = normal_weights("keras", relu)
    np.savez("a.npz", **{f"lstm/{name}": a for name, a in weights.items()})
    rl.save("b.onnx", rl.Weights(weights, relu).to("onnx"))
    code, out, err = rnnlayout("verify a.npz b.onnx")
    assert (code, err) == (1, "") and "two different RNNs" in out
    assert "activation tanh and relu" in out
    assert rnnlayout("verify a.npz b.onnx --activation relu")[0] == 0


def test_a_refused_file_was_kept_while_the_other_was_read(folder, monkeypatch):
    """The error had the frames of the reader, with everything that was read."""
    read, kept = sides.load, []

    class Content:
        pass

    def read_and_refuse(path, **options):
        kept.append(sum(content() is not None for content in contents))
        content = Content()
        contents.append(weakref.ref(content))
        try:
            read(path, **options)
        except rl.FileError as error:
            raise rl.FileError(f"again: {error}") from None

    contents = []
    monkeypatch.setattr(sides, "load", read_and_refuse)
    (folder / "bad.npz").write_bytes(b"PK\3\4")
    with pytest.raises(rl.FileError, match=r"again: bad\.npz is not a zip archive"):
        rl.verify("bad.npz", "bad.npz")
    assert kept == [0, 0]


def test_another_rnn_that_does_not_record_everything_is_asked_for(rnnlayout, folder):
    """It was read with the other's spec, which does not fit, and the answer was about shapes."""
    np.savez("rnn.npz", **normal_weights("torch", rl.Spec("rnn_tanh", 3, 2)))
    for pair, side in (("lstm.npz rnn.npz", "b"), ("rnn.npz lstm.npz", "a")):
        code, out, err = rnnlayout(f"verify {pair}")
        assert (code, out) == (3, "")
        assert err.startswith(f"error: {side}: ") and "pass --cell rnn_tanh or --cell rnn_r" in err
        code, out, err = rnnlayout(f"verify {pair} --cell rnn_tanh")
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


@pytest.mark.parametrize("new, layers", [("n.h5", 1), ("n.keras", 2), ("n.weights.h5", 2)])
def test_names_that_our_conversion_changed_are_matched(rnnlayout, folder, new, layers):
    """Keras allows no slashes in names: /enc/LSTM is written as _enc_LSTM."""
    rnns = {"enc": torch.nn.LSTM(3, 2, layers), "dec": torch.nn.GRU(2, 4, layers)}
    export(_OneAfterTheOther(rnns), "m.onnx")
    torch.save(_OneAfterTheOther(rnns).state_dict(), "m.pt")
    assert rnnlayout("convert", "m.onnx", new, "--to", "keras")[0] == 0
    assert not {*rl.load("m.onnx")} & {*rl.load(new)}
    for other, count in (("m.pt", 2), (new, 2 * layers)):
        for pair in ((other, "m.onnx"), ("m.onnx", other)):
            code, out, err = rnnlayout("verify", *pair)
            assert (code, err) == (0, "") and out.count(": equal\n") == count, out


def test_what_may_be_the_same_under_another_name_is_suggested(rnnlayout, folder):
    """The suggestion works as it is printed. RNNs of one shape are paired if they are equal."""
    gru, more = (normal_weights("torch", rl.Spec("gru", 3, 2), k) for k in (0, 1))
    np.savez("a.npz", **prefixed("enc", TORCH), **prefixed("x y", gru), **prefixed("z", more))
    new = changed("bias_hh_l0", 0, 7)
    np.savez("b.npz", **prefixed("c", more), **prefixed("d", gru), **prefixed("first", new))
    code, out, err = rnnlayout("verify a.npz b.npz")
    told = '--map enc=first --map "x y=d" --map z=c'
    assert (code, err) == (1, "")
    assert out.splitlines()[-1] == f"pass {told} if these are the same RNNs"
    code, out, err = rnnlayout(f"verify a.npz b.npz {told}")
    assert out.count(": equal") == 2 and "enc and first: 1 of 64 blocks differ" in out
    found = rl.verify("a.npz", "b.npz", map={"z": "c"})
    assert rl.verify("a.npz", "b.npz", map=found.alike, atol=10) and str(found.alike) in str(found)
    np.savez("lone.npz", **prefixed("any", more), **prefixed("enc", TORCH))
    np.savez("c.npz", **prefixed("x", gru), **prefixed("y", gru), **prefixed("enc", TORCH))
    assert "pass --map" not in rnnlayout("verify c.npz lone.npz")[1]


class CalledTwice(torch.nn.Module):
    """A module with two names, which is called twice."""

    def __init__(self, layers):
        super().__init__()
        self.rnn = self.alias = torch.nn.LSTM(3, 3, layers)

    def forward(self, x):
        return self.rnn(self.rnn(x)[0])[0]


@pytest.mark.parametrize("layers", [1, 2])
def test_a_module_that_is_called_twice_is_one_rnn(rnnlayout, folder, layers):
    """The second call was "only in b", and a module against two nodes of one name had no pair."""
    model = CalledTwice(layers)
    torch.save(model.state_dict(), "m.pt")
    export(model, "m.onnx")
    code, out, _ = rnnlayout("verify m.pt m.onnx")
    assert code == 0 and "alias in a: rnn again\n/rnn_1/LSTM in b: /rnn/LSTM again\n" in out
    assert rl.verify(model, "m.onnx") and rl.verify("m.pt", model)
    assert [pair.name for pair in rl.verify("m.pt", "m.pt").pairs] == ["rnn", "alias"]
    assert rl.diagnose("m.onnx", like=model)
    tensors = {name: array.numpy() for name, array in model.state_dict().items()}
    np.savez("m.npz", **tensors)  # equal, but not the same arrays
    found = rl.verify("m.npz", "m.onnx")
    assert found.only_a == ("alias",) and not found
    tensors["alias.weight_hh_l0"] = tensors["alias.weight_hh_l0"] + 1
    np.savez("m.npz", **tensors)
    found = rl.verify("m.pt", "m.npz")
    assert not found and [pair.name for pair in found.pairs if pair] == ["alias"]
