"""Which RNNs are looked for in each layout."""

import pytest

import rnnlayout as rl
from rnnlayout._native import HAS_PEEPHOLES
from rnnlayout._sources.candidates import one_layer_candidates


@pytest.mark.parametrize("layout, cell, reset", [
    (layout, cell, reset)
    for layout, info in rl.layouts().items()
    if layout not in ("cudnn", "miopen", "concat")
    for cell in info["cells"]
    for reset in (info["resets"] if cell == "gru" else ["after"])
])  # fmt: skip
def test_biases_that_a_layout_always_has(layout, cell, reset):
    """Whether a layout always has biases was asked of the first row of its table for all cells."""
    spec = rl.Spec(cell, 5, 7, bias="none", reset=reset)
    names = tuple(rl.describe(spec, layout))
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
