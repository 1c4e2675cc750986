"""Errors about files and missing packages. The other errors come from the core."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rnnlayout._native import Error


class FileError(Error, ValueError):
    """A file is malformed, unsafe to read, or of no known format."""


class UnknownNameError(Error, KeyError):
    """No RNN of a file has this name."""

    __str__ = Error.__str__  # KeyError's prints the repr of the text


class MissingExtraError(Error, ImportError):
    """A package that a format needs is not installed. The message says how to install it."""


def import_extra(module: str, extra: str, what: str) -> Any:
    """Return a module of a package that is not a dependency. what: the part that needs it. Raises
    MissingExtraError if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtraError(
            f"{what} needs the package {module.partition('.')[0]}, which is not installed: pip"
            f' install "rnnlayout[{extra}]"'
        ) from None
