"""Spec: cell, sizes and options of an RNN, without weights. CELLS: the facts about each cell."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

import numpy as np

from rnnlayout import _native
from rnnlayout._native import LossyError, SpecError

from .dtypes import FLOATS, dtype_name
from .layout import CUDNN

Cell = Literal["lstm", "gru", "rnn_tanh", "rnn_relu"]
BiasMode = Literal["double", "input", "recurrent", "none"]
Reset = Literal["after", "before"]
RecurrentActivation = Literal["sigmoid", "hard_sigmoid", "hard_sigmoid_keras2"]
Activation = Literal["tanh", "relu"]

SCHEMA = 1
# The hard sigmoids of Keras 3, x / 6 + 0.5, and of Keras 2: 0.2 x + 0.5 = (1.2 x) / 6 + 0.5. The
# x of a gate is a sum of biases and of products of weights, so 1.2 times both gives 1.2 x.
HARD_SIGMOIDS = ("hard_sigmoid", "hard_sigmoid_keras2")
HARD_TIMES = 1.2
_SIZES = ("input_size", "hidden_size", "num_layers", "proj_size")
_FLAGS = ("bidirectional", "peepholes", "skip_input")
# The fields that to_dict() leaves out at the default.
_LATER = ("peepholes", "activation")
# Two RNNs with equal values of these fields are the same network; the rest decides storage.
_NETWORK = (
    "cell",
    "input_size",
    "hidden_size",
    "num_layers",
    "bidirectional",
    "proj_size",
    "reset",
    "recurrent_activation",
    "activation",
)


@dataclass(frozen=True)
class CellFacts:
    """The facts about a cell. A gate is a letter.

    gates: in cuDNN's order. peepholes: the gates that may have a peephole. candidate: the gate with
    the activation (tanh) instead of the recurrent activation. has_reset: whether the cell has a
    reset gate. has_c: whether the state is h and c, otherwise h. may_project: whether the cell may
    have a projection.
    """

    gates: str
    peepholes: str
    candidate: str
    has_reset: bool
    has_c: bool
    may_project: bool

    @property
    def is_gated(self) -> bool:
        """Whether the cell has gates with the recurrent activation."""
        return len(self.gates) > 1


CELLS = {name: CellFacts(**facts) for name, facts in _native.cells().items()}


@dataclass(frozen=True)
class Spec:
    """Cell, sizes and options of an RNN: everything that determines the shapes of the tensors.

    cell: "lstm", "gru", "rnn_tanh" or "rnn_relu".
    input_size, hidden_size, num_layers: I, H, L; at least 1.
    bidirectional: D = 2; each layer but the first reads both directions of the layer below.
    proj_size: P, LSTM only, 0 < P < H; 0 means no projection.
    bias: cuDNN's bias mode, "double" (or True), "input", "recurrent" or "none" (or False). In all
        layouts but cuDNN's the first three are the same.
    reset: GRU only. "after" is cuDNN's: n = tanh(W x + bW + r * (R h + bR)). "before":
        n = tanh(W x + bW + R (r * h) + bR).
    recurrent_activation: "sigmoid", "hard_sigmoid" (Keras 3: x / 6 + 0.5) or "hard_sigmoid_keras2"
        (Keras 1 and 2: 0.2 x + 0.5), the last two clipped to [0, 1]. cuDNN has only "sigmoid".
    skip_input: cuDNN adds the input of layer 0 to the gates without a matrix; needs I == H.
    dtype: "float16", "bfloat16", "float32" or "float64", or a NumPy, ml_dtypes or torch dtype.
    peepholes: LSTM only, and not in cuDNN: the sums of i and f also contain p * c, with the old
        cell state c, and the sum of o contains p * c', with the new cell state c'.
    activation: LSTM and GRU. "tanh" or "relu", in the candidate, and in h' = o * tanh(c'). cuDNN
        has only "tanh".

    Immutable and hashable. Raises SpecError if the fields contradict each other.

        >>> Spec("gru", 8, 16, bidirectional=True).num_params
        2496
    """

    cell: Cell
    input_size: int
    hidden_size: int
    num_layers: int = 1
    bidirectional: bool = False
    proj_size: int = 0
    bias: BiasMode = "double"
    reset: Reset = "after"
    recurrent_activation: RecurrentActivation = "sigmoid"
    skip_input: bool = False
    dtype: str = "float32"
    peepholes: bool = False
    activation: Activation = "tanh"

    if TYPE_CHECKING:  # __post_init__() accepts more types than the fields have

        def __init__(
            self,
            cell: Cell,
            input_size: SupportsIndex,
            hidden_size: SupportsIndex,
            num_layers: SupportsIndex = 1,
            bidirectional: bool = False,
            proj_size: SupportsIndex = 0,
            bias: BiasMode | bool = "double",
            reset: Reset = "after",
            recurrent_activation: RecurrentActivation = "sigmoid",
            skip_input: bool = False,
            dtype: Any = "float32",
            peepholes: bool = False,
            activation: Activation = "tanh",
        ) -> None: ...

    def __post_init__(self) -> None:
        values: dict[str, Any] = self.__dict__  # the only way to set fields of a frozen dataclass
        if isinstance(values["bias"], bool):
            values["bias"] = "double" if values["bias"] else "none"
        for name in _SIZES:
            if type(size := values[name]) is not int:
                number: Any = None if isinstance(size, bool) else size
                try:
                    values[name] = operator.index(number)
                except TypeError:
                    raise SpecError(f"{name} is {size!r}, need a whole number") from None
        for name in _FLAGS:
            if type(values[name]) is not bool:
                values[name] = check_flag(name, values[name])
        if type(values["dtype"]) is not str or values["dtype"] not in FLOATS:
            values["dtype"] = dtype_name(values["dtype"])
        for name in ("cell", "bias", "reset", "recurrent_activation", "activation"):
            if not isinstance(values[name], str):
                raise SpecError(f"{name} is {values[name]!r}, need a name")
        _native.check(self)

    @property
    def num_directions(self) -> int:
        """Return D: 2 if bidirectional, else 1."""
        return 2 if self.bidirectional else 1

    @property
    def num_params(self) -> int:
        """Return the elements of the weight space; raise SpecError if cuDNN lacks the RNN."""
        return _num_params(self)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the weight space; raise SpecError if cuDNN lacks the RNN."""
        return self.num_params * _native.itemsize(self.dtype)

    def replace(self, **changes: Any) -> Spec:
        """Return a Spec with some fields changed."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and a schema version, ready for JSON; from_dict() reads the dict.

        peepholes and activation are left out at the default, as in the dicts of earlier releases.
        """
        entries = {"schema": SCHEMA, **asdict(self)}
        for field in fields(self):
            if field.name in _LATER and entries[field.name] == field.default:
                del entries[field.name]
        return entries

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Spec:
        """Return the Spec of a dict that to_dict() of this or an earlier release wrote.

        Raises SpecError if the schema is newer, or a field is unknown or missing.
        """
        if not isinstance(data, Mapping):
            raise SpecError(
                f"data is a {type(data).__name__}, need the dict that to_dict() returned"
            )
        data = dict(data)
        if "schema" not in data:
            raise SpecError("schema is missing: to_dict() did not write this dict")
        schema = data.pop("schema")
        if not isinstance(schema, int) or not 1 <= schema <= SCHEMA:
            raise SpecError(
                f"schema is {schema!r}; this release of rnnlayout ({_native.__version__}) reads 1"
                f" to {SCHEMA}"
            )
        names = {field.name for field in fields(cls)}
        if unknown := sorted(set(data) - names):
            raise SpecError(f"unknown field {unknown[0]!r}; a spec has {', '.join(sorted(names))}")
        if missing := {"cell", "input_size", "hidden_size"} - set(data):
            raise SpecError(f"{sorted(missing)[0]} is missing")
        return cls(**data)

    def __repr__(self) -> str:
        """Return the call that makes the spec, with all fields that differ from the default."""
        return call_of_spec(self)

    def _in_call(self, also: Collection[str]) -> str:
        """Return the spec in the syntax of Python, for an Ask."""
        return f"rl.{call_of_spec(self, also)}"

    def __str__(self) -> str:
        """Return the fields that differ from the default."""
        return spec_in_words(self)

    def _repr_svg_(self) -> str | None:
        """Return a picture of cuDNN's weight space, for a notebook; None if cuDNN lacks the RNN."""
        # imported late: the drawing takes milliseconds to import
        from .picture.picture import Subject, draw_subjects

        try:
            return draw_subjects([Subject(self, CUDNN)]).svg
        except LossyError:
            return None


def call_of_spec(spec: Spec, also: Collection[str] = ()) -> str:
    """Return the call that makes the spec. also: fields to write even at the default."""
    shown = [f"{name}={value!r}" for name, value in _shown_fields(spec, also)]
    return f"Spec({', '.join([repr(spec.cell), *shown])})"


def spec_in_words(spec: Spec, also: Collection[str] = ()) -> str:
    """Return the text of str(spec). also: fields to write even at the default."""
    shown = [
        name if value is True else f"{name} {value}" for name, value in _shown_fields(spec, also)
    ]
    return ", ".join([spec.cell, *shown])


def _shown_fields(spec: Spec, also: Collection[str]) -> list[tuple[str, Any]]:
    """Return the fields after the cell that differ from the default, or are in `also`."""
    values = [(field, getattr(spec, field.name)) for field in fields(spec)[1:]]
    return [
        (field.name, value)
        for field, value in values
        if value != field.default or field.name in also
    ]


@lru_cache(maxsize=256)
def _num_params(spec: Spec) -> int:
    try:
        ((_, (nelems,)),) = _native.tensors(CUDNN, spec)
    except LossyError as error:
        raise SpecError(error) from None
    return nelems


def check_flag(name: str, value: Any) -> bool:
    """Return a bool of Python, from a bool of Python or NumPy, or from 1 or 0."""
    if not isinstance(value, (bool, np.bool_, int)) or value not in (True, False):
        raise SpecError(f"{name} is {value!r}, need True or False")
    return bool(value)


def optional_tensors_of(spec: Spec) -> int:
    """Return HAS_BIAS | HAS_PEEPHOLES, without the tensors that the spec excludes."""
    biases = 0 if spec.bias == "none" else _native.HAS_BIAS
    return biases | (_native.HAS_PEEPHOLES if spec.peepholes else 0)


def differing_fields(a: Spec, b: Spec) -> str:
    """Return the fields that make two specs different RNNs, "" if no field does."""
    keys = [key for key in _NETWORK if getattr(a, key) != getattr(b, key)]
    return ", ".join(f"{key} {getattr(a, key)} and {getattr(b, key)}" for key in keys)
