"""RNNs on a GPU: whether one can run there, and the calls that the binding does not read itself."""

from __future__ import annotations

from typing import Any

from rnnlayout import _native
from rnnlayout._model.layout import CUDNN
from rnnlayout._model.spec import Spec
from rnnlayout._native import (
    CudnnError,
    CudnnNotFoundError,
    LayoutError,
    LossyError,
    SpecError,
)

from . import cudnn, host
from .foreign import LEGACY, Foreign, is_on_device, look, stream_of
from .kinds import frees_in_order, on_device_like
from .shapes import INPUTS, OUTPUTS, Shapes, check, kind, read_lengths
from .use import Use

# Errors after which device="auto" takes the CPU.
CANNOT = (SpecError, CudnnNotFoundError, CudnnError, MemoryError)


def require(number: int, spec: Spec) -> None:
    """Raise CudnnNotFoundError if a GPU cannot be used, SpecError if it cannot run such an RNN."""
    cudnn.require(number)
    try:
        _native.check(spec, CUDNN)
    except LossyError as error:
        raise SpecError(f"device is 'cuda:{number}', but {error}: use device='cpu'") from None


def run(
    native: _native.GpuRnn,
    number: int,
    spec: Spec,
    axes: int,
    use: Use,
    named: dict[str, Any],
    lengths: Any,
    stream: Any,
) -> Any:
    """Run one call, on arrays of the host or of the GPU. named: the arrays, by name."""
    if lengths is not None and is_on_device(lengths):
        raise LayoutError(
            f"lengths is a {kind(lengths)} on a GPU, but is needed on the host: pass"
            " lengths.cpu() in PyTorch, lengths.get() in CuPy"
        )
    x = named["x"]
    if is_on_device(x):
        if use.settings:
            raise LayoutError(
                f"x is a {kind(x)} on a GPU, where {use.settings} of the source is not supported:"
                " pass arrays in the host's memory, as x.cpu() in PyTorch, x.get() in CuPy"
            )
        result = _run_on_device(native, number, spec, axes, named, lengths, stream)
        return on_device_like(x, result, named.values())
    if stream is not None:
        raise SpecError(
            "stream= is only for arrays on a GPU; x is on the host, where a call returns when it is"
            " done: omit it"
        )
    for what, value in named.items():
        if is_on_device(value):
            raise LayoutError(
                f"{what} is a {kind(value)} on a GPU, but x is not: all arrays of a call must be in"
                " the same memory"
            )
    return host.run(native, spec, axes, use, named, lengths)


def _run_on_device(
    native: _native.GpuRnn,
    number: int,
    spec: Spec,
    axes: int,
    named: dict[str, Any],
    lengths: Any,
    stream: Any,
) -> Any:
    """Raise what is wrong with a call that the binding has refused. If nothing is, the binding
    could not read its arrays or lengths as they are, and makes the call with what is read here."""
    asked = None if stream is None else stream_of(stream)
    taken = _take(named, asked)
    steps = read_lengths(lengths, _check(taken, spec, axes, number, asked))
    _check_overlaps(taken)
    states = [taken[what] for what in INPUTS[1:] if what in taken]
    state = tuple(states) if len(states) == 2 else states[0] if states else None
    out, h_out, c_out = map(taken.get, OUTPUTS)
    return native.call(taken["x"], state, steps, out, h_out, c_out, axes, asked,
                       frees_in_order(named["x"]))  # fmt: skip


def _take(named: dict[str, Any], asked: int | None) -> dict[str, Foreign]:
    """Return the arrays as their owners export them for the stream of the call."""
    looked = {what: look(value, what) for what, value in named.items()}
    known = [found.stream for found in looked.values()
             if isinstance(found, Foreign) and found.stream is not None]  # fmt: skip
    stream = asked or (known[0] if known else LEGACY)
    return {
        what: found if isinstance(found, Foreign) else found(stream)
        for what, found in looked.items()
    }


def _check(
    taken: dict[str, Foreign], spec: Spec, axes: int, number: int, asked: int | None
) -> Shapes:
    x = taken["x"]
    x.check_place(number)
    if x.dtype != spec.dtype:
        raise LayoutError(f"x is {x.dtype}, need {spec.dtype} like the weights")
    shapes = Shapes(spec, axes, x.shape)
    x.check(writes=False)
    for what, part in (shapes.states | shapes.outputs).items():
        array = taken.get(what)
        if array is None:
            continue
        array.check_place(number)
        check(what, array.shape, array.dtype, part, spec.dtype)
        array.check(what in OUTPUTS)
        if what in OUTPUTS and array.stream is None and asked is None:
            raise LayoutError(
                f"{what} is a {kind(array.value)} whose stream is unknown: pass stream="
            )
    return shapes


def _check_overlaps(taken: dict[str, Foreign]) -> None:
    """Raise LayoutError if an output overlaps an array other than the state it follows."""
    same = {"h_out": "h_0", "c_out": "c_0"}
    before: list[Foreign] = []
    for what, array in taken.items():
        for other in before if what in OUTPUTS else ():
            in_place = same.get(what) == other.what and array.address == other.address
            if array.overlaps(other) and not in_place:
                raise LayoutError(f"{what} and {other.what} share memory: each needs its own")
        before.append(array)
