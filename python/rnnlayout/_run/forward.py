"""forward: run an RNN once."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from rnnlayout._model.reading_options import MemoryOptions, takes_options
from rnnlayout._model.spec import Spec
from rnnlayout._sources.reading import make_reading

from .rnn import RNN
from .settings import read_options


class _OneCallRNN(RNN):
    """An RNN for a single call, with unprepared weights if preparing takes longer than calling."""

    __slots__ = ()
    _borrows = True


@takes_options(MemoryOptions)
def forward(
    x: Any,
    source: Any,
    spec: Spec | None = None,
    *,
    device: str = "cpu",
    batch_first: bool | None = None,
    cell_clip: tuple[float, float] | None = None,
    math: str = "default",
    algo: str = "auto",
    state: Any = None,
    lengths: Any = None,
    mask: Any = None,
    out: Any = None,
    h_out: Any = None,
    c_out: Any = None,
    stream: Any = None,
    **options: Unpack[MemoryOptions],
) -> Any:
    """Run an RNN once: RNN(source, spec, layout=..., ...)(x, state, lengths=..., ...), bit for bit.

    A single step of one sequence reads the weights in place; any longer call prepares the weights.

    >>> import numpy as np
    >>> w = {"kernel": np.eye(2), "recurrent_kernel": np.eye(2)}
    >>> y, h_n = forward(np.ones((3, 2)), w, Spec("rnn_relu", 2, 2, bias=False, dtype="f8"))
    >>> h_n
    array([[3., 3.]])
    """
    outs = [output for output in (out, h_out, c_out) if output is not None]
    if all(isinstance(array, np.ndarray) for array in (source, *outs)):
        may_overwrite = any(np.may_share_memory(source, output) for output in outs)
    else:
        may_overwrite = bool(outs)
    checked_options = read_options(device, batch_first, cell_clip, math, algo)
    kind = RNN if may_overwrite else _OneCallRNN
    rnn = kind.__new__(kind)
    rnn._prepare(source, make_reading(forward, options, spec), checked_options)
    return rnn(
        x, state, lengths=lengths, mask=mask, out=out, h_out=h_out, c_out=c_out, stream=stream
    )
