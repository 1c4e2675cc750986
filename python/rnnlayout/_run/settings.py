"""How an RNN runs: the options of the caller, and how the source uses it, that is, the order of the
axes, and what is done before and after the steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
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
from rnnlayout._model.spec import check_flag
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError, LossyError, SpecError

from .call_arrays import CallShapes

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
    batch_first: bool | None  # None: as the source says
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
    for name, value, choices in ("math", math, _MATHS[kind]), ("algo", algo, _ALGOS):
        if not isinstance(value, str) or value not in choices:
            place = {"cpu": " on the CPU", "auto": ""}.get(kind, f" on {device}")
            *most, last = (repr(choice) for choice in choices)
            known = f"{', '.join(most)} or {last}" if most else last
            raise SpecError(f"{name} is {value!r}, need {known}{place}")


def gpu_number(options: RNNOptions) -> int | None:
    """Return the GPU to use, or to try."""
    if options.device == "auto":
        return 0 if options.math in _MATHS["cuda"] else None
    return None if options.device == "cpu" else int(options.device.partition(":")[2])


# ----------------------------------------------------------------------------- of the source

# The values of merge_mode that are applied, beside the one that changes nothing.
MERGES: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "ave": lambda a, b: (a + b) / 2,
}
_INITIAL = {"h_0": "initial_h", "c_0": "initial_c"}  # array of a call -> setting


@dataclass(frozen=True)
class SourceSettings:
    """How a source uses its RNN: the order of the axes, and each setting that is applied, under its
    name in Weights.config.

    batch_first: whether x and y are (N, T, ...).
    go_backwards: x is read from its last step, and y is in the order of computation.
    direction: "reverse": x is read from its last step, and y is in the order of x.
    merge_mode: how the two directions of y are joined.
    initial_h, initial_c: the state of a call without one, lists of (L D, N, H); None if it is zero.
    cell_clip: the cell state is clipped to [-cell_clip, cell_clip].
    """

    batch_first: bool
    go_backwards: bool = False
    direction: str = "forward"
    merge_mode: str = "concat"
    initial_h: list[Any] | None = None
    initial_c: list[Any] | None = None
    cell_clip: float | None = None

    @property
    def is_reversed(self) -> bool:
        return self.go_backwards or self.keeps_order

    @property
    def keeps_order(self) -> bool:
        """Whether y is in the order of x although x is read from its last step."""
        return self.direction == "reverse"

    @property
    def merges(self) -> bool:
        """Whether y has P elements per step, not D * P."""
        return self.merge_mode in MERGES

    @property
    def around(self) -> dict[str, Any]:
        """The settings that are applied around the steps, not in them."""
        elsewhere = "batch_first", "cell_clip"
        values = {field.name: getattr(self, field.name) for field in fields(self)
                  if field.name not in elsewhere}  # fmt: skip
        return {key: value for key, value in values.items() if value != getattr(type(self), key)}

    @property
    def settings(self) -> str:
        """What is done around the steps as text, "" if nothing is."""
        parts = ((key, "" if key in _INITIAL.values() else f"={value!r}")
                 for key, value in self.around.items())  # fmt: skip
        return ", ".join(map("".join, parts))

    def __str__(self) -> str:
        clip = "" if self.cell_clip is None else f"cell_clip={self.cell_clip}"
        return ", ".join(filter(None, (f"batch_first={self.batch_first}", self.settings, clip)))

    def first_states(self, shapes: CallShapes, dtype: str) -> dict[str, np.ndarray]:
        """Return the arrays of the state of a call without one, as bits of the dtype; {} if it is
        zero. Raises LayoutError if the source has another batch size."""
        found: dict[str, np.ndarray] = {}
        if self.initial_h is None and self.initial_c is None:
            return found
        for what, part in shapes.states.items():
            value = getattr(self, _INITIAL[what])
            state = np.zeros(part.shape) if value is None else np.array(value, np.float64)
            if value is not None and state.shape[1] not in (1, shapes.N):
                why = f"the source has {_INITIAL[what]} of {state.shape[1]} sequences, x has"
                raise LayoutError(f"{why} {shapes.N}: pass ", Ask("state"), " to use another one")
            state = state if shapes.batched else state.reshape(part.shape)
            found[what] = narrow_values(np.broadcast_to(state, part.shape), dtype)
        return found

    def merged(self, y: np.ndarray, dtype: str) -> np.ndarray:
        """Return y with its two directions joined. Both arrays carry the bits of the dtype."""
        with np.errstate(all="ignore"):  # as in the steps, an overflow is an infinity
            both = np.split(widen_bits(y, dtype), 2, axis=-1)
            return narrow_values(MERGES[self.merge_mode](*both), dtype)


def source_settings_of(rnn: Weights, batch_first: bool | None) -> SourceSettings:
    """Return how the source uses its RNN. batch_first: what the caller has passed; if that is None,
    what the source says is used, or False if it says nothing. Raises LossyError if the source has a
    setting that is not applied here."""
    is_first = bool(rnn.batch_first if batch_first is None else batch_first)
    if not rnn.config:
        return SourceSettings(is_first)
    applied: dict[str, Any] = {}
    for key, value in changes_outputs(rnn.config, rnn.spec).items():
        applied[key] = _applied_value(rnn, key, value)
        if applied[key] is None:
            raise LossyError(
                f"the source is used with {describe_config({key: value})}, which rl.RNN does not"
                " apply. To run its weights without that: w = rl.Weights(source);"
                f" del w.config[{key!r}]; rl.RNN(w)"
            )
    return SourceSettings(is_first, **applied)


def _applied_value(rnn: Weights, key: str, value: Any) -> Any:
    """Return a setting as SourceSettings has it, None if it is not applied."""
    facts = facts_of(key)
    is_applied = key in SETTINGS and any(field.name == key for field in fields(SourceSettings))
    if not is_applied or not facts.suits(rnn.spec) or not facts.allows(value):
        return None
    if facts.kind == "states":
        return _first_state(rnn, key)
    if facts.kind == "number":
        return value if isinstance(value, (int, float)) and value > 0 else None
    return bool(value) if facts.kind == "flag" else value


def _first_state(rnn: Weights, name: str) -> list[Any] | None:
    """Return an initial state of the source, (L D, N, H); None if it does not fit."""
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
