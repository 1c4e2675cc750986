"""How an RNN runs: the options of the caller, and how the source uses it, that is, the order of the
axes, and what is done before and after the steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnlayout._model.checked_rnn import CheckedRNN
from rnnlayout._model.config import changes_outputs, describe_config, initial_states
from rnnlayout._model.dtypes import narrow_values, widen_bits
from rnnlayout._model.errors import Ask
from rnnlayout._model.spec import CELLS, check_flag
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

_MERGES: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "ave": lambda a, b: (a + b) / 2,
}
_INITIAL = {"h_0": "initial_h", "c_0": "initial_c"}  # array of a call -> setting


@dataclass(frozen=True)
class SourceSettings:
    """How a source uses its RNN.

    batch_first: whether x and y are (N, T, ...).
    go_backwards: Keras's setting: x is read from its last step, and y is in the order of
        computation.
    reverse: ONNX's direction="reverse": the same, but y is in the order of x.
    merge_mode: Keras's setting: how the two directions of y are joined.
    initial_h, initial_c: the state of a call without one, lists of (L D, N, H); None if it is zero.
    cell_clip: TFLite's setting: the cell state is clipped to [-cell_clip, cell_clip].
    """

    batch_first: bool
    go_backwards: bool = False
    reverse: bool = False
    merge_mode: str = "concat"
    initial_h: list[Any] | None = None
    initial_c: list[Any] | None = None
    cell_clip: float | None = None

    @property
    def is_reversed(self) -> bool:
        return self.go_backwards or self.reverse

    @property
    def merges(self) -> bool:
        """Whether y has P elements per step, not D * P."""
        return self.merge_mode != "concat"

    @property
    def settings(self) -> str:
        """What is done around the steps as text, "" if they are the defaults."""
        parts = ["go_backwards=True"] if self.go_backwards else []
        parts += ["direction='reverse'"] if self.reverse else []
        parts += [f"merge_mode={self.merge_mode!r}"] if self.merges else []
        parts += [name for name in _INITIAL.values() if getattr(self, name) is not None]
        return ", ".join(parts)

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
            return narrow_values(_MERGES[self.merge_mode](*both), dtype)


def source_settings_of(given: CheckedRNN, batch_first: bool | None) -> SourceSettings:
    """Return how the source uses its RNN. batch_first: what the caller has passed; if that is None,
    what the source says is used, or False if it says nothing. Raises LossyError if the source has a
    setting that is not applied here."""
    config, both = given.config, given.spec.bidirectional
    batch_first = bool(given.batch_first if batch_first is None else batch_first)
    if not config:
        return SourceSettings(batch_first)
    known: dict[str, tuple[Any, ...]] = {
        "go_backwards": (False, True),
        "direction": ("bidirectional",) if both else ("forward", "reverse"),
        "merge_mode": ("concat", *_MERGES) if both else (),
    }
    first = {key: _first_state(given, key) for key in _INITIAL.values()}
    clip = config.get("cell_clip")
    if isinstance(clip, (int, float)) and clip > 0:
        known["cell_clip"] = (clip,)
    for key, value in changes_outputs(config).items():
        if first.get(key) is None and value not in known.get(key, ()):
            raise LossyError(
                f"the source is used with {describe_config({key: value})}, which rl.RNN does not"
                " apply. To run its weights without that: w = rl.Weights(source);"
                f" del w.config[{key!r}]; rl.RNN(w)"
            )
    return SourceSettings(
        batch_first,
        config.get("go_backwards", False),
        config.get("direction") == "reverse",
        config.get("merge_mode", "concat"),
        **first,
        cell_clip=clip,
    )


def _first_state(given: CheckedRNN, name: str) -> list[Any] | None:
    """Return an initial state of the source, (L D, N, H); None if it has none that fits."""
    spec, is_c = given.spec, name == "initial_c"
    if name not in given.config or (is_c and not CELLS[spec.cell].has_c):
        return None
    size = spec.hidden_size if is_c else spec.proj_size or spec.hidden_size
    try:
        layers = initial_states(given.config, name, spec.num_layers)
        if given.config.get("layout"):
            layers = [layer.swapaxes(0, 1) for layer in layers]
        state = np.concatenate(layers)
    except (ValueError, np.exceptions.AxisError):
        return None
    fits = state.ndim == 3 and state.shape[::2] == (spec.num_layers * spec.num_directions, size)
    return state.tolist() if fits else None
