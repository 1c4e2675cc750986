"""Draw the pictures of the README and the docs that follow from the table of layouts and from
examples/data.

python tools/pictures.py            compare; exit code 1 if a picture is out of date
python tools/pictures.py --write    write docs/images
"""

import re
import sys
import tomllib
from itertools import groupby
from math import prod
from pathlib import Path

import generated
import layout_tables
import numpy as np

import rnnlayout as rl
from rnnlayout import _native
from rnnlayout._model.picture.scene import MARGIN, Box, Scene, Text, text_width
from rnnlayout._model.picture.scene_files import svg_text
from rnnlayout._model.picture.strips import draw_legend

ROOT = Path(__file__).resolve().parent.parent
IMAGES, DATA = ROOT / "docs" / "images", ROOT / "examples" / "data"
SMALL = rl.Spec("lstm", input_size=2, hidden_size=1)
USUAL = rl.Spec("lstm", input_size=16, hidden_size=32)
DEEP = rl.Spec("gru", input_size=48, hidden_size=32, num_layers=2, bidirectional=True)

# ------------------------------------------------- one layer in four frameworks, number by number

TITLES = {"torch": "PyTorch", "keras": "Keras", "onnx": "ONNX", "cudnn": "cuDNN"}
SIDE, LINE = 15, 66


def letters(layout):
    """Return {tensor: the gate of each of its elements, in memory order}."""
    shapes = rl.describe(SMALL, layout)
    gates = {name: [""] * prod(shape) for name, shape in shapes.items()}
    for (_, _, _, _, gate), view in _native.blocks(rl.layout(layout), SMALL, _native.HAS_BIAS):
        tensor, at, rows, cols, row_stride, col_stride, _ = view
        for r in range(rows):
            for c in range(cols):
                gates[[*shapes][tensor]][at + r * row_stride + c * col_stride] = gate
    return gates


def gates():
    """Each number is a square with the letter and the colour of its gate."""
    about = "One LSTM layer, input size 2, hidden size 1, in the memory of four frameworks"
    scene = Scene(0, MARGIN, about)
    for layout, title in TITLES.items():
        x, y = MARGIN, scene.height + 28
        scene.add(Text(MARGIN, y - 14, title, "head"))
        for name, row in letters(layout).items():
            scene.add(Text(x, y + 4, name, "name"))
            for k, gate in enumerate(row):
                scene.add(Box(x + k * SIDE, y + 9, SIDE - 1, 16, gate))
                scene.add(Text(x + (k + 0.5) * SIDE, y + 21, gate, "say", "middle", "dark"))
            x += max(len(row) * SIDE, text_width(name, "name")) + 10
        scene.height += LINE
        scene.width = max(scene.width, x)
    scene.paragraph(MARGIN, "gates: i input, f forget, g candidate, o output", "say")
    return svg_text(scene)


# --------------------------------------------------------- where the reset gate of a GRU multiplies

# the way from h to the candidate n: words and the colour of each step
SUM, END = ("+ W x + bW", "equal"), (("tanh", "equal"), ("n", "n"))
RESETS = {
    "reset after: PyTorch, cuDNN, Keras 3":
        (("h", "z"), ("R h + bR", "other"), ("times r", "r"), SUM, *END),
    "reset before: the first paper, ONNX's default":
        (("h", "z"), ("times r", "r"), ("R (r h) + bR", "other"), SUM, *END),
}  # fmt: skip
ARROW = 16


def resets():
    """The candidate of both kinds of GRU: in one of them r multiplies bR, too."""
    scene = Scene(0, 0, "The candidate of a GRU, with the reset gate after and before the product")
    for title, steps in RESETS.items():
        x, y = MARGIN, scene.height + 32
        scene.add(Text(MARGIN, y - 10, title, "head"))
        for k, (words, fill) in enumerate(steps):
            if k:
                scene.add(Text(x + ARROW / 2, y + 16, "\N{RIGHTWARDS ARROW}", "say", "middle"))
                x += ARROW
            width = text_width(words, "say") + 10
            scene.add(Box(x, y, width, 24, fill))
            scene.add(Text(x + width / 2, y + 16, words, "say", "middle", "dark"))
            x += width
        scene.width, scene.height = max(scene.width, x + MARGIN), y + 24
    scene.height += MARGIN
    return svg_text(scene)


# ---------------------------------------------------------------------------------------- badges


def badges():
    """Facts of pyproject.toml and the number of layouts."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = " and ".join(re.match(r"\w+", name)[0] for name in project["dependencies"])
    facts = {
        "python": project["requires-python"].removeprefix(">=") + "+",
        "needs": {"numpy": "NumPy"}.get(needed, needed),
        "layouts": str(len(rl.layouts())),
        "licence": project["license"],
    }
    scene = Scene(0, 20, ", ".join(f"{label} {fact}" for label, fact in facts.items()))
    x = 0
    for label, fact in facts.items():
        for words, fill in ((label, "equal"), (fact, "good")):
            width = text_width(words, "letter") + 12
            scene.add(Box(x, 0, width, scene.height, fill))
            scene.add(Text(x + width / 2, 13.5, words, "letter", "middle"))
            x += width
        x += 6
    scene.width = x
    return svg_text(scene)


# ------------------------------------------------------------- what wrong weights do to an output

STEPS, PANEL, TALL = 45, 230, 72  # TALL: pixels of an output of 1


def outputs():
    """A unit's outputs: by the weights of old.h5, and by those that a script made of them."""
    time = np.arange(STEPS)
    x = np.stack([np.sin(2 * np.pi * time / period) for period in range(10, 42, 4)], axis=1)
    right, wrong = (
        rl.forward(x, rl.convert(rl.load(DATA / name), to="torch", dtype="float64"),
                   batch_first=False)[0]
        for name in ("old.h5", "by-hand.npz")
    )  # fmt: skip
    unit = abs(right - wrong).max(axis=0).argmax()
    panels = {"good": right[:, unit], "bad": wrong[:, unit]}
    scene = Scene(2 * PANEL + 3 * MARGIN, MARGIN + 36, "Outputs of an LSTM: right, and wrong")
    highest, lowest = (pick(map(pick, panels.values())) for pick in (max, min))
    zero, step = scene.height + TALL * highest, PANEL / STEPS
    for (fill, outputs), x, words, file in zip(
        panels.items(), (MARGIN, PANEL + 2 * MARGIN), ("right", "wrong, without an error"),
        ("old.h5, converted by rnnlayout", "by-hand.npz, by a script"), strict=True,
    ):  # fmt: skip
        scene.add(Text(x, MARGIN + 12, words, "head"), Text(x, MARGIN + 28, file, "say"))
        for k, output in enumerate(TALL * outputs):
            top, height = zero - max(output, 0), max(abs(output), 1)
            scene.add(Box(x + k * step, top, step - 1, height, fill))
    scene.height = zero - TALL * lowest
    scene.paragraph(MARGIN, f"a unit's output over {STEPS} steps", "say", "faint")
    scene.height += MARGIN
    return svg_text(scene)


# ------------------------------------------------------------------------------- pairs of layouts

CELL = 18
COLOURS = {"=": "good", "+": "middling", "0": "poor", "+0": "poor", "x": "bad"}
MEANINGS = {
    "=": "exact", "+": "sums may round", "0": "a bias must be zero", "+0": "both", "x": "refused",
}  # fmt: skip


def pairs(kind):
    """A line per source, a column per target: what a conversion does."""
    sources, targets = layout_tables.grid(kind)
    spec = layout_tables.KINDS[kind]
    beside = max(text_width(name, "name") for name in targets) + 6
    left, top = MARGIN + beside, MARGIN + 24 + beside
    about = f"{kind}: which layouts convert to which"
    scene = Scene(left + len(targets) * CELL + MARGIN, top, about)
    scene.add(Text(MARGIN, MARGIN + 14, f"{kind}: from each line to each column", "head"))
    for k, name in enumerate(targets):
        scene.add(Text(left + k * CELL + 13, top - 6, name, "name", turned=True))
    for source in sources:
        scene.add(Text(left - 6, scene.height + 13, source, "name", "end"))
        signs = [layout_tables.sign(spec, source, target)[0] for target in targets]
        at = 0
        for sign, group in groupby(signs):  # one box for neighbours: the file stays small
            count, x, y = len([*group]), left + at * CELL, scene.height
            scene.add(Box(x, y, count * CELL - 1, CELL - 1, COLOURS[sign]))
            if sign != "=":
                for k in range(count):
                    scene.add(Text(x + (k + 0.5) * CELL, y + 12.5, sign, "letter", "middle"))
            at += count
        scene.height += CELL
    scene.height += 6
    seen = {layout_tables.sign(spec, a, b)[0] for a in sources for b in targets}
    draw_legend(scene, [(COLOURS[sign], "" if sign == "=" else sign, words)
                   for sign, words in MEANINGS.items() if sign in seen])  # fmt: skip
    return svg_text(scene)


# ---------------------------------------------------------------------------------- what map draws


def difference():
    """What verify finds if two gates of one matrix are swapped and a bias is rounded."""
    rng = np.random.default_rng(0)
    shapes = rl.describe(DEEP, "torch")
    a = {name: rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()}
    b = {name: array.copy() for name, array in a.items()}
    b["weight_hh_l0"] = np.concatenate([np.split(a["weight_hh_l0"], 3)[k] for k in (1, 0, 2)])
    b["bias_ih_l1_reverse"] = a["bias_ih_l1_reverse"].astype("f2").astype("f4")
    return rl.verify(a, b).picture().svg


def places():
    """What diagnose finds in the buffer of a packer with three mistakes."""
    rng = np.random.default_rng(0)
    shapes = rl.describe(rl.Spec("lstm", 5, 3, 2), "torch")
    weights = {name: rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()}
    parts = []
    for layer in range(2):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            i, f, g, o = np.split(weights[f"{name}_l{layer}"], 4)
            parts.append(np.concatenate([i, f, o, g]).T.ravel())
    return rl.diagnose(np.concatenate(parts), like=weights).picture().svg


PICTURES = {
    "badges.svg": badges,
    "gates.svg": gates,
    "outputs.svg": outputs,
    "resets.svg": resets,
    "weight-space.svg": lambda: rl.picture(DEEP).svg,
    "keras-memory.svg": lambda: rl.picture(USUAL, "keras").svg,
    "torch-to-keras.svg": lambda: rl.picture(USUAL, "torch", "keras").svg,
    "cudnn-to-onnx.svg": lambda: rl.picture(DEEP, "cudnn", "onnx").svg,
    "difference.svg": difference,
    "places.svg": places,
} | {layout_tables.picture_of(kind): lambda kind=kind: pairs(kind) for kind in layout_tables.KINDS}


if __name__ == "__main__":
    sys.exit(generated.main({IMAGES / name: draw() for name, draw in PICTURES.items()}))
