"""Read whatever a user passes in as the arrays of one RNN, in the order of its layout."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from os import PathLike
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._model.describe import describe
from rnnlayout._model.dtypes import Bits, as_carrier, take
from rnnlayout._model.given import Checked, Given, Labelled, given_of, stacked
from rnnlayout._model.layout import CUDNN, Layout, as_layout, known_layouts
from rnnlayout._model.spec import Spec, unlike
from rnnlayout._native import HAS_BIAS, HAS_PEEPHOLES, LayoutError, SpecError

from . import frameworks, mismatch
from .candidates import Candidate, with_count, with_names
from .infer import Guess, Shape, check_hints, choose, guess, several_layouts
from .inside import only_rnn, part_to_pass, path_for_weights
from .names import strip_prefix, tensors_of
from .torch_names import plain_names, value_of

Named = dict[str, np.ndarray]  # by the layout's names
Arrays = Named | list[np.ndarray]  # a list is in the layout's order


@dataclass(frozen=True)
class _Asked:
    """What the caller knows of the RNN. hints: fields of its spec."""

    spec: Spec | None
    layout: Layout | None
    dtype_free: bool
    hints: dict[str, Any]


def read(
    source: Any,
    spec: Spec | None = None,
    layout: str | Layout | None = None,
    prefix: str = "",
    *,
    dtype_free: bool = False,
    **hints: Any,
) -> Given:
    """Find out what `source` is, and check it.

    dtype_free: the arrays' dtype may differ from the spec's, because the caller passed dtype=.
    hints: known fields of the spec (cell, reset, recurrent_activation), or None.
    """
    if spec is not None and not isinstance(spec, Spec):
        raise SpecError(f"spec is a {type(spec).__name__}, need a Spec")
    if not isinstance(prefix, str):
        raise LayoutError(f"prefix is a {type(prefix).__name__}, need a string")
    hints = {key: value for key, value in hints.items() if value is not None}
    check_hints(hints, spec, "spec=")
    asked = _Asked(spec, as_layout(layout) if layout is not None else None, dtype_free, hints)
    given = _read(only_rnn(source, prefix), prefix, asked)
    check_hints(hints, given.spec, "the source")
    return given


def _read(source: Any, prefix: str, asked: _Asked) -> Given:
    if isinstance(source, (str, bytes, PathLike)):
        raise path_for_weights(source, asked.spec, asked.layout, prefix)
    if isinstance(source, Checked):
        return _read_again(given_of(source), asked)
    if isinstance(source, Labelled):
        return _read_labelled(source, prefix, asked)
    if frameworks.is_module(source):
        return _read_module(source, asked)
    if isinstance(source, Mapping):
        return _read_dict(source, prefix, asked)
    if isinstance(source, (list, tuple)):
        return _read_list(list(source), asked)
    return _read_flat(source, asked)


def infer_spec(
    tensors: Any,
    layout: str | Layout | None = None,
    *,
    prefix: str = "",
    cell: str | None = None,
    reset: str | None = None,
    recurrent_activation: str | None = None,
) -> Spec:
    """Return the Spec of an RNN, inferred from the names and shapes of its tensors.

    tensors: anything that pack() accepts, except a flat vector.
    cell, reset, recurrent_activation: what tensors do not record (tanh or relu of a plain RNN; the
        reset of a GRU in ONNX, concat, or Keras without biases; "sigmoid" unless something else is
        passed).

    Raises SpecError if the tensors fit several RNNs; the message asks for what is missing. Raises
    LayoutError if they fit none; the message says what is wrong.

        >>> import numpy as np
        >>> infer_spec({"kernel": np.ones((2, 12)), "recurrent_kernel": np.ones((3, 12)),
        ...             "bias": np.ones(12)}, "keras").hidden_size
        3
    """
    if getattr(tensors, "ndim", 0) == 1:
        raise SpecError(
            f"a flat vector of {len(tensors)} elements does not record its RNN: infer_spec() needs"
            " the tensors that it was packed from"
        )
    given = read(
        tensors,
        None,
        layout,
        prefix,
        cell=cell,
        reset=reset,
        recurrent_activation=recurrent_activation,
    )
    return given.spec


# ---------------------------------------------------------------------------- the kinds of source


def _read_again(old: Given, asked: _Asked) -> Given:
    """Read a Weights, or layers that were read one by one."""
    _check_contradictions("these Weights are", old.layout, old.spec, asked)
    if asked.spec is None:
        return old
    _check_dtype("the Weights", old.dtype, asked)
    arrays = dict(zip(old.names, old.arrays, strict=True))
    found = _by_spec([(old.layout, arrays)], asked.spec.replace(dtype=old.dtype), old.names)
    return replace(found, config=old.config, batch_first=old.batch_first, rounded=old.rounded)


def _read_labelled(source: Labelled, prefix: str, asked: _Asked) -> Given:
    """Read a result of convert(), which knows its RNN, but may have been changed since."""
    _check_contradictions("these tensors are", source.layout, source.spec, asked)
    known = replace(asked, spec=asked.spec or source.spec, layout=source.layout)
    try:
        found = _read_dict(source, prefix, known)
    except LayoutError as error:
        raise LayoutError(
            f"{error}; convert() or unpack() made these tensors for {source.spec}: if they were"
            " changed since, pass dict(tensors) to have the RNN inferred from them"
        ) from None
    return replace(found, config=source.config, batch_first=source.batch_first)


def _read_module(module: Any, asked: _Asked) -> Given:
    """Read a torch module or a Keras layer, which describe their RNNs themselves."""
    own = frameworks.own_spec(module)
    layout = Layout(own.layout)
    taken = _take_all(frameworks.own_arrays(module, own), asked)
    known, arrays = _Asked(None, layout, True, own.hints), list(taken.arrays.values())
    found = _resolve([(layout, arrays)], taken, known)
    found = replace(found, config=own.config, batch_first=own.batch_first)
    _check_contradictions(f"{type(module).__name__} is", found.layout, found.spec, asked)
    if asked.spec is None:
        return found
    return replace(found, spec=asked.spec.replace(dtype=found.dtype))


def _check_contradictions(subject: str, layout: Layout, spec: Spec, asked: _Asked) -> None:
    """Raise an error if the caller says otherwise than a source that describes itself.

    subject: the source and its verb, in messages.
    """
    if asked.layout not in (None, layout):
        raise LayoutError(f"{subject} in layout {layout}, not {asked.layout}: omit layout=")
    if asked.spec is not None:
        check_agrees(asked.spec, spec)


def check_agrees(spec: Spec, own: Spec) -> None:
    """Raise SpecError if a spec describes another network than the source describes itself."""
    if different := unlike(spec, own):
        raise SpecError(f"spec= and the source differ: {different}")


@cache
def _plain_layouts() -> list[Layout]:
    """Return the layouts that a dict of tensors may be in without naming it.

    Not cudnn, which is a flat vector, nor concat, whose tensors do not show its options.
    """
    return [Layout(name) for name, info in known_layouts().items()
            if name != "cudnn" and not info["options"]]  # fmt: skip


def _read_dict(source: Mapping[Any, Any], prefix: str, asked: _Asked) -> Given:
    names = [name for name in source if isinstance(name, str)]
    if len(names) != len(source) or not names:
        raise LayoutError("a key is not a string" if source else "the dict of tensors is empty")
    if asked.layout is not None and asked.layout.name == "cudnn":
        raise LayoutError(f"cudnn is one flat vector, found a dict of {mismatch.listing(names)}")
    maybe = [asked.layout] if asked.layout else _plain_layouts()
    plain = plain_names(names)
    rest = strip_prefix(plain.sources, plain.name(prefix))
    if not rest:
        raise part_to_pass(source, maybe) or mismatch.wrong_prefix(
            maybe, list(plain.sources), prefix
        )
    if asked.layout is None and (concat := _like_concat(rest.values())):
        raise LayoutError(
            f"{mismatch.listing(concat)} are tensors of layout 'concat', which does not record the"
            " order of h and x or the meaning of z: pass layout=rl.layout('concat', inputs='hx',"
            " z='state'), or with inputs='xh' or z='candidate'"
        )
    known = {layout: tensors_of(layout, rest.values()) for layout in maybe}
    if not any(known.values()):
        if error := part_to_pass(source, maybe):
            raise error
        name, tail = next(iter(rest.items()))
        expected = list(describe(asked.spec, asked.layout)) if asked.layout and asked.spec else None
        raise mismatch.wrong_names(maybe, list(rest.values()), expected, name.removesuffix(tail))
    taken = _take_all(((name, value_of(name, plain, source)) for name in rest), asked)
    found: list[tuple[Layout, Arrays]] = [
        (layout, {tensors[rest[name]]: array for name, array in taken.arrays.items()})
        for layout, tensors in known.items()
        if tensors
    ]
    return _resolve(found, taken, asked, list(rest.values()))


def _like_concat(names: Iterable[str]) -> list[str]:
    leaves = [name.split("/")[-1] for name in names]
    return [leaf for leaf in leaves if leaf[:2] in ("W_", "b_") and len(leaf) == 3]


def _read_list(source: list[Any], asked: _Asked) -> Given:
    if not source:
        raise LayoutError("the list of tensors is empty")
    if all(map(frameworks.is_module, source)):
        return _read_again(stacked([read(x) for x in source]), asked)
    if any(isinstance(x, Mapping) for x in source):
        raise LayoutError(
            "a list of dicts or Weights is not one RNN: rl.stack([...]) makes one of them"
        )
    if all(isinstance(x, (list, tuple)) for x in source):
        source = [array for layer in source for array in layer]
    if asked.layout is None:
        raise LayoutError(
            f"a list of {len(source)} arrays does not record its layout: pass layout='keras' (of"
            " get_weights()), 'torch', 'onnx' ..."
        )
    if asked.layout.name == "cudnn":
        one = len(source) == 1 and getattr(source[0], "ndim", 0) == 1
        return _read_flat(source[0] if one else source, asked)
    taken = _take_all(((f"array {k}", value) for k, value in enumerate(source)), asked)
    arrays = list(taken.arrays.values())
    return _resolve([(asked.layout, arrays)], taken, asked)


def _read_flat(source: Any, asked: _Asked) -> Given:
    layout, spec = asked.layout or CUDNN, asked.spec
    if layout.name != "cudnn":
        raise LayoutError(
            f"{layout} is a dict or list of tensors, found one {type(source).__name__}"
        )
    if spec is not None and isinstance(source, np.ndarray) and source.dtype in ("u1", "i1"):
        raise mismatch.raw_bytes(source.size, spec)
    array, dtype = take(source, "weight space")
    if spec is None:
        raise SpecError(
            f"a flat vector of {array.size} elements does not record its RNN: pass"
            " spec=rl.Spec(...), which describes it"
        )
    _check_dtype("weight space", dtype, asked)
    if dtype != spec.dtype:
        spec = spec.replace(dtype=dtype)
    _native.check(spec, layout)
    if array.ndim != 1:
        raise LayoutError(
            f"weight space: shape {array.shape}, expected ({spec.num_params},): one dimension"
            " (cuDNN's own wDesc is (n, 1, 1): pass w.reshape(-1))"
        )
    if array.size != spec.num_params:
        raise mismatch.wrong_length(array.size, spec)  # whose dtype is that of the array
    return Given(spec, layout, HAS_BIAS, ["weight_space"], [as_carrier(array)])


# ------------------------------------------------------------------------------ one dtype for all


@dataclass(frozen=True)
class _Taken:
    """The bits of arrays by name, and their one dtype. rounded: see Given."""

    arrays: Named
    dtype: str
    rounded: tuple[str, ...]


def _take_all(values: Iterable[tuple[str, Any]], asked: _Asked) -> _Taken:
    """Take arrays of one dtype, each with a name for messages."""
    values = list(values)
    taken = {name: take(value, name) for name, value in values}
    first, (_, dtype) = next(iter(taken.items()))
    for name, (_, other) in taken.items():
        if other != dtype:
            raise LayoutError(
                f"{first} is {dtype} but {name} is {other}: all tensors of an RNN need one dtype"
            )
    _check_dtype(first, dtype, asked)
    rounded = tuple(name for name, value in values if isinstance(value, Bits) and value.rounded)
    return _Taken({name: array for name, (array, _) in taken.items()}, dtype, rounded)


def _check_dtype(name: str, dtype: str, asked: _Asked) -> None:
    if asked.spec is not None and dtype != asked.spec.dtype and not asked.dtype_free:
        raise LayoutError(
            f"{name} is {dtype}, the spec says {asked.spec.dtype}: pass dtype={asked.spec.dtype!r}"
            f" to convert, or spec=rl.{asked.spec.replace(dtype=dtype)!r}"
        )


# ------------------------------------------------------------------------------------- resolving


def _resolve(
    found: list[tuple[Layout, Arrays]], taken: _Taken, asked: _Asked, original: Sequence[str] = ()
) -> Given:
    """Return the one RNN that the arrays fit.

    found: the arrays in each layout that they may be in. original: the names of those in a dict,
    for messages.
    """
    if asked.spec is not None:
        one = _by_spec(found, asked.spec.replace(dtype=taken.dtype), original)
    else:
        one = _inferred(found, taken.dtype, asked, original)
    return replace(one, rounded=taken.rounded)


def _inferred(
    found: list[tuple[Layout, Arrays]], dtype: str, asked: _Asked, original: Sequence[str]
) -> Given:
    guesses: list[tuple[Guess, Named]] = []
    for layout, arrays in found:
        for candidate in _candidates(layout, arrays, asked.hints):
            named = _ordered(candidate.names, arrays)
            guesses.append((guess(candidate, _shapes(named)), named))
    if not guesses:
        raise _no_match(found, original, None, asked.hints)
    right = [g for g, _ in guesses if g.fits and _agrees(g, asked.hints)]
    if not right:
        names = min((g for g, _ in guesses), key=lambda g: len(g.wrong)).candidate.names
        raise mismatch.wrong_shapes([g for g, _ in guesses if g.candidate.names == names])
    spec, best = choose(right, dtype, asked.hints)
    named = next(named for g, named in guesses if g is best)
    return _given(spec, best.candidate.layout, best.candidate.has, named)


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


def _by_spec(found: list[tuple[Layout, Arrays]], spec: Spec, original: Sequence[str]) -> Given:
    """Return the RNN of this spec that the arrays fit. Arguments as of _resolve()."""
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
    if len({match[0] for match in exact}) > 1:
        raise several_layouts(match[0] for match in exact)
    layout, has, named, _ = exact[0]
    return _given(spec, layout, has, named)


def _variants(spec: Spec) -> list[int]:
    """Return which optional tensors a source may have, first those that the spec has."""
    first = 0 if spec.bias == "none" else HAS_BIAS
    return [has | more for more in (0, HAS_PEEPHOLES) for has in (first, first ^ HAS_BIAS)]


def _ordered(names: Collection[str], arrays: Arrays) -> Named:
    """Return the arrays by name, in the order of the names; {} if they have others."""
    if isinstance(arrays, list):
        return dict(zip(names, arrays, strict=True)) if len(names) == len(arrays) else {}
    return {name: arrays[name] for name in names} if arrays.keys() == set(names) else {}


def _shapes(named: Named) -> dict[str, Shape]:
    return {name: array.shape for name, array in named.items()}


def _given(spec: Spec, layout: Layout, has: int, named: Named) -> Given:
    return Given(spec, layout, has, list(named), [as_carrier(a) for a in named.values()])
