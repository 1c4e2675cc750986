"""Weights: the checked tensors of an RNN, with spec and layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import signature
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from rnnlayout import _native

from .assumed import AssumedSettings
from .config import SETTINGS, layer_config
from .dtypes import present_array
from .kinds import Kind
from .layout import Layout, as_layout
from .reading_options import TensorOptions, takes_options
from .report import Report
from .spec import Spec

if TYPE_CHECKING:
    from .picture.picture import Picture


class Weights(Mapping[str, np.ndarray]):
    """The tensors of an RNN with spec and layout: a read-only mapping from names to arrays.

    source: see convert(). The arrays share the source's memory if possible: changes of the source,
        as in training, then change the arrays too. To keep the values, pass a copy.
    kind: "weights"; or "gradient" or "squared_gradient" of weights, see convert(). Only weights are
        run, saved, compared and assigned.
    Further arguments: options for reading the source, see ReadingOptions.

    Attributes: spec; layout; kind; report, of the conversion to this layout, or None; config, the
    settings of the source that change outputs but not shapes (go_backwards, merge_mode ...), in the
    words of the framework, without settings that agree with cuDNN's only behaviour;
    batch_first, whether the source's x is (N, T, I), None if the source records no order of axes;
    and optimizer, an OptimizerState if load() read the RNN and its optimizer from a checkpoint,
    else None.
    The package alone uses optional_tensors, names, arrays, bits, rounded and assumed, which may
    change.

        >>> import numpy as np
        >>> w = Weights({"weight_ih": np.ones((3, 2)), "weight_hh": np.ones((3, 1))})
        >>> w.layout, w.spec.cell, list(w)
        (layout('torch-cell'), 'gru', ['weight_ih', 'weight_hh'])
    """

    spec: Spec
    layout: Layout
    kind: Kind
    report: Report | None
    optimizer: OptimizerState | None = None
    # For the package only. optional_tensors: the optional tensors that exist, HAS_BIAS |
    # HAS_PEEPHOLES. names, arrays: in the order of the layout; the arrays are C-contiguous,
    # aligned, in native byte order, and carry bits (bfloat16 as uint16). rounded: the names of
    # weights that were computed from several tensors of the source (weight norm), and rounded.
    # assumed: settings that the source does not record; setting `config` names them.
    optional_tensors: int
    names: list[str]
    arrays: list[np.ndarray]
    rounded: tuple[str, ...]
    assumed: AssumedSettings
    _config: dict[str, Any]
    _batch_first: bool | None

    # _model is the first of the rooms. Methods that read, convert, draw and run import from later
    # rooms at the first call (tools/rooms.py lists the imports).

    @takes_options(TensorOptions)
    def __init__(
        self,
        source: Any,
        spec: Spec | None = None,
        layout: str | Layout | None = None,
        *,
        dtype: Any = None,
        kind: Kind = "weights",
        **options: Unpack[TensorOptions],
    ) -> None:
        from rnnlayout._sources.read_source import read_source
        from rnnlayout._sources.reading import make_reading

        reading = make_reading(
            Weights.__init__, options, spec, layout=layout, dtype=dtype, kind=kind
        )
        rnn = read_source(source, reading)
        result = changed_weights(rnn) if dtype is None else rnn.to(rnn.layout, dtype=dtype)
        vars(self).update(vars(result))

    @property
    def config(self) -> dict[str, Any]:
        """The settings that change outputs but not shapes. May be changed."""
        return self._config

    @config.setter
    def config(self, config: Mapping[str, Any]) -> None:
        self._config = dict(config)
        self.assumed = self.assumed.without({key for key in SETTINGS if key != "time_major"})

    @property
    def batch_first(self) -> bool | None:
        """Whether the source's x is (N, T, I); None if the source records no order of axes."""
        return self._batch_first

    @property
    def tensors(self) -> Any:
        """A dict of arrays, or, in layout cudnn, the flat array."""
        return next(iter(self.values())) if self.layout.name == "cudnn" else dict(self)

    @cached_property
    def bits(self) -> dict[str, np.ndarray]:
        """The arrays that carry the bits of the tensors, by name, in the order of the layout."""
        return dict(zip(self.names, self.arrays, strict=True))

    def __getitem__(self, name: str) -> np.ndarray:
        return present_array(self.bits[name], self.spec.dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __eq__(self, other: object) -> bool:
        """Return whether spec, layout, kind, config and all bits are equal."""
        if not isinstance(other, Weights):
            return NotImplemented
        if (self.spec, self.layout, self.names) != (other.spec, other.layout, other.names):
            return False
        if self.kind != other.kind:
            return False
        pairs = zip(self.arrays, other.arrays, strict=True)
        return self.config == other.config and all(a.tobytes() == b.tobytes() for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]  # the arrays and config may change

    def __repr__(self) -> str:
        kind = "" if self.kind == "weights" else f", kind {self.kind!r}"
        return f"<Weights of {self.spec} in {self.layout}{kind}>"

    def to(self, layout: str | Layout, /, *, dtype: Any = None, exact: bool = False) -> Weights:
        """Convert the weights to another layout or dtype, with a report. Errors: see convert()."""
        from rnnlayout._convert.engine import run_conversion

        return run_conversion(self, as_layout(layout), dtype, exact)

    def pack(self, *, dtype: Any = None, exact: bool = False) -> np.ndarray:
        """Return cuDNN's weight space, a 1-D array. Errors: see convert()."""
        return self.to("cudnn", dtype=dtype, exact=exact)["weight_space"]

    def picture(self, to: str | Layout | None = None, *, width: float | None = None) -> Picture:
        """Draw the tensors in memory, or the conversion to another layout: see picture()."""
        from rnnlayout._convert.explain import draw_rnns

        from .picture.picture import WIDTH, Subject

        target = None if to is None else as_layout(to)
        subject = Subject(self.spec, self.layout, self.optional_tensors)
        return draw_rnns([subject], target, WIDTH if width is None else width, self.kind)

    def _repr_svg_(self) -> str:
        return self.picture().svg

    def rnn(self, **options: Any) -> Any:
        """Return an RNN that runs the weights, with the settings of config. options: see RNN()."""
        from rnnlayout._run.rnn import RNN

        return RNN(self, **options)

    def split(self) -> list[Weights]:
        """Return one Weights per layer, in the same layout; stack() joins the layers again."""
        if self.spec.num_layers == 1:
            return [changed_weights(self)]
        return [self.layer(k) for k in range(self.spec.num_layers)]

    def layer(self, k: int) -> Weights:
        """Return layer k alone, in the same layout."""
        spec = layer_spec(self.spec, k)
        names = [name for name, _ in _native.tensors(self.layout, spec, self.optional_tensors)]
        if len(self.arrays) < self.spec.num_layers:
            arrays = [self._layer_of_vector(k)]
        else:
            arrays = self.arrays[k * len(names) : (k + 1) * len(names)]
        config = layer_config(self.config, k, self.spec.num_layers)
        return changed_weights(self, spec=spec, names=names, arrays=arrays, config=config)

    def _layer_of_vector(self, k: int) -> np.ndarray:
        """Return layer k of an RNN that is a single vector: the matrices of all layers, then all
        biases. Layers above the first have equal sizes."""
        single, double = (
            vector_sizes(self.layout, self.spec.replace(num_layers=n), self.optional_tensors)
            for n in (1, 2)
        )

        def nelems_below(layer: int, part: int) -> int:
            return single[part] + (layer - 1) * (double[part] - single[part]) if layer else 0

        starts = (0, nelems_below(self.spec.num_layers, 0))
        return np.concatenate(
            [
                self.arrays[0][start + nelems_below(k, part) : start + nelems_below(k + 1, part)]
                for part, start in enumerate(starts)
            ]
        )


def checked_weights(
    spec: Spec,
    layout: Layout,
    optional_tensors: int,
    names: list[str],
    arrays: list[np.ndarray],
    config: Mapping[str, Any] | None = None,
    batch_first: bool | None = None,
    rounded: tuple[str, ...] = (),
    report: Report | None = None,
    assumed: AssumedSettings | None = None,
    kind: Kind = "weights",
) -> Weights:
    """Make Weights of parts that the caller has checked."""
    weights = Weights.__new__(Weights)
    weights.spec, weights.layout, weights.report = spec, layout, report
    weights.kind = kind
    weights.optional_tensors, weights.names, weights.arrays = optional_tensors, names, arrays
    weights.rounded, weights._batch_first = rounded, batch_first
    weights._config = dict(config) if config else {}
    weights.assumed = AssumedSettings() if assumed is None else assumed
    return weights


_PARTS = tuple(signature(checked_weights).parameters)


def changed_weights(weights: Weights, **changes: Any) -> Weights:
    """Return a copy of Weights with the same arrays, without the report. changes: arguments of
    checked_weights() that replace parts."""
    parts = {name: getattr(weights, name) for name in _PARTS}
    return checked_weights(**{**parts, "report": None, **changes})


@dataclass(frozen=True)
class OptimizerState:
    """What a checkpoint records of an optimizer about the weights of one RNN.

    load() makes an OptimizerState: `load(path)["lstm"].optimizer`.

    slots: the optimizer's arrays by slot, in the framework's words (exp_avg, exp_avg_sq; m, v). A
        slot is a Weights of kind "gradient" or "squared_gradient", with the tensors' names, spec
        and layout of the RNN, and the slot's own dtype.
    step: the number of steps so far; None if the checkpoint records none, or the tensors differ.
    hyperparameters: the numbers and texts beside the slots (lr, betas ...), in the framework's
        words, if they hold for all tensors of the RNN.
    path: where the optimizer is in the checkpoint.
    notes: slots and hyperparameters that were not read, and why.

        >>> m = Weights({"weight_ih": np.ones((3, 2)), "weight_hh": np.ones((3, 1))},
        ...             kind="gradient")
        >>> state = OptimizerState({"exp_avg": m}, step=7, hyperparameters={"lr": 0.001})
        >>> state.to("keras").slots["exp_avg"]["kernel"].shape
        (2, 3)
    """

    slots: Mapping[str, Weights]
    step: int | None = None
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    path: str = ""
    notes: tuple[str, ...] = ()

    def to(
        self, layout: str | Layout, /, *, dtype: Any = None, exact: bool = False
    ) -> OptimizerState:
        """Return an OptimizerState with all slots in another layout or dtype: see convert()."""
        slots = {k: slot.to(layout, dtype=dtype, exact=exact) for k, slot in self.slots.items()}
        return replace(self, slots=slots)


def layer_spec(spec: Spec, k: int) -> Spec:
    """Return the spec of layer k alone."""
    if k == 0:
        return spec.replace(num_layers=1)
    width = spec.num_directions * (spec.proj_size or spec.hidden_size)
    return spec.replace(num_layers=1, input_size=width, skip_input=False)


def vector_sizes(layout: Layout, spec: Spec, optional_tensors: int) -> tuple[int, int]:
    """Return the numbers of elements of all matrices, and of all biases, in an RNN that is a single
    vector: matrices, then biases."""
    ((_, (nelems,)),) = _native.tensors(layout, spec, optional_tensors)
    blocks = _native.blocks(layout, spec, optional_tensors)
    first_bias = min((view[1] for block, view in blocks if block[2][0] == "b"), default=nelems)
    return first_bias, nelems - first_bias
