"""Find out which RNN arrays are: the one of the caller's spec, or of their names and shapes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._model.describe import describe
from rnnlayout._model.dtypes import Bits, as_carrier, take
from rnnlayout._model.given import Given
from rnnlayout._model.layout import Layout
from rnnlayout._model.optional import spec_has
from rnnlayout._model.spec import Spec
from rnnlayout._native import HAS_BIAS, HAS_PEEPHOLES, LayoutError, SpecError

from . import mismatch
from .candidates import Candidate, is_flat, with_count, with_names
from .infer import ACTIVATIONS, Guess, Shape, choose, guess

Named = dict[str, np.ndarray]  # by the layout's names
Arrays = Named | list[np.ndarray]  # a list is in the layout's order


@dataclass(frozen=True)
class Asked:
    """What the caller knows of the RNN. hints: fields of its spec."""

    spec: Spec | None
    layout: Layout | None
    dtype_free: bool
    hints: dict[str, Any]


# ------------------------------------------------------------------------------ one dtype for all


@dataclass(frozen=True)
class Taken:
    """The bits of arrays by name, and their one dtype. rounded: see Given."""

    arrays: Named
    dtype: str
    rounded: tuple[str, ...]


def take_all(values: Iterable[tuple[str, Any]], asked: Asked) -> Taken:
    """Take arrays of one dtype, each with a name for messages."""
    values = list(values)
    taken = {name: take(value, name) for name, value in values}
    first, (_, dtype) = next(iter(taken.items()))
    for name, (_, other) in taken.items():
        if other != dtype:
            raise LayoutError(
                f"{first} is {dtype} but {name} is {other}: all tensors of an RNN need one dtype"
            )
    check_dtype(first, dtype, asked)
    rounded = tuple(name for name, value in values if isinstance(value, Bits) and value.rounded)
    return Taken({name: array for name, (array, _) in taken.items()}, dtype, rounded)


def check_dtype(name: str, dtype: str, asked: Asked) -> None:
    if asked.spec is not None and dtype != asked.spec.dtype and not asked.dtype_free:
        raise LayoutError(
            f"{name} is {dtype}, the spec says {asked.spec.dtype}: pass dtype={asked.spec.dtype!r}"
            f" to convert, or spec=rl.{asked.spec.replace(dtype=dtype)!r}"
        )


# ------------------------------------------------------------------------------------- resolving


def resolve(
    found: list[tuple[Layout, Arrays]], taken: Taken, asked: Asked, original: Sequence[str] = ()
) -> Given:
    """Return the one RNN that the arrays fit.

    found: the arrays in each layout that they may be in. original: the names of those in a dict,
    for messages.
    """
    if asked.spec is not None:
        one = by_spec(found, asked.spec.replace(dtype=taken.dtype), original)
    else:
        one = _inferred(found, taken.dtype, asked, original)
    return replace(one, rounded=taken.rounded)


def _inferred(
    found: list[tuple[Layout, Arrays]], dtype: str, asked: Asked, original: Sequence[str]
) -> Given:
    guesses: list[tuple[Guess, Named]] = []
    for layout, arrays in found:
        if is_flat(layout):
            raise SpecError(
                f"{layout} is one flat vector, which does not record its RNN: pass"
                " spec=rl.Spec(...), which describes it"
            )
        for candidate in _candidates(layout, arrays, asked.hints):
            named = _ordered(candidate.names, arrays)
            guesses.append((guess(candidate, _shapes(named)), named))
    if not guesses:
        raise _no_match(found, original, None, asked.hints)
    right = [(g, named) for g, named in guesses if g.fits and _agrees(g, asked.hints)]
    if not right:
        names = min((g for g, _ in guesses), key=lambda g: len(g.wrong)).candidate.names
        raise mismatch.wrong_shapes([g for g, _ in guesses if g.candidate.names == names])
    known = {key: asked.hints[key] for key in ACTIVATIONS if key in asked.hints}
    return choose([
        _given(g.spec(dtype).replace(**known), g.candidate.layout, g.candidate.has, named)
        for g, named in right
    ])  # fmt: skip


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


def _candidates(layout: Layout, arrays: Arrays, hints: dict[str, Any]) -> list[Candidate]:
    """Return the RNNs with so many tensors, of these names, that agree with the hints."""
    if isinstance(arrays, dict):
        fit: Iterable[Candidate] = with_names(layout, frozenset(arrays))
    else:
        fit = with_count(layout, len(arrays))
    keys = hints.keys() & {"cell", "reset", "num_layers", "bidirectional"}
    return [c for c in fit if all([getattr(c, key) == hints[key] for key in keys])]


def _agrees(g: Guess, hints: dict[str, Any]) -> bool:
    sizes = {"input_size": "I", "hidden_size": "H", "proj_size": "P"}
    return all([g.sizes.get(sizes[key], 0) == hints[key] for key in hints.keys() & sizes.keys()])


def by_spec(found: list[tuple[Layout, Arrays]], spec: Spec, original: Sequence[str]) -> Given:
    """Return the RNN of this spec that the arrays fit. Arguments as of resolve()."""
    matches = []
    for layout, arrays in found:
        for has in _variants(spec):
            try:
                expected = dict(_native.tensors(layout, spec, has))
            except ValueError:
                if len(found) == 1:
                    raise
                continue
            if named := _ordered(expected, arrays):
                matches.append((layout, has, named, expected))
    if not matches:
        raise _no_match(found[:1], original, list(describe(spec, found[0][0])), {})
    exact = [match for match in matches if _shapes(match[2]) == match[3]]
    if not exact:
        layout, has, named, expected = matches[0]
        raise mismatch.against_spec(layout, spec, has, _shapes(named), expected)
    return choose([_given(spec, layout, has, named) for layout, has, named, _ in exact])


def _variants(spec: Spec) -> list[int]:
    """Return which optional tensors a source may have, first those that the spec has."""
    first = spec_has(spec)
    return [first ^ more for more in (0, HAS_BIAS, HAS_PEEPHOLES, HAS_BIAS | HAS_PEEPHOLES)]


def _ordered(names: Collection[str], arrays: Arrays) -> Named:
    """Return the arrays by name, in the order of the names; {} if they have others."""
    if isinstance(arrays, list):
        return dict(zip(names, arrays, strict=True)) if len(names) == len(arrays) else {}
    return {name: arrays[name] for name in names} if arrays.keys() == set(names) else {}


def _shapes(named: Named) -> dict[str, Shape]:
    return {name: array.shape for name, array in named.items()}


def _given(spec: Spec, layout: Layout, has: int, named: Named) -> Given:
    return Given(spec, layout, has, list(named), [as_carrier(a) for a in named.values()])
