"""Pictures of differences: each block has the colour of its state."""

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
    """Return {block: its state}, without those that are equal."""
    return {
        block.words.partition(":")[0]: state[1]
        for block in svg.blocks
        if (state := re.search(r"c-(moved|rounded|different)", block.kind))
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
        "layer 0 forward, W of gate f": "rounded",
        "layer 0 backward, R of gate i": "different",
        "layer 1 forward, bW of gate g": "rounded",
        "layer 1 backward, bR of gate o": "different",
        "layer 0 forward, bR of gate i": "rounded",
    }
    assert len(svg.blocks) == len(rl.regions(SPEC))
    texts = {one.words for one in svg.texts}
    assert {"equal", "rounded", "other values", "input matrices", "biases"} <= texts
    assert OFFSETS not in texts


def test_where_a_block_differs():
    """A weight, a row and everything are three pictures; a block that was only moved has none."""
    a = weights_of("torch", rl.Spec("lstm", 5, 4))
    rasters = []
    a["weight_ih_l0"] = a["weight_ih_l0"].round()  # differences are exact
    for rows, columns in ((1, 2), (1, slice(None)), (slice(0, 4), slice(None))):
        b = {name: array.copy() for name, array in a.items()}
        b["weight_ih_l0"][rows, columns] += 1
        (gap,) = rl.verify(a, b).pairs[0].gaps
        rasters.append([[float(share) for share in row] for row in gap.raster])
        text = rl.verify(a, b).picture().svg
        assert 'class="shade3"' in text and 'class="dots"' in text
    zeros, ones = [0.0] * 5, [1.0] * 5
    assert rasters[0] == [zeros, [0.0, 0.0, 1.0, 0.0, 0.0], zeros, zeros]
    assert rasters[1:] == [[zeros, ones, zeros, zeros], [ones] * 4]
    moved = rl.verify(a, swapped_in(a)).picture().svg
    assert "c-moved" in moved and 'class="shade' not in moved and 'class="dots"' not in moved


def test_a_mistake_of_every_state():
    """Colours were by absolute thresholds: a move and a changed weight were both red."""
    a = weights_of("torch", SPEC)
    half = {name: array.astype("f2").astype("f4") for name, array in a.items()}
    tiny = {name: array * np.float32(1e-6) for name, array in a.items()}
    small = {name: array * 2 for name, array in tiny.items()}
    ones, near, far = (
        {name: np.full_like(array, 1 + gap) for name, array in a.items()}
        for gap in (0, 1 / 128, 65 / 8192)  # bfloat16 cuts off less than 1 / 128
    )
    for b, c, state in ((a, half, "rounded"), (tiny, small, "different"),
                        (ones, near, "rounded"), (ones, far, "different")):  # fmt: skip
        assert set(heat(check(rl.verify(b, c).picture().svg)).values()) == {state}


def test_four_layers_in_reverse_order_fit_on_a_screen():
    """It was 7,000 pixels tall, a ribbon per gate, and no ribbon said of which layer."""
    spec = rl.Spec("lstm", 6, 8, 4, True)
    like = weights_of("torch", spec)
    flat, regions = rl.pack(like), rl.regions(spec)
    parts = [
        flat[at["offset"] // 4 :][: at["rows"] * at["cols"]]
        for layers in (reversed(range(4)), [None])
        for layer in layers
        for at in regions
        if (layer == at["layer"] if at["role"] in "WR" else layer is None)
    ]
    svg = check(rl.diagnose(np.concatenate(parts), like=like).picture().svg)
    assert svg.page.bottom <= 1600 and len(svg.ribbons) == 32
    words = {text.words for text in svg.texts}
    assert {"W 0 layer 3 forward", "W 0 layer 0 forward", "... and 8 lines that are equal"} <= words


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
    assert heat(svg) == {"layer 0, W of gate r": "moved", "layer 0, W of gate z": "moved"}
    assert {"R 180", OFFSETS} <= {one.words for one in svg.texts}
    assert heat(check(rl.diagnose(rl.pack(weights), like=weights).picture().svg)) == {}
    short = rl.diagnose(rl.pack(weights)[:-9], like=weights).picture()
    assert set(heat(check(short.svg)).values()) == {"different"}
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


def test_summed_biases_have_a_ribbon_to_each_summand():
    """With a plus, and a zero where the other bias was: they were plain ribbons."""
    like = weights_of("torch", rl.Spec("lstm", 5, 3))
    summed = {name: like[name] for name in like if "weight" in name}
    summed["bias_ih_l0"] = like["bias_ih_l0"] + like["bias_hh_l0"]
    summed["bias_hh_l0"] = np.zeros_like(like["bias_hh_l0"])
    svg = rl.diagnose(rl.pack(summed), like=like).picture().svg
    signs = re.findall(r'class="sign[^>]*>(.)</text>', svg)
    assert sorted(signs) == ["+", "+", "0"] and svg.count('class="band') == len(like)


def test_a_notebook_shows_the_cause_and_a_prompt_the_report():
    weights = weights_of("torch", rl.Spec("lstm", 5, 3))
    swapped = swapped_in(weights)
    verified, diagnosis = rl.verify(weights, swapped), rl.diagnose(rl.pack(swapped), like=weights)
    cause = "likely cause: gates f and g swapped in the input matrices"
    words = " ".join(re.findall(r">([^<]+)</text>", verified._repr_svg_()))
    assert "2 of 16 blocks differ" in words and cause in words and cause in repr(verified)
    assert repr(verified) == str(verified) and repr(diagnosis) == str(diagnosis)
