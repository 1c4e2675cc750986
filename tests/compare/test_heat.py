"""Pictures of differences: the blocks that differ have the colour of how much they do."""

import re

import numpy as np
import pytest
from compare import mistake_machine as machine
from compare.diagnoses import swapped_in
from oracles.some import normal_weights as weights_of
from svgs import check

import rnnlayout as rl

SPEC = rl.Spec("lstm", 5, 3, 2, True)
OFFSETS = "the blocks are where cuDNN reads them"


def heat(svg):
    """Return {block: its colour}, without those that are equal."""
    return {
        block.words.partition(":")[0]: re.search(r"c-(\w+)", block.kind)[1]
        for block in svg.blocks
        if "c-heat" in block.kind
    }


@pytest.mark.parametrize("width", [300, 760, 1600])
def test_verify(width):
    a = weights_of("torch", SPEC)
    b = {name: array.copy() for name, array in a.items()}
    b["weight_ih_l0"][3:6] += 5e-4
    b["weight_hh_l0_reverse"][0, 0] += 2
    b["bias_ih_l1"][6] += 5e-7
    b["bias_ih_l1"][6] = np.nextafter(a["bias_ih_l1"][6], np.float32(9))
    b["bias_hh_l1_reverse"][11] = np.nan
    a["bias_hh_l0"][0], b["bias_hh_l0"][0] = 0.0, -0.0
    svg = check(rl.verify(a, b).picture(width=width).svg)
    assert heat(svg) == {
        "layer 0 forward, W of gate f": "heat2",
        "layer 0 backward, R of gate i": "heat3",
        "layer 1 forward, bW of gate g": "heat1",
        "layer 1 backward, bR of gate o": "heat4",
        "layer 0 forward, bR of gate i": "heat0",
    }
    assert len(svg.blocks) == len(rl.regions(SPEC))
    texts = {one.words for one in svg.texts}
    assert {"equal", "not finite", "up to 0.001", "more than 0.001"} <= texts
    assert OFFSETS not in texts


def test_verify_of_any_rnn():
    """Also of RNNs that cuDNN lacks, and of what cannot be compared."""
    spec = rl.Spec("gru", 5, 3, reset="before", recurrent_activation="hard_sigmoid")
    tensors = weights_of("keras", spec)
    a = rl.Weights(tensors, spec)
    b = rl.Weights(tensors | {"kernel": tensors["kernel"] + 1}, spec)
    wanted = {f"layer 0, W of gate {gate}" for gate in "rzn"}
    assert set(heat(check(rl.verify(a, b).picture().svg))) == wanted
    assert heat(check(rl.verify(a, a).picture().svg)) == {}
    other = rl.verify(a, weights_of("torch", SPEC))
    assert other._repr_svg_() is None
    with pytest.raises(rl.LayoutError, match="no two RNNs of the same sizes to draw"):
        other.picture()


def test_verify_of_what_one_side_lacks():
    """Peepholes, biases, an input matrix: an identity is not the matrix of ones."""
    spec, skip = rl.Spec("lstm", 5, 3), rl.Spec("lstm", 3, 3, skip_input=True)
    onnx = weights_of("onnx", spec.replace(peepholes=True))
    onnx["P"] = np.zeros_like(onnx["P"])
    whole = weights_of("torch", spec)
    bare = {name: array for name, array in whole.items() if "weight" in name}
    assert rl.Weights(bare).spec.bias == "none"
    full = skip.replace(skip_input=False)
    ones, others = (rl.Weights(np.ones(one.num_params, "f4"), one) for one in (skip, full))
    for a, b, roles, gates in (
        (onnx, onnx | {"P": np.eye(1, 9, 0, dtype="f4")}, ["peephole"], "i"),
        (bare, whole, ["bW", "bR"], "ifgo"),
        (ones, others, ["W"], "ifgo"),
    ):
        wanted = {f"layer 0, {role} of gate {gate}" for role in roles for gate in gates}
        assert {*heat(check(rl.verify(a, b).picture().svg))} == wanted


def test_diagnose():
    spec = rl.Spec("gru", 5, 3)
    weights = weights_of("torch", spec)
    flat = rl.pack(weights)
    flat[:45] = flat[:45].reshape(3, 15)[[1, 0, 2]].reshape(-1)
    found = rl.diagnose(flat, like=weights)
    svg = check(found._repr_svg_())
    assert set(heat(svg)) == {"layer 0, W of gate r", "layer 0, W of gate z"}
    assert {"R 180", OFFSETS} <= {one.words for one in svg.texts}
    assert heat(check(rl.diagnose(rl.pack(weights), like=weights).picture().svg)) == {}
    short = rl.diagnose(rl.pack(weights)[:-9], like=weights).picture()
    assert set(heat(check(short.svg)).values()) == {"heat4"}
    other = rl.diagnose(np.arange(108, dtype="f4"), like=weights).picture()
    assert len(heat(check(other.svg))) == 12
    stack = weights_of("torch", SPEC)
    wrong = stack | {"weight_hh_l1": stack["weight_hh_l1"][::-1]}
    found = rl.diagnose(rl.convert(wrong, to="keras"), like=stack)
    assert {name for name in heat(check(found.picture().svg)) if " R " in name} == {
        f"layer 1 forward, R of gate {gate}" for gate in "ifgo"
    }


VALUES = ("encode", "negated")  # kinds of mistakes that change values


@pytest.mark.parametrize("spec", machine.CELLS[1::5], ids=str)
def test_every_place_has_the_values_of_its_block(spec):
    """If these were not changed: a ribbon may not begin where they are not."""
    mistakes = list(machine.single_mistakes(spec, np.random.default_rng(0)))
    for one in [one for one in mistakes if not one.loses and one.kind not in VALUES][::3]:
        like, buffer, right = machine.case(spec, [one])
        found = rl.diagnose(buffer, like=like, spec=spec)
        check(found.picture().svg)
        values = {
            (at["layer"], at["direction"], at["role"], at["gate"]): right[
                at["offset"] // 4 : at["offset"] // 4 + at["rows"] * at["cols"]
            ]
            for at in rl.regions(spec)
        }
        assert found.sure
        for place in [place for place in found.places if not place.notes]:
            steps = 4 * place.row_stride, 4 * place.col_stride
            part = np.lib.stride_tricks.as_strided(
                buffer[place.at :], (place.rows, place.cols), steps
            )
            assert np.isin(part, values[place.key]).all(), (one.rule, place)


def test_a_notebook_shows_the_cause_and_a_prompt_the_report():
    weights = weights_of("torch", rl.Spec("lstm", 5, 3))
    swapped = swapped_in(weights)
    verified, diagnosis = rl.verify(weights, swapped), rl.diagnose(rl.pack(swapped), like=weights)
    cause = "likely cause: gates f and g swapped in the input matrices"
    words = " ".join(re.findall(r">([^<]+)</text>", verified._repr_svg_()))
    assert "2 of 16 blocks differ" in words and cause in words and cause in repr(verified)
    assert repr(verified) == str(verified) and repr(diagnosis) == str(diagnosis)
