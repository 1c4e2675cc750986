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

ROOT = Path(__file__).resolve().parent.parent
RESULTS, IMAGES = ROOT / "benchmarks" / "results", ROOT / "docs" / "images"
WIDTH, LEFT, RIGHT, THICK = 470, 146, 62, 6
LEAST, MOST = 0.22, 42  # of the scale
TICKS = {0.25: "¼", 0.5: "½", 1: "1", 2: "2", 4: "4", 8: "8", 16: "16", 32: "32"}

HOW_TO_READ = (
    "Time divided by rnnlayout's: bars to the right are slower than it,",
    "bars to the left are faster. On the right, rnnlayout's own time.",
)

STYLE = """\
    text { font: 12px system-ui, sans-serif; fill: #24292f; }
    .head { font-weight: 600; font-size: 14px; }
    .tick { text-anchor: middle; } .tick, .more { fill: #57606a; font-size: 11px; }
    .end { text-anchor: end; }
    line { stroke: #d0d7de; } .one { stroke: #24292f; stroke-width: 2; }
    .torch { fill: #e4572e; } .onnxruntime { fill: #2a9d8f; } .OpenVINO { fill: #7b6dd8; }
    .NumPy { fill: #4c8ed9; } .copy { fill: #d9a441; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; } .tick, .more { fill: #9da7b1; }
      line { stroke: #3d444d; } .one { stroke: #e6edf3; }
    }
"""


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


def text(kind, x, y, words):
    return f'  <text class="{kind}" x="{x:g}" y="{y:g}">{words}</text>\n'


def at(ratio):
    """Return the x of a ratio."""
    share = log2(min(max(ratio, LEAST), MOST) / LEAST) / log2(MOST / LEAST)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def row_of(row, peers, y, height):
    first, _, second = row.label.partition(",")
    middle = y + height / 2
    yield text("", 4, middle - (3 if second else -4), first)
    if second:
        yield text("more", 4, middle + 11, second.strip())
    yield text("end", WIDTH - 4, middle + 4, row.ours)
    for k, peer in enumerate(peers):
        if peer in row.others:
            low, high = sorted((at(1), at(row.others[peer])))
            yield (
                f'  <rect class="{peer}" x="{low:.1f}" y="{y + 3 + k * THICK}"'
                f' width="{max(high - low, 1):.1f}" height="{THICK - 1}">'
                f"<title>{peer}: {row.others[peer]:.2f}</title></rect>\n"
            )


def panel_of(title, rows, peers, y):
    """Return the parts of one panel and the y below it."""
    height = max(len(peers) * THICK + 8, 32)
    bottom = y + 22 + len(rows) * height
    parts = [text("head", 4, y + 14, title), text("more end", WIDTH - 4, y + 14, "rnnlayout")]
    for ratio, words in TICKS.items():
        x, kind = f"{at(ratio):.1f}", "one" if ratio == 1 else "grid"
        parts.append(f'  <line class="{kind}" x1="{x}" x2="{x}" y1="{y + 20}" y2="{bottom}"/>\n')
        parts.append(text("tick", float(x), bottom + 13, words))
    for k, row in enumerate(rows):
        parts += row_of(row, peers, y + 22 + k * height, height)
    return parts, bottom + 30


def draw(chart):
    parts = [text("head", 4, 18, chart.title), text("more", 4, 36, chart.measured)]
    parts += [text("", 4, 56 + 16 * k, line) for k, line in enumerate(HOW_TO_READ)]
    x, y = 4, 92
    for peer in chart.peers:
        parts.append(f'  <rect class="{peer}" x="{x}" y="{y - 9}" width="10" height="10"/>\n')
        parts.append(text("", x + 15, y, peer))
        x += 35 + 7 * len(peer)
    y += 14
    for title, rows in chart.panels.items():
        more, y = panel_of(title, rows, chart.peers, y)
        parts += more
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}"'
        f' viewBox="0 0 {WIDTH} {y}" role="img" aria-labelledby="t">\n'
        f'  <title id="t">{chart.title}: times of other programs divided by rnnlayout\'s</title>\n'
        f"  <style>\n{STYLE}  </style>\n{''.join(parts)}</svg>\n"
    )


if __name__ == "__main__":
    sys.exit(generated.main({IMAGES / name: draw(made()) for name, made in CHARTS.items()}))
