"""Draw the charts of docs/performance.md from the results of the benchmarks.

    python tools/charts.py            compare; exit code 1 if a chart is out of date
    python tools/charts.py --write    write docs/images/speed-*.svg

A bar is another program's time divided by rnnlayout's, on a logarithmic scale that starts at 1.
"""

import json
import sys
from dataclasses import dataclass
from math import log2
from pathlib import Path

import generated

from rnnlayout._model.picture.scene import MARGIN, Box, Scene, Text
from rnnlayout._model.picture.scene_files import svg_text
from rnnlayout._model.picture.strips import draw_legend

ROOT = Path(__file__).resolve().parent.parent
RESULTS, IMAGES = ROOT / "benchmarks" / "results", ROOT / "docs" / "images"
WIDTH, LEFT, RIGHT, THICK = 470, 146, 62, 6
LEAST, MOST = 0.22, 42  # of the scale
TICKS = {0.25: "¼", 0.5: "½", 1: "1", 2: "2", 4: "4", 8: "8", 16: "16", 32: "32"}

HOW_TO_READ = (
    "Time divided by rnnlayout's: bars to the right are slower than it, bars to the left are"
    " faster. On the right, rnnlayout's own time."
)
# program -> the colour of its bars, of those that a Scene has
FILLS = {"torch": "bad", "onnxruntime": "good", "OpenVINO": "violet", "NumPy": "i", "copy": "f"}


@dataclass(frozen=True)
class Row:
    label: str  # a comma starts the second line
    ours: str  # our time
    others: dict  # their times divided by ours


@dataclass(frozen=True)
class Chart:
    title: str
    measured: str
    peers: tuple
    panels: dict  # title: [Row]


def measured(about):
    return f"{about['cpu']}, {about['tier']}, one thread, {about['date']}"


def unit(microseconds):
    for least, name in ((1e6, "s"), (1e3, "ms"), (0, "us")):
        if microseconds >= least:
            return f"{microseconds / max(least, 1):.3g} {name}"


def forward():
    """One thread; medians, as in the table."""
    results = json.loads((RESULTS / "forward.json").read_text())
    peers = ("torch", "onnxruntime", "OpenVINO", "NumPy")
    panels = {"LSTM": [], "GRU": []}
    for r in results["rows"]:
        if r["threads"] == 1:
            median = {name: times[1] for name, times in r["us"].items()}
            N, T, *rest = r["case"].split()
            rest = [part for part in rest if part != "D=1" and part != "L=1"]
            if rest[0][2:] == rest[1][2:]:
                del rest[0]  # I is H
            others = {p: median[p] / median["ours"] for p in peers if p in median}
            row = Row(f"{N} {T},{' '.join(rest)}", unit(median["ours"]), others)
            panels[r["cell"].upper()].append(row)
    return Chart("The forward pass on a CPU", measured(results["about"]), peers, panels)


def conversions():
    """The fastest run of each, as in the table."""
    results = json.loads((RESULTS / "convert.json").read_text())
    peers = ("copy", "NumPy", "torch")
    sizes = {"small": "0.5 MB", "middle": "134 MB", "large": "1.07 GB"}
    panels = {f"{size} of weights": [] for size in sizes.values()}
    for r in results["rows"]:
        least = {name: times[0] for name, times in r["ms"].items()}
        ours = least["ours, out="]
        others = {p: least[p] / ours for p in peers if p in least}
        row = Row(r["job"], unit(1e3 * ours), others)
        panels[f"{sizes[r['case']]} of weights"].append(row)
    return Chart("Conversions", measured(results["about"]), peers, panels)


CHARTS = {"speed-forward.svg": forward, "speed-conversions.svg": conversions}


def at(ratio):
    """Return the x of a ratio."""
    share = log2(min(max(ratio, LEAST), MOST) / LEAST) / log2(MOST / LEAST)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def add_row(scene, row, peers, y, height):
    first, _, second = row.label.partition(",")
    middle = y + height / 2
    scene.add(Text(MARGIN, middle - 3 if second else middle + 4, first, "say"))
    scene.add(Text(MARGIN, middle + 11, second.strip(), "at", fill="faint"))
    scene.add(Text(WIDTH - MARGIN, middle + 4, row.ours, "say", "end"))
    for k, peer in enumerate(peers):
        if peer in row.others:
            low, high = sorted((at(1), at(row.others[peer])))
            title = f"{peer}: {row.others[peer]:.2f}"
            top, wide = y + 3 + k * THICK, max(high - low, 1)
            scene.add(Box(low, top, wide, THICK - 1, FILLS[peer], title))


def add_panel(scene, title, rows, peers):
    height = max(len(peers) * THICK + 8, 32)
    y = scene.height
    bottom = y + 22 + len(rows) * height
    scene.add(Text(MARGIN, y + 14, title, "head"))
    scene.add(Text(WIDTH - MARGIN, y + 14, "rnnlayout", "at", "end", "faint"))
    for ratio, words in TICKS.items():
        wide, fill = (2, "ink") if ratio == 1 else (1, "equal")
        scene.add(Box(at(ratio) - wide / 2, y + 20, wide, bottom - y - 20, fill))
        scene.add(Text(at(ratio), bottom + 13, words, "at", "middle", "faint"))
    for k, row in enumerate(rows):
        add_row(scene, row, peers, y + 22 + k * height, height)
    scene.height = bottom + 30


def draw(chart):
    about = f"{chart.title}: times of other programs divided by rnnlayout's"
    scene = Scene(WIDTH, 0, about)
    scene.paragraph(MARGIN, chart.title, "head")
    scene.paragraph(MARGIN, chart.measured, "at", "faint")
    scene.paragraph(MARGIN, HOW_TO_READ, "say")
    draw_legend(scene, [(FILLS[peer], "", peer) for peer in chart.peers])
    for title, rows in chart.panels.items():
        add_panel(scene, title, rows, chart.peers)
    return svg_text(scene)


if __name__ == "__main__":
    sys.exit(generated.main({IMAGES / name: draw(made()) for name, made in CHARTS.items()}))
