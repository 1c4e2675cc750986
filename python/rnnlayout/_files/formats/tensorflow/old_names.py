"""The names of RNNs in checkpoints of TensorFlow before 1.2.

TensorFlow 1.0 and 1.1 called kernel and bias weights and biases. 0.x had a Linear with a Matrix and
a Bias in a BasicLSTMCell, a BasicRNNCell and the parts of a GRUCell, and W_0, B, W_F_diag ... in an
LSTMCell. The gates, and x before h, are the same
(tensorflow/contrib/rnn/python/tools/checkpoint_convert.py, 1.2; rnn_cell.py, 0.12).
"""

from __future__ import annotations

import re
from dataclasses import replace

from rnnlayout._files.tensor_sets.tensor_set import TensorSet
from rnnlayout._sources.mismatch import list_names

_CELLS = {
    "BasicLSTMCell": "basic_lstm_cell",
    "LSTMCell": "lstm_cell",
    "BasicRNNCell": "basic_rnn_cell",
    "GRUCell": "gru_cell",
}
_LEAVES = {
    "weights": "kernel",
    "biases": "bias",
    "Linear/Matrix": "kernel",
    "Linear/Bias": "bias",
    "W_0": "kernel",
    "B": "bias",
    **{f"W_{gate}_diag": f"w_{gate.lower()}_diag" for gate in "FIO"},
    "W_P_0": "projection/kernel",
}
# a cell with a number if there are several, a part of the cell, a tensor, the slot of an optimizer
_OLD = re.compile(
    rf"((?:.*/)?)({'|'.join([*_CELLS, *_CELLS.values()])})(_\d+)?"
    rf"/((?:gates|candidate|projection|Gates|Candidate)/)?({'|'.join(_LEAVES)})(/.*)?",
    re.DOTALL,
)


def new_name(name: str) -> str:
    """Return the name of a tensor since TensorFlow 1.2; the name itself unless it is older.

    >>> new_name("RNN/BasicLSTMCell/Linear/Matrix"), new_name("a/lstm_cell_1/projection/weights")
    ('RNN/basic_lstm_cell/kernel', 'a/lstm_cell_1/projection/kernel')
    """
    match = _OLD.fullmatch(name)
    if match is None:
        return name
    scope, cell, number, part, leaf, slot = (group or "" for group in match.groups())
    cell = _CELLS.get(cell, cell)
    return f"{scope}{cell}{number}/{part.lower()}{_LEAVES[leaf]}{slot}"


def with_new_names(tensor_set: TensorSet) -> TensorSet:
    """Return the tensors under their names since TensorFlow 1.2, with a note."""
    renamed = {name: new_name(name) for name in tensor_set.tensors}
    old = {name: new for name, new in renamed.items() if new != name and new not in renamed}
    if not old:
        return tensor_set
    tensors = {old.get(name, name): tensor for name, tensor in tensor_set.tensors.items()}
    if len(tensors) < len(tensor_set.tensors):  # two old names of one tensor
        return tensor_set
    names, new_names = list_names([*old], 2), list_names([*old.values()], 2)
    note = f"{names}: names of TensorFlow before 1.2, read as {new_names}"
    notes, derived = [*tensor_set.notes, note], frozenset(old.values())
    return replace(tensor_set, tensors=tensors, notes=notes, derived=derived)
