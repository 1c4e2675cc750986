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
from reprlib import repr as short

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


class Calls:
    """An object that is pickled as a call of a function, which gives it a state."""

    def __init__(self, function, *arguments, state=None):
        self.call = function, arguments, state

    def __reduce__(self):
        return self.call


def link_to(target):
    return lambda path: path.symlink_to(target)


def bound(path):
    """Make a socket."""
    with socket.socket(socket.AF_UNIX) as end, contextlib.chdir(path.parent):
        end.bind(path.name)  # short, as a socket's has to be


def each(make, key, *values, says=None):
    """Return the rows of a table: each is made with another value of one argument."""
    return {f"{key} {k}, {short(value)[:30]}": (make(**{key: value}), *([says] if says else []))
            for k, value in enumerate(values)}  # fmt: skip


def files(table, *suffixes, kind="", **more):
    """Return {file name: Case} of a table under each suffix. A row is what Case calls so, or that,
    what the error says and the exit codes. more: of all cases whose row does not say it."""
    found = {}
    for (name, row), suffix in itertools.product(table.items(), suffixes):
        what, *told = row if isinstance(row, tuple) else (row,)
        own = dict(zip(("says", "codes"), told, strict=False))
        found[f"{kind}{name}{suffix}".replace("/", "|")] = Case(what, **more | own)
    return found
