"""pack, unpack, convert, check: convert the weights of an RNN in memory."""

from __future__ import annotations

from typing import Any, Literal, Unpack, overload

import numpy as np

from rnnlayout._model.dtypes import present_array
from rnnlayout._model.kinds import Kind
from rnnlayout._model.layout import CUDNN, Layout, LayoutName, as_layout
from rnnlayout._model.reading_options import MemoryOptions, takes_options
from rnnlayout._model.report import EXACT, Report
from rnnlayout._model.spec import Spec
from rnnlayout._model.tensors import Tensors
from rnnlayout._native import LossyError
from rnnlayout._sources.read_source import read_source
from rnnlayout._sources.reading import Reading, make_reading

from .engine import dry_run_conversion, run_conversion


# Type checkers infer the type of the result from a literal layout.
@overload
def convert(
    source: Any,
    spec: Spec | None = None,
    *,
    to: LayoutName,
    exact: bool = False,
    kind: Kind = "weights",
    **options: Unpack[MemoryOptions],
) -> Tensors: ...
@overload
def convert(
    source: Any,
    spec: Spec | None = None,
    *,
    to: Literal["cudnn"],
    exact: bool = False,
    kind: Kind = "weights",
    **options: Unpack[MemoryOptions],
) -> np.ndarray: ...
@overload
def convert(
    source: Any,
    spec: Spec | None = None,
    *,
    to: str | Layout,
    exact: bool = False,
    out: Any = None,
    kind: Kind = "weights",
    **options: Unpack[MemoryOptions],
) -> Any: ...
@takes_options(MemoryOptions)
def convert(
    source: Any,
    spec: Spec | None = None,
    *,
    to: str | Layout,
    exact: bool = False,
    out: Any = None,
    kind: Kind = "weights",
    **options: Unpack[MemoryOptions],
) -> Any:
    """Rewrite the weights of one RNN to another layout.

    source: a dict of arrays (a state_dict() with prefix=), a list in the framework's order
        (get_weights(); for several layers concatenated, or a list of lists), a torch module or
        cell, a Keras layer or a list of Keras layers, a layer or cell of Flax, Equinox, MLX or
        Paddle, a model that contains one RNN, a Weights, a result of convert(), or cuDNN's flat
        weight space with a spec.
    to: the layout of the result.
    exact: raise an error instead of rounding.
    out: the array ("cudnn") or dict of arrays to fill; must not share memory with source.
    kind: of the values. "weights"; "gradient" of a loss, also momentum or Adam's first moment; or
        "squared_gradient", Adam's second moment. Gradients follow rules of their own. They are
        plain arrays, with the names of the weights or in the order of the weights.
    Other arguments: how the source is read, and the dtype of the result, see ReadingOptions.

    Returns a 1-D array for "cudnn", else a dict of arrays (Tensors, with .report), all new.

    Raises LayoutError if names, shapes or dtypes do not fit; LossyError if the target cannot
    represent a value, or exact=True and a value would be rounded; SpecError if the RNN is not known
    or the spec contradicts itself. `out` is unchanged then.

        >>> import numpy as np
        >>> cell = {"weight_ih": np.ones((6, 4), "f4"), "weight_hh": np.ones((6, 2), "f4")}
        >>> {name: w.shape for name, w in convert(cell, to="keras").items()}
        {'kernel': (4, 6), 'recurrent_kernel': (2, 6)}

    A gradient of the sum of two biases is the gradient of either:

        >>> moment = {"weight_ih": np.ones((4, 3)), "weight_hh": np.ones((4, 1)),
        ...           "bias_ih": np.full(4, 0.5), "bias_hh": np.full(4, 0.5)}
        >>> convert(moment, kind="gradient", to="keras")["bias"]
        array([0.5, 0.5, 0.5, 0.5])
        >>> convert(moment, to="keras")["bias"]
        array([1., 1., 1., 1.])
    """
    return _convert_source(source, make_reading(convert, options, spec, kind=kind), to, exact, out)


def _convert_source(source: Any, reading: Reading, to: str | Layout, exact: bool, out: Any) -> Any:
    target = as_layout(to)
    rnn = run_conversion(read_source(source, reading), target, reading.dtype, exact, out)
    if out is not None:
        return out
    if target.name == "cudnn":
        return present_array(rnn.arrays[0], rnn.spec.dtype)
    return Tensors(rnn, rnn.report or EXACT)


@takes_options(MemoryOptions)
def pack(
    source: Any,
    spec: Spec | None = None,
    *,
    exact: bool = False,
    out: np.ndarray | None = None,
    kind: Kind = "weights",
    **options: Unpack[MemoryOptions],
) -> np.ndarray:
    """Return cuDNN's weight space of an RNN: a new 1-D array, or `out`.

    Arguments and errors: see convert(); pack() is convert() with to="cudnn".

        >>> import numpy as np
        >>> pack([np.eye(2), np.eye(2)], Spec("rnn_relu", 2, 2, bias=False, dtype="f8"),
        ...      layout="keras").tolist()
        [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0]
    """
    reading = make_reading(pack, options, spec, kind=kind)
    flat: np.ndarray = _convert_source(source, reading, CUDNN, exact, out)
    return flat


@overload
def unpack(
    flat: Any,
    spec: Spec,
    *,
    to: LayoutName,
    dtype: Any = None,
    exact: bool = False,
    kind: Kind = "weights",
) -> Tensors: ...
@overload
def unpack(
    flat: Any,
    spec: Spec,
    *,
    to: str | Layout,
    dtype: Any = None,
    exact: bool = False,
    out: Any = None,
    kind: Kind = "weights",
) -> Any: ...
def unpack(
    flat: Any,
    spec: Spec,
    *,
    to: str | Layout,
    dtype: Any = None,
    exact: bool = False,
    out: Any = None,
    kind: Kind = "weights",
) -> Any:
    """Convert cuDNN's weight space to another layout.

    flat: 1-D, spec.num_params elements.
    Other arguments, result and errors: see convert(); unpack() is convert() with layout="cudnn".

        >>> import numpy as np
        >>> spec = Spec("gru", 1, 1, bias="none")
        >>> unpack(np.arange(6, dtype="f4"), spec, to="keras")["kernel"]  # z r h
        array([[1., 0., 2.]], dtype=float32)
    """
    return convert(flat, spec, layout=CUDNN, to=to, dtype=dtype, exact=exact, out=out, kind=kind)


@takes_options(MemoryOptions)
def check(
    source: Any,
    spec: Spec | None = None,
    *,
    to: str | Layout,
    kind: Kind = "weights",
    **options: Unpack[MemoryOptions],
) -> Report:
    """Return the Report of convert() for a source, without converting.

    Arguments: see convert().

    If convert() would raise LossyError, the grade is "unrepresentable". Other errors are raised.

        >>> import numpy as np
        >>> gru = {"weight_ih_l0": np.ones((6, 1)), "weight_hh_l0": np.ones((6, 2)),
        ...        "bias_ih_l0": np.ones(6), "bias_hh_l0": np.ones(6)}
        >>> check(gru, to="keras").grade
        'exact'
        >>> check(gru, to="concat").grade
        'unrepresentable'
    """
    reading = make_reading(check, options, spec, kind=kind)
    rnn = read_source(source, reading)
    try:
        return dry_run_conversion(rnn, as_layout(to), reading.dtype)
    except LossyError as error:
        return Report("unrepresentable", 0, str(error))
