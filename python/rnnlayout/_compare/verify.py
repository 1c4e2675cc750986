"""verify: do two files, or two sources, have the same RNNs?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnlayout._files.bags.found import Found
from rnnlayout._files.bags.stacks import joined
from rnnlayout._files.files import load
from rnnlayout._model.config import describe_config
from rnnlayout._model.spec import Spec, unlike
from rnnlayout._native import SpecError
from rnnlayout._weights.weights import Weights

from .blocks import Block, Compare, Gap, Gate, blocks_of, may_sum, one_bias, with_sums
from .causes import causes

_MOST = 40  # lines of a report


@dataclass(frozen=True)
class Compared:
    """One RNN of each side. True if they differ.

    text: how they differ, "" if they do not. gaps: the blocks that differ. note: other remarks.
    """

    a: str
    b: str
    text: str = ""
    gaps: tuple[Gap, ...] = ()
    note: str = ""

    def __bool__(self) -> bool:
        return bool(self.text)


@dataclass(frozen=True)
class Verified:
    """The result of verify(). True if all RNNs are equal; str() gives the report.

    pairs: one per RNN that both sides have, with its names `a` and `b`, `text` (how the two
        differ, "" if they do not), `gaps` (the blocks that differ), and `note`.
    only_a, only_b: names of RNNs that the other side lacks.
    unread: name -> why it could not be read, of either side.
    """

    pairs: tuple[Compared, ...]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    unread: Mapping[str, Exception] | None = None

    @property
    def equal(self) -> bool:
        """Are all RNNs equal, bit for bit or within the tolerance?"""
        return not (self.only_a or self.only_b or self.unread or any(self.pairs))

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        lines = []
        for pair in self.pairs:
            name = pair.a if pair.a == pair.b else f"{pair.a} and {pair.b}"
            text = pair.text or "equal"
            lines.append(f"{name}: {text}" if name else text)
            lines += [f"  {pair.note}"] if pair.note else []
        lines += [f"{name}: only in a" for name in self.only_a]
        lines += [f"{name}: only in b" for name in self.only_b]
        lines += [f"{name}: cannot be read: {why}" for name, why in (self.unread or {}).items()]
        return "\n".join(lines)


def verify(a: Any, b: Any, *, rtol: float = 0, atol: float = 0) -> Verified:
    """Compare RNNs, which may be in different layouts, and in files of different formats.

    a, b: file names (str or Path), what load() returns, Weights, or anything that Weights()
        accepts. What one of them does not record about its RNN is taken from the other.
    rtol, atol: tolerance, abs(a - b) <= atol + rtol * abs(b). With 0, 0 all bits and the dtype
        must be equal.

    RNNs are matched by name, or, if each side has only one, whatever their names. NAME_0, NAME_1
    ... are the layers of NAME on the other side: in Keras each layer is an RNN. They are compared
    gate by gate after conversion to one form. If one has one bias per gate and the other two,
    their sum is compared, rounded as a conversion rounds it, and the report says so.

    Returns a Verified, which is true if all RNNs are equal. Errors: see load() and Weights().

        >>> import numpy as np
        >>> keras = {"kernel": np.ones((3, 8)), "recurrent_kernel": np.ones((2, 8))}
        >>> print(verify(keras, Weights(keras).to("torch")))
        equal
        >>> wrong = {**keras, "kernel": np.eye(3, 8)}
        >>> bool(verify(keras, wrong))
        False
    """
    first, second = _both(a, b)
    first, second = joined(first, second), joined(second, first)
    unread = {f"{side}: {name}": why for side, found in (("a", first), ("b", second))
              for name, why in found.refused.items()}  # fmt: skip
    if len(first) == len(second) == 1 and not unread:
        matched = [(next(iter(first)), next(iter(second)))]
    else:
        matched = [(name, name) for name in first if name in second.keys() - second.refused.keys()]
    pairs = [
        compare(first[x], second[y], f"between a ({first[x].layout}) and b ({second[y].layout})",
                rtol, atol, called=(x, y))
        for x, y in matched
    ]  # fmt: skip
    only_a = tuple(name for name in first if name not in {x for x, _ in matched})
    only_b = tuple(name for name in second if name not in {y for _, y in matched})
    return Verified(tuple(pairs), only_a, only_b, unread or None)


def _both(a: Any, b: Any) -> tuple[Found, Found]:
    """Return the RNNs of both. If one does not record its spec, it is that of the other's RNN."""
    try:
        first = _found(a)
    except SpecError as error:
        try:
            second = _found(b)
        except SpecError:
            raise _unknown("a", a, error) from None
        return _found(a, _only_spec(second, _unknown("a", a, error))), second
    try:
        return first, _found(b)
    except SpecError as error:
        return first, _found(b, _only_spec(first, _unknown("b", b, error)))


def _unknown(side: str, source: Any, error: SpecError) -> SpecError:
    """Return the error with the function that takes what it asks for."""
    reader = "rl.load" if isinstance(source, (str, os.PathLike)) else "rl.Weights"
    return SpecError(
        f"{side}: {error}. Pass it to {reader}({side}, ...), and the result to verify()"
    )


def _only_spec(found: Found, error: SpecError) -> Spec:
    if len(found) != 1:
        raise error
    return next(iter(found.values())).spec


def _found(source: Any, spec: Spec | None = None) -> Found:
    if isinstance(source, (str, os.PathLike)):
        return load(source, spec)
    if isinstance(source, Found):
        return source
    if isinstance(source, Weights):
        return Found({"": source})
    if isinstance(source, Mapping) and source and isinstance(next(iter(source.values())), Weights):
        return Found(source)
    return Found({"": Weights(source, spec)})


def compare(
    a: Weights,
    b: Weights,
    names: str,
    rtol: float = 0,
    atol: float = 0,
    summed: frozenset[Gate] = frozenset(),
    called: tuple[str, str] = ("", ""),
) -> Compared:
    """Compare two RNNs. names: of both, for the report. summed: gates of whose biases only the
    sum is compared."""
    if different := unlike(a.spec, b.spec):
        return Compared(*called, f"two different RNNs {names}: {different}")
    dtypes = a.spec.dtype, b.spec.dtype
    only_one = one_bias(a) ^ one_bias(b)
    summed |= only_one
    first = with_sums(blocks_of(a), a.spec, summed)
    second = with_sums(blocks_of(b), b.spec, summed)
    keys = list(dict.fromkeys([*first, *second]))
    for key in keys:  # peepholes
        for blocks, other in ((first, second), (second, first)):
            if key not in blocks:
                blocks[key] = Block(np.zeros(other[key].bits.shape), "float64")
    note = _note(a, b, only_one)
    head = ""
    if dtypes[0] != dtypes[1] and not (rtol or atol):
        head = f"{dtypes[0]} and {dtypes[1]} {names}: to compare their values pass rtol="
    compared = Compare(a.spec, first, second, dtypes, rtol, atol)
    lines = [compared.line(key) for key in keys if key in compared.wrong]
    if not lines:
        return Compared(*called, head and f"{head}; all of them are equal", (), note)
    head = head or f"{len(lines)} of {len(keys)} blocks differ {names}, {a.spec}"
    shown = [f"  {line}" for line in lines[:_MOST]]
    if len(lines) > _MOST:
        shown.append(f"  and {len(lines) - _MOST} more")
    text = "\n".join([head, *shown, *causes(compared)])
    return Compared(*called, text, tuple(compared.gap(key) for key in compared.wrong), note)


def _note(a: Weights, b: Weights, only_one: frozenset[Gate]) -> str:
    notes = []
    if any(may_sum(a.spec, gate) for *_, gate in only_one):
        notes.append("one has one bias per gate, the other two: their sums are compared")
    if a.config != b.config:
        used = describe_config(a.config), describe_config(b.config)
        notes.append(f"used with {used[0]} in a and {used[1]} in b")
    if {a.batch_first, b.batch_first} == {True, False}:
        axes = [f"x is {'(N, T, I)' if one.batch_first else '(T, N, I)'}" for one in (a, b)]
        notes.append(f"{axes[0]} in a and {axes[1]} in b")
    return "; ".join(notes)
