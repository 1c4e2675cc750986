"""Read arrays as one RNN: their bits, in one dtype, in the order of the layout that they fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from rnnlayout._model.asks import Ask, join_messages
from rnnlayout._model.checked_rnn import CheckedRNN
from rnnlayout._model.dtypes import Bits, as_carrier, take_bits
from rnnlayout._model.spec import Spec
from rnnlayout._model.undecided import UndecidedError
from rnnlayout._native import LayoutError

from .caller_spec import CallerSpec
from .fitting import fitting_rnns


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
