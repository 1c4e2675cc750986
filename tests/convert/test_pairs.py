"""The grid of pairs in the documentation: what happens to weights of every kind."""

import itertools
import re
import sys

import pytest
from commands import ROOT
from oracles.frameworks import seeded
from oracles.some import weights_of

import rnnlayout as rl

sys.path.insert(0, str(ROOT / "tools"))

import layout_tables

PAIRS = [
    (kind, source, target)
    for kind in layout_tables.KINDS
    for source, target in itertools.product(*layout_tables.grid(kind))
]
GRADES = {"=": "exact", "+": "rounds", "0": "unrepresentable", "+0": "unrepresentable"}


def without_zeros(layout, spec):
    """Return small weights: their sum with a forget bias is rounded."""
    rng = seeded(layout, spec)
    return weights_of(layout, spec, lambda shape, _: rng.uniform(0.01, 0.02, shape).astype("f4"))


@pytest.mark.parametrize("kind", layout_tables.KINDS)
def test_every_pair_is_graded_as_the_grid_says(kind):
    """Without a zero: sums are rounded, and what must be zero is refused, by its name."""
    spec = layout_tables.KINDS[kind]
    sources, targets = layout_tables.grid(kind)
    for source, target in itertools.product(sources, targets):
        sign, reason = layout_tables.sign(spec, source, target)
        weights = without_zeros(source, spec)
        report = rl.check(weights, spec, layout=source, to=target)
        where = kind, source, target, report
        if sign == "x":
            assert report.grade == "unrepresentable" and report.reason == reason, where
            assert target in reason and "no change of the weights makes them equal" in reason
            continue
        assert report.grade == GRADES[sign], where
        if "0" in sign:
            what = "peephole of gate ." if spec.peepholes else "bias bR of gate n"
            assert re.search(f"{what} must be zero for {target}, because", report.reason), where
        if sign == "=":
            rl.convert(weights, spec, layout=source, to=target, exact=True)


def test_the_grid_is_whole():
    """Every ordered pair of layouts with a common cell is in it."""
    known = rl.layouts()
    seen = {(source, target) for _, source, target in PAIRS}
    for a, b in itertools.product(known, known):
        assert ((a, b) in seen) == bool(set(known[a]["cells"]) & set(known[b]["cells"])), (a, b)
    assert {layout_tables.sign(layout_tables.KINDS[k], a, b)[0] for k, a, b in PAIRS} == set(
        layout_tables.SIGNS
    )
