"""What CI relies on: files that its commands name, lists of packages, a user's script for two type
checkers (tools/check types runs them over typed_user.py); and the table of layouts: each row has a
test, and docs/howto/add-a-framework.md, followed to the letter, is one row and one test."""

import ast
import os
import re
import shutil
import subprocess
import sys
import typing
from pathlib import Path

import pytest
from commands import ROOT, TESTS, run

import rnnlayout as rl
from rnnlayout._model.layout import LayoutName

sys.path.insert(0, str(ROOT / "tools"))

import mutate_table
import run_pages

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


# ----------------------------------------------------------------------------- the table of layouts


PAGE = (ROOT / "docs" / "howto" / "add-a-framework.md").read_text()

# an editable install of the package is found before any folder
CONFTEST = """import sys
sys.meta_path[:] = [f for f in sys.meta_path if "ScikitBuild" not in type(f).__name__]
sys.path.insert(0, {0!r})
import rnnlayout
assert rnnlayout.__file__.startswith({0!r})
"""


def test_the_page_at_run_time():
    code = "".join(block.code for block in run_pages.blocks(PAGE))
    names = {}
    exec(code, names)
    names["test_toy"]()
    exec(code.replace('"oigf"', '"iogf"'), names)
    with pytest.raises(AssertionError, match="Mismatched elements"):
        names["test_toy"]()


FORMATS = "csrc/layout/formats.c"


def built(folder, table):
    """Build the package with another table of layouts; return the folder to import it from."""
    for name in ("CMakeLists.txt", "cmake", "csrc", "python"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    (folder / FORMATS).write_text(table)
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    run([cmake, "-S", folder, "-B", folder / "build", "-G", "Ninja", "-DRNNLAYOUT_PYTHON=ON",
         f"-DPython_EXECUTABLE={sys.executable}"])  # fmt: skip
    run([cmake, "--build", folder / "build"])
    (library,) = (folder / "build").glob("_native*.so")
    shutil.copy(library, folder / "python" / "rnnlayout")
    return folder / "python"


@pytest.mark.long
def test_the_row_of_the_page_in_the_table(tmp_path):
    (row,) = re.findall(r"^```c\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    table = (ROOT / FORMATS).read_text()
    last = "    /* Not listed for users"
    assert table.count(last) == 1
    code = "".join(block.code for block in run_pages.blocks(PAGE))
    code += '\n\ndef test_the_row_is_the_same():\n    assert rl.layout("toy").row == toy.row\n'
    test = tmp_path / "test_toy.py"
    test.write_text(code.replace("layout=toy", 'layout="toy"').replace("to=toy", 'to="toy"'))
    assert passes(test, built(tmp_path, table.replace(last, f"{row}\n{last}")))


def passes(test, site):
    """Run the page's test with the package in a folder. Return whether it passes."""
    (test.parent / "conftest.py").write_text(CONFTEST.format(str(site)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test.name],
        cwd=test.parent, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0 or "Mismatched elements" in done.stdout, done.stdout
    return done.returncode == 0


def test_each_layout_is_compared_with_an_answer_that_is_not_ours():
    """A test that does so names the layout in ANSWERS_FOR."""
    assert mutate_table.ORACLES.keys() == rl.layouts().keys()
