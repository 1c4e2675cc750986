"""Cells that compute something else than an LSTM, a GRU or a plain RNN, although their tensors look
alike: how their classes and their further tensors are named."""

from __future__ import annotations

import re
from typing import NamedTuple


class _OtherCell(NamedTuple):
    """computes: the difference to the plain cell. classes: a pattern in names of classes. tensors:
    a pattern of names of tensors and modules of the cell, "" if the tensors have other names."""

    computes: str
    classes: str
    tensors: str = ""


_OTHER_CELLS = (
    _OtherCell("its gates also read the cell state (peepholes)", r"(?i:peephole)", r"(?i:peep)\w*"),
    _OtherCell(
        "it normalizes the sums of its gates",
        r"(?i:(?<!weight)(?<!weight_)norm(?!al(?!iz)))|(LN|BN)(?=_?(LSTM|GRU|RNN))",
        r"\w*(?i:norm)\w*|(?i:ln|bn)_?\w*",
    ),
    _OtherCell(
        "it multiplies its state by a product of the input",
        r"(?i:multiplicative)|(?<![A-Za-z])mLSTM",
        r"(?i:w_m[ih]h)",
    ),
    _OtherCell("it adds products of small matrices (LoRA)", r"(?i:lora)", r"(?i:lora)_\w+"),
    _OtherCell(
        "it attends to other states",
        r"(?i:attention)|Att(n)?(?![a-z])",
        r"\w*(?i:att(n|ention))\w*",
    ),
    _OtherCell("it mixes its new state with the old state", r"(?i:zoneout)", r"(?i:zoneout)\w*"),
    _OtherCell("its products are convolutions", r"(?i:conv)(?!ert)"),
    _OtherCell("its state decays with time", r"GRU_?D(?![a-z])|(?i:decay|time_?aware)"),
    _OtherCell("a gate that depends on time opens and closes it", r"(?i:phased)"),
    _OtherCell("its input and forget gate are one gate", r"(?i:coupled)|CIFG"),
    _OtherCell("its gates are exponential", r"(?<![A-Za-z])[sx]LSTM"),
    _OtherCell("it has fewer gates", r"(?i:min(imal)?_?(gru|rnn|lstm)|li(ght)?_?gru)|MGU"),
)
PARTS_OF_OTHER_CELLS = "|".join(cell.tensors for cell in _OTHER_CELLS if cell.tensors)


def difference_of_class(class_name: str) -> str:
    """Return what a class computes that a plain cell does not, "" for an unknown class."""
    name = re.split(r"[.>]", class_name)[-1]
    return next((cell.computes for cell in _OTHER_CELLS if re.search(cell.classes, name)), "")
