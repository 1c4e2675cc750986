"""Which of many named tensors are RNNs?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rnnlayout import _torch_names
from rnnlayout._dtypes import FLOATS, Bits
from rnnlayout._formats import Ask, Tensor
from rnnlayout._layouts import Layout, known_layouts
from rnnlayout._names import prefixes_that_fit, strip_prefix
from rnnlayout._native import LayoutError
from rnnlayout._sources import read
from rnnlayout._weights import Weights


@dataclass(frozen=True)
class Group:
    """The tensors under one prefix ("": all): an RNN, or why not.

    names: theirs in the file. under: what stands there before the layout's own names.
    notes, rounds: which of them were computed, and which of those rounded (weight norm).
    """

    prefix: str
    names: tuple[str, ...]
    weights: Weights | ValueError
    under: str = ""
    notes: tuple[str, ...] = ()
    rounds: tuple[str, ...] = ()

    @property
    def entry(self) -> str:
        """What the RNN is called: its prefix; where it has none, its cell."""
        if self.prefix:
            return self.prefix
        cell = self.weights.spec.cell if isinstance(self.weights, Weights) else "rnn"
        return cell.removesuffix("_tanh").removesuffix("_relu")


def find(tensors: Mapping[str, Tensor], ask: Ask) -> list[Group]:
    """All RNNs among the tensors, in their order."""
    plain = _torch_names.plain(tensors)
    layouts = [Layout(name) for name, info in known_layouts().items() if not info["options"]]
    asked = plain.name(ask.prefix)
    names = list(strip_prefix(plain.tensors, asked)) if asked else list(plain.tensors)
    prefixes = [asked] if asked else prefixes_that_fit(layouts, names) or [""]
    groups = []
    for prefix in prefixes:
        under = list(strip_prefix(names, prefix)) if prefix else names
        weights = _weights(plain.tensors, under, prefix, ask)
        groups.append(_group(plain, prefix, under, weights))
    return groups


def _group(
    plain: _torch_names.Plain, prefix: str, names: list[str], weights: Weights | ValueError
) -> Group:
    stored = tuple(source for name in names for source in plain.sources[name])
    first = names[0] if names else ""
    tail = strip_prefix([first], prefix)[first] if prefix and first else first
    return Group(
        prefix, stored, weights, plain.under(first, tail) if first else "",
        tuple(plain.notes[name] for name in names if name in plain.notes),
        tuple(name for name in names if name in plain.rounds),
    )  # fmt: skip


def _weights(
    tensors: Mapping[str, Tensor], names: list[str], prefix: str, ask: Ask
) -> Weights | ValueError:
    try:
        source = {name: _bits(name, tensors[name]) for name in names}
        return Weights._of(
            read(source, ask.spec, ask.layout, prefix, cell=ask.cell, reset=ask.reset)
        )
    except ValueError as error:
        return error


def _bits(name: str, tensor: Tensor) -> Bits:
    if tensor.dtype not in FLOATS:
        raise LayoutError(f"{name}: dtype {tensor.dtype}, need one of {', '.join(FLOATS)}")
    return Bits(tensor.bits(), tensor.dtype)
