"""Whatever a user brings, as the arrays of one RNN in the order of its layout."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._model.dtypes import as_carrier, take
from rnnlayout._model.given import Checked, Given, given_of, stacked
from rnnlayout._model.layout import CUDNN, Layout, as_layout, known_layouts
from rnnlayout._model.spec import Spec
from rnnlayout._native import HAS_BIAS, HAS_PEEPHOLES, LayoutError, SpecError

from . import frameworks, mismatch
from .candidates import Candidate, with_count, with_names
from .infer import Guess, Shape, choose, guess
from .names import strip_prefix, tensors_of

Named = dict[str, np.ndarray]  # by the layout's names
Arrays = Named | list[np.ndarray]  # a list is in the layout's order


def read(
    source: Any,
    spec: Spec | None = None,
    layout: str | Layout | None = None,
    prefix: str = "",
    *,
    dtype_free: bool = False,
    **hints: Any,
) -> Given:
    """Find out what `source` is and check it.

    dtype_free: the arrays' dtype may differ from the spec's (a dtype= was asked for).
    hints: fields of the spec that are known (cell, reset), None where not.
    """
    if spec is not None and not isinstance(spec, Spec):
        raise SpecError(f"spec is a {type(spec).__name__}, need a Spec")
    if not isinstance(prefix, str):
        raise LayoutError(f"prefix is a {type(prefix).__name__}, need a string")
    hints = {key: value for key, value in hints.items() if value is not None}
    wanted = as_layout(layout) if layout is not None else None
    if isinstance(source, Checked):
        return _again(given_of(source), spec, wanted, dtype_free)
    if frameworks.is_torch_module(source):
        return _read_torch(source, spec, wanted, dtype_free)
    if frameworks.is_keras_layer(source):
        return _read_keras(source, spec, wanted, dtype_free)
    if isinstance(source, Mapping):
        return _read_dict(source, spec, wanted, prefix, dtype_free, hints)
    if isinstance(source, (list, tuple)):
        return _read_list(list(source), spec, wanted, dtype_free, hints)
    return _read_flat(source, spec, wanted, dtype_free)


def infer_spec(
    tensors: Any,
    layout: str | Layout | None = None,
    *,
    prefix: str = "",
    cell: str | None = None,
    reset: str | None = None,
) -> Spec:
    """The Spec of an RNN from the names and shapes of its tensors.

    tensors: whatever pack() takes but a flat vector.
    cell, reset: what the tensors themselves do not show (tanh or relu of a plain RNN; the reset
        of a GRU in ONNX, concat, or Keras without biases).

    SpecError: they fit several RNNs; the text asks for what is missing.
    LayoutError: they fit none; the text says what is wrong.

        >>> import numpy as np
        >>> infer_spec({"kernel": np.ones((2, 12)), "recurrent_kernel": np.ones((3, 12)),
        ...             "bias": np.ones(12)}, "keras").hidden_size
        3
    """
    for name, value in (("cell", cell), ("reset", reset)):
        if value is not None and not isinstance(value, str):
            raise SpecError(f"{name} is {value!r}, need a name")
    return read(tensors, None, layout, prefix, cell=cell, reset=reset).spec


# ------------------------------------------------------------------------------ one dtype for all


def _take_all(
    values: Iterable[tuple[str, Any]], spec: Spec | None, dtype_free: bool
) -> tuple[list[np.ndarray], str]:
    """Return the bits of all (name, array), and their one dtype."""
    taken = [(name, *take(value, name)) for name, value in values]
    (first, _, dtype), *others = taken
    for name, _, other in others:
        if other != dtype:
            raise LayoutError(
                f"{first} is {dtype} but {name} is {other}: the tensors of one RNN have one dtype"
            )
    _check_dtype(first, dtype, spec, dtype_free)
    return [array for _, array, _ in taken], dtype


def _check_dtype(name: str, dtype: str, spec: Spec | None, dtype_free: bool) -> None:
    if spec is not None and dtype != spec.dtype and not dtype_free:
        raise LayoutError(
            f"{name} is {dtype}, the spec says {spec.dtype}: pass dtype={spec.dtype!r} to convert,"
            " or change the spec"
        )


# ------------------------------------------------------------------------------------- resolving


def _resolve(
    found: list[tuple[Layout, Arrays]],
    spec: Spec | None,
    dtype: str,
    hints: dict[str, Any],
    original: list[str],
) -> Given:
    """Return the one RNN that the arrays fit. found: for each layout that may be."""
    if spec is not None:
        return _resolve_spec(found, spec.replace(dtype=dtype), original)
    guesses: list[tuple[Guess, Named]] = []
    for layout, arrays in found:
        for candidate in _candidates(layout, arrays, hints):
            named = _ordered(candidate.names, arrays)
            guesses.append((guess(candidate, _shapes(named)), named))
    if not guesses:
        raise mismatch.wrong_names([layout for layout, _ in found], original, None)
    right = [g for g, _ in guesses if g.fits and _agrees(g, hints)]
    if not right:
        names = min((g for g, _ in guesses), key=lambda g: len(g.wrong)).candidate.names
        raise mismatch.wrong_shapes([g for g, _ in guesses if g.candidate.names == names])
    spec, best = choose(right, dtype, hints)
    named = next(named for g, named in guesses if g is best)
    return _finish(spec, best.candidate.layout, best.candidate.has, named)


def _candidates(layout: Layout, arrays: Arrays, hints: dict[str, Any]) -> list[Candidate]:
    """Return the RNNs that have so many tensors, of these names, and agree with the hints."""
    if isinstance(arrays, dict):
        fit: Iterable[Candidate] = with_names(layout, frozenset(arrays))
    else:
        fit = with_count(layout, len(arrays))
    keys = hints.keys() & {"cell", "reset", "bidirectional"}
    return [c for c in fit if all([getattr(c, key) == hints[key] for key in keys])]


def _agrees(g: Guess, hints: dict[str, Any]) -> bool:
    sizes = {"input_size": "I", "hidden_size": "H", "proj_size": "P"}
    return all([g.sizes.get(sizes[key], 0) == hints[key] for key in hints.keys() & sizes.keys()])


def _resolve_spec(found: list[tuple[Layout, Arrays]], spec: Spec, original: list[str]) -> Given:
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
        layout = found[0][0]
        expected_names = [name for name, _ in _native.tensors(layout, spec)]
        raise mismatch.wrong_names([layout], original, expected_names)
    exact = [match for match in matches if _shapes(match[2]) == match[3]]
    if not exact:
        layout, has, named, expected = matches[0]
        raise mismatch.against_spec(layout, spec, has, _shapes(named), expected)
    if len({m[0] for m in exact}) > 1:
        names = mismatch.listing(sorted(m[0].name for m in exact))
        raise LayoutError(f"these tensors fit several layouts, pass one of them: {names}")
    layout, has, named, _ = exact[0]
    return _finish(spec, layout, has, named)


def _variants(spec: Spec) -> list[int]:
    """Which optional tensors a source may have, beginning with what the spec says."""
    first = 0 if spec.bias == "none" else HAS_BIAS
    return [has | more for more in (0, HAS_PEEPHOLES) for has in (first, first ^ HAS_BIAS)]


def _ordered(names: Collection[str], arrays: Arrays) -> Named:
    """Return the arrays by name, in the order of the names; nothing if they have others."""
    if isinstance(arrays, list):
        return dict(zip(names, arrays, strict=True)) if len(names) == len(arrays) else {}
    return {name: arrays[name] for name in names} if arrays.keys() == set(names) else {}


def _shapes(named: Named) -> dict[str, Shape]:
    return {name: array.shape for name, array in named.items()}


def _finish(spec: Spec, layout: Layout, has: int, named: Named) -> Given:
    return Given(spec, layout, has, list(named), [as_carrier(a) for a in named.values()])


# ------------------------------------------------------------------------------------ the sources


def _again(old: Given, spec: Spec | None, wanted: Layout | None, dtype_free: bool) -> Given:
    if wanted is not None and wanted != old.layout:
        raise LayoutError(f"these Weights are in layout {old.layout}, not {wanted}")
    if spec is not None:
        _check_dtype("the Weights", old.dtype, spec, dtype_free)
        arrays = dict(zip(old.names, old.arrays, strict=True))
        return _resolve_spec([(old.layout, arrays)], spec.replace(dtype=old.dtype), old.names)
    return old


@cache
def _plain_layouts() -> list[Layout]:
    """Where a dict of no stated layout may belong. cudnn is a flat vector, and concat does not
    show which of its forms it is."""
    return [Layout(name) for name, info in known_layouts().items()
            if name != "cudnn" and not info["options"]]  # fmt: skip


def _read_dict(
    source: Mapping[Any, Any],
    spec: Spec | None,
    wanted: Layout | None,
    prefix: str,
    dtype_free: bool,
    hints: dict[str, Any],
) -> Given:
    names = [name for name in source if isinstance(name, str)]
    if len(names) != len(source) or not names:
        raise LayoutError("the dict of tensors is empty" if not source else "a key is no string")
    if wanted is not None and wanted.name == "cudnn":
        raise LayoutError("cudnn is one flat vector, found a dict of " + mismatch.listing(names))
    maybe = [wanted] if wanted else _plain_layouts()
    rest = strip_prefix(names, prefix)
    if not rest:
        raise (
            mismatch.wrong_names(maybe, names, [])
            if len(names) > 1
            else LayoutError(f"no key begins with {prefix!r}; found {mismatch.listing(names)}")
        )
    if wanted is None and (concat := _looks_like_concat(rest.values())):
        raise LayoutError(
            f"{mismatch.listing(concat)}: the tensors of layout 'concat', which do not show in"
            " which order h and x stand nor what z does: pass layout=rl.layout('concat',"
            " inputs='hx' or 'xh', z='state' or 'candidate')"
        )
    known = {layout: tensors_of(layout, rest.values()) for layout in maybe}
    if not any(known.values()):
        name, tail = next(iter(rest.items()))
        under = name.removesuffix(tail)
        expected = _expected_names(maybe, spec)
        raise mismatch.wrong_names(maybe, list(rest.values()), expected, under)
    values = ((name, source[name]) for name in rest)
    taken, dtype = _take_all(values, spec, dtype_free)
    found: list[tuple[Layout, Arrays]] = [
        (layout, dict(zip([tensors[name] for name in rest.values()], taken, strict=True)))
        for layout, tensors in known.items()
        if tensors
    ]
    return _resolve(found, spec, dtype, hints, list(rest.values()))


def _expected_names(maybe: list[Layout], spec: Spec | None) -> list[str] | None:
    """What a spec asks for, where the layout is known."""
    if spec is None or len(maybe) > 1:
        return None
    return [name for name, _ in _native.tensors(maybe[0], spec)]


def _looks_like_concat(names: Any) -> list[str]:
    leaves = [name.split("/")[-1] for name in names]
    return [n for n in leaves if n[:2] in ("W_", "b_") and len(n) == 3]


def _read_list(
    source: list[Any],
    spec: Spec | None,
    wanted: Layout | None,
    dtype_free: bool,
    hints: dict[str, Any],
) -> Given:
    if not source:
        raise LayoutError("the list of tensors is empty")
    if all(frameworks.is_keras_layer(x) or frameworks.is_torch_module(x) for x in source):
        return _again(stacked([read(x) for x in source]), spec, wanted, dtype_free)
    if any(isinstance(x, Mapping) for x in source):
        raise LayoutError("a list of dicts or Weights: to make one RNN of them use rl.stack([...])")
    if all(isinstance(x, (list, tuple)) for x in source):
        source = [array for layer in source for array in layer]
    if wanted is None:
        raise LayoutError(
            f"a bare list of {len(source)} arrays does not tell its layout: name it, layout='keras'"
            " (of get_weights()), 'torch', 'onnx' ...; in convert() it is src="
        )
    if wanted.name == "cudnn":
        one = len(source) == 1 and getattr(source[0], "ndim", 0) == 1
        return _read_flat(source[0] if one else source, spec, wanted, dtype_free)
    values = ((f"array {k}", value) for k, value in enumerate(source))
    arrays, dtype = _take_all(values, spec, dtype_free)
    return _resolve([(wanted, arrays)], spec, dtype, hints, [str(a.shape) for a in arrays])


def _read_flat(source: Any, spec: Spec | None, wanted: Layout | None, dtype_free: bool) -> Given:
    if wanted is not None and wanted.name != "cudnn":
        raise LayoutError(
            f"{wanted} is a dict or list of tensors, found one {type(source).__name__}"
        )
    array, dtype = take(source, "weight space")
    if spec is None:
        raise SpecError(
            f"a flat vector of {array.size} elements does not tell what RNN it holds: pass spec="
        )
    _check_dtype("weight space", dtype, spec, dtype_free)
    if dtype != spec.dtype:
        spec = spec.replace(dtype=dtype)
    layout = wanted or CUDNN
    _native.check(spec, layout)
    if array.ndim != 1:
        raise LayoutError(
            f"weight space: shape {array.shape}, expected ({spec.num_params},): one dimension"
            " (cuDNN's own wDesc is (n, 1, 1): pass w.reshape(-1))"
        )
    if array.size != spec.num_params:
        raise mismatch.wrong_length(array.size, spec)
    return Given(spec, layout, HAS_BIAS, ["weight_space"], [as_carrier(array)])


def _read_torch(module: Any, spec: Spec | None, wanted: Layout | None, dtype_free: bool) -> Given:
    name, hints = frameworks.torch_hints(module)
    layout = _check_layout(Layout(name), wanted, module)
    told = Spec(**hints)
    names = [n for n, _ in _native.tensors(layout, told)]
    # attributes are what the module computes with: of weight norm or pruning, the result
    values = ((name, getattr(module, name)) for name in names)
    arrays, dtype = _take_all(values, spec, dtype_free)
    if spec is not None:
        check_agrees(spec, told)
    return _resolve_spec(
        [(layout, dict(zip(names, arrays, strict=True)))],
        (spec or told).replace(dtype=dtype),
        names,
    )


def _read_keras(layer: Any, spec: Spec | None, wanted: Layout | None, dtype_free: bool) -> Given:
    name, hints = frameworks.keras_hints(layer)
    layout = _check_layout(Layout(name), wanted, layer)
    weights = enumerate(frameworks.keras_weights(layer))
    values = ((f"{layer.name} weight {k}", value) for k, value in weights)
    arrays, dtype = _take_all(values, spec, dtype_free)
    result = _resolve([(layout, arrays)], None, dtype, hints, [str(a.shape) for a in arrays])
    if spec is not None:
        check_agrees(spec, result.spec)
        return Given(spec.replace(dtype=dtype), layout, result.has, result.names, result.arrays)
    return result


def _check_layout(layout: Layout, wanted: Layout | None, source: Any) -> Layout:
    if wanted is not None and wanted != layout:
        raise LayoutError(f"{type(source).__name__} is in layout {layout}, not {wanted}")
    return layout


def check_agrees(spec: Spec, told: Spec) -> None:
    """An explicit spec may differ from what an object says of itself only in cuDNN's own terms."""
    for key in ("cell", "input_size", "hidden_size", "num_layers", "bidirectional", "proj_size",
                "reset", "recurrent_activation"):  # fmt: skip
        if getattr(spec, key) != getattr(told, key):
            raise SpecError(
                f"the spec says {key} {getattr(spec, key)!r}, the source itself"
                f" {getattr(told, key)!r}"
            )
