"""The equivalence rules: which conversions keep every bit, which round, which are refused."""

import numpy as np
import pytest
from oracles.bits import DTYPES, Bits
from oracles.some import dtype_of, normal_weights, same_bits

import rnnlayout as rl
from rnnlayout._sources.candidates import one_layer_candidates


def summed(bw, br, dtype):
    """Return the one bias of Keras's layer for the two of torch's."""
    spec = rl.Spec("rnn_tanh", 1, len(bw))
    weights = {
        "weight_ih_l0": np.zeros((len(bw), 1), bw.dtype),
        "weight_hh_l0": np.zeros((len(bw), len(bw)), bw.dtype),
        "bias_ih_l0": bw,
        "bias_hh_l0": br,
    }
    return rl.convert(weights, spec, layout="torch", to="keras", dtype=dtype)["bias"]


@pytest.mark.parametrize("to", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sum_in_a_narrower_dtype_is_rounded_once(dtype, to):
    """The first numbers are halfway between two of the target, so that the second ones decide,
    however small they are: (1 + 2^-24) + 2^-80 in float64 is 1 + 2^-23 in float32."""
    bits, target, rng = Bits(dtype), Bits(to), np.random.default_rng(5)
    unit = 2.0**-target.mantissa
    halfway = (1 + unit * (rng.integers(0, 1 / unit, 300) + 0.5)) * 2.0 ** rng.integers(
        -20, 15, 300
    )
    halfway[:60] = unit / 2 * 2.0**target.least_exponent  # of the smallest number and zero
    tiny = rng.choice([-1, 1], 300) * 2.0 ** -rng.integers(1, 120, 300)
    bw, br = (bits.nearest(numbers).view(bits.dtype) for numbers in (halfway, tiny))
    wanted = target.nearest_sum(bw.astype("f8"), br.astype("f8"))
    one_is_zero = (bw == 0) | (br == 0)
    wanted[one_is_zero] = target.nearest((bw + br).astype("f8"))[one_is_zero]
    assert (summed(bw, br, to).view(target.integer) == wanted).all()
    swapped = summed(br, bw, to).view(target.integer)
    assert ((swapped == wanted) | (bw == 0) & (br == 0)).all()  # of two zeros the first is taken


@pytest.mark.parametrize("dtype, to, largest, halfway", [
    ("float64", "float32", 2.0**128 - 2.0**104, 2.0**128 - 2.0**103),
    ("float32", "float16", 65504.0, 65520.0),
])  # fmt: skip
def test_a_sum_that_rounds_to_the_largest_number_is_not_too_large(dtype, to, largest, halfway):
    bw, br = np.array([halfway], dtype), np.array([2.0**-80], dtype)
    assert summed(bw, -br, to)[0] == largest
    with pytest.raises(rl.LossyError, match=f"too large for {to}"):
        summed(bw, br, to)
    huge = np.full(2, 3e38, "f4")
    with pytest.raises(rl.LossyError, match=r"bias_ih_l0\[0\] is 3e\+38 before the recurrent bias"):
        summed(huge, huge, None)
    assert summed(huge, huge, "float64")[0] == 2 * float(huge[0])


def test_skip_input_is_the_identity():
    spec = rl.Spec("gru", 3, 3, 2, True, skip_input=True)
    flat = normal_weights("cudnn", spec)
    weights = rl.unpack(flat, spec, to="torch")
    for gate in weights["weight_ih_l0"].reshape(-1, 3, 3):
        assert same_bits(gate.copy(), np.eye(3, dtype="f4"))
    for value, grade in ((-0.0, "exact"), (0.5, "unrepresentable")):
        weights["weight_ih_l0"][1, 2] = value
        report = rl.check(weights, spec, to="cudnn")
        assert report.grade == grade
    assert "weight_ih_l0[1, 2] is 0.5: with skip_input" in report.reason


# --------------------------------------------------------------------------------------- dtypes


# From a narrower to a wider exponent, and the smallest value that becomes infinite: a tie goes up.
INFINITE = [
    ("float32", "float16", 65520.0), ("float64", "float16", 65520.0),
    ("bfloat16", "float16", 65536.0), ("float32", "bfloat16", (2 - 2.0**-8) * 2.0**127),
    ("float64", "bfloat16", (2 - 2.0**-8) * 2.0**127),
    ("float64", "float32", (2 - 2.0**-24) * 2.0**127),
]  # fmt: skip


@pytest.mark.parametrize("a, b, first", INFINITE)
def test_a_finite_value_may_not_become_infinite(a, b, first):
    spec = rl.Spec("rnn_tanh", 2, 2, bias="none", dtype=a)
    flat = np.zeros(8, dtype_of(spec))
    flat[3], flat[5] = first, np.inf
    with pytest.raises(rl.LossyError, match=rf"weight_space\[3\] is .*: too large for {b}"):
        rl.pack(flat, spec, dtype=b)
    assert rl.check(flat, spec, to="cudnn", dtype=b).grade == "unrepresentable"
    bits = flat.view({2: "u2", 4: "u4", 8: "u8"}[flat.dtype.itemsize])
    bits[3:4] -= bits.dtype.type(1)  # the value just below, which is rounded
    with pytest.raises(rl.LossyError, match=f"refused: {b} cannot represent every"):
        rl.pack(flat, spec, dtype=b, exact=True)
    result = rl.pack(flat, spec, dtype=b)
    assert np.isfinite(float(result[3])) and np.isinf(float(result[5]))


@pytest.mark.parametrize("layout", ["torch", "keras"])
def test_of_several_that_do_not_fit_the_first_is_named(layout):
    """In any order of work: new memory is filled from its end, and checked meanwhile."""
    spec = rl.Spec("lstm", 300, 400)
    weights = {name: np.zeros(s, "f4") for name, s in rl.describe(spec, layout).items()}
    for array in weights.values():
        array[..., 5] = array[..., -1] = 1e5
    reason = rl.check(weights, spec, layout=layout, to="cudnn", dtype="float16").reason
    assert f"{next(iter(weights))}[0, 5] is 100000" in reason
    out = np.ones(spec.num_params, "f2")
    for given in (None, out):
        with pytest.raises(rl.LossyError) as caught:
            rl.pack(weights, spec, layout=layout, dtype="float16", out=given)
        assert str(caught.value) == reason
    assert (out == 1).all()


# ----------------------------------------------------------------------------- what has no form


# what the RNN is -> the layouts without it, those with it, what the error says
NO_FORM = [
    (rl.Spec("gru", 5, 3, reset="before"), ["cudnn", "torch", "keras-cudnn"], [],
     "no reset-before GRU"),
    (rl.Spec("rnn_relu", 5, 3), ["keras-cudnn"], [], "keras-cudnn has no rnn_relu"),
    *(
        (rl.Spec(cell, 5, 3, bias="none", recurrent_activation=activation),
         ["cudnn", "torch", "torch-cell", "keras-cudnn"], ["onnx", "concat"],
         f"no recurrent_activation '{activation}'.*its gates are sigmoids")
        for cell, activation in [("lstm", "hard_sigmoid"), ("gru", "hard_sigmoid_keras2")]
    ),
    *(
        (rl.Spec(cell, 5, 3, bias="none", activation="relu"),
         ["cudnn", "torch", "torch-cell", "keras-cudnn"], ["onnx", "concat"],
         f" has no {cell} with activation 'relu'.*tanh")
        for cell in ("lstm", "gru")
    ),
    (rl.Spec("lstm", 5, 3, activation="relu"), ["tf1"], [], "tf1 has no lstm with activation 'r"),
]  # fmt: skip


@pytest.mark.parametrize("spec, without, having, text", NO_FORM, ids=str)
def test_what_a_layout_has_no_form_for(spec, without, having, text):
    weights = normal_weights("keras", spec)
    for target in without:
        with pytest.raises(rl.LossyError, match=text):
            rl.convert(weights, spec, layout="keras", to=target)
        report = rl.check(weights, spec, layout="keras", to=target)
        assert report.grade == "unrepresentable"
        assert report.reason in rl.explain(spec, "keras", target)
    for target in having:
        there = rl.convert(weights, spec, layout="keras", to=target)
        assert there.spec == spec
        assert same_bits(rl.convert(there, layout=target, to="keras"), weights)


# Frameworks whose cells take this function for their gates; all others have sigmoids only.
HARD = {"hard_sigmoid": {"keras", "onnx", "concat"},
        "hard_sigmoid_keras2": {"keras", "onnx", "concat", "keras1"}}  # fmt: skip


@pytest.mark.parametrize("layout", rl.layouts())
def test_few_layouts_have_a_hard_sigmoid(layout):
    """In each row: an LSTM, and a GRU with each of its resets."""
    resets = rl.layouts()[layout]["resets"]
    for cell, reset in [("lstm", "after"), *(("gru", reset) for reset in resets)]:
        for activation, having in HARD.items():
            spec = rl.Spec(cell, 5, 3, reset=reset, recurrent_activation=activation)
            if layout in having:
                assert rl.describe(spec, layout)
            else:
                with pytest.raises(rl.LossyError, match=f"recurrent_activation '{activation}'"):
                    rl.describe(spec, layout)


# Frameworks whose LSTM, and GRU if they have one, may have relu in the place of tanh.
RELU = {"keras", "keras1", "onnx", "concat", "coreml", "tflite"}


@pytest.mark.parametrize("layout", rl.layouts())
def test_few_layouts_have_relu(layout):
    resets = rl.layouts()[layout]["resets"]
    for cell, reset in [("lstm", "after"), *(("gru", reset) for reset in resets)]:
        spec = rl.Spec(cell, 5, 3, reset=reset, activation="relu")
        if layout in RELU:
            assert rl.describe(spec, layout)
        else:
            with pytest.raises(rl.LossyError, match="activation 'relu'"):
                rl.describe(spec, layout)


# Frameworks whose GRU multiplies r with h before the matrix, or in either way; others do it after.
BEFORE = {"haiku", "keras1", "cntk", "chainer-links", "tf1", "coreml"}
EITHER = {"keras", "onnx", "concat", "openvino", "burn", "webnn", "webnn-ifgo", "onednn"}
NO_GRU = {"dl4j", "flax-nnx-lstm", "tf1-block-v2", "tflite", "nam"}


@pytest.mark.parametrize("layout", rl.layouts())
def test_the_resets_of_each_layout(layout):
    having = ["before"] * (layout in BEFORE | EITHER) + ["after"] * (layout not in BEFORE)
    for reset in ("after", "before"):
        spec = rl.Spec("gru", 5, 3, reset=reset)
        if layout not in NO_GRU and reset in having:
            assert rl.describe(spec, layout)
        else:
            with pytest.raises(rl.LossyError, match=r"reset|no gru"):
                rl.describe(spec, layout)


# Frameworks whose programs have no RNNs without biases. cuDNN's modes may have one bias of the two.
ALWAYS = {"keras-cudnn", "flax-linen", "flax-nnx", "flax-nnx-lstm", "haiku", "openvino", "keras1",
          "tf1-cudnn-canonical", "haste", "cntk", "dl4j", "mxnet-gluon", "chainer-nstep",
          "chainer-links", "tf1", "tf1-block-v2", "tflite", "nam"}  # fmt: skip


@pytest.mark.parametrize("layout", rl.layouts())
def test_which_biases_each_layout_has(layout):
    cells = [rnn.spec({"I": 5, "H": 3, "P": 2}) for rnn in one_layer_candidates(rl.layout(layout))]
    for spec in cells:
        both, one, none = (
            rl.describe(spec.replace(bias=bias), layout) for bias in ("double", "input", "none")
        )
        assert (none == both) == (layout in ALWAYS) and (one == both) == (layout != "cudnn")


# Layouts with a tensor per gate, found by name in their frameworks: the order in a list is ours.
FIRST = [
    ("flax-linen", "lstm", "ii/kernel if/kernel ig/kernel io/kernel"),
    ("flax-linen", "gru", "ir/kernel iz/kernel in/kernel"),
    ("flax-nnx-lstm", "lstm", "ii/kernel if_/kernel ig/kernel io/kernel"),
    ("chainer-nstep", "lstm", "0/w0 0/w1 0/w2 0/w3 0/w4 0/w5 0/w6 0/w7 0/b0 0/b1 0/b2 0/b3"),
    ("chainer-nstep", "gru", "0/w0 0/w1 0/w2 0/w3 0/w4 0/w5 0/b0 0/b1 0/b2"),
    ("chainer-links", "gru", "W_r/W W_z/W W/W"),
    ("tflite", "lstm", "input_to_input_weights input_to_forget_weights input_to_cell_weights"
     " input_to_output_weights"),
]  # fmt: skip


@pytest.mark.parametrize("layout, cell, names", FIRST)
def test_the_order_of_tensors_in_a_list(layout, cell, names):
    resets = rl.layouts()[layout]["resets"]
    spec = rl.Spec(cell, 5, 3, reset=resets[0] if cell == "gru" else "after")
    expected = names.split()
    assert [*rl.describe(spec, layout)][: len(expected)] == expected


def test_a_projection_is_refused_with_the_algebra_that_would_do():
    weights = normal_weights("torch", rl.Spec("lstm", 5, 4, proj_size=2))
    for target in ("keras", "onnx", "concat", "torch-cell", "keras-cudnn"):
        with pytest.raises(rl.LossyError, match=r"R' = R P \(4, 4\)"):
            rl.convert(weights, to=target)


@pytest.mark.parametrize("reset, to", [("before", "torch"), ("after", "tf1")])
def test_a_gru_of_the_other_reset_is_refused_with_both_formulas(reset, to):
    formulas = {"before": "tanh(W x + R (r * h))", "after": "tanh(W x + r * (R h))"}
    spec = rl.Spec("gru", 5, 7, reset=reset)
    with pytest.raises(rl.LossyError) as error:
        rl.describe(spec, to)
    own, (other,) = formulas.pop(reset), formulas.values()
    assert f"of this GRU is {own}, that of {to} is {other}" in str(error.value)


def test_explain_names_every_move():
    text = rl.explain(rl.Spec("gru", 5, 3, 2, True), "torch", rl.layout("concat", z="candidate"))
    assert "gates in memory: r z n -> r z n" in text
    assert "W  z  weight_ih_l0 -> 0/forward/W_z, negated" in text
    assert "bR n  bias_hh_l0 must be zero" in text
    assert "layer 1 backward: as layer 0 forward" in text
    assert "unrepresentable unless zero: recurrent bias of gate n" in text
    text = rl.explain(rl.Spec("lstm", 5, 3), "keras-cudnn", "onnx")
    assert "gates in memory: i f g o -> i o f g" in text
    assert "read as the (H, I) matrix, row by row" in text
    assert "grade: exact\n" in text


def test_a_prompt_shows_what_a_conversion_made_and_not_its_numbers():
    gru = rl.Spec("gru", 4, 6)
    keras = rl.convert(normal_weights("torch", gru), to="keras")
    shapes = "kernel (4, 18), recurrent_kernel (6, 18), bias (2, 18)"
    assert repr(keras) == f"<Tensors of gru, input_size 4, hidden_size 6 in keras: {shapes}; exact>"
    assert repr(rl.explain(gru, "torch", "keras")).startswith("torch -> keras: gru")


# ------------------------------------------------------------------------------------ peepholes

PEEPING = rl.Spec("lstm", 5, 7, peepholes=True)
HAVE = [name for name, info in rl.layouts().items() if info["peepholes"]]


@pytest.mark.parametrize("layout", HAVE)
def test_a_spec_with_peepholes_is_inferred(layout):
    for spec in (PEEPING, PEEPING.replace(peepholes=False)):
        weights = {n: np.zeros(shape, "f4") for n, shape in rl.describe(spec, layout).items()}
        assert rl.infer_spec(weights, layout) == spec
        assert rl.infer_spec(list(weights.values()), layout) == spec


@pytest.mark.parametrize("layout", ["torch", "cudnn", "keras"])
def test_zero_peepholes_are_left_out(layout):
    """One that is not zero is refused in any layer, direction and gate."""
    spec = PEEPING.replace(num_layers=2, bidirectional=True)
    zero = normal_weights("onnx", spec)
    zero |= {n: 0 * a for n, a in zero.items() if n.endswith("P")}
    without = {n: a for n, a in zero.items() if not n.endswith("P")}
    made = rl.Weights(zero).to(layout)
    assert made.spec == spec.replace(peepholes=False)
    assert same_bits(made.tensors, rl.Weights(without).to(layout).tensors)
    for at in np.ndindex(2, 2, 3):
        one = {n: a.copy() for n, a in zero.items()}
        one[f"{at[0]}/P"][at[1], 7 * at[2] + 6] = 0.5
        where = rf"{at[0]}/P\[{at[1]}, {7 * at[2] + 6}\]"
        text = rf"{where} is 0.5: the peephole of gate {'iof'[at[2]]} must be zero.* the target has"
        with pytest.raises(rl.LossyError, match=text):
            rl.convert(one, to=layout)
    text = rl.explain(PEEPING, "onnx", layout)
    assert "unrepresentable unless zero: peephole of gate f, peephole of gate i, peephole" in text


def test_a_spec_without_peepholes_needs_zeros():
    """As with biases: the tensors show what a source has, the spec what a target gets."""
    weights, spec = normal_weights("onnx", PEEPING), PEEPING.replace(peepholes=False)
    with pytest.raises(rl.LossyError, match=r"P\[0, 0\].* because the spec says peepholes=False"):
        rl.convert(weights, spec, layout="onnx", to="onnx")
    weights["P"][:] = 0
    assert "P" not in rl.convert(weights, spec, layout="onnx", to="onnx")
    del weights["P"]
    there = rl.convert(weights, PEEPING, layout="onnx", to="onnx")
    assert there["P"].shape == (1, 21) and not there["P"].any()
