"""Reading: the caller's arguments about a source, checked: spec, layout and options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rnnlayout._model.errors import Ask
from rnnlayout._model.kinds import Kind, check_kind
from rnnlayout._model.layout import Layout, as_layout
from rnnlayout._model.reading_options import UNRECORDED, check_options
from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError, SpecError

from .keras_tree import CELLS
from .mismatch import check_prefix


@dataclass(frozen=True)
class Reading:
    """The arguments of the caller about a source, see ReadingOptions.

    fields: the fields of the spec that the caller passed one by one, such as cell. The RNNs that
    fit tensors depend only on spec, layout and fields: readings that share all three are equal.
    """

    spec: Spec | None = None
    layout: Layout | None = None
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)  # a dict has no hash
    prefix: str = field(default="", compare=False)
    ignore: Sequence[str] = field(default=(), compare=False)
    dtype: Any = field(default=None, compare=False)
    as_class: Mapping[str, str] | None = field(default=None, compare=False)
    keras_config: Any = field(default=None, compare=False)
    format: str | None = field(default=None, compare=False)
    mmap: bool = field(default=True, compare=False)
    kind: Kind = field(default="weights", compare=False)

    def check_dtype(self, name: str, dtype: str) -> None:
        """Raise LayoutError if the dtype of the array `name` is not the spec's, and the caller
        passed no dtype to convert to."""
        if self.spec is not None and dtype != self.spec.dtype and self.dtype is None:
            raise LayoutError(
                f"{name} is {dtype}, the spec says {self.spec.dtype}: pass ",
                Ask("dtype", self.spec.dtype),
                " to convert, or ",
                Ask("spec", self.spec.replace(dtype=dtype)),
            )


_NOTHING = Reading()  # of most calls


def make_reading(
    function: Callable[..., Any],
    options: Mapping[str, Any],
    spec: Spec | None = None,
    kind: Kind = "weights",
    **named_options: Any,
) -> Reading:
    """Return the arguments of the caller of `function`, checked. options: the function's **options.
    named_options: further options, which the function has as named arguments. Raises TypeError for
    an unknown option, SpecError or LayoutError for a wrong kind or a contradiction."""
    check_kind(kind)
    if options:
        check_options(function, options)
        named_options = {**options, **named_options}
    elif spec is None and not named_options and kind == "weights":
        return _NOTHING
    fields = {
        key: value for key in UNRECORDED if (value := named_options.pop(key, None)) is not None
    }
    if fields or spec is not None:
        check_fields(fields, spec, "the spec")
    layout = named_options.pop("layout", None)
    named_options["ignore"] = _check_ignore(named_options.get("ignore"))
    reading = Reading(
        spec, None if layout is None else as_layout(layout), fields, **named_options, kind=kind
    )
    check_prefix(reading.prefix)
    if reading.as_class is not None:
        _check_as_class(reading.as_class)
    return reading


def check_fields(fields: Mapping[str, Any], spec: Spec | None, owner: str) -> None:
    """Raise SpecError if the spec is not a Spec, or a field is unknown or contradicts the spec.
    owner: the owner of the spec, for the message: "the spec", "the source"."""
    if spec is not None and not isinstance(spec, Spec):
        raise SpecError(f"spec is a {type(spec).__name__}, need a Spec")
    named_fields = {key: fields[key] for key in UNRECORDED if key in fields}
    # Spec checks each field, in a gru, because not every cell has all fields
    for key, value in named_fields.items():
        Spec(**{"cell": "gru", key: value, "input_size": 2, "hidden_size": 1})
    for key, value in named_fields.items():
        if spec is not None and getattr(spec, key) != value:
            raise SpecError(
                f"{key} {value!r} contradicts {owner}, which has {getattr(spec, key)!r}: omit ",
                Ask(key, None),
            )


def _check_ignore(patterns: Any) -> tuple[str, ...]:
    """Return the patterns as a tuple. Raises LayoutError unless they are strings in a list."""
    if patterns is None:
        return ()
    is_list = isinstance(patterns, Sequence) and not isinstance(patterns, (str, bytes))
    if not is_list or not all(isinstance(pattern, str) for pattern in patterns):
        raise LayoutError(f"ignore is {patterns!r}, need a list of names: ", Ask("ignore", ["h0"]))
    return tuple(patterns)


def _check_as_class(names: Any) -> None:
    """Raise SpecError unless every class is mapped to an RNN or cell of Keras or torch."""
    if not isinstance(names, Mapping) or not all(
        isinstance(name, str) and str(kind).removesuffix("Cell") in (*CELLS, "RNN")
        for name, kind in names.items()
    ):
        raise SpecError(
            f"as_class is {names!r}, need a dict from classes of the file to some of"
            f" {', '.join(CELLS)}, RNN, or LSTMCell ... for a class of cells"
        )
