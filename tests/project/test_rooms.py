"""The Python package is rooms in one order: tools/rooms.py has the order and prints the graph."""

import re
import sys

import numpy as np
import pytest
from commands import ROOT, run

sys.path.insert(0, str(ROOT / "tools"))
import rooms

import rnnlayout as rl

ARROWS = rooms.arrows()


def test_no_arrow_is_against_the_order_or_in_a_circle():
    assert len(rooms.modules()) > 60 and len(ARROWS) > 200
    assert {("_model.spec", "_native"), ("_weights.assign", "_sources.read_source")} < ARROWS
    assert rooms.against_the_order(ARROWS) == []
    assert rooms.circle(ARROWS) == []


@pytest.mark.parametrize(
    "line, to",
    [("from rnnlayout._cli.main import main", "_cli.main"),
     ("def f():\n    from rnnlayout._cli import main", "_cli.main"),
     ("if TYPE_CHECKING:\n    from .layout import Layout", "_model.layout"),
     ("from rnnlayout import Spec", "rnnlayout")],
)  # fmt: skip
def test_an_import_at_any_depth_is_an_arrow(tmp_path, line, to):
    for module, text in {"_model/spec": line, "_model/layout": "", "_cli/main": ""}.items():
        file = tmp_path / f"{module}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    (tmp_path / "__init__.py").write_text("")
    assert rooms.arrows(tmp_path) == {("_model.spec", to)}


def test_a_public_name_is_the_same_to_a_type_checker_and_at_run_time():
    """`__init__` imports the names for type checkers, and lists them for __getattr__."""
    tree = rooms.ast.parse((rooms.PACKAGE / "__init__.py").read_text())
    blocks = (node for node in tree.body if isinstance(node, rooms.ast.If))
    (checked,) = (node for node in blocks if rooms.ast.unparse(node.test) == "TYPE_CHECKING")
    static = {
        alias.asname: node.module.removeprefix("rnnlayout.")
        for node in checked.body
        for alias in node.names
    }
    assert static == rl._MODULE_OF


OWN_FORMATS = {
    ".safetensors": {"safetensors"}, ".npz": {"npz"}, ".h5": {"keras", "hdf5"},
    ".onnx": {"onnx"}, ".msgpack": {"flax"},
}  # fmt: skip
LOAD = """
import sys
import rnnlayout as rl
rl.load(sys.argv[1])
print(*(name for name in sys.modules if name.startswith("rnnlayout")))
"""


@pytest.mark.parametrize("suffix", OWN_FORMATS)
def test_load_imports_neither_other_formats_nor_what_draws_or_runs(tmp_path, suffix):
    layout = {".h5": "keras", ".onnx": "onnx"}.get(suffix, "torch")
    spec = rl.Spec("lstm", 3, 2)
    shapes = rl.describe(spec, layout).items()
    path = tmp_path / f"a{suffix}"
    rl.save(path, rl.Weights({n: np.ones(s, "f4") for n, s in shapes}, spec, layout))
    found = run([sys.executable, "-c", LOAD, path]).split()
    modules = [name.removeprefix("rnnlayout.") for name in found]
    formats = {name.split(".")[2] for name in modules if name.startswith("_files.formats.")}
    assert formats == {"registry", "content", *OWN_FORMATS[suffix]}
    assert not [name for name in modules if "picture" in name or name.startswith("_run.rnn")]
    assert len(modules) <= 55 or suffix not in (".safetensors", ".npz")


def test_the_page_on_internals_names_files_that_exist():
    """In the table of the rooms by the module's name, or by its end: `_rows` of identify_rows."""
    text = (ROOT / "docs" / "internals.md").read_text()
    rows = re.findall(r"^\| `(_\w+)` \| (.*) \|$", text, re.MULTILINE)
    assert [room for room, _ in rows] == [room for room in rooms.ORDER if room in dict(rows)]
    for room, row in rows:
        names = [path.stem for path in (rooms.PACKAGE / room).rglob("*")]
        for word in re.findall(r"`(\w+)`", row):
            assert any(name.endswith(word) for name in names), (room, word)
    known = [path for folder in ("python", "csrc", "tests", "tools")
             for path in (ROOT / folder).rglob("*")]  # fmt: skip
    paths = re.findall(r"`((?:\w+/)+\w+(?:\.\w+)?)`", text)
    assert len(paths) > 20
    for path in paths:
        assert any(one.match(path) or one.with_suffix("").match(path) for one in known), path


def test_the_picture_shows_the_rooms_in_their_order():
    svg = (ROOT / "docs" / "images" / "architecture.svg").read_text()
    shown = re.findall(r'<text class="name"[^>]*>(_\w+)</text>', svg)
    assert shown[::-1] == [name for name in rooms.ORDER if name[0] == "_" and "." not in name][:-1]
