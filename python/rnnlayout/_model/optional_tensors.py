"""Which optional tensors a spec asks for."""

from __future__ import annotations

from typing import Any

from rnnlayout import _native


def optional_tensors_of(spec: Any) -> int:
    """Return HAS_BIAS | HAS_PEEPHOLES as far as a Spec has them."""
    biases = 0 if spec.bias == "none" else _native.HAS_BIAS
    return biases | (_native.HAS_PEEPHOLES if spec.peepholes else 0)
