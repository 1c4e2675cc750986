"""verify and diagnose of tensors that somebody converted by hand: one explanation."""

import numpy as np
import pytest
from compare import mistake_machine as machine
from marks import sample
from oracles.some import normal_weights

import rnnlayout as rl
from rnnlayout._model.layout import known_layouts

# Mistakes that the line of a block reports already, or that are not causes.
NO_CAUSES = ("not found", "biases not found", "changed")


def explained(true, given):
    """Check that verify() has the causes that diagnose() finds. Return the diagnosis."""
    equal, found = rl.verify(true, given), rl.diagnose(given, like=true)
    both = f"{equal}\n{found}"
    assert bool(equal) == bool(found), both
    causes = [line.removeprefix("likely cause: ").rpartition(" (explains")[0]
              for line in str(equal).splitlines() if line.startswith("likely cause")]  # fmt: skip
    assert causes == [one.text for one in found.mistakes if one.rule not in NO_CAUSES or
                      "in its place" in one.text], both  # fmt: skip
    assert bool(found.mistakes) == (found.same and not equal), both
    return found


@pytest.mark.parametrize("spec", [machine.CELLS[k] for k in (0, 8)], ids=str)
def test_verify_and_diagnose_have_one_explanation(spec):
    mistakes = machine.single_mistakes(spec, np.random.default_rng(0))
    for seed, one in enumerate(mistakes):
        like, wrong, _ = machine.case(spec, [one], seed, change=seed % 3)
        if (wrong.size, wrong.dtype) == (like.size, like.dtype):
            true, given = rl.Weights(like, spec), rl.Weights(wrong, spec)
            assert explained(true, given if seed % 5 else given.to("onnx")).same, one
    other = normal_weights("cudnn", spec, 99)
    assert not explained(rl.Weights(like, spec), rl.Weights(other, spec)).same


LAYOUTS = [name for name in known_layouts() if name not in ("cudnn", "nam")]
TWO = [rl.Spec("lstm", 5, 4, 2, True), rl.Spec("gru", 5, 4, 2)]


def each(tensors, part, change):
    return {name: change(x) if part in name else x for name, x in tensors.items()}


def mistakes(like, G):
    """Yield tensors with a mistake, and what the report says of it."""
    turned = [1, 0, *range(2, G)]
    yield each(like, "weight_ih", lambda x: x.reshape(G, 4, -1)[turned].reshape(x.shape)), "gate"
    yield each(like, "weight_hh", lambda x: -x), "negated"
    yield each(like, "weight_ih", lambda x: 2 * x), "multiplied by 2"
    yield each(like, "weight_hh_l0", lambda x: np.random.default_rng(5).normal(size=x.shape)
               .astype("f4")), "not in the tensors"  # fmt: skip


@pytest.mark.parametrize("layout", sample(LAYOUTS, 7))
def test_tensors_of_every_layout_are_explained_and_the_line_to_paste_works(layout):
    judged = 0
    for spec in TWO:
        like = normal_weights(rl.layout("torch"), spec, 0)
        for wrong, words in mistakes(like, len(machine.GATES[spec.cell])):
            try:
                given, right = (rl.convert(x, spec, to=layout) for x in (wrong, like))
            except rl.LossyError:  # the layout lacks this cell, or one of the biases
                continue
            judged += 1
            assert not rl.verify(rl.Weights(like), rl.Weights(given, spec, layout=layout))
            found = rl.diagnose(given, like=like, layout=layout)
            assert not found and words in found.text, found
            assert found.sure == (words != "not in the tensors"), found
            assert any(name in found.evidence[0] for name in given), found.evidence
            names = {"rl": rl, "like": like}
            exec(found.repair, names)
            assert all((names["given"][name] == right[name]).all() for name in right), found.repair
    assert judged
