"""Errors that have to do with files and with what is installed; the others are the core's."""

from __future__ import annotations


class FileError(ValueError):
    """A file that is malformed, unsafe to read, or of no known format."""


class MissingExtraError(ImportError):
    """A package that a format needs is not installed; the text says how to install it."""


def missing(package: str, extra: str, what: str) -> MissingExtraError:
    """What to raise where `package` cannot be imported. what: needs it, as a clause's subject."""
    return MissingExtraError(
        f"{what} needs the package {package}, which is not installed: pip install"
        f' "rnnlayout[{extra}]"'
    )
