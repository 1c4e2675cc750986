"""Streams as callers pass them."""

from types import SimpleNamespace as Stream

import numpy as np
import pytest

import rnnlayout as rl
from rnnlayout._run.call_arrays import stream_of

# A stream -> its number, or the text of the error.
STREAMS = [
    (1, 1), (2, 2), (np.int64(77), 77),
    (Stream(cuda_stream=0), 1), (Stream(cuda_stream=9), 9),
    (Stream(ptr=0), 1), (Stream(ptr=2), 2),
    (Stream(__cuda_stream__=lambda: (0, 8)), 8),
    (Stream(__cuda_stream__=lambda: (0, 0), ptr=3), 1),
    (Stream(__cuda_stream__=lambda: (1, 5)), r"__cuda_stream__\(\) has version 1, only 0 is supp"),
    (Stream(ptr="x"), "need the number of a stream"),
    (Stream(), "need the number of a stream, or an object with __cuda_stream__, cuda_s"),
    (0, "stream is 0, which is ambiguous: 1 is the legacy default stream, 2 the per-thread one"),
    (-1, "stream is -1, need the number of a stream, or an object with __cuda_stream__"),
    ("main", "stream is 'main', need the number of a stream"),
    (True, "stream is True, need the number"),
    (1 << 64, "need the number of a stream"),
]  # fmt: skip


@pytest.mark.parametrize("stream, expected", STREAMS)
def test_the_number_of_a_stream(stream, expected):
    if isinstance(expected, int):
        assert stream_of(stream) == expected
    else:
        with pytest.raises(rl.SpecError, match=expected):
            stream_of(stream)
