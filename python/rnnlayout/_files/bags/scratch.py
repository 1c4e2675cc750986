"""Layers made one after another in the same memory, each while the one before it is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np

from rnnlayout._model.dtypes import storage


class Memory:
    """Arrays where the last ones were: to get it anew costs as much as to fill it."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def arrays(self, shapes: list[tuple[int, ...]], dtype: str) -> list[np.ndarray]:
        """Arrays that carry a dtype; those asked for before are gone."""
        of = storage(dtype)
        sizes = [math.prod(shape) * of.itemsize for shape in shapes]
        *starts, end = accumulate((-(-n // 64) * 64 for n in sizes), initial=0)
        if end > self._bytes.size:
            self._bytes = np.empty(0, np.uint8)  # first given back
            self._bytes = np.empty(end, np.uint8)
        return [
            self._bytes[at : at + n].view(of).reshape(shape)
            for at, n, shape in zip(starts, sizes, shapes, strict=True)
        ]


Make = Callable[[Memory], Any]


class Scratch:
    """The last thing made, and the next one in the making, each in memory of its own."""

    def __init__(self) -> None:
        self._memory, self._spare = Memory(), Memory()
        self._key: Any = None
        self._value: Any = None
        self._ahead: Any = None  # a key and a Future
        self._pool: Any = None

    def holds(self, key: Any, make: Make, ahead: tuple[Any, Make] | None = None) -> Any:
        """What make() gives, made only if something else has been made since.

        ahead: key and make() of what is asked for next; another thread makes it meanwhile.
        """
        if key != self._key:
            self._value = self._taken(key) or make(self._spare)
            self._key = key
            self._memory, self._spare = self._spare, self._memory
            if ahead is not None:
                self._begin(*ahead)
        return self._value

    def _begin(self, key: Any, make: Make) -> None:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(1)
        self._ahead = key, self._pool.submit(make, self._spare)

    def _taken(self, key: Any) -> Any:
        """What was made ahead, if it is what is asked for now."""
        if self._ahead is None:
            return None
        (made, future), self._ahead = self._ahead, None
        if made == key:
            return future.result()
        future.exception()  # it is in the memory that is needed now
        return None
