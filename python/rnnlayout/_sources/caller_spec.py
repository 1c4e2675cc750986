"""What the caller says about an RNN: its spec, its layout, or fields that tensors do not show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rnnlayout._model.errors import Ask
from rnnlayout._model.layout import Layout, as_layout
from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError, SpecError

# Fields of a spec that tensors may not show: the activations, and others.
ACTIVATIONS = ("recurrent_activation", "activation")
HIDDEN = ("cell", "reset", *ACTIVATIONS)


@dataclass(frozen=True)
class CallerSpec:
    """What the caller says about the RNN.

    dtype_free: whether the arrays may have another dtype than the spec, because the caller passed
    dtype=. hints: the fields of the spec that the caller passed one by one, such as cell.
    """

    spec: Spec | None = None
    layout: Layout | None = None
    dtype_free: bool = False
    hints: dict[str, Any] = field(default_factory=dict, hash=False)  # a dict has no hash

    def check_dtype(self, name: str, dtype: str) -> None:
        """Raise LayoutError if the array of this name has another dtype than the spec."""
        if self.spec is not None and dtype != self.spec.dtype and not self.dtype_free:
            raise LayoutError(
                f"{name} is {dtype}, the spec says {self.spec.dtype}: pass ",
                Ask("dtype", self.spec.dtype),
                " to convert, or ",
                Ask("spec", self.spec.replace(dtype=dtype)),
            )


def make_caller_spec(
    spec: Spec | None = None,
    layout: str | Layout | None = None,
    dtype_free: bool = False,
    **hints: str | None,
) -> CallerSpec:
    """Return the arguments of a caller, checked. Raises SpecError if they contradict each other.
    hints: fields of the spec (cell, reset, recurrent_activation, activation); None is not one."""
    hints = {key: value for key, value in hints.items() if value is not None}
    check_hints(hints, spec, "the spec")
    return CallerSpec(spec, None if layout is None else as_layout(layout), dtype_free, hints)


def check_hints(hints: Mapping[str, Any], spec: Spec | None, whose: str) -> None:
    """Raise SpecError if the spec is not a Spec, or a hint is not a name of its kind or contradicts
    the spec. whose: who has the spec, for the message: "the spec", "the source"."""
    if spec is not None and not isinstance(spec, Spec):
        raise SpecError(f"spec is a {type(spec).__name__}, need a Spec")
    named = {key: hints[key] for key in HIDDEN if key in hints}
    for key, value in named.items():  # raises its errors; not every cell has all of them
        Spec(**{"cell": "gru", key: value, "input_size": 2, "hidden_size": 1})
    for key, value in named.items():
        if spec is not None and getattr(spec, key) != value:
            raise SpecError(
                f"{key} {value!r} contradicts {whose}, which has {getattr(spec, key)!r}: omit ",
                Ask(key, None),
            )
