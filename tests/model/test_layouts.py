"""The table of layouts: its invariant, its options, its descriptions."""

import itertools
import pickle

import numpy as np
import pytest
from oracles.some import LAYOUTS, SPECS, holds

import rnnlayout as rl
from rnnlayout import _native

SKIPPING = [
    rl.Spec("lstm", 3, 3, 2, skip_input=True),
    rl.Spec("gru", 3, 3, 2, True, skip_input=True),
]


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
    lines = str(caught.value).splitlines()[1:]
    found = [line.split(":")[0].strip() for line in lines]
    assert sorted(found) == sorted(listed)
    assert all(rl.layout(one) for one in found)


def test_a_layout_is_no_family():
    assert rl.layout("pytorch") == rl.layout("torch")
    with pytest.raises(rl.LayoutError, match=r"cudnn: option version|option version is '6'"):
        rl.layout("mxnet", version=6)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_element_is_in_exactly_one_block(layout):
    """The invariant of a layout: the views of all blocks tile every tensor."""
    tiled = 0
    everything = _native.HAS_BIAS | _native.HAS_PEEPHOLES
    for spec, has in itertools.product(SPECS + SKIPPING, (None, 0, _native.HAS_BIAS, everything)):
        if not holds(layout, spec):
            continue
        tensors = _native.tensors(layout, spec, has)
        assert len({name for name, _ in tensors}) == len(tensors)
        counts = [np.zeros(int(np.prod(shape)), int) for _, shape in tensors]
        for _, (tensor, at, rows, cols, row_stride, col_stride, _) in _native.blocks(
            layout, spec, has
        ):
            index = at + np.arange(rows)[:, None] * row_stride + np.arange(cols) * col_stride
            np.add.at(counts[tensor], index, 1)
        assert all((count == 1).all() for count in counts), (layout, spec, has)
        tiled += 1
    assert tiled >= 20


def test_names_and_shapes_are_the_frameworks_own():
    lstm = rl.Spec("lstm", 8, 16, 2, True, 4)
    assert list(rl.describe(lstm, "torch").items())[:6] == [
        ("weight_ih_l0", (64, 8)),
        ("weight_hh_l0", (64, 4)),
        ("bias_ih_l0", (64,)),
        ("bias_hh_l0", (64,)),
        ("weight_hr_l0", (4, 16)),
        ("weight_ih_l0_reverse", (64, 8)),
    ]
    assert rl.describe(lstm, "torch")["weight_ih_l1_reverse"] == (64, 8)
    gru = rl.Spec("gru", 2, 3)
    assert rl.describe(gru, "keras") == {
        "kernel": (2, 9),
        "recurrent_kernel": (3, 9),
        "bias": (2, 9),
    }
    assert rl.describe(gru.replace(reset="before"), "keras")["bias"] == (9,)
    assert rl.describe(gru, "keras-cudnn")["bias"] == (18,)
    assert rl.describe(gru.replace(bidirectional=True), "onnx") == {
        "W": (2, 9, 2),
        "R": (2, 9, 3),
        "B": (2, 18),
    }
    assert rl.describe(gru, "concat") == {
        "W_r": (3, 5), "W_z": (3, 5), "W_n": (3, 5), "b_r": (3,), "b_z": (3,), "b_n": (3,)
    }  # fmt: skip
    assert rl.describe(gru, "flax-linen") == {
        "ir/kernel": (2, 3), "iz/kernel": (2, 3), "in/kernel": (2, 3),
        "hr/kernel": (3, 3), "hz/kernel": (3, 3), "hn/kernel": (3, 3),
        "ir/bias": (3,), "iz/bias": (3,), "in/bias": (3,), "hn/bias": (3,),
    }  # fmt: skip
    assert rl.describe(gru, "flax-nnx").keys() == {
        "dense_i/kernel", "dense_h/kernel", "dense_i/bias"
    }  # fmt: skip
    assert rl.describe(rl.Spec("lstm", 2, 3), "flax-nnx").keys() == {
        "dense_i/kernel", "dense_h/kernel", "dense_h/bias"
    }  # fmt: skip
    assert list(rl.describe(gru, "equinox").values()) == [(9, 2), (9, 3), (9,), (3,)]
    assert list(rl.describe(gru.replace(num_layers=2), "equinox"))[4:6] == [
        "1/weight_ih", "1/weight_hh"
    ]  # fmt: skip
    # the order of tensors in a list
    for cell, gates in (("lstm", "ifgo"), ("gru", "rzn")):
        names = list(rl.describe(rl.Spec(cell, 2, 3), "flax-linen"))
        assert names[: len(gates)] == [f"i{gate}/kernel" for gate in gates]
    for cell, gates in (("lstm", "ifgo"), ("gru", "rzn"), ("rnn_tanh", "h")):
        names = [f"{kind}_{gate}" for kind in "Wb" for gate in gates]
        assert list(rl.describe(rl.Spec(cell, 2, 3), "concat")) == names
    assert list(rl.describe(rl.Spec("rnn_relu", 2, 3, 2, bias=False), "torch-cell")) == [
        "0/weight_ih", "0/weight_hh", "1/weight_ih", "1/weight_hh"
    ]  # fmt: skip
    assert list(rl.describe(rl.Spec("rnn_tanh", 2, 3, 1, True, bias=False), "keras")) == [
        "0/forward/kernel", "0/forward/recurrent_kernel",
        "0/backward/kernel", "0/backward/recurrent_kernel",
    ]  # fmt: skip
    assert list(rl.describe(rl.Spec("lstm", 2, 3, 2, True), "onnx"))[3:] == ["1/W", "1/R", "1/B"]


def test_layouts_say_what_they_hold():
    known = rl.layouts()
    assert known["onnx"]["gates"] == {
        "lstm": "iofg",
        "gru": "zrn",
        "rnn_tanh": "h",
        "rnn_relu": "h",
    }
    assert known["keras"]["resets"] == ["before", "after"]
    assert known["onednn"]["projection"] and not known["onnx"]["projection"]
    assert known["coreml"]["relu"] and not known["torch"]["relu"]
    assert all(row["relu"] == info["relu"] for info in known.values() for row in info["rows"])
    assert known["keras-cudnn"]["cells"] == ["lstm", "gru"]
    assert list(known["concat"]["options"]["z"]) == ["state", "candidate"]
    assert all(source for info in known.values() for source in info["sources"])
    known["onnx"]["gates"]["lstm"] = "what a user does to it"
    assert rl.layouts()["onnx"]["gates"]["lstm"] == "iofg"


def test_a_layout_is_a_value():
    layout = rl.layout("concat", z="candidate", inputs="xh")
    assert layout == rl.layout("concat", inputs="xh", z="candidate") != rl.layout("concat")
    assert hash(layout) == hash(pickle.loads(pickle.dumps(layout)))
    assert repr(layout) == "layout('concat', inputs='xh', z='candidate')"
    assert "1 - z" in layout.notes["z=candidate"]
    with pytest.raises(AttributeError):
        layout.name = "torch"


@pytest.mark.parametrize(
    "name, options, text",
    [
        ("torhc", {}, "no layout is called 'torhc', need one of: cudnn, torch,"),
        ("torch", {"z": "state"}, "torch has no option 'z'; its options: none"),
        ("concat", {"inputs": "hh"}, "option inputs is 'hh', need one of: hx, xh"),
        ("cudnn", {"version": 6}, "option version is '6', need one of: 9, 8, 7"),
        (3, {}, "named by a string, found 3"),
    ],
)
def test_what_is_no_layout(name, options, text):
    with pytest.raises(rl.LayoutError, match=text.replace("(", r"\(")):
        rl.layout(name, **options)


def test_what_a_version_of_cudnn_cannot_do():
    spec = rl.Spec("lstm", 2, 3, dtype="bfloat16")
    for version in (7, 8):
        with pytest.raises(rl.SpecError, match=f"version {version} has no bfloat16 RNNs"):
            rl.describe(spec, rl.layout("cudnn", version=version))
    assert rl.describe(spec, rl.layout("cudnn", version=9))
    assert "cudnnRNNForwardInference" in rl.layout("cudnn", version=9).notes["version=9"]
