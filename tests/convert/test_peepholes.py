"""Peepholes are in some layouts only. What they mean: the test_meaning_ files."""

import numpy as np
import pytest
from oracles.some import normal_weights, same_bits

import rnnlayout as rl

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
    weights = normal_weights("onnx", spec)
    without = {n: a for n, a in weights.items() if not n.endswith("P")}
    zero = {n: 0 * a if n.endswith("P") else a for n, a in weights.items()}
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
    zero = {**weights, "P": np.zeros_like(weights["P"])}
    assert "P" not in rl.convert(zero, spec, layout="onnx", to="onnx")
    del zero["P"]
    there = rl.convert(zero, PEEPING, layout="onnx", to="onnx")
    assert there["P"].shape == (1, 21) and not there["P"].any()


def test_a_layout_without_peepholes_refuses_the_spec():
    text = "torch has no peepholes: they multiply the cell state"
    with pytest.raises(rl.LossyError, match=text):
        rl.describe(PEEPING, "torch")
    weights = normal_weights("torch", PEEPING.replace(peepholes=False))
    with pytest.raises(rl.LossyError, match=text):
        rl.convert(weights, PEEPING, layout="torch", to="onnx")
    with pytest.raises(rl.LossyError, match="cudnn has no peepholes"):
        rl.unpack(np.zeros(100, "f4"), PEEPING, to="onnx")
