"""One RNN's checked arrays: split into layers, and stacked again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._native import LayoutError

from .config import layer_config, stack_config
from .layout import Layout
from .spec import Spec


@dataclass(frozen=True)
class CheckedRNN:
    """One RNN, checked: names and arrays in the order of its layout.

    optional_tensors: those that it has, HAS_BIAS | HAS_PEEPHOLES. arrays: C-contiguous, aligned, in
    native byte order; they carry bits (bfloat16 as uint16). config: the settings that change
    outputs but not shapes, as in Weights.config. batch_first: whether the source's x is (N, T, I);
    None if it does not say. rounded: the names of weights that were rounded when they were computed
    from what the source stores (weight norm), for messages.
    """

    spec: Spec
    layout: Layout
    optional_tensors: int
    names: list[str]
    arrays: list[np.ndarray]
    config: dict[str, Any] = field(default_factory=dict)
    batch_first: bool | None = None
    rounded: tuple[str, ...] = ()

    @cached_property
    def tensors(self) -> dict[str, np.ndarray]:
        """The arrays by name, in the order of the layout."""
        return dict(zip(self.names, self.arrays, strict=True))

    def layer(self, k: int) -> CheckedRNN:
        """Return layer k alone, in the same layout."""
        spec = layer_spec(self.spec, k)
        names = [name for name, _ in _native.tensors(self.layout, spec, self.optional_tensors)]
        if len(self.arrays) < self.spec.num_layers:  # one vector
            one, two = (
                vector_sizes(self.layout, self.spec.replace(num_layers=n), self.optional_tensors)
                for n in (1, 2)
            )

            def below(layer: int, kind: int) -> int:  # layers above the first are alike
                return one[kind] + (layer - 1) * (two[kind] - one[kind]) if layer else 0

            parts = [  # the matrices, and the biases behind all matrices
                self.arrays[0][start + below(k, kind) : start + below(k + 1, kind)]
                for kind, start in enumerate((0, below(self.spec.num_layers, 0)))
            ]
            arrays = [np.concatenate(parts)]
        else:
            arrays = self.arrays[k * len(names) : (k + 1) * len(names)]
        config = layer_config(self.config, k, self.spec.num_layers)
        return replace(self, spec=spec, names=names, arrays=arrays, config=config)

    def layers(self) -> list[CheckedRNN]:
        """Return each layer alone, bottom first."""
        one = self.spec.num_layers == 1
        return [self] if one else [self.layer(k) for k in range(self.spec.num_layers)]


class HasRNN:
    """Base class of Weights, which carries one RNN's checked arrays: rooms to the left of _weights
    know it as this.
    """

    _checked_rnn: CheckedRNN


class TensorDict(dict[str, np.ndarray]):
    """Base class of Tensors, a dict of arrays that knows its RNN. Its attributes are those of a
    CheckedRNN.
    """

    spec: Spec
    layout: Layout
    config: dict[str, Any]
    batch_first: bool | None


def checked_rnn_of(source: HasRNN) -> CheckedRNN:
    """Return the checked arrays of a Weights."""
    return source._checked_rnn


def layer_spec(spec: Spec, k: int) -> Spec:
    """Return the spec of layer k alone."""
    if k == 0:
        return spec.replace(num_layers=1)
    width = spec.num_directions * (spec.proj_size or spec.hidden_size)
    return spec.replace(num_layers=1, input_size=width, skip_input=False)


def vector_sizes(layout: Layout, spec: Spec, optional_tensors: int) -> tuple[int, int]:
    """Return the number of elements of all matrices, and of all biases, which follow them, in an
    RNN that is one vector."""
    ((_, (nelems,)),) = _native.tensors(layout, spec, optional_tensors)
    blocks = _native.blocks(layout, spec, optional_tensors)
    first = min((view[1] for block, view in blocks if block[2][0] == "b"), default=nelems)
    return first, nelems - first


def stack_layers(parts: Sequence[CheckedRNN]) -> CheckedRNN:
    """Return one RNN of all layers, bottom first. Raises LayoutError if they do not fit."""
    layers = [layer for part in parts for layer in part.layers()]
    first = layers[0]
    if len(layers) == 1:
        return first
    spec = first.spec.replace(num_layers=len(layers))
    for k, layer in enumerate(layers):
        if layer.layout != first.layout:
            raise LayoutError(f"layer {k} is in layout {layer.layout}, layer 0 in {first.layout}")
        if layer.optional_tensors != first.optional_tensors:
            raise LayoutError(
                f"layer {k} and layer 0 do not both have biases, or peepholes: pass zeros for the"
                " missing ones"
            )
        if layer.spec != (wanted := layer_spec(spec, k)):
            raise LayoutError(
                f"layer {k} is {layer.spec}; on top of layer 0 ({first.spec}) it would have to be"
                f" {wanted}. Layers of different sizes are several RNNs: convert each on its own"
            )
    names = [name for name, _ in _native.tensors(first.layout, spec, first.optional_tensors)]
    arrays = [array for layer in layers for array in layer.arrays]
    if len(names) < len(arrays):  # one vector
        sizes = [vector_sizes(one.layout, one.spec, one.optional_tensors) for one in layers]
        halves = [np.split(flat, [n]) for flat, (n, _) in zip(arrays, sizes, strict=True)]
        arrays = [np.concatenate([half[kind] for kind in (0, 1) for half in halves])]
    config = stack_config([layer.config for layer in layers], spec.num_directions)
    rounded = tuple(name for part in parts for name in part.rounded)
    batch_first = _batch_first(layers)
    return CheckedRNN(
        spec, first.layout, first.optional_tensors, names, arrays, config, batch_first, rounded
    )


def _batch_first(layers: Sequence[CheckedRNN]) -> bool | None:
    """Return whether x of a stack of these layers is (N, T, I); None if no layer says."""
    said = {k: one.batch_first for k, one in enumerate(layers) if one.batch_first is not None}
    if len(set(said.values())) == 2:
        one, other = (next(k for k, v in said.items() if v == first) for first in (True, False))
        raise LayoutError(
            f"layer {one} reads (N, T, I), layer {other} (T, N, I): one RNN reads one of them, set"
            " batch_first (time_major in Keras) the same in all layers"
        )
    return next(iter(said.values()), None)
