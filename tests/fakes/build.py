"""Compile the fakes: a libcuda.so.1, and the parts of a libcudnn.so.9, which need it.

python tests/fakes/build.py FOLDER        builds all into a folder, to try them by hand
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Every function, also of cuDNN, is in libcuda.so.1.
SOURCES = ["record.c", "streams.c", "driver.c", "cudnn.c", "compute.c", "../c/cpu/slow.c",
           "../../csrc/core/dtype.c"]  # fmt: skip
# A user opens the last one, which needs the others beside it.
LIBRARIES = ["libcudnn_graph.so.9", "libcudnn_ops.so.9", "libcudnn_adv.so.9", "libcudnn.so.9"]
# rnnlayout opens one of these before libcudnn.
CUBLAS = ["libcublasLt.so.12", "libcublasLt.so.13"]


def build(folder):
    """Build folder/cuda/libcuda.so.1, and the others in folder/cudnn9."""
    cuda, cudnn = folder / "cuda", folder / "cudnn9"
    for made in (cuda, cudnn):
        made.mkdir(parents=True, exist_ok=True)
    folders = [flag for name in ("csrc", "csrc/include", "tests/c") for flag in ("-I", ROOT / name)]
    _compile(cuda / "libcuda.so.1", SOURCES, *folders, "-pthread", "-lm")
    for name in LIBRARIES + CUBLAS:
        _compile(cudnn / name, ["../c/stubs/part.c"], "-Wl,--no-as-needed", f"-Wl,-rpath,{cuda}",
                 *[cuda / "libcuda.so.1"] * (name == LIBRARIES[-1]))  # fmt: skip


def _compile(to, sources, *more):
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-g"]
    run = ["cc", *flags, "-fPIC", "-shared", f"-Wl,-soname,{to.name}", "-o", to]
    subprocess.run([*run, *(HERE / name for name in sources), *more], check=True)


class Fakes:
    """The fakes of a test session, compiled on first use."""

    def __init__(self, folder):
        self._folder = folder

    def _built(self, name):
        if not self._folder.joinpath("cuda").exists():
            build(self._folder)
        return self._folder / name

    @property
    def cuda(self):
        """The folder of libcuda.so.1."""
        return self._built("cuda")

    @property
    def cudnn(self):
        """The folder of libcudnn.so.9 and of all libraries that are opened with it."""
        return self._built("cudnn9")

    def environment(self, **more):
        """Return the environment of a process in which rnnlayout finds only the fakes."""
        found = {"RNNLAYOUT_CUDNN": str(self.cudnn), "LD_LIBRARY_PATH": str(self.cuda),
                 "FAKE_LOG": str(self._folder / "log")}  # fmt: skip
        return os.environ | found | more


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve())
