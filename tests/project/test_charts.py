"""The charts of the page on performance show the results of the benchmarks."""

import json
import re
import sys
from xml.etree import ElementTree

import pytest
from commands import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import charts

BAR = re.compile(r'<rect class="(\w+)" x="([\d.]+)".* width="([\d.]+)" height.*>\w+: ([\d.]+)<')


@pytest.mark.parametrize("name", charts.CHARTS)
def test_charts_are_current(name):
    shown = (charts.IMAGES / name).read_text()
    assert shown == charts.draw(charts.CHARTS[name]()), "run tools/charts.py --write"
    ElementTree.fromstring(shown)
    assert f"images/{name}" in (ROOT / "docs" / "performance.md").read_text()


def test_every_measured_time_has_its_bar():
    """One thread of the forward pass; conversions as they are."""
    forward = json.loads((charts.RESULTS / "forward.json").read_text())["rows"]
    convert = json.loads((charts.RESULTS / "convert.json").read_text())["rows"]
    times = {
        "speed-forward.svg": [r["us"] for r in forward if r["threads"] == 1],
        "speed-conversions.svg": [r["ms"] for r in convert],
    }
    for name, rows in times.items():
        chart = charts.CHARTS[name]()
        expected = sum(len(set(row) & set(chart.peers)) for row in rows)
        assert len(BAR.findall((charts.IMAGES / name).read_text())) == expected
