"""What CI relies on: files that its commands name, lists of packages, a user's script for two type
checkers (tools/check types runs them over typed_user.py), and that a skipped test fails the run."""

import ast
import re
import sys
import typing

import pytest
from commands import ROOT, TESTS, run

import rnnlayout as rl
from rnnlayout._model.layout import LayoutName

FOLDERS = ("benchmarks/", "examples/", "tests/", "tools/")


@pytest.mark.parametrize("script", ["tools/check", ".ci/run"])
def test_named_files_exist(script):
    paths = [word for word in (ROOT / script).read_text().split() if word.startswith(FOLDERS)]
    assert paths
    names = run(["bash", "-c", f"printf '%s ' {' '.join(paths)}"]).split()  # with bash's braces
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_a_pinned_version_is_in_one_list():
    lists = (ROOT / "tools/release.txt", *ROOT.glob("*/requirements.txt"))
    text = "\n".join(one.read_text() for one in lists)
    pins = [name.lower().replace("_", "-") for name in re.findall(r"(?m)^([\w-]+).*==", text)]
    assert len(pins) > 30 and sorted(pins) == sorted(set(pins))


# ------------------------------------------------------------------------------ type checkers

SCRIPT = TESTS / "project" / "typed_user.py"
OF_A_GPU = {"DeviceArray", "set_cudnn"}


def test_a_users_script_touches_every_public_name_and_runs(tmp_path):
    used = {node.attr for node in ast.walk(ast.parse(SCRIPT.read_text()))
            if isinstance(node, ast.Attribute)}  # fmt: skip
    types = {"Layout", "Tensors"}  # of results; nobody has to write them
    assert set(rl.__all__) - used <= OF_A_GPU | types
    assert "rounds" in run([sys.executable, SCRIPT, tmp_path])
    assert {path.name for path in tmp_path.iterdir()} == {"one.safetensors", "two.npz"}


def test_the_layouts_that_type_checkers_know():
    assert [*typing.get_args(LayoutName)] == [name for name in rl.layouts() if name != "cudnn"]


# ----------------------------------------------------------------------------- how a run ends
