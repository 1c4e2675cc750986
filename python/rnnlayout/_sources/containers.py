"""Sources that contain an RNN rather than being one: a file's path, what load() returns, a
checkpoint. Which part of it has to be passed?
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from rnnlayout._model.asks import Ask, Message, join_messages
from rnnlayout._model.checked_rnn import HasRNN, checked_rnn_of
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import Spec
from rnnlayout._native import Error, LayoutError

from . import frameworks
from .jax_modules import MOST_DICTS, is_branch, is_jax_cell, walk_parameters
from .mismatch import choose_under_prefix, list_names
from .tensor_paths import is_under, match_layout_names, prefixes_that_fit, strip_prefix
from .torch_names import plain_names

_MOST = 12  # prefixes in a message


def path_error(path: Any, spec: Spec | None, layout: Layout | None, prefix: str) -> LayoutError:
    """Return the error for a path in place of weights. The rest is what the caller also passed."""
    arguments = [repr(os.fsdecode(path))]
    arguments += [f"rl.{spec!r}"] if spec is not None else []
    arguments += [f"layout=rl.{layout!r}"] if layout is not None else []
    arguments += [f"prefix={prefix!r}"] if prefix else []
    return LayoutError(
        f"{arguments[0]} is a path, need weights: pass rl.load({', '.join(arguments)})"
    )


def only_rnn(source: Any, prefix: str = "") -> Any:
    """Return the one RNN in a source: in a dict of RNNs, as load() returns it, or in nested dicts
    that have a single cell under the prefix and nothing else. Return other sources as they are.

    prefix: chooses among several. Raises LayoutError if there is not exactly one.
    """
    if not isinstance(source, Mapping) or isinstance(source, HasRNN):
        return source
    unread = {n: kind for kind in ("undecided", "refused") for n in getattr(source, kind, ())}
    if not source and not unread:
        return source
    if not all(isinstance(value, HasRNN) for value in source.values()):
        under = _leaves_under(source, prefix)
        return under[0] if len(under) == 1 and is_jax_cell(under[0]) else source
    kinds = {name: checked_rnn_of(one).spec.cell for name, one in source.items()} | unread
    rnns = [(name, kind, name) for name, kind in kinds.items()]
    return source[choose_under_prefix(rnns, prefix, type(source).__name__)]


def flatten_rnn_dicts(
    source: Mapping[Any, Any], prefix: str, layouts: Sequence[Layout]
) -> Mapping[Any, Any]:
    """Return nested dicts as one dict if the tensors under the prefix are then those of one RNN.

    Flax's {"hi": {"kernel": w, "bias": b} ...} becomes {"hi/kernel": w, "hi/bias": b ...}. Cells of
    Flax and Equinox are dicts of their arrays. Dicts around that contain nothing else are dropped:
    of {"params": {"cell": ...}}. Other sources stay as they are.
    """
    if not any(map(is_branch, source.values())):
        return source
    leaves = flatten_dicts(source)
    around = around_rnn(leaves, prefix, layouts)
    if around is None:
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
    same cell, Flax has only one of them.
    """
    under = strip_prefix(names, prefix).values()
    if any(match_layout_names(layout, under) for layout in layouts):
        return ""
    for around in [] if prefix else prefixes_that_fit(layouts, names):
        one_side = not {"forward_rnn", "backward_rnn"}.isdisjoint(around.split("/"))
        if all(name.startswith(f"{around}/") for name in names) and not one_side:
            return f"{around}/"
    return None


def cells_under(source: Mapping[Any, Any], prefix: str) -> list[Any]:
    """Return the cells of Flax and Equinox in nested dicts under the prefix."""
    return [value for value in _leaves_under(source, prefix) if is_jax_cell(value)]


def _leaves_under(source: Mapping[Any, Any], prefix: str) -> list[Any]:
    """Return the leaves of nested dicts under the prefix, of which cells are one each."""
    if not any(map(is_branch, source.values())):
        return []
    leaves = walk_parameters(source, whole_cells=True)
    return [value for name, value in leaves if is_under(name, prefix)]


def checkpoint_error(source: Mapping[Any, Any], layouts: Sequence[Layout]) -> LayoutError | None:
    """Return the error for a checkpoint: a dict that contains the dict of an RNN's tensors.

    layouts: those that the tensors may be in. None if the source contains no dicts and modules.
    """
    parts = list(_parts_to_pass(source, "", layouts))
    if not parts:
        return None
    keys = list_names((key for key in source if isinstance(key, str)), 8)
    if found := [part for part in parts if part]:
        return LayoutError(
            f"this dict is a checkpoint with {keys}, not the tensors of an RNN: pass its "
            + join_messages(" or its ", found)
        )
    if prefixes := prefixes_that_fit(
        layouts, flatten_dicts(source)
    ):  # Haiku's {"lstm/linear": ...}
        return LayoutError(
            f"this dict of {keys} is not one RNN: pass " + _prefix_arguments(prefixes)
        )
    return LayoutError(
        f"this is a dict of {keys}: no dict in it has the tensors of an RNN under any prefix"
    )


def _parts_to_pass(source: Mapping[Any, Any], at: str, layouts: Sequence[Layout]) -> Iterator[str]:
    """Yield how to pass each part that is a dict or module, "" for one that has no RNN.

    at: the keys of the source, as in "['a']['b']".
    """
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
            yield _module_part(value, framework, here, layouts)


def _module_part(
    module: Any, framework: frameworks.Framework, here: str, layouts: Sequence[Layout]
) -> str:
    with suppress(Error):  # it may contain an RNN
        framework.describe(module)
        if not frameworks.overridden(module, framework):
            return here
    names = module.state_dict() if hasattr(module, "state_dict") else {}
    return _with_prefix(f"{here}.state_dict()", names, layouts)


def _with_prefix(part: str, names: Iterable[Any], layouts: Sequence[Layout]) -> str:
    """Return the part with the prefix= that tensors of these names need, "" if none would work."""
    names = list(plain_names(tuple([name for name in names if isinstance(name, str)])).sources)
    if names and any(match_layout_names(layout, names) for layout in layouts):
        return part
    prefixes = prefixes_that_fit(layouts, names)
    return f"{part} with " + _prefix_arguments(prefixes) if prefixes else ""


def _prefix_arguments(prefixes: Sequence[str]) -> Message:
    more = f" and {len(prefixes) - _MOST} more" if len(prefixes) > _MOST else ""
    return join_messages(" or ", [Ask("prefix", one) for one in prefixes[:_MOST]]) + more
