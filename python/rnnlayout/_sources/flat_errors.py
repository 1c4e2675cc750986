"""Errors for a flat vector of a wrong length: which RNNs and dtypes would it fit?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rnnlayout import _native
from rnnlayout._model.asks import Ask, join_messages
from rnnlayout._model.dtypes import FLOATS
from rnnlayout._model.spec import CELLS, Spec
from rnnlayout._native import LayoutError, SpecError


def wrong_length(nelems: int, spec: Spec) -> LayoutError:
    """Return the error for a flat vector of a wrong length, with similar specs that would fit."""
    nearby = [changes for changes in _variations(spec) if _num_params_with(spec, changes) == nelems]
    text = f"weight space: {nelems} elements, need {spec.num_params} for {spec}"
    if {"bias": "input"} in nearby and {"bias": "recurrent"} in nearby:
        nearby = [c for c in nearby if "bias" not in c]
        text += (
            "; it would fit "
            + _ask_for_spec(spec, bias="input")
            + " or "
            + _ask_for_spec(spec, bias="recurrent")
            + " (you have to know which: both have this length)"
        )
    if spec.bias == "none" and {"bias": "double"} in nearby:
        text += (
            "; it would fit "
            + _ask_for_spec(spec, bias="double")
            + ": torch's own GPU buffer of a bias=False module also has biases, which are zero"
        )
        nearby.remove({"bias": "double"})
    if nearby:
        text += "; it would fit " + join_messages(
            " or ", [_ask_for_spec(spec, **changes) for changes in nearby[:4]]
        )
    for dtype in FLOATS:
        other = spec.replace(dtype=dtype)
        if dtype != spec.dtype and nelems * _native.itemsize(spec.dtype) == other.nbytes:
            text += f"; as {dtype} it would fit: pass w.view({dtype!r}) with " + Ask("spec", other)
    return LayoutError(text)


def raw_bytes(nbytes: int, spec: Spec) -> LayoutError:
    """Return the error for a weight space whose dtype is one of bytes."""
    text = f"weight space: a buffer of {nbytes} bytes, need {spec.num_params} elements for {spec}"
    if nbytes == spec.nbytes:
        text += f": pass w.view({spec.dtype!r})"
    return LayoutError(text)


def bytes_for_weights(source: bytes, spec: Spec | None) -> LayoutError:
    """Return the error for bytes in place of an array."""
    if spec is not None and len(source) == spec.nbytes:
        return LayoutError(f"found {len(source)} bytes: pass np.frombuffer(source, {spec.dtype!r})")
    text = f"found {len(source)} bytes, need an array: pass np.frombuffer(source, dtype)"
    return LayoutError(text if spec is not None else text + " with " + Ask("spec"))


def _ask_for_spec(spec: Spec, **changes: Any) -> Ask:
    return Ask("spec", spec.replace(**changes), tuple(changes))


def _num_params_with(spec: Spec, changes: dict[str, Any]) -> int | None:
    try:
        return spec.replace(**changes).num_params
    except SpecError:
        return None


def _variations(spec: Spec) -> Iterator[dict[str, Any]]:
    """Yield the changes that make similar specs. Some change nothing."""
    yield from ({"bias": bias} for bias in ("double", "input", "recurrent", "none"))
    yield {"bidirectional": not spec.bidirectional}
    yield {"skip_input": not spec.skip_input}
    yield {"proj_size": 0}
    yield from ({"cell": cell} for cell in ("lstm", "gru", "rnn_tanh"))
    yield from ({"num_layers": n} for n in range(1, spec.num_layers + 4))
    yield {"input_size": spec.hidden_size, "hidden_size": spec.input_size}
    if CELLS[spec.cell].may_project:
        yield from ({"proj_size": n} for n in range(1, min(spec.hidden_size, 4096)))
