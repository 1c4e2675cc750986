"""The result of a conversion knows its RNN, and is read with it; Weights == Weights."""

import copy
import pickle

import numpy as np
import pytest
from oracles.some import normal_weights, same_bits

import rnnlayout as rl

SOFT = rl.Spec("gru", 5, 7)
HARD = SOFT.replace(recurrent_activation="hard_sigmoid")


def tensors(spec, to, layout="keras"):
    return rl.convert(normal_weights(layout, spec), spec, layout=layout, to=to)


@pytest.mark.parametrize(
    "spec, layout",
    [(rl.Spec("rnn_relu", 5, 7), "torch"), (HARD, "keras"), (HARD, "onnx"),
     (rl.Spec("gru", 5, 7, reset="before"), "onnx"),
     (rl.Spec("lstm", 5, 7), rl.layout("concat", inputs="xh", z="state"))],
)  # fmt: skip
def test_a_result_was_asked_again_what_it_is(spec, layout):
    """Its arrays do not show the activation, the reset, or the options of the layout."""
    once = tensors(spec, layout)
    assert (rl.infer_spec(once), once.layout) == (spec, rl.Weights(once).layout)
    assert rl.convert(once, to="keras").spec == spec
    assert same_bits(rl.convert(once, to=layout), once)


@pytest.mark.parametrize("again", [
    copy.copy, copy.deepcopy, rl.convert.__globals__["Tensors"].copy,
    lambda t: pickle.loads(pickle.dumps(t)), lambda t: rl.convert(t, to="onnx"),
])  # fmt: skip
def test_copies_know_it_too(again):
    weights = rl.Weights(tensors(HARD, "keras"))
    weights.config = {"go_backwards": True}
    first = rl.convert(weights, to="onnx")
    second = again(first)
    assert type(second) is type(first) and second is not first
    assert same_bits(second, first)
    for key in ("spec", "layout", "config", "batch_first", "report"):
        assert getattr(second, key) == getattr(first, key)
    weights.config.clear()  # theirs is another dict
    assert rl.Weights(second).config == {"go_backwards": True}


@pytest.mark.parametrize("again", [
    copy.copy, copy.deepcopy, lambda w: pickle.loads(pickle.dumps(w)),
])  # fmt: skip
def test_copies_of_weights_are_equal(again):
    weights = rl.Weights(tensors(HARD, "keras"), dtype="float16")
    weights.config = {"go_backwards": True}
    dict(weights)  # which may fill a cache
    second = again(weights)
    assert second == weights and second is not weights
    assert (second.report, second.batch_first) == (weights.report, weights.batch_first)
    assert same_bits(second, weights) and same_bits(second.to("onnx"), weights.to("onnx"))


@pytest.mark.parametrize("as_source", [lambda t: t, rl.Weights])
@pytest.mark.parametrize("argument, error, text", [
    ({"layout": "torch"}, rl.LayoutError, "are in layout keras, not torch: pass layout='keras'$"),
    ({"spec": HARD.replace(recurrent_activation="sigmoid")}, rl.SpecError,
     "recurrent_activation sigmoid and hard_sigmoid: omit spec="),
    ({"spec": HARD.replace(hidden_size=6)}, rl.SpecError, "hidden_size 6 and 7"),
    ({"spec": HARD.replace(dtype="float64")}, rl.LayoutError, "float32, the spec says float64"),
])  # fmt: skip
def test_an_argument_that_contradicts_it(as_source, argument, error, text):
    source = as_source(tensors(HARD, "keras"))
    with pytest.raises(error, match=text):
        rl.convert(source, to="onnx", **argument)


@pytest.mark.parametrize("change, text", [
    ({"kernel": None, "kernel_2": np.ones((5, 21), "f4")}, "missing 'kernel', unknown 'kernel_2'"),
    ({"kernel": np.ones((5, 20), "f4")}, r"kernel: shape \(5, 20\), expected \(5, 21\)"),
    ({"kernel": np.ones((5, 21))}, "kernel is float64"),
])  # fmt: skip
def test_tensors_that_were_changed(change, text):
    once = tensors(HARD, "keras")
    for name, array in change.items():
        once[name] = array
        if array is None:
            del once[name]
    with pytest.raises(rl.LayoutError, match=text):
        rl.pack(once)


def test_an_update_in_another_layout_says_what_works():
    """It said to omit layout=, which was omitted: that of the first source is the default."""
    rnn = rl.RNN(normal_weights("torch", SOFT), SOFT, layout="torch")
    source, x = tensors(SOFT, "keras"), np.ones((3, 5), "f4")
    for one in (source, rl.Weights(source)):
        with pytest.raises(rl.LayoutError, match=r"layout keras, not torch: pass layout='keras'$"):
            rnn.update(one)
    rnn.update(source, layout="keras")  # what the error says
    assert same_bits(rnn(x)[0], rl.RNN(source)(x)[0])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_result_has_its_weights(dtype):
    weights = rl.Weights(normal_weights("keras", HARD.replace(dtype=dtype)),
                         recurrent_activation="hard_sigmoid")  # fmt: skip
    weights.config = {"go_backwards": True}
    result = rl.convert(weights, to="onnx")
    assert result.weights == weights.to("onnx")
    assert result.weights.report == result.report == weights.to("onnx").report
    assert same_bits(result.weights, result)
    result["B"] = np.zeros_like(result["B"])
    assert not result.weights["B"].any()  # the tensors as they are now
    result["B"] = result["B"][:, :-1]
    with pytest.raises(rl.LayoutError, match="B: shape"):
        result.weights  # noqa: B018


def test_weights_made_of_weights_have_their_own_settings():
    """They share the arrays; a report is that of a conversion alone."""
    weights = rl.Weights(tensors(HARD, "keras")).to("onnx")
    weights.config = {"direction": "reverse"}
    again, (layer,), stacked = rl.Weights(weights), weights.split(), rl.stack([weights])
    converted = weights.to("onnx")
    for same in (again, layer, stacked, converted):
        assert same == weights and same is not weights and same.batch_first == weights.batch_first
        same.config["initial_h"] = 3
        same.config = {}
    assert weights.config == {"direction": "reverse"}
    assert [same.report for same in (again, layer, stacked)] == [None] * 3
    assert weights.report and converted.report
    assert again["R"] is weights["R"] and converted["R"] is not weights["R"]


def test_weights_are_equal_bit_for_bit():
    arrays = normal_weights("keras", SOFT)
    a, b = rl.Weights(arrays), rl.Weights(arrays)
    assert a == b == a.to("keras")
    assert a != rl.Weights(normal_weights("keras", SOFT, 1))
    assert a != a.to("onnx")
    assert a != rl.Weights(arrays, recurrent_activation="hard_sigmoid")
    b.config = {"go_backwards": True}
    assert a != b
    zero, minus, nan = (
        rl.Weights({n: np.full_like(w, v) for n, w in arrays.items()}) for v in (0.0, -0.0, np.nan)
    )
    assert zero != minus and nan == rl.Weights(dict(nan))
    assert a != dict(a) and a != 3
    with pytest.raises(TypeError, match="unhashable"):
        hash(a)  # its arrays and config may change
