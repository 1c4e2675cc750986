"""JSON objects from files: UTF-8, no name twice at any level, no constants that JSON lacks."""

from __future__ import annotations

import json
from typing import Any

from rnnlayout._model.errors import FileError


def parse_json_object(raw: bytes | str, what: str) -> dict[str, Any]:
    """Return the object of a JSON text. Raises FileError if it is malformed or not an object."""
    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8")
        found = json.loads(
            text, object_pairs_hook=_refuse_double_names, parse_constant=_refuse_constant
        )
        if not isinstance(found, dict):
            raise ValueError("it is not a JSON object")
    except (ValueError, RecursionError) as error:
        raise FileError(f"{what} is malformed: {error}") from None
    return found


def object_of_texts(found: Any, what: str) -> dict[str, str]:
    """Return `found` if it is an object whose values are strings; raise FileError otherwise."""
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise FileError(f"{what} must be an object whose values are strings")
    check_texts([*found, *found.values()], what)
    return found


def check_texts(found: Any, what: str) -> None:
    """Refuse half a surrogate pair: JSON allows it, but it cannot be written again."""
    try:
        "".join(found).encode()
    except UnicodeEncodeError as error:
        raise FileError(f"{what} is malformed: {error}") from None


def _refuse_double_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} occurs twice")
        found[name] = value
    return found


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")
