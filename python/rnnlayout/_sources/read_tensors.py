"""Read arrays as one RNN: a dict by tensor names, or a list in the order of a layout.

A dict may also contain the RNN: the result of load(), nested dicts, a checkpoint. The names under
the prefix then select the layout, and the arrays are put in the order of the layout, as bits of one
dtype.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from posixpath import commonpath
from typing import Any

import numpy as np

from rnnlayout._model.config import describe_config
from rnnlayout._model.describe import describe
from rnnlayout._model.dtypes import Bits, as_carrier, take_bits
from rnnlayout._model.errors import Ask, Error, Message, TextPart, join_parts
from rnnlayout._model.layout import Layout, as_layout
from rnnlayout._model.spec import Spec
from rnnlayout._model.undecided import UndecidedError
from rnnlayout._model.weights import Weights, checked_weights
from rnnlayout._native import LayoutError

from . import fitting, frameworks, jax_modules, mismatch
from .accounting import harmful_names, is_ignored, switched_off
from .jax_modules import MOST_DICTS, is_branch, jax_cell_class, walk_parameters
from .paddle_modules import second_names, without_second_names
from .reading import Reading
from .tensor_paths import is_under, match_layout_names, prefixes_that_fit, strip_prefix
from .torch_names import plain_names, plain_value

_MOST_PREFIXES = 12  # in a message


def only_rnn(source: Any, prefix: str = "") -> Any:
    """Return the only RNN of a dict of RNNs (as load() returns), or the only cell under the prefix
    of nested dicts. Return another source unchanged. prefix: chooses among several RNNs. Raises
    LayoutError unless exactly one RNN remains."""
    if not isinstance(source, Mapping) or isinstance(source, Weights):
        return source
    unread = {name: kind for kind in ("undecided", "refused") for name in getattr(source, kind, ())}
    if not source and not unread:
        return source
    if not all(isinstance(value, Weights) for value in source.values()):
        leaves = _leaves_under(source, prefix) if any(map(is_branch, source.values())) else []
        return leaves[0] if len(leaves) == 1 and jax_cell_class(leaves[0]) else source
    kinds = {name: rnn.spec.cell for name, rnn in source.items()} | unread
    rnns = [(name, kind, name) for name, kind in kinds.items()]
    return source[mismatch.choose_under_prefix(rnns, prefix, type(source).__name__)]


def read_dict(source: Mapping[Any, Any], reading: Reading) -> Weights:
    """Infer the RNN from the tensors under the prefix, and check the tensors."""
    prefix = reading.prefix
    layouts = (reading.layout,) if reading.layout else fitting.plain_layouts()
    original = source
    if any(map(is_branch, source.values())):
        source = _flatten_rnn_dicts(source, reading, layouts)
    else:
        source = _without_ignored(source, reading.ignore)
    source = without_second_names(source, prefix)
    names = tuple([name for name in source if isinstance(name, str)])
    if len(names) != len(source) or not names:
        raise LayoutError("a key is not a string" if source else "the dict of tensors is empty")
    if reading.layout is not None and reading.layout.name == "cudnn":
        raise LayoutError(f"cudnn is one flat vector, found a dict of {mismatch.list_names(names)}")
    plain = plain_names(names, reading.layout)
    tail_by_name = strip_prefix(plain.sources, plain.name(prefix))
    tails = tuple(tail_by_name.values())
    if not fitting.names_in_layouts(tails, reading.layout):
        if len(harmful := harmful_names(names)) < len(names):
            return read_dict({name: source[name] for name in harmful}, reading)
        if error := _checkpoint_error(source, layouts):
            raise error
        if not tail_by_name:
            keys = mismatch.list_names(plain.sources)
            parts: list[TextPart] = [f"no key starts with prefix {prefix!r}; found {keys}"]
            if prefixes := prefixes_that_fit(layouts, plain.sources):
                parts += ["; with ", Ask("prefix"), " these would work: "]
                parts += [mismatch.list_names(prefixes, 12)]
            raise LayoutError(*parts)
        shapes = {tail: _shape_of(source.get(name)) for name, tail in tail_by_name.items()}
        raise _wrong_names(tail_by_name, layouts, reading, shapes)
    if source is not original and (
        cells := [*filter(jax_cell_class, _leaves_under(original, prefix))]
    ):
        reading = _reading_of_cells(cells, reading)
    if reading.kind != "weights" and (computed := [*filter(plain.computed.get, tail_by_name)]):
        raise mismatch.gradients_of_parts(computed[0], plain.sources[computed[0]])
    named_tensors = [(name, plain_value(name, plain, source)) for name in tail_by_name]
    return read_tensors(named_tensors, tails, reading)


def _without_ignored(source: Mapping[Any, Any], patterns: Sequence[str]) -> Mapping[Any, Any]:
    """Return a dict without the tensors that the caller ignores, and without fake quantizations
    that are switched off."""
    off = switched_off(source.keys(), lambda name: _is_zero(source[name]))
    if not patterns and not off:
        return source
    return {
        name: tensor
        for name, tensor in source.items()
        if not isinstance(name, str) or not (name in off or is_ignored(name, patterns))
    }


def _is_zero(tensor: Any) -> bool:
    is_number = math.prod(getattr(tensor, "shape", (0,))) == 1
    return is_number and not getattr(tensor, "is_meta", False) and not bool(tensor)


def read_described(tensors: Mapping[str, Any], spec: Spec, layout: str | Layout) -> Weights:
    """Return the RNN that a file describes. tensors: by names of the layout. Tensors in the order
    of the layout are read without looking up names, to save time."""
    reading = Reading(spec, as_layout(layout))
    if tuple(tensors) == tuple(describe(spec, layout)):
        return read_tensors(tensors.items(), None, reading)
    return read_dict(tensors, reading)


def read_tensors(
    named_tensors: Iterable[tuple[str, Any]], names: tuple[str, ...] | None, reading: Reading
) -> Weights:
    """Return the RNN of arrays. named_tensors: (name for messages, array) pairs. names: a name per
    array, to match with layouts; None if the arrays are in the order of reading.layout. Raises
    UndecidedError if several RNNs fit."""
    labels: list[str] = []
    arrays: list[np.ndarray] = []
    rounded: list[str] = []
    dtype = ""
    for label, tensor in named_tensors:
        array, array_dtype = take_bits(tensor, label)
        dtype = dtype or array_dtype
        if array_dtype != dtype:
            raise LayoutError(
                f"{labels[0]} is {dtype} but {label} is {array_dtype}: all tensors of an RNN need"
                " one dtype"
            )
        labels.append(label)
        arrays.append(array)
        if isinstance(tensor, Bits) and tensor.rounded:
            rounded.append(label)
    reading.check_dtype(labels[0], dtype)
    rnns = []
    for match in fitting.fitting_rnns(
        names, tuple([array.shape for array in arrays]), dtype, reading
    ):
        ordered = [as_carrier(arrays[index]) for index in match.order]
        rnns.append(
            checked_weights(
                match.spec,
                match.layout,
                match.optional_tensors,
                list(match.names),
                ordered,
                rounded=tuple(rounded),
                kind=reading.kind,
            )
        )
    if len(rnns) > 1:
        raise _several_specs(rnns)
    return rnns[0]


def _shape_of(tensor: Any) -> tuple[int, ...]:
    return tuple(getattr(tensor, "shape", ()))


def _wrong_names(
    tail_by_name: Mapping[str, str],
    layouts: Sequence[Layout],
    reading: Reading,
    shapes: Mapping[str, tuple[int, ...]],
) -> LayoutError:
    """Return the error for names that fit no RNN. tail_by_name: name -> name without the prefix.
    shapes: by name without the prefix."""
    names = list(tail_by_name.values())
    if reading.layout is None:
        actual = tuple([shapes[name] for name in names])
        is_known = match_layout_names(Layout("concat"), names) or any(
            fitting.fitting_if_named(tuple(names), actual, "float32", reading)
        )
        if not is_known and (advice := mismatch.names_by_hand(shapes)):
            listing = mismatch.list_names(names)
            return LayoutError(f"{listing} do not have the names of a layout; ", advice)
        leaves = [name.split("/")[-1] for name in names]
        concat = [leaf for leaf in leaves if leaf[:2] in ("W_", "b_") and len(leaf) == 3]
        if concat and not any(leaf.startswith("U_") for leaf in leaves):  # with U_: Keras 1
            return LayoutError(
                f"{mismatch.list_names(concat)} are tensors of layout 'concat', which does not"
                " record the order of h and x or the meaning of z: pass ",
                Ask("layout", Layout("concat", inputs="hx", z="state")),
                ", or with inputs='xh' or z='candidate'",
            )
        if_named = fitting.layouts_read_if_named()
        if matching := [layout for layout in if_named if match_layout_names(layout, names)]:
            return LayoutError(
                f"{mismatch.list_names(names)} may be tensors of a layout that is read only if it"
                " is named: pass ",
                join_parts(" or ", map(fitting.layout_argument, matching)),
            )
    name, tail = next(iter(tail_by_name.items()))
    spec, layout = reading.spec, reading.layout
    expected = list(describe(spec, layout)) if spec and layout else None
    return mismatch.wrong_names(layouts, names, expected, name.removesuffix(tail))


def _reading_of_cells(cells: Sequence[Any], reading: Reading) -> Reading:
    """Return the reading with the layout of these cells of Flax or Equinox, checked: each cell
    computes the function of its class."""
    rnns = [jax_modules.jax_spec(cell) for cell in cells]
    for cell in cells:
        if method := frameworks.overridden(cell, frameworks.JAX):
            raise LayoutError(
                f"{method}, so it may compute something else; if it computes the same, put"
                f" {jax_modules.jax_expression(cell)} in the place of the cell"
            )
    if config := next((rnn.config for rnn in rnns if rnn.config), None):
        raise LayoutError(
            f"a layer in this dict is used with {describe_config(config)}, which a dict of several"
            " does not keep: pass the layers in a list, bottom first"
        )
    return replace(reading, layout=reading.layout or Layout(rnns[0].layout))


def _several_specs(rnns: Sequence[Weights]) -> UndecidedError:
    layout, specs = rnns[0].layout, [rnn.spec for rnn in rnns]
    differing = [
        field.name
        for field in fields(Spec)
        if len({getattr(spec, field.name) for spec in specs}) > 1
    ]
    spec_arguments = join_parts(" or ", [Ask("spec", spec, tuple(differing)) for spec in specs[:6]])
    if differing == ["cell"] and len(specs) == 2:
        return UndecidedError(
            "these tensors do not show whether this plain RNN uses tanh or relu: pass ",
            Ask("cell", "rnn_tanh"),
            " or ",
            Ask("cell", "rnn_relu"),
            "; or the whole ",
            spec_arguments,
            candidates=rnns,
            arguments=differing,
            reason="tanh or relu, which tensors do not show",
        )
    if differing == ["reset"]:
        return UndecidedError(
            f"{layout} does not record where the reset gate of this GRU acts: pass ",
            Ask("reset", "after"),
            " (on the product R h) or ",
            Ask("reset", "before"),
            " (on h); or the whole ",
            spec_arguments,
            candidates=rnns,
            arguments=differing,
            reason=f"where the reset gate acts, which layout {layout} does not record",
        )
    return UndecidedError(
        "these tensors fit several RNNs: pass ",
        spec_arguments,
        candidates=rnns,
        arguments=["spec"],
        reason=f"{' and '.join(differing)}, which tensors do not show",
    )


# ------------------------------------------------------------------------------- nested dicts


def _leaves_under(source: Mapping[Any, Any], prefix: str) -> list[Any]:
    """Return the leaves of nested dicts under the prefix. A cell is one leaf."""
    leaves = walk_parameters(source, whole_cells=True)
    return [leaf for name, leaf in leaves if is_under(name, prefix)]


def _flatten_rnn_dicts(
    source: Mapping[Any, Any], reading: Reading, layouts: Sequence[Layout]
) -> Mapping[Any, Any]:
    """Return nested dicts as one flat dict if the tensors under the prefix then are one RNN, else
    the source unchanged. Raises LayoutError if further tensors lie beside the RNN.

    Flax's {"hi": {"kernel": w, "bias": b} ...} becomes {"hi/kernel": w, "hi/bias": b ...}. A cell
    of Flax or Equinox counts as the dict of its arrays. Outer dicts that contain only the RNN are
    dropped: "params" of {"params": {"cell": ...}}. Ignored and harmless tensors are dropped.
    """
    prefix, leaves = reading.prefix, flatten_dicts(source)
    names = [name for name in leaves if not is_ignored(name, reading.ignore)]
    harmful = harmful_names(names)
    for kept in (names, harmful):
        if (outer := prefix_around_rnn(kept, prefix, layouts)) is not None:
            return {name.removeprefix(outer): leaves[name] for name in kept}
    path = prefix.rstrip("./") or commonpath([f"/{name}" for name in harmful] or ["/"])[1:]
    tails = [*strip_prefix(harmful, path).values()]
    spec, layout = reading.spec, reading.layout
    expected = list(describe(spec, layout)) if spec and layout else None
    start = f"{path}/" if path else ""
    if tails and (error := mismatch.further_tensors(layouts, tails, expected, start)):
        raise error
    return source


def flatten_dicts(source: Mapping[Any, Any]) -> dict[str, Any]:
    """Return nested dicts as one flat dict, with paths as names. Raises LayoutError for two equal
    paths."""
    pairs = list(walk_parameters(source))
    leaves = dict(pairs)
    if len(leaves) != len(pairs):
        name = next(name for k, (name, _) in enumerate(pairs) if name in dict(pairs[:k]))
        raise LayoutError(f"two tensors are named {name!r}, one of them in nested dicts")
    return leaves


def prefix_around_rnn(names: Collection[str], prefix: str, layouts: Sequence[Layout]) -> str | None:
    """Return the common start of all names that must be removed to get the names of one RNN; None
    if no start works. With a prefix, only "" is tried. A side of a Flax Bidirectional does not
    count as the RNN: if both sides share a cell, Flax stores only one side."""
    tails = strip_prefix(names, prefix).values()
    if any(match_layout_names(layout, tails) for layout in layouts):
        return ""
    for outer in [] if prefix else prefixes_that_fit(layouts, names):
        is_one_direction = not {"forward_rnn", "backward_rnn"}.isdisjoint(outer.split("/"))
        if all(name.startswith(f"{outer}/") for name in names) and not is_one_direction:
            return f"{outer}/"
    return None


# ------------------------------------------------------------------------------- checkpoints


def _checkpoint_error(source: Mapping[Any, Any], layouts: Sequence[Layout]) -> LayoutError | None:
    """Return the error for a checkpoint, a dict that contains the dict of an RNN's tensors; None if
    the source contains no dicts and modules. layouts: the layouts to look for."""
    parts = list(_parts_with_rnns(source, "", layouts))
    if not parts:
        return None
    keys = mismatch.list_names((key for key in source if isinstance(key, str)), 8)
    if usable := [part for part in parts if part]:
        return LayoutError(
            f"this dict is a checkpoint with {keys}, not the tensors of an RNN: pass its ",
            join_parts(" or its ", usable),
        )
    prefixes = prefixes_that_fit(layouts, flatten_dicts(source))
    if prefixes:  # Haiku's {"lstm/linear": ...}
        return LayoutError(
            f"this dict of {keys} is not one RNN: pass ", _prefix_arguments(prefixes)
        )
    return LayoutError(
        f"this is a dict of {keys}: no dict in it has the tensors of an RNN under any prefix"
    )


def _parts_with_rnns(
    source: Mapping[Any, Any], parent: str, layouts: Sequence[Layout]
) -> Iterator[TextPart]:
    """Yield the text of the argument for each part that is a dict or module, "" for a part without
    an RNN. parent: the keys of the source, as in "['a']['b']"."""
    if parent.count("[") > MOST_DICTS:
        return
    for key, part in source.items():
        path = f"{parent}[{key!r}]"
        if isinstance(part, Mapping):
            branches = any(map(is_branch, part.values()))
            if branches and prefix_around_rnn(flatten_dicts(part), "", layouts) == "":
                yield path
                continue
            yield _with_prefix(path, part, layouts)
            yield from _parts_with_rnns(part, path, layouts)
        elif framework := frameworks.framework_of(part):
            with suppress(Error):  # it may contain an RNN
                framework.describe(part)
                if not frameworks.overridden(part, framework):
                    yield path
                    continue
            names = part.state_dict() if hasattr(part, "state_dict") else {}
            yield _with_prefix(f"{path}.state_dict()", names, layouts)


def _with_prefix(part: str, names: Iterable[Any], layouts: Sequence[Layout]) -> TextPart:
    """Return the text of the part, with the prefix= that tensors of these names need, or "" if no
    prefix would work."""
    texts = [name for name in names if isinstance(name, str)]
    doubles = second_names(texts)
    names = list(plain_names(tuple([name for name in texts if name not in doubles]), None).sources)
    if names and any(match_layout_names(layout, names) for layout in layouts):
        return part
    prefixes = prefixes_that_fit(layouts, names)
    return Message(f"{part} with ", _prefix_arguments(prefixes)) if prefixes else ""


def _prefix_arguments(prefixes: Sequence[str]) -> Message:
    remainder = (
        f" and {len(prefixes) - _MOST_PREFIXES} more" if len(prefixes) > _MOST_PREFIXES else ""
    )
    return Message(
        join_parts(" or ", [Ask("prefix", prefix) for prefix in prefixes[:_MOST_PREFIXES]]),
        remainder,
    )
