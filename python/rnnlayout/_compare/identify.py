"""identify: in which layout do tensors of unknown origin turn x into y?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from rnnlayout._model.asks import Ask
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError, SpecError
from rnnlayout._sources.tensor_paths import prefixes_that_fit, strip_prefix
from rnnlayout._weights.weights import Weights, weights_of

from .blocks import UNITS
from .identify_inputs import (
    UnknownTensors,
    checked_tensors,
    read_numbers,
    read_tensor_values,
    read_x_and_y,
)
from .identify_rows import RowMatch, all_layouts, flat_rows, named_rows, shaped_rows
from .identify_search import Case, Match, Search
from .identify_words import is_batch_first, match_in_words, match_settings, reading_code

_SHOWN = 5  # candidates in the report
_KEPT = 20
# Candidates tie with the best one if their error is at most this many times as large.
_TIE = 8
_NEAR = 0.02  # off by so much: a right network in low precision, or a wrong one


@dataclass(frozen=True)
class Candidate:
    """One way to read the tensors.

    layouts: those in which they are this RNN, equal for these tensors; () if in none of the table.
    spec: the RNN's Spec. settings: how the RNN is used, with the names and values of
    Weights.config. batch_first: whether x is (N, T, I); None if x has no batch. text: the layout,
    the spec and the settings in words.
    error: the largest difference from y. allowed: how much of it rounding explains. agrees: whether
    rounding explains all of it. call: the Python code that reads the tensors in this way. weights:
    what this code returns.
    """

    layouts: tuple[Layout, ...]
    spec: Spec
    settings: dict[str, Any]
    batch_first: bool | None
    text: str
    error: float
    allowed: float
    agrees: bool
    call: str
    _read: Callable[[], Weights] = field(repr=False, compare=False)

    @cached_property
    def weights(self) -> Weights:
        """The tensors, ready to use."""
        return self._read()


@dataclass(frozen=True, repr=False)
class Identified:
    """The result of identify(). True if a candidate agrees with y; str() and repr() give the
    report.

    candidates: best first. tied: how many of them agree equally well: the data cannot tell these
    apart. best: the Weights of the first candidate, ready to use; None if no candidate has the
    shapes. tried: how many networks were run. notes: what the data do not show, and what was not
    tried. text: the result in one sentence.
    """

    candidates: tuple[Candidate, ...]
    tied: int
    best: Weights | None
    tried: int
    notes: tuple[str, ...]
    text: str

    def __bool__(self) -> bool:
        return self.tied > 0

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        more = [f"read it with: {self.candidates[0].call}"] if self else []
        return "\n".join([*self.report, *more])

    @property
    def report(self) -> list[str]:
        """The lines of the report, without the code that reads the tensors."""
        lines = [self.text]
        shown = self.candidates[: min(max(self.tied, 2), _SHOWN) if self else _SHOWN]
        if len(shown) > 1:
            lines += [f"  {_error_text(one.error):8}{' ' if one.agrees else '!'} {one.text}"
                      for one in shown]  # fmt: skip
        if self.tied > _SHOWN:
            lines.append(f"  and {self.tied - _SHOWN} more")
        return lines + ["note: " + note for note in self.notes]

    def to_dict(self) -> dict[str, Any]:
        """Return all but best, ready for JSON."""
        return {
            "found": bool(self),
            "text": self.text,
            "tied": self.tied,
            "tried": self.tried,
            "candidates": [
                {
                    "layouts": [str(layout) for layout in one.layouts],
                    "spec": one.spec.to_dict(),
                    "settings": one.settings,
                    "batch_first": one.batch_first,
                    "text": one.text,
                    "error": one.error,
                    "allowed": one.allowed,
                    "agrees": one.agrees,
                    "call": one.call,
                }
                for one in self.candidates
            ],
            "notes": list(self.notes),
        }


def identify(
    tensors: Any,
    x: Any,
    y: Any,
    *,
    state: Any = None,
    prefix: str = "",
    atol: float = 0.0,
    format: str | None = None,
    mmap: bool = True,
) -> Identified:
    """Find the layout, cell and conventions in which tensors turn x into y.

    tensors: a dict of arrays with any names, a list of them, as get_weights() returns, one 1-D
        array with all of them, or a file. Names and shapes are compared with every layout; if none
        agrees, custom layouts are tried: any order of gates, any order of axes.
    x: one input: (T, N, I), (N, T, I), (T, I), or of one step (N, I) or (I,).
    y: the output that belongs to it: of all steps, with the axes of x; of the last step, without T;
        or h_n, (L * D, N, P). Both may be .npy files.
    state: the initial state, h_0 or (h_0, c_0), as RNN() takes it; None for zeros.
    prefix: use only the tensors under it.
    atol: how far y may be from an output besides rounding, for y made in TF32 or with noise.
    format: of the file with the tensors, if its name does not show it, as for load(). mmap: as for
        load().

    Pass at least two steps, several units, and weights and biases that are not zero: what they do
    not show is listed as tied candidates.

    Returns an Identified. Raises LayoutError if an array is not one of finite floats, or y cannot
    belong to x; SpecError for a wrong atol; and, for files, what load() raises.

        >>> rng = np.random.default_rng(0)
        >>> kernel, recurrent, bias = (rng.normal(size=s) for s in [(2, 12), (3, 12), (12,)])
        >>> x = rng.normal(size=(5, 1, 2))
        >>> from rnnlayout import forward
        >>> y, _ = forward(x, [kernel, recurrent, bias], layout="dl4j")
        >>> found = identify({"a": kernel, "b": recurrent, "c": bias}, x, y)
        >>> print(found.candidates[0].layouts, found.tied)
        (layout('dl4j'),) 1
    """
    given_x, x_dtype = read_numbers(x, "x")
    given_y, y_dtype = read_numbers(y, "y")
    if not given_y.any():
        raise LayoutError("y is zero everywhere, which every RNN with zero weights gives: pass"
                          " another x and y")  # fmt: skip
    observed, states = read_x_and_y(given_x, given_y), _read_states(state)
    if not isinstance(atol, (int, float)) or not 0 <= atol < np.inf:
        raise SpecError(f"atol is {atol!r}, need a number, 0 or greater")
    searches: list[Search] = []
    found: list[Match] = []
    for part in _tensors_to_try(tensors, prefix, format, mmap):
        unit = max(UNITS[name] for name in (part.dtype, x_dtype, y_dtype) if name)
        search = Search(part, observed, states, unit, float(atol))
        found += _search_in_order(search)
        searches.append(search)
        if any(one.score.agrees for one in found):
            break
    return _make_result(found, searches)


def _read_states(state: Any) -> tuple[np.ndarray, ...]:
    if state is None:
        return ()
    parts = state if isinstance(state, (tuple, list)) and len(state) == 2 else [state]
    return tuple(
        read_numbers(part, name)[0] for part, name in zip(parts, ("h_0", "c_0"), strict=False)
    )


def _tensors_to_try(
    source: Any, prefix: str, format: str | None, mmap: bool
) -> Iterator[UnknownTensors]:
    """Yield the tensors under each prefix that fits, then all of them."""
    values, prefix = read_tensor_values(source, prefix, format, mmap)
    is_nested = not isinstance(source, Mapping) or any(
        isinstance(value, Mapping) for value in source.values()
    )
    inner = []
    if isinstance(values, dict):
        under = {rest: name for name, rest in strip_prefix(values, prefix).items()}
        inner = prefixes_that_fit(all_layouts(), list(under))
    for part in inner:
        name, rest = next(iter(strip_prefix(under, part).items()))
        key = under[name]
        yield checked_tensors(values, key[: len(key) - len(rest)].rstrip("./"), is_nested)
    try:
        everything = checked_tensors(values, prefix, is_nested)
    except LayoutError:
        if not inner:
            raise
    else:
        yield everything


def _search_in_order(search: Search) -> list[Match]:
    """Return what the first way of reading the tensors finds that agrees with y, else the nearest:
    by names, by shapes, as a custom layout."""
    tensors, observed = search.tensors, search.observed
    ways: list[Iterator[Case]] = [
        named_rows(tensors, observed), shaped_rows(tensors, observed), search.custom_layouts()
    ]  # fmt: skip
    if tensors.is_flat:
        ways = [flat_rows(tensors, observed)]
    found: list[Match] = []
    for way in ways:
        found += search.best_of(way)
        if any(one.score.agrees for one in found):
            break
    return found


def _make_result(found: Sequence[Match], searches: Sequence[Search]) -> Identified:
    search = searches[-1]
    tried = sum(one.tried for one in searches)
    right = [one for one in found if one.score.agrees]
    least = min((one.score.error for one in right), default=0.0)
    noise = search.unit * max(np.abs(one.y).max() for one in search.observed)
    tied = [one for one in right if one.score.error <= _TIE * max(least, noise)]
    worse = sorted((one for one in found if one not in tied),
                    key=lambda one: (not one.score.agrees, one.score.error))  # fmt: skip
    ranked = [*tied, *worse][:_KEPT]
    candidates = tuple(_make_candidate(one) for one in ranked)
    near = any(one.score.error <= _NEAR for one in found)
    notes = list(_identify_notes(search, tied, near))
    if any(one.stopped for one in searches):
        notes.append(f"not everything was tried: the search ended after {tried} networks")
    if not candidates and tried:
        return Identified(
            (), 0, None, tried, tuple(notes), f"none of {tried} networks agrees with y"
        )
    if not candidates:
        text = (
            f"no layout has tensors of these shapes for x with I = {search.observed[0].x.shape[-1]}"
            f" and y with {search.observed[0].width} elements per step"
        )
        return Identified((), 0, None, tried, tuple(notes), text)
    first = candidates[0]
    if not tied:
        text = (
            f"no layout agrees with y; the nearest of {tried} networks is off by"
            f" {_error_text(first.error)}: {first.text}"
        )
    else:
        text = f"{first.text}: agrees with y to {_error_text(first.error)}"
        if others := len(tied) - 1:
            more = f"do {others} others" if others > 1 else "does another"
            text += f"; so {more}, which x and y cannot tell apart"
    return Identified(candidates, len(tied), first.weights, tried, tuple(notes), text)


def _make_candidate(found: Match) -> Candidate:
    case, tensors = found.cases[0], found.tensors
    layouts = dict.fromkeys(one.layout for one in found.cases if isinstance(one, RowMatch))
    return Candidate(
        tuple(layouts),
        case.spec.replace(dtype=tensors.dtype),
        match_settings(found),
        is_batch_first(found.observed),
        match_in_words(found),
        found.score.error,
        found.score.allowed,
        found.score.agrees,
        reading_code(found),
        partial(_candidate_weights, found),
    )


def _candidate_weights(found: Match) -> Weights:
    given = found.cases[0].checked_rnn(found.tensors.arrays, found.tensors.dtype)
    return weights_of(
        replace(given, config=match_settings(found), batch_first=is_batch_first(found.observed))
    )


def _identify_notes(search: Search, tied: Sequence[Match], near: bool) -> Iterator[str]:
    if tied and all(len(one.observed.x) == 1 for one in tied) and not search.state:
        yield "one step from a zero state does not show the recurrent matrix: pass more steps"
    if not tied and search.tensors.is_flat:
        yield "a vector was read in the layouts of the table only, with at most 8 layers"
    elif not tied:
        yield "in layouts that are in no row, not tried: projections, peepholes"
    if not tied and near and search.unit == UNITS["float32"]:
        why = "for y made in TF32 or on a GPU with reduced precision, pass "
        yield why + Ask("atol") + ", such as 0.01"


def _error_text(value: float) -> str:
    return f"{value:.1e}"
