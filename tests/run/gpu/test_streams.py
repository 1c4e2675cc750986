"""Streams as callers pass them."""

import numpy as np
import pytest

import rnnlayout as rl
from rnnlayout._run.call_arrays import stream_of


class Stream:
    def __init__(self, **attributes):
        vars(self).update(attributes)


STREAMS = {
    "zero": (0, "stream is 0, which is ambiguous: 1 is the legacy default stream, 2 the per-th"),
    "a negative number": (
        -1,
        "stream is -1, need the number of a stream, or an object with __cuda",
    ),
    "no number": ("main", "stream is 'main', need the number of a stream"),
    "a bool": (True, "stream is True, need the number"),
    "too long": (1 << 64, "need the number of a stream"),
    "an object of nothing": (Stream(), "need the number of a stream, or an object with __cuda_str"),
    "a pointer that is none": (Stream(ptr="x"), "need the number of a stream"),
    "a protocol to come": (
        Stream(__cuda_stream__=lambda: (1, 5)),
        r"stream: __cuda_stream__\(\) has version 1, only 0 is supported",
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_refused(name):
    stream, text = STREAMS[name]
    with pytest.raises(rl.SpecError, match=text):
        stream_of(stream)


@pytest.mark.parametrize(
    "stream, number",
    [
        (1, 1), (2, 2), (np.int64(77), 77), (Stream(cuda_stream=0), 1), (Stream(cuda_stream=9), 9),
        (Stream(ptr=0), 1), (Stream(ptr=2), 2), (Stream(__cuda_stream__=lambda: (0, 8)), 8),
        (Stream(__cuda_stream__=lambda: (0, 0), ptr=3), 1),
    ],
)  # fmt: skip
def test_streams_by_whatever_name(stream, number):
    assert stream_of(stream) == number
