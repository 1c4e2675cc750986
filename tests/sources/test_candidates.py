"""Which RNNs are looked for in each layout."""

import pytest

import rnnlayout as rl
from rnnlayout._native import HAS_PEEPHOLES
from rnnlayout._sources.candidates import one_layer_candidates


@pytest.mark.parametrize(
    "layout", [n for n in rl.layouts() if n not in ("cudnn", "miopen", "concat")]
)
@pytest.mark.parametrize("cell", rl.layouts()["onnx"]["cells"])
@pytest.mark.parametrize("reset", ["after", "before"])
def test_biases_that_a_layout_always_has(layout, cell, reset):
    """Whether a layout always has biases was asked of the first row of its table for all cells."""
    try:
        spec = rl.Spec(cell, 5, 7, bias="none", reset=reset if cell == "gru" else "after")
        names = tuple(rl.describe(spec, layout))
    except rl.LossyError:
        return
    always = names == tuple(rl.describe(spec.replace(bias="double"), layout))
    assert always == any(row["bias_always"] for row in rl.layouts()[layout]["rows"])
    found = [
        one
        for one in one_layer_candidates(rl.layout(layout))
        if (
            one.cell,
            one.reset,
            one.bidirectional,
            one.projected,
            one.optional_tensors & HAS_PEEPHOLES,
        )
        == (spec.cell, spec.reset, False, False, 0)
        and one.names == names
    ]
    assert len(found) == 1 and bool(found[0].optional_tensors & 1) == always
