"""What people try first: each error contains a repair, and these tests follow it literally.

The result is compared with an answer that needed no repair, or with the framework's own. More
repairs are in tests/hints; here each function takes them.
"""

import re
import sys

import numpy as np
import pytest
import torch
from oracles.frameworks import inputs, normal, run_onnx, seeded
from oracles.some import normal_weights, same_bits

import rnnlayout as rl

LSTM = rl.Spec("lstm", 5, 7)
GRU = rl.Spec("gru", 5, 7)
RELU = rl.Spec("rnn_relu", 5, 7)
X = normal(seeded("x"), 4, 3, 5)


def tensors(spec=LSTM, layout="torch", seed=0):
    return normal_weights(layout, spec, seed)


def arrays(spec, seed=0):
    """Return what torch.save would write."""
    return {name: torch.from_numpy(w) for name, w in tensors(spec, seed=seed).items()}


FUNCTIONS = {
    "pack": rl.pack,
    "convert": lambda *args, **more: rl.convert(*args, to="keras", **more),
    "check": lambda *args, **more: rl.check(*args, to="keras", **more),
    "Weights": rl.Weights,
    "RNN": rl.RNN,
    "forward": lambda *args, **more: rl.forward(X, *args, **more),
}
each_function = pytest.mark.parametrize("call", FUNCTIONS.values(), ids=FUNCTIONS)


def error_of(call, *args, **more):
    with pytest.raises(rl.Error) as caught:
        call(*args, **more)
    return str(caught.value)


def followed(text, *, pattern, **names):
    """Return what the part of an error that matches the pattern evaluates to."""
    found = re.search(pattern, text)
    assert found, text
    return eval(found[1], {"rl": rl, **names})


# ---------------------------------------------------------- paths, and what load() returns


def test_a_path_with_more_arguments(tmp_path):
    """A file that records nothing: load() needs the spec, layout and prefix that pack() got."""
    np.savez(tmp_path / "w.npz", **{f"enc.{n}": w for n, w in tensors(RELU).items()})
    rest = {"spec": RELU, "layout": "torch", "prefix": "enc"}
    text = error_of(rl.pack, tmp_path / "w.npz", **rest)
    found = followed(text, pattern=r"pass (rl\.load\(.*\))")
    assert same_bits(rl.pack(found, **rest), rl.pack(tensors(RELU), RELU))


def test_a_file_with_one_rnn_that_cannot_be_read(tmp_path):
    """The readable one is not taken unasked: the other may be the one that is meant."""
    whole = {f"a.{n}": w for n, w in tensors().items()} | {
        f"b.{n}": w for n, w in tensors().items()
    }
    whole["b.bias_hh_l0"] = whole["b.bias_hh_l0"][:5]
    np.savez(tmp_path / "w.npz", **whole)
    found = rl.load(tmp_path / "w.npz")
    assert list(found.refused) == ["b"]
    assert "'a' (lstm), 'b' (refused)" in error_of(rl.pack, found)
    assert "bias_hh_l0" in error_of(rl.pack, found, prefix="b")
    assert same_bits(rl.pack(found, prefix="a"), rl.pack(tensors()))


def test_in_asks_whether_an_rnn_is_there():
    error = ValueError("it has peepholes")
    found = rl.Found({"a": rl.Weights(tensors())}, {"b": error})
    assert "a" in found
    assert "b" not in found  # raised the error
    assert "c" not in found
    with pytest.raises(ValueError, match="peepholes"):
        found["b"]


def test_what_load_returns_is_assigned(tmp_path):
    rl.save(tmp_path / "w.npz", rl.Weights(tensors(layout="keras")))
    module = torch.nn.LSTM(5, 7)
    rl.assign(module, rl.load(tmp_path / "w.npz"))
    assert same_bits(rl.pack(module), rl.pack(tensors(layout="keras")))


# --------------------------------------------------------------------------------- checkpoints


def checkpoint(key, prefix):
    state = {f"{prefix}{n}": w for n, w in arrays(LSTM).items()} | {"fc.weight": torch.ones(2, 7)}
    optimizer = {"state": {0: {"exp_avg": torch.ones(28, 5)}}, "param_groups": [{"lr": 0.1}]}
    return {"epoch": 3, key: state, "optimizer": optimizer, "lr_schedulers": [], "args": {"H": 7}}


MODEL = torch.nn.ModuleDict({"enc": torch.nn.LSTM(5, 7)})


@pytest.mark.parametrize("source, text", [
    ({"epoch": 1, "run": {"best": {"net": arrays(LSTM)}}}, r"pass its ['run']['best']['net']"),
    (checkpoint("model", "a.") | {"ema": {f"b.{n}": w for n, w in arrays(GRU).items()}},
     "['model'] with prefix='a' or its ['ema'] with prefix='b'"),
    ({"model": {f"{p}.{n}": w for p in "ab" for n, w in arrays(LSTM).items()}},
     "['model'] with prefix='a' or prefix='b'"),
    ({"epoch": 1, "model": MODEL, "rnn": MODEL["enc"]},
     "its ['model'].state_dict() with prefix='enc' or its ['rnn']"),
    ({"epoch": 3, "optimizer": {"state": {}, "lr": 1}},
     "no dict in it has the tensors of an RNN"),
])  # fmt: skip
def test_checkpoints(source, text):
    assert text in error_of(rl.pack, source)


def test_arrays_in_nested_dicts_as_flax_has_them():
    nested = {"params": {"rnn": tensors(layout="keras")}}
    assert same_bits(rl.pack(nested, prefix="params/rnn"), rl.pack(tensors(layout="keras")))
    nested["params"]["head"] = {"kernel": np.ones((3, 2))}
    assert "pass its ['params']['rnn']" in error_of(rl.pack, nested)


# -------------------------------------------------------------------------------------- prefixes


class Key(str):
    """A string whose comparisons are calls of a Python function."""

    __hash__ = str.__hash__

    def __eq__(self, other):
        return str.__eq__(self, other)


def number_of_calls(function, *args):
    """Return how many functions a call calls, those in C too."""
    count = 0

    def counted(frame, event, arg):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        function(*args)
    finally:
        sys.setprofile(None)
    return count


def test_the_error_for_many_rnns_is_linear():
    """400 RNNs without prefix= took 18 s: each was compared with each."""

    def work(n):
        pairs = [(k, name, w) for k in range(n) for name, w in tensors().items()]
        whole = {Key(f"layers.{k}.rnn.{name}"): w for k, name, w in pairs}
        return number_of_calls(error_of, rl.pack, whole)

    work(3)  # fills the caches
    few, many = work(25), work(200)
    assert many < 9 * few  # 8 times the tensors; a quadratic part would make it up to 64


# ----------------------------------------------------------------------------------------- hints


PREFIXED = {f"enc.rnn.{name}": w for name, w in tensors().items()}
ASKING = {  # the arguments of a call, and what its error asks for
    "tanh or relu": ((tensors(RELU),), ["cell", "cell", "spec", "spec"]),
    "reset": ((tensors(GRU.replace(bias="none"), "onnx"),), ["reset", "reset", "spec", "spec"]),
    "prefix": ((PREFIXED,), ["prefix"]),
    "dtype": ((tensors(), LSTM.replace(dtype="float16")), ["dtype", "spec"]),
}


@each_function
@pytest.mark.parametrize("source, names", ASKING.values(), ids=ASKING)
def test_each_argument_that_an_error_asks_for_repairs_the_call(call, source, names):
    with pytest.raises(rl.Error) as caught:
        call(*source)
    assert [name for name, _ in caught.value.asks] == names
    for name, value in caught.value.asks:
        value = "enc.rnn" if value is ... else value
        if call is rl.pack and "before" in (value, getattr(value, "reset", "")):
            continue  # cuDNN does not have it
        call(source[0], **{"spec": [*source, None][1], name: value})


def test_recurrent_activation_of_arrays():
    weights = tensors(LSTM, "keras")
    hard = rl.Weights(weights, recurrent_activation="hard_sigmoid")
    assert rl.Weights(weights).spec.recurrent_activation == "sigmoid"
    assert hard.spec == LSTM.replace(recurrent_activation="hard_sigmoid")
    x, h0, c0 = inputs(seeded("hard"), LSTM)
    y = rl.forward(x, weights, recurrent_activation="hard_sigmoid", state=(h0, c0))[0]
    np.testing.assert_allclose(y, run_onnx(hard.to("onnx"), hard.spec, x, h0, c0).y, atol=2e-6)


@each_function
@pytest.mark.parametrize("hint, value, text", [
    ("cell", "gru", "cell 'gru'.*'lstm'"),
    ("reset", "before", "reset 'before'"),
    ("recurrent_activation", "hard_sigmoid", "recurrent_activation 'hard_sigmoid'.*'sigmoid'"),
    ("activation", "relu", "activation 'relu'.*'tanh'"),
])  # fmt: skip
def test_a_hint_that_contradicts_the_source(call, hint, value, text):
    for source in (torch.nn.LSTM(5, 7), rl.Weights(tensors())):
        with pytest.raises(rl.SpecError, match=text):
            call(source, **{hint: value})
    with pytest.raises(rl.SpecError, match=text):
        call(tensors(), LSTM, **{hint: value})


@each_function
def test_a_hint_that_does_not_exist(call):
    with pytest.raises(rl.SpecError, match="cell is 'rnn', need one of"):
        call(tensors(), cell="rnn")
    with pytest.raises(rl.SpecError, match="recurrent_activation is 'relu', need one of"):
        call(tensors(), recurrent_activation="relu")
    with pytest.raises(rl.SpecError, match="activation is 'elu', need one of: tanh, relu"):
        call(tensors(), activation="elu")


# ----------------------------------------------------------------------------------------- dtype


def test_dtype_is_that_of_the_result(tmp_path):
    half = {n: w.astype("f2") for n, w in tensors().items()}
    assert same_bits(dict(rl.Weights(tensors(), dtype="float16")), half)
    assert rl.Weights(tensors(), dtype="float16").spec.dtype == "float16"
    rnn = rl.RNN(tensors(), dtype="float16")
    assert rnn.spec.dtype == "float16"
    x = X.astype("f2")
    assert same_bits(rnn(x)[0], rl.RNN(half)(x)[0])
    rnn.update(tensors(seed=1))
    again = {n: w.astype("f2") for n, w in tensors(seed=1).items()}
    assert same_bits(rnn(x)[0], rl.RNN(again)(x)[0])
    np.savez(tmp_path / "w.npz", **tensors())
    assert same_bits(dict(rl.load(tmp_path / "w.npz", dtype="float16")["lstm"]), half)
    text = error_of(rl.load, tmp_path / "w.npz", LSTM.replace(dtype="float16"))
    spec = followed(text, pattern=r"spec=(rl\.Spec\(.*?\))")
    assert rl.load(tmp_path / "w.npz", spec)["lstm"].spec == LSTM
    assert (
        rl.load(tmp_path / "w.npz", LSTM.replace(dtype="f2"), dtype="f2")["lstm"].spec.dtype
        == "float16"
    )


# -------------------------------------------------------------------------------- flat vectors


def test_a_float32_vector_is_not_called_one_of_bytes():
    """1568 float32 elements, where 392 are needed, which are 1568 bytes."""
    text = error_of(rl.unpack, np.zeros(1568, "f4"), LSTM, to="torch")
    assert "1568 elements, need 392" in text and "byte" not in text and "view" not in text


# --------------------------------------------------------------------- names that do not fit


@pytest.mark.parametrize("layout, missing", [
    ("torch", "bias_hh_l13_reverse"), ("torch-cell", "7/backward/bias_ih"),
    ("keras", "13/forward/bias"), ("onnx", "17/B"),
])  # fmt: skip
@pytest.mark.parametrize("known", [False, True])
def test_one_missing_tensor_of_many_is_named(layout, missing, known):
    spec = rl.Spec("lstm", 5, 7, 20, True)
    weights = tensors(spec, layout)
    del weights[missing]
    text = error_of(rl.pack, weights, layout=layout if known else None)
    assert text.startswith(f"missing '{missing}'") and "unknown" not in text


def test_a_list_of_a_wrong_length():
    """Arrays in a list have no names: (2, 2) was called a tensor that keras does not have."""
    text = error_of(rl.pack, [np.ones((2, 2), "f4")] * 5, layout="keras")
    assert (
        "list: 5; an RNN" in text
        and "2 or 3 per layer and direction" in text
        and "(2, 2)" not in text
    )
    text = error_of(rl.pack, list(tensors().values())[:3], LSTM, layout="torch")
    assert "list: 3; this RNN has 4 in torch: 'weight_ih_l0', 'weight_hh_l0', 'bias_ih" in text


def test_the_layout_of_the_forward_pass_is_not_one_of_users():
    peepholes = {**tensors(LSTM, "onnx"), "P": np.ones((1, 21), "f4")}
    text = error_of(rl.RNN, peepholes, LSTM, layout="onnx")
    assert "must be zero for the forward pass, because" in text and "cpu" not in text
    for call in (rl.layout, lambda n: rl.describe(LSTM, n), lambda n: rl.pack(tensors(), layout=n)):
        assert "no layout is called 'cpu'" in error_of(call, "cpu")


def test_verify_says_which_side_needs_a_hint(tmp_path):
    np.savez(tmp_path / "w.npz", **tensors(RELU))
    text = error_of(rl.verify, tensors(RELU), tensors(RELU))
    assert text.startswith("a: ") and "pass cell='rnn_tanh'" in text
    assert "a: rnn: " in error_of(rl.verify, tmp_path / "w.npz", tmp_path / "w.npz")
    for source in (tensors(RELU), tmp_path / "w.npz"):
        assert rl.verify(source, source, cell="rnn_relu")
        assert rl.verify(rl.Weights(tensors(RELU), cell="rnn_relu"), source)
