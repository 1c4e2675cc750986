"""assign: refuses what does not fit, and leaves the target unchanged."""

import re

import numpy as np
import pytest
import torch
from oracles.frameworks import keras
from oracles.some import normal_weights, same_bits

import rnnlayout as rl


def weights(spec, layout="torch"):
    return rl.Weights(normal_weights(layout, spec), spec, layout)


def values(module):
    return {name: p.detach().numpy().copy() for name, p in module.named_parameters()}


@pytest.mark.parametrize("module, source, text", [
    (torch.nn.LSTM(5, 7), rl.Spec("lstm", 5, 6), "hidden_size 6, the target 7"),
    (torch.nn.LSTM(5, 7), rl.Spec("gru", 5, 7), "4 H where|3 H where|cell"),
    (torch.nn.LSTM(5, 7), rl.Spec("lstm", 5, 7, 2), "num_layers 2, the target 1"),
    (torch.nn.LSTM(5, 7), rl.Spec("lstm", 5, 7, dtype="float64"), "represent every float64"),
    (torch.nn.LSTM(5, 7).half(), rl.Spec("lstm", 5, 7),
     r"float16 cannot represent every .* pass rl.Weights\(tensors, dtype='float16'"),
    (torch.nn.LSTM(5, 7, bias=False), rl.Spec("lstm", 5, 7), "the target has no biases"),
    (torch.nn.RNN(5, 7), rl.Spec("rnn_relu", 5, 7), "cell 'rnn_relu', the target 'rnn_tanh'"),
])  # fmt: skip
def test_what_does_not_fit_changes_nothing(module, source, text):
    before = values(module)
    with pytest.raises(rl.LayoutError, match=text):
        rl.assign(module, weights(source))
    assert same_bits(values(module), before)


@pytest.mark.parametrize(
    "target", [torch.nn.GRU(5, 7, 2), torch.nn.LSTM(5, 7, bias=False), torch.nn.RNN(5, 7)],
    ids=lambda target: type(target).__name__,
)  # fmt: skip
def test_a_weight_space_has_the_spec_of_the_target(target):
    flat = np.random.default_rng(0).normal(size=rl.pack(target).shape).astype("f4")
    assert same_bits(rl.pack(rl.assign(target, flat)), flat)
    before = values(target)
    with pytest.raises(rl.LayoutError):
        rl.assign(target, flat[:-1])
    assert same_bits(values(target), before)


def test_a_keras_layer_of_another_dtype_or_size():
    layer = keras.layers.LSTM(7, dtype="float16", recurrent_initializer="zeros")
    given = weights(rl.Spec("lstm", 5, 7), "keras")
    with pytest.raises(rl.LossyError, match="float16 cannot represent every"):
        rl.assign(layer, given)
    rl.assign(layer, rl.Weights(given, dtype="float16"))
    assert layer.get_weights()[0].dtype == np.float16
    with pytest.raises(rl.LayoutError, match=r"has weights of shapes \[\(4, 28\)"):
        rl.assign(built(keras.layers.LSTM, 7, 4), given)


def test_a_converted_dict_knows_what_it_is():
    """A plain dict does not say: neither its activations, nor without biases its reset."""
    gru = rl.convert(weights(rl.Spec("gru", 5, 7)), to="keras")
    tanh = rl.convert(weights(rl.Spec("rnn_tanh", 5, 7)), to="keras")
    after, before = (weights(rl.Spec("gru", 5, 7, bias=False, reset=reset), "keras")
                     for reset in ("after", "before"))  # fmt: skip
    for target, given, text in (
        (keras.layers.GRU(7, recurrent_activation="hard_sigmoid"), gru,
         "recurrent_activation 'sigmoid', the target 'hard_"),
        (keras.layers.GRU(7, activation="relu"), gru, " activation 'tanh', the target 'relu'"),
        (keras.layers.GRU(7, reset_after=False, use_bias=False), after,
         "have reset 'after', the target 'before'"),
        (keras.layers.GRU(7, use_bias=False), before, "have reset 'before', the target 'after'"),
        (keras.layers.SimpleRNN(7, activation="relu"), tanh, "cell 'rnn_tanh', the target 'rnn_re"),
    ):  # fmt: skip
        with pytest.raises(rl.LayoutError, match=text):
            rl.assign(target, given)
        rl.assign(target, dict(given))
        assert all(map(np.array_equal, target.get_weights(), given.values()))


@pytest.mark.parametrize(
    "given, options",
    [({}, {"dtype": torch.float64}), ({"dtype": "bfloat16"}, {"dtype": torch.bfloat16}),
     ({"bias": False}, {}), ({}, {"bias": False})],
    ids=["wider", "bfloat16", "biases become zeros", "zeros need no biases"],
)  # fmt: skip
def test_a_module_takes_what_it_can_represent(given, options):
    source = dict(weights(rl.Spec("gru", 5, 7, **given)))
    for name, array in source.items():
        array[...] = array * ("bias" not in name or "bias" not in options)
        array.flags.writeable = False
    module = torch.nn.GRU(5, 7, **options)
    rl.assign(module, rl.Weights(source))
    for name, found in module.state_dict().items():
        wanted = source.get(name, np.zeros(21, "f4")).astype("f8")  # exactly
        assert np.array_equal(found.double().numpy(), wanted)


def with_bias(*shape, dtype=torch.float32):
    """Return a module with another parameter: copy_() would spread a row, or round."""
    module = torch.nn.LSTM(5, 7)
    module.bias_ih_l0 = torch.nn.Parameter(torch.zeros(shape, dtype=dtype))
    return module


@pytest.mark.parametrize("target, text", [
    ([], "no target: the list is empty"),
    (set(), "set is not a torch module, a Keras layer"),
    (keras.layers.Dense(3), "Dense is not an LSTM, GRU"),
    (rl.Weights(torch.nn.LSTM(5, 7)), "Weights is not a torch module"),
    (rl.convert(torch.nn.LSTM(5, 7), to="keras"), "Tensors is not a torch module"),
    (torch.nn.utils.parametrizations.weight_norm(torch.nn.LSTM(5, 7), "weight_hh_l0"),
     "weight_hh_l0 is not a plain parameter of"),
    (with_bias(28, 28), r"bias_ih_l0 of the target: shape \(28, 28\), exp"),
    (with_bias(28, dtype=torch.float16), "parameters of float16 and float32"),
])  # fmt: skip
def test_targets_of_another_kind(target, text):
    with pytest.raises(rl.LayoutError, match=text):
        rl.assign(target, weights(rl.Spec("lstm", 5, 7)))


class Failing(keras.layers.LSTM):
    def set_weights(self, weights):
        if weights[0].any():
            raise RuntimeError("no")
        super().set_weights(weights)


def built(make, units, input_size, **options):
    layer = make(units, **options)
    layer.build((None, None, input_size))
    layer.set_weights([np.zeros_like(w) for w in layer.get_weights()])
    return layer


@pytest.mark.parametrize("second, error, text", [
    (lambda: built(Failing, 7, 7), RuntimeError, "no"),
    (lambda: built(keras.layers.LSTM, 7, 5), rl.LayoutError, "has weights of shapes"),
    (lambda: built(keras.layers.LSTM, 7, 7, dtype="float16", recurrent_initializer="zeros"),
     rl.LayoutError, "parameters of float16 and float32"),
])  # fmt: skip
def test_a_list_of_layers_is_assigned_whole_or_not_at_all(second, error, text):
    given = weights(rl.Spec("lstm", 5, 7, 2), "keras")
    layers = [built(keras.layers.LSTM, 7, 5), second()]
    with pytest.raises(error, match=text):
        rl.assign(layers, given)
    assert not any(w.any() for layer in layers for w in layer.get_weights())
    fresh = keras.layers.LSTM(7)
    with pytest.raises(rl.LayoutError, match="has weights of shapes"):
        rl.assign([fresh, built(keras.layers.LSTM, 7, 5)], given)
    assert not fresh.built
    with pytest.raises(rl.LayoutError, match="in the list twice"):
        rl.assign([layers[0]] * 2, given)


@pytest.mark.parametrize("key, value", [
    ("go_backwards", True), ("merge_mode", "sum"), ("direction", "reverse"), ("clip", 3.0),
])  # fmt: skip
def test_settings_that_the_target_lacks(key, value):
    given = weights(rl.Spec("lstm", 5, 7, 1, True))
    given.config = {key: value}
    module = torch.nn.LSTM(5, 7, bidirectional=True)
    before = values(module)
    for source in (given, rl.convert(given, to="torch")):
        with pytest.raises(rl.LayoutError, match=f"with {key}={value!r}, the target without it"):
            rl.assign(module, source)
        assert same_bits(values(module), before)
    del source.config[key]  # what the error says
    assert same_bits(values(rl.assign(module, source)), given.tensors)


def test_the_mask_of_a_keras_layer_is_not_lost_without_a_word():
    """A torch module got the weights of a masked layer, and nothing named the mask."""
    layer, module = keras.layers.LSTM(7), torch.nn.LSTM(5, 7)
    keras.Sequential([keras.Input((4, 5)), keras.layers.Masking(), layer])
    before = values(module)
    for source in (layer, rl.Weights(layer), rl.convert(layer, to="torch")):
        with pytest.raises(rl.LayoutError, match=r"mask 'Masking\(.*\)', the target without it"):
            rl.assign(module, source)
        assert same_bits(values(module), before)
    rl.assign(built(keras.layers.LSTM, 7, 5), layer)  # the layers around it make its mask
    weights = rl.Weights(layer)
    del weights.config["mask"]  # what the error says
    assert same_bits(values(rl.assign(module, weights)), weights.to("torch").tensors)


def test_settings_that_the_target_has_too_or_that_change_no_number():
    given = weights(rl.Spec("lstm", 5, 7, 2), "keras")
    given.config = {"go_backwards": True, "stateful": True, "time_major": True}
    layers = [keras.layers.LSTM(7, go_backwards=True), keras.layers.LSTM(7)]
    for source in (given, given.to("torch"), dict(given), rl.convert(given, to="keras")):
        rl.assign(layers, source)
        assert same_bits(layers[0].get_weights()[0], given["0/kernel"])
    with pytest.raises(rl.LayoutError, match="layer 1 is used with go_backwards=True"):
        rl.assign(layers[::-1], given)


@pytest.mark.parametrize("as_source", [
    lambda m: m, lambda m: [m], rl.Weights,
    lambda m: rl.convert(m, to="torch"), lambda m: rl.convert(m, to="onnx"),
])  # fmt: skip
def test_what_knows_its_rnn_is_taken_in_any_layout(as_source):
    """The error for another layout said to omit layout=, which assign does not have."""
    source = torch.nn.GRU(5, 7)
    layer, module = keras.layers.GRU(7), torch.nn.GRU(5, 7)
    rl.assign(layer, as_source(source))
    rl.assign(module, layer)
    assert same_bits(values(module), values(source))
    with pytest.raises(rl.LayoutError, match="hidden_size 7, the target 6"):
        rl.assign(torch.nn.GRU(5, 6), as_source(source))


def test_what_neither_the_target_nor_the_weights_say_is_asked_for():
    """Weights that record it have the values that the error asks for."""
    spec = rl.Spec("gru", 3, 2)
    target = tensors = normal_weights("onnx", spec)
    with pytest.raises(rl.UndecidedError, match="where the reset gate of this GRU acts") as error:
        rl.assign(target, tensors)
    repairs = re.findall(r"rl\.Weights\(tensors, reset='\w+'\)", str(error.value))
    for repair, reset in zip(repairs, ["after", "before"], strict=True):
        weights = eval(repair, {"rl": rl, "tensors": tensors})
        assert weights.spec.reset == reset
        assert same_bits(rl.assign(target, weights), tensors)
    other = spec.replace(recurrent_activation="hard_sigmoid")
    weights = rl.Weights(normal_weights("keras", other), other, layout="keras")
    with pytest.raises(rl.LayoutError, match=f"are {other}, but the target is {spec} or {spec}, r"):
        rl.assign(target, weights)
    known = rl.assign(target, rl.Weights(normal_weights("torch", spec)))
    assert known.keys() == target.keys()
