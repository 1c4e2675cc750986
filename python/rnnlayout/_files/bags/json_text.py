"""JSON objects out of files: UTF-8, no name twice at any level, nothing that JSON has not."""

from __future__ import annotations

import json
from typing import Any

from rnnlayout._model.errors import FileError


def json_object(raw: bytes | str, what: str) -> dict[str, Any]:
    """The object that a text is. FileError: it is none."""
    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8")
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
        if not isinstance(found, dict):
            raise ValueError("it is no object")
    except (ValueError, RecursionError) as error:
        raise FileError(f"{what} is malformed: {error}") from None
    return found


def texts(found: Any, what: str) -> dict[str, str]:
    """An object of texts by name, checked."""
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise FileError(f"{what} is no object of texts")
    check_texts([*found, *found.values()], what)
    return found


def check_texts(found: Any, what: str) -> None:
    """Refuse half a surrogate pair: JSON may have it, but no text that is to be written again."""
    try:
        "".join(found).encode()
    except UnicodeEncodeError as error:
        raise FileError(f"{what} is malformed: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} comes twice")
        found[name] = value
    return found


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
