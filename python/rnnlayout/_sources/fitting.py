"""Which RNN are tensors of these names and shapes? Every kind of source asks this table.

The answer depends on nothing else, so it is kept: sources that are alike cost a look-up. In order:

1. Names of a dict are compared with those of the layouts: of the one that the caller names, else of
   all that need not be named. A list is in the order of the layout that the caller names.
2. With the caller's spec, names and shapes must be those of the spec in one of these layouts.
3. Otherwise each RNN of these names, or of so many tensors, is solved for its sizes.
4. If several fit, and are different networks, it is an error to be undecided.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from rnnlayout import _native
from rnnlayout._model.asks import Ask, Message, join_messages
from rnnlayout._model.describe import describe
from rnnlayout._model.layout import CUDNN, Layout, known_layouts, layouts_to_infer
from rnnlayout._model.spec import Spec, optional_tensors_of
from rnnlayout._model.undecided import error_with_text
from rnnlayout._native import HAS_BIAS, HAS_PEEPHOLES, LayoutError, SpecError

from . import mismatch
from .caller_spec import ACTIVATIONS, CallerSpec
from .candidates import (
    Guess,
    Shape,
    UnsizedRNN,
    candidates_with_count,
    candidates_with_names,
    guess_sizes,
    is_one_vector,
)
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


@dataclass(frozen=True)
class _Placed:
    """Tensors in one layout. where: the index of each by its name there; None for a list."""

    layout: Layout
    shapes: tuple[Shape, ...]
    where: dict[str, int] | None

    def order(self, names: Collection[str]) -> tuple[int, ...]:
        """Return the index of the tensor of each name; () if the tensors have others."""
        if self.where is None:
            return tuple(range(len(names))) if len(names) == len(self.shapes) else ()
        same = self.where.keys() == set(names)
        return tuple([self.where[name] for name in names]) if same else ()

    def named(self, names: Sequence[str], order: Sequence[int]) -> dict[str, Shape]:
        """Return the shapes by name."""
        return {name: self.shapes[k] for name, k in zip(names, order, strict=True)}


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
    names: tuple[str, ...] | None, shapes: tuple[Shape, ...], dtype: str, asked: CallerSpec
) -> tuple[FittingRNN, ...]:
    """Return the RNNs that tensors may be: different networks, all in one layout. names: those of a
    dict; None for a list, in the order of asked.layout. Raises LayoutError or SpecError if they are
    none, or networks of several layouts."""
    if asked.layout is not None or names is None:
        return _fitting_in_layouts(names, shapes, dtype, asked)
    try:
        found = _fitting_in_layouts(names, shapes, dtype, asked)
    except (LayoutError, SpecError) as error:
        if others := [layout for layout, _ in _fitting_if_named(names, shapes, dtype, asked)]:
            ways = join_messages(" or ", map(layout_argument, others))
            text = str(error) + "; these tensors fit " + ways
            raise error_with_text(error, text + ", which is read only if it is named") from None
        raise
    if len(found) == 1 and found[0].layout.name not in _BY_CONVENTION:
        others = [
            layout
            for layout, rnns in _fitting_if_named(names, shapes, dtype, asked)
            if not all(same_network(found[0], one) for one in rnns)
        ]
        if others:
            raise _several_layouts([found[0].layout, *others])
    return found


def _fitting_if_named(
    names: tuple[str, ...], shapes: tuple[Shape, ...], dtype: str, asked: CallerSpec
) -> Iterator[tuple[Layout, tuple[FittingRNN, ...]]]:
    """Yield the layouts to be named that the tensors fit, with the RNNs that they may be there."""
    for layout in layouts_read_if_named():
        if names_in_layouts(names, layout):
            with suppress(LayoutError, SpecError):  # other shapes, or not the asked RNN
                yield layout, fitting_rnns(names, shapes, dtype, replace(asked, layout=layout))


def _fitting_in_layouts(
    names: tuple[str, ...] | None, shapes: tuple[Shape, ...], dtype: str, asked: CallerSpec
) -> tuple[FittingRNN, ...]:
    if names is not None:
        placed = [
            _Placed(layout, shapes, {tensor: k for k, tensor in enumerate(tensors)})
            for layout, tensors in names_in_layouts(names, asked.layout)
        ]
    else:
        assert asked.layout is not None
        placed = [_Placed(asked.layout, shapes, None)]
    if (spec := asked.spec) is not None:
        spec = spec if spec.dtype == dtype else spec.replace(dtype=dtype)
        found = _rnns_of_spec(placed, names, spec)
    else:
        found = _inferred_rnns(placed, names, dtype, asked.hints)
    kept: list[FittingRNN] = []  # without biases, cells of Equinox are cells of torch
    for one in found:
        if not any(same_network(one, other) for other in kept):
            kept.append(one)
    if len({one.layout for one in kept}) > 1:
        raise _several_layouts(one.layout for one in kept)
    return tuple(kept)


def _inferred_rnns(
    placed: Sequence[_Placed],
    names: tuple[str, ...] | None,
    dtype: str,
    hints: Mapping[str, Any],
) -> list[FittingRNN]:
    kinds = hints.keys() & {"cell", "reset", "num_layers", "bidirectional"}
    symbols = {"input_size": "I", "hidden_size": "H", "proj_size": "P"}
    sizes = {symbol: hints[name] for name, symbol in symbols.items() if name in hints}
    guesses: list[tuple[Guess, tuple[int, ...]]] = []
    for one in placed:
        if is_one_vector(one.layout):
            raise SpecError(
                f"{one.layout} is one flat vector, which does not record its RNN: pass "
                + Ask("spec")
                + ", which describes it"
            )
        fit: Iterable[UnsizedRNN] = (
            candidates_with_count(one.layout, len(one.shapes))
            if one.where is None
            else candidates_with_names(one.layout, frozenset(one.where))
        )
        for candidate in fit:
            if not all([getattr(candidate, key) == hints[key] for key in kinds]):
                continue
            order = one.order(candidate.names)
            guesses.append((guess_sizes(candidate, one.named(candidate.names, order)), order))
    if not guesses:
        raise _no_match(placed, names, None, hints)
    right = [
        (g, order)
        for g, order in guesses
        if g.fits and all([g.sizes.get(symbol, 0) == n for symbol, n in sizes.items()])
    ]
    if not right:
        closest = min((g for g, _ in guesses), key=lambda g: len(g.wrong)).candidate.names
        raise mismatch.wrong_shapes([g for g, _ in guesses if g.candidate.names == closest])
    known = {key: hints[key] for key in ACTIVATIONS if key in hints}
    found = []
    for g, order in right:
        spec, rnn = g.spec(dtype).replace(**known), g.candidate
        found.append(FittingRNN(spec, rnn.layout, rnn.optional_tensors, rnn.names, order))
    return found


def _rnns_of_spec(
    placed: Sequence[_Placed], names: tuple[str, ...] | None, spec: Spec
) -> list[FittingRNN]:
    matches = []
    for one in placed:
        for more in (0, HAS_BIAS, HAS_PEEPHOLES, HAS_BIAS | HAS_PEEPHOLES):
            optional_tensors = optional_tensors_of(spec) ^ more  # first those that the spec has
            try:
                expected = dict(_native.tensors(one.layout, spec, optional_tensors))
            except ValueError:
                if len(placed) == 1:
                    raise
                continue
            if order := one.order(expected):
                matches.append((one, optional_tensors, order, expected))
    if not matches:
        raise _no_match(placed[:1], names, list(describe(spec, placed[0].layout)), {})
    exact = [
        FittingRNN(spec, one.layout, optional_tensors, tuple(expected), order)
        for one, optional_tensors, order, expected in matches
        if [one.shapes[k] for k in order] == [*expected.values()]
    ]
    if not exact:
        one, optional_tensors, order, expected = matches[0]
        found = one.named(list(expected), order)
        raise mismatch.spec_mismatch(one.layout, spec, optional_tensors, found, expected)
    return exact


def _no_match(
    placed: Sequence[_Placed],
    names: tuple[str, ...] | None,
    expected: list[str] | None,
    hints: Mapping[str, Any],
) -> LayoutError:
    """Return the error for tensors that have the names, or the number, of no RNN."""
    if names is None:
        return mismatch.wrong_count(placed[0].layout, len(placed[0].shapes), expected)
    return mismatch.wrong_names([one.layout for one in placed], names, expected, hints=hints)


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
    steps = _native.Plan(a.spec, a.layout, a.optional_tensors, b.layout).steps()
    return all(op == "move" and not negate for op, _, _, negate, *_ in steps)


def _several_layouts(layouts: Iterable[Layout]) -> LayoutError:
    """Return the error for tensors that are different networks in these layouts."""
    names = sorted({layout.name for layout in layouts})
    return LayoutError(
        "these tensors fit several layouts, and are a different RNN in each: pass "
        + join_messages(" or ", [Ask("layout", name) for name in names])
    )


# --------------------------------------------------------------------- the layouts to look in


@cache
def plain_layouts() -> tuple[Layout, ...]:
    """Return the layouts that a dict of tensors may be in without naming it. Not cudnn, which is a
    flat vector, nor concat, whose tensors do not show its options."""
    known = known_layouts()
    return tuple(layout for layout in layouts_to_infer()
            if not is_one_vector(layout) and not known[layout.name]["options"])  # fmt: skip


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
