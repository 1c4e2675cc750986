"""Find the RNNs that fit given tensor names and shapes; for every kind of source.

The result, or the error, depends on nothing else and is cached, so a further source of the same
names and shapes costs one look-up. In order:

1. The names of a dict are matched with the names of layouts: of the layout that the caller names,
   or of all plain layouts. A list is in the order of the layout that the caller names.
2. With the caller's spec, names and shapes must be the names and shapes of the spec in a layout.
3. Without a spec, the sizes of each RNN with these names, or this number of tensors, are solved.
4. Several different networks that fit are an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from rnnlayout import _native
from rnnlayout._model.describe import describe
from rnnlayout._model.errors import Ask, Message, error_with_parts, join_parts
from rnnlayout._model.layout import CUDNN, Layout, known_layouts
from rnnlayout._model.reading_options import ACTIVATIONS
from rnnlayout._model.sized_cache import cached_by_size
from rnnlayout._model.spec import Spec, optional_tensors_of
from rnnlayout._native import HAS_BIAS, HAS_PEEPHOLES, LayoutError, SpecError

from . import mismatch
from .candidates import (
    Guess,
    Shape,
    candidates_with_count,
    candidates_with_names,
    guess_sizes,
    is_one_vector,
)
from .reading import Reading
from .tensor_paths import match_layout_names

# By convention, tensors with names of PyTorch or Keras are read as PyTorch's or Keras's. An LSTM of
# Haste (with biases) or Core ML (without) has the same names, and is read only if the caller names
# the layout.
_BY_CONVENTION = ("torch", "torch-cell", "keras")


@dataclass(frozen=True)
class FittingRNN:
    """An RNN that fits tensors of a source.

    names: of the RNN's tensors, in the order of the layout. order: for each name, the index of the
    tensor in the source.
    """

    spec: Spec
    layout: Layout
    optional_tensors: int
    names: tuple[str, ...]
    order: tuple[int, ...]


# A possible layout, and the index of each tensor by its name in the layout; None for a list, which
# is in the order of the layout.
_Place = tuple[Layout, dict[str, int] | None]


@cached_by_size(lambda names, only: len(names))
def names_in_layouts(
    names: tuple[str, ...], only: Layout | None
) -> tuple[tuple[Layout, tuple[str, ...]], ...]:
    """Return (layout, the names in that layout) for each layout in which the names fit one RNN.
    only: the layout to search, None for all plain layouts."""
    matches = []
    for layout in [only] if only else plain_layouts():
        if tensors := match_layout_names(layout, names):
            matches.append((layout, tuple([tensors[name] for name in names])))
    return tuple(matches)


def fitting_rnns(
    names: tuple[str, ...] | None, shapes: tuple[Shape, ...], dtype: str, reading: Reading
) -> tuple[FittingRNN, ...]:
    """Return the RNNs that fit tensors: different networks, all in one layout. names: of a dict;
    None for a list, in the order of reading.layout. Raises LayoutError or SpecError if no RNN fits,
    or different networks in several layouts."""
    outcome = _fitting_rnns_or_error(names, shapes, dtype, reading)
    if isinstance(outcome, tuple):
        return outcome
    raise copy(outcome)  # raising an error adds frames to the error


@cached_by_size(lambda names, shapes, dtype, reading: len(shapes))
def _fitting_rnns_or_error(
    names: tuple[str, ...] | None, shapes: tuple[Shape, ...], dtype: str, reading: Reading
) -> tuple[FittingRNN, ...] | LayoutError | SpecError:
    """Return the RNNs or the error of fitting_rnns(): a cache keeps no raised error."""
    try:
        return _find_fitting_rnns(names, shapes, dtype, reading)
    except (LayoutError, SpecError) as error:
        return copy(error)  # without the frames


def _find_fitting_rnns(
    names: tuple[str, ...] | None, shapes: tuple[Shape, ...], dtype: str, reading: Reading
) -> tuple[FittingRNN, ...]:
    """Find the RNNs of fitting_rnns()."""
    places: list[_Place] = []
    if names is not None:
        for layout, tensors in names_in_layouts(names, reading.layout):
            places.append((layout, {tensor: k for k, tensor in enumerate(tensors)}))
    elif reading.layout is not None:
        places.append((reading.layout, None))
    distinct: list[FittingRNN] = []
    try:
        if (spec := reading.spec) is None:
            rnns, expected = _inferred_rnns(places, shapes, dtype, reading.fields), None
        else:
            rnns = _rnns_of_spec(places, shapes, dtype, spec)
            places = places[:1]
            expected = None if rnns else list(describe(spec, places[0][0]))
        if not rnns and names is None:
            raise mismatch.wrong_count(places[0][0], len(shapes), expected)
        if not rnns:
            layouts = [layout for layout, _ in places]
            raise mismatch.wrong_names(layouts, names or (), expected, fields=reading.fields)
        for rnn in rnns:  # without biases, a cell of Equinox is also a cell of torch
            if not any(same_network(rnn, earlier) for earlier in distinct):
                distinct.append(rnn)
        if len({rnn.layout for rnn in distinct}) > 1:
            raise _several_layouts(rnn.layout for rnn in distinct)
    except (LayoutError, SpecError) as error:
        if if_named := [layout for layout, _ in fitting_if_named(names, shapes, dtype, reading)]:
            arguments = join_parts(" or ", map(layout_argument, if_named))
            parts = error, "; these tensors fit ", arguments, ", which is read only if it is named"
            raise error_with_parts(error, *parts) from None
        raise
    if len(distinct) == 1 and distinct[0].layout.name not in _BY_CONVENTION:
        if_named = [
            layout
            for layout, networks in fitting_if_named(names, shapes, dtype, reading)
            if not all(same_network(distinct[0], network) for network in networks)
        ]
        if if_named:
            raise _several_layouts([distinct[0].layout, *if_named])
    return tuple(distinct)


def fitting_if_named(
    names: tuple[str, ...] | None, shapes: tuple[Shape, ...], dtype: str, reading: Reading
) -> Iterator[tuple[Layout, tuple[FittingRNN, ...]]]:
    """Yield (layout, RNNs) for each layout that is read only if named and that the tensors fit;
    nothing if the caller has named a layout."""
    for layout in layouts_read_if_named() if reading.layout is None else ():
        if names and names_in_layouts(names, layout):
            with suppress(LayoutError, SpecError):  # wrong shapes, or not the caller's RNN
                yield layout, fitting_rnns(names, shapes, dtype, replace(reading, layout=layout))


def _inferred_rnns(
    places: Sequence[_Place], shapes: tuple[Shape, ...], dtype: str, fields: Mapping[str, Any]
) -> list[FittingRNN]:
    """Return the RNNs that fit, without a spec of the caller; [] if the names (for a list, the
    number) of the tensors fit no RNN. Raises LayoutError if only the shapes do not fit."""
    kinds = fields.keys() & {"cell", "reset", "num_layers", "bidirectional"}
    symbols = {"input_size": "I", "hidden_size": "H", "proj_size": "P"}
    sizes = {symbol: fields[name] for name, symbol in symbols.items() if name in fields}
    guesses: list[tuple[Guess, tuple[int, ...]]] = []
    for layout, index_of in places:
        if is_one_vector(layout):
            raise SpecError(
                f"{layout} is one flat vector, which does not record its RNN: pass ",
                Ask("spec"),
                ", which describes it",
            )
        candidates = (
            candidates_with_count(layout, len(shapes))
            if index_of is None
            else candidates_with_names(layout, frozenset(index_of))
        )
        for candidate in candidates:
            if all([getattr(candidate, key) == fields[key] for key in kinds]):
                indices = index_of or {name: k for k, name in enumerate(candidate.names)}
                order = tuple([indices[name] for name in candidate.names])
                by_name = {name: shapes[k] for name, k in zip(candidate.names, order, strict=True)}
                guesses.append((guess_sizes(candidate, by_name), order))
    activations = {key: fields[key] for key in ACTIVATIONS if key in fields}
    rnns = [
        FittingRNN(
            candidate.spec(guess.sizes, dtype=dtype, **activations),
            candidate.layout,
            candidate.optional_tensors,
            candidate.names,
            order,
        )
        for guess, order in guesses
        if guess.fits and all([guess.sizes.get(symbol, 0) == n for symbol, n in sizes.items()])
        for candidate in [guess.candidate]
    ]
    if guesses and not rnns:
        closest = min(
            (guess for guess, _ in guesses), key=lambda guess: len(guess.wrong)
        ).candidate.names
        raise mismatch.wrong_shapes(
            [guess for guess, _ in guesses if guess.candidate.names == closest]
        )
    return rnns


def _rnns_of_spec(
    places: Sequence[_Place], shapes: tuple[Shape, ...], dtype: str, spec: Spec
) -> list[FittingRNN]:
    """Return the RNNs of the caller's spec that fit, with and without optional tensors; [] if the
    names or the number of the tensors do not fit. Raises LayoutError if only the shapes do not."""
    spec = spec if spec.dtype == dtype else spec.replace(dtype=dtype)
    matches = []
    for layout, index_of in places:
        for toggled in (0, HAS_BIAS, HAS_PEEPHOLES, HAS_BIAS | HAS_PEEPHOLES):
            optional_tensors = optional_tensors_of(spec) ^ toggled  # those of the spec first
            try:
                expected = dict(_native.tensors(layout, spec, optional_tensors))
            except ValueError:
                if len(places) == 1:
                    raise
                continue
            indices = index_of or {name: k for k, name in enumerate(expected)}
            if indices.keys() == expected.keys() and len(indices) == len(shapes):
                order = tuple([indices[name] for name in expected])
                matches.append((layout, optional_tensors, order, expected))
    exact = [
        FittingRNN(spec, layout, optional_tensors, tuple(expected), order)
        for layout, optional_tensors, order, expected in matches
        if [shapes[k] for k in order] == [*expected.values()]
    ]
    if matches and not exact:
        layout, optional_tensors, order, expected = matches[0]
        actual = {name: shapes[k] for name, k in zip(expected, order, strict=True)}
        raise mismatch.spec_mismatch(layout, spec, optional_tensors, actual, expected)
    return exact


# -------------------------------------------------------------------------- several that fit


def same_network(a: FittingRNN, b: FittingRNN) -> bool:
    """Are the same tensors the same network, read as `a` and as `b`?"""
    if a.spec != b.spec:
        return False
    if _native.blocks(a.layout, a.spec, a.optional_tensors) != _native.blocks(
        b.layout, b.spec, b.optional_tensors
    ):
        return False
    if a.layout == b.layout:  # the layout has the same blocks with and without biases
        return True
    ops = _native.Plan(a.spec, a.layout, a.optional_tensors, b.layout).block_ops()
    return all(kind == "move" and not negate for kind, _, _, negate, *_ in ops)


def _several_layouts(layouts: Iterable[Layout]) -> LayoutError:
    """Return the error for tensors that fit these layouts, as a different network in each."""
    names = sorted({layout.name for layout in layouts})
    return LayoutError(
        "these tensors fit several layouts, and are a different RNN in each: pass ",
        join_parts(" or ", [Ask("layout", name) for name in names]),
        f"; if another program wrote them, {mismatch.UNKNOWN_GATES}",
    )


# --------------------------------------------------------------------------- layouts to search


@cache
def plain_layouts() -> tuple[Layout, ...]:
    """Return the layouts of dicts that the caller need not name. A layout with options must be
    named: tensors do not show options."""
    plain = (
        name
        for name, info in known_layouts().items()
        if not info["must_name"] and not info["options"]
    )
    return tuple(map(Layout, plain))


@cache
def layouts_read_if_named() -> tuple[Layout, ...]:
    """Return the layouts of dicts that the caller must name."""
    layouts = map(Layout, known_layouts())
    return tuple(layout for layout in layouts if layout not in (CUDNN, *plain_layouts()))


def layout_argument(layout: Layout) -> Message:
    """Return the argument that names a layout."""
    options = layout.facts["options"]
    chosen = {key: next(iter(choices)) for key, choices in options.items()}
    suffix = " (or other values of its options)" if chosen else ""
    return Message(Ask("layout", Layout(layout.name, **chosen)), suffix)
