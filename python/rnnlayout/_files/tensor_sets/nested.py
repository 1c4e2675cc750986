"""Dicts and lists in each other, as a file has them: their leaves by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rnnlayout._model.errors import FileError

from .file_limits import InputFile

MOST_DEEP, LONGEST = 32, 1000  # dicts in dicts; characters of a name
ALONE = "weight_space"  # the name of a tensor that is the whole file


def _is_no_container(value: Any) -> bool:
    return not isinstance(value, (dict, list, tuple))


def walk_leaves(
    file: InputFile,
    found: Any,
    is_leaf: Callable[[Any], bool] = _is_no_container,
    separator: str = ".",
) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield (name, container, key, leaf) in order, and each container only once."""
    if is_leaf(found):
        yield ALONE, None, None, found
    else:
        yield from _walk_container(file, found, is_leaf, separator, "", 0, set())


def _walk_container(
    file: InputFile,
    container: Any,
    is_leaf: Callable[[Any], bool],
    separator: str,
    name: str,
    depth: int,
    seen: set[int],
) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield what is in a container. name: the keys that lead to it; seen: ids of those before."""
    if _is_no_container(container) or id(container) in seen:
        return
    seen.add(id(container))
    if depth > MOST_DEEP or len(name) > LONGEST:
        raise FileError(
            f"{file}: dicts nested {depth} deep, or keys of {len(name)} characters: refused"
        )
    items = container.items() if isinstance(container, dict) else enumerate(container)
    for key, value in items:
        if type(key) not in (str, int):
            continue
        if isinstance(key, str) and len(name) + len(key) > LONGEST:
            raise FileError(f"{file}: a key of {len(key)} characters: refused")
        if is_leaf(value):
            yield f"{name}{key}", container, key, value
        else:
            yield from _walk_container(
                file, value, is_leaf, separator, f"{name}{key}{separator}", depth + 1, seen
            )
