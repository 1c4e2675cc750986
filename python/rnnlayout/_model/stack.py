"""stack: join layers to one RNN."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._native import LayoutError, SpecError

from .config import stack_config
from .kinds import check_kind_of
from .weights import Weights, checked_weights, layer_spec, vector_sizes


def stack(layers: Iterable[Any]) -> Weights:
    """Join layers to one RNN: each layer reads the output of the layer before.

    layers: Weights, or anything that Weights() accepts, all in one layout, with the same cell,
        hidden and projected size, directions, biases and dtype; from the second layer on the input
        size is D * P. config must be the same in all layers, except that only the first may have
        go_backwards, which reverses the input of the stack, and only the last a merge_mode, which
        changes the width of the output.

    Raises LayoutError if the layers do not fit together: layers of different sizes are several
    RNNs.

        >>> import numpy as np
        >>> a = {"kernel": np.ones((5, 8)), "recurrent_kernel": np.ones((2, 8)), "bias": np.ones(8)}
        >>> b = {"kernel": np.ones((2, 8)), "recurrent_kernel": np.ones((2, 8)), "bias": np.ones(8)}
        >>> list(stack([a, b]))[:2]
        ['0/kernel', '0/recurrent_kernel']
    """
    try:
        iterator = iter(layers)
    except TypeError:
        raise LayoutError(f"layers is a {type(layers).__name__}, need a list of them") from None
    rnns = []
    for k, layer in enumerate(iterator):
        try:
            rnns.append(layer if isinstance(layer, Weights) else Weights(layer))
        except SpecError as error:
            raise SpecError(
                f"layer {k}: ",
                error,
                ". Pass it to rl.Weights(layer, ...), and the result to stack()",
            ) from None
    if not rnns:
        raise LayoutError("nothing to stack: the list of layers is empty")
    return stack_layers(rnns)


def stack_layers(rnns: Sequence[Weights]) -> Weights:
    """Join the layers of all RNNs, bottom first. Raises LayoutError if the layers do not fit."""
    layers = [layer for rnn in rnns for layer in rnn.split()]
    first = layers[0]
    if len(layers) == 1:
        return first
    spec = first.spec.replace(num_layers=len(layers))
    for k, layer in enumerate(layers):
        check_kind_of(layer, first.kind, f"layer {k}")
        if layer.layout != first.layout:
            raise LayoutError(f"layer {k} is in layout {layer.layout}, layer 0 in {first.layout}")
        if layer.optional_tensors != first.optional_tensors:
            raise LayoutError(
                f"layer {k} and layer 0 do not both have biases, or peepholes: pass zeros for the"
                " missing ones"
            )
        if layer.spec != (needed := layer_spec(spec, k)):
            raise LayoutError(
                f"layer {k} is {layer.spec}; on top of layer 0 ({first.spec}) it would have to be"
                f" {needed}. Layers of different sizes are several RNNs: convert each on its own"
            )
    names = [name for name, _ in _native.tensors(first.layout, spec, first.optional_tensors)]
    arrays = [array for layer in layers for array in layer.arrays]
    if len(names) < len(arrays):
        arrays = [_joined_vector(layers)]
    config = stack_config([layer.config for layer in layers], spec.num_directions)
    rounded = tuple(name for rnn in rnns for name in rnn.rounded)
    return checked_weights(
        spec,
        first.layout,
        first.optional_tensors,
        names,
        arrays,
        config,
        _batch_first(layers),
        rounded,
        assumed=first.assumed,
        kind=first.kind,
    )


def _joined_vector(layers: Sequence[Weights]) -> np.ndarray:
    """Return the vector of a stack whose layers are a vector each: the matrices of all layers, then
    all biases."""
    matrices, biases = [], []
    for layer in layers:
        nelems, _ = vector_sizes(layer.layout, layer.spec, layer.optional_tensors)
        matrices.append(layer.arrays[0][:nelems])
        biases.append(layer.arrays[0][nelems:])
    return np.concatenate([*matrices, *biases])


def _batch_first(layers: Sequence[Weights]) -> bool | None:
    """Return whether x of a stack is (N, T, I); None if no layer records the order of the axes."""
    recorded = {k: rnn.batch_first for k, rnn in enumerate(layers) if rnn.batch_first is not None}
    if len(set(recorded.values())) == 2:
        first, second = (
            next(k for k, recorded_axes in recorded.items() if recorded_axes == axes)
            for axes in (True, False)
        )
        raise LayoutError(
            f"layer {first} reads (N, T, I), layer {second} (T, N, I): one RNN reads one of them,"
            " set batch_first (time_major in Keras) the same in all layers"
        )
    return next(iter(recorded.values()), None)
