"""The options of an RNN, checked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rnnlayout._model.spec import check_flag
from rnnlayout._native import SpecError

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
    return RNNOptions(device, first, _check_clip(cell_clip), math, algo)


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


def _check_clip(value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    try:
        low, high = value
        return float(low), float(high)
    except (TypeError, ValueError):
        raise SpecError(f"cell_clip is {value!r}, need (low, high), two numbers") from None
