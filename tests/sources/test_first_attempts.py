"""What people try first: each error contains a repair, and these tests follow it literally.

The result is compared with an answer that needed no repair, or with the framework's own. More
repairs are in tests/hints; here each function takes them.
"""

import numpy as np
import pytest
import torch
from oracles.frameworks import normal, seeded
from oracles.some import normal_weights, prefixed, same_bits

import rnnlayout as rl

LSTM = rl.Spec("lstm", 5, 7)
GRU = rl.Spec("gru", 5, 7)
RELU = rl.Spec("rnn_relu", 5, 7)
X = normal(seeded("x"), 4, 3, 5)


def tensors(spec=LSTM, layout="torch"):
    return normal_weights(layout, spec)


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


# ------------------------------------------------------------------- paths, and checkpoints


MODEL = torch.nn.ModuleDict({"enc": torch.nn.LSTM(5, 7)})


@pytest.mark.parametrize("source, text", [
    ({"epoch": 1, "run": {"best": {"net": tensors()}}}, r"pass its ['run']['best']['net']"),
    ({"model": prefixed("a", tensors()) | {"fc.weight": torch.ones(2, 7)}, "args": {"H": 7},
      "optimizer": {"state": {0: {"exp_avg": torch.ones(28, 5)}}, "param_groups": [{"lr": 0.1}]},
      "ema": prefixed("b", tensors(GRU))},
     "['model'] with prefix='a' or its ['ema'] with prefix='b'"),
    ({"model": prefixed("a", tensors()) | prefixed("b", tensors())},
     "['model'] with prefix='a' or prefix='b'"),
    ({"epoch": 1, "model": MODEL, "rnn": MODEL["enc"]},
     "its ['model'].state_dict() with prefix='enc' or its ['rnn']"),
    ({"epoch": 3, "optimizer": {"state": {}, "lr": 1}},
     "no dict in it has the tensors of an RNN"),
])  # fmt: skip
def test_checkpoints(source, text):
    assert text in error_of(rl.pack, source)


# ----------------------------------------------------------------------------------------- hints


ASKING = {  # the arguments of a call, and what its error asks for
    "tanh or relu": ((tensors(RELU),), ["cell", "cell", "spec", "spec"]),
    "reset": ((tensors(GRU.replace(bias="none"), "onnx"),), ["reset", "reset", "spec", "spec"]),
    "prefix": ((prefixed("enc.rnn", tensors()),), ["prefix"]),
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


@each_function
@pytest.mark.parametrize("hint, value, text", [
    ("cell", "gru", "cell 'gru'.*'lstm'"),
    ("reset", "before", "reset 'before'"),
    ("recurrent_activation", "hard_sigmoid", "recurrent_activation 'hard_sigmoid'.*'sigmoid'"),
    ("activation", "relu", "activation 'relu'.*'tanh'"),
    ("cell", "rnn", "cell is 'rnn', need one of"),
    ("recurrent_activation", "relu", "recurrent_activation is 'relu', need one of"),
    ("activation", "elu", "activation is 'elu', need one of: tanh, relu"),
])  # fmt: skip
def test_a_hint_that_contradicts_the_source_or_does_not_exist(call, hint, value, text):
    for arguments in ((torch.nn.LSTM(5, 7),), (rl.Weights(tensors()),),
                      (rl.convert(tensors(), to="onnx"),), (tensors(), LSTM)):  # fmt: skip
        with pytest.raises(rl.SpecError, match=text):
            call(*arguments, **{hint: value})


def test_dtype_is_that_of_the_result():
    half = {n: w.astype("f2") for n, w in tensors().items()}
    weights = rl.Weights(tensors(), dtype="float16")
    assert same_bits(dict(weights), half) and weights.spec.dtype == "float16"
    rnn, x = rl.RNN(tensors(), dtype="float16"), X.astype("f2")
    assert rnn.spec.dtype == "float16" and same_bits(rnn(x)[0], rl.RNN(half)(x)[0])


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
