"""The two sides that are compared: the RNNs of files or sources, with layers joined."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from rnnlayout._files.files import load
from rnnlayout._files.tensor_sets.choose_rnns import (
    check_names_exist,
    join_rnns,
    match_names,
    stack_layers_as_in,
)
from rnnlayout._files.tensor_sets.file_rnns import Found, with_rnns
from rnnlayout._model.errors import Ask, FileError, error_with_name
from rnnlayout._model.reading_options import DEFAULTS, OF_FILES, ComparisonOptions
from rnnlayout._model.spec import Spec
from rnnlayout._model.undecided import UndecidedError
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError, SpecError


def read_sides(
    sources: Mapping[str, Any],
    spec: Spec | None,
    options: ComparisonOptions,
    under_prefix: Collection[str] = ("a", "b"),
) -> tuple[list[Found], dict[str, dict[str, Any]]]:
    """Return the RNNs of one or two sources; and of each source that is another RNN without the
    spec and the options its name, with these as arguments. sources: by their names. under_prefix:
    the sources that the prefix is for.

    The options are for the side that needs them; if none does, for the first that agrees with them.
    If one side does not record its spec and no option does, it is that of the other's RNN.
    """
    passed = {"spec": spec, **{name: options.get(name) for name in DEFAULTS}}
    for_files = {"mmap": options.get("mmap", True)}
    prefix, _ = passed.pop("prefix"), passed.pop("mmap")
    extra = {name: value for name, value in passed.items() if value not in (None, {})}
    under: dict[str, dict[str, Any]] = {
        side: {**for_files, **({"prefix": prefix} if prefix and side in under_prefix else {})}
        for side in sources
    }
    alone = {side: _read_side(source, under[side]) for side, source in sources.items()}
    found = dict(alone)
    if extra:
        asking = [side for side, one in found.items() if isinstance(one, SpecError)
                  or (isinstance(one, Found) and one.undecided)]  # fmt: skip
        asking = asking or [side for side, one in found.items() if _lacks_facts(one)]
        unread = [side for side, one in sources.items() if _read_already(one) is None]
        if not (asking or unread):
            both = " and ".join(sources)
            raise SpecError(f"pass {', '.join(extra)} to load() or Weights(), which read {both}")
        told = {side: _read_side(sources[side], under[side] | extra) for side in asking or unread}
        agree = [side for side, one in told.items() if isinstance(one, Found)]
        found |= {side: told[side] for side in asking or (agree or unread)[:1]}
    for side, other in zip(found, [*found.values()][::-1], strict=True):
        one = found[side]
        if not isinstance(one, SpecError) or not isinstance(other, Found):
            continue
        if len(other.readable) == len(other) == 1:
            (spec,) = (weights.spec for weights in other.values())
            known = {"spec": spec, "recurrent_activation": spec.recurrent_activation}
            as_other = _read_side(sources[side], under[side] | known)
            # else its tensors are of another RNN: it has to be asked
            if isinstance(as_other, Found) or not isinstance(one, UndecidedError):
                found[side] = as_other
    read: dict[str, Found] = {}
    for side, one in found.items():
        if not isinstance(one, Found):
            raise error_with_name(one, side) if isinstance(one, SpecError) else one
        read[side] = one
    specs = {side: {name: one.spec for name, one in rnns.items()} for side, rnns in read.items()}
    return [*read.values()], {
        side: extra for side, before in alone.items()
        if not isinstance(before, Found)
        or specs[side] != {name: one.spec for name, one in before.items()}
    }  # fmt: skip


def check_not_for_files(options: Mapping[str, Any], source: Any) -> None:
    """Check the options for a source that is not a file. Raises SpecError if one is for files."""
    for name in options.keys() & {*OF_FILES}:
        why = f"{name} is for a file, not for a {type(source).__name__}: omit "
        raise SpecError(why, Ask(name, None))


def _lacks_facts(found: Found | ValueError) -> bool:
    """Is there something that the source does not record?"""
    errors = found.unread.values() if isinstance(found, Found) else [found]
    return any(isinstance(error, (SpecError, LayoutError, FileError)) for error in errors)


def _read_side(source: Any, options: dict[str, Any]) -> Found | ValueError:
    """Return the RNNs of a source, or the error that asks for more."""
    try:
        if isinstance(source, (str, os.PathLike)):
            found = load(source, **options)
            return found if found else next(iter(found.undecided.values()))
        if (read := _read_already(source)) is not None:
            return read
        check_not_for_files(options, source)
        options = {name: value for name, value in options.items() if name != "mmap"}
        if not isinstance(source, Mapping) and "prefix" in options:
            # a module with one RNN, or a list, has no names that start with it
            with suppress(ValueError):
                rest = {name: value for name, value in options.items() if name != "prefix"}
                return Found({"": Weights(source, **rest)})
        return Found({"": Weights(source, **options)})
    except ValueError as error:
        return error


def _read_already(source: Any) -> Found | None:
    if isinstance(source, Found):
        return source
    if isinstance(source, Weights):
        return Found({"": source})
    if isinstance(source, Mapping) and isinstance(next(iter(source.values()), 0), Weights):
        return Found(source)
    return None


def stack_both_sides(a: Found, b: Found, stack: Sequence[Sequence[str]]) -> tuple[Found, Found]:
    """Return both sides with these layers joined, on each side that has them."""
    for names in stack:
        has_a, has_b = (set(names) <= {*found.readable} for found in (a, b))
        if not (has_a or has_b):
            check_names_exist(names, a.names, "stack")
        a, b = join_rnns(a, names) if has_a else a, join_rnns(b, names) if has_b else b
    return a, b


@dataclass(frozen=True)
class MatchedSides:
    """Two sides with layers stacked as the other has them. pairs: names of a -> names of b.
    again: "SIDE: NAME" -> the RNN of this side whose arrays it has, as one that is called twice."""

    a: Found
    b: Found
    pairs: dict[str, str]
    again: dict[str, str]


def match_sides(
    a: Found, b: Found, asked: Mapping[str, str] | None = None, kept: Collection[str] = ()
) -> MatchedSides:
    """Match the RNNs of both sides, as match_names() does.

    An RNN without a partner that has the very arrays of another of its side is left out: a module
    that is called twice is two RNNs in ONNX, and one under two names is two in a checkpoint. kept:
    names that are not left out.
    """
    first, second = stack_layers_as_in(a, b), stack_layers_as_in(b, a)
    pairs = match_names(first, second, asked)
    twice_a = _same_arrays(a, {*pairs, *kept, *(a.keys() - first.keys())})
    twice_b = _same_arrays(b, {*pairs.values(), *kept, *(b.keys() - second.keys())})
    if not (twice_a or twice_b):
        return MatchedSides(first, second, pairs, {})
    a = with_rnns(a, {name: one for name, one in a.items() if name not in twice_a})
    b = with_rnns(b, {name: one for name, one in b.items() if name not in twice_b})
    again = {f"a: {name}": other for name, other in twice_a.items()}
    again |= {f"b: {name}": other for name, other in twice_b.items()}
    return replace(match_sides(a, b, asked, kept), again=again)


def _same_arrays(found: Found, used: Collection[str]) -> dict[str, str]:
    """Return the RNNs that are not used and have the arrays of another -> the name of that one."""
    names: dict[Any, str] = {}
    again = {}
    for name in sorted(found, key=lambda one: one not in used):
        weights = found[name]
        arrays = [str(array.__array_interface__) for array in weights.arrays]
        other = names.setdefault((weights.spec, weights.layout, *arrays), name)
        if other != name and name not in used:
            again[name] = other
    return again
