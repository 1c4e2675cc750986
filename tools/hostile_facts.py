"""The limits on files, and what the tests of hostile files try: for docs/security.md."""

import re
import sys
from pathlib import Path

from layout_tables import markdown

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from files.hostile import limits, products, test_hostile  # noqa: E402

from rnnlayout._files.tensor_sets.file_limits import LIMITS  # noqa: E402
from rnnlayout._model.printable import LONGEST  # noqa: E402

FILES = ROOT / "python" / "rnnlayout" / "_files"


def size(n):
    """Return a number in powers of 1024 if it is one of bytes and whole."""
    for unit, name in ((1 << 20, "Mi"), (1 << 10, "Ki")):
        if n % unit == 0:
            return f"{n // unit:,} {name}"
    return f"{n:,}"


def places():
    """Return the files that charge each limit."""
    found = {}
    for path in sorted(FILES.rglob("*.py")):
        for kind in re.findall(r'charge\("(\w+)"', path.read_text()):
            name = path.relative_to(FILES).with_suffix("")
            found.setdefault(kind, {})["/".join(name.parts[1:])] = None
    return found


def table():
    charged = places()
    assert charged.keys() == LIMITS.keys()
    rows = [
        [one.unit, size(one.free), f"{one.times:g}" if one.times >= 1 else f"1/{1 / one.times:g}",
         one.why, ", ".join(f"`{place}`" for place in charged[kind])]
        for kind, one in LIMITS.items()
    ]  # fmt: skip
    return markdown(["what", "always", "and per byte of the file", "reason", "charged in"], rows)


def figures():
    flips, apart = test_hostile.LONG
    first, last = products.SIZES
    rows = [
        ["memory that reading a hostile file takes, at most", f"{limits.MOST_NBYTES // 10**6} MB"],
        ["calls of functions that it makes, at most", f"{limits.MOST_CALLS:,}"],
        ["CPU time that it takes, at most, in the long tests", f"{limits.MOST_SECONDS} s"],
        ["characters of an error, at most", f"{LONGEST}"],
        ["hostile files", f"{len(test_hostile.CASES):,}"],
        ["formats", f"{len(test_hostile.LAYOUTS)}"],
        ["files that grow", f"{len(products.PRODUCTS)}, each also {last // first} times as large"],
        ["a valid file of each format is truncated at each", f"{apart}th byte"],
        ["and changed by one byte at", f"{flips} positions"],
    ]
    return markdown(["", "in the tests"], rows)
