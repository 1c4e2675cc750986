"""What a hostile file is: a row of a table, whose name ends with the suffix that is tried.

To add one, add a row {what is wrong: (bytes, a pattern of the error)} to a table of its format.
"""

import contextlib
import itertools
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

REFUSED, EITHER, READ = (3,), (0, 3), (0,)  # exit codes of commands that read the file


@dataclass(frozen=True)
class Case:
    """what: the file's bytes, or a function of its path that returns them or makes the file itself.
    says: a pattern of the error; codes: the exit codes that are right."""

    what: bytes | Callable[[Path], object]
    says: str = ""
    codes: tuple[int, ...] = REFUSED
    form: Callable[[bytes], bytes] = bytes

    def write(self, path):
        data = self.what(path) if callable(self.what) else self.what
        if isinstance(data, bytes):
            path.write_bytes(self.form(data))
        assert os.path.lexists(path), f"{path.name} was not made"

    def said(self, words):
        return re.search(self.says, words, re.DOTALL)


def link_to(target):
    return lambda path: path.symlink_to(target)


def bound(path):
    """Make a socket."""
    with socket.socket(socket.AF_UNIX) as end, contextlib.chdir(path.parent):
        end.bind(path.name)  # short, as a socket's has to be


def files(table, *suffixes, kind="", **more):
    """Return {file name: Case} of a table under each suffix. A row is what Case calls so, or that
    and what the error says. more: of all cases."""
    found = {}
    for (name, row), suffix in itertools.product(table.items(), suffixes):
        what, *says = row if isinstance(row, tuple) else (row,)
        found[f"{kind}{name}{suffix}"] = Case(what, *says, **more)
    return found
