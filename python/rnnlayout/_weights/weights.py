"""Weights: the tensors of one RNN with its spec and layout; stacking and splitting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from rnnlayout._convert import engine
from rnnlayout._model.checked_rnn import CheckedRNN, HasRNN, checked_rnn_of, stack_layers
from rnnlayout._model.dtypes import present_array
from rnnlayout._model.layout import Layout, as_layout
from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError, SpecError
from rnnlayout._sources.read_source import read_source
from rnnlayout._sources.reading import make_reading
from rnnlayout._sources.reading_options import TensorOptions, takes_options

if TYPE_CHECKING:
    from rnnlayout._model.picture.picture import Picture


class Weights(Mapping[str, np.ndarray], HasRNN):
    """One RNN's tensors with its spec and layout: a read-only mapping from names to arrays.

    source: see convert(). The arrays share its memory where that is possible: if the source is
        changed, as in training, so are these. To keep the values, pass a copy.
    Other arguments: how the source is read, see ReadingOptions.

    Attributes: spec; layout; report, of the conversion that made it, or None; config, the settings
    of the source that change outputs but not shapes (go_backwards, merge_mode ...), as its
    framework writes them, without those that are cuDNN's only behaviour; and batch_first, whether
    the source's x is (N, T, I), None if it does not say.

        >>> import numpy as np
        >>> w = Weights({"weight_ih": np.ones((3, 2)), "weight_hh": np.ones((3, 1))})
        >>> w.layout, w.spec.cell, list(w)
        (layout('torch-cell'), 'gru', ['weight_ih', 'weight_hh'])
    """

    spec: Spec
    layout: Layout
    report: engine.Report | None

    @takes_options(TensorOptions)
    def __init__(
        self,
        source: Any,
        spec: Spec | None = None,
        layout: str | Layout | None = None,
        *,
        dtype: Any = None,
        **options: Unpack[TensorOptions],
    ) -> None:
        reading = make_reading(Weights.__init__, options, spec, layout=layout, dtype=dtype)
        given = read_source(source, reading)
        if dtype is None:
            self._set(given, None)
        else:
            self._set(*engine.run_conversion(given, given.layout, dtype))

    def _set(self, given: CheckedRNN, report: engine.Report | None) -> None:
        self._checked_rnn = replace(given, config=dict(given.config))
        self.spec, self.layout, self.report = given.spec, given.layout, report

    @property
    def config(self) -> dict[str, Any]:
        """The settings that change outputs but not shapes. May be changed."""
        return self._checked_rnn.config

    @config.setter
    def config(self, config: Mapping[str, Any]) -> None:
        self._checked_rnn = replace(self._checked_rnn, config=dict(config))

    @property
    def batch_first(self) -> bool | None:
        """Whether the source's x is (N, T, I); None if it does not say."""
        return self._checked_rnn.batch_first

    @property
    def tensors(self) -> Any:
        """A dict of arrays, or, in layout cudnn, the flat array."""
        return next(iter(self.values())) if self.layout.name == "cudnn" else dict(self)

    def __getitem__(self, name: str) -> np.ndarray:
        return present_array(self._checked_rnn.tensors[name], self._checked_rnn.spec.dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self._checked_rnn.names)

    def __len__(self) -> int:
        return len(self._checked_rnn.names)

    def __eq__(self, other: object) -> bool:
        """Return whether spec, layout, config and all bits are equal."""
        if not isinstance(other, Weights):
            return NotImplemented
        a, b = self._checked_rnn, other._checked_rnn
        if (a.spec, a.layout, a.names, a.config) != (b.spec, b.layout, b.names, b.config):
            return False
        return all(x.tobytes() == y.tobytes() for x, y in zip(a.arrays, b.arrays, strict=True))

    __hash__ = None  # type: ignore[assignment]  # the arrays and config may change

    def __repr__(self) -> str:
        return f"<Weights of {self.spec} in {self.layout}>"

    def to(self, layout: str | Layout, /, *, dtype: Any = None, exact: bool = False) -> Weights:
        """Return these weights in another layout or dtype, with a report. Errors: see convert()."""
        given, report = engine.run_conversion(self._checked_rnn, as_layout(layout), dtype, exact)
        return weights_of(given, report)

    def pack(self, *, dtype: Any = None, exact: bool = False) -> np.ndarray:
        """Return cuDNN's weight space, a 1-D array. Errors: see convert()."""
        return self.to("cudnn", dtype=dtype, exact=exact)["weight_space"]

    # What draws and what runs is imported when it is asked for: who only loads needs neither.

    def picture(self, to: str | Layout | None = None, *, width: float | None = None) -> Picture:
        """Draw these tensors as they lie in memory, or their conversion: see picture()."""
        from rnnlayout._convert.explain import draw_rnns
        from rnnlayout._model.picture.picture import WIDTH, Subject

        target = None if to is None else as_layout(to)
        subject = Subject(self.spec, self.layout, self._checked_rnn.optional_tensors)
        return draw_rnns([subject], target, WIDTH if width is None else width)

    def _repr_svg_(self) -> str:
        return self.picture().svg

    def rnn(self, **options: Any) -> Any:
        """Return an RNN that runs these weights as config says. options: see RNN()."""
        from rnnlayout._run.rnn import RNN

        return RNN(self, **options)

    def split(self) -> list[Weights]:
        """Return one Weights per layer, in the same layout; stack() puts them together again."""
        return [weights_of(layer) for layer in self._checked_rnn.layers()]

    def layer(self, k: int) -> Weights:
        """Return layer k alone, in the same layout."""
        return weights_of(self._checked_rnn.layer(k))


def weights_of(
    given: CheckedRNN | HasRNN, report: engine.Report | None = None, **known: Any
) -> Weights:
    """Return the Weights of checked arrays, or of other Weights without their report. known: what
    is to be changed of the CheckedRNN: config, batch_first, rounded."""
    own = given if isinstance(given, CheckedRNN) else checked_rnn_of(given)
    weights = Weights.__new__(Weights)
    weights._set(replace(own, **known), report)
    return weights


def stack(layers: Iterable[Any]) -> Weights:
    """Make one RNN of several: each reads the output of the one before it.

    layers: Weights, or anything that Weights() accepts, all in one layout, with the same cell,
        hidden and projected size, directions, biases and dtype; from the second on each reads D * P
        elements. Their config must be the same, except that only the first may have go_backwards,
        which reverses the input of all, and only the last a merge_mode, which changes the width
        of its output.

    Raises LayoutError if they do not fit together: a model of different layers is several RNNs.

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
    parts = []
    for k, layer in enumerate(one_by_one):
        try:
            parts.append(layer if isinstance(layer, Weights) else Weights(layer))
        except SpecError as error:
            raise SpecError(
                f"layer {k}: ",
                error,
                ". Pass it to rl.Weights(layer, ...), and the result to stack()",
            ) from None
    if not parts:
        raise LayoutError("nothing to stack: the list of layers is empty")
    return weights_of(stack_layers([checked_rnn_of(w) for w in parts]))
