"""The libcudnn that the tests ask, from PyPI: of cuDNN's wheels only the files that are needed.

    python tools/get_cudnn.py 9        prints the folder; 8 for the other

pip downloads the wheel (366 and 700 MB) and checks its SHA-256 (cudnn.txt); nothing is installed.
The libraries that know RNNs (154 and 217 MB) are kept in $XDG_CACHE_HOME/rnnlayout, else
~/.cache/rnnlayout, in a folder named by that hash.
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


def requirement(major):
    """The line of cudnn.txt: a package and its hash."""
    for line in PINNED.read_text().splitlines():
        if line.startswith("nvidia-") and line.split("==")[1].startswith(f"{major}."):
            return line
    raise KeyError(major)


def get(major):
    """The folder with the libraries of one major version, 8 or 9. Unavailable: why not."""
    line = requirement(major)
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rnnlayout"
    folder = kept / line.rpartition("sha256:")[2][:16]
    if not folder.is_dir():
        kept.mkdir(parents=True, exist_ok=True)
        # beside the folder: the last step is a rename, so that it is there whole or not at all
        with tempfile.TemporaryDirectory(dir=kept) as work:
            files = _unzip(_download(line, Path(work)), LIBRARIES[major], Path(work) / "files")
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


def _unzip(wheel, names, to):
    to.mkdir()
    with zipfile.ZipFile(wheel) as opened:
        for member in opened.namelist():
            name = member.rpartition("/")[2]
            if name in names:
                with opened.open(member) as source, open(to / name, "wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
    wheel.unlink()
    return to


def _rename(files, folder):
    try:
        files.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another run was quicker
            raise


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in map(str, LIBRARIES):
        print(__doc__)
        return 2
    try:
        print(get(int(sys.argv[1])))
    except Unavailable as why:
        print(why, file=sys.stderr)
        return 5
    return 0


if __name__ == "__main__":
    sys.exit(main())
