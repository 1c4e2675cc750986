"""Dynamically quantized RNNs of torch: their packed weights, as the tensors of an RNN of floats.

An RNN has one object of packed weights per layer and direction, a cell has two. Their states are
those of aten/src/ATen/native/RNN.cpp (torch 2.13).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from rnnlayout._files.formats.pickles.machine import UnreadObject
from rnnlayout._files.tensor_sets.tensor_set import FileTensor, ModuleClass

from .modules import PickledObject

_NAME = re.compile(
    r"((?:.*\.)?)(?:_all_weight_values\.(\d{1,4})\.param|_packed_weight_(ih|hh))", re.DOTALL
)
_TOLD = {
    "quantized_dynamic": "was dequantized to float32; the module also rounds its inputs to 8 bits,"
    " which these weights do not reproduce",
    "quantized_fp16": "was rounded to float16, and is read as float32",
}
_ROLES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
_UNDECIDED = "packed weights of two layers or two directions"


class QuantizedTensor(UnreadObject):
    """A tensor of integers with a scale. integers: a tensor of the file. scheme: the name of the
    scheme, then scale and zero point: numbers, or tensors along an axis, which follows.
    """

    __slots__ = ("integers", "scheme")

    def __init__(self, integers: Any, scheme: Any) -> None:
        super().__init__("torch._utils._rebuild_qtensor")
        self.integers, self.scheme = integers, scheme

    def dequantized(self) -> FileTensor | None:
        """Return the tensor of floats, None if it is not known how torch computes it."""
        shape, (_, scale, zero, *axis) = self.integers.shape, self.scheme
        if axis:
            fits = type(axis[0]) is int and 0 <= axis[0] < len(shape)
            along = [getattr(one, "shape", None) for one in (scale, zero)]
            known = fits and along == [(shape[axis[0]],)] * 2
        else:
            known = type(scale) is float and type(zero) is int and abs(zero) < 256
        if not known or self.integers.dtype not in ("qint8", "quint8"):
            return None
        return FileTensor("float32", shape, self._floats)

    def _floats(self) -> np.ndarray:
        """Return (q - zero) scale: the difference is exact, the product is rounded once."""
        _, scale, zero, *axis = self.scheme
        numbers = np.array(self.integers.bits(), np.float32, order="C")
        if axis:
            along = [1] * numbers.ndim
            along[axis[0]] = -1
            scale, zero = (one.bits().reshape(along) for one in (scale, zero))
        with np.errstate(all="ignore"):
            numbers -= np.asarray(zero, np.float32)
            numbers *= np.asarray(scale, np.float32)
        return numbers


def unpack_weights(
    leaves: Iterable[tuple[str, Any]],
    classes: Mapping[str, ModuleClass],
    notes: list[str],
    names: set[str],
) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a file with packed weights as tensors, named as in an RNN of floats.

    classes: of the modules by their paths. Adds a note for each RNN, and the new names to names.
    """
    rnns: dict[str, dict[int, list[Any]]] = {}
    made: dict[str, Any] = {}
    told: dict[str, None] = {}
    for name, value in leaves:
        match = _NAME.fullmatch(name) if isinstance(value, PickledObject) else None
        kind, tensors = "", list[Any]()
        if match:
            kind, tensors = (_unpack_linear if match[3] else _unpack_cell)(value)
        if not match or not tensors:
            yield name, value
            continue
        told[f"{match[1].rstrip('.') or 'the RNN'} {_TOLD[kind]}"] = None
        if match[3]:
            ends = f"weight_{match[3]}", f"bias_{match[3]}"
            made |= {match[1] + end: one for end, one in zip(ends, tensors, strict=True)}
        else:
            rnns.setdefault(match[1], {})[int(match[2])] = tensors
    for prefix, parts in rnns.items():
        module = classes.get(prefix.rstrip("."))
        both = module.fields.get("bidirectional") if module else None
        made |= _named_rnn(prefix, parts, _is_bidirectional(parts) if both is None else both)
    notes += told
    names.update(made)
    yield from ((name, one) for name, one in made.items() if one is not None)


def _named_rnn(prefix: str, parts: dict[int, list[Any]], both: Any) -> dict[str, Any]:
    """Return the tensors of an RNN by name. both: has it two directions? None: it is not known."""
    made: dict[str, Any] = {}
    for k in sorted(parts):
        layer, backward = divmod(k, 2) if both else (k, 0)
        end = f"l{layer}" + "_reverse" * backward
        found = parts[k] if both is not None else [UnreadObject(_UNDECIDED)] * 4
        for role, one in zip(_ROLES, found, strict=True):
            made[f"{prefix}{role}_{end}"] = one
    return made


def _is_bidirectional(parts: dict[int, list[Any]]) -> bool | None:
    """Return whether shapes show two directions; None if they may as well be two layers."""
    hidden = parts[min(parts)][1].shape[-1]
    widths = [parts[k][0].shape[-1] for k in sorted(parts)]
    one = all(n == hidden for n in widths[1:])
    two = len(widths) % 2 == 0 and widths == [*widths[:1] * 2, *[2 * hidden] * (len(widths) - 2)]
    return None if one and two else two


def _packed_state(value: Any) -> tuple[Any, ...]:
    state = value.state if isinstance(value, PickledObject) else ()
    if isinstance(state, tuple) and state and value.name == "torch.ScriptObject":
        state = state[0]  # the name of its class in TorchScript follows
    return state if isinstance(state, tuple) else ()


def _unpack_linear(value: Any) -> tuple[str, list[Any]]:
    """Return how a linear layer is packed, its weight and bias; [] if it is not one."""
    state = _packed_state(value)
    if len(state) != 2:
        return "", []
    kind, (weight, bias) = "quantized_fp16", state
    if isinstance(weight, QuantizedTensor):
        kind, weight = "quantized_dynamic", weight.dequantized()
    return (kind, [weight, bias]) if len(getattr(weight, "shape", ())) == 2 else ("", [])


def _unpack_cell(value: Any) -> tuple[str, list[Any]]:
    """Return how one layer of an RNN is packed, its W, R, bW and bR; [] if it is not one."""
    state = _packed_state(value)
    if len(state) != 5 or not isinstance(state[0], str) or state[0] not in _TOLD:
        return "", []
    kind, biases, _, _, layers = state
    found = [_unpack_linear(one)[1] for one in layers] if isinstance(layers, list) else []
    if [len(one) for one in found] != [2, 2]:
        return "", []
    if not isinstance(biases, list) or len(biases) != 2:
        biases = [bias for _, bias in found]
    return kind, [found[0][0], found[1][0], *biases]
