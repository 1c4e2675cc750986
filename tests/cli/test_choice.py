"""--only, --stack and --map: which RNNs of a file are used, and with which they are compared."""

import numpy as np
import pytest
from cli.files import X
from oracles.some import normal_weights, prefixed, same_bits

import rnnlayout as rl

ONE = rl.Spec("gru", 3, 2, 2, True)
WHOLE = normal_weights("torch", ONE)
LAYERS = [dict(layer) for layer in rl.Weights(WHOLE).split()]
OTHER = normal_weights("torch", ONE, 7)


@pytest.fixture
def folder(folder):
    """parts.npz: two layers, another RNN, a broken one, and an array. whole.npz: the stack."""
    bad = {**LAYERS[0], "weight_hh_l0": np.ones((6, 1), "f4")}
    np.savez("parts.npz", **prefixed("a", LAYERS[0]), **prefixed("b", LAYERS[1]),
             **prefixed("other", OTHER), **prefixed("bad", bad), fc=np.ones(3))  # fmt: skip
    np.savez("whole.npz", **prefixed("enc", WHOLE), **prefixed("other", OTHER))
    return folder


def test_only_takes_rnns_out_of_a_file(rnnlayout, folder):
    command = ["convert", "parts.npz", "new.safetensors", "--to", "onnx"]
    code, _, err = rnnlayout(*command)
    assert code == 3 and "convert the others with --only a --only b --only other" in err
    code, out, err = rnnlayout(*command, "--only", "other", "--only", "b")
    assert (code, out) == (0, "") and list(rl.load("new.safetensors")) == ["other", "b"]
    assert err == "other: exact\nb: exact\nleft out: fc, a, bad\nnew.safetensors: written\n"
    code, _, err = rnnlayout(*command, "--only", "bad", "--force")
    assert code == 3 and "weight_hh_l0" in err


def test_a_stack_of_layers_is_converted(rnnlayout, folder):
    arguments = ["convert", "parts.npz", "new.pt", "--to", "torch", "--stack", "a,b"]
    assert rnnlayout(*arguments)[0] == 3  # bad is one of the others
    code, _, err = rnnlayout(*arguments, "--only", "a")
    assert code == 0 and "left out: fc, other, bad\n" in err
    assert rl.load("new.pt")["a"] == rl.Weights(WHOLE)
    code, _, err = rnnlayout(*arguments[:-1], "b,a", "--only", "b", "--force")
    assert code == 3 and "layer 1" in err
    code, _, err = rnnlayout(*arguments[:-1], "a,c", "--force")
    assert code == 3 and "no RNN is named 'c': --stack takes a, b, other, bad" in err


def test_run_one_or_a_stack(rnnlayout, folder):
    command = "run parts.npz --input x.npy --output y.npy --force"
    code, _, err = rnnlayout(command)
    assert code == 3 and "choose one with --only: a, b, other, bad" in err
    for more, source in (("--only other", OTHER), ("--stack a,b --only=a", WHOLE)):
        assert rnnlayout(f"{command} {more}")[0] == 0
        assert np.array_equal(np.load("y.npy"), rl.forward(X, source)[0])


def test_verify_some(rnnlayout, folder):
    assert rnnlayout("verify", "parts.npz", "whole.npz")[0] == 1
    assert rnnlayout("verify", "parts.npz", "whole.npz", "--only", "other")[0] == 0
    stacked = ["verify", "parts.npz", "whole.npz", "--stack", "a,b", "--map", "a=enc"]
    assert rnnlayout(*stacked, "--only", "enc") == (0, "a and enc: equal\n", "")
    assert rnnlayout(*stacked, "--only", "a", "--json")[0] == 0
    assert rl.verify("parts.npz", "whole.npz", stack=[["a", "b"]], map={"a": "enc"}, only=["a"])
    assert rl.verify("whole.npz", "parts.npz", stack=[["a", "b"]], map={"enc": "a"}, only=["a"])
    code, out, _ = rnnlayout(*stacked[:3], "--map", "other=enc", "--only", "enc")
    assert code == 1 and "\nother and enc: 4" in out
    for more, said in ((["--map", "x=enc"], "a has no RNN 'x'"), (["--only", "x"], "named 'x'"),
                       (["--stack", "a,x"], "no RNN is named 'x'")):  # fmt: skip
        code, _, err = rnnlayout(*stacked[:3], *more)
        assert code == 3 and said in err


@pytest.mark.parametrize("pairs", [("a=enc", "a=other"), ("a=enc", "b=enc")])
def test_an_rnn_is_paired_once(rnnlayout, folder, pairs):
    told = [part for pair in pairs for part in ("--map", pair)]
    for command in (["verify", "parts.npz", "whole.npz"],
                    ["convert", "parts.npz", "new.npz", "--into", "whole.npz"]):  # fmt: skip
        code, _, err = rnnlayout(*command, *told)
        assert code == 2 and err.startswith("error: --map pairs one RNN twice (see ")


def test_into_a_model_by_other_names(rnnlayout, folder):
    np.savez("model.npz", **prefixed("lstm", OTHER), **prefixed("rest", OTHER))
    arguments = ["convert", "parts.npz", "new.npz", "--into", "model.npz", "--stack", "a,b"]
    code, _, err = rnnlayout(*arguments, "--only", "a")
    assert code == 3 and "pair them with --map a=lstm" in err
    code, _, err = rnnlayout(*arguments, "--only", "a", "--map", "a=lstm")
    assert code == 0, err
    wanted = prefixed("lstm", WHOLE) | prefixed("rest", OTHER)
    with np.load("new.npz") as found:
        assert same_bits({name: found[name] for name in wanted}, wanted)


def test_names_that_keras_gives(rnnlayout, folder):
    """The first layer is lstm, the others are lstm_1 ...: stacked, verified with such a stack."""
    one = rl.Spec("lstm", 3, 3)
    layer = rl.Weights(normal_weights("torch", one))
    rl.save("layers.npz", dict.fromkeys(("lstm", "lstm_1", "lstm_2"), layer))
    convert = ["convert", "layers.npz", "new.npz", "--to", "torch", "--force", "--stack"]
    assert rnnlayout(*convert, "lstm,lstm_1")[0] == 0
    assert rnnlayout("verify", "layers.npz", "new.npz", "--only", "lstm")[0] == 0
    assert rnnlayout(*convert, "lstm_1,lstm_2")[0] == 0
    assert set(rl.load("new.npz")) == {"lstm", "lstm_1"}
    assert rl.load("new.npz")["lstm_1"].spec.num_layers == 2


def test_a_stack_beside_a_name_like_its_layer(rnnlayout, folder):
    """Both files have lstm, of two layers, and lstm_1: nothing is joined."""
    two = normal_weights("torch", rl.Spec("lstm", 3, 3, 2))
    for name, seed in (("a", 1), ("b", 2)):
        one = normal_weights("torch", rl.Spec("lstm", 3, 3), seed)
        np.savez(name, **prefixed("lstm", two), **prefixed("lstm_1", one))
    code, out, _ = rnnlayout("verify", "a.npz", "b.npz")
    assert code == 1 and out.startswith("a.npz and b.npz are different: 1 of 2 RNNs (lstm_1)\n")
    assert "\nlstm: equal\nlstm_1: 16 of 16 blocks differ" in out
