"""A cache whose results are few or small, however large the sources of a long-lived process are."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import Any, TypeVar, cast

MOST = 1 << 15  # the sizes of all results in a cache together; the name of a tensor takes 1
_RESULT = 64  # the size of a result beside its names: a cache has at most 512 results

Function = TypeVar("Function", bound=Callable[..., Any])


def cached_by_size(size: Callable[..., int]) -> Callable[[Function], Function]:
    """Return a decorator that caches as many results as their sizes allow: the oldest results are
    forgotten. The newest result stays, whatever its size. size: of a result, from the arguments,
    which are positional.

    >>> @cached_by_size(lambda names: len(names))
    ... def double(names):
    ...     print("is called")
    ...     return 2 * names
    >>> double("ab"), double("ab")
    is called
    ('abab', 'abab')
    """

    def decorate(function: Function) -> Function:
        results: dict[tuple[Any, ...], tuple[Any, int]] = {}  # the oldest first
        lock = Lock()  # of a thread that adds a result

        @wraps(function)
        def cached(*arguments: Any) -> Any:
            if known := results.get(arguments):
                return known[0]
            result = function(*arguments)
            with lock:
                results[arguments] = result, _RESULT + size(*arguments)
                total = sum(each for _, each in results.values())
                while total > MOST and len(results) > 1:
                    total -= results.pop(next(iter(results)))[1]
            return result

        wrapper: Any = cached
        wrapper.results, wrapper.cache_clear = results, results.clear
        return cast(Function, wrapper)

    return decorate
