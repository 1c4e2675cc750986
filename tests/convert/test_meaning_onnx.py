"""ONNX operators compute the same in onnxruntime as the other framework, in both directions."""

import pytest
import tf_keras
from convert.meaning import expected_of
from marks import sample
from oracles import frameworks
from oracles.frameworks import KERAS_NOISE, H, I, inputs, seeded, stacks
from oracles.reference import GATES, distance, distance_between, forward, from_onnx
from oracles.some import same_bits

import rnnlayout as rl

ANSWERS_FOR = ("onnx",)

pytestmark = KERAS_NOISE

# linear_before_reset 0, HardSigmoid with the slope of either Keras, and Relu.
KERAS_ONLY = stacks(["gru"], (1, 2), reset="before")
KERAS_ONLY += stacks(["lstm", "gru"], (1, 2), activation="relu")
for hard in ("hard_sigmoid", "hard_sigmoid_keras2"):
    KERAS_ONLY += stacks(["lstm", "gru"], (1, 2), recurrent_activation=hard)
    KERAS_ONLY += stacks(["gru"], (1, 2), reset="before", recurrent_activation=hard)


def test_the_names_of_a_stack():
    one, two = rl.Spec("gru", I, H, bidirectional=True), rl.Spec("gru", I, H, 2)
    assert list(rl.describe(one, "onnx")) == ["W", "R", "B"]
    assert list(rl.describe(two, "onnx")) == ["0/W", "0/R", "0/B", "1/W", "1/R", "1/B"]
    assert list(rl.describe(two.replace(bias="none"), "onnx")) == ["0/W", "0/R", "1/W", "1/R"]


@pytest.mark.parametrize("spec", sample(stacks(), 5), ids=str)
def test_from_onnx_to_torch_and_back(spec):
    rng = seeded("onnx to torch", spec)
    tensors = frameworks.onnx_tensors(spec, rng)
    given = inputs(rng, spec)
    module = frameworks.torch_module(spec)
    rl.assign(module, rl.convert(tensors, spec, layout="onnx", to="torch"))
    theirs, run = frameworks.run_onnx(tensors, spec, *given), frameworks.run_torch(module, *given)
    # they are read as ONNX's tensors, and as cuDNN's weight space; 1: see reference.Rounded
    for expected in (forward(from_onnx(tensors, spec), spec, *given),
                     expected_of(module, spec, given)):  # fmt: skip
        assert distance(theirs, expected) <= 1 and distance(run, expected) <= 1
    # each may differ from the exact result by the bound, so the two by twice that
    assert distance_between(run, theirs, expected) <= 1
    assert same_bits(dict(rl.convert(module, to="onnx")), tensors)


@pytest.mark.parametrize("spec", sample(KERAS_ONLY, 5), ids=str)
def test_from_onnx_to_keras(spec):
    rng = seeded("onnx to keras", spec)
    tensors = frameworks.onnx_tensors(spec, rng)
    given = inputs(rng, spec)
    kit = tf_keras if spec.recurrent_activation == "hard_sigmoid_keras2" else frameworks.keras
    layers = frameworks.keras_layers(spec, kit)
    # Keras's LSTM and reset-before GRU have one bias, the sum: one of the additions of the bound
    rl.assign(layers, rl.convert(tensors, spec, layout="onnx", to="keras"))
    expected = forward(from_onnx(tensors, spec), spec, *given)
    run = frameworks.run_keras(layers, *given)
    assert distance(run, expected) <= 1  # reference.Rounded
    assert distance_between(run, frameworks.run_onnx(tensors, spec, *given), expected) <= 1


@pytest.mark.parametrize("cell", GATES)
def test_no_B_is_zero_B(cell):
    spec = rl.Spec(cell, I, H, 2, bidirectional=True)
    rng = seeded("no B", spec)
    tensors = frameworks.onnx_tensors(spec.replace(bias="none"), rng)
    given = inputs(rng, spec)
    assert rl.pack(tensors, spec, layout="onnx").size == spec.num_params
    # run without B, against a weight space that has biases
    expected = expected_of(tensors, spec, given, "onnx")
    assert distance(frameworks.run_onnx(tensors, spec, *given), expected) <= 1  # reference.Rounded
