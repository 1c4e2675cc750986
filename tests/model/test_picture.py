"""Pictures of one layout: every block is drawn once, where it is, to scale, with legible texts."""

import pickle
import re
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from marks import in_turn, sample
from matplotlib.image import imread
from oracles.some import normal_weights
from svgs import check

import rnnlayout as rl
from rnnlayout import _native
from rnnlayout._model.picture.picture import Subject, draw_subjects
from rnnlayout._model.picture.scene import Box, Scene, Text
from rnnlayout._model.picture.scene_files import write_png

SPECS = [
    rl.Spec("lstm", 8, 16),
    rl.Spec("gru", 64, 32, 2, True),
    rl.Spec("lstm", 300, 512, 8, True, proj_size=128),
    rl.Spec("rnn_tanh", 1, 2000),  # small beside large
    rl.Spec("lstm", 5, 3, bias="none", dtype="float64"),
    rl.Spec("gru", 2000, 1500, 2),  # ten million
]
WIDTHS = (300, 240, 760, 1600)


def regions(spec):
    """Yield the blocks as the titles say them."""
    size = spec.nbytes // spec.num_params
    for _, layer, direction, _, role, gate, start, rows, cols in rl.regions(spec).tolist():
        side = (" forward", " backward")[direction] if spec.bidirectional else ""
        of_gate = f" of gate {gate}" if gate else ""
        shape = f"{rows} x {cols}" if cols > 1 else f"{rows}"
        yield (f"layer {layer}{side}, {role}{of_gate}: {shape}, bytes {start:,} to"
               f" {start + rows * cols * size:,} of weight_space")  # fmt: skip


def test_only_the_tensors_that_an_rnn_has_are_drawn():
    """Its spec says what a target without them gets: two biases, no peepholes."""
    spec = rl.Spec("lstm", 5, 3)
    given = normal_weights("onnx", spec.replace(peepholes=True))
    for names, drawn in (("WR", "WR"), ("WRP", ["W", "R", "peephole"])):
        svg = check(rl.Weights({name: given[name] for name in names}, spec).picture().svg)
        roles = [re.search(r", (\w+) of gate", block.words)[1] for block in svg.blocks]
        assert list(dict.fromkeys(roles)) == list(drawn)


@pytest.mark.parametrize("spec, width", [*in_turn(SPECS, WIDTHS), (SPECS[2], 240)], ids=str)
def test_cudnns_weight_space(spec, width):
    """Blocks are drawn to scale, or dashed."""
    svg = check(rl.picture(spec, width=width).svg)
    assert [block.words for block in svg.blocks] == list(regions(spec))
    shown = {one.words for one in svg.texts if one.kind == "at"}
    found = rl.regions(spec)
    firsts = {(one["pseudo_layer"], one["role"]): one["offset"] for one in found[::-1]}
    if "numbers below the bars: byte offsets" in shown:
        assert {f"{role} {offset:,}" for (_, role), offset in firsts.items()} <= shown
    else:  # there is no room for so many digits: where each line begins
        assert width == 240
        lines = [one.words for one in svg.texts if ", byte " in one.words]
        assert lines[0] == "layer 0 forward, byte 0" and len(lines) == 32
    letters = [one for one in svg.texts if one.kind == "letter"]
    assert len(letters) > len(svg.blocks)  # then those of the legend
    for block, letter, region in zip(svg.blocks, letters, found, strict=False):
        assert letter.inside(block)
        assert letter.words == region["gate"] or region["role"] == "P" == letter.words
    drawn = [(block.right - block.left + 1, one["rows"] * one["cols"], "dashed" in block.kind)
             for block, one in zip(svg.blocks, found, strict=True)]  # fmt: skip
    scale = max((wide / size for wide, size, dashed in drawn if not dashed), default=0)
    assert scale or spec.num_layers == 1
    for wide, size, dashed in drawn:
        # a coordinate has one digit: two of them are off by at most 0.05 each
        assert wide > size * scale if dashed else abs(wide - size * scale) < 0.11
    words = {one.words for one in svg.texts}
    assert ("dashed: enlarged, not to scale" in words) == any(dashed for *_, dashed in drawn)


LAYOUTS = [
    (name, cell)
    for name, info in rl.layouts().items()
    for cell in info["cells"]
    if cell != "rnn_relu"
]


@pytest.mark.parametrize("layout, cell", sample(LAYOUTS, 5))
def test_every_layout(layout, cell):
    resets = rl.layouts()[layout]["resets"] if cell == "gru" else ["after"]
    spec, width = rl.Spec(cell, 70, 40, 2, True, reset=resets[0]), 300 + 460 * (len(layout) % 2)
    svg = check(rl.picture(spec, layout, width=width).svg)
    blocks = _native.blocks(rl.layout(layout), spec, _native.HAS_BIAS)
    assert len(svg.blocks) == len(blocks)
    names = {re.search(r" of (\S+?),?(?: |$)", block.words[block.words.index(", bytes") :])[1]
             for block in svg.blocks}  # fmt: skip
    assert names == set(rl.describe(spec, layout))
    starts = {}
    for block in svg.blocks:  # in the order of the addresses
        start, name = re.search(r"bytes ([\d,]+) to \S+ of (\S+?),?(?: |$)", block.words).groups()
        starts.setdefault(name, []).append(int(start.replace(",", "")))
    assert all(found == sorted(found) for found in starts.values())


def test_letters_are_to_scale_and_fit():
    spec = rl.Spec("gru", 30, 10, 2, True)
    for width in (60, 79, 200):
        lines = rl.picture(spec).text(width).splitlines()[2:]
        assert len(lines) == len({(r["pseudo_layer"], r["role"]) for r in rl.regions(spec)})
        assert max(map(len, lines)) in (width - 2, width - 1, width)
        offsets = [int(re.search(r"([\d,]+)  \w+$", line)[1].replace(",", "")) for line in lines]
        assert offsets == sorted(offsets) and offsets[0] == 0
        bars = [re.search(r"\w+$", line)[0] for line in lines]
        assert abs(len(bars[0]) - 3 * len(bars[1])) <= 6  # 30 to 10, each gate rounded down
    coloured = rl.picture(spec).text(79, colours=True)
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == rl.picture(spec).text(79)
    assert coloured.count("\x1b[0m") == len(rl.regions(spec))


def test_many_layers_and_rnns_are_cut():
    svg = check(rl.picture(rl.Spec("lstm", 4, 4, 60, True), width=400).svg)
    assert "… 192 more lines …" in {one.words for one in svg.texts}
    assert len(svg.blocks) == 48 * 8
    assert "layer 59 backward" in svg.blocks[-1].words
    assert rl.picture(rl.Spec("lstm", 4, 4, 60, True)).text().endswith("... 280 more lines")
    picture = draw_subjects([Subject(rl.Spec("gru", 3, 2), rl.layout("torch"))] * 70)
    svg = check(picture.svg)
    assert len(svg.blocks) == 20 * 12
    assert "... and 50 more RNNs" in {one.words for one in svg.texts}
    assert str(picture).endswith("... and 50 more RNNs")


HOSTILE = [
    "<script>alert(1)</script>", '"><svg onload="x">', "]]>&amp;&#0;<!--", "a\x00\x1b[2J\x85\ufffe",
    "\ud800\u202eabc", "x" * 100_000, "字" * 300, "a\nb\tc", "",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_do_no_harm(name):
    spec = rl.Spec("lstm", 3, 2)
    picture = draw_subjects([Subject(spec, rl.layout("torch"), None, name)], 300)
    assert len(picture.svg.encode()) < 40_000
    svg = check(picture.svg)
    assert len(svg.blocks) == 16
    assert all(c.isprintable() or c == "\n" for c in str(picture))
    assert "<script" not in picture.svg and "<!--" not in picture.svg
    if name and len(name) < 100 and name.isprintable():
        assert name.replace(" ", "") in "".join(
            one.words.replace(" ", "") for one in svg.texts if one.kind == "head"
        )


def test_a_notebook_shows_a_spec_and_regions():
    spec = rl.Spec("gru", 3, 2)
    found = rl.regions(spec)
    assert spec._repr_svg_() == found._repr_svg_() == rl.picture(spec).svg
    assert type(found[1:]) is type(found["offset"]) is np.ndarray  # not as a whole
    assert pickle.loads(pickle.dumps(found))._repr_svg_() is None  # NumPy keeps the numbers only
    assert rl.Spec("gru", 3, 2, reset="before")._repr_svg_() is None  # cuDNN has none


def test_a_notebook_shows_facts_as_tables():
    """Each text is in a cell of its own, and none of it becomes HTML."""
    shapes = rl.describe(rl.Spec("lstm", 3, 2), "torch")
    ones = {name: np.ones(shape, "f4") for name, shape in shapes.items()}
    tensors = rl.convert(ones, to="keras")
    tensors["<script>&"] = tensors.pop("bias")
    shown = html_cells(tensors)
    assert shown[:4] == ["lstm, input_size 3, hidden_size 2 in keras", "tensor", "shape", "dtype"]
    assert shown[10:13] == ["<script>&", "(8,)", "float32"]
    assert shown[13:] == ["rounds", "8 sums of two non-zero biases"]
    assert html_cells(tensors.report) == shown[13:]
    assert "background: #f2d16b;" in tensors.report._repr_html_()  # the colour was a bare "#"
    known = html_cells(rl.layouts())
    at = known.index("onnx")
    assert known[at : at + 3] == ["onnx", "iofg", "zrn"]


def html_cells(shown):
    root = ElementTree.fromstring(f"<div>{shown._repr_html_()}</div>")
    return [text.strip() for text in root.itertext() if text.strip()]


def test_files(tmp_path, monkeypatch):
    picture = rl.picture(rl.Spec("lstm", 3, 2), width=300)
    picture.save(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text() == picture.svg
    picture.save(tmp_path / "a.PNG")
    # at twice its size it would be higher than matplotlib draws
    write_png(Scene(300, 58_000, "", [Box(8, 57_000, 80, 20, "i")]), tmp_path / "high.png")
    heads = [(tmp_path / name).read_bytes()[:24] for name in ("a.PNG", "high.png")]
    assert all(head.startswith(b"\x89PNG\r\n\x1a\n") for head in heads)
    assert int.from_bytes(heads[0][16:20], "big") == 2 * 300
    assert int.from_bytes(heads[1][20:], "big") == 30_000
    for shape in (Text(10, 30, "a text", "say"), Box(10, 10, 80, 20, "i")):
        write_png(Scene(300, 50, "", [shape]), tmp_path / "one.png")
        left, right = np.split(imread(tmp_path / "one.png")[..., :3].min(axis=(0, 2)), 2)
        assert left.min() < 0.9 and right.min() == 1  # of 0 to 1: the page is white
    with pytest.raises(rl.FileError, match=r"a\.jpg: a picture is written as \.svg or \.png"):
        picture.save(tmp_path / "a.jpg")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(rl.MissingExtraError, match=r'pip install "rnnlayout\[plot\]"'):
        picture.save(tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()
    for width in (239, 4001, float("nan"), True, "760", None):
        with pytest.raises(rl.LayoutError, match="width is"):
            rl.picture(rl.Spec("lstm", 3, 2), width=width)
    # it has no scale bar, as nothing is to scale: that was a division by zero
    svg = rl.picture(rl.Spec("lstm", 5, 4, peepholes=True), "tflite", width=300).svg
    assert "dashed: enlarged, not to scale" in svg and not re.search(r">\d+ bytes<", svg)
