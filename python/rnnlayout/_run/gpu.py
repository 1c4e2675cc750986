"""RNNs on a GPU: preparing one, and a call on arrays in the GPU's memory."""

from __future__ import annotations

from typing import Any

from rnnlayout import _native
from rnnlayout._model.layout import CUDNN
from rnnlayout._model.spec import Spec
from rnnlayout._native import (
    CudnnError,
    CudnnNotFoundError,
    DeviceArray,
    LayoutError,
    LossyError,
    SpecError,
    device_arrays,
)

from . import cudnn, host
from .foreign import LEGACY, Foreign, is_on_device, look, stream_of
from .kinds import frees_in_order, on_device_like
from .shapes import INPUTS, OUTPUTS, Part, Shapes, check, kind, read_lengths
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
        result = _Call(number, spec, named, stream).run(native, axes, lengths)
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


class _Call:
    """The arrays of one call, in the memory of one GPU, and the stream that it runs in."""

    def __init__(self, number: int, spec: Spec, named: dict[str, Any], stream: Any) -> None:
        self.number, self.spec = number, spec
        self.asked = None if stream is None else stream_of(stream)
        looked = {what: look(value, what) for what, value in named.items()}
        known = [found.stream for found in looked.values()
                 if isinstance(found, Foreign) and found.stream is not None]  # fmt: skip
        self.stream = self.asked or (known[0] if known else LEGACY)
        taken = {
            what: found if isinstance(found, Foreign) else found(self.stream)
            for what, found in looked.items()
        }
        self.x, *self.firsts = (taken[what] for what in INPUTS if what in taken)
        self.outs = {what: taken[what] for what in OUTPUTS if what in taken}

    def run(self, native: _native.GpuRnn, axes: int, lengths: Any) -> Any:
        shapes = self._check(axes)
        steps = read_lengths(lengths, shapes)
        self._check_overlaps()
        arrays = self._results(shapes)
        inputs = [self.x, *self.firsts]
        for stream in self._other_streams([*inputs, *self.outs.values()]):
            _native.gpu_order(self.number, stream, self.stream)
        h0, c0 = (*(a.address for a in self.firsts), None, None)[:2]
        y, h, c = (*(array.address for array in arrays), None)[:3]
        native.run(shapes.T, shapes.N, shapes.batch_first, self.x.address, steps, h0, c0,
                   y, h, c, self.stream)  # fmt: skip
        if len(self.outs) == len(arrays):  # no new memory keeps the inputs: until the next call
            native.kept[self.stream] = self._kept()
        self._order_owners()
        out, *last = (a.value if isinstance(a, Foreign) else a for a in arrays)
        return out, last[0] if len(last) == 1 else tuple(last)

    def _check(self, axes: int) -> Shapes:
        spec, x = self.spec, self.x
        x.check_place(self.number)
        if x.dtype != spec.dtype:
            raise LayoutError(f"x is {x.dtype}, need {spec.dtype} like the weights")
        shapes = Shapes(spec, axes, x.shape)
        x.check(writes=False)
        for array in self.firsts:
            self._check_one(array, shapes.states[array.what], False)
        for what, array in self.outs.items():
            self._check_one(array, shapes.outputs[what], True)
            if array.stream is None and self.asked is None:
                raise LayoutError(
                    f"{what} is a {kind(array.value)} whose stream is unknown: pass stream="
                )
        return shapes

    def _check_one(self, array: Foreign, part: Part, writes: bool) -> None:
        array.check_place(self.number)
        check(array.what, array.shape, array.dtype, part, self.spec.dtype)
        array.check(writes)

    def _check_overlaps(self) -> None:
        """Raise LayoutError if an output overlaps an array other than the state it follows."""
        same = {"h_out": "h_0", "c_out": "c_0"}
        before = [self.x, *self.firsts]
        for what, out in self.outs.items():
            for other in before:
                in_place = same.get(what) == other.what and out.address == other.address
                if out.overlaps(other) and not in_place:
                    raise LayoutError(f"{what} and {other.what} share memory: each needs its own")
            before.append(out)

    def _results(self, shapes: Shapes) -> list[Foreign | DeviceArray]:
        """Return the arrays for the results: the caller's own, else new ones."""
        missing = [what for what in shapes.outputs if what not in self.outs]
        made: dict[str, DeviceArray] = {}
        if missing:
            sizes = tuple(shapes.outputs[what].shape for what in missing)
            kept = self._kept()
            in_order = not kept and frees_in_order(self.x.value)
            new = device_arrays(self.number, self.spec.dtype, sizes, self.stream, kept, in_order)
            made = dict(zip(missing, new, strict=True))
        return [made[what] if what in made else self.outs[what] for what in shapes.outputs]

    def _other_streams(self, arrays: list[Foreign]) -> list[int]:
        """Return the streams of arrays other than the call's own, each once."""
        streams = dict.fromkeys(array.stream for array in arrays)
        return [s for s in streams if s is not None and s != self.stream]

    def _kept(self) -> tuple[Any, ...]:
        """Return the inputs whose owner may reuse the memory once it is returned: all whose next
        use is not known to come after this call."""
        return tuple(
            (array.value, array.keeps)
            for array in (self.x, *self.firsts)
            if array.stream != self.stream and not isinstance(array.value, DeviceArray)
            and (self.asked is not None or array.stream is None)
        )  # fmt: skip

    def _order_owners(self) -> None:
        """Make what the owners of the arrays do next wait for this call."""
        owned = [self.x, *self.firsts]
        for out in self.outs.values():
            if isinstance(out.value, DeviceArray):
                out.value._filled_in(self.stream)  # it makes its users' streams wait
            else:
                owned.append(out)
        for stream in self._other_streams(owned) if self.asked is None else ():
            _native.gpu_order(self.number, self.stream, stream)
