"""Draw one LSTM layer as it lies in the memory of four frameworks, for the README and the docs.

    python tools/gates_picture.py            compare; exit code 1 if the picture is out of date
    python tools/gates_picture.py --write    write docs/images/gates.svg

Each number is a square with the letter and the colour of its gate, in the order of the addresses.
"""

import sys
from math import prod
from pathlib import Path

import rnnlayout as rl
from rnnlayout import _native

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "gates.svg"
SPEC = rl.Spec("lstm", input_size=3, hidden_size=2)
TITLES = {"torch": "PyTorch", "keras": "Keras", "onnx": "ONNX", "cudnn": "cuDNN"}
SIDE, MARGIN, LABEL, LINE = 12, 8, 74, 52

STYLE = """\
    text { font: 12px system-ui, sans-serif; fill: #24292f; }
    .head { font-weight: 600; font-size: 14px; }
    .name { font: 11px ui-monospace, monospace; }
    .letter { font: 9px ui-monospace, monospace; fill: #111111; text-anchor: middle; }
    .i { fill: #8ecae6; } .f { fill: #ffb703; } .g { fill: #95d5b2; } .o { fill: #f4a5c0; }
    @media (prefers-color-scheme: dark) { .head, .name, .say { fill: #e6edf3; } }
"""


def letters(layout):
    """Return {tensor: the gate of each of its elements, in memory order}."""
    shapes = rl.describe(SPEC, layout)
    gates = {name: [""] * prod(shape) for name, shape in shapes.items()}
    for (_, _, _, _, gate), view in _native.blocks(rl.layout(layout), SPEC, _native.HAS_BIAS):
        tensor, at, rows, cols, row_stride, col_stride, _ = view
        for r in range(rows):
            for c in range(cols):
                gates[[*shapes][tensor]][at + r * row_stride + c * col_stride] = gate
    return gates


def text(kind, x, y, words):
    return f'  <text class="{kind}" x="{x}" y="{y}">{words}</text>\n'


def squares(x, y, gates):
    for k, gate in enumerate(gates):
        at = x + k * SIDE
        yield f'  <rect class="{gate}" x="{at}" y="{y}" width="{SIDE - 1}" height="16"/>\n'
        yield text("letter", at + (SIDE - 1) / 2, y + 11.5, gate)


def draw():
    parts, y = [], MARGIN + 14
    for layout, title in TITLES.items():
        x = MARGIN + LABEL
        parts.append(text("head", MARGIN, y + 21, title))
        for name, gates in letters(layout).items():
            parts += [text("name", x, y + 4, name), *squares(x, y + 9, gates)]
            x += len(gates) * SIDE + (10 if layout != "cudnn" else 0)
        y += LINE
    parts.append(
        text("say", MARGIN + LABEL, y + 2, "gates: i input, f forget, g candidate, o output")
    )
    total = sum(map(len, letters("torch").values()))
    width, height = MARGIN * 2 + LABEL + total * SIDE + 30, y + 14
    about = "One LSTM layer, input size 3, hidden size 2, in the memory of four frameworks"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-labelledby="t">\n  <title id="t">{about}</title>\n  <style>\n{STYLE}  </style>\n'
        f"{''.join(parts)}</svg>\n"
    )


if __name__ == "__main__":
    if "--write" in sys.argv:
        PICTURE.write_text(draw())
    sys.exit(draw() != PICTURE.read_text())
