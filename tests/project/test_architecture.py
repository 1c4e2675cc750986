"""The folders are the architecture: which includes which, what each knows, what is exported."""

import ast
import re
import shutil
import sys
from collections import defaultdict

import numpy as np
import pytest
from commands import ROOT, run

import rnnlayout as rl

sys.path.insert(0, str(ROOT / "tools"))
import rooms

CSRC = ROOT / "csrc"
PACKAGE = ROOT / "python" / "rnnlayout"
NATIVE = PACKAGE / "_native"

# The arrow A <- B: B may include A.
MAY_INCLUDE = {
    "include": set(),
    "system": {"system"},
    "core": {"system", "core"},
    "model": {"core", "model"},
    "layout": {"core", "model", "layout"},
    "kernels": {"system", "core", "kernels"},
    "plan": {"core", "model", "layout", "kernels", "plan"},
    "forward": {"system", "core", "model", "layout", "kernels", "forward"},
    "forward/cudnn": {"system", "core", "forward/cudnn"},
}
# What only one system has: its macros, and headers that are not of C11. forward/cudnn has the
# loader's and the locks of Linux, where alone it is built.
SYSTEMS = re.compile(
    r"\b(?:__linux__|__unix__|__APPLE__|__MACH__|__wasi?m?__|_WIN(?:32|64)|_MSC_VER|__MINGW\w+)\b"
)
OF_A_SYSTEM = re.compile(r"(?:sys|linux|mach)/.*|(?:unistd|pthread|sched|signal|dlfcn|windows)\.h")
INTRINSICS = re.compile(r"(.*intrin|arm_.*)\.h")
PYTHON = re.compile(r"Python\.h|structmember\.h|numpy/.*")
FRAMEWORKS = re.compile(r"torch|keras|onnx|tensorflow|flax|haiku|equinox|paddle|mxnet", re.I)
# The name of a function: Keras 2 and 3 have different functions called hard_sigmoid. A folder that
# contains a libcudnn.
NOT_A_FRAMEWORK = re.compile(r"hard_sigmoid_keras2|\btorch/lib\b", re.I)

# Names that look like those that cuDNN and the driver declare.
VENDORS = re.compile(
    r"\b(?:cudnn|cu|CU)[A-Z]\w*_t\b|\b(?:cudnn|cu)[A-Z]\w*\s*\(|\bcu(?:dnn|da)\w*\.h"
)

# Headers, and the folders of the core that may include them. The binding may include Python's.
HEADERS_OF = [
    (PYTHON, set()), (VENDORS, set()), (INTRINSICS, {"kernels"}),
    (OF_A_SYSTEM, {"system", "forward/cudnn"}),
]  # fmt: skip

CORE_FILES = sorted(path for path in CSRC.rglob("*") if path.suffix in {".c", ".h"})
NATIVE_FILES = sorted(path for path in NATIVE.iterdir() if path.suffix in {".c", ".h"})


def name(path):
    return str(path.relative_to(ROOT))


def folder(path):
    return path.relative_to(CSRC).parent.as_posix()


def includes(path):
    """Return (delimiter, name) of every #include line."""
    return re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)', path.read_text(), re.MULTILINE)


def without_comments(path):
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", path.read_text(), flags=re.DOTALL)


def test_a_folder_of_the_core_includes_what_it_may():
    """Few know the machine or the system."""
    assert len(CORE_FILES) > 20 and len(NATIVE_FILES) > 3
    assert {folder(path) for path in CORE_FILES} <= set(MAY_INCLUDE)
    for path in CORE_FILES:
        for delimiter, header in includes(path):
            if delimiter == '"' and header != "rnnlayout.h":
                assert (CSRC / header).is_file(), f"{header}: written from csrc/ on"
                assert folder(CSRC / header) in MAY_INCLUDE[folder(path)], (name(path), header)
            known = [folders for pattern, folders in HEADERS_OF if pattern.fullmatch(header)]
            assert all(folder(path) in folders for folders in known), (name(path), header)


def test_systems_without_cudnn_have_every_function_of_the_header():
    declared = re.findall(
        r"^\w[\w ]*\W(rnl_(?:cudnn|gpu)_\w+)\(", (CSRC / "include/rnnlayout.h").read_text(), re.M
    )
    absent = (CSRC / "forward/cudnn/absent.c").read_text()
    assert len(declared) > 5
    assert {one for one in declared if f" {one}(" not in absent} == set()


def test_the_binding_sees_the_public_header_alone():
    for path in NATIVE_FILES:
        for delimiter, header in includes(path):
            ours = delimiter == '"' and (NATIVE / header).is_file()
            assert ours or header == "rnnlayout.h" or delimiter == "<", (name(path), header)
            known = (pattern.fullmatch(header) for pattern, _ in HEADERS_OF if pattern != PYTHON)
            assert not any(known), (name(path), header)
        imported = re.findall(r'ImportModule\("(rnnlayout[^"]*)', path.read_text())
        assert imported == (["rnnlayout._model.errors"] if path.name == "module.c" else [])


def test_the_errors_which_the_binding_imports_do_not_import_the_binding():
    arrows, known = rooms.arrows(), {"_model.errors"}
    while more := {target for source, target in arrows if source in known} - known:
        known |= more
    assert known == {"_model.errors", "_model.printable"}


def test_what_is_named_in_one_place():
    """Frameworks in the two tables, the vendor's types in one folder, systems nowhere."""
    tables = ("csrc/layout/formats.c", "csrc/model/settings.c")
    for path in CORE_FILES + NATIVE_FILES:
        code = without_comments(path)
        words = re.sub(r'"(?:\\.|[^"\\])*"', '""', code)
        where = folder(path) if path in CORE_FILES else ""
        named = FRAMEWORKS.search(NOT_A_FRAMEWORK.sub("", code)) and path in CORE_FILES
        assert bool(named) == (name(path) in tables), name(path)
        assert not SYSTEMS.search(words), name(path)
        assert where == "forward/cudnn" or not VENDORS.search(words), name(path)


def test_every_header_compiles_alone(tmp_path):
    headers = [path for path in CORE_FILES if path.suffix == ".h"]
    for k, path in enumerate(headers):
        (tmp_path / f"{k}.c").write_text(f'#include "{path}"\n')
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    run(["cc", *flags, "-I", CSRC / "include", "-I", CSRC, *sorted(tmp_path.iterdir())])


@pytest.mark.parametrize("compiler", [c for c in ("g++", "clang++") if shutil.which(c)])
def test_the_public_header_is_also_cxx(compiler):
    flags = ["-std=c++11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
    run([compiler, *flags, "-I", CSRC / "include", "-x", "c++", "-"],
        input="#include <rnnlayout.h>\n")  # fmt: skip


def test_every_source_is_built(c_build):
    """A file missing in CMakeLists.txt would be dead code that no test sees. Each global symbol of
    the library has our prefix."""
    listed = set(re.findall(r"[\w/]+\.c\b", (ROOT / "CMakeLists.txt").read_text()))
    assert listed == {name(path) for path in CORE_FILES + NATIVE_FILES if path.suffix == ".c"}
    lines = run(["nm", "-g", "--defined-only", c_build("release") / "librnnlayout.a"]).splitlines()
    symbols = {line.split()[-1] for line in lines if len(line.split()) == 3}
    assert "rnl_plan_run" in symbols and all(one.startswith("rnl_") for one in symbols)


# An argument that a message asks for. The command line spells it in another way.
ASKS_IN_A_TEXT = re.compile(r"\b(?:pass|omit|use) \w+=(?!=)")


def test_no_text_of_a_message_spells_an_argument_itself():
    """It is an Ask: SpecError("pass ", Ask("cell", "gru"))."""
    for path in PACKAGE.rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text()))
        texts = [str(node.value) for node in nodes if isinstance(node, ast.Constant)]
        assert not [text for text in texts if ASKS_IN_A_TEXT.search(text)], path
    assert ASKS_IN_A_TEXT.search("two RNNs: pass cell='gru'")


def test_no_error_is_put_into_the_string_of_another_one():
    """It is a part, which keeps what it asks for: FileError("a.npy: ", error). An Ask or a Message
    in a string is refused where that happens."""
    for path in PACKAGE.rglob("*.py"):
        assert not [*errors_in_strings(ast.parse(path.read_text()))], path
    for text in ("f'a.npy: {error}'", "'a.npy: ' + str(error)"):
        code = f"try: pass\nexcept SpecError as error: raise FileError({text})"
        assert [*errors_in_strings(ast.parse(code))]


def errors_in_strings(tree):
    """Yield where an error of ours is raised with a string that another one was put into."""
    ours = "|".join(name for name in dir(rl) if name.endswith("Error"))
    for handler in ast.walk(tree):
        if not isinstance(handler, ast.ExceptHandler) or not handler.name:
            continue
        caught = re.search(rf"\b(?:{ours})\b", ast.unparse(handler.type))
        for node in ast.walk(handler):
            if caught and isinstance(node, ast.Raise):
                raised = ast.unparse(node)
                inside = re.search(rf"\{{{handler.name}\b|\bstr\({handler.name}\)", raised)
                if inside and re.search(rf"\b(?:{ours})\(", raised):
                    yield node.lineno


# ------------------------------------------------------------------------- one word for one thing

# Each command is a module with the same two functions; Python calls the next two. rnnlayout.RNN is
# for calls, rnnlayout.torch.RNN for training.
CALLED_BY_NAME = {"add_arguments", "run", "__getattr__", "__dir__", "RNN"}


def test_a_class_or_function_of_the_package_is_found_by_its_name():
    """If two files need the same name, ask whether it is one thing, else say what each is.
    Overloads of one function are in one file."""
    files = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        named = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        named += [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        for node in named:
            files[node.name].add(path)
    assert len(files) > 500 and len(files["run"]) > 1
    twice = {name for name, where in files.items() if len(where) > 1}
    assert {name: files[name] for name in twice - CALLED_BY_NAME} == {}


# ------------------------------------------------------------------------- the Python package


def test_no_arrow_is_against_the_order_or_in_a_circle():
    """tools/rooms.py has the order of the package's rooms, and its exceptions."""
    arrows = rooms.arrows()
    assert len(rooms.modules()) > 60 and len(arrows) > 200
    assert {("_model.spec", "_native"), ("_convert.assign", "_sources.read_source")} < arrows
    assert rooms.CALLED_LATER.issubset(arrows)
    assert {source for source, _ in rooms.CALLED_LATER} == {"_model.weights"}
    assert rooms.against_the_order(arrows) == []
    assert rooms.circle(arrows) == []


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
    assert formats == {"registry", "content", "foreign", *OWN_FORMATS[suffix]}
    assert not [name for name in modules if "picture" in name or name.startswith("_run.rnn")]
    assert len(modules) <= 56 or suffix not in (".safetensors", ".npz")


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
