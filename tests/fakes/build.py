"""Compile the fakes: a libcuda.so.1 and a libcudnn.so.9, for the tests.

python tests/fakes/build.py FOLDER        builds both into a folder, to try them by hand
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CUDA = ["record.c", *sorted(path.name for path in HERE.glob("cuda_*.c"))]
CUDNN = sorted(path.name for path in HERE.glob("cudnn_*.c"))
# A user opens the last one, which needs the others beside it.
LIBRARIES = ["libcudnn_graph.so.9", "libcudnn_ops.so.9", "libcudnn_adv.so.9", "libcudnn.so.9"]
# rnnlayout opens one of these before libcudnn. They are empty too.
CUBLAS = ["libcublasLt.so.12", "libcublasLt.so.13"]
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]


def build_cuda(folder):
    """Build folder/libcuda.so.1."""
    folder.mkdir(parents=True, exist_ok=True)
    _compile(folder / "libcuda.so.1", CUDA, "-pthread", "-lm")


def build_cudnn(folder, cuda):
    """Build the libraries of a libcudnn in a folder; cuda: the folder of libcuda.so.1."""
    folder.mkdir(parents=True, exist_ok=True)
    *siblings, shim = LIBRARIES
    for name in siblings + CUBLAS:
        _compile(folder / name, ["sibling.c"])
    _compile(folder / shim, CUDNN, f"-Wl,-rpath,{cuda}",
             cuda / "libcuda.so.1", "-lm", "-ldl")  # fmt: skip


def _compile(to, sources, *more):
    run = ["cc", *FLAGS, "-O1", "-g", "-fPIC", "-shared", f"-Wl,-soname,{to.name}", "-o", to]
    subprocess.run([*run, *(HERE / name for name in sources), *more], check=True)


def check(cuda_headers, cudnn_headers=None):
    """Compile the fakes against the vendor's own headers and return the compiler's messages.

    Without cudnn_headers only libcuda. That the vendor's numbers are enumerations is ignored.
    """
    flags = [*FLAGS, "-Wno-enum-conversion", "-fsyntax-only", "-DFAKE_REAL_HEADERS",
             "-isystem", cuda_headers]  # fmt: skip
    if cudnn_headers:
        flags += ["-isystem", cudnn_headers]
        sources = [*CUDNN, "check_numbers.c"]
    else:
        flags += ["-DFAKE_CUDA_ONLY"]
        sources = [*CUDA, "check_numbers.c"]
    run = ["cc", *flags, *(HERE / name for name in sources)]
    return subprocess.run(run, check=False, capture_output=True, text=True).stderr


class Fakes:
    """The fakes of a test session, each compiled on first use."""

    def __init__(self, folder):
        self._folder = folder

    @property
    def cuda(self):
        """The folder of libcuda.so.1."""
        folder = self._folder / "cuda"
        if not folder.exists():
            build_cuda(folder)
        return folder

    @property
    def cudnn(self):
        """The folder of libcudnn.so.9 and of all libraries that are opened with it."""
        folder = self._folder / "cudnn9"
        if not folder.exists():
            build_cudnn(folder, self.cuda)
        return folder

    def environment(self, **more):
        """Return the environment of a process in which rnnlayout finds only the fakes."""
        found = {"RNNLAYOUT_CUDNN": str(self.cudnn), "LD_LIBRARY_PATH": str(self.cuda)}
        return os.environ | found | more


def main():
    folder = Path(sys.argv[1]).resolve()
    build_cuda(folder)
    build_cudnn(folder / "cudnn9", folder)


if __name__ == "__main__":
    main()
