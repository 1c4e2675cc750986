"""The search for a cuDNN: stubs of it and of the libraries that it needs, in c/stubs, and commands
in which only the given variables lead to one."""

import os
import shutil
import subprocess
import sys

import pytest
from commands import ROOT, TESTS, run

import rnnlayout as rl

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


@pytest.fixture(scope="session")
def install(stubs):
    """(folder, *names): copies of some stubs, by default those of cuDNN 9.19.0."""

    def copy(folder, *names):
        folder.mkdir(parents=True, exist_ok=True)
        for name in names or [*PARTS, "libcudnn.so.9"]:
            where = {"libcudnn.so.9": "good", "libcuda.so.1": "driver"}.get(name, "parts")
            shutil.copy(stubs / where / name, folder)
        return folder

    return copy


VARIABLES = ["RNNLAYOUT_CUDNN", "CONDA_PREFIX", "CUDNN_PATH", "CUDNN_HOME", "CUDA_PATH",
             "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH"]  # fmt: skip
PACKAGE = os.path.dirname(os.path.dirname(rl.__file__))


def environment(**variables):
    clean = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    return clean | {key: str(value) for key, value in variables.items()}


def rnnlayout(*arguments, **variables):
    """Run a command. Returns exit code, standard output, standard error."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "rnnlayout", *arguments], text=True, capture_output=True,
        check=False, env=environment(**variables),
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr
