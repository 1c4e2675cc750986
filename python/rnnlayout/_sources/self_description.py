"""What a module or layer of any framework says about itself: its classes, and which RNN it is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rnnlayout import _native
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import Spec


def class_names(value: Any, *modules: str) -> list[str]:
    """Return the names of the value's classes from modules whose names start with one of these."""
    return [c.__name__ for c in type(value).__mro__ if str(c.__module__).startswith(modules)]


def class_among(value: Any, known: Collection[str], *modules: str) -> str | None:
    """Return the first of class_names() that is in `known`, None if none is."""
    return next((name for name in class_names(value, *modules) if name in known), None)


@dataclass(frozen=True)
class RNNDescription:
    """One RNN as its module or config describes it.

    hints: the fields of its Spec that it records. config: the settings that change outputs but not
    shapes, as in Weights.config. batch_first: whether x is (N, T, I); None if that is not recorded.
    """

    layout: str
    hints: dict[str, Any]
    config: dict[str, Any]
    batch_first: bool | None

    def spec_and_names(self) -> tuple[Spec, tuple[str, ...]]:
        """Return its Spec and the names of its tensors. hints must have its input size."""
        return _spec_and_names(self.layout, frozenset(self.hints.items()))


@lru_cache(maxsize=64)
def _spec_and_names(
    layout: str, fields: frozenset[tuple[str, Any]]
) -> tuple[Spec, tuple[str, ...]]:
    spec = Spec(**dict(fields))
    return spec, tuple([name for name, _ in _native.tensors(Layout(layout), spec)])
