"""The table of layouts: its options, its descriptions."""

import pickle
import re

import pytest

import rnnlayout as rl


@pytest.mark.parametrize(
    "name, listed",
    [
        ("tensorflow", ["keras", "keras-cudnn", "tf1-cudnn-canonical", "tf1", "tf1-block-v2"]),
        ("JAX", ["jax-cudnn", "flax-linen", "flax-nnx", "equinox", "haiku", "flax-nnx-lstm"]),
        ("flax", ["flax-linen", "flax-nnx", "flax-nnx-lstm"]),
        ("chainer", ["chainer-nstep", "chainer-links"]),
    ],
)
def test_a_framework_with_several_layouts_lists_them(name, listed):
    with pytest.raises(rl.LayoutError, match=f"{name} has several layouts, pass one:") as caught:
        rl.layout(name)
    found = [line.split(":")[0].strip() for line in str(caught.value).splitlines()[1:]]
    assert sorted(found) == sorted(listed)
    assert all(rl.layout(one) for one in found)


def test_a_layout_is_a_value():
    """What the table says is compared with the pages: project/test_docs.py."""
    layout = rl.layout("concat", z="candidate", inputs="xh")
    assert layout == rl.layout("concat", inputs="xh", z="candidate") != rl.layout("concat")
    assert rl.layout("pytorch") == rl.layout("PyTorch") == rl.layout("torch")
    assert rl.layout("jax-cudnn") == rl.layout("torch7-cudnn") == rl.layout("cudnn")
    assert hash(layout) == hash(pickle.loads(pickle.dumps(layout)))
    assert repr(layout) == "layout('concat', inputs='xh', z='candidate')"
    assert "1 - z" in layout.notes["z=candidate"]
    with pytest.raises(AttributeError):
        layout.name = "torch"
    rl.layouts()["onnx"]["gates"]["lstm"] = "another"
    assert rl.layouts()["onnx"]["gates"]["lstm"] == "iofg"


@pytest.mark.parametrize(
    "name, options, text",
    [
        ("torhc", {}, "no layout is called 'torhc'; did you mean 'torch'? Need one of: cudnn, "),
        ("theano", {}, "no layout is called 'theano': need one of: cudnn, torch,"),
        ("Torch", {"z": "state"}, "torch has no option 'z'; its options: none"),
        ("torch", {"z": "state"}, "torch has no option 'z'; its options: none"),
        ("concat", {"inputs": "hh"}, "option inputs is 'hh', need one of: hx, xh"),
        ("cudnn", {"version": 6}, "option version is '6', need one of: 9, 8, 7"),
        ("mxnet", {"version": 6}, "option version is '6'"),
        (3, {}, "named by a string, found 3"),
    ],
)
def test_what_is_no_layout(name, options, text):
    with pytest.raises(rl.LayoutError, match=re.escape(text)):
        rl.layout(name, **options)


def test_a_version_of_cudnn_changes_what_it_can_do_but_no_offset():
    spec = rl.Spec("lstm", 3, 5, 2, proj_size=2)
    for version in (7, 8, 9):
        layout = rl.layout("cudnn", version=version)
        assert rl.describe(spec, layout) == rl.describe(spec, "cudnn")
        if version < 9:
            with pytest.raises(rl.SpecError, match=f"version {version} has no bfloat16 RNNs"):
                rl.describe(spec.replace(dtype="bfloat16"), layout)
    assert rl.describe(spec.replace(dtype="bfloat16"), layout)
    assert "cudnnRNNForwardInference" in layout.notes["version=9"]
