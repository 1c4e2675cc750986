"""Download the files of cuDNN and CUDA that the tests need, from the vendor's wheels on PyPI.

    python tools/get_cudnn.py 9        print the folder of a libcudnn; also 8, 9.0 or 9.28
    python tools/get_cudnn.py cuda     print the folder with the CUDA headers

pip downloads a wheel (cudnn.txt lists them all) and checks its SHA-256; nothing is installed. From
libcudnn (366 to 700 MB) the libraries for RNNs are kept (154 to 280 MB) and, in include/, the
headers; from CUDA's runtime (3 MB) only the headers. They are stored in
$XDG_CACHE_HOME/rnnlayout, by default ~/.cache/rnnlayout.
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
    """The wheel cannot be downloaded; the text says why."""


def requirement(package, version):
    """Return the first line of cudnn.txt whose package name and version start like this."""
    for line in PINNED.read_text().splitlines():
        name, _, pinned = line.partition("==")
        if name.startswith(package) and f"{pinned.split()[0]}.".startswith(f"{version}."):
            return line
    raise KeyError(f"{package}=={version}")


def get(version):
    """Return the folder with the libraries of a libcudnn, and its headers in include/.

    version: 8; 9 for the version whose layout the tests query; or a more precise one, "9.0".
    Raises Unavailable if it cannot be downloaded.
    """
    line = requirement("nvidia-cudnn", version)
    return _kept(line, LIBRARIES[int(str(version).split(".")[0])])


def cuda_headers(version):
    """Return the folder with the headers of CUDA 13, or of 11, of which only cuda.h compiles."""
    more = [requirement("nvidia-cuda-crt", version)] if version == 13 else []
    return _kept(requirement("nvidia-cuda-runtime", version), [], *more) / "include"


def _kept(line, libraries, *more):
    """Return the folder with the needed files of one or more wheels; download them if necessary."""
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rnnlayout"
    name = line.split()[0].replace("==", "-")
    folder = kept / f"{name}-{line.rpartition('sha256:')[2][:8]}"
    if not folder.is_dir():
        kept.mkdir(parents=True, exist_ok=True)
        # in the same file system: the last step is a rename, so the folder is complete or absent
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
               "--no-cache-dir",  # the needed files are kept in our own cache
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
        if not folder.is_dir():  # otherwise another run has created it first
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
