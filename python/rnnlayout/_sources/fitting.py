"""Which RNN are tensors of these names and shapes? Every kind of source asks this table.

The answer depends on nothing else, so it is kept: sources that are alike cost a look-up. In order:

1. Names of a dict are compared with those of the layouts: of the one that the caller names, else of
   all that need not be named. A list is in the order of the layout that the caller names.
2. With the caller's spec, names and shapes must be those of the spec in one of these layouts.
3. Otherwise each RNN of these names, or of so many tensors, is solved for its sizes.
4. If several fit, and are different networks, it is an error to be undecided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from rnnlayout import _native
from rnnlayout._model.describe import describe
from rnnlayout._model.errors import Ask, Message, error_with_parts, join_parts
from rnnlayout._model.layout import CUDNN, Layout, known_layouts
from rnnlayout._model.reading_options import ACTIVATIONS
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

# By convention, names of PyTorch and Keras are theirs: tensors with biases of Haste's LSTM, or
# without biases of Core ML, have them too, and are read in those layouts only if they are named.
_BY_CONVENTION = ("torch", "torch-cell", "keras")


@dataclass(frozen=True)
class FittingRNN:
    """An RNN that tensors may be, and which tensor is which.

    names: those of its tensors in its layout, in the layout's order. order: for each of them, the
    index of the tensor that was passed.
    """

    spec: Spec
    layout: Layout
    optional_tensors: int
    names: tuple[str, ...]
    order: tuple[int, ...]


# A layout that tensors may be in, and the index of each by its name there; None for a list, which
# is in the order of the layout.
_Place = tuple[Layout, dict[str, int] | None]


@lru_cache(maxsize=512)
def names_in_layouts(
    names: tuple[str, ...], layout: Layout | None
) -> tuple[tuple[Layout, tuple[str, ...]], ...]:
    """Return the layouts in which these are the names of one RNN, and there the name of each.
    layout: the only one to look in; by default those that need not be named."""
    found = []
    for one in [layout] if layout else plain_layouts():
        if tensors := match_layout_names(one, names):
            found.append((one, tuple([tensors[name] for name in names])))
    return tuple(found)


@lru_cache(maxsize=512)
def fitting_rnns(
    names: tuple[str, ...] | None, shapes: tuple[Shape, ...], dtype: str, reading: Reading
) -> tuple[FittingRNN, ...]:
    """Return the RNNs that tensors may be: different networks, all in one layout. names: those of a
    dict; None for a list, in the order of reading.layout. Raises LayoutError or SpecError if they
    are none, or networks of several layouts."""
    places: list[_Place] = []
    if names is not None:
        for layout, tensors in names_in_layouts(names, reading.layout):
            places.append((layout, {tensor: k for k, tensor in enumerate(tensors)}))
    elif reading.layout is not None:
        places.append((reading.layout, None))
    kept: list[FittingRNN] = []
    try:
        if (spec := reading.spec) is None:
            found, expected = _inferred_rnns(places, shapes, dtype, reading.fields), None
        else:
            found = _rnns_of_spec(places, shapes, dtype, spec)
            places = places[:1]
            expected = None if found else list(describe(spec, places[0][0]))
        if not found and names is None:
            raise mismatch.wrong_count(places[0][0], len(shapes), expected)
        if not found:
            layouts = [layout for layout, _ in places]
            raise mismatch.wrong_names(layouts, names or (), expected, fields=reading.fields)
        for one in found:  # without biases, cells of Equinox are cells of torch
            if not any(same_network(one, other) for other in kept):
                kept.append(one)
        if len({one.layout for one in kept}) > 1:
            raise _several_layouts(one.layout for one in kept)
    except (LayoutError, SpecError) as error:
        if others := [layout for layout, _ in _fitting_if_named(names, shapes, dtype, reading)]:
            ways = join_parts(" or ", map(layout_argument, others))
            parts = error, "; these tensors fit ", ways, ", which is read only if it is named"
            raise error_with_parts(error, *parts) from None
        raise
    if len(kept) == 1 and kept[0].layout.name not in _BY_CONVENTION:
        others = [
            layout
            for layout, rnns in _fitting_if_named(names, shapes, dtype, reading)
            if not all(same_network(kept[0], one) for one in rnns)
        ]
        if others:
            raise _several_layouts([kept[0].layout, *others])
    return tuple(kept)


def _fitting_if_named(
    names: tuple[str, ...] | None, shapes: tuple[Shape, ...], dtype: str, reading: Reading
) -> Iterator[tuple[Layout, tuple[FittingRNN, ...]]]:
    """Yield the layouts to be named that the tensors fit, with the RNNs that they may be there;
    nothing if the caller has named one."""
    for layout in layouts_read_if_named() if reading.layout is None else ():
        if names and names_in_layouts(names, layout):
            with suppress(LayoutError, SpecError):  # other shapes, or not the asked RNN
                yield layout, fitting_rnns(names, shapes, dtype, replace(reading, layout=layout))


def _inferred_rnns(
    places: Sequence[_Place], shapes: tuple[Shape, ...], dtype: str, fields: Mapping[str, Any]
) -> list[FittingRNN]:
    """Return the RNNs that the tensors may be; none if they have the names, or the number, of no
    RNN. Raises LayoutError if only their shapes do not fit."""
    kinds = fields.keys() & {"cell", "reset", "num_layers", "bidirectional"}
    symbols = {"input_size": "I", "hidden_size": "H", "proj_size": "P"}
    sizes = {symbol: fields[name] for name, symbol in symbols.items() if name in fields}
    guesses: list[tuple[Guess, tuple[int, ...]]] = []
    for layout, where in places:
        if is_one_vector(layout):
            raise SpecError(
                f"{layout} is one flat vector, which does not record its RNN: pass ",
                Ask("spec"),
                ", which describes it",
            )
        fit = (
            candidates_with_count(layout, len(shapes))
            if where is None
            else candidates_with_names(layout, frozenset(where))
        )
        for one in fit:
            if all([getattr(one, key) == fields[key] for key in kinds]):
                own = where or {name: k for k, name in enumerate(one.names)}
                order = tuple([own[name] for name in one.names])
                by_name = {name: shapes[k] for name, k in zip(one.names, order, strict=True)}
                guesses.append((guess_sizes(one, by_name), order))
    known = {key: fields[key] for key in ACTIVATIONS if key in fields}
    found = [
        FittingRNN(
            rnn.spec(g.sizes, dtype=dtype, **known),
            rnn.layout,
            rnn.optional_tensors,
            rnn.names,
            order,
        )
        for g, order in guesses
        if g.fits and all([g.sizes.get(symbol, 0) == n for symbol, n in sizes.items()])
        for rnn in [g.candidate]
    ]
    if guesses and not found:
        closest = min((g for g, _ in guesses), key=lambda g: len(g.wrong)).candidate.names
        raise mismatch.wrong_shapes([g for g, _ in guesses if g.candidate.names == closest])
    return found


def _rnns_of_spec(
    places: Sequence[_Place], shapes: tuple[Shape, ...], dtype: str, spec: Spec
) -> list[FittingRNN]:
    """Return the same if the caller knows the spec."""
    spec = spec if spec.dtype == dtype else spec.replace(dtype=dtype)
    matches = []
    for layout, where in places:
        for more in (0, HAS_BIAS, HAS_PEEPHOLES, HAS_BIAS | HAS_PEEPHOLES):
            optional_tensors = optional_tensors_of(spec) ^ more  # first those that the spec has
            try:
                expected = dict(_native.tensors(layout, spec, optional_tensors))
            except ValueError:
                if len(places) == 1:
                    raise
                continue
            own = where or {name: k for k, name in enumerate(expected)}
            if own.keys() == expected.keys() and len(own) == len(shapes):
                order = tuple([own[name] for name in expected])
                matches.append((layout, optional_tensors, order, expected))
    exact = [
        FittingRNN(spec, layout, optional_tensors, tuple(expected), order)
        for layout, optional_tensors, order, expected in matches
        if [shapes[k] for k in order] == [*expected.values()]
    ]
    if matches and not exact:
        layout, optional_tensors, order, expected = matches[0]
        found = {name: shapes[k] for name, k in zip(expected, order, strict=True)}
        raise mismatch.spec_mismatch(layout, spec, optional_tensors, found, expected)
    return exact


# ------------------------------------------------------------------------------ one of several


def same_network(a: FittingRNN, b: FittingRNN) -> bool:
    """Are the same tensors, read in one layout or another, the same network?"""
    if a.spec != b.spec:
        return False
    if _native.blocks(a.layout, a.spec, a.optional_tensors) != _native.blocks(
        b.layout, b.spec, b.optional_tensors
    ):
        return False
    if a.layout == b.layout:  # which has the biases always, whatever was asked for
        return True
    ops = _native.Plan(a.spec, a.layout, a.optional_tensors, b.layout).block_ops()
    return all(kind == "move" and not negate for kind, _, _, negate, *_ in ops)


def _several_layouts(layouts: Iterable[Layout]) -> LayoutError:
    """Return the error for tensors that are different networks in these layouts."""
    names = sorted({layout.name for layout in layouts})
    return LayoutError(
        "these tensors fit several layouts, and are a different RNN in each: pass ",
        join_parts(" or ", [Ask("layout", name) for name in names]),
    )


# --------------------------------------------------------------------- the layouts to look in


@cache
def plain_layouts() -> tuple[Layout, ...]:
    """Return the layouts that a dict of tensors may be in without naming it: not those with
    options, which tensors do not show."""
    plain = (name for name, info in known_layouts().items()
             if not info["must_name"] and not info["options"])  # fmt: skip
    return tuple(map(Layout, plain))


@cache
def layouts_read_if_named() -> tuple[Layout, ...]:
    """Return the other layouts of dicts of tensors."""
    every = map(Layout, known_layouts())
    return tuple(layout for layout in every if layout not in (CUDNN, *plain_layouts()))


def layout_argument(layout: Layout) -> Message:
    """Return the argument that names a layout."""
    options = known_layouts()[layout.name]["options"]
    chosen = {key: next(iter(values)) for key, values in options.items()}
    others = " (or other values of its options)" if chosen else ""
    return Message(Ask("layout", Layout(layout.name, **chosen)), others)
