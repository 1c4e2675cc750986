"""Account for the tensors of a file that belong to no RNN: an RNN with unexplained tensors on the
RNN's own path is undecided."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rnnlayout._model.errors import Ask, Message
from rnnlayout._model.undecided import UndecidedError
from rnnlayout._model.weights import Weights
from rnnlayout._sources.accounting import FurtherTensors, shortest_patterns
from rnnlayout._sources.mismatch import list_names

from .file_rnns import entry_name


@dataclass(frozen=True)
class RNNTensors:
    """Where the tensors of an RNN are: path, without the name of a cell, and names."""

    path: str
    names: Collection[str]


def account_for_tensors(
    all_names: Collection[str],
    rnn_names: Collection[str],
    places: Mapping[str, RNNTensors],
    results: Mapping[str, Weights | Exception],
    roots: Collection[str] = ("",),
) -> tuple[dict[str, Weights | Exception], list[str]]:
    """Return the RNNs, with a question in the place of an RNN with unexplained tensors, and notes.

    all_names: of the tensors in the file, but for ignored tensors. rnn_names: of the tensors of all
    RNNs. places, results: by the name of the RNN. roots: the paths of whole models, where modules
    of all kinds lie beside an RNN."""
    further = FurtherTensors(all_names, rnn_names)
    accounted, notes = dict(results), list[str]()
    for entry, place in places.items():
        weights = results[entry]
        if not isinstance(weights, Weights):
            continue
        account = further.account(place.path, place.names, place.path in roots)
        notes += account.notes
        if account.unexplained:
            patterns = shortest_patterns(account.unexplained, place.path, place.names)
            accounted[entry] = _question(entry, weights, account.unexplained, patterns)
    return accounted, notes


def _question(
    entry: str, weights: Weights, unexplained: Collection[str], patterns: list[str]
) -> UndecidedError:
    cell = entry_name("", weights.spec).upper()
    names = list_names(unexplained, 3)
    reason = f"further tensors of the {cell} that may change the outputs: {names}"
    repair = Message(Ask("ignore", patterns))
    return UndecidedError(
        f"{entry}: {reason}; if these tensors change nothing, pass ",
        repair,
        candidates=[weights],
        arguments=["ignore"],
        reason=reason,
        repair=repair,
    )
