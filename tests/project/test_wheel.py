"""The wheel: one small file for every CPython, without sources, that needs only the C library. The
sdist: the sources, and nothing that a build has left in their folders."""

import email
import json
import re
import shutil
import sys
import tarfile
import zipfile

import pytest
from commands import ROOT, run
from elftools.elf.elffile import ELFFile

from rnnlayout._cli.options import COMMANDS

sys.path.insert(0, str(ROOT / "tools"))

import project_page

pytestmark = pytest.mark.long  # builds the wheel

# glibc and its parts, or musl.
C_LIBRARY = re.compile(
    r"lib(c|m|pthread|dl)\.so\.\d+|ld-linux[\w-]*\.so\.\d+|libc\.musl-\w+\.so\.1"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run([
        sys.executable, "-m", "pip", "wheel", "--no-deps", "--disable-pip-version-check",
        "--config-settings", f"build-dir={folder / 'build'}", "-w", folder, ROOT,
    ])  # fmt: skip
    (path,) = folder.glob("*.whl")
    run([sys.executable, ROOT / "tools" / "recompress.py", path])  # as tools/wheels does
    return path


@pytest.fixture(scope="module")
def names(wheel):
    return zipfile.ZipFile(wheel).namelist()


@pytest.fixture(scope="module")
def metadata(wheel, names):
    (name,) = [n for n in names if n.endswith(".dist-info/METADATA")]
    with zipfile.ZipFile(wheel) as archive:
        return email.message_from_bytes(archive.read(name))


def test_one_wheel_for_every_python_from_3_11_on(wheel, names):
    """Small is what is published, by another compiler: tools/check_wheels.py has the limit."""
    assert "-cp311-abi3-" in wheel.name
    assert [n for n in names if n.endswith((".c", ".h", ".a")) or re.search(r"\btests?/", n)] == []
    assert any(re.fullmatch(r"rnnlayout-[^/]*\.dist-info/licenses/LICENSE", n) for n in names)
    assert "rnnlayout/py.typed" in names
    schemas = {n.rpartition("/")[2] for n in names if n.startswith("rnnlayout/schemas/")}
    assert schemas == {one.name for one in (ROOT / "python/rnnlayout/schemas").iterdir()}
    assert {name[:-7] for name in schemas} <= {*COMMANDS}
    run([sys.executable, "-m", "abi3audit", "--strict", wheel])


def test_the_sbom_says_what_the_metadata_says(wheel, names, metadata):
    """PEP 770: CycloneDX in .dist-info/sboms."""
    (name,) = [
        n for n in names if re.fullmatch(r"rnnlayout-[^/]*\.dist-info/sboms/.*\.cdx\.json", n)
    ]
    with zipfile.ZipFile(wheel) as archive:
        bom = json.loads(archive.read(name))
    about, version = bom["metadata"]["component"], metadata["Version"]
    assert (bom["bomFormat"], about["name"]) == ("CycloneDX", "rnnlayout")
    assert about["version"] == version
    assert about["purl"] == f"pkg:pypi/rnnlayout@{version}"
    assert about["licenses"] == [{"license": {"id": metadata["License-Expression"]}}]
    needed = [one for one in metadata.get_all("Requires-Dist") if "extra ==" not in one]
    assert [one["name"] for one in bom["components"]] == [re.split(r"\W", one)[0] for one in needed]
    built_by = {tool["name"]: tool["version"] for tool in bom["metadata"]["tools"]["components"]}
    assert built_by["CMake"] and len(built_by) == 2 and all(built_by.values())


def test_it_needs_the_c_library_alone_and_its_page_no_file_beside_it(wheel, names, metadata):
    (library,) = [n for n in names if ".so" in n]
    with zipfile.ZipFile(wheel) as archive, archive.open(library) as file:
        dynamic = ELFFile(file).get_section_by_name(".dynamic")
        needed = [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")]
    assert [n for n in needed if not C_LIBRARY.fullmatch(n)] == []
    assert project_page.LINK.findall(metadata.get_payload()) == []
    assert f"Repository, {project_page.ADDRESS}" in metadata.get_all("Project-URL")


# What users and builds leave in a tree.
LEFT = re.findall(
    r"\S+",
    """
lstm.bin lstm.bin.json model.pt out.y cpu_inference core.123 notes.txt .env .venv/pyvenv.cfg
build/c/librnnlayout.a build/check/log dist/rnnlayout-0.1.0.tar.gz venv/bin/python old/notes.md
csrc/core/size.o csrc/librnnlayout.a python/rnnlayout/_native.abi3.so docs/_build/index.html
python/rnnlayout/__pycache__/testing.cpython-311.pyc python/rnnlayout.egg-info/PKG-INFO
tests/.pytest_cache/README.md .hypothesis/examples/1 examples/checkpoints/model.onnx
""",
)


def test_the_sdist_of_a_used_tree_contains_the_tracked_files(tmp_path):
    tracked = set(run(["git", "-C", ROOT, "ls-files"]).splitlines())
    assert tracked.isdisjoint(LEFT)
    for name in [*tracked, *LEFT]:
        to = tmp_path / "tree" / name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / (name if name in tracked else "LICENSE"), to)
    run([sys.executable, "-m", "build", "--sdist", "--outdir", tmp_path, tmp_path / "tree"])
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names == {name for name in tracked if not name.startswith(".")} | {"PKG-INFO"}
