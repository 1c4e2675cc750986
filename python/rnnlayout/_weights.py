"""Weights: the tensors of one RNN together with what they are; stacking and splitting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from rnnlayout import _config, _convert, _native
from rnnlayout._dtypes import present
from rnnlayout._layouts import CUDNN, Layout, as_layout
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._rnn import RNN
from rnnlayout._sources import Read, read
from rnnlayout._spec import Spec


class Weights(Mapping[str, np.ndarray]):
    """One RNN's tensors with its spec and layout; a read-only mapping from names to arrays.

    source, spec, layout, prefix: as convert() takes them (layout is its src).

    It has the attributes spec, layout, and report: of the conversion that made it, None for what
    was read; and config: what a file says of the RNN that changes outputs but not shapes
    (go_backwards, merge_mode ...), in its framework's own words, empty for what is cuDNN's way.

        >>> import numpy as np
        >>> w = Weights({"weight_ih": np.ones((3, 2)), "weight_hh": np.ones((3, 1))})
        >>> w.layout, w.spec.cell, list(w)
        (layout('torch-cell'), 'gru', ['weight_ih', 'weight_hh'])
    """

    spec: Spec
    layout: Layout
    report: _convert.Report | None  # of the conversion that made these, None for what was read
    config: dict[str, Any]

    def __init__(
        self,
        source: Any,
        spec: Spec | None = None,
        layout: str | Layout | None = None,
        *,
        prefix: str = "",
    ) -> None:
        config = source.config if isinstance(source, Weights) else None
        self._set(read(source, spec, layout, prefix), None, config)

    def _set(
        self,
        given: Read,
        report: _convert.Report | None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._given = given
        self.spec = given.spec
        self.layout = given.layout
        self.report = report
        self.config = dict(config or {})

    @classmethod
    def _of(
        cls,
        given: Read,
        report: _convert.Report | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Weights:
        weights = cls.__new__(cls)
        weights._set(given, report, config)
        return weights

    def _read(self) -> Read:
        return self._given

    @property
    def tensors(self) -> Any:
        """A dict of arrays; for cuDNN's weight space the flat array itself."""
        return next(iter(self.values())) if self.layout.name == "cudnn" else dict(self)

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            k = self._given.names.index(name)
        except ValueError:
            raise KeyError(name) from None
        return present(self._given.arrays[k], self._given.dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self._given.names)

    def __len__(self) -> int:
        return len(self._given.names)

    def __repr__(self) -> str:
        return f"<Weights of {self.spec} in {self.layout}>"

    def to(self, dst: str | Layout, *, dtype: Any = None, exact: bool = False) -> Weights:
        """These weights in another layout or dtype, with the report of it; errors as convert()."""
        target = as_layout(dst)
        names, arrays, name, report = _convert.run(self._given, target, dtype, exact)
        spec = self.spec.replace(dtype=name)
        has = 0 if spec.bias == "none" else _native.HAS_BIAS
        return Weights._of(Read(spec, target, has, names, arrays), report, self.config)

    def pack(self, *, dtype: Any = None, exact: bool = False) -> np.ndarray:
        """cuDNN's weight space, a 1-D array; errors as convert()."""
        return self.to("cudnn", dtype=dtype, exact=exact)["weight_space"]

    def rnn(self, **options: Any) -> Any:
        """An RNN that runs these weights; options as RNN() takes them.

        LossyError: config has something that the RNN would not do; what RNN(weights) runs is the
        bare RNN, for you to do the rest.
        """
        if self.config:
            raise LossyError(
                f"these weights are used with {_config.words(self.config)}, which an RNN here does"
                " not do by itself: rl.RNN(weights) runs them without, the rest is yours to do"
            )
        return RNN(self, **options)

    def split(self) -> list[Weights]:
        """One Weights a layer, in the same layout; stack() puts them together again."""
        return [self.layer(k) for k in range(self.spec.num_layers)]

    def layer(self, k: int) -> Weights:
        """Layer k alone, in the same layout."""
        given, spec = self._given, _layer_spec(self.spec, k)
        config = _config.of_layer(self.config, k, self.spec.num_layers)
        if self.layout.name == "cudnn":
            pieces = [given.arrays[0][part] for part in _flat_parts(self.spec, k)]
            names, arrays = given.names, [np.concatenate(pieces)]
        else:
            names = [name for name, _ in _native.tensors(self.layout, spec, given.has)]
            arrays = given.arrays[k * len(names) : (k + 1) * len(names)]
        return Weights._of(Read(spec, self.layout, given.has, names, arrays), None, config)


def num_weights(spec: Spec) -> int:
    """How many elements of cuDNN's weight space lie before its first bias."""
    blocks = _native.blocks(CUDNN, spec)
    return min((view[1] for block, view in blocks if block[2][0] == "b"), default=spec.num_params)


def _flat_parts(spec: Spec, layer: int) -> tuple[slice, slice]:
    """Where in cuDNN's weight space the weights of a layer lie, and where its biases."""
    first, one = _layer_spec(spec, 0), _layer_spec(spec, layer)  # all but the first are alike
    n, n0 = num_weights(one), num_weights(first)
    m, m0 = one.num_params - n, first.num_params - n0
    w = n0 + (layer - 1) * n if layer else 0
    b = num_weights(spec) + (m0 + (layer - 1) * m if layer else 0)
    return slice(w, w + n), slice(b, b + m)


def _layer_spec(spec: Spec, layer: int) -> Spec:
    if layer == 0:
        return spec.replace(num_layers=1)
    width = spec.num_directions * (spec.proj_size or spec.hidden_size)
    return spec.replace(num_layers=1, input_size=width, skip_input=False)


def stack(layers: Iterable[Any]) -> Weights:
    """One RNN of several: each reads what the one before it puts out.

    layers: Weights, or anything that Weights() takes, in the same layout. All have the same
    cell, hidden and projected size, directions, biases and dtype; layer k reads D * P elements.
    They are used alike (config), but that only the first may go_backwards, which turns round what
    all of them read, and only the last have a merge_mode: what it puts out is of another width.

    LayoutError: they do not fit together; models of unequal layers are several RNNs.

        >>> import numpy as np
        >>> a = {"kernel": np.ones((5, 8)), "recurrent_kernel": np.ones((2, 8)), "bias": np.ones(8)}
        >>> b = {"kernel": np.ones((2, 8)), "recurrent_kernel": np.ones((2, 8)), "bias": np.ones(8)}
        >>> list(stack([a, b]))[:2]
        ['0/kernel', '0/recurrent_kernel']
    """
    try:
        one_by_one = iter(layers)
    except TypeError:
        raise LayoutError(f"layers is a {type(layers).__name__}, need a list of them") from None
    parts = [w if isinstance(w, Weights) else Weights(w) for w in one_by_one]
    if not parts:
        raise LayoutError("nothing to stack: the list is empty")
    parts = [layer for w in parts for layer in w.split()]
    first = parts[0]
    if len(parts) == 1:
        return first
    spec = first.spec.replace(num_layers=len(parts))
    for k, w in enumerate(parts):
        _check_layer(k, w, first, _layer_spec(spec, k))
    if first.layout.name == "cudnn":
        return stack([w.to("torch") for w in parts]).to("cudnn")
    has = first._read().has
    names = [name for name, _ in _native.tensors(first.layout, spec, has)]
    arrays = [array for w in parts for array in w._read().arrays]
    config = _config.of_stack([w.config for w in parts])
    return Weights._of(Read(spec, first.layout, has, names, arrays), None, config)


def _check_layer(k: int, w: Weights, first: Weights, wanted: Spec) -> None:
    if w.layout != first.layout:
        raise LayoutError(f"layer {k} is in layout {w.layout}, layer 0 in {first.layout}")
    if w._read().has != first._read().has:
        raise LayoutError(f"layer {k} and layer 0 do not both have biases: add zeros where missing")
    if w.spec != wanted:
        raise LayoutError(
            f"layer {k} is {w.spec}; on top of layer 0 ({first.spec}) it would have to be {wanted}."
            " Layers of unequal size are several RNNs: convert each by itself"
        )
