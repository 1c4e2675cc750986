"""Read arrays as one RNN: a dict by its names, or a list in the order of a layout.

A dict is asked which layout's names are those under the prefix. Then it is a list with names: its
bits, in one dtype, in the order of the layout that they fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from rnnlayout._model.asks import Ask, join_messages
from rnnlayout._model.checked_rnn import CheckedRNN
from rnnlayout._model.config import describe_config
from rnnlayout._model.describe import describe
from rnnlayout._model.dtypes import Bits, as_carrier, take_bits
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import Spec
from rnnlayout._model.undecided import UndecidedError
from rnnlayout._native import LayoutError

from . import frameworks, jax_modules, mismatch
from .caller_spec import CallerSpec
from .containers import cells_under, checkpoint_error, flatten_rnn_dicts
from .fitting import (
    fitting_rnns,
    layout_argument,
    layouts_read_if_named,
    names_in_layouts,
    plain_layouts,
)
from .tensor_paths import match_layout_names, strip_prefix
from .torch_names import plain_names, plain_value


def read_dict(source: Mapping[Any, Any], prefix: str, asked: CallerSpec) -> CheckedRNN:
    """Find out which RNN the tensors under the prefix are, and check it."""
    maybe = (asked.layout,) if asked.layout else plain_layouts()
    whole, source = source, flatten_rnn_dicts(source, prefix, maybe)
    names = tuple([name for name in source if isinstance(name, str)])
    if len(names) != len(source) or not names:
        raise LayoutError("a key is not a string" if source else "the dict of tensors is empty")
    if asked.layout is not None and asked.layout.name == "cudnn":
        raise LayoutError(f"cudnn is one flat vector, found a dict of {mismatch.list_names(names)}")
    plain = plain_names(names)
    rest = strip_prefix(plain.sources, plain.name(prefix))
    tails = tuple(rest.values())
    if not names_in_layouts(tails, asked.layout):
        if error := checkpoint_error(source, maybe):
            raise error
        if not rest:
            raise mismatch.wrong_prefix(maybe, list(plain.sources), prefix)
        raise _wrong_names(rest, maybe, asked)
    if source is not whole and (cells := cells_under(whole, prefix)):
        asked = _spec_of_cells(cells, asked)
    values = [(name, plain_value(name, plain, source)) for name in rest]
    return read_tensors(values, tails, asked)


def read_described(tensors: Mapping[str, Any], spec: Spec, layout: str) -> CheckedRNN:
    """Return the RNN that a file describes. tensors: by the layout's names, in its order."""
    return read_tensors(tensors.items(), None, CallerSpec(spec, Layout(layout)))


def read_tensors(
    values: Iterable[tuple[str, Any]], names: tuple[str, ...] | None, asked: CallerSpec
) -> CheckedRNN:
    """Return the RNN of arrays, each with a name for messages.

    names: what tells which array is which; None if they are in the order of asked.layout. Raises
    UndecidedError if they may be several RNNs.
    """
    labels: list[str] = []
    arrays: list[np.ndarray] = []
    rounded: list[str] = []
    dtype = ""
    for label, value in values:
        array, own = take_bits(value, label)
        dtype = dtype or own
        if own != dtype:
            raise LayoutError(
                f"{labels[0]} is {dtype} but {label} is {own}: all tensors of an RNN need one dtype"
            )
        labels.append(label)
        arrays.append(array)
        if isinstance(value, Bits) and value.rounded:
            rounded.append(label)
    asked.check_dtype(labels[0], dtype)
    found = [
        CheckedRNN(
            fits.spec,
            fits.layout,
            fits.optional_tensors,
            list(fits.names),
            [as_carrier(arrays[k]) for k in fits.order],
            rounded=tuple(rounded),
        )
        for fits in fitting_rnns(names, tuple([a.shape for a in arrays]), dtype, asked)
    ]
    if len(found) > 1:
        raise _several_specs(found)
    return found[0]


def _wrong_names(
    rest: Mapping[str, str], maybe: Sequence[Layout], asked: CallerSpec
) -> LayoutError:
    """Return the error for names of no RNN. rest: name -> what is left without the prefix."""
    names = list(rest.values())
    if asked.layout is None:
        if concat := _concat_names(names):
            return LayoutError(
                f"{mismatch.list_names(concat)} are tensors of layout 'concat', which does not"
                " record the order of h and x or the meaning of z: pass "
                + Ask("layout", Layout("concat", inputs="hx", z="state"))
                + ", or with inputs='xh' or z='candidate'"
            )
        if to_name := [
            layout for layout in layouts_read_if_named() if match_layout_names(layout, names)
        ]:
            return LayoutError(
                f"{mismatch.list_names(names)} may be tensors of a layout that is read only if it"
                " is named: pass " + join_messages(" or ", map(layout_argument, to_name))
            )
    name, tail = next(iter(rest.items()))
    expected = list(describe(asked.spec, asked.layout)) if asked.layout and asked.spec else None
    return mismatch.wrong_names(maybe, names, expected, name.removesuffix(tail))


def _concat_names(names: Iterable[str]) -> list[str]:
    """Return the names of tensors that seem to be concat's, and not those of Keras 1."""
    leaves = [name.split("/")[-1] for name in names]
    if any(leaf.startswith("U_") for leaf in leaves):
        return []
    return [leaf for leaf in leaves if leaf[:2] in ("W_", "b_") and len(leaf) == 3]


def _spec_of_cells(cells: Sequence[Any], asked: CallerSpec) -> CallerSpec:
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
    return replace(asked, layout=asked.layout or Layout(own[0].layout))


def _several_specs(found: Sequence[CheckedRNN]) -> UndecidedError:
    layout, specs = found[0].layout, [one.spec for one in found]
    differ = [f.name for f in fields(Spec) if len({getattr(spec, f.name) for spec in specs}) > 1]
    whole = join_messages(" or ", [Ask("spec", spec, tuple(differ)) for spec in specs[:6]])
    if differ == ["cell"] and len(specs) == 2:
        return UndecidedError(
            "these tensors do not show whether this plain RNN uses tanh or relu: pass "
            + Ask("cell", "rnn_tanh") + " or " + Ask("cell", "rnn_relu") + "; or the whole "
            + whole,
            found, differ, "tanh or relu, which tensors do not show",
        )  # fmt: skip
    if differ == ["reset"]:
        return UndecidedError(
            f"{layout} does not record where the reset gate of this GRU acts: pass "
            + Ask("reset", "after") + " (on the product R h) or " + Ask("reset", "before")
            + " (on h); or the whole " + whole,
            found, differ, f"where the reset gate acts, which layout {layout} does not record",
        )  # fmt: skip
    return UndecidedError(
        "these tensors fit several RNNs: pass " + whole,
        found, ["spec"], f"{' and '.join(differ)}, which tensors do not show",
    )  # fmt: skip
