"""What type checkers see: tools/check types runs two of them over typed_user.py."""

import ast
import sys
import typing
from pathlib import Path

from commands import TESTS, run

import rnnlayout as rl
from rnnlayout._model.layout import LayoutName

SCRIPT = TESTS / "project" / "typed_user.py"
OF_A_GPU = {"DeviceArray", "set_cudnn"}


def test_a_users_script_touches_every_public_name_and_runs(tmp_path):
    used = {node.attr for node in ast.walk(ast.parse(SCRIPT.read_text()))
            if isinstance(node, ast.Attribute)}  # fmt: skip
    types = {"Layout", "Tensors"}  # of results; nobody has to write them
    assert set(rl.__all__) - used <= OF_A_GPU | types
    assert "rounds" in run([sys.executable, SCRIPT, tmp_path])
    assert {path.name for path in Path(tmp_path).iterdir()} == {"one.safetensors", "two.npz"}


def test_the_layouts_that_type_checkers_know():
    assert [*typing.get_args(LayoutName)] == [name for name in rl.layouts() if name != "cudnn"]
