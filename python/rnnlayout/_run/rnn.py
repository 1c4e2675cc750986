"""RNN: weights prepared once, and run."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._convert.engine import run
from rnnlayout._model.dtypes import as_carrier
from rnnlayout._model.given import Given
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import Spec, flag
from rnnlayout._native import BATCH_FIRST, STEP, TIME_FIRST, SpecError
from rnnlayout._sources.read import read

from . import gpu, threadpools
from .foreign import stream_of
from .host import HostCall

CPU = Layout("cpu")
_MATHS, _ALGOS = ("default", "bfloat16"), ("standard",)  # of the CPU


class RNN:
    """An RNN that runs: its weights are prepared once and kept.

    source, spec, layout, prefix: as pack() takes them; a 1-D array is cuDNN's weight space. RNNs
        that cuDNN does not have run too: reset-before GRUs, hard sigmoids.
    device: "cpu"; "cuda" or "cuda:1": a GPU, by cuDNN, or CudnnNotFoundError, which says what is
        missing; "auto": the first GPU if it can be used and has such an RNN, else the CPU.
    batch_first: x and y are (N, T, ...).
    cell_clip: (low, high), LSTM only: the cell state is clamped as it is stored, c_n too.
    math: "default". On the CPU also "bfloat16": weights are rounded to bfloat16 (not those of
        float64), and what is multiplied with a matrix too; sums, gates and states stay in float32.
        spec.dtype is "bfloat16" then, x bfloat16 or float32. On a GPU also "tf32": float32 may be
        rounded to TF32's 10 bits where it is multiplied.
    algo: "standard"; on a GPU also "persist_static" and "persist_small", within cuDNN's limits.

    Called, it gives y and the last state; step() runs one step, update() takes new weights. It has
    the attributes spec, device, batch_first and cell_clip, can be pickled, and called from many
    threads. On the CPU results are bit-identical over runs, threads, batch sizes, and T steps
    against one call, on one machine; arithmetic is in float32 (of default math), in float64 where
    the weights are. SpecError: an option that makes no sense, or that the device has not.

        >>> import numpy as np
        >>> rnn = RNN([np.eye(2), np.eye(2)], Spec("rnn_relu", 2, 2, bias=False, dtype="f8"),
        ...           layout="keras")
        >>> y, h_n = rnn(np.ones((3, 1, 2)))
        >>> y[:, 0].tolist()
        [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
    """

    __slots__ = (
        "_algo",
        "_asked",
        "_axes",
        "_clip",
        "_math",
        "_native",
        "_number",
        "_origin",
        "_spec",
    )
    _borrows = False

    def __init__(
        self,
        source: Any,
        spec: Spec | None = None,
        *,
        layout: str | Layout | None = None,
        prefix: str = "",
        device: str = "cpu",
        batch_first: bool = False,
        cell_clip: tuple[float, float] | None = None,
        math: str = "default",
        algo: str = "standard",
    ) -> None:
        asked = _asked_device(device)
        _check_options(asked, math, algo)
        axes = BATCH_FIRST if flag("batch_first", batch_first) else TIME_FIRST
        clip = _clip(cell_clip)
        given = read(source, spec, layout, prefix)
        self._set(*_weight_space(given, math), asked, axes, clip, math, algo, (layout, prefix))

    def _set(
        self,
        spec: Spec,
        weights: np.ndarray,
        asked: str,
        axes: int,
        clip: tuple[float, float] | None,
        math: str,
        algo: str,
        origin: tuple[str | Layout | None, str],
    ) -> None:
        self._spec, self._axes, self._clip, self._math, self._algo = spec, axes, clip, math, algo
        self._asked, self._origin = asked, origin
        threadpools.register()
        self._number = _number_of(asked, math, algo)
        self._native = self._first_prepared(weights)

    def _first_prepared(self, weights: np.ndarray) -> _native.Rnn | _native.GpuRnn:
        if self._asked == "auto" and self._number is not None:
            try:
                return self._prepared(weights)
            except gpu.CANNOT:
                self._number = None
        if self._number is None:
            _check_options("cpu", self._math, self._algo)
        return self._prepared(weights, self._borrows)

    def _prepared(self, weights: np.ndarray, borrows: bool = False) -> _native.Rnn | _native.GpuRnn:
        if self._number is None:
            return _native.Rnn(self._spec, weights, self._clip, self._math == "bfloat16", borrows)
        return gpu.prepare(self._number, self._spec, weights, self._clip, self._math, self._algo)

    @property
    def spec(self) -> Spec:
        """What RNN it is."""
        return self._spec

    @property
    def device(self) -> str:
        """Where it runs: "cpu", "cuda:0" ..."""
        return "cpu" if self._number is None else f"cuda:{self._number}"

    @property
    def batch_first(self) -> bool:
        """Are x and y (N, T, ...)?"""
        return self._axes == BATCH_FIRST

    @property
    def cell_clip(self) -> tuple[float, float] | None:
        """(low, high), or None."""
        return self._clip

    @property
    def math(self) -> str:
        """ "default", "bfloat16" or "tf32"."""
        return self._math

    @property
    def algo(self) -> str:
        """ "standard", "persist_static" or "persist_small"."""
        return self._algo

    def __repr__(self) -> str:
        more = ", batch first" if self.batch_first else ""
        more += f", cell_clip {self._clip}" if self._clip else ""
        more += f", math {self._math}" if self._math != "default" else ""
        more += f", algo {self._algo}" if self._algo != "standard" else ""
        return f"<RNN of {self._spec}{more}, on {self.device}>"

    def __reduce__(self) -> tuple[Any, ...]:
        state = {
            "spec": self._spec.to_dict(),
            "weights": self._native.weights(),
            "options": {
                "batch_first": self.batch_first,
                "cell_clip": self._clip,
                "math": self._math,
                "algo": self._algo,
                "device": self._asked,
            },
            "origin": self._origin,
        }
        return _restore, (state,)

    def __call__(
        self,
        x: Any,
        state: Any = None,
        *,
        lengths: Any = None,
        out: Any = None,
        h_out: Any = None,
        c_out: Any = None,
        stream: Any = None,
    ) -> Any:
        """Run whole sequences.

        x: (T, N, I), (N, T, I) with batch_first, or (T, I) without a batch; an array or a torch
            tensor on the CPU, of any strides, in the dtype of the weights; of an RNN on the CPU
            also in float32 where theirs is narrower. To an RNN on a GPU all arrays may be in its
            memory: of torch, CuPy, JAX, DeviceArrays, whatever has __dlpack__ or
            __cuda_array_interface__, C-contiguous. They are not copied then.
        state: h_0, (h_0, c_0) of an LSTM; None: zeros. h (L * D, N, P), c (L * D, N, H), (L * D, P)
            and (L * D, H) without a batch. Dtype of x.
        lengths: steps of each sequence, (N,), in any order, 0 to T. y is zero past the end, the
            last state is that of the sequence's last step, the backward direction begins there;
            what x holds past the end is not looked at.
        out, h_out, c_out: arrays to fill; they may share no memory with x or each other. The last
            state may be written over the first.
        stream: of a call on a GPU's arrays, the one that it runs in: a number (1 is the legacy
            default stream), or an object with __cuda_stream__, cuda_stream or ptr. By default the
            stream in which x's owner works, where that can be learned, else the legacy default
            stream. The call does not wait for it.

        Returns y (T, N, D * P) or (N, T, D * P) and h_n, of an LSTM (h_n, c_n): those given, or
        new ones, which for arrays on a GPU are DeviceArrays. LayoutError: shapes, dtypes or memory
        do not fit, or out= is used in a stream that is not known. CudnnError: a call of cuDNN or
        of the driver failed.
        """
        native = self._native
        if lengths is None and stream is None and type(native) is _native.Rnn:
            result = native.run(x, state, None, out, h_out, c_out, self._axes, False)
            if result is not None:
                return result
        elif type(native) is _native.GpuRnn:
            number = None if stream is None else stream_of(stream)
            result = native.call(x, state, lengths, out, h_out, c_out, self._axes, number)
            if result is not None:
                return result
        return self._long_way(self._axes, x, state, lengths, out, h_out, c_out, stream)

    def step(
        self,
        x: Any,
        state: Any = None,
        *,
        out: Any = None,
        h_out: Any = None,
        c_out: Any = None,
        stream: Any = None,
    ) -> Any:
        """Run one step of an RNN of one direction.

        x: (N, I), or (I,) without a batch. Returns y (N, P) and the state for the next step. Other
        arguments as those of a call, but that outputs may be the inputs (in a GPU's memory the
        states alone, not x):

            y, state = rnn.step(x, state, h_out=state[0], c_out=state[1])
        """
        native = self._native
        if stream is None and type(native) is _native.Rnn:
            result = native.run(x, state, None, out, h_out, c_out, STEP, False)
            if result is not None:
                return result
        elif type(native) is _native.GpuRnn:
            number = None if stream is None else stream_of(stream)
            result = native.call(x, state, None, out, h_out, c_out, STEP, number)
            if result is not None:
                return result
        return self._long_way(STEP, x, state, None, out, h_out, c_out, stream)

    def update(
        self, source: Any, *, layout: str | Layout | None = None, prefix: str | None = None
    ) -> None:
        """Take the weights of a source of the same spec.

        layout, prefix: of the source; by default those that the first source was read with. Calls
        that are running end with the weights with which they began.
        """
        layout = self._origin[0] if layout is None else layout
        prefix = self._origin[1] if prefix is None else prefix
        rounds = self._math == "bfloat16"
        given = read(source, self._spec, layout, prefix, dtype_free=rounds)
        _, weights = _weight_space(given, self._math)
        self._native = self._prepared(weights)

    def _long_way(
        self,
        axes: int,
        x: Any,
        state: Any,
        lengths: Any,
        out: Any,
        h_out: Any,
        c_out: Any,
        stream: Any,
    ) -> Any:
        """A call whose arrays have to be looked at, and mended or refused."""
        if stream is not None and self._number is None:
            raise SpecError(f"stream is {stream!r}: on the CPU there are none, leave it out")
        if axes == STEP and self._spec.bidirectional:
            raise SpecError(
                "step() needs one direction, this RNN has two: the backward one begins at the last"
                " step, which has not come yet; call the RNN with whole sequences"
            )
        native, spec = self._native, self._spec
        if isinstance(native, _native.GpuRnn):
            arrays = x, state, lengths, out, h_out, c_out
            return gpu.run(native, self._number or 0, spec, axes, *arrays, stream)
        call = HostCall(spec, axes, x, widens=True)
        call.read(state, lengths, out, h_out, c_out)
        return call.run(native)


def _restore(state: dict[str, Any]) -> RNN:
    rnn = RNN.__new__(RNN)
    options = state["options"]
    axes = BATCH_FIRST if options["batch_first"] else TIME_FIRST
    spec = Spec.from_dict(state["spec"])
    weights = as_carrier(state["weights"])
    clip, math, algo = options["cell_clip"], options["math"], options["algo"]
    rnn._set(spec, weights, options["device"], axes, clip, math, algo, state["origin"])
    return rnn


class _Once(RNN):
    """For one call: its weights are not prepared where that would take longer than the call."""

    __slots__ = ()
    _borrows = True


def forward(
    x: Any,
    source: Any,
    spec: Spec | None = None,
    *,
    layout: str | Layout | None = None,
    prefix: str = "",
    device: str = "cpu",
    batch_first: bool = False,
    cell_clip: tuple[float, float] | None = None,
    math: str = "default",
    algo: str = "standard",
    state: Any = None,
    lengths: Any = None,
    out: Any = None,
    h_out: Any = None,
    c_out: Any = None,
    stream: Any = None,
) -> Any:
    """Run an RNN once: RNN(source, spec, layout=..., ...)(x, state, lengths=..., ...), bit for bit.

    A single step of one sequence reads the weights as they are; else they are prepared first.

    >>> import numpy as np
    >>> w = {"kernel": np.eye(2), "recurrent_kernel": np.eye(2)}
    >>> y, h_n = forward(np.ones((3, 2)), w, Spec("rnn_relu", 2, 2, bias=False, dtype="f8"))
    >>> h_n
    array([[3., 3.]])
    """
    outs = [given for given in (out, h_out, c_out) if given is not None]
    rnn = (RNN if _may_lie_in(source, outs) else _Once)(
        source,
        spec,
        layout=layout,
        prefix=prefix,
        device=device,
        batch_first=batch_first,
        cell_clip=cell_clip,
        math=math,
        algo=algo,
    )
    return rnn(x, state, lengths=lengths, out=out, h_out=h_out, c_out=c_out, stream=stream)


def _may_lie_in(source: Any, outs: list[Any]) -> bool:
    """May an output be a part of the weights, which are read while it is written?"""
    if not all(isinstance(array, np.ndarray) for array in (source, *outs)):
        return bool(outs)
    return any(np.may_share_memory(source, out) for out in outs)


# ---------------------------------------------------------------------------------------- options


def _weight_space(given: Given, math: str) -> tuple[Spec, np.ndarray]:
    """What an RNN is prepared from, the bits of a 1-D array: the source's own where it is that."""
    if math == "bfloat16" and given.dtype == "float64":
        raise SpecError(
            "math is 'bfloat16' and the weights are float64: that would be to throw away what they"
            " are kept in float64 for; convert them first (dtype='float32')"
        )
    dtype = "bfloat16" if math == "bfloat16" else given.dtype
    spec = given.spec if given.dtype == dtype else given.spec.replace(dtype=dtype)
    if given.layout.name == "cudnn" and given.dtype == dtype:
        return spec, given.arrays[0]
    return spec, run(given, CPU, dtype)[0].arrays[0]


def _asked_device(device: Any) -> str:
    """ "cpu", "auto" or "cuda:N"."""
    if not isinstance(device, str) or not re.fullmatch(r"cpu|auto|cuda(:\d{1,4})?", device, re.A):
        raise SpecError(f"device is {device!r}, need 'cpu', 'cuda', 'cuda:N' or 'auto'")
    name, _, number = device.partition(":")
    return f"cuda:{int(number or 0)}" if name == "cuda" else name


def _number_of(asked: str, math: str, algo: str) -> int | None:
    """The GPU to use, or to try."""
    if asked == "auto":
        return 0 if math in gpu.MATHS and algo in gpu.ALGOS else None
    return None if asked == "cpu" else int(asked.partition(":")[2])


def _check_options(asked: str, math: Any, algo: Any) -> None:
    maths = {"cpu": _MATHS, "auto": tuple(dict.fromkeys(_MATHS + gpu.MATHS))}
    algos = {"cpu": _ALGOS, "auto": gpu.ALGOS}
    _check_choice("math", math, asked, maths.get(asked, gpu.MATHS))
    _check_choice("algo", algo, asked, algos.get(asked, gpu.ALGOS))


def _check_choice(name: str, value: Any, asked: str, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        place = {"cpu": "the CPU has", "auto": "there are"}.get(asked, f"{asked} has")
        *most, last = (repr(choice) for choice in choices)
        has = f"{', '.join(most)} and {last}" if most else last
        raise SpecError(f"{name} is {value!r}; {place} {has}")


def _clip(value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    try:
        low, high = value
        return float(low), float(high)
    except (TypeError, ValueError):
        raise SpecError(f"cell_clip is {value!r}, need (low, high), two numbers") from None
