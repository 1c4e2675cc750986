"""The options of the caller of an RNN, and the settings of the source: the order of the axes, and
work before and after the steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from rnnlayout._model.config import (
    SETTINGS,
    changes_outputs,
    describe_config,
    facts_of,
    initial_states,
)
from rnnlayout._model.dtypes import narrow_values, widen_bits
from rnnlayout._model.errors import Ask
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import check_flag
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError, LossyError, SpecError
from rnnlayout._sources.tensor_paths import KERAS

from .call_arrays import CallShapes

CPU = Layout("the forward pass")  # of the weights
_MATHS = {
    "cpu": ("default", "bfloat16", "int8"),
    "cuda": ("default", "tf32"),
    "auto": ("default", "bfloat16", "int8", "tf32"),
}
_ALGOS = ("auto", "standard")


@dataclass(frozen=True)
class RNNOptions:
    """The options of an RNN, checked."""

    device: str  # "cpu", "auto" or "cuda:N"
    batch_first: bool | None  # None: as recorded in the source
    cell_clip: tuple[float, float] | None
    math: str
    algo: str


def read_options(device: Any, batch_first: Any, cell_clip: Any, math: Any, algo: Any) -> RNNOptions:
    if not isinstance(device, str) or not re.fullmatch(r"cpu|auto|cuda(:\d{1,4})?", device, re.A):
        raise SpecError(f"device is {device!r}, need 'cpu', 'cuda', 'cuda:N' or 'auto'")
    name, _, number = device.partition(":")
    device = f"cuda:{int(number or 0)}" if name == "cuda" else name
    check_choices(device, math, algo)
    first = None if batch_first is None else check_flag("batch_first", batch_first)
    clip = None
    if cell_clip is not None:
        try:
            low, high = map(float, cell_clip)
        except (TypeError, ValueError):
            raise SpecError(f"cell_clip is {cell_clip!r}, need (low, high), two numbers") from None
        clip = low, high
    return RNNOptions(device, first, clip, math, algo)


def check_choices(device: str, math: Any, algo: Any) -> None:
    kind = device.partition(":")[0]
    for name, choice, choices in ("math", math, _MATHS[kind]), ("algo", algo, _ALGOS):
        if not isinstance(choice, str) or choice not in choices:
            place = {"cpu": " on the CPU", "auto": ""}.get(kind, f" on {device}")
            *most, last = (repr(allowed_choice) for allowed_choice in choices)
            allowed = f"{', '.join(most)} or {last}" if most else last
            raise SpecError(f"{name} is {choice!r}, need {allowed}{place}")


def gpu_number(options: RNNOptions) -> int | None:
    """Return the number of the GPU to use, or to try; None for the CPU."""
    if options.device == "auto":
        return 0 if options.math in _MATHS["cuda"] else None
    return None if options.device == "cpu" else int(options.device.partition(":")[2])


# --------------------------------------------------------------------- settings of the source

# The supported values of merge_mode, except the neutral value.
MERGES: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "ave": lambda a, b: (a + b) / 2,
}
_INITIAL = {"h_0": "initial_h", "c_0": "initial_c"}  # array of a call -> setting


@dataclass(frozen=True)
class SourceSettings:
    """The order of the axes, and each supported setting of a source, under the name in
    Weights.config.

    batch_first: whether x and y are (N, T, ...).
    go_backwards: x is read from the last step, and y is in the order of computation.
    direction: "reverse": x is read from the last step, and y is in the order of x.
    merge_mode: how the two directions of y are joined.
    initial_h, initial_c: the state of a call without a state, lists of (L D, N, H); None for zero.
    cell_clip: the cell state is clipped to [-cell_clip, cell_clip].
    repeats_masked: y of a masked step repeats the last output; otherwise it is zero.
    """

    batch_first: bool
    go_backwards: bool = False
    direction: str = "forward"
    merge_mode: str = "concat"
    initial_h: list[Any] | None = None
    initial_c: list[Any] | None = None
    cell_clip: float | None = None
    repeats_masked: bool = field(default=False, compare=False)  # update() keeps it

    @property
    def is_reversed(self) -> bool:
        return self.go_backwards or self.keeps_order

    @property
    def keeps_order(self) -> bool:
        """Whether x is read from the last step, but y is in the order of x."""
        return self.direction == "reverse"

    @property
    def merges(self) -> bool:
        """Whether y has P elements per step, not D * P."""
        return self.merge_mode in MERGES

    @property
    def around(self) -> dict[str, Any]:
        """The settings that are applied before and after the steps, not at each step."""
        elsewhere = "batch_first", "cell_clip", "repeats_masked"
        settings_by_name = {
            setting.name: getattr(self, setting.name)
            for setting in fields(self)
            if setting.name not in elsewhere
        }
        return {
            key: value
            for key, value in settings_by_name.items()
            if value != getattr(type(self), key)
        }

    @property
    def settings(self) -> str:
        """The settings around the steps as text, "" without settings."""
        parts = (
            (key, "" if key in _INITIAL.values() else f"={value!r}")
            for key, value in self.around.items()
        )
        return ", ".join(map("".join, parts))

    def __str__(self) -> str:
        clip = "" if self.cell_clip is None else f"cell_clip={self.cell_clip}"
        return ", ".join(filter(None, (f"batch_first={self.batch_first}", self.settings, clip)))

    def first_states(self, shapes: CallShapes, dtype: str) -> dict[str, np.ndarray]:
        """Return the state of a call without a state: arrays by name, as bits of the dtype; {} for
        zero. Raises LayoutError if the batch sizes of the source and of x differ."""
        states: dict[str, np.ndarray] = {}
        if self.initial_h is None and self.initial_c is None:
            return states
        for name, need in shapes.states.items():
            setting = getattr(self, _INITIAL[name])
            state = np.zeros(need.shape) if setting is None else np.array(setting, np.float64)
            if setting is not None and state.shape[1] not in (1, shapes.N):
                reason = f"the source has {_INITIAL[name]} of {state.shape[1]} sequences, x has"
                raise LayoutError(
                    f"{reason} {shapes.N}: pass ", Ask("state"), " to use another one"
                )
            state = state if shapes.batched else state.reshape(need.shape)
            states[name] = narrow_values(np.broadcast_to(state, need.shape), dtype)
        return states

    def merged(self, y: np.ndarray, dtype: str) -> np.ndarray:
        """Return y with the two directions merged. Both arrays carry the bits of the dtype."""
        with np.errstate(all="ignore"):  # as in the steps, an overflow is an infinity
            both = np.split(widen_bits(y, dtype), 2, axis=-1)
            return narrow_values(MERGES[self.merge_mode](*both), dtype)


def source_settings_of(rnn: Weights, batch_first: bool | None) -> SourceSettings:
    """Return the settings of a source. batch_first: the caller's argument; None for the order of
    axes that the source records, or False if the source records no order. Raises LossyError if the
    source has a setting that rl.RNN does not support."""
    is_first = bool(rnn.batch_first if batch_first is None else batch_first)
    # Bidirectional sets zero_output_for_mask of its layers
    is_keras_layer = rnn.layout.name in KERAS and not rnn.spec.bidirectional
    repeats = not rnn.config.get("zero_output_for_mask", not is_keras_layer)
    if not rnn.config:
        return SourceSettings(is_first, repeats_masked=repeats)
    applied: dict[str, Any] = {}
    for key, value in changes_outputs(rnn.config, rnn.spec).items():
        if facts_of(key).place == "argument":
            continue  # the caller passes a mask to each call
        applied[key] = _applied_value(rnn, key, value)
        if applied[key] is None:
            raise LossyError(
                f"the source is used with {describe_config({key: value})}, which rl.RNN does not"
                " apply. To run its weights without that: w = rl.Weights(source);"
                f" del w.config[{key!r}]; rl.RNN(w)"
            )
    return SourceSettings(is_first, repeats_masked=repeats, **applied)


def _applied_value(rnn: Weights, key: str, value: Any) -> Any:
    """Return the value of a setting for SourceSettings, None if the setting is not supported."""
    facts = facts_of(key)
    is_applied = key in SETTINGS and any(f.name == key for f in fields(SourceSettings))
    if not is_applied or not facts.suits(rnn.spec) or not facts.allows(value):
        return None
    if facts.kind == "states":
        return _first_state(rnn, key)
    if facts.kind == "number":
        return value if isinstance(value, (int, float)) and value > 0 else None
    return bool(value) if facts.kind == "flag" else value


def _first_state(rnn: Weights, name: str) -> list[Any] | None:
    """Return an initial state of the source, (L D, N, H); None if the shape does not fit."""
    spec = rnn.spec
    size = spec.hidden_size if name == "initial_c" else spec.proj_size or spec.hidden_size
    try:
        layers = initial_states(rnn.config, name, spec.num_layers)
        if rnn.config.get("layout"):
            layers = [layer.swapaxes(0, 1) for layer in layers]
        state = np.concatenate(layers)
    except (ValueError, np.exceptions.AxisError):
        return None
    fits = state.ndim == 3 and state.shape[::2] == (spec.num_layers * spec.num_directions, size)
    return state.tolist() if fits else None
