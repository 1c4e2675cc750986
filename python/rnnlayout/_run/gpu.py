"""RNNs on a GPU: whether a GPU can run an RNN, and calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rnnlayout import _native
from rnnlayout._model.errors import Ask
from rnnlayout._model.layout import CUDNN
from rnnlayout._model.spec import CELLS, Spec
from rnnlayout._native import CudnnError, CudnnNotFoundError, LayoutError, LossyError, SpecError

from . import call_arrays
from .cudnn import require_cudnn
from .settings import SourceSettings

# Errors after which device="auto" takes the CPU.
CANNOT_RUN = (SpecError, CudnnNotFoundError, CudnnError, MemoryError)


def require_gpu(number: int, spec: Spec, cell_clip: tuple[float, float] | None) -> None:
    """Raise CudnnNotFoundError if a GPU cannot be used, SpecError if cuDNN cannot run the RNN."""
    require_cudnn(number)
    if cell_clip is not None:
        raise SpecError(
            f"cell_clip is {cell_clip}, which is not supported on cuda:{number}: cuDNN clips the"
            " cell state where it reads it, not where it stores it: use ",
            Ask("device", "cpu"),
        )
    try:
        _native.check(spec, CUDNN)
    except LossyError as error:
        why = f"device is 'cuda:{number}', but "
        raise SpecError(why, error, ": use ", Ask("device", "cpu")) from None


def call_on_gpu(
    make_call: Callable[..., Any],
    spec: Spec,
    axes: int,
    x: Any,
    state: Any,
    lengths: Any,
    outs: tuple[Any, Any, Any],
    stream: Any,
) -> Any:
    """Make one call on arrays in a GPU's memory and return (y, state). Return None if x is not in a
    GPU's memory, or if check_host_call() has to report the mistake. Raises LayoutError if an array
    or the lengths do not fit. make_call: GpuRnn.call, or GpuRnn.bind for a BoundCall. outs: out,
    h_out and c_out."""
    states = state if isinstance(state, (tuple, list)) else (state,)
    if call_arrays.may_need_gradients(x, *states, *outs):
        return None
    for name, out in zip(call_arrays.OUTPUTS, outs, strict=True):
        if call_arrays.maker_of(out) == "jax.dlpack":
            raise LayoutError(f"{name} is an array of JAX, which cannot be written: omit it")
    steps = None if lengths is None else call_arrays.read_lengths(lengths)
    number = None if stream is None else call_arrays.stream_of(stream)
    empty, home_stream = call_arrays.library_like(x)
    try:
        result = make_call(x, state, steps, *outs, axes, number, empty, home_stream)
    except LayoutError:
        if not any(map(call_arrays.requires_gradient, (x, *states))):
            raise
        # torch does not export these tensors: detach them, here so that other calls cost nothing
        x, *states = (
            array.detach() if call_arrays.requires_gradient(array) else array
            for array in (x, *states)
        )
        state = tuple(states) if isinstance(state, (tuple, list)) else states[0]
        return call_on_gpu(make_call, spec, axes, x, state, lengths, outs, stream)
    if isinstance(result, list):  # the binding has refused these shapes, or the lengths
        by_name = dict(zip(call_arrays.INPUTS + call_arrays.OUTPUTS, result, strict=True))
        shapes = call_arrays.CallShapes(spec, axes, by_name["x"] or ())
        for name, need in (shapes.states | shapes.outputs).items():
            if (shape := by_name[name]) is not None:
                call_arrays.check_array_shape(name, shape, need)
        call_arrays.check_lengths(steps, shapes)
        raise AssertionError(result)
    if isinstance(result, tuple) and not empty:
        return call_arrays.results_like(x, result, outs)
    return result


def bind_on_gpu(
    rnn: Any,
    native: _native.GpuRnn,
    spec: Spec,
    axes: int,
    arrays: tuple[Any, ...],
    stream: Any,
) -> _native.BoundCall | None:
    """Return a call with fixed arrays in a GPU's memory, or None as call_on_gpu(). rnn: the rl.RNN.
    arrays: x, state, lengths, out, h_out, c_out."""
    x, state, lengths, *outs = arrays
    num_outs = 3 if CELLS[spec.cell].has_c else 2
    needs_outputs = any(out is None for out in outs[:num_outs]) and call_arrays.is_on_device(x)
    if needs_outputs and call_arrays.maker_of(x) not in ("torch", "cupy"):
        names = ", ".join(call_arrays.OUTPUTS[:num_outs])
        raise LayoutError(
            f"x is a {call_arrays.type_name(x)}, and bind() can make outputs only for tensors of"
            f" PyTorch and arrays of CuPy: pass {names}"
        )

    def make_call(*arguments: Any) -> Any:
        bind: Callable[..., Any] = native.bind
        return bind(*arguments, rnn)

    bound: _native.BoundCall | None = call_on_gpu(
        make_call, spec, axes, x, state, lengths, (*outs,), stream
    )
    return bound


def check_host_call(arrays: dict[str, Any], use: SourceSettings, stream: Any) -> None:
    """Raise an error if an RNN on a GPU cannot run a call on arrays of the host."""
    call_arrays.refuse_gradients(arrays)
    for name, array in arrays.items():  # x first
        if not call_arrays.is_on_device(array):
            continue
        text = f"{name} is a {call_arrays.type_name(array)} on a GPU"
        if name != "x":
            text += ", but x is not: all arrays of a call must be in the same memory"
        elif use.settings:
            text += (
                f", where {use.settings} of the source is not supported: pass arrays in the host's"
                " memory, as x.cpu() in PyTorch, x.get() in CuPy"
            )
        else:
            text += " without DLPack's methods: pass cupy.asarray(x)"
        raise LayoutError(text)
    if stream is not None:
        raise SpecError(
            "stream= is only for arrays on a GPU; x is on the host, where a call returns when it is"
            " done: omit ",
            Ask("stream", None),
        )
