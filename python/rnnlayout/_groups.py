"""Which of many named tensors are RNNs?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rnnlayout._dtypes import FLOATS, Bits
from rnnlayout._formats import Ask, Tensor
from rnnlayout._layouts import Layout, known_layouts
from rnnlayout._names import prefixes_that_fit, strip_prefix
from rnnlayout._native import LayoutError
from rnnlayout._weights import Weights


@dataclass(frozen=True)
class Group:
    """The tensors under one prefix ("": all): an RNN, or why not."""

    prefix: str
    names: tuple[str, ...]
    weights: Weights | ValueError

    @property
    def entry(self) -> str:
        """What the RNN is called: its prefix; where it has none, its cell."""
        if self.prefix:
            return self.prefix
        cell = self.weights.spec.cell if isinstance(self.weights, Weights) else "rnn"
        return cell.removesuffix("_tanh").removesuffix("_relu")


def find(tensors: Mapping[str, Tensor], ask: Ask) -> list[Group]:
    """All RNNs among the tensors, in their order."""
    layouts = [Layout(name) for name, info in known_layouts().items() if not info["options"]]
    names = list(strip_prefix(tensors, ask.prefix)) if ask.prefix else list(tensors)
    prefixes = [ask.prefix] if ask.prefix else prefixes_that_fit(layouts, names) or [""]
    groups = []
    for prefix in prefixes:
        under = list(strip_prefix(names, prefix)) if prefix else names
        groups.append(Group(prefix, tuple(under), _weights(tensors, under, prefix, ask)))
    return groups


def _weights(
    tensors: Mapping[str, Tensor], names: list[str], prefix: str, ask: Ask
) -> Weights | ValueError:
    try:
        source = {name: _bits(name, tensors[name]) for name in names}
        return Weights(source, ask.spec, ask.layout, prefix=prefix)
    except ValueError as error:
        return error


def _bits(name: str, tensor: Tensor) -> Bits:
    if tensor.dtype not in FLOATS:
        raise LayoutError(f"{name}: dtype {tensor.dtype}, need one of {', '.join(FLOATS)}")
    return Bits(tensor.bits(), tensor.dtype)
