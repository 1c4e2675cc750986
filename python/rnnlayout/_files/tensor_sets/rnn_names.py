"""The names of the RNNs in a file, of which no two are the same."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from rnnlayout._model.spec import Spec
from rnnlayout._native import LayoutError
from rnnlayout._weights.weights import Weights


def entry_name(prefix: str, spec: Spec | None) -> str:
    """Return the name of an RNN: its prefix, or its cell if it has none."""
    if prefix.rstrip("./"):
        return prefix.rstrip("./")
    return spec.cell.removesuffix("_tanh").removesuffix("_relu") if spec else "rnn"


def plain_name(name: str) -> str:
    """Return a name without slashes and dots, as Keras takes it. It refuses dots only if torch is
    its backend.

        >>> plain_name("encoder.rnn"), plain_name("/enc/LSTM_1")
        ('encoder_rnn', '_enc_LSTM_1')
    """
    return re.sub("[/.]", "_", name)


def layer_names(name: str, num_layers: int) -> list[str]:
    """Return the names of an RNN's layers, bottom first, in files where each layer is an RNN.

    >>> layer_names("encoder.rnn", 2), layer_names("lstm", 1)
    (['encoder_rnn_0', 'encoder_rnn_1'], ['lstm'])
    """
    name = plain_name(name)
    return [name] if num_layers == 1 else [f"{name}_{k}" for k in range(num_layers)]


def check_names(entries: Mapping[str, Weights]) -> None:
    """Raise LayoutError if a name is not text, or if load() would find two RNNs of one name."""
    seen: dict[str, str] = {}
    for name, weights in entries.items():
        try:
            is_text = b"\0" not in name.encode()
        except UnicodeEncodeError:
            is_text = False
        if not is_text:
            raise LayoutError(f"weights[{name!r}]: its name is not text: rename it")
        entry = name or entry_name("", weights.spec)
        if entry in seen:
            raise LayoutError(
                f"weights[{seen[entry]!r}] and weights[{name!r}] would both be named {entry!r},"
                " because an RNN without a name is named after its cell: rename one of them"
            )
        seen[entry] = name


def distinct_names(names: Sequence[str], taken: Collection[str] = ()) -> list[str]:
    """Return names that differ from each other, and from those that are taken.

    The first of several equal names stays; the others get a number that makes them a new name.

        >>> distinct_names(["lstm", "lstm", "lstm_2", "gru"], taken=["gru"])
        ['lstm', 'lstm_3', 'lstm_2', 'gru_2']
    """
    used, all_names, last = set(taken), {*taken, *names}, dict.fromkeys(names, 1)
    result = []
    for name in names:
        new = name
        while new in used or (new != name and new in all_names):
            last[name] += 1
            new = f"{name}_{last[name]}"
        used.add(new)
        result.append(new)
    return result
