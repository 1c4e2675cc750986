"""verify: compare the RNNs of two files, or of two sources."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

from rnnlayout._files.tensor_sets.choose_rnns import check_names_exist
from rnnlayout._model.config import describe_config, without_neutral
from rnnlayout._model.errors import Ask, Message
from rnnlayout._model.layout import BlockKey
from rnnlayout._model.picture.picture import WIDTH, Picture
from rnnlayout._model.reading_options import ComparisonOptions, check_options, takes_options
from rnnlayout._model.spec import HARD_SIGMOIDS, Spec, differing_fields
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError

from .blocks import BlockComparison, BlockGap, GateKey, check_tolerance, compare_blocks
from .explanation import explain_difference, likely_causes
from .heat_map import HeatMapPanel, draw_heat_map
from .sides import match_sides, read_sides, stack_both_sides
from .truth import BIASES

_MOST, _MOST_UNRELATED = 40, 3  # lines of a report, and of the report on other weights
RELATIONS = EQUAL, SAME_FUNCTION, DIFFERENT = "equal", "same function", "different"
_MOST_NAMES = 5  # of RNNs in the conclusion


@dataclass(frozen=True)
class ComparedPair:
    """An RNN of each side. True if the two RNNs differ.

    a, b: the RNN's names on both sides. text: the differences, "" if the RNNs are equal. gaps: the
    blocks that differ. note: remarks about settings and dtypes. spec: the common Spec; None for two
    different RNNs. summary: the mistakes in a sentence, or what else differs.
    same_function: whether RNNs that differ are proved to compute the same: the dtypes differ, or
    the two parts of sums of biases, or the order of hidden units. right: the blocks of a that b
    has, whether or not in the right place.
    """

    a: str
    b: str
    text: str = ""
    gaps: tuple[BlockGap, ...] = ()
    note: str = ""
    spec: Spec | None = None
    summary: str = ""
    same_function: bool = False
    right: frozenset[BlockKey] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.text)

    @property
    def relation(self) -> str:
        """ "equal", "same function" or "different"."""
        return (SAME_FUNCTION if self.same_function else DIFFERENT) if self else EQUAL

    @property
    def name(self) -> str:
        """Both names, or a single name if the names are equal or a side lacks the RNN."""
        return " and ".join(dict.fromkeys(filter(None, (self.a, self.b))))


@dataclass(frozen=True, repr=False)
class Verified:
    """The result of verify(). True if all RNNs are equal; str() and repr() give the report.

    pairs: a ComparedPair per RNN that both sides have, with the names `a` and `b`, `text` (the
        differences, "" if the RNNs are equal), `gaps` (the blocks that differ), `relation`,
        `summary`, and `note`.
    only_a, only_b: names of RNNs of one side that the opposite side lacks.
    unread: name -> the reason why an RNN of either side could not be read.
    alike: the argument map= to pass if RNNs of only_a and only_b with equal sizes are the same
        RNNs. If several RNNs have the same sizes, only equal RNNs are listed.
    again: "a: NAME" or "b: NAME" -> an earlier RNN of the side with the same arrays: a module that
        is called twice, or has two names. The repetition is not compared.
    sources: what the report calls both sides: the names of files, or "a" and "b".
    """

    pairs: tuple[ComparedPair, ...]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    unread: Mapping[str, Exception] | None = None
    alike: Mapping[str, str] = field(default_factory=dict)
    again: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, str] = ("a", "b")

    @property
    def relation(self) -> str:
        """ "equal", "same function" (the numbers differ and the outputs do not), or "different"."""
        if self.only_a or self.only_b or self.unread:
            return DIFFERENT
        return max((pair.relation for pair in self.pairs), key=RELATIONS.index, default=EQUAL)

    @property
    def equal(self) -> bool:
        """Whether all RNNs are equal, bit for bit or within the tolerance."""
        return self.relation == EQUAL

    def __bool__(self) -> bool:
        return self.equal

    def picture(self, *, width: float = WIDTH) -> Picture:
        """Draw the blocks of the RNNs: which are equal, in another place, rounded or other.

        The picture has the pairs that differ, or all pairs if all are equal, but no pair of two
        different RNNs. Raises LayoutError if no pair remains.
        """
        drawn = [pair for pair in self.pairs if pair.spec]
        drawn = [pair for pair in drawn if pair] or drawn
        if not drawn:
            raise LayoutError(f"there are no two RNNs of the same sizes to draw: {self}")
        return draw_heat_map([_pair_panel(pair) for pair in drawn], width)

    def _repr_svg_(self) -> str | None:
        return self.picture().svg if any(pair.spec for pair in self.pairs) else None

    def __repr__(self) -> str:
        return str(self)

    def _conclusion(self) -> str:
        """Say in a line how both sides are related, and why."""
        wrong = [pair for pair in self.pairs if pair]
        counts = {
            "only in a": len(self.only_a),
            "only in b": len(self.only_b),
            "cannot be read": len(self.unread or {}),
        }
        why = [f"{count} {words}" for words, count in counts.items() if count]
        if len(self.pairs) > 1 and wrong:
            names = ", ".join(pair.name for pair in wrong[:_MOST_NAMES])
            names += ", ..." * (len(wrong) > _MOST_NAMES)
            why.insert(0, f"{len(wrong)} of {len(self.pairs)} RNNs ({names})")
        elif wrong:
            why.insert(0, wrong[0].summary)
        verb = "compute the same function" if self.relation == SAME_FUNCTION else "are different"
        return f"{' and '.join(self.sources)} {verb}: {', '.join(why)}"

    def __str__(self) -> str:
        lines = [] if self.equal else [self._conclusion()]
        for pair in self.pairs:
            text = pair.text or "equal"
            lines.append(f"{pair.name}: " + text if pair.name else text)
            lines += [f"  {pair.note}"] if pair.note else []
        for name, original in self.again.items():
            lines.append(f"{name[3:]} in {name[0]}: {original} again")
        lines += [f"{name}: only in a" for name in self.only_a]
        lines += [f"{name}: only in b" for name in self.only_b]
        if self.alike:
            same = Message("pass ", Ask("map", self.alike), " if these are the same RNNs")
            lines.append(same.text)
        reasons: dict[str, list[str]] = {}  # an RNN that both sides lack has a single line
        for name, why in (self.unread or {}).items():
            reasons.setdefault(str(why).removeprefix(f"{name[3:]}: "), []).append(name)
        lines += [f"{', '.join(names)}: cannot be read: " + why for why, names in reasons.items()]
        return "\n".join(lines)


def _pair_panel(pair: ComparedPair) -> HeatMapPanel:
    assert pair.spec
    first, *details = pair.text.replace(f", {pair.spec}", "", 1).splitlines() or ["equal"]
    text = "; ".join([first, *(line for line in details if not line.startswith(" "))])  # the cause
    return HeatMapPanel(pair.name, pair.spec, text, pair.gaps, pair.right)


@takes_options(ComparisonOptions)
def verify(
    a: Any,
    b: Any,
    *,
    rtol: float = 0,
    atol: float = 0,
    only: Sequence[str] | None = None,
    stack: Sequence[Sequence[str]] | None = None,
    map: Mapping[str, str] | None = None,
    spec: Spec | None = None,
    **options: Unpack[ComparisonOptions],
) -> Verified:
    """Compare RNNs in the same or different layouts, and in files of the same or different formats.

    a, b: file names (str or Path), the result of load(), Weights, or anything that Weights()
        accepts. A fact that only one side records about an RNN is used for both sides.
    rtol, atol: tolerance, abs(a - b) <= atol + rtol * abs(b). With 0, 0 all bits and the dtype
        must be equal.

    only: names of either side: compare only RNNs with these names. stack: lists of names of either
        side, bottom first; each list becomes one RNN. map: names of a -> names of b, where the
        names differ.
    Further arguments: options for reading both sides, see ReadingOptions. prefix and mmap are for
        both sides, each further option for a side that lacks the recorded fact; as_class,
        keras_config and format only for a file.

    RNNs are matched by name; NAME and the forms of NAME in other formats (`enc.rnn`, `enc_rnn`,
    `/enc/rnn/LSTM`) are equal. If each side has a single RNN, names do not matter. NAME_0, NAME_1
    ... are the layers of NAME on the opposite side: in Keras and ONNX each layer is an RNN. A
    module that is called twice or has two names, and so the same arrays, is a single RNN. RNNs are
    compared gate by gate after conversion to a common form. If one side has a single bias per gate
    and the opposite side two, the sum of the two is compared, rounded as in a conversion; hard
    sigmoids of Keras 2 and 3 are compared after converting one to the other. The report notes both.

    Returns a Verified, which is true if all RNNs are equal; `relation` tells RNNs that compute the
    same function from different ones. Errors: see load() and Weights().

        >>> import numpy as np
        >>> keras = {"kernel": np.ones((3, 8)), "recurrent_kernel": np.ones((2, 8))}
        >>> print(verify(keras, Weights(keras).to("torch")))
        equal
        >>> wrong = {**keras, "kernel": np.eye(3, 8)}
        >>> bool(verify(keras, wrong))
        False
    """
    check_options(verify, options)
    check_tolerance("rtol", rtol)
    check_tolerance("atol", atol)
    (first, second), _ = read_sides({"a": a, "b": b}, spec, options)
    sides = match_sides(*stack_both_sides(first, second, stack or ()), map, only or ())
    first, second = sides.a, sides.b
    if only is not None:
        check_names_exist(only, dict.fromkeys([*first.names, *second.names]), "only")

    def is_chosen(*names: str) -> bool:
        return only is None or any(name in only for name in names)

    pairs = {x: y for x, y in sides.pairs.items() if x in first and y in second and is_chosen(x, y)}
    only_a = [x for x in first if x not in pairs and is_chosen(x)]
    only_b = [y for y in second if y not in pairs.values() and is_chosen(y)]
    alike = _alike({x: first[x] for x in only_a}, {y: second[y] for y in only_b}, rtol, atol)
    names = "between a ({}) and b ({})"
    return Verified(
        tuple(
            compare_pair(
                first[x],
                second[y],
                names.format(first[x].layout, second[y].layout),
                rtol,
                atol,
                called=(x, y),
            )
            for x, y in pairs.items()
        ),
        tuple(only_a),
        tuple(only_b),
        {
            f"{side}: {name}": why
            for side, rnns in (("a", first), ("b", second))
            for name, why in rnns.unread.items()
            if is_chosen(name)
        }
        or None,
        {**(map or {}), **alike} if alike else {},
        {name: original for name, original in sides.again.items() if is_chosen(original)},
        (_source_name(a, "a"), _source_name(b, "b")),
    )


def _source_name(source: Any, side: str) -> str:
    return str(source) if isinstance(source, (str, os.PathLike)) else side


def _alike(
    a: Mapping[str, Weights], b: Mapping[str, Weights], rtol: float, atol: float
) -> dict[str, str]:
    """Return {name in a: name in b} of RNNs that may be the same under different names."""
    pairs: dict[str, str] = {}
    for x, weights in a.items():
        same = [y for y, rival in b.items() if not differing_fields(weights.spec, rival.spec)]
        if (
            len(same) > 1
            or sum(not differing_fields(weights.spec, rival.spec) for rival in a.values()) > 1
        ):
            same = [y for y in same if not compare_pair(weights, b[y], "", rtol, atol)]
        if len(same) == 1 and same[0] not in pairs.values():
            pairs[x] = same[0]
    return pairs


def compare_pair(
    a: Weights,
    b: Weights,
    names: str,
    rtol: float = 0,
    atol: float = 0,
    summed: frozenset[GateKey] = frozenset(),
    called: tuple[str, str] = ("", ""),
) -> ComparedPair:
    """Compare two RNNs. names: the RNNs on both sides in words, for the report. summed: gates with
    two biases to add before comparing. called: the names of the RNNs for ComparedPair.
    """
    other_sigmoid = {a.spec.recurrent_activation, b.spec.recurrent_activation} == set(HARD_SIGMOIDS)
    alike = a.spec.replace(recurrent_activation=b.spec.recurrent_activation)
    if different := differing_fields(alike if other_sigmoid else a.spec, b.spec):
        summary = "two different RNNs"
        return ComparedPair(*called, f"{summary} {names}: {different}", summary=summary)
    c = compare_blocks(a, b, rtol, atol, summed)
    notes = list(c.notes)
    settings = [without_neutral(rnn.config, rnn.spec.num_directions) for rnn in (a, b)]
    if settings[0] != settings[1]:
        used = [describe_config(config) for config in settings]
        notes.append(f"used with {used[0]} in a and {used[1]} in b")
    if {a.batch_first, b.batch_first} == {True, False}:
        axes = [f"x is {'(N, T, I)' if weights.batch_first else '(T, N, I)'}" for weights in (a, b)]
        notes.append(f"{axes[0]} in a and {axes[1]} in b")
    pair = ComparedPair(*called, note="; ".join(notes), spec=a.spec)
    same_settings = settings[0] == settings[1]
    head = f"{len(c.wrong)} of {len(c.a)} blocks differ {names}, {a.spec}"
    if c.dtypes[0] != c.dtypes[1] and not (rtol or atol):
        dtypes = " and ".join(c.dtypes)
        head = Message(f"{dtypes} {names}: to compare their values pass ", Ask("rtol")).text
        if not c.wrong:
            equal = f"{dtypes} {names}, with equal values: to ignore the dtypes pass "
            text = Message(equal, Ask("rtol", 1e-12)).text
            return replace(pair, text=text, summary=dtypes, same_function=same_settings)
    if not c.wrong:
        return pair
    explained = _explained(pair, c, head)
    keeps_function = explained.same_function
    if not keeps_function and all(key[2] in BIASES for key in c.wrong):
        every_gate = [(*key[:2], key[3]) for key in c.a if key[2] == "R"]
        keeps_function = not compare_blocks(a, b, rtol, atol, every_gate).wrong
    return replace(explained, same_function=same_settings and keeps_function)


def _explained(pair: ComparedPair, c: BlockComparison, head: str) -> ComparedPair:
    """Return the pair with the blocks that differ and their likely causes. head: the first line."""
    gaps = [c.gap(key) for key in c.wrong]
    explanation = explain_difference(c)
    named = [mistake.text for mistake in explanation.mistakes if mistake.is_cause]
    if named and not explanation.sure:
        named.append("the rest is not explained")
    if peepholes := sum(key[2] == "peephole" for key in c.wrong):  # no mistake is of peepholes
        named.append(f"the peepholes of {peepholes} gates differ")
    summary, most = "; ".join(named) or f"{len(gaps)} of {len(c.a)} blocks differ", _MOST
    lines = [
        f"likely cause: {cause} (explains {'all' if count == len(gaps) else f'{count} of'}"
        f" {len(gaps)})"
        for cause, count in likely_causes(c, explanation).items()
    ]
    if not explanation.same and len(gaps) == len(c.a):
        summary, most = f"other weights: {explanation.text}", _MOST_UNRELATED
        lines = [summary]
    blocks = [f"  {c.line(gap)}" for gap in gaps[:most]]
    blocks += [f"  and {len(gaps) - most} more"] * (len(gaps) > most)
    return replace(
        pair,
        text="\n".join([head, *blocks, *lines]),
        gaps=tuple(gaps),
        summary=summary,
        same_function=explanation.keeps_function,
        right=explanation.right_blocks,
    )
