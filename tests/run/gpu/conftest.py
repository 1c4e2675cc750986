"""Stubs of cuDNN, of the libraries that it needs, and of the driver: c/stubs."""

import pytest
from commands import ROOT, TESTS, run

STUBS = TESTS / "c" / "stubs"
PARTS = {
    9: ["libcudnn_graph.so.9", "libcudnn_ops.so.9", "libcudnn_adv.so.9"],
    8: ["libcudnn_ops_infer.so.8", "libcudnn_adv_infer.so.8"],
}
CUBLAS = ["libcublasLt.so.13", "libcublasLt.so.11", "libcublas.so.11"]
# Main libraries: the folder, the major version in the name, the version, the status of the parts.
MAIN = [("good", 9, 91900, 0), ("good", 8, 8906, 0), ("old", 8, 8500, 0), ("other", 9, 100000, 0),
        ("mixed", 9, 91900, 1002), ("lying", 9, 8906, 0)]  # fmt: skip


@pytest.fixture(scope="session")
def stubs(tmp_path_factory):
    """Their folder, with folders of good and of bad ones."""
    folder = tmp_path_factory.mktemp("stubs")

    def build(where, name, *arguments):
        (folder / where).mkdir(exist_ok=True)
        run(["cc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", "-I", ROOT / "csrc",
             "-o", folder / where / name, *arguments])  # fmt: skip

    for name in [*PARTS[9], *PARTS[8], *CUBLAS]:
        build("parts", name, STUBS / "part.c")
    for where, major, version, status in MAIN:
        plays = [f"-DMAJOR={major}", f"-DVERSION={version}", f"-DPARTS_STATUS={status}"]
        build(where, f"libcudnn.so.{major}", *plays, STUBS / "cudnn.c", STUBS / "symbols.c", "-ldl")
    build("lacking", "libcudnn.so.9", STUBS / "part.c")
    build("undefined", "libcudnn_adv.so.9", "-DNEEDS", STUBS / "part.c")
    build("driver", "libcuda.so.1", STUBS / "driver.c", STUBS / "symbols.c")
    build("old_driver", "libcuda.so.1", STUBS / "driver.c")
    return folder
