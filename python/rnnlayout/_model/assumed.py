"""Settings that a source does not record, and whose values are assumed."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import Any

from .config import SETTINGS


@dataclass
class AssumedSettings:
    """The settings of an RNN that the source does not record, with the values that are assumed.

    settings: by the name in Weights.config, or by the field of the Spec. options: options of load()
    that name several settings at once. reported: the names of settings that a warning has named;
    copies of an RNN share them.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    reported: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        """The settings and their values. A setting that an option of a front end has too is not
        written as an argument."""
        texts = []
        for name, value in self.settings.items():
            text = f"{name}={value!r}" if name in SETTINGS else f"{name.replace('_', ' ')} {value}"
            texts.append("no mask" if name == "mask" and value is None else text)
        return ", ".join(texts)

    def without(self, names: Container[str]) -> AssumedSettings:
        """Return a copy without the settings that the caller has named."""
        remaining = {name: value for name, value in self.settings.items() if name not in names}
        return replace(self, settings=remaining)
