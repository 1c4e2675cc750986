"""A call like an earlier one finds its plan at once.

In a loop, and for small networks anywhere, finding out what the tensors are costs more than moving
them. What was found out is kept under all that it depended on: the arguments, and the names, shapes
and dtypes of the arrays. Values are looked at anew each time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from rnnlayout import _native
from rnnlayout._model.dtypes import present, storage
from rnnlayout._model.given import Given
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import Spec

_MOST = 256
_recipes: dict[tuple[Any, ...], Recipe] = {}


class Recipe(NamedTuple):
    """How to convert arrays of known names, shapes and dtypes."""

    plan: _native.Plan
    keys: list[Any]  # of the source's arrays in the plan's order; empty for a flat source
    src_dtype: str
    spec: Spec  # of the result
    dst: Layout
    targets: list[tuple[str, tuple[int, ...]]]
    dtype: np.dtype  # of the target arrays

    def sources(self, source: Any) -> list[np.ndarray]:
        return [source[key] for key in self.keys] if self.keys else [source]

    def outputs(self, out: Any) -> list[np.ndarray] | None:
        """New arrays, or the caller's own; None if these are not plainly what is needed."""
        if out is None:
            return [np.empty(shape, self.dtype) for _, shape in self.targets]
        given = out if type(out) is dict else {self.targets[0][0]: out}
        if len(given) != len(self.targets):
            return None
        arrays: list[Any] = [given.get(name) for name, _ in self.targets]
        for array, (_, shape) in zip(arrays, self.targets, strict=True):
            plain = type(array) is np.ndarray
            if not plain or array.dtype != self.dtype or array.shape != shape:
                return None
        return arrays


def key_of(source: Any, *arguments: Any) -> tuple[Any, ...] | None:
    """What the recipe depends on; None for sources that are not plain arrays."""
    if isinstance(source, dict):
        key: list[Any] = [*arguments, *source]
        arrays: Iterable[Any] = source.values()
    elif type(source) is np.ndarray:
        key = [*arguments]
        arrays = (source,)
    else:
        return None
    for array in arrays:
        if type(array) is not np.ndarray:
            return None
        key += (array.shape, array.dtype)
    return tuple(key)


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def find(key: tuple[Any, ...] | None) -> Recipe | None:
    try:
        return _recipes.get(key) if key else None
    except TypeError:  # an argument that is wrong anyway
        return None


def remember(
    key: tuple[Any, ...] | None, source: Any, given: Given, plan: _native.Plan, made: Given
) -> None:
    """Keep how this was done, where the arrays were taken as they are."""
    if key is None:
        return
    own = source if isinstance(source, dict) else {None: source}
    owners = {_address(array): k for k, array in own.items()}
    used = [_address(array) for array in given.arrays]
    if len(owners) != len(used) or any(address not in owners for address in used):
        return
    keys = [owners[address] for address in used] if isinstance(source, dict) else []
    if len(_recipes) >= _MOST:
        _recipes.clear()
    dtype = present(np.empty(0, storage(made.dtype)), made.dtype).dtype
    _recipes[key] = Recipe(plan, keys, given.dtype, made.spec, made.layout, plan.targets, dtype)
