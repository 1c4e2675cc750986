"""Streams of a GPU, as callers pass them."""

from __future__ import annotations

import operator
from typing import Any

from rnnlayout._native import SpecError

from .caller_arrays import LEGACY


def stream_of(stream: Any) -> int:
    """Return the number of a stream, which may be that number or an object that has it.

    Raises SpecError if it is neither, or 0.
    """
    try:
        if hasattr(stream, "__cuda_stream__"):
            version, number = stream.__cuda_stream__()
            if version != 0:
                raise SpecError(
                    f"stream: __cuda_stream__() has version {version}, only 0 is supported"
                )
            return _check_number(number) or LEGACY
        for name in ("cuda_stream", "ptr"):
            if hasattr(stream, name):
                return _check_number(getattr(stream, name)) or LEGACY
        number = _check_number(stream)
    except SpecError:
        raise
    except (TypeError, ValueError):
        raise SpecError(
            f"stream is {stream!r}, need the number of a stream, or an object with __cuda_stream__,"
            " cuda_stream or ptr"
        ) from None
    if not number:
        raise SpecError(
            "stream is 0, which is ambiguous: 1 is the legacy default stream, 2 the per-thread one"
        )
    return number


def _check_number(value: Any) -> int:
    number = operator.index(value)
    if isinstance(value, bool) or not 0 <= number < 1 << 64:
        raise ValueError
    return number
