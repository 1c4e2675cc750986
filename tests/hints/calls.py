"""Cases of hints about calls. A function yields what gives a hint, and then does what it says."""

import sys
import warnings
import zipfile

import equinox
import flax
import h5py
import jax
import numpy as np
import torch
from flax import linen, nnx
from hints.following import (
    GRU,
    LSTM,
    RELU,
    X,
    asked,
    each,
    evaluated,
    followed,
    repaired,
    tensors,
    two,
)
from oracles.jax_cells import KEY, equinox_cell, filled, nnx_cell
from oracles.some import same_bits

import rnnlayout as rl

X1 = np.ones((1, 1, 5), "f4")
FLAT = rl.pack(tensors())


# ------------------------------------------------------------------------------ what is passed


a_path = evaluated(
    lambda: rl.pack("w.npz"), r"pass (rl\.load\(.*\))", rl.pack,
    before=lambda: rl.save("w.npz", rl.Weights(tensors())),
)  # fmt: skip


def a_spec_without_weights():
    text = yield lambda: rl.diagnose(FLAT, like=LSTM)
    assert text.startswith("like: ")
    rl.diagnose(FLAT, like=FLAT, spec=followed(text, r"spec=(rl\.Spec\(.*\))"))


def what_load_returned():
    rl.save("w.npz", {"enc": rl.Weights(tensors()), "dec": rl.Weights(tensors(seed=1))})
    found = rl.load("w.npz")
    text = yield lambda: rl.pack(found)
    for name in each(r"'(\w+)' \(lstm\)", text):
        rl.pack(found[name])
        rl.pack(found, prefix=name)
    text = yield lambda: rl.pack(found, prefix="encoder")
    for prefix in followed(text, r"prefix= these would work: (.*)"):
        rl.pack(found, prefix=prefix)


several_in_a_dict = asked(rl.pack, two(), known={"prefix": "enc"})
further_tensors = asked(rl.pack, tensors() | {"norm.weight": np.ones(3, "f4")})


def an_rnn_beside_a_dense_layer_of_the_same_names():
    """The message said to ignore the LSTM."""
    w, b = tensors(layout="haiku").values()
    arrays = {"lstm/linear": {"w": w, "b": b}, "linear": {"w": w[:7, :1], "b": b[:1]}}
    text = yield lambda: rl.Weights(arrays, layout="haiku")
    prefix = followed(text, r"prefix= these would work: (.*)")
    assert rl.Weights(arrays, layout="haiku", prefix=prefix).spec == LSTM


def patterns_outside_a_list():
    yield lambda: rl.pack(tensors(), ignore="h0")
    rl.pack(tensors(), ignore=["h0"])


def arrays_of_a_bound_call():
    rnn, x = rl.RNN(tensors(), batch_first=False), np.asfortranarray(np.ones((4, 2, 5), "f4"))
    yield lambda: rnn.bind(x)
    for array in (np.ascontiguousarray(x), torch.ones(4, 2, 5)):
        assert np.array_equal(rnn.bind(array)()[0], rnn(x)[0])


a_prefix_of_a_list = asked(rl.pack, [*tensors().values()], layout="torch", prefix="a")
a_prefix_of_a_module = asked(rl.pack, torch.nn.LSTM(5, 7), prefix="enc")
a_list_of_arrays = asked(rl.pack, [*tensors(layout="keras").values()])
LAYERS = [tensors(), tensors(rl.Spec("lstm", 7, 7))]
a_list_of_dicts = repaired(lambda: rl.pack(LAYERS), lambda: rl.pack(rl.stack([*LAYERS])))


def tensors_that_were_changed():
    made = rl.convert(tensors(), to="torch")
    made["weight_hh_l0"] = made["weight_hh_l0"][:, :3]
    made |= tensors(rl.Spec("lstm", 5, 3))
    text = yield lambda: rl.pack(made)
    rl.pack(followed(text, r"pass (dict\(tensors\))", tensors=made))


def gradients_and_weights():
    """Each is asked for where the other is passed."""
    arrays, module = tensors(), torch.nn.LSTM(5, 7)
    gradient = rl.convert(arrays, kind="gradient", to="cudnn")
    gradient = rl.unpack(gradient, LSTM, kind="gradient", to="torch")
    text = yield lambda: rl.convert(gradient, to="onnx")
    kind = followed(text, r"convert it with kind=(\S+);")
    rl.convert(gradient, kind=kind, to="torch-cell")
    text = yield lambda: rl.convert(rl.Weights(arrays), kind="gradient", to="torch-cell")
    array_dict = followed(text, r"pass the arrays, (.*)", source=rl.Weights(arrays))
    rl.convert(array_dict, kind="gradient", to="torch-cell")
    module(torch.ones(1, 1, 5))[0].sum().backward()
    text = yield lambda: rl.convert(module, kind="gradient", to="keras")
    gradients = followed(text, r"as (\{.*\}) of torch", module=module)
    rl.convert(gradients, kind="gradient", to="keras")


# ------------------------------------------------------------------------ spec, layout, dtype


tanh_or_relu = asked(rl.pack, tensors(RELU))
where_the_reset_gate_acts = asked(
    rl.convert, tensors(GRU.replace(bias="none"), "onnx"), layout="onnx", to="keras"
)
rows_written_by_hand = asked(
    rl.convert,
    {"x2h.weight": np.ones((9, 5), "f4"), "h2h.weight": np.ones((9, 3), "f4")},
    to="onnx",
)


def rows_of_your_own():
    def lstm_with(name):
        tensors = {name: "W (H, I)", "U": "R (H, G*H)"}
        return rl.layout({"gates": {"lstm": "ifgo"}, "tensors": tensors})

    yield lambda: lstm_with("W_{gate:input}")
    lstm_with("W_{gate:i=input f=forget}")
    yield lambda: lstm_with("W_{gates}")
    lstm_with("W_{gate}")
    yield lambda: lstm_with("encoder.of_the_first_sentence.lstm." + "W_of_the_gate_{gate}")
    mine = lstm_with("W_of_the_gate_{gate}")
    shapes = rl.describe(rl.Spec("lstm", 5, 3, bias=False), mine)
    weights = {f"encoder.{name}": np.ones(shape) for name, shape in shapes.items()}
    rl.Weights(weights, layout=mine, prefix="encoder")


options_of_a_layout = asked(rl.convert, tensors(layout=rl.layout("concat", inputs="hx")), to="onnx")
a_layout_that_is_read_if_named = asked(rl.pack, tensors(layout="tf1"))
layouts_of_the_same_tensors = asked(rl.pack, tensors(layout="coreml"))
layers_or_directions = asked(
    rl.pack, [*tensors(rl.Spec("lstm", 7, 7, 2), "keras").values()], layout="keras"
)
two_cells_of_haiku = asked(rl.pack, {
    f"{cell}/linear": {name.removeprefix("linear/"): array
                       for name, array in tensors(layout="haiku").items()}
    for cell in ("lstm", "lstm_1")
})  # fmt: skip
a_flat_vector = asked(rl.convert, FLAT, to="torch", known={"spec": LSTM})
a_vector_of_miopen = asked(rl.convert, dict(rl.convert(tensors(), to="miopen")), layout="miopen",
                           to="torch", known={"spec": LSTM})  # fmt: skip
a_dtype_other_than_the_specs = asked(rl.pack, tensors(), spec=LSTM.replace(dtype="float16"))
another_cell = asked(rl.pack, torch.nn.LSTM(5, 7), cell="gru")
another_spec = asked(rl.pack, torch.nn.LSTM(5, 7), spec=GRU)
another_layout = asked(rl.pack, torch.nn.LSTM(5, 7), layout="keras")
COLUMN = FLAT.reshape(-1, 1, 1)
a_vector_of_three_dimensions = repaired(
    lambda: rl.unpack(COLUMN, LSTM, to="torch"),
    lambda: rl.unpack(COLUMN.reshape(-1), LSTM, to="torch"),
)
RAW = FLAT.tobytes()
bytes_for_an_array = evaluated(lambda: rl.pack(RAW, LSTM), r"pass (np\.frombuffer\(.*?\))",
                               lambda found: rl.pack(found, LSTM), source=RAW)  # fmt: skip
bytes_without_a_spec = evaluated(
    lambda: rl.pack(RAW), r"pass (np\.frombuffer\(source, dtype\))",
    lambda found: rl.pack(found, LSTM), source=RAW, dtype="f4",
)  # fmt: skip
TURNED = tensors() | {"weight_hh_l0": tensors()["weight_hh_l0"].T}
a_matrix_that_is_transposed = repaired(
    lambda: rl.pack(TURNED),
    lambda: rl.pack(TURNED | {"weight_hh_l0": TURNED["weight_hh_l0"].T}),
)


def gates_in_an_unknown_order():
    rng = np.random.default_rng(0)
    x, weights = rng.standard_normal((6, 3, 5)).astype("f4"), tensors()
    y = rl.forward(x, weights)[0]
    w_ih, w_hh, b_ih, b_hh = (np.split(array, 4) for array in weights.values())
    order = (1, 0, 3, 2)  # f i o g
    made = {
        "weight_ih": np.concatenate([w_ih[gate] for gate in order]).T,
        "weight_hh": np.concatenate([w_hh[gate] for gate in order]).T,
        "bias": np.concatenate([b_ih[gate] + b_hh[gate] for gate in order]),
    }
    for tensors_of_a_program in (made, {name: array.T for name, array in made.items()}):
        text = yield lambda source=tensors_of_a_program: rl.pack(source)
        identified = followed(
            text, r"not known: (rl\.identify\(.*?\))", tensors=tensors_of_a_program, x=x, y=y
        )
        np.testing.assert_allclose(rl.RNN(identified.best)(x)[0], y, atol=1e-5)
    torchs = {name: array.T for name, array in weights.items()}
    text = yield lambda: rl.pack(torchs)
    assert "if it is i f g o, pass w.T of each" in text
    rl.pack({name: array.T for name, array in torchs.items()})


def a_square_matrix_that_may_be_transposed():
    weights = tensors(RELU)
    made = {name: array.T for name, array in weights.items()}
    yield lambda: rl.pack(made, cell="rnn_relu")
    both = made | {name: made[name].T for name in ("weight_ih_l0", "weight_hh_l0")}
    assert same_bits(rl.Weights(both, cell="rnn_relu").tensors, weights)


a_layout_that_is_not_a_name = repaired(
    lambda: rl.describe(LSTM, 3), lambda: [rl.layout(one) for one in rl.layouts()]
)
a_dict_that_is_not_of_a_spec = repaired(
    lambda: rl.Spec.from_dict([1]), lambda: rl.Spec.from_dict(LSTM.to_dict())
)


def a_vector_of_another_rnn():
    half = LSTM.replace(dtype="float16")
    text = yield lambda: rl.unpack(FLAT.view("f2"), half, to="torch")
    view = followed(text, r"pass (w\.view\('float32'\))", w=FLAT.view("f2"))
    made = rl.unpack(view, followed(text, r"with spec=(rl\.Spec\(.*?\))"), to="torch")
    assert same_bits(made, tensors())


# ---------------------------------------------------------------------------------- modules


def a_class_of_the_users():
    class Mine(torch.nn.LSTM):
        def forward(self, x):
            return super().forward(x)

    module = Mine(5, 7, batch_first=True)
    text = yield lambda: rl.pack(module)
    found = followed(text, r"pass (rl\.Weights\(.*\)), and run", module=module)
    assert text.endswith("run it with batch_first=True")
    rl.RNN(found, batch_first=True)(X)


QUANTIZABLE = torch.ao.nn.quantizable.LSTM(5, 7)
a_quantizable_module = evaluated(
    lambda: rl.pack(QUANTIZABLE), r"pass (module\.state_dict\(\))", rl.pack, module=QUANTIZABLE
)
packed_weights = repaired(
    lambda: rl.pack({"_all_weight_values.0.param._packed_params": np.ones(3, "f4")}),
    lambda: rl.pack(torch.nn.LSTM(5, 7).state_dict()),
)


def weight_norm_with_exact():
    module = torch.nn.utils.weight_norm(torch.nn.LSTM(5, 7), "weight_hh_l0")
    yield lambda: rl.pack(module, exact=True)
    rl.pack(module)
    torch.nn.utils.remove_weight_norm(module, "weight_hh_l0")
    rl.pack(module, exact=True)


def a_keras_layer_without_weights():
    import keras

    layer = keras.layers.LSTM(7)
    yield lambda: rl.pack(layer)
    layer.build((None, None, 5))
    rl.pack(layer)


def modules_of_jax():
    one, other = (nnx.RNN(nnx_cell(nnx.LSTMCell, 5, 7)) for _ in range(2))
    both = nnx.Bidirectional(one, other, merge_fn=lambda a, b: a + b)
    text = yield lambda: rl.pack(both)
    rl.pack(followed(text, r"pass (nnx\.state\(.*?\))", nnx=nnx, layer=both))
    cell = nnx_cell(nnx.GRUCell, 5, 7, gate_fn=lambda x: jax.nn.sigmoid(x))
    text = yield lambda: rl.pack(cell)
    rl.pack(followed(text, r"pass (nnx\.state\(.*?\))", nnx=nnx, cell=cell))
    own = equinox_cell(equinox.nn.GRUCell, 5, 7)
    parts = equinox.partition(own, lambda leaf: getattr(leaf, "ndim", 0) == 2)
    yield lambda: rl.pack(parts[0])
    rl.pack(equinox.combine(*parts))
    rl.pack(equinox_cell(equinox.nn.GRUCell, 5, 7, use_bias=False), reset="after")
    module = linen.RNN(linen.LSTMCell(7))
    yield lambda: rl.pack(module)
    variables = filled(jax.eval_shape(module.init, KEY, X))
    rl.pack(variables["params"])


def boxed_parameters():
    module = linen.LSTMCell(7, kernel_init=linen.with_partitioning(
        linen.initializers.lecun_normal(), (None, "model")))  # fmt: skip
    state = np.ones((1, 7), "f4")
    params = filled(jax.eval_shape(module.init, KEY, (state, state), X1[0]))["params"]
    text = yield lambda: rl.pack(params)
    rl.pack(followed(text, r"pass (flax\.linen\.meta\.unbox\(params\))", flax=flax, params=params))


# ----------------------------------------------------------------------------------- arrays


def arrays_that_are_not_plain():
    weights = tensors()
    w = weights["weight_ih_l0"]
    nested = torch.nested.nested_tensor([torch.from_numpy(w)])
    yield lambda: rl.pack(weights | {"weight_ih_l0": np.ma.masked_array(w, False)})
    rl.pack(weights | {"weight_ih_l0": np.ma.masked_array(w, False).filled(0)})
    yield lambda: rl.pack(weights | {"weight_ih_l0": nested})
    rl.pack(weights | {"weight_ih_l0": nested.unbind()[0]})
    sparse = torch.from_numpy(w).to_sparse()
    text = yield lambda: rl.pack(weights | {"weight_ih_l0": sparse})
    dense = followed("sparse" + text.partition("pass its ")[2], r"(.*)", sparse=sparse)
    rl.pack(weights | {"weight_ih_l0": dense})

    class Lazy:  # as tinygrad's are
        def numpy(self):
            return w

    yield lambda: rl.pack(weights | {"weight_ih_l0": Lazy()})
    rl.pack(weights | {"weight_ih_l0": Lazy().numpy()})


# ----------------------------------------------------------------------------------- assign()


def a_target_that_cannot_take_the_weights():
    import keras

    wide = tensors(LSTM.replace(dtype="float64"))
    module = torch.nn.LSTM(5, 7)
    text = yield lambda: rl.assign(module, wide)
    rl.assign(module, followed(text, r"pass (rl\.Weights\(tensors, dtype='\w+'\))", tensors=wide))
    module = torch.nn.LSTM(5, 7, device="meta")
    text = yield lambda: rl.assign(module, tensors())
    followed(text, r"call (module\.to_empty\(.*?\)) first", module=module)
    rl.assign(module, tensors())
    module = torch.nn.LSTM(5, 7)
    module.bias_hh_l0 = module.bias_ih_l0
    text = yield lambda: rl.assign(module, tensors())
    exec(text.partition("give it two first: ")[2], {"module": module, "torch": torch})
    rl.assign(module, tensors())
    layer = keras.layers.LSTM(7)
    keras.Sequential([keras.Input((4, 5)), keras.layers.Masking(), layer])
    module = torch.nn.LSTM(5, 7)
    text = yield lambda: rl.assign(module, layer)
    code = text.partition("as in ")[2]
    exec(code, {"rl": rl, "layer": layer, "target": module})


def a_train_state():
    cell = nnx_cell(nnx.LSTMCell, 5, 7)

    class TrainState:
        params = nnx.to_pure_dict(nnx.state(cell, nnx.Param))

    yield lambda: rl.pack(TrainState())
    rl.pack(TrainState().params)
    text = yield lambda: rl.assign(TrainState(), rl.Weights(tensors()))
    assert "target.replace(params=rl.assign(target.params, tensors))" in text
    rl.assign(TrainState().params, rl.Weights(tensors()))


# --------------------------------------------------------------------------------- running


def calls_of_an_rnn():
    rnn = rl.RNN(tensors())
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(4, 5), torch.ones(2, 5)])
    text = yield lambda: rnn(packed)
    x, lengths = torch.nn.utils.rnn.pad_packed_sequence(packed)
    assert "pass both results" in text
    rnn(x, lengths=lengths)
    x = torch.ones(4, 3, 5, requires_grad=True)
    text = yield lambda: rnn(x)
    with torch.no_grad():
        rnn(x)
    rnn(followed(text, r"or pass (x\.detach\(\))", x=x))


a_stream_on_a_cpu = asked(rl.RNN(tensors()), X, stream=1)
math_of_wide_weights = asked(rl.RNN, tensors(LSTM.replace(dtype="float64")), math="bfloat16")
OURS, ROWS = rl.RNN(torch.nn.LSTM(5, 7)), torch.nn.LSTM(5, 7, batch_first=True)
weights_of_another_use = evaluated(
    lambda: OURS.update(ROWS), r"(rl\.Weights\(source\)\.tensors)", OURS.update, source=ROWS
)
RELUS = [tensors(RELU), tensors(rl.Spec("rnn_relu", 7, 7))]
layers_that_do_not_say = evaluated(
    lambda: rl.stack(RELUS), r"or cell=('\w+')",
    lambda cell: rl.stack([rl.Weights(layer, cell=cell) for layer in RELUS]),
)  # fmt: skip


def settings_that_are_not_applied():
    source = rl.Weights(tensors())
    source.config["initial_h"] = np.ones((1, 2, 7)).tolist()
    yield lambda: rl.RNN(source)(X)
    rl.RNN(source)(X, state=(np.ones((1, 3, 7), "f4"), np.ones((1, 3, 7), "f4")))
    source = rl.Weights(tensors())
    source.config["sequence_lens"] = [3]
    text = yield lambda: rl.RNN(source)
    exec(text.partition("without that: ")[2], {"rl": rl, "source": source})


def a_dtype_that_needs_a_package():
    have, sys.modules["ml_dtypes"] = sys.modules.pop("ml_dtypes", None), None
    try:
        yield lambda: rl.pack(tensors(), dtype="bfloat16")
        rl.pack(tensors(), dtype="float16")
    finally:
        del sys.modules["ml_dtypes"]
        sys.modules |= {"ml_dtypes": have} if have else {}


# --------------------------------------------------------------- verify, diagnose, identify


def diagnose_needs_more():
    yield lambda: rl.diagnose(FLAT.reshape(1, -1), like=tensors())
    rl.diagnose(FLAT.reshape(1, -1).reshape(-1), like=tensors())
    text = yield lambda: str(rl.diagnose(np.roll(FLAT, 3), like=tensors()))
    assert rl.diagnose(followed(text, r"flat = (rl\.pack\(like\))", like=tensors()), like=tensors())
    np.save("rolled.npy", np.roll(FLAT, 3))
    rl.save("right.npz", rl.Weights(tensors()))
    text = yield lambda: str(rl.diagnose("rolled.npy", like="right.npz"))
    followed(text, r"correct: (rl\.save\(.*\))")
    assert rl.diagnose("right-rolled.npy", like="right.npz")
    wrong = tensors(LSTM.replace(num_layers=2))
    layers = rl.Weights(wrong).to("keras").split()
    rl.save("layers.h5", {f"enc_{k}": layer for k, layer in enumerate(layers)})
    wrong["weight_ih_l0"] = wrong["weight_ih_l0"][::-1].copy()
    text = yield lambda: str(rl.diagnose(wrong, like="layers.h5"))
    made = followed(text, r"wrong = (rl\..*)")
    assert rl.diagnose(made, like="layers.h5")


def identify_needs_more():
    y = rl.forward(X, tensors())[0]
    yield lambda: rl.identify(torch.nn.LSTM(5, 7), X, y)
    rl.identify(torch.nn.LSTM(5, 7).state_dict(), X, y)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 3, 5)).astype("f4")
    y = rl.forward(x, tensors())[0]
    near = y + rng.uniform(-1e-3, 1e-3, y.shape).astype("f4")
    yield lambda: str(rl.identify(tensors(), x, near))
    assert rl.identify(tensors(), x, near, atol=0.01)
    arrays = [*tensors().values()][::-1]
    own = {  # gates in an order that is in no row
        f"w{k}": np.concatenate([np.split(one, 4)[gate] for gate in (1, 2, 0, 3)])
        for k, one in enumerate(arrays)
    }
    text = yield lambda: str(rl.identify(own, x, y))
    made = followed(text, r"read it with: (.*)", tensors=own, x=x, y=y)
    np.testing.assert_array_equal(rl.RNN(made)(x)[0], y)
    both = LSTM.replace(bidirectional=True)  # a list whose order is that of no row
    y = rl.forward(x, tensors(both))[0]
    matrices = [np.concatenate(np.split(one, 4)[::-1]) for one in tensors(both).values()]
    own = matrices[4:] + matrices[:4]
    text = yield lambda: str(rl.identify(own, x, y))
    made = followed(text, r"read it with: (.*)", tensors=own, x=x, y=y)
    np.testing.assert_array_equal(rl.RNN(made)(x)[0], y)


Y, A, B = rl.forward(X, tensors())[0], rl.Weights(tensors()), rl.Weights(tensors(seed=1))
cells_to_verify = repaired(
    lambda: rl.verify(A, A, cell="lstm"),
    lambda: rl.verify(rl.Weights(tensors(), cell="lstm"), A),
)
a_file_of_several_to_identify = repaired(
    lambda: rl.identify("w.onnx", X, Y), lambda: rl.identify("w.onnx", X, Y, prefix="a"),
    before=lambda: rl.save("w.onnx", {"a": A, "b": B}),
)  # fmt: skip
a_format_of_a_dict = asked(rl.diagnose, FLAT, like=tensors(), format="npz")
a_prefix_to_identify = asked(rl.identify, [*tensors().values()], X, Y, prefix="a")
too_many_tensors_to_identify = asked(
    rl.identify, {f"a.{k}": X for k in range(5000)} | tensors(prefix="rnn."), X, Y,
    known={"prefix": "rnn"},
)  # fmt: skip


def a_layer_of_mlx():
    from mlx import nn

    layer = nn.RNN(5, 7, nonlinearity=lambda x: nn.tanh(x))
    text = yield lambda: rl.pack(layer)
    rl.pack(followed(text, r"pass (dict\(layer\))", layer=layer), cell="rnn_tanh")


# ------------------------------------------------------------------------------------------ masks

MASK = np.ones((4, 3), bool)
REVERSED = rl.Weights(tensors())
REVERSED.config = {"direction": "reverse"}
mask_and_lengths = asked(rl.forward, X, tensors(), mask=MASK, lengths=[4, 2, 0])
mask_of_numbers = evaluated(
    lambda: rl.forward(X, tensors(), mask=MASK + 0.0),
    r"pass (mask != 0)", lambda mask: rl.forward(X, tensors(), mask=mask), mask=MASK + 0.0,
)  # fmt: skip
mask_on_other_axes = evaluated(
    lambda: rl.forward(X, tensors(), mask=MASK.T),
    r"pass (mask\.T)", lambda mask: rl.forward(X, tensors(), mask=mask), mask=MASK.T,
)  # fmt: skip
lengths_of_a_reversed_rnn = repaired(
    lambda: REVERSED.rnn()(X, lengths=[4, 2, 0]), lambda: REVERSED.rnn()(X, mask=MASK)
)


# ------------------------------------------------------------------------------ assumed settings


def warned(call):
    """Return the text of the AssumedWarning of a call, "" without one."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return "".join(str(warning.message) for warning in caught)


def settings_that_a_source_does_not_record():
    text = yield lambda: warned(lambda: rl.forward(X, tensors()))
    for argument in each(r"batch_first=\w+", text):
        assert not eval(f"warned(lambda: rl.forward(X, tensors(), {argument}))")
    rl.save("w.weights.h5", rl.Weights(tensors(layout="keras")))
    with h5py.File("w.weights.h5", "a") as file:
        del file.attrs["rnnlayout"]
    text = yield lambda: warned(lambda: rl.load("w.weights.h5")["lstm"].rnn()(X))
    fields = ", ".join(each(r"activation='\w+'|recurrent_activation='\w+'", text.split("pass")[-1]))
    w = eval(f"rl.load('w.weights.h5', {fields})")["lstm"]
    exec(each(r"set (w.config = \{.*?\}) in Python", text)[0])
    assert not warned(lambda: w.rnn()(X))
    rl.save("w.keras", w)
    with zipfile.ZipFile("w.keras") as archive:
        config = archive.read("config.json").decode()
    w = rl.load("w.weights.h5", keras_config=config)["lstm"]
    assert not warned(lambda: w.rnn()(X))


def a_source_with_a_mask():
    weights = rl.Weights(torch.nn.LSTM(5, 7))
    weights.config = {"mask": "Masking(mask_value=0.0)"}
    yield lambda: warned(lambda: weights.rnn()(X))
    assert not warned(lambda: weights.rnn()(X, mask=MASK))
