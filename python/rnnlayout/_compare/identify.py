"""identify: find the layout of tensors of unknown origin that turn x into y."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from rnnlayout._model.errors import Ask, Message
from rnnlayout._model.layout import Layout
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError

from .blocks import UNITS, check_tolerance
from .identify_candidates import Candidate, candidate_of
from .identify_inputs import read_numbers, read_states, read_x_and_y, tensors_to_try
from .identify_search import Match, Search

_SHOWN = 5  # candidates in the report
_KEPT = 20
# Candidates tie with the best candidate if the error is at most this many times as large.
_TIE = 8
_NEAR = 0.02  # an error up to this: a right network in low precision, or a wrong network


@dataclass(frozen=True, repr=False)
class Identified:
    """The result of identify(). True if a candidate agrees with y; str() and repr() give the
    report.

    candidates: best first. tied: the number of candidates that agree equally well: x and y cannot
    distinguish between tied candidates. layout: of the first candidate, reads the next checkpoint.
    best: the Weights of the first candidate, ready to use; None if no candidate has the shapes.
    tried: the number of networks that were run. notes: facts that x and y do not show, and cases
    that were not tried. text: the result in one sentence.
    """

    candidates: tuple[Candidate, ...]
    tied: int
    best: Weights | None
    tried: int
    notes: tuple[str, ...]
    text: str

    def __bool__(self) -> bool:
        return self.tied > 0

    @property
    def layout(self) -> Layout | None:
        """The layout of the first candidate, to read the next checkpoint with; None if no candidate
        agrees or no row describes the tensors."""
        return self.candidates[0].layout if self else None

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        code = [f"read it with: {self.candidates[0].call}"] if self else []
        return "\n".join([*self.report, *code])

    @property
    def report(self) -> list[str]:
        """The lines of the report, without the code that reads the tensors."""
        lines = [self.text]
        shown = self.candidates[: min(max(self.tied, 2), _SHOWN) if self else _SHOWN]
        if len(shown) > 1:
            for candidate in shown:
                mark = " " if candidate.agrees else "!"
                lines.append(f"  {_error_text(candidate.error):8}{mark} {candidate.text}")
        if self.tied > _SHOWN:
            lines.append(f"  and {self.tied - _SHOWN} more")
        return lines + ["note: " + note for note in self.notes]

    def to_dict(self) -> dict[str, Any]:
        """Return all but best, ready for JSON."""
        attributes = [attribute.name for attribute in fields(Candidate)[:-1]]
        return {
            "found": bool(self),
            "text": self.text,
            "tied": self.tied,
            "tried": self.tried,
            "candidates": [
                {name: getattr(candidate, name) for name in attributes}
                | {
                    "layouts": [str(layout) for layout in candidate.layouts],
                    "layout": candidate.layout and candidate.layout.row,
                    "spec": candidate.spec.to_dict(),
                }
                for candidate in self.candidates
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
    """Find the layout, cell and conventions that turn x into y with the tensors.

    tensors: a dict of arrays with any names, a list of arrays, as get_weights() returns, a 1-D
        array with all numbers, or a file. Names and shapes are compared with every layout; if no
        layout agrees, custom layouts are tried: any order of gates, any order of axes.
    x: an input: (T, N, I), (N, T, I), (T, I), or of a single step (N, I) or (I,).
    y: the output for x: of all steps, with the axes of x; of the last step, without T; or h_n,
        (L * D, N, P). Both may be .npy files.
    state: the initial state, h_0 or (h_0, c_0), in the form that an RNN takes; None for zeros.
    prefix: use only tensors whose names start with the prefix.
    atol: the largest difference between y and an output besides rounding, for y with TF32 or noise.
    format, mmap: for the file with the tensors, see load().

    Pass at least two steps, several units, and weights and biases that are not zero: otherwise
    several candidates may be tied.

    Returns an Identified. Raises LayoutError if an array is not an array of finite floats, or y
    cannot be an output for x; SpecError for a wrong atol; and, for files, the errors of load().

        >>> rng = np.random.default_rng(0)
        >>> kernel, recurrent, bias = (rng.normal(size=s) for s in [(2, 12), (3, 12), (12,)])
        >>> x = rng.normal(size=(5, 1, 2))
        >>> from rnnlayout import forward
        >>> y, _ = forward(x, [kernel, recurrent, bias], layout="dl4j")
        >>> result = identify({"a": kernel, "b": recurrent, "c": bias}, x, y)
        >>> print(result.candidates[0].layouts, result.tied)
        (layout('dl4j'),) 1
    """
    x_values, x_dtype = read_numbers(x, "x")
    y_values, y_dtype = read_numbers(y, "y")
    if not y_values.any():
        raise LayoutError(
            "y is zero everywhere, which every RNN with zero weights gives: pass another x and y"
        )
    observed, states = read_x_and_y(x_values, y_values), read_states(state)
    check_tolerance("atol", atol)
    searches: list[Search] = []
    matches: list[Match] = []
    for part in tensors_to_try(tensors, prefix, format, mmap):
        unit = max(UNITS[name] for name in (part.dtype, x_dtype, y_dtype) if name)
        searches.append(Search(part, observed, states, unit, float(atol)))
        matches += searches[-1].run()
        if any(match.agrees for match in matches):
            break
    return _make_result(matches, searches)


def _make_result(matches: Sequence[Match], searches: Sequence[Search]) -> Identified:
    last = searches[-1]
    tried = sum(search.tried for search in searches)
    least = min((match.error for match in matches if match.agrees), default=0.0)
    noise = last.unit * max(np.abs(observed.y).max() for observed in last.observed)
    tied = [match for match in matches if match.agrees and match.error <= _TIE * max(least, noise)]
    worse = sorted(
        (match for match in matches if match not in tied),
        key=lambda match: match.rank,
    )
    candidates = tuple(candidate_of(match) for match in [*tied, *worse][:_KEPT])
    notes = []
    if tied and all(len(match.observed.x) == 1 for match in tied) and not last.state:
        notes = ["one step from a zero state does not show the recurrent matrix: pass more steps"]
    elif tied and tied[0].join == "swapped":
        notes = ["best puts the forward direction first: exchange the two halves of each output"]
    elif not tied and last.tensors.is_flat:
        notes = ["a vector was read in the layouts of the table only, with at most 8 layers"]
    elif not tied:
        notes = ["in layouts that are in no row, not tried: projections, peepholes"]
    if not tied and worse and (part := _agreeing_part(worse[0])):
        notes.append(part)
    near = any(match.error <= _NEAR for match in matches)
    if not tied and near and last.unit == UNITS["float32"]:
        why = "for y made in TF32 or on a GPU with reduced precision, pass "
        notes.append(Message(why, Ask("atol"), ", such as 0.01").text)
    if any(search.stopped for search in searches):
        notes.append(f"not everything was tried: the search ended after {tried} networks")
    if tied:
        text = f"{candidates[0].text}: agrees with y to {_error_text(candidates[0].error)}"
        if num_others := len(tied) - 1:
            rivals = f"do {num_others} others" if num_others > 1 else "does another"
            text += f"; so {rivals}, which x and y cannot tell apart"
    elif candidates:
        text = (
            f"no layout agrees with y; the nearest of {tried} networks is off by"
            f" {_error_text(candidates[0].error)}: {candidates[0].text}"
        )
    elif tried:
        text = f"none of {tried} networks agrees with y"
    else:
        text = (
            f"no layout has tensors of these shapes for x with I = {last.observed[0].x.shape[-1]}"
            f" and y with {last.observed[0].width} elements per step"
        )
    best = candidates[0].weights if candidates else None
    return Identified(candidates, len(tied), best, tried, tuple(notes), text)


def _agreeing_part(match: Match) -> str:
    """Return a note if some steps of y agree with a network; "" otherwise."""
    if match.steps is None or not match.steps.any() or match.steps.all():
        return ""
    (step, sequence), size = np.argwhere(~match.steps)[0].tolist(), match.steps.size
    where = f"step {step}" + f" of sequence {sequence}" * (match.steps.shape[1] > 1)
    return (
        f"{match.steps.sum()} of {size} steps agree with a network, {where} is the first that does"
        " not: are steps masked or padded? Pass x and y without them"
    )


def _error_text(value: float) -> str:
    return f"{value:.1e}"
