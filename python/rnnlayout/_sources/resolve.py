"""Find out which RNN arrays are: the one of the caller's spec, or of their names and shapes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._model.asks import Ask
from rnnlayout._model.checked_rnn import CheckedRNN
from rnnlayout._model.describe import describe
from rnnlayout._model.dtypes import Bits, as_carrier, take_bits
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import Spec, optional_tensors_of
from rnnlayout._native import HAS_BIAS, HAS_PEEPHOLES, LayoutError, SpecError

from . import mismatch
from .candidates import UnsizedRNN, candidates_with_count, candidates_with_names, is_one_vector
from .infer import ACTIVATIONS, Guess, Shape, choose_rnn, guess_sizes

NamedArrays = dict[str, np.ndarray]  # by the layout's names
Arrays = NamedArrays | list[np.ndarray]  # a list is in the layout's order


@dataclass(frozen=True)
class CallerSpec:
    """What the caller says about the RNN. dtype_free: whether the arrays may have another dtype
    than the spec, because the caller passed dtype=. hints: the fields of the spec that the caller
    passed one by one, such as cell.
    """

    spec: Spec | None
    layout: Layout | None
    dtype_free: bool
    hints: dict[str, Any]


# ------------------------------------------------------------------------------ one dtype for all


@dataclass(frozen=True)
class BitsByName:
    """The bits of an RNN's arrays by name, all of one dtype. rounded: the names of weights that
    were rounded when they were computed from what the source stores (weight norm).
    """

    arrays: NamedArrays
    dtype: str
    rounded: tuple[str, ...]


def take_all_bits(values: Iterable[tuple[str, Any]], asked: CallerSpec) -> BitsByName:
    """Take arrays of one dtype, each with a name for messages."""
    values = list(values)
    taken = {name: take_bits(value, name) for name, value in values}
    first, (_, dtype) = next(iter(taken.items()))
    for name, (_, other) in taken.items():
        if other != dtype:
            raise LayoutError(
                f"{first} is {dtype} but {name} is {other}: all tensors of an RNN need one dtype"
            )
    check_dtype(first, dtype, asked)
    rounded = tuple(name for name, value in values if isinstance(value, Bits) and value.rounded)
    return BitsByName({name: array for name, (array, _) in taken.items()}, dtype, rounded)


def check_dtype(name: str, dtype: str, asked: CallerSpec) -> None:
    if asked.spec is not None and dtype != asked.spec.dtype and not asked.dtype_free:
        raise LayoutError(
            f"{name} is {dtype}, the spec says {asked.spec.dtype}: pass "
            + Ask("dtype", asked.spec.dtype)
            + " to convert, or "
            + Ask("spec", asked.spec.replace(dtype=dtype))
        )


# ------------------------------------------------------------------------------------- resolving


def resolve_rnn(
    found: list[tuple[Layout, Arrays]],
    taken: BitsByName,
    asked: CallerSpec,
    original: Sequence[str] = (),
) -> CheckedRNN:
    """Return the one RNN that the arrays fit.

    found: the arrays in each layout that they may be in. original: the names of those in a dict,
    for messages.
    """
    if asked.spec is not None:
        one = resolve_by_spec(found, asked.spec.replace(dtype=taken.dtype), original)
    else:
        one = _infer_rnn(found, taken.dtype, asked, original)
    return replace(one, rounded=taken.rounded)


def _infer_rnn(
    found: list[tuple[Layout, Arrays]], dtype: str, asked: CallerSpec, original: Sequence[str]
) -> CheckedRNN:
    guesses: list[tuple[Guess, NamedArrays]] = []
    for layout, arrays in found:
        if is_one_vector(layout):
            raise SpecError(
                f"{layout} is one flat vector, which does not record its RNN: pass "
                + Ask("spec")
                + ", which describes it"
            )
        for candidate in _candidates(layout, arrays, asked.hints):
            named = _order_arrays(candidate.names, arrays)
            guesses.append((guess_sizes(candidate, _shapes_by_name(named)), named))
    if not guesses:
        raise _no_match(found, original, None, asked.hints)
    right = [(g, named) for g, named in guesses if g.fits and _agrees(g, asked.hints)]
    if not right:
        names = min((g for g, _ in guesses), key=lambda g: len(g.wrong)).candidate.names
        raise mismatch.wrong_shapes([g for g, _ in guesses if g.candidate.names == names])
    known = {key: asked.hints[key] for key in ACTIVATIONS if key in asked.hints}
    return choose_rnn(
        [
            _make_checked_rnn(
                g.spec(dtype).replace(**known),
                g.candidate.layout,
                g.candidate.optional_tensors,
                named,
            )
            for g, named in right
        ]
    )


def _no_match(
    found: list[tuple[Layout, Arrays]],
    original: Sequence[str],
    expected: list[str] | None,
    hints: dict[str, Any],
) -> LayoutError:
    """Return the error for arrays that have the names, or the number, of no RNN."""
    layout, arrays = found[0]
    if isinstance(arrays, list):
        return mismatch.wrong_count(layout, len(arrays), expected)
    return mismatch.wrong_names([layout for layout, _ in found], original, expected, hints=hints)


def _candidates(layout: Layout, arrays: Arrays, hints: dict[str, Any]) -> list[UnsizedRNN]:
    """Return the RNNs with so many tensors, of these names, that agree with the hints."""
    if isinstance(arrays, dict):
        fit: Iterable[UnsizedRNN] = candidates_with_names(layout, frozenset(arrays))
    else:
        fit = candidates_with_count(layout, len(arrays))
    keys = hints.keys() & {"cell", "reset", "num_layers", "bidirectional"}
    return [c for c in fit if all([getattr(c, key) == hints[key] for key in keys])]


def _agrees(g: Guess, hints: dict[str, Any]) -> bool:
    sizes = {"input_size": "I", "hidden_size": "H", "proj_size": "P"}
    return all([g.sizes.get(sizes[key], 0) == hints[key] for key in hints.keys() & sizes.keys()])


def resolve_by_spec(
    found: list[tuple[Layout, Arrays]], spec: Spec, original: Sequence[str]
) -> CheckedRNN:
    """Return the RNN of this spec that the arrays fit. found: the arrays in each layout that they
    may be in. original: the names of those in a dict, for messages.
    """
    matches = []
    for layout, arrays in found:
        for optional_tensors in _optional_variants(spec):
            try:
                expected = dict(_native.tensors(layout, spec, optional_tensors))
            except ValueError:
                if len(found) == 1:
                    raise
                continue
            if named := _order_arrays(expected, arrays):
                matches.append((layout, optional_tensors, named, expected))
    if not matches:
        raise _no_match(found[:1], original, list(describe(spec, found[0][0])), {})
    exact = [match for match in matches if _shapes_by_name(match[2]) == match[3]]
    if not exact:
        layout, optional_tensors, named, expected = matches[0]
        raise mismatch.spec_mismatch(
            layout, spec, optional_tensors, _shapes_by_name(named), expected
        )
    return choose_rnn(
        [
            _make_checked_rnn(spec, layout, optional_tensors, named)
            for layout, optional_tensors, named, _ in exact
        ]
    )


def _optional_variants(spec: Spec) -> list[int]:
    """Return which optional tensors a source may have, first those that the spec has."""
    first = optional_tensors_of(spec)
    return [first ^ more for more in (0, HAS_BIAS, HAS_PEEPHOLES, HAS_BIAS | HAS_PEEPHOLES)]


def _order_arrays(names: Collection[str], arrays: Arrays) -> NamedArrays:
    """Return the arrays by name, in the order of the names; {} if they have others."""
    if isinstance(arrays, list):
        return dict(zip(names, arrays, strict=True)) if len(names) == len(arrays) else {}
    return {name: arrays[name] for name in names} if arrays.keys() == set(names) else {}


def _shapes_by_name(named: NamedArrays) -> dict[str, Shape]:
    return {name: array.shape for name, array in named.items()}


def _make_checked_rnn(
    spec: Spec, layout: Layout, optional_tensors: int, named: NamedArrays
) -> CheckedRNN:
    return CheckedRNN(
        spec, layout, optional_tensors, list(named), [as_carrier(a) for a in named.values()]
    )
