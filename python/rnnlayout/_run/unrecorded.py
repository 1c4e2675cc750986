"""The warning about settings that the source of an RNN does not record."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from rnnlayout._model.config import SETTINGS
from rnnlayout._model.errors import Ask, AssumedWarning, Message, TextPart, join_parts
from rnnlayout._model.weights import Weights
from rnnlayout._sources.reading import Reading

_AXES = "time_major"


class UnrecordedSettings:
    """The assumed settings of an RNN that no warning has named yet, and the mask of the source.

    batch_first: the caller's argument. Without it, the order of the axes is assumed unless the
    source records the order. settings: the further settings, which matter for every call.
    """

    def __init__(self, rnn: Weights, reading: Reading, batch_first: bool | None) -> None:
        self._reported = rnn.assumed.reported
        named = {*rnn.config, *reading.fields, *self._reported, _AXES}
        self._assumed = rnn.assumed.without(named)
        has_axes = batch_first is None and assumes_axes(rnn) and _AXES not in self._reported
        self._batch_first = bool(rnn.batch_first) if has_axes else None
        self._mask = None if "mask" in self._reported else rnn.config.get("mask")

    @property
    def settings(self) -> dict[str, Any]:
        return self._assumed.settings

    def __bool__(self) -> bool:
        return bool(self.settings) or self._batch_first is not None or self._mask is not None

    def report(self, x: Any = None, is_masked: bool = False) -> None:
        """Warn the caller of the package once about all settings that matter for a call. x: of
        sequences; the order of the axes matters if x has a batch. is_masked: whether the caller
        passes a mask or lengths."""
        has_axes = self._batch_first is not None and x is not None and getattr(x, "ndim", 3) == 3
        has_mask = self._mask is not None and x is not None and not is_masked
        messages = [
            *([Message(*self._name_settings())] if self.settings else ()),
            *([Message(*_name_axes(bool(self._batch_first)))] if has_axes else ()),
            *([Message(*_name_mask(self._mask))] if has_mask else ()),
        ]
        if messages:
            _warn_caller(join_parts("; ", messages).text)
        self._reported.update(self.settings, [_AXES] * has_axes, ["mask"] * has_mask)
        self._assumed = self._assumed.without(self.settings)
        self._batch_first = None if has_axes else self._batch_first
        self._mask = None if has_mask else self._mask

    def _name_settings(self) -> list[TextPart]:
        config = {key: value for key, value in self.settings.items() if key in SETTINGS}
        asks = [Ask(key, value) for key, value in self.settings.items() if key not in SETTINGS]
        parts: list[TextPart] = [f"the source does not record {self._assumed}, which are assumed: "]
        if options := self._assumed.options:
            parts += ["pass ", join_parts(", ", map(Ask, options)), " to rl.load, or "]
        if asks:
            parts += ["pass ", join_parts(" and ", asks), " and " if config else ""]
        return parts + [f"set w.config = {config} in Python"] * bool(config)


def assumes_axes(rnn: Weights) -> bool:
    """Return whether the source of an RNN does not record the order of the axes."""
    return rnn.batch_first is None or _AXES in rnn.assumed.settings


def axes_of_x(batch_first: bool | None) -> str:
    """Return the axes of x. batch_first: as in Weights."""
    return "(N, T, I)" if batch_first else "(T, N, I)"


def _name_axes(batch_first: bool) -> list[TextPart]:
    return [
        "the source does not record the order of the axes, x is taken as"
        f" {axes_of_x(batch_first)}: pass ",
        Ask("batch_first", batch_first),
        ", or ",
        Ask("batch_first", not batch_first),
        f" for {axes_of_x(not batch_first)}",
    ]


def _name_mask(mask: Any) -> list[TextPart]:
    return [
        f"the source has the mask {mask}, and the call has none, so that all steps count: pass ",
        Ask("mask"),
        ", True where a step counts",
    ]


def _warn_caller(text: str) -> None:
    """Warn with the line of the caller of the package."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("rnnlayout."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, AssumedWarning, stacklevel=level)
