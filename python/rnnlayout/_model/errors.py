"""Errors about files and missing packages. The other errors come from the core."""

from __future__ import annotations

from rnnlayout._native import Error


class FileError(Error, ValueError):
    """A file is malformed, unsafe to read, or of no known format."""


class UnknownNameError(Error, KeyError):
    """No RNN of a file has this name."""

    __str__ = Error.__str__  # KeyError's prints the repr of the text


class MissingExtraError(Error, ImportError):
    """A package that a format needs is not installed. The message says how to install it."""


def missing(package: str, extra: str, what: str) -> MissingExtraError:
    """Return the error to raise if `package` cannot be imported. what: the part that needs it."""
    return MissingExtraError(
        f"{what} needs the package {package}, which is not installed: pip install"
        f' "rnnlayout[{extra}]"'
    )
