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
from rnnlayout._model.kinds import check_kind_of
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
    """Return the RNNs of each side; and, for each side whose RNNs depend on the spec or the
    options, the side's name with the spec and the options as arguments.

    sources: one or two sources by the name of the side. under_prefix: the sides that the prefix is
    for. The spec and the options are for a side that lacks facts; if no side lacks facts, for the
    first side that agrees with the options. A side that then still lacks the spec takes the spec of
    the opposite side, if that side is a single RNN.
    """
    arguments = {"spec": spec, **{name: options.get(name) for name in DEFAULTS}}
    for_files = {"mmap": options.get("mmap", True)}
    prefix, _ = arguments.pop("prefix"), arguments.pop("mmap")
    extra = {name: value for name, value in arguments.items() if value not in (None, {})}
    base_options: dict[str, dict[str, Any]] = {
        side: {**for_files, **({"prefix": prefix} if prefix and side in under_prefix else {})}
        for side in sources
    }
    first_results = {
        side: _read_side(source, base_options[side]) for side, source in sources.items()
    }
    results = dict(first_results)
    if extra:
        results |= _reread_sides(sources, first_results, base_options, extra)
    for side, opposite in zip(results, [*results.values()][::-1], strict=True):
        result = results[side]
        if not isinstance(result, SpecError) or not isinstance(opposite, Found):
            continue
        if len(opposite.readable) == len(opposite) == 1:
            (spec,) = (weights.spec for weights in opposite.values())
            known_spec = {"spec": spec, "recurrent_activation": spec.recurrent_activation}
            rereading = _read_side(sources[side], base_options[side] | known_spec)
            # tensors of a different RNN: the caller has to decide
            if isinstance(rereading, Found) or not isinstance(result, UndecidedError):
                results[side] = rereading
    sides: dict[str, Found] = {}
    for side, result in results.items():
        if not isinstance(result, Found):
            raise error_with_name(result, side) if isinstance(result, SpecError) else result
        sides[side] = result
    specs = {
        side: {name: result.spec for name, result in rnns.items()} for side, rnns in sides.items()
    }
    return [*sides.values()], {
        side: extra
        for side, first_result in first_results.items()
        if not isinstance(first_result, Found)
        or specs[side] != {name: result.spec for name, result in first_result.items()}
    }


def _reread_sides(
    sources: Mapping[str, Any],
    first_results: Mapping[str, Found | ValueError],
    base_options: Mapping[str, dict[str, Any]],
    extra: dict[str, Any],
) -> dict[str, Found | ValueError]:
    """Read the sides that lack facts again, with the spec and the options (extra); or, if no side
    lacks facts, the first side that agrees with the options. Return the sides that were read."""
    incomplete = [
        side
        for side, result in first_results.items()
        if isinstance(result, SpecError) or (isinstance(result, Found) and result.undecided)
    ]
    incomplete = incomplete or [
        side for side, result in first_results.items() if _lacks_facts(result)
    ]
    unread = [side for side, source in sources.items() if _read_already(source) is None]
    if not (incomplete or unread):
        both = " and ".join(sources)
        raise SpecError(f"pass {', '.join(extra)} to load() or Weights(), which read {both}")
    results = {
        side: _read_side(sources[side], base_options[side] | extra) for side in incomplete or unread
    }
    agreeing = [side for side, result in results.items() if isinstance(result, Found)]
    return {side: results[side] for side in incomplete or (agreeing or unread)[:1]}


def check_not_for_files(options: Mapping[str, Any], source: Any) -> None:
    """Raise SpecError for options of files, for a source that is not a file."""
    for name in options.keys() & {*OF_FILES}:
        why = f"{name} is for a file, not for a {type(source).__name__}: omit "
        raise SpecError(why, Ask(name, None))


def _lacks_facts(result: Found | ValueError) -> bool:
    """Return whether the source lacks facts about an RNN."""
    errors = result.unread.values() if isinstance(result, Found) else [result]
    return any(isinstance(error, (SpecError, LayoutError, FileError)) for error in errors)


def _read_side(source: Any, options: dict[str, Any]) -> Found | ValueError:
    """Return the RNNs of a source, or the error that names the missing arguments."""
    try:
        if isinstance(source, (str, os.PathLike)):
            rnns = _only_weights(load(source, **options))
            return rnns if rnns else next(iter(rnns.undecided.values()))
        if (rnns_read := _read_already(source)) is not None:
            return rnns_read
        check_not_for_files(options, source)
        options = {name: value for name, value in options.items() if name != "mmap"}
        if not isinstance(source, Mapping) and "prefix" in options:
            # a module with a single RNN, or a list, has no names with a prefix
            with suppress(ValueError):
                unprefixed = {name: value for name, value in options.items() if name != "prefix"}
                return Found({"": Weights(source, **unprefixed)})
        return Found({"": Weights(source, **options)})
    except ValueError as error:
        error.__context__ = None  # with frames, which keep what was read of the file
        return error.with_traceback(None)


def _read_already(source: Any) -> Found | None:
    if isinstance(source, Found):
        return _only_weights(source)
    if isinstance(source, Weights):
        source = {"": source}
    if isinstance(source, Mapping) and isinstance(next(iter(source.values()), 0), Weights):
        return _only_weights(Found(source))
    return None


def _only_weights(rnns: Found) -> Found:
    for name, rnn in rnns.items():
        check_kind_of(rnn, "weights", name or "source")
    return rnns


def stack_both_sides(a: Found, b: Found, stack: Sequence[Sequence[str]]) -> tuple[Found, Found]:
    """Join layers on each side with layers of these names. stack: lists of names."""
    for names in stack:
        has_a, has_b = (set(names) <= {*rnns.readable} for rnns in (a, b))
        if not (has_a or has_b):
            check_names_exist(names, a.names, "stack")
        a, b = join_rnns(a, names) if has_a else a, join_rnns(b, names) if has_b else b
    return a, b


@dataclass(frozen=True)
class MatchedSides:
    """Two sides, with layers stacked if the second side has a stack. pairs: names of a -> names of
    b. again: "SIDE: NAME" of a repeated RNN -> the name of the RNN of the side with the same arrays
    (a module that is called twice)."""

    a: Found
    b: Found
    pairs: dict[str, str]
    again: dict[str, str]


def match_sides(
    a: Found, b: Found, names: Mapping[str, str] | None = None, kept: Collection[str] = ()
) -> MatchedSides:
    """Match the RNNs of both sides, as match_names() does.

    A repeated RNN, that is, an RNN without a partner whose arrays are the arrays of another RNN of
    the side, is left out: a module that is called twice is two RNNs in ONNX, and a module under two
    names is two RNNs in a checkpoint. kept: names that are not left out.
    """
    first, second = stack_layers_as_in(a, b), stack_layers_as_in(b, a)
    pairs = match_names(first, second, names)
    twice_a = _same_arrays(a, {*pairs, *kept, *(a.keys() - first.keys())})
    twice_b = _same_arrays(b, {*pairs.values(), *kept, *(b.keys() - second.keys())})
    if not (twice_a or twice_b):
        return MatchedSides(first, second, pairs, {})
    a = with_rnns(a, {name: weights for name, weights in a.items() if name not in twice_a})
    b = with_rnns(b, {name: weights for name, weights in b.items() if name not in twice_b})
    again = {f"a: {name}": same_as for name, same_as in twice_a.items()}
    again |= {f"b: {name}": same_as for name, same_as in twice_b.items()}
    return replace(match_sides(a, b, names, kept), again=again)


def _same_arrays(rnns: Found, used: Collection[str]) -> dict[str, str]:
    """Return repeated RNN -> the name of an RNN with the same arrays, for RNNs not in `used`."""
    names: dict[Any, str] = {}
    repeated = {}
    for name in sorted(rnns, key=lambda name: name not in used):
        weights = rnns[name]
        arrays = [str(array.__array_interface__) for array in weights.arrays]
        first_name = names.setdefault((weights.spec, weights.layout, *arrays), name)
        if first_name != name and name not in used:
            repeated[name] = first_name
    return repeated
