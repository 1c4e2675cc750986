"""verify and diagnose of tensors that somebody converted by hand: one explanation."""

import numpy as np
import pytest
from marks import sample
from oracles.some import normal_weights

import rnnlayout as rl
from rnnlayout._model.layout import known_layouts

SPECS = [
    rl.Spec("lstm", 5, 3), rl.Spec("lstm", 6, 6, 2), rl.Spec("lstm", 7, 4, 2, True),
    rl.Spec("lstm", 5, 30), rl.Spec("gru", 5, 3), rl.Spec("gru", 4, 4, 2, True),
    rl.Spec("gru", 8, 5, 3), rl.Spec("rnn_tanh", 5, 4, 2), rl.Spec("lstm", 9, 7, 1, True),
    rl.Spec("lstm", 12, 10, 3),
]  # fmt: skip
ROUNDED = {"float16": lambda x: x.astype("f2").astype("f4"),
           "cut": lambda x: (x.view("u4") & 0xFFFF0000).view("f4")}  # fmt: skip
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1}


def in_gates(x, G, order):
    return np.concatenate([np.split(x, G)[k] for k in order])


def each(tensors, part, change):
    return {name: change(x) if part in name else x for name, x in tensors.items()}


def conversions(like, spec):
    """Yield what somebody made of the tensors, in torch's names or in another layout."""
    G = GATES[spec.cell]
    other = normal_weights(rl.layout("torch"), spec, 99)
    yield "nothing", like
    last = [*range(G - 2), -1, -2] if G > 1 else [0]
    yield "last gates", each(like, "", lambda x: in_gates(x, G, last))
    yield "gates of W", each(like, "weight_ih", lambda x: in_gates(x, G, [*range(1, G), 0]))
    yield "reshaped", each(like, "weight_ih", lambda x: x.T.reshape(x.shape))
    yield "biases exchanged", {
        name: like[name.replace("ih", "xx").replace("hh", "ih").replace("xx", "hh")]
        if "bias" in name else x for name, x in like.items()
    }  # fmt: skip
    yield "bias dropped", each(like, "bias_hh", lambda x: 0 * x)
    yield "halved", each(like, "bias", lambda x: x / 2)
    yield "input doubled", each(like, "weight_ih_l0", lambda x: 2 * x)
    yield "float16", each(like, "", ROUNDED["float16"])
    yield "cut", each(like, "", ROUNDED["cut"])
    yield "negated", each(like, "", lambda x: -x)
    yield "another matrix", like | {"weight_hh_l0": other["weight_hh_l0"]}
    yield "other weights", other
    yield "one value", each(like, "weight_ih_l0", lambda x: x + np.eye(*x.shape, dtype="f4"))
    (one,) = {1: ["torch"], 3: ["onnx"], 4: ["keras"]}[G]
    yield f"to {one}", rl.convert(like, spec, to=one)
    converted = rl.convert(each(like, "bias_hh", lambda x: 0 * x), spec, to=one)
    yield f"to {one} without bR", converted


# Mistakes that the line of a block reports already, or that are not causes.
NO_CAUSES = ("not found", "biases not found", "changed")


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_verify_and_diagnose_have_one_explanation(spec):
    like = normal_weights(rl.layout("torch"), spec, SPECS.index(spec))
    true = rl.Weights(like, spec)
    for what, tensors in conversions(like, spec):
        given = rl.Weights(tensors, spec)
        equal, found = rl.verify(true, given), rl.diagnose(given, like=true)
        both = f"{what}: {equal}\n{found}"
        assert bool(equal) == bool(found), both
        lines = str(equal).splitlines()
        causes = [line.removeprefix("likely cause: ").rpartition(" (explains")[0]
                  for line in lines if line.startswith("likely cause")]  # fmt: skip
        assert causes == [one.text for one in found.mistakes if one.rule not in NO_CAUSES or
                          "in its place" in one.text], both  # fmt: skip
        assert found.same == (what != "other weights"), both
        assert bool(found.mistakes) == (found.same and not equal), both


LAYOUTS = [name for name in known_layouts() if name not in ("cudnn", "nam")]
TWO = [rl.Spec("lstm", 5, 4, 2, True), rl.Spec("gru", 5, 4, 2)]


def mistakes(like, G):
    """Yield tensors with a mistake, and what the report says of it."""
    turned = [1, 0, *range(2, G)]
    yield each(like, "weight_ih", lambda x: in_gates(x, G, turned)), "gate"
    yield each(like, "weight_hh", lambda x: -x), "negated"
    yield each(like, "weight_ih", lambda x: 2 * x), "multiplied by 2"
    yield each(like, "weight_hh_l0", lambda x: np.random.default_rng(5).normal(size=x.shape)
               .astype("f4")), "not in the tensors"  # fmt: skip


@pytest.mark.parametrize("layout", sample(LAYOUTS, 7))
def test_tensors_of_every_layout_are_explained_and_the_line_to_paste_works(layout):
    judged = 0
    for spec in TWO:
        like = normal_weights(rl.layout("torch"), spec, 0)
        for wrong, words in mistakes(like, GATES[spec.cell]):
            try:
                given, right = (rl.convert(x, spec, to=layout) for x in (wrong, like))
            except rl.LossyError:  # the layout lacks this cell, or one of the biases
                continue
            judged += 1
            found = rl.diagnose(given, like=like, layout=layout)
            assert not found and words in found.text, found
            assert not rl.verify(rl.Weights(like), rl.Weights(given, spec, layout=layout))
            assert found.sure == (words != "not in the tensors"), found
            assert any(name in found.evidence[0] for name in given), found.evidence
            names = {"rl": rl, "like": like}
            exec(found.repair, names)
            assert all((names["given"][name] == right[name]).all() for name in right), found.repair
    assert judged
