"""What the tests need of cuDNN and of CUDA, from PyPI: of the vendor's wheels only some files.

    python tools/get_cudnn.py 9        prints the folder of a libcudnn; 8, 9.0 or 9.28 for others
    python tools/get_cudnn.py cuda     the folder with the headers of CUDA

pip downloads a wheel (cudnn.txt has them all) and checks its SHA-256; nothing is installed. Of
libcudnn (366 to 700 MB) the libraries that know RNNs are kept (154 to 280 MB) and, in include/, the
headers; of CUDA's runtime (3 MB) the headers. They are in $XDG_CACHE_HOME/rnnlayout, else
~/.cache/rnnlayout.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ask_cudnn import LIBRARIES

PINNED = Path(__file__).with_name("cudnn.txt")
SECONDS = 600


class Unavailable(Exception):
    """The wheel cannot be had here; the text says why."""


def requirement(package, version):
    """The first line of cudnn.txt for a package, by the beginning of its name, of a version."""
    for line in PINNED.read_text().splitlines():
        name, _, pinned = line.partition("==")
        if name.startswith(package) and f"{pinned.split()[0]}.".startswith(f"{version}."):
            return line
    raise KeyError(f"{package}=={version}")


def get(version):
    """The folder with the libraries of a libcudnn, its headers in include/: of 8, of 9 the one
    whose layout is asked for, or of one that is named closer, "9.0". Unavailable: why not."""
    line = requirement("nvidia-cudnn", version)
    return _kept(line, LIBRARIES[int(str(version).split(".")[0])])


def cuda_headers(version):
    """The folder with the headers of CUDA 13, or of 11, where only the driver's compiles."""
    more = [requirement("nvidia-cuda-crt", version)] if version == 13 else []
    return _kept(requirement("nvidia-cuda-runtime", version), [], *more) / "include"


def _kept(line, libraries, *more):
    """The folder with what is needed of the wheel, and of more wheels; downloaded if need be."""
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rnnlayout"
    name = line.split()[0].replace("==", "-")
    folder = kept / f"{name}-{line.rpartition('sha256:')[2][:8]}"
    if not folder.is_dir():
        kept.mkdir(parents=True, exist_ok=True)
        # beside the folder: the last step is a rename, so that it is there whole or not at all
        with tempfile.TemporaryDirectory(dir=kept) as work:
            files = Path(work) / "files"
            for one in (line, *more):
                _unzip(_download(one, Path(work)), libraries, files)
            _rename(files, folder)
    return folder


def _download(line, work):
    (work / "only.txt").write_text(line + "\n")
    # fmt: off
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet",
               "--no-deps", "--require-hashes", "--only-binary", ":all:",
               "--no-cache-dir",  # what is needed is kept here
               "--dest", work, "--requirement", work / "only.txt"]
    # fmt: on
    try:
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, timeout=SECONDS,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{line.split()[0]}: not downloaded after {SECONDS} s") from None
    wheels = list(work.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = [s for s in done.stderr.splitlines() if s.startswith("ERROR")] or ["pip failed"]
        raise Unavailable(f"{line.split()[0]}: {said[-1]}")
    return wheels[0]


def _unzip(wheel, libraries, to):
    with zipfile.ZipFile(wheel) as opened:
        for member in opened.namelist():
            header = member.partition("/include/")[2]
            name = "include/" + header if header else member.rpartition("/")[2]
            if header.endswith((".h", ".hpp")) or name in libraries:
                (to / name).parent.mkdir(parents=True, exist_ok=True)
                with opened.open(member) as source, open(to / name, "wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
    wheel.unlink()


def _rename(files, folder):
    try:
        files.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another run was quicker
            raise


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    try:
        print(cuda_headers(13) if sys.argv[1] == "cuda" else get(sys.argv[1]))
    except Unavailable as why:
        print(why, file=sys.stderr)
        return 5
    return 0


if __name__ == "__main__":
    sys.exit(main())
