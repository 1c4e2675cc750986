"""RNN: weights prepared once, and run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnlayout import _convert, _cudnn, _native
from rnnlayout._dtypes import as_carrier, present, storage, take
from rnnlayout._layouts import Layout
from rnnlayout._native import BATCH_FIRST, STEP, TIME_FIRST, LayoutError, SpecError
from rnnlayout._sources import Read, read
from rnnlayout._spec import Spec, flag

CPU = Layout("cpu")
_AXES = {STEP: "N", TIME_FIRST: "TN", BATCH_FIRST: "NT"}


class RNN:
    """An RNN that runs: its weights are prepared once and kept.

    source, spec, layout, prefix: as pack() takes them; a 1-D array is cuDNN's weight space. RNNs
        that cuDNN does not have run too: reset-before GRUs, hard sigmoids.
    device: "cpu", or "auto": the best that there is, which is the CPU so far. "cuda" and "cuda:1"
        say what is missing for it (CudnnNotFoundError), or that it is to come.
    batch_first: x and y are (N, T, ...).
    cell_clip: (low, high), LSTM only: the cell state is clamped as it is stored, c_n too.
    math: "default", or "bfloat16": weights are rounded to bfloat16 (not those of float64), and
        what is multiplied with a matrix too; sums, gates and states stay in float32. spec.dtype is
        "bfloat16" then, x bfloat16 or float32.
    algo: "standard", the only one that the CPU has.

    Called, it gives y and the last state; step() runs one step, update() takes new weights. It has
    the attributes spec, device, batch_first and cell_clip, can be pickled, and called from many
    threads. Results are bit-identical over runs, threads, batch sizes, and T steps against one
    call, on one machine. Arithmetic is in float32 (of default math), in float64 where the weights
    are.

        >>> import numpy as np
        >>> rnn = RNN([np.eye(2), np.eye(2)], Spec("rnn_relu", 2, 2, bias=False, dtype="f8"),
        ...           layout="keras")
        >>> y, h_n = rnn(np.ones((3, 1, 2)))
        >>> y[:, 0].tolist()
        [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
    """

    __slots__ = ("_axes", "_clip", "_math", "_native", "_origin", "_spec")
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
        _check_device(device)
        _check_choice("math", math, "default", "bfloat16")
        _check_choice("algo", algo, "standard")
        axes = BATCH_FIRST if flag("batch_first", batch_first) else TIME_FIRST
        clip = _clip(cell_clip)
        given = read(source, spec, layout, prefix)
        self._set(*_weight_space(given, math), axes, clip, math, (layout, prefix))

    def _set(
        self,
        spec: Spec,
        weights: np.ndarray,
        axes: int,
        clip: tuple[float, float] | None,
        math: str,
        origin: tuple[str | Layout | None, str],
    ) -> None:
        self._native = _native.Rnn(spec, weights, clip, math == "bfloat16", self._borrows)
        self._spec, self._axes, self._clip, self._math = spec, axes, clip, math
        self._origin = origin

    @property
    def spec(self) -> Spec:
        """What RNN it is."""
        return self._spec

    @property
    def device(self) -> str:
        """Where it runs."""
        return "cpu"

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
        """ "default" or "bfloat16"."""
        return self._math

    def __repr__(self) -> str:
        more = ", batch first" if self.batch_first else ""
        more += f", cell_clip {self._clip}" if self._clip else ""
        more += f", math {self._math}" if self._math != "default" else ""
        return f"<RNN of {self._spec}{more}, on {self.device}>"

    def __reduce__(self) -> tuple[Any, ...]:
        state = {
            "spec": self._spec.to_dict(),
            "weights": self._native.weights(),
            "options": {
                "batch_first": self.batch_first,
                "cell_clip": self._clip,
                "math": self._math,
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
        stream: None = None,
    ) -> Any:
        """Run whole sequences.

        x: (T, N, I), (N, T, I) with batch_first, or (T, I) without a batch; an array or a torch
            tensor on the CPU, of any strides, in the dtype of the weights, or in float32 where
            theirs is narrower.
        state: h_0, (h_0, c_0) of an LSTM; None: zeros. h (L * D, N, P), c (L * D, N, H), (L * D, P)
            and (L * D, H) without a batch. Dtype of x.
        lengths: steps of each sequence, (N,), in any order, 0 to T. y is zero past the end, the
            last state is that of the sequence's last step, the backward direction begins there;
            what x holds past the end is not looked at.
        out, h_out, c_out: arrays to fill; they may share no memory with x or each other. The last
            state may be written over the first.
        stream: None, on the CPU.

        Returns y (T, N, D * P) or (N, T, D * P) and h_n, of an LSTM (h_n, c_n): those given, or
        new ones. LayoutError: shapes, dtypes or memory do not fit.
        """
        if lengths is None and stream is None:
            result = self._native.run(x, state, None, out, h_out, c_out, self._axes, False)
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
        stream: None = None,
    ) -> Any:
        """Run one step of an RNN of one direction.

        x: (N, I), or (I,) without a batch. Returns y (N, P) and the state for the next step. Other
        arguments as those of a call, but that outputs may be the inputs:

            y, state = rnn.step(x, state, h_out=state[0], c_out=state[1])
        """
        if stream is None:
            result = self._native.run(x, state, None, out, h_out, c_out, STEP, False)
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
        self._native = _native.Rnn(self._spec, weights, self._clip, rounds)

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
        if stream is not None:
            raise SpecError(f"stream is {stream!r}: on the CPU there are none, leave it out")
        if axes == STEP and self._spec.bidirectional:
            raise SpecError(
                "step() needs one direction, this RNN has two: the backward one begins at the last"
                " step, which has not come yet; call the RNN with whole sequences"
            )
        call = _Call(self._spec, axes, x)
        call.read_state(state)
        call.read_lengths(lengths)
        call.set_outputs(out, h_out, c_out)
        call.part_overlaps()
        return call.run(self._native)


def _restore(state: dict[str, Any]) -> RNN:
    rnn = RNN.__new__(RNN)
    options = state["options"]
    axes = BATCH_FIRST if options["batch_first"] else TIME_FIRST
    spec = Spec.from_dict(state["spec"])
    weights = as_carrier(state["weights"])
    rnn._set(spec, weights, axes, options["cell_clip"], options["math"], state["origin"])
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
    stream: None = None,
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


def _weight_space(given: Read, math: str) -> tuple[Spec, np.ndarray]:
    """What an RNN is prepared from, the bits of a 1-D array: the source's own where it is that."""
    if math == "bfloat16" and given.dtype == "float64":
        raise SpecError(
            "math is 'bfloat16' and the weights are float64: that would be to throw away what they"
            " are kept in float64 for; convert them first (dtype='float32')"
        )
    dtype = given.dtype if math == "default" else math
    spec = given.spec if given.dtype == dtype else given.spec.replace(dtype=dtype)
    if given.layout.name == "cudnn" and given.dtype == dtype:
        return spec, given.arrays[0]
    _, (flat,), _, _ = _convert.run(given, CPU, dtype)
    return spec, flat


def _check_device(device: Any) -> None:
    if not isinstance(device, str) or not re.fullmatch(r"cpu|auto|cuda(:\d{1,4})?", device, re.A):
        raise SpecError(f"device is {device!r}, need 'cpu', 'cuda', 'cuda:N' or 'auto'")
    if device not in ("cpu", "auto"):
        number = int(device.partition(":")[2] or 0)
        gpu = _cudnn.require(number)["gpus"][number]["name"]
        raise SpecError(
            f"device is {device!r}, and this release finds cuDNN and the {gpu} but does not run on"
            " it yet: use 'cpu', or 'auto', the best that there is"
        )


def _check_choice(name: str, value: Any, *choices: str) -> None:
    if not isinstance(value, str) or value not in choices:
        has = " and ".join(repr(choice) for choice in choices)
        raise SpecError(f"{name} is {value!r}; the CPU has {has}")


def _clip(value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    try:
        low, high = value
        return float(low), float(high)
    except (TypeError, ValueError):
        raise SpecError(f"cell_clip is {value!r}, need (low, high), two numbers") from None


# --------------------------------------------------------------------------------------- the arrays


@dataclass
class _Slot:
    """One array of a state: what goes in, what comes out. Arrays carry bits."""

    letter: str
    shape: tuple[int, ...]
    meaning: str  # of the shape
    first: np.ndarray | None = None
    given: Any = None  # the caller's own output
    last: np.ndarray | None = None  # over its memory, or new


class _Call:
    """The arrays of one call, checked one after the other, as the binding needs them."""

    def __init__(self, spec: Spec, axes: int, x: Any) -> None:
        self.spec, self.axes = spec, axes
        self.x, self.dtype = _input(x, "x", _dtypes_of_x(spec))
        self._check_x()
        letters = _AXES[axes] if self.batched else _AXES[axes].replace("N", "")
        self.sizes = dict(zip(letters, self.x.shape, strict=False))
        self.x = _with_even_rows(self.x)
        D, H = spec.num_directions, spec.hidden_size
        P = spec.proj_size or H
        self.y_shape = (*self.x.shape[:-1], D * P)
        batch = (self.sizes["N"],) if self.batched else ()
        rows, wide = (spec.num_layers * D, *batch), "P" if spec.proj_size else "H"
        axes_of = "(L * D, N, {})" if self.batched else "(L * D, {})"
        self.slots = [_Slot("h", (*rows, P), axes_of.format(wide))]
        if spec.cell == "lstm":
            self.slots.append(_Slot("c", (*rows, H), axes_of.format("H")))
        self.lengths: np.ndarray | None = None

    @property
    def batched(self) -> bool:
        return self.x.ndim == len(_AXES[self.axes]) + 1

    def _check_x(self) -> None:
        spec, letters = self.spec, _AXES[self.axes]
        names = dict.fromkeys(("float16", "bfloat16"), ("float32",)).get(spec.dtype, ())
        if self.dtype not in (spec.dtype, *names):
            raise LayoutError(f"x is {self.dtype}, need {_dtypes_of_x(spec)}")
        ndims = len(letters) + 1, len(letters)
        if self.x.ndim not in ndims or self.x.shape[-1] != spec.input_size:
            forms = [(*letters, str(spec.input_size))]
            forms.append(tuple(n for n in forms[0] if n != "N"))
            batched, single = (f"({', '.join(f)}{',' * (len(f) == 1)})" for f in forms)
            raise LayoutError(
                f"x: shape {self.x.shape}, expected {batched} or, without a batch, {single}, with"
                f" I = {spec.input_size}"
            )

    def read_state(self, state: Any) -> None:
        if state is None:
            return
        given = [state]
        if len(self.slots) == 2:
            if not isinstance(state, (tuple, list)) or len(state) != 2:
                raise LayoutError(f"state is a {_kind(state)}, need (h_0, c_0): an LSTM has two")
            given = list(state)
        for slot, value in zip(self.slots, given, strict=True):
            what = f"{slot.letter}_0"
            array, found = _input(value, what, f"{self.dtype}, as x is")
            _check(what, array, found, slot.shape, self.dtype, slot.meaning)
            slot.first = as_carrier(array)

    def read_lengths(self, lengths: Any) -> None:
        if lengths is None:
            return
        if not self.batched:
            raise LayoutError(
                f"lengths with an x of shape {self.x.shape}: one sequence has all of its steps, cut"
                " x instead"
            )
        n, most = self.sizes["N"], self.sizes["T"]
        try:
            array = np.asarray(lengths)
        except (TypeError, ValueError, RuntimeError) as error:
            raise LayoutError(f"lengths is no array: {_kind(lengths)} ({error})") from None
        if array.shape != (n,):
            raise LayoutError(f"lengths: shape {array.shape}, expected ({n},) = (N,)")
        if not n:  # [] is float64 to NumPy
            array = np.zeros(0, np.int64)
        if array.dtype.kind not in "iu":
            raise LayoutError(f"lengths is {array.dtype}, need whole numbers")
        wrong = np.flatnonzero((array < 0) | (array > most))
        if wrong.size:
            k = int(wrong[0])
            raise LayoutError(f"lengths[{k}] is {int(array[k])}, need 0 to {most} = T")
        self.lengths = array.astype(np.int64)

    def set_outputs(self, out: Any, h_out: Any, c_out: Any) -> None:
        self.out = out
        self.y = self._output(out, "out", self.y_shape, "")
        if out is not None and not _has_even_rows(self.y):
            raise LayoutError(
                "out has to be aligned and its last axis contiguous, as in a C-contiguous array"
            )
        if c_out is not None and len(self.slots) == 1:
            raise LayoutError(f"c_out is given, and {_a_cell(self.spec)} has no c")
        for slot, given in zip(self.slots, (h_out, c_out), strict=False):
            slot.given = given
            slot.last = self._output(given, f"{slot.letter}_out", slot.shape, slot.meaning)

    def _output(self, given: Any, what: str, shape: tuple[int, ...], meaning: str) -> np.ndarray:
        if given is None:
            return np.empty(shape, storage(self.dtype))
        array, found = _input(given, what, f"{self.dtype}, as x is")
        _check(what, array, found, shape, self.dtype, meaning)
        _convert.check_in_place(array, given, what)
        if not array.flags.writeable:
            raise LayoutError(f"{what} is read-only")
        if _overlaps_itself(array):
            raise LayoutError(f"{what}: its elements share memory with each other")
        return array

    def part_overlaps(self) -> None:
        """Refuse outputs that overlap, copy inputs that would be written over too early."""
        outs = list(self._given())
        for k, (name, array) in enumerate(outs):
            for other, before in outs[:k]:
                if _overlap(array, before):
                    raise LayoutError(f"{other} and {name} share memory: each needs its own")
            if self.axes != STEP and _overlap(array, self.x):
                raise LayoutError(
                    f"{name} shares memory with x, which is read while it is written: it needs its"
                    " own"
                )
        pairs = [(self.x, self.y), *((slot.first, slot.last) for slot in self.slots)]
        for k, (first, last) in enumerate(pairs):
            if first is not None and any(
                _overlap(array, first) and not (array is last and _same_place(array, first))
                for _, array in outs
            ):
                if k == 0:
                    self.x = first.copy()
                else:
                    self.slots[k - 1].first = first.copy()

    def _given(self) -> Iterator[tuple[str, np.ndarray]]:
        if self.out is not None:
            yield "out", self.y
        for slot in self.slots:
            if slot.given is not None and slot.last is not None:
                yield f"{slot.letter}_out", slot.last

    def run(self, native: _native.Rnn) -> Any:
        # first of all: bfloat16 may not be there to be shown
        y = present(self.y, self.dtype) if self.out is None else self.out
        firsts = [slot.first for slot in self.slots]
        state = firsts[0] if len(firsts) == 1 else tuple(firsts)
        lasts = [as_carrier(slot.last) for slot in self.slots if slot.last is not None]
        h, c = (*lasts, None)[:2]
        given = state if firsts[0] is not None else None
        native.run(self.x, given, self.lengths, self.y, h, c, self.axes, True)
        shown = []
        for slot, last in zip(self.slots, lasts, strict=True):
            if slot.last is not None and last is not slot.last:
                slot.last[...] = last
            shown.append(present(last, self.dtype) if slot.given is None else slot.given)
        return y, shown[0] if len(shown) == 1 else tuple(shown)


def _dtypes_of_x(spec: Spec) -> str:
    also = ", or float32" if spec.dtype in ("float16", "bfloat16") else ""
    return f"{spec.dtype}, as the weights are{also}"


def _kind(value: Any) -> str:
    return type(value).__name__


def _a_cell(spec: Spec) -> str:
    return "a GRU" if spec.cell == "gru" else "a plain RNN"


def _input(value: Any, what: str, needed: str) -> tuple[np.ndarray, str]:
    if not any(hasattr(value, name) for name in ("__array__", "__array_interface__")):
        raise LayoutError(f"{what} is a {_kind(value)}, need an array of {needed}")
    return take(value, what, needed)


def _check(
    what: str, array: np.ndarray, found: str, shape: tuple[int, ...], dtype: str, meaning: str
) -> None:
    if found != dtype:
        raise LayoutError(f"{what} is {found}, need {dtype}, as x is")
    if array.shape != shape:
        means = f" = {meaning}" if meaning else ", as x has it"
        raise LayoutError(f"{what}: shape {array.shape}, expected {shape}{means}")


def _has_even_rows(array: np.ndarray) -> bool:
    """Aligned, strides in whole elements, the last axis contiguous."""
    width, nbytes = array.shape[-1], array.itemsize
    return bool(
        array.flags.aligned
        and (width == 1 or array.strides[-1] == nbytes or not array.size)
        and not any(stride % nbytes for stride in array.strides)
    )


def _with_even_rows(array: np.ndarray) -> np.ndarray:
    return array if _has_even_rows(array) else np.array(array, order="C", copy=True)


def _overlaps_itself(array: np.ndarray) -> bool:
    """Going up its strides, does an axis not go past all of those before it?"""
    end = array.itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True)):
        if n > 1 and stride < end:
            return bool(array.size)
        end += (n - 1) * stride
    return False


def _overlap(a: np.ndarray, b: np.ndarray) -> bool:
    """Have they an element in common? Where that is not soon found out, they have."""
    enough: Any = 10_000  # steps of the search; NumPy's stub knows none but -1 and 0
    try:
        return bool(np.shares_memory(a, b, max_work=enough))
    except np.exceptions.TooHardError:
        return True


def _same_place(a: np.ndarray, b: np.ndarray) -> bool:
    return a.__array_interface__["data"] == b.__array_interface__["data"] and a.strides == b.strides
