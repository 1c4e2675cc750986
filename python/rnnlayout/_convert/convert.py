"""pack, unpack, convert, check: conversions of one RNN's weights in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._model.dtypes import present
from rnnlayout._model.given import Given
from rnnlayout._model.layout import CUDNN, Layout, as_layout
from rnnlayout._model.spec import Spec
from rnnlayout._native import LossyError
from rnnlayout._sources.read import read

from .engine import Report, dry_run, plan_of, result, run, run_plan
from .recipes import Recipe, find, key_of, remember

_FLAT = [name for name, _ in _native.tensors(CUDNN, Spec("rnn_tanh", 1, 1))]


class Tensors(dict[str, np.ndarray]):
    """A dict of arrays by name, in the framework's order; `report` says how they were made, `spec`
    what RNN they are of."""

    report: Report
    spec: Spec


def convert(
    source: Any,
    spec: Spec | None = None,
    *,
    src: str | Layout | None = None,
    dst: str | Layout,
    prefix: str = "",
    dtype: Any = None,
    exact: bool = False,
    out: Any = None,
) -> Any:
    """Rewrite the weights of one RNN from layout `src` to layout `dst`.

    source: a dict of arrays (a state_dict() with prefix=), a list in the framework's order
        (get_weights(); for several layers concatenated, or a list of lists), a torch module or
        cell, a Keras layer or a list of them, a Weights, or cuDNN's flat weight space with a spec.
    spec, src: inferred where they can be; the error asks for what cannot.
    prefix: take only the keys that begin so, "encoder.rnn"; the dot after it may be left out.
    dtype: of the result; by default that of the source. A narrower one rounds once, to nearest
        even.
    exact: refuse what would round.
    out: the array ("cudnn") or dict of arrays to fill, in memory of its own.

    Returns a 1-D array for "cudnn", else a dict of arrays (Tensors, with .report), all new.
    LayoutError: names, shapes or dtypes do not fit. LossyError: the target has no place for a
    value, or would round and `exact` is set. SpecError: the RNN is not known or contradicts
    itself. Nothing is written then.

        >>> import numpy as np
        >>> cell = {"weight_ih": np.ones((6, 4), "f4"), "weight_hh": np.ones((6, 2), "f4")}
        >>> {name: w.shape for name, w in convert(cell, dst="keras").items()}
        {'kernel': (4, 6), 'recurrent_kernel': (2, 6)}
    """
    key = key_of(source, spec, src, dst, prefix, dtype)
    recipe = find(key)
    if recipe is not None and (known := _run_known(recipe, source, exact, out)) is not None:
        return known
    target = as_layout(dst)
    given = read(source, spec, src, prefix, dtype_free=dtype is not None)
    made, report = run(given, target, dtype, exact, out)
    if recipe is None:
        remember(key, source, given, plan_of(given, target, dtype)[0], made)
    return out if out is not None else _presented(made, report)


def _run_known(recipe: Recipe, source: Any, exact: bool, out: Any) -> Any:
    """Return the result of a call like an earlier one, or None if its arrays are not as plain."""
    arrays = recipe.outputs(out)
    if arrays is None:
        return None
    dtype, made = recipe.src_dtype, recipe.spec.dtype
    try:
        report = run_plan(
            recipe.plan, recipe.sources(source), arrays, dtype, made, exact, out is None
        )
    except TypeError:  # strided, unaligned or read-only: read() copies or refuses these
        return None
    if out is not None:
        return out
    return _presented(result(recipe.plan, recipe.spec, recipe.dst, arrays), report)


def _presented(made: Given, report: Report) -> Any:
    """Return the public result: a flat array, or a dict of tensors."""
    if made.names == _FLAT:
        return present(made.arrays[0], made.dtype)
    shown = (present(array, made.dtype) for array in made.arrays)
    tensors = Tensors(zip(made.names, shown, strict=True))
    tensors.report, tensors.spec = report, made.spec
    return tensors


def pack(
    source: Any,
    spec: Spec | None = None,
    *,
    layout: str | Layout | None = None,
    prefix: str = "",
    dtype: Any = None,
    exact: bool = False,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """cuDNN's weight space of an RNN: a new 1-D array, or `out`.

    layout: of the source, which convert() calls src. Other arguments and errors as convert(), of
    which this is the case dst="cudnn".

        >>> import numpy as np
        >>> pack([np.eye(2), np.eye(2)], Spec("rnn_relu", 2, 2, bias=False, dtype="f8"),
        ...      layout="keras").tolist()
        [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0]
    """
    flat: np.ndarray = convert(
        source, spec, src=layout, dst=CUDNN, prefix=prefix, dtype=dtype, exact=exact, out=out
    )
    return flat


def unpack(
    flat: Any,
    spec: Spec,
    *,
    layout: str | Layout,
    dtype: Any = None,
    exact: bool = False,
    out: Any = None,
) -> Any:
    """The tensors in another layout of an RNN that lies in cuDNN's weight space.

    flat: 1-D, spec.num_params elements.
    layout: of the result, which convert() calls dst.

    Other arguments, the result and errors as convert(), of which this is the case src="cudnn".

        >>> import numpy as np
        >>> spec = Spec("gru", 1, 1, bias="none")
        >>> unpack(np.arange(6, dtype="f4"), spec, layout="keras")["kernel"]  # z r h
        array([[1., 0., 2.]], dtype=float32)
    """
    return convert(flat, spec, src=CUDNN, dst=layout, dtype=dtype, exact=exact, out=out)


def check(
    source: Any,
    spec: Spec | None = None,
    *,
    src: str | Layout | None = None,
    dst: str | Layout,
    prefix: str = "",
    dtype: Any = None,
) -> Report:
    """What convert() would do to these values, without doing it.

    Returns a Report; a LossyError becomes its grade "unrepresentable", other errors are raised.

        >>> import numpy as np
        >>> gru = {"weight_ih_l0": np.ones((6, 1)), "weight_hh_l0": np.ones((6, 2)),
        ...        "bias_ih_l0": np.ones(6), "bias_hh_l0": np.ones(6)}
        >>> check(gru, dst="keras").grade
        'exact'
        >>> check(gru, dst="concat").grade
        'unrepresentable'
    """
    given = read(source, spec, src, prefix, dtype_free=dtype is not None)
    try:
        return dry_run(given, as_layout(dst), dtype)
    except LossyError as error:
        return Report("unrepresentable", 0, str(error))
