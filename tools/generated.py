"""Compare generated files with what they have to be, or write them."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(files):
    """Write the files that are out of date with --write, else only name them. Return the exit code.

    files: {path: the text that it has to have}
    """
    writes = "--write" in sys.argv
    old = {p: new for p, new in files.items() if not p.exists() or p.read_text() != new}
    for path, new in old.items():
        if writes:
            path.write_text(new)
        print(path.relative_to(ROOT), "written" if writes else "is out of date")
    return 1 if old and not writes else 0
