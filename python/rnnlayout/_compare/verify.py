"""verify: are the RNNs of two files, or of two sources, the same?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnlayout._files.bags.found import Found
from rnnlayout._files.bags.stacks import joined
from rnnlayout._files.files import load
from rnnlayout._model.spec import Spec, unlike
from rnnlayout._native import SpecError
from rnnlayout._weights.config import describe_config
from rnnlayout._weights.weights import Weights

from .blocks import Compare, Gap, Gate, block, blocks_of, may_sum, one_bias, with_sums
from .causes import causes

_MOST = 40  # lines of a report


@dataclass(frozen=True)
class Compared:
    """One RNN of each side; true where they differ.

    text: how they differ, "" where they do not. gaps: the blocks that do. note: what else to know.
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
    """What verify() found; true where all RNNs are equal. Its text is the report.

    pairs: one for each RNN that both sides have, with its names `a` and `b`, `text` (how the two
        differ, "" where they do not), `gaps` (which blocks do), and `note`.
    only_a, only_b: names of what the other side has not.
    unread: name -> why it could not be read, of either side.
    """

    pairs: tuple[Compared, ...]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    unread: Mapping[str, Exception] | None = None

    @property
    def equal(self) -> bool:
        """Bit for bit, or within the tolerance that was asked for."""
        return not (self.only_a or self.only_b or self.unread or any(self.pairs))

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        lines = []
        for pair in self.pairs:
            name = pair.a if pair.a == pair.b else f"{pair.a} and {pair.b}"
            told = pair.text or "equal"
            lines.append(f"{name}: {told}" if name else told)
            lines += [f"  {pair.note}"] if pair.note else []
        lines += [f"{name}: in a alone" for name in self.only_a]
        lines += [f"{name}: in b alone" for name in self.only_b]
        lines += [f"{name}: cannot be read: {why}" for name, why in (self.unread or {}).items()]
        return "\n".join(lines)


def verify(a: Any, b: Any, *, rtol: float = 0, atol: float = 0) -> Verified:
    """Are these the same RNNs? They may be in different layouts, and files of different formats.

    a, b: files' names (str or Path), what load() gives, Weights, or whatever Weights() takes; what
        one of them does not tell of its RNN, it takes from the other.
    rtol, atol: how far b may be from a: atol + rtol * abs(b). 0, 0: bit for bit, in one dtype.

    RNNs are matched by name; where each side has one, names do not matter. NAME_0, NAME_1 ... are
    the layers of what the other side has as NAME: Keras has one layer an RNN. They are compared
    gate by gate after conversion to one form. Where one has one bias a gate and the other two,
    their sum is compared, rounded as a conversion rounds it, and the report says so.

    Errors as load() and Weights().

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
    """What one of them does not tell, the other may."""
    read: list[Found | None] = []
    wrong: list[SpecError] = []
    for source in (a, b):
        try:
            read.append(_found(source))
        except SpecError as error:
            read.append(None)
            wrong.append(error)
    first, second = read
    if len(wrong) == 2 or (wrong and len(first or second or ()) != 1):
        raise wrong[0]
    if first is None:
        assert second is not None
        first = _found(a, next(iter(second.values())).spec)
    return first, second if second is not None else _found(b, next(iter(first.values())).spec)


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
    """What differs. names: of the two, for the report. summed: gates whose biases count as their
    sum."""
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
                blocks[key] = block(np.zeros(other[key].shape), "float64")
    note = _note(a, b, only_one)
    head = ""
    if dtypes[0] != dtypes[1] and not (rtol or atol):
        head = f"{dtypes[0]} and {dtypes[1]} {names}: to compare their values pass rtol="
    compared = Compare(a.spec, first, second, dtypes, rtol, atol)
    lines = [line for key in keys if (line := compared.line(key))]
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
        notes.append("one has one bias a gate, the other two: their sums are compared")
    if a.config != b.config:
        used = describe_config(a.config), describe_config(b.config)
        notes.append(f"used with {used[0]} in a and {used[1]} in b")
    return "; ".join(notes)
