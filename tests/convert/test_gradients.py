"""Gradients, and squares of gradients, in every pair of layouts: they are those that autograd
computes in the target, or are refused because the source does not have them."""

import itertools

import numpy as np
import pytest
import torch
from marks import in_turn, long
from oracles.frameworks import seeded
from oracles.gradients import LAYOUT, as_source, gradients, jacobian, joined
from oracles.some import LAYOUTS, holds

import rnnlayout as rl
from rnnlayout import _native
from rnnlayout._model.kinds import KINDS

T, N = 4, 2
GRADIENTS = KINDS[1:]
CELLS = [
    rl.Spec("lstm", 3, 2, dtype="float64"),
    rl.Spec("lstm", 3, 2, dtype="float64", peepholes=True),
    rl.Spec("gru", 3, 2, dtype="float64"),
    rl.Spec("gru", 3, 2, dtype="float64", reset="before"),
    rl.Spec("rnn_tanh", 3, 2, dtype="float64"),
]
STACKS = [
    rl.Spec("lstm", 4, 3, 2, True, 2, dtype="float64"),
    rl.Spec("lstm", 4, 3, 1, True, dtype="float64", peepholes=True),
    rl.Spec("gru", 4, 3, 2, True, dtype="float64", bias="recurrent"),
    rl.Spec("gru", 4, 3, 1, True, dtype="float64", reset="before"),
    rl.Spec("rnn_tanh", 4, 3, 2, True, dtype="float64", bias="input"),
    rl.Spec("lstm", 3, 3, 2, dtype="float64", skip_input=True),
]


def of_reference(spec):
    """Return the gradient of a loss in oneDNN's layout, which no other layout exceeds."""
    rng, width = (
        seeded("gradients", spec),
        spec.num_directions * (spec.proj_size or spec.hidden_size),
    )
    tensors = {
        name: rng.normal(size=shape) / 2 for name, shape in rl.describe(spec, LAYOUT).items()
    }
    return joined(gradients(spec, tensors, rng.normal(size=(T, N, spec.input_size)),
                            rng.normal(size=(T, N, width))))  # fmt: skip


def in_layout(spec, layout, flat):
    """Return a vector as the tensors of a layout."""
    shapes = rl.describe(spec, layout)
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
    arrays = zip(shapes.items(), np.split(flat, ends[:-1]), strict=True)
    return as_source({name: array.reshape(shape) for (name, shape), array in arrays})


@pytest.mark.parametrize(
    "spec, kind",
    [
        *in_turn(CELLS, GRADIENTS),
        *(long(spec, kind) for spec, kind in in_turn(CELLS, GRADIENTS[::-1])),
        *(long(spec, kind) for spec in STACKS for kind in GRADIENTS),
    ],
    ids=str,
)
def test_every_pair_of_layouts_against_calculus(spec, kind):
    """With u the parameters in oneDNN's layout and u = J p + c the conversion of weights p, the
    gradient by p is J^T times the gradient by u. J is computed from conversions of weights, which
    test_meaning_*.py compare with the frameworks.

    Rows of J that are zero are parameters that a layout lacks. A target has to be refused if it has
    a parameter that the source lacks, or lacks one whose gradient is not zero.
    """
    by_u, power = of_reference(spec), 1 + (kind == "squared_gradient")
    assert (by_u != 0).all()
    layouts = [layout for layout in LAYOUTS if holds(layout, spec)]
    jacobians = {layout: jacobian(spec, layout) for layout in layouts}
    tensors = {a: in_layout(spec, a, (J.T @ by_u) ** power) for a, J in jacobians.items()}
    has = {layout: J.any(axis=1) for layout, J in jacobians.items()}
    for a, b in itertools.product(layouts, layouts):
        refusal = "which is unknown" if (has[b] & ~has[a]).any() else ""
        refusal = refusal or ("must be zero" if (has[a] & ~has[b]).any() else "")
        report = rl.check(tensors[a], spec, layout=a, to=b, kind=kind)
        if refusal:
            assert report.grade == "unrepresentable" and refusal in report.reason, (a, b)
            continue
        assert report.grade == "exact", (a, b, report)
        result = rl.convert(tensors[a], spec, layout=a, to=b, kind=kind, exact=True)
        assert np.array_equal(joined(result), joined(tensors[b])), (a, b)


# ------------------------------------------------------------------------------ the rules by hand

LSTM = {
    "weight_ih": np.ones((8, 3), "f4"),
    "weight_hh": np.ones((8, 2), "f4"),
    "bias_ih": np.arange(8, dtype="f4"),
    "bias_hh": np.arange(8, dtype="f4"),
}
GRU = {
    "weight_ih": np.ones((6, 3), "f4"),
    "weight_hh": np.ones((6, 2), "f4"),
    "bias_ih": np.arange(6, dtype="f4"),
    "bias_hh": np.arange(6, dtype="f4"),
}


def test_a_sum_has_the_gradient_of_either_part_and_either_part_that_of_the_sum():
    there = rl.convert(LSTM, kind="gradient", to="keras")
    assert there["bias"].tolist() == LSTM["bias_ih"].tolist()
    back = rl.convert(there, kind="gradient", to="torch-cell")
    assert all(np.array_equal(back[name], LSTM[name]) for name in LSTM)


def test_a_forget_bias_has_no_gradient():
    layout = rl.layout("tf1", forget_bias=7.0)
    assert sorted(rl.convert(LSTM, kind="gradient", to=layout)["bias"]) == [*range(8)]


def test_a_negated_gate_has_a_negated_gradient_and_the_same_square():
    haiku = {"w_i": np.ones((3, 6)), "w_h": np.ones((2, 6)), "b": np.arange(1.0, 7)}
    z_r_n = [rl.convert(haiku, layout="haiku", kind=kind, to="keras")["bias"] for kind in GRADIENTS]
    assert [bias.tolist() for bias in z_r_n] == [[-1, -2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]]


@pytest.mark.parametrize("dtype, bits", [("f2", 11), ("f4", 24), ("f8", 53)])
def test_parts_of_a_sum_are_equal_up_to_rounding_of_their_largest(dtype, bits):
    """2 sqrt(u) of the largest element of the gate, as the header says, u = 2^-bits: the largest of
    these is 1. Further gates do not count."""
    limit, bias = 2 * 2.0 ** (-bits / 2), np.array([0.5, 1, 8, 8, 8, 8, 8, 8], dtype)
    spec = rl.infer_spec(LSTM).replace(dtype=np.dtype(dtype).name)
    source = {name: array.astype(dtype) for name, array in LSTM.items()} | {"bias_ih": bias}
    for share, grade in (0, "exact"), (0.97, "rounds"), (1.1, "unrepresentable"):
        other = bias.copy()
        other[0] -= limit * share
        source["bias_hh"] = other
        report = rl.check(source, spec, kind="gradient", to="keras")
        assert (report.grade, report.rounded_sums) == (grade, int(grade == "rounds"))
        if grade == "rounds":
            assert report.reason == "1 gradients of two biases that are equal only up to rounding"
            assert rl.convert(source, kind="gradient", to="keras")["bias"].tolist() == bias.tolist()
            with pytest.raises(
                rl.LossyError, match="for 1 elements their gradients are equal only"
            ):
                rl.convert(source, kind="gradient", to="keras", exact=True)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_parts_of_a_sum_that_are_not_finite(number):
    """Both are so, or they are not equal."""
    bias = np.full(8, number, "f4")
    same = {**LSTM, "bias_ih": bias, "bias_hh": bias}
    assert rl.check(same, kind="gradient", to="keras").grade == "exact"
    other = {**LSTM, "bias_ih": bias}
    assert rl.check(other, kind="gradient", to="keras").grade == "unrepresentable"


def optimizer_states(module, **options):
    """Return Adam's first and second moments after three steps, by the names of the parameters."""
    torch.manual_seed(0)
    parameters = {n: p for n, p in module.named_parameters() if p.requires_grad}
    optimizer = torch.optim.Adam(parameters.values(), **options)
    for _ in range(3):
        optimizer.zero_grad()
        module(torch.randn(5, 2, 3))[0].square().sum().backward()
        optimizer.step()
    states = {name: optimizer.state[parameter] for name, parameter in parameters.items()}
    return [{n: state[key] for n, state in states.items()} for key in ("exp_avg", "exp_avg_sq")]


def test_moments_of_adam_and_what_makes_the_two_biases_unequal():
    """The error names what does: weight decay that is added to gradients; a frozen bias, for which
    the repair in the error works."""
    torch.manual_seed(1)
    m, v = optimizer_states(torch.nn.LSTM(3, 2), weight_decay=0)
    for kind, moments in zip(GRADIENTS, (m, v), strict=True):
        bias = rl.convert(moments, kind=kind, to="keras")["bias"]
        assert np.array_equal(bias, moments["bias_ih_l0"].numpy())
    for moments in optimizer_states(torch.nn.LSTM(3, 2), weight_decay=0.1):
        with pytest.raises(rl.LossyError, match=r"biases of gate . must be equal.*weight_decay"):
            rl.convert(moments, kind="gradient", to="keras")
    module = torch.nn.LSTM(3, 2)
    module.bias_hh_l0.requires_grad_(False)
    m, _ = optimizer_states(module)
    m["bias_hh_l0"] = torch.zeros(8)
    with pytest.raises(rl.LossyError, match=r"frozen bias.*pass its values for both"):
        rl.convert(m, kind="gradient", to="keras")
    m["bias_hh_l0"] = m["bias_ih_l0"]
    rl.convert(m, kind="gradient", to="keras", exact=True)


def test_what_the_target_lacks_is_refused_unless_it_is_zero():
    with pytest.raises(rl.LossyError, match=r"bias_hh\[4\] is 4: the gradient of the recurrent bias"
                       " bR of gate n must be zero for flax-nnx, .*pass zeros there"):  # fmt: skip
        rl.convert(GRU, kind="gradient", to="flax-nnx")
    zero = {**GRU, "bias_hh": np.r_[GRU["bias_hh"][:4], 0, 0].astype("f4")}
    assert rl.convert(zero, kind="gradient", to="flax-nnx", exact=True).kind == "gradient"
    spec = rl.Spec("lstm", 2, 2, skip_input=True)
    square = {**LSTM, "weight_ih": np.eye(2, dtype="f4").repeat(4, 0)}
    with pytest.raises(rl.LossyError, match="of the input matrix of gate i must be zero for"
                       " cudnn, because with skip_input the target has no input"):  # fmt: skip
        rl.pack(square, spec, kind="gradient")
    square["weight_ih"] = np.zeros((8, 2), "f4")
    assert rl.pack(square, spec, kind="gradient").size == spec.num_params


@pytest.mark.parametrize(
    "spec, source, to, lacks",
    [
        (rl.Spec("gru", 3, 2), "flax-nnx", "torch", "recurrent bias bR of gate n"),
        (rl.Spec("lstm", 2, 2, skip_input=True), "cudnn", "torch", "input matrix of gate i"),
        (rl.Spec("gru", 3, 2, bias="recurrent"), "cudnn", "torch", "input bias bW of gate n"),
        (rl.Spec("lstm", 3, 2, bias="none"), "torch", "haiku", "input bias bW of gate i"),
    ],
    ids=str,
)
def test_a_gradient_that_the_source_does_not_have_is_not_invented(spec, source, to, lacks):
    """As a weight it is a constant, zero or the identity, whose gradient is another thing."""
    shapes = rl.describe(spec, source).items()
    tensors = as_source({name: np.ones(shape, "f4") for name, shape in shapes})
    words = f"{to} needs the gradient of the {lacks}, which is unknown: {source} has "
    report = rl.check(tensors, spec, layout=source, to=to, kind="gradient")
    assert words in report.reason
    assert words in rl.explain(spec, source, to, kind="gradient")


def test_a_square_is_not_negative():
    wrong = {**LSTM, "weight_hh": -LSTM["weight_hh"]}
    with pytest.raises(
        rl.LayoutError,
        match=r"weight_hh\[0, 0\] is -1, and a squared .* has another kind, gradient",
    ):
        rl.convert(wrong, kind="squared_gradient", to="onnx")


def test_a_square_that_is_negative_beside_another_that_is_too_large():
    """The first error of a check and of a conversion into new memory is the same."""
    wrong = {name: value.astype("float64") for name, value in LSTM.items()}
    wrong["weight_ih"] = wrong["weight_ih"] * 0 + 1e300
    wrong["weight_hh"] = -wrong["weight_hh"]
    for call in (rl.check, rl.convert):
        with pytest.raises(rl.LayoutError, match=r"weight_hh\[0, 0\] is -1, and a squared"):
            call(wrong, kind="squared_gradient", to="onnx", dtype="float32")


def test_a_kind_that_does_not_exist():
    for call in (rl.convert, rl.check):
        with pytest.raises(rl.SpecError, match="kind is 'grad', need one of: weights, gradient"):
            call(LSTM, kind="grad", to="keras")
    with pytest.raises(rl.SpecError, match=r"need one of: weights, gradient, squared_gradient$"):
        _native.Plan(rl.infer_spec(LSTM), rl.layout("torch"), 1, rl.layout("keras"), "grad")
    assert KINDS == ("weights", "gradient", "squared_gradient")


# ------------------------------------------------------------------------ a kind is not forgotten


def test_a_result_keeps_its_kind():
    result = rl.convert(LSTM, kind="gradient", to="keras")
    assert result.kind == result.weights.kind == result.weights.to("onnx").kind == "gradient"
    assert result.weights.to("torch-cell") == rl.Weights(LSTM, kind="gradient")
    assert result.weights != rl.Weights(dict(result))
    two = rl.stack([rl.Weights(LSTM, kind="gradient"), rl.Weights(
        {**LSTM, "weight_ih": LSTM["weight_hh"]}, kind="gradient")])  # fmt: skip
    assert {two.kind, two.split()[1].kind} == {"gradient"}


def test_a_gradient_is_not_taken_for_weights(tmp_path):
    result = rl.convert(LSTM, kind="gradient", to="keras")
    calls = [
        lambda: rl.convert(result, to="torch"),
        lambda: rl.convert(result, kind="squared_gradient", to="torch"),
        lambda: rl.RNN(result),
        lambda: result.weights.rnn(),
        lambda: rl.Weights(result),
        lambda: rl.assign(torch.nn.LSTM(3, 2), result),
        lambda: rl.verify(result, result),
        lambda: rl.verify(result.weights, result.weights),
        lambda: rl.save(tmp_path / "g.npz", result.weights),
        lambda: rl.stack([rl.Weights(LSTM), rl.Weights(LSTM, kind="gradient")]),
    ]
    for call in calls:
        with pytest.raises(rl.LayoutError, match="is of kind 'gradient', need '"):
            call()
    assert not [*tmp_path.iterdir()]


def test_weights_are_not_taken_for_a_gradient():
    module = torch.nn.LSTM(3, 2)
    for source in (module, [module]):
        with pytest.raises(rl.LayoutError, match="a LSTM has weights, need arrays of kind 'grad"):
            rl.convert(source, kind="gradient", to="keras")
    with pytest.raises(
        rl.LayoutError, match=r"is of kind 'weights', need 'gradient': pass the arr"
    ):
        rl.convert(rl.Weights(module), kind="gradient", to="keras")
    rl.convert(dict(rl.Weights(module)), kind="gradient", to="onnx")


def test_the_gradients_of_the_parts_of_a_computed_weight():
    module = torch.nn.utils.parametrizations.weight_norm(torch.nn.LSTM(3, 2), "weight_hh_l0")
    parts = {name: parameter.detach() for name, parameter in module.named_parameters()}
    assert rl.check(parts, to="keras").grade == "rounds"
    with pytest.raises(
        rl.LayoutError, match=r"torch computes weight_hh_l0 from .* gradients are not"
    ):
        rl.convert(parts, kind="gradient", to="keras")


def test_every_function_of_conversions_takes_a_kind():
    spec = rl.infer_spec(LSTM)
    flat = rl.pack(LSTM, kind="gradient")
    back = rl.unpack(flat, spec, to="torch-cell", kind="gradient")
    assert back.kind == "gradient" and np.array_equal(back["bias_hh"], LSTM["bias_hh"])
    text = rl.explain(spec, "torch", "keras", kind="gradient")
    assert "bW f  bias_ih_l0 = bias_hh_l0 -> bias, either of the two" in text
    assert "grade: exact where the gradients of the two biases of a gate are equal" in text
    assert "either of two gradients" in text.picture().svg
    assert "add" not in text.picture().text()
