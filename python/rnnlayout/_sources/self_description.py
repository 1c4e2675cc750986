"""Classes of a module or layer of any framework, and a description of the RNN inside."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rnnlayout import _native
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import Spec


def class_names(value: Any, *modules: str) -> list[str]:
    """Return the names of the classes of `value` that are defined in Python modules with these
    starts of names."""
    return [c.__name__ for c in type(value).__mro__ if str(c.__module__).startswith(modules)]


def class_among(value: Any, accepted: Collection[str], *modules: str) -> str | None:
    """Return the first of class_names() that is in `accepted`, if any."""
    return next((name for name in class_names(value, *modules) if name in accepted), None)


@dataclass(frozen=True)
class RNNDescription:
    """Description of one RNN by a module or config.

    fields: the recorded fields of the Spec. config: settings that change outputs but not shapes, as
    in Weights.config. batch_first: whether x is (N, T, I); None if not recorded. tensors: by name,
    of a module that does not record all fields; None for other modules.
    """

    layout: str
    fields: dict[str, Any]
    config: dict[str, Any]
    batch_first: bool | None
    tensors: Mapping[str, Any] | None = None

    def spec_and_names(self) -> tuple[Spec, tuple[str, ...]]:
        """Return the Spec and the names of the tensors. `fields` must have the input size."""
        return _spec_and_names(self.layout, frozenset(self.fields.items()))


@lru_cache(maxsize=64)
def _spec_and_names(
    layout: str, fields: frozenset[tuple[str, Any]]
) -> tuple[Spec, tuple[str, ...]]:
    spec = Spec(**dict(fields))
    return spec, tuple([name for name, _ in _native.tensors(Layout(layout), spec)])
