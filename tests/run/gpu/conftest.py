"""Stubs of cuDNN and of the libraries that it needs, in c/stubs, and the fake driver."""

import shutil

import pytest
from commands import ROOT, TESTS, run

STUBS = TESTS / "c" / "stubs"
PARTS = ["libcudnn_graph.so.9", "libcudnn_ops.so.9", "libcudnn_adv.so.9"]
# Main libraries: the folder, the version, the status of the parts.
MAIN = [("good", 91900, 0), ("other", 100000, 0), ("mixed", 91900, 1002), ("lying", 8906, 0)]


@pytest.fixture(scope="session")
def stubs(fakes, tmp_path_factory):
    """Their folder, with folders of good and of bad ones."""
    folder = tmp_path_factory.mktemp("stubs")

    def build(where, name, *arguments):
        (folder / where).mkdir(exist_ok=True)
        run(["cc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", "-I", ROOT / "csrc",
             "-o", folder / where / name, *arguments])  # fmt: skip

    for name in [*PARTS, "libcublasLt.so.13", "libcublasLt.so.12"]:
        build("parts", name, STUBS / "part.c")
    for where, version, status in MAIN:
        plays = [f"-DVERSION={version}", f"-DPARTS_STATUS={status}"]
        build(where, "libcudnn.so.9", *plays, STUBS / "cudnn.c", STUBS / "symbols.c", "-ldl")
    build("lacking", "libcudnn.so.9", STUBS / "part.c")
    build("undefined", "libcudnn_adv.so.9", "-DNEEDS", STUBS / "part.c")
    shutil.copytree(fakes.cuda, folder / "driver")
    build("old_driver", "libcuda.so.1", STUBS / "part.c")
    return folder
