"""Each mistake has its own message: what was found, what is needed, the likely cause, and a repair.
More repairs are in tests/hints; here each function takes them."""

import copy
import cProfile
import pickle

import numpy as np
import pytest
import torch
from oracles.frameworks import normal, seeded
from oracles.some import normal_weights, prefixed, same_bits

import rnnlayout as rl

LSTM = rl.Spec("lstm", 5, 7)
GRU = rl.Spec("gru", 5, 7)
PROJECTED = rl.Spec("lstm", 5, 7, proj_size=3)
RELU = rl.Spec("rnn_relu", 5, 7)
X = normal(seeded("x"), 4, 3, 5)


def tensors(spec=LSTM, layout="torch", **changes):
    """Return the weights of an RNN with some of them changed; None removes one."""
    weights = {**normal_weights(layout, spec), **changes}
    return {name: w for name, w in weights.items() if w is not None}


def ones(*shape):
    return np.ones(shape, "f4")


@pytest.mark.parametrize(
    "weights, spec, text",
    [
        (tensors(bias_hh_l0=ones(21)), None,
         r"bias_hh_l0: shape \(21,\), expected \(28,\) = \(4 H,\) with H = 7, I = 5 .*3 H where 4 H"
         r" is needed: are these the weights of a GRU\?"),
        (tensors(GRU), LSTM,
         r"weight_ih_l0: shape \(21, 5\), expected \(28, 5\) = \(4 H, I\) .*3 H where 4 H.*"
         r"3 more do not fit.*these shapes fit spec=rl.Spec\('gru', input_size=5, hidden_size"),
        (tensors(), GRU, "4 H where 3 H is needed: are these the weights of an LSTM"),
        (tensors(weight_hh_l0=ones(7, 28)), None, r"expected \(28, 7\).*this matrix is transposed"),
        ({n: w.T for n, w in tensors().items()}, None,
         r"weight_ih_l0: shape \(5, 28\), expected \(28, 5\).*the matrices are transposed"),
        ({n: w.T for n, w in tensors().items()}, LSTM,
         r"matrices are transposed.* of the gates is not known: .* i f g o, pass w.T of each"),
        ({n: w.T for n, w in tensors(RELU).items()}, None,
         r"pass its .T \(the square 'weight_hh_l0' may be transposed too\)"),
        (tensors(weight_ih_l0=ones(5, 28)), None, r"expected \(28, 5\).*this matrix is transposed"),
        (tensors(bias_hh_l0=ones(56)), None, "twice as long: does it have two biases per gate"),
        (tensors(), rl.Spec("lstm", 5, 8), r"shapes fit spec=rl.Spec\('lstm', input_size=5"),
        (tensors(PROJECTED, weight_hr_l0=ones(4, 7)), PROJECTED, r"\(P, H\) with .*, P = 3"),
        (tensors(weight_ih_l0=ones(28, 5, 1)), None, r"shape \(28, 5, 1\), expected \(28, I\)"),
        (tensors(weight_ih_l0=np.float32(1)), None, r"shape \(\), expected \(28, I\)"),
        ({n: w[()].ravel()[0] for n, w in tensors().items()}, None,
         r"weight_ih_l0: shape \(\), expected \(4 H, I\) \(lstm in torch\)"),
        ({n: np.stack([w, w]) for n, w in tensors().items()}, None,
         r"shape \(2, 28, 5\), expected \(4 H, I\) \(lstm in torch\): one dimension more:"
         r" are these the weights of several RNNs\? Pass w\[0\] of each"),
        ({n: np.stack([w, w]) for n, w in tensors().items()}, LSTM, "Pass w.0. of each"),
        ({n: w.T if "kernel" in n else w for n, w in
          tensors(rl.Spec("gru", 2, 3), "keras").items()}, None, "the matrices are transposed"),
        (tensors(PROJECTED, weight_hr_l0=ones(4, 7)), None,
         r"weight_hr_l0: shape \(4, 7\), expected \(3, 7\) = \(P, H\)"),
    ],
)  # fmt: skip
def test_shapes(weights, spec, text):
    with pytest.raises(rl.LayoutError, match=text):
        rl.pack(weights, spec)


def fiog(array):
    """Return the array with its gates in the order of the LSTMs of hydrology and of tutorials."""
    i, f, g, o = np.split(array, 4)
    return np.concatenate([f, i, o, g])


def test_gates_f_i_o_g_were_transposed_and_then_read_as_equinox():
    """The order of the gates was guessed from the shape."""
    w = tensors(bias_hh_l0=np.zeros(28, "f4"))
    made = {
        "weight_ih": fiog(w["weight_ih_l0"]).T,
        "weight_hh": fiog(w["weight_hh_l0"]).T,
        "bias": fiog(w["bias_ih_l0"]),
    }
    turned = {name: array.T for name, array in made.items()}
    for source in (made, turned):
        with pytest.raises(rl.LayoutError, match=r"order of the gates is not known: rl\.ident"):
            rl.pack(source)
    y = rl.forward(X, w)[0]
    for source in (made, turned):
        np.testing.assert_allclose(rl.RNN(rl.identify(source, X, y).best)(X)[0], y, atol=1e-5)


@pytest.mark.parametrize(
    "weights, text",
    [
        (tensors(bias_hh_l0=None), "missing 'bias_hh_l0', all layers and directions have biases"),
        (tensors(weight_hh_l0=None), "missing 'weight_hh_l0'"),
        (tensors(fc=ones(2)), "unknown 'fc'"),
        (tensors(weight_ih_l1=ones(28, 7)), "^missing 'weight_hh_l1', 'bias_ih_l1', 'bias_hh_l1' "),
        (tensors(rl.Spec("lstm", 5, 7, 2), weight_hh_l1=None), "^missing 'weight_hh_l1' "),
        (tensors(rl.Spec("gru", 5, 7, bidirectional=True), bias_hh_l0_reverse=None),
         "^missing 'bias_hh_l0_reverse'"),
        ({"p": ones(2), "q": ones(3)}, "'p', 'q' do not have the names of a layout: .*; need"),
        ({}, "the dict of tensors is empty"),
        ({1: ones(2)}, "a key is not a string"),
        ({"enc.rnn." + n: w for n, w in tensors().items()} | {"fc.weight": ones(2)},
         r"with prefix= these would work: 'enc.rnn'$"),
        ({f"{p}.{n}": w for p in ("enc", "dec.a") for n, w in tensors().items()},
         r"with prefix= these would work: 'enc', 'dec.a'$"),
        ({f"{p}/lstm_cell/{n}:0": w for p in ("lstm", "lstm_1")
          for n, w in tensors(layout="keras").items()},
         r"with prefix= these would work: 'lstm', 'lstm_1'"),
        (tensors(layout="tf1"), r"forget_bias='1\.0'\) \(or other values of its options\)$"),
    ],
)  # fmt: skip
def test_names(weights, text):
    with pytest.raises(rl.LayoutError, match=text):
        rl.pack(weights)


@pytest.mark.parametrize(
    "array, text",
    [
        (np.array([[1.0, 2.0], None], dtype=object), "dtype object, an array of Python objects"),
        (np.zeros(3, [("w", "f4"), ("b", "f4")]), "a structured array with fields w, b"),
        (np.zeros((28, 5), "i8"), "dtype int64, need one of float16, bfloat16"),
        (np.zeros((28, 5), "u1"), "quantized weights must be dequantized"),
        (np.zeros((28, 5), bool), "dtype bool"),
        (np.zeros((28, 5), "c8"), "dtype complex64, need one of"),
        (np.zeros((28, 5), "U3"), "dtype <U3, need one of"),
        (np.zeros((28, 5), "f16"), "dtype float128, need one of"),
        (np.ma.masked_array(np.zeros((28, 5), "f4"), True), "is a masked array"),
        ([[1.0], [2.0, 3.0]], "is not an array: list"),
        (rl.Report("exact"), "weight_ih_l0 is a Report, need an array of numbers"),
        (np.zeros((28, 5), "f8"), "weight_ih_l0 is float64 but weight_hh_l0 is float32"),
    ],
)
def test_what_is_no_array_of_floats(array, text):
    with pytest.raises(rl.LayoutError, match=text):
        rl.pack(tensors(weight_ih_l0=array))


@pytest.mark.parametrize(
    "shape, spec, text",
    [
        (364, LSTM, r"364 elements, need 392 .*bias='input'\) or .*bias='recurrent'\) \(you have"),
        (336, LSTM, r"it would fit spec=rl.Spec\(.*, bias='none'\)"),
        (392, LSTM.replace(bias="none"), "torch's own GPU buffer of a bias=False module also has"),
        (784, LSTM, r"it would fit spec=rl.Spec\(.*, bidirectional=True\)"),
        (rl.Spec("lstm", 5, 7, 2).num_params, LSTM, r"it would fit spec=.*, num_layers=2\)"),
        (GRU.num_params, LSTM, r"it would fit spec=rl.Spec\('gru', "),
        (rl.Spec("lstm", 7, 5).num_params, LSTM, r"fit spec=.*input_size=7, hidden_size=5\)"),
        (rl.Spec("lstm", 5, 7, proj_size=2).num_params, LSTM, r"it would fit .*, proj_size=2\)"),
        (0, LSTM, "0 elements, need 392"),
        (1568, LSTM, "1568 elements, need 392(?!.*byte)"),  # which are 1568 bytes
        ((392, 1, 1), LSTM, r"shape \(392, 1, 1\), expected \(392,\)"),
    ],
)  # fmt: skip
def test_a_flat_vector_of_a_wrong_length_or_rank(shape, spec, text):
    with pytest.raises(rl.LayoutError, match=text):
        rl.unpack(np.zeros(shape, "f4"), spec, to="torch")


def test_a_list_that_may_be_two_layers_or_two_directions():
    square = rl.Spec("lstm", 7, 7, 2)
    arrays = list(normal_weights("keras", square).values())
    with pytest.raises(rl.SpecError, match=r"fit several RNNs.*num_layers=2.*bidirectional=True"):
        rl.pack(arrays, layout="keras")
    assert rl.pack(arrays, square, layout="keras").size == square.num_params


@pytest.mark.parametrize("name", ["torch\0", "torch\0x", "\0", "\ud800", "torch\udcff"])
def test_a_name_is_not_cut_at_a_nul_nor_is_half_a_character_one(name):
    """In C a NUL ends a text: "torch\\0x" was read as torch in one place, not found in another."""
    for call, text in (
        (lambda: rl.layout(name), r"no layout is called ''.*\\(x00|ud800|udcff)"),
        (lambda: rl.pack(tensors(), layout=name), "no layout is called ''"),
        (lambda: rl.layout("concat", inputs=name), "option inputs is ''"),
        (lambda: rl.layout("concat", **{name: "hx"}), "no option ''"),
        *((lambda field=field: LSTM.replace(**{field: "lstm" + name}), "need one of")
          for field in ("cell", "bias", "reset", "recurrent_activation")),
        (lambda: LSTM.replace(dtype=name), "dtype is"),
    ):  # fmt: skip
        with pytest.raises((rl.LayoutError, rl.SpecError), match=text):
            call()


def test_a_weight_space_in_a_list_of_its_own():
    flat = rl.pack(tensors())
    for version in (7, 9):
        cudnn = rl.layout("cudnn", version=version)
        for source in ([flat], flat.tolist()):
            made = rl.convert(source, LSTM, layout=cudnn, to="cudnn", dtype="f4")
            assert made.tobytes() == flat.tobytes()
        with pytest.raises(rl.LayoutError, match="cudnn is one flat vector, found a dict"):
            rl.convert({"weight_space": flat}, LSTM, layout=cudnn, to="torch")
    for short in ([1.0], [[1.0]], [1.0, [2.0, 3.0]], [None], [[[1.0]]]):  # was a division by zero
        with pytest.raises(rl.LayoutError, match="weight space"):
            rl.unpack(short, LSTM, to="torch")


FLAT = np.zeros(392, "f4")
REFUSED = [  # those with a repair: tests/hints
    (lambda: rl.pack(tensors(), prefix=1), "prefix is a int, need a string"),
    (lambda: rl.RNN(rl.Weights(tensors()), prefix="a"), "found a Weights: omit prefix="),
    (lambda: rl.forward(np.ones((1, 1, 5)), FLAT, LSTM, prefix="a"), "found a ndarray: omit pref"),
    (lambda: rl.pack(np.ctypeslib.as_ctypes_type("f4")(1.0), LSTM), "need a|weight space"),
    (lambda: rl.pack(tensors(), exact="no"), "exact is 'no', need True or False"),
    (lambda: rl.infer_spec(tensors(), cell=ones(2)), "cell is array.*need a name"),
    (lambda: rl.stack(7), "layers is a int, need a list of them"),
    (lambda: rl.explain("lstm", "torch", "keras"), "need a Spec"),
    (lambda: rl.pack(tensors(), "lstm"), "spec is a str, need a Spec"),
    (lambda: rl.pack(FLAT, LSTM, layout="torch"), "torch is a dict or list of tensors, found"),
    (lambda: rl.pack(b"model.npz"), r"'model.npz' is a path, need weights: pass rl.load\('model"),
    (lambda: rl.pack(bytes(7), LSTM), "7 bytes, need an array: pass np.frombuffer.source, dtype.$"),
    (lambda: LSTM.replace(hidden_size=10**5000), "hidden_size is too large, need at most"),
    (lambda: LSTM.replace(dtype=LSTM), "dtype is Spec.*need one of"),
    (lambda: LSTM.replace(dtype=",),"), "dtype is ',.,', need one of"),
]


@pytest.mark.parametrize("call, text", REFUSED, ids=[text for _, text in REFUSED])
def test_arguments_of_another_kind(call, text):
    with pytest.raises((rl.LayoutError, rl.SpecError), match=text):
        call()


# --------------------------------------------------------------------------------------- out=


def of_keras(**changes):
    """Return a dict to write the weights of an LSTM into, with some arrays changed."""
    shapes = rl.describe(LSTM, "keras")
    return {name: np.full(shape, 7, "f4") for name, shape in shapes.items()} | changes


FLAT_OUTS = [  # not in one block, read-only, in another byte order: test_awkward_arrays.py
    (np.full(391, 7, "f4"), r"shape \(391,\), expected \(392,\)"),
    (np.full(392, 7, "f8"), "is float64, need float32, the dtype of the result"),
    ([7.0] * 392, "is float64|cannot be written in place"),
]
OUTS_OF_TENSORS = [
    ([*of_keras().values()], "out is a list, need a dict of arrays for keras"),
    (of_keras(more=np.full(3, 7, "f4")), "unknown 'more'"),
    ({"kernel": of_keras()["kernel"]}, "missing 'recurrent_kernel', 'bias' "),
    (of_keras(bias=np.full(28, 7, "u2")), "dtype uint16, need one of float16"),
    (of_keras(bias=np.ma.masked_array(np.full(28, 7, "f4"))), "is a masked array: fill it first"),
    (of_keras(bias=[7.0] * 28), "is float64, need float32"),
    (of_keras(bias=None), "is a NoneType, need an array of numbers"),
    (of_keras(kernel=np.full(28, 7, "f4")), r"shape \(28,\), expected \(5, 28\)"),
    (np.full((5, 28), 7, "f4"), "out is a ndarray, need a dict"),
    (7, "out is a int, need a dict"),
]


@pytest.mark.parametrize(
    "to, out, text", [*(("cudnn", *row) for row in FLAT_OUTS),
                      *(("keras", *row) for row in OUTS_OF_TENSORS)],
)  # fmt: skip
def test_an_out_that_cannot_be_filled_is_left_alone(to, out, text):
    before = copy.deepcopy(out)
    with pytest.raises(rl.LayoutError, match=text):
        rl.convert(tensors(), to=to, out=out)
    assert pickle.dumps(out) == pickle.dumps(before)


def test_an_out_is_left_alone_if_a_value_does_not_fit():
    source = tensors()
    source["weight_ih_l0"][-1, -1] = 1e9
    out = {name: array.astype("f2") for name, array in of_keras().items()}
    with pytest.raises(rl.LossyError, match="float16"):
        rl.convert(source, to="keras", dtype="float16", out=out)
    assert all((array == 7).all() for array in out.values())


@pytest.mark.parametrize("layout", rl.layouts())
def test_wrong_names_of_any_layout_are_named(layout):
    """A layout of one vector raised a ZeroDivisionError."""
    tensors = {"a": np.ones(3, "f4"), "b": np.ones(3, "f4")}
    with pytest.raises(rl.Error):
        rl.Weights(tensors, layout=layout)


# -------------------------------------------------------- what people try first, with each function


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


class Key(str):
    """A string whose comparisons are calls of a Python function."""

    __hash__ = str.__hash__

    def __eq__(self, other):
        return str.__eq__(self, other)


def test_the_error_for_many_rnns_is_linear():
    """400 RNNs without prefix= took 18 s: each was compared with each."""

    def number_of_calls(n):
        pairs = [(k, name, w) for k in range(n) for name, w in tensors().items()]
        whole = {Key(f"layers.{k}.rnn.{name}"): w for k, name, w in pairs}
        profile = cProfile.Profile()
        profile.runcall(error_of, rl.pack, whole)
        return sum(one.callcount for one in profile.getstats())

    number_of_calls(3)  # fills the caches
    few, many = number_of_calls(25), number_of_calls(200)
    assert many < 9 * few  # 8 times the tensors; a quadratic part would make it up to 64
