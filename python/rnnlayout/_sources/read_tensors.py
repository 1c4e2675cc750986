"""Read arrays as one RNN: a dict by its names, or a list in the order of a layout.

A dict may contain an RNN rather than being one: what load() returns, nested dicts, a checkpoint.
Then it is asked which layout's names are those under the prefix, and becomes a list with names: its
bits, in one dtype, in the order of the layout that they fit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
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
from .jax_modules import MOST_DICTS, is_branch, jax_cell_class, walk_parameters
from .reading import Reading
from .tensor_paths import is_under, match_layout_names, prefixes_that_fit, strip_prefix
from .torch_names import plain_names, plain_value

_MOST = 12  # prefixes in a message


def only_rnn(source: Any, prefix: str = "") -> Any:
    """Return the one RNN in a source: in a dict of RNNs, as load() returns it, or in nested dicts
    that have a single cell under the prefix and nothing else. Return other sources as they are.
    prefix: chooses among several. Raises LayoutError if there is not exactly one."""
    if not isinstance(source, Mapping) or isinstance(source, Weights):
        return source
    unread = {n: kind for kind in ("undecided", "refused") for n in getattr(source, kind, ())}
    if not source and not unread:
        return source
    if not all(isinstance(value, Weights) for value in source.values()):
        under = _leaves_under(source, prefix) if any(map(is_branch, source.values())) else []
        return under[0] if len(under) == 1 and jax_cell_class(under[0]) else source
    kinds = {name: rnn.spec.cell for name, rnn in source.items()} | unread
    rnns = [(name, kind, name) for name, kind in kinds.items()]
    return source[mismatch.choose_under_prefix(rnns, prefix, type(source).__name__)]


def read_dict(source: Mapping[Any, Any], reading: Reading) -> Weights:
    """Find out which RNN the tensors under the prefix are, and check it."""
    prefix = reading.prefix
    maybe = (reading.layout,) if reading.layout else fitting.plain_layouts()
    whole = source
    if any(map(is_branch, source.values())):
        source = _flatten_rnn_dicts(source, prefix, maybe)
    names = tuple([name for name in source if isinstance(name, str)])
    if len(names) != len(source) or not names:
        raise LayoutError("a key is not a string" if source else "the dict of tensors is empty")
    if reading.layout is not None and reading.layout.name == "cudnn":
        raise LayoutError(f"cudnn is one flat vector, found a dict of {mismatch.list_names(names)}")
    plain = plain_names(names)
    rest = strip_prefix(plain.sources, plain.name(prefix))
    tails = tuple(rest.values())
    if not fitting.names_in_layouts(tails, reading.layout):
        if error := _checkpoint_error(source, maybe):
            raise error
        if not rest:
            found = mismatch.list_names(plain.sources)
            parts: list[TextPart] = [f"no key starts with prefix {prefix!r}; found {found}"]
            if fit := prefixes_that_fit(maybe, plain.sources):
                parts += ["; with ", Ask("prefix"), " these would work: "]
                parts += [mismatch.list_names(fit, 12)]
            raise LayoutError(*parts)
        raise _wrong_names(rest, maybe, reading)
    if source is not whole and (cells := [*filter(jax_cell_class, _leaves_under(whole, prefix))]):
        reading = _spec_of_cells(cells, reading)
    values = [(name, plain_value(name, plain, source)) for name in rest]
    return read_tensors(values, tails, reading)


def read_described(tensors: Mapping[str, Any], spec: Spec, layout: str | Layout) -> Weights:
    """Return the RNN that a file describes. tensors: by the layout's names; if they are in its
    order, the names are not looked up."""
    reading = Reading(spec, as_layout(layout))
    if tuple(tensors) == tuple(describe(spec, layout)):
        return read_tensors(tensors.items(), None, reading)
    return read_dict(tensors, reading)


def read_tensors(
    values: Iterable[tuple[str, Any]], names: tuple[str, ...] | None, reading: Reading
) -> Weights:
    """Return the RNN of arrays, each with a name for messages. names: what tells which array is
    which; None if they are in the order of reading.layout. Raises UndecidedError if several fit."""
    labels: list[str] = []
    arrays: list[np.ndarray] = []
    rounded: list[str] = []
    dtype = ""
    for label, value in values:
        array, array_dtype = take_bits(value, label)
        dtype = dtype or array_dtype
        if array_dtype != dtype:
            raise LayoutError(
                f"{labels[0]} is {dtype} but {label} is {array_dtype}: all tensors of an RNN need"
                " one dtype"
            )
        labels.append(label)
        arrays.append(array)
        if isinstance(value, Bits) and value.rounded:
            rounded.append(label)
    reading.check_dtype(labels[0], dtype)
    rnns = []
    for fits in fitting.fitting_rnns(names, tuple([a.shape for a in arrays]), dtype, reading):
        ordered = [as_carrier(arrays[k]) for k in fits.order]
        rnns.append(checked_weights(fits.spec, fits.layout, fits.optional_tensors, list(fits.names),
                                    ordered, rounded=tuple(rounded)))  # fmt: skip
    if len(rnns) > 1:
        raise _several_specs(rnns)
    return rnns[0]


def _wrong_names(rest: Mapping[str, str], maybe: Sequence[Layout], reading: Reading) -> LayoutError:
    """Return the error for names of no RNN. rest: name -> what is left without the prefix."""
    names = list(rest.values())
    if reading.layout is None:
        leaves = [name.split("/")[-1] for name in names]
        concat = [leaf for leaf in leaves if leaf[:2] in ("W_", "b_") and len(leaf) == 3]
        if concat and not any(leaf.startswith("U_") for leaf in leaves):  # those of Keras 1
            return LayoutError(
                f"{mismatch.list_names(concat)} are tensors of layout 'concat', which does not"
                " record the order of h and x or the meaning of z: pass ",
                Ask("layout", Layout("concat", inputs="hx", z="state")),
                ", or with inputs='xh' or z='candidate'",
            )
        others = fitting.layouts_read_if_named()
        if to_name := [layout for layout in others if match_layout_names(layout, names)]:
            return LayoutError(
                f"{mismatch.list_names(names)} may be tensors of a layout that is read only if it"
                " is named: pass ",
                join_parts(" or ", map(fitting.layout_argument, to_name)),
            )
    name, tail = next(iter(rest.items()))
    spec, layout = reading.spec, reading.layout
    expected = list(describe(spec, layout)) if spec and layout else None
    return mismatch.wrong_names(maybe, names, expected, name.removesuffix(tail))


def _spec_of_cells(cells: Sequence[Any], reading: Reading) -> Reading:
    """Return what is known of the RNN that these cells of Flax or Equinox are parts of."""
    own = [jax_modules.jax_spec(cell) for cell in cells]
    for cell in cells:
        if method := frameworks.overridden(cell, frameworks.JAX):
            raise LayoutError(
                f"{method}, so it may compute something else; if it computes the same, put"
                f" {jax_modules.jax_expression(cell)} in the place of the cell"
            )
    if config := next((one.config for one in own if one.config), None):
        raise LayoutError(
            f"a layer in this dict is used with {describe_config(config)}, which a dict of several"
            " does not keep: pass the layers in a list, bottom first"
        )
    return replace(reading, layout=reading.layout or Layout(own[0].layout))


def _several_specs(rnns: Sequence[Weights]) -> UndecidedError:
    layout, specs = rnns[0].layout, [rnn.spec for rnn in rnns]
    differ = [f.name for f in fields(Spec) if len({getattr(spec, f.name) for spec in specs}) > 1]
    whole = join_parts(" or ", [Ask("spec", spec, tuple(differ)) for spec in specs[:6]])
    if differ == ["cell"] and len(specs) == 2:
        return UndecidedError(
            "these tensors do not show whether this plain RNN uses tanh or relu: pass ",
            Ask("cell", "rnn_tanh"), " or ", Ask("cell", "rnn_relu"), "; or the whole ", whole,
            candidates=rnns, arguments=differ, reason="tanh or relu, which tensors do not show",
        )  # fmt: skip
    if differ == ["reset"]:
        return UndecidedError(
            f"{layout} does not record where the reset gate of this GRU acts: pass ",
            Ask("reset", "after"), " (on the product R h) or ", Ask("reset", "before"),
            " (on h); or the whole ", whole, candidates=rnns, arguments=differ,
            reason=f"where the reset gate acts, which layout {layout} does not record",
        )  # fmt: skip
    return UndecidedError(
        "these tensors fit several RNNs: pass ", whole, candidates=rnns, arguments=["spec"],
        reason=f"{' and '.join(differ)}, which tensors do not show",
    )  # fmt: skip


# ------------------------------------------------------------------------------- nested dicts


def _leaves_under(source: Mapping[Any, Any], prefix: str) -> list[Any]:
    """Return the leaves of nested dicts under the prefix, of which cells are one each."""
    leaves = walk_parameters(source, whole_cells=True)
    return [value for name, value in leaves if is_under(name, prefix)]


def _flatten_rnn_dicts(
    source: Mapping[Any, Any], prefix: str, layouts: Sequence[Layout]
) -> Mapping[Any, Any]:
    """Return nested dicts as one dict if the tensors under the prefix are then those of one RNN.

    Flax's {"hi": {"kernel": w, "bias": b} ...} becomes {"hi/kernel": w, "hi/bias": b ...}. Cells of
    Flax and Equinox are dicts of their arrays. Dicts around that contain nothing else are dropped:
    of {"params": {"cell": ...}}. Other sources stay as they are.
    """
    leaves = flatten_dicts(source)
    if (around := around_rnn(leaves, prefix, layouts)) is None:
        return source
    return {name.removeprefix(around): value for name, value in leaves.items()}


def flatten_dicts(source: Mapping[Any, Any]) -> dict[str, Any]:
    """Return nested dicts as one, with paths as names. Raises LayoutError if two are equal."""
    pairs = list(walk_parameters(source))
    leaves = dict(pairs)
    if len(leaves) != len(pairs):
        name = next(name for k, (name, _) in enumerate(pairs) if name in dict(pairs[:k]))
        raise LayoutError(f"two tensors are named {name!r}, one of them in nested dicts")
    return leaves


def around_rnn(names: Collection[str], prefix: str, layouts: Sequence[Layout]) -> str | None:
    """Return the beginning of all names without which those under the prefix are one RNN, if any.
    With a prefix it is "". One side of a Bidirectional of Flax is not all of it: if both have the
    same cell, Flax has only one of them."""
    under = strip_prefix(names, prefix).values()
    if any(match_layout_names(layout, under) for layout in layouts):
        return ""
    for around in [] if prefix else prefixes_that_fit(layouts, names):
        one_side = not {"forward_rnn", "backward_rnn"}.isdisjoint(around.split("/"))
        if all(name.startswith(f"{around}/") for name in names) and not one_side:
            return f"{around}/"
    return None


# ------------------------------------------------------------------- which part of a checkpoint?


def _checkpoint_error(source: Mapping[Any, Any], layouts: Sequence[Layout]) -> LayoutError | None:
    """Return the error for a checkpoint: a dict that contains the dict of an RNN's tensors.
    layouts: those that the tensors may be in. None if the source contains no dicts and modules."""
    parts = list(_parts_to_pass(source, "", layouts))
    if not parts:
        return None
    keys = mismatch.list_names((key for key in source if isinstance(key, str)), 8)
    if found := [part for part in parts if part]:
        return LayoutError(
            f"this dict is a checkpoint with {keys}, not the tensors of an RNN: pass its ",
            join_parts(" or its ", found),
        )
    prefixes = prefixes_that_fit(layouts, flatten_dicts(source))
    if prefixes:  # Haiku's {"lstm/linear": ...}
        return LayoutError(
            f"this dict of {keys} is not one RNN: pass ", _prefix_arguments(prefixes)
        )
    return LayoutError(
        f"this is a dict of {keys}: no dict in it has the tensors of an RNN under any prefix"
    )


def _parts_to_pass(
    source: Mapping[Any, Any], at: str, layouts: Sequence[Layout]
) -> Iterator[TextPart]:
    """Yield how to pass each part that is a dict or module, "" for one that has no RNN. at: the
    keys of the source, as in "['a']['b']"."""
    if at.count("[") > MOST_DICTS:
        return
    for key, value in source.items():
        here = f"{at}[{key!r}]"
        if isinstance(value, Mapping):
            branches = any(map(is_branch, value.values()))
            if branches and around_rnn(flatten_dicts(value), "", layouts) == "":
                yield here
                continue
            yield _with_prefix(here, value, layouts)
            yield from _parts_to_pass(value, here, layouts)
        elif framework := frameworks.framework_of(value):
            with suppress(Error):  # it may contain an RNN
                framework.describe(value)
                if not frameworks.overridden(value, framework):
                    yield here
                    continue
            names = value.state_dict() if hasattr(value, "state_dict") else {}
            yield _with_prefix(f"{here}.state_dict()", names, layouts)


def _with_prefix(part: str, names: Iterable[Any], layouts: Sequence[Layout]) -> TextPart:
    """Return the part with the prefix= that tensors of these names need, "" if none would work."""
    names = list(plain_names(tuple([name for name in names if isinstance(name, str)])).sources)
    if names and any(match_layout_names(layout, names) for layout in layouts):
        return part
    prefixes = prefixes_that_fit(layouts, names)
    return Message(f"{part} with ", _prefix_arguments(prefixes)) if prefixes else ""


def _prefix_arguments(prefixes: Sequence[str]) -> Message:
    more = f" and {len(prefixes) - _MOST} more" if len(prefixes) > _MOST else ""
    return Message(join_parts(" or ", [Ask("prefix", one) for one in prefixes[:_MOST]]), more)
