"""The first conversion of a process asks every layout for its names, and lists the RNNs of those
layouts alone that have all names of the source."""

import sys
from dataclasses import replace

import pytest
from commands import run

import rnnlayout as rl
from rnnlayout._sources.candidates import one_layer_candidates, tensor_leaf, tensor_leaves

# Each of 34 layouts takes two or three calls, the RNNs of a layout 40 to 90, and at most four have
# the names of a source below. To list the RNNs of every layout took 2,400 to 5,500.
MOST_CALLS = 500
COUNT = """
import sys
import numpy as np
import rnnlayout as rl

def tensors(layout, *spec):
    shapes = rl.describe(rl.Spec(*spec), layout)  # of a process that has made no conversion
    return {name: np.ones(shape, "float32") for name, shape in shapes.items()}

def count(frame, event, function):
    if event == "c_call":
        calls.append(getattr(function, "__module__", ""))

SOURCES = {
    "torch": lambda: tensors("torch", "lstm", 8, 16),
    "two layers": lambda: tensors("torch", "gru", 8, 16, 2, True),
    "keras": lambda: tensors("keras", "lstm", 8, 16),
    "onnx": lambda: tensors("onnx", "lstm", 8, 16),
    "flax": lambda: {"params": {"cell": tensors("flax-linen", "lstm", 8, 16)}},
}
name, path = sys.argv[1:]
calls, source = [], SOURCES[name]()
if path:
    np.savez(path, **{f"encoder.{key}": value for key, value in source.items()})
sys.setprofile(count)
if path:
    rl.convert(rl.load(path), to="keras")
else:
    rl.pack(source)
sys.setprofile(None)
print(calls.count("rnnlayout._native"))
"""


@pytest.mark.parametrize("name", ["torch", "two layers", "keras", "onnx", "flax"])
def test_calls_into_c_of_the_first_conversion(name):
    assert 20 < int(run([sys.executable, "-c", COUNT, name, ""])) < MOST_CALLS


@pytest.mark.parametrize("name", ["torch", "keras"])
def test_calls_into_c_of_the_first_file(name, tmp_path):
    assert 20 < int(run([sys.executable, "-c", COUNT, name, tmp_path / "a.npz"])) < MOST_CALLS


@pytest.mark.parametrize("layout", rl.layouts())
def test_a_layout_knows_the_names_of_all_its_rnns(layout):
    layout = rl.layout(layout)
    known = one_layer_candidates(layout)
    leaves = {tensor_leaf(name) for one in known for name in one.names}
    assert tensor_leaves(layout) == leaves
    for one in known:
        assert leaves >= {*map(tensor_leaf, replace(one, num_layers=12).names)}, one
