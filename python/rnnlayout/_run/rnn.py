"""RNN: prepare weights once, then run."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from rnnlayout import _native
from rnnlayout._convert.engine import run_conversion
from rnnlayout._model.dtypes import as_carrier, dtype_name
from rnnlayout._model.errors import Ask
from rnnlayout._model.layout import Layout
from rnnlayout._model.reading_options import MemoryOptions, takes_options
from rnnlayout._model.spec import Spec
from rnnlayout._model.weights import Weights
from rnnlayout._native import BATCH_FIRST, STEP, TIME_FIRST, LayoutError, SpecError
from rnnlayout._sources.read_source import has_names, read_source
from rnnlayout._sources.reading import Reading, make_reading

from . import gpu, host, threadpools
from .call_arrays import is_on_device, name_arrays, refuse_unreadable, stream_of
from .settings import (
    CPU,
    RNNOptions,
    SourceSettings,
    check_choices,
    gpu_number,
    read_options,
    source_settings_of,
)
from .tape import Tape, record_call
from .unrecorded import UnrecordedSettings

_DTYPES_OF_MATH = {"bfloat16": "bfloat16", "int8": "float32"}  # of the weights


class RNN:
    """An RNN that runs. RNN() prepares the weights once; calls use the prepared weights.

    source: as in pack(); a 1-D array is cuDNN's weight space. RNNs that cuDNN lacks run too:
        reset-before GRUs, hard sigmoids, relu for tanh, peepholes.
    device: "cpu"; "cuda" or "cuda:1" for a GPU, with cuDNN; "auto" for the first GPU if it is
        usable and supports this RNN, otherwise the CPU.
    batch_first: x and y are (N, T, ...). By default as recorded in the source: batch_first of
        nn.LSTM, True for Keras layers; False if the source records no order of axes.
    cell_clip: (low, high), LSTM only: the cell state, c_n too, is clipped before storing. None: as
        recorded in the source. Not on a GPU.
    math: "default". On the CPU also "bfloat16": the weights (not float64) and the operands of
        matrix products are rounded to bfloat16; sums, gates and states stay float32. spec.dtype is
        then "bfloat16", and x bfloat16 or float32. "int8", on the CPU: matrices (not of float64)
        are rounded to one byte per weight with a scale per row, the operands of matrix products to
        16 bits with a scale per step and sequence; spec.dtype and x are float32. On a GPU also
        "tf32": float32 operands of matrix products may be rounded to the 10 bits of TF32.
    algo: cuDNN's algorithm on a GPU: "auto" keeps the weights in registers for small H; "standard"
        never does.
    Further arguments: options for reading the source, and the dtype of the weights, see
        ReadingOptions.

    Call the RNN to run sequences; step() runs a single step, stepper() is for live signals, bind()
    is for calls that repeat on the same arrays, update() replaces the weights. The attributes are
    the options above, spec, and, from the spec, input_size, hidden_size, num_layers,
    num_directions, bidirectional and proj_size. An RNN can be pickled, and called from many
    threads.

    Settings of the source, from a Keras layer or Weights.config, are applied: go_backwards,
    merge_mode, ONNX's direction="reverse", initial states, and cell_clip. Any further setting
    raises LossyError, unless the value changes nothing.

    Settings that the source does not record are assumed, and an AssumedWarning names them at the
    first call: batch_first of a state_dict, the activations of Keras's weights. batch_first=, and
    the options that the warning names, end it.

    On the CPU of a machine, results are bit-identical over runs, threads, batch sizes, and, with
    states in float32 or float64, one call or T steps. Arithmetic is in float32 (with default math),
    for float64 weights in float64.

    Raises SpecError if an option is invalid or not supported by the device, LossyError if the
    source has a setting that is not supported, CudnnNotFoundError if the GPU cannot be used (with
    the reason), and the errors of pack().

        >>> import numpy as np
        >>> rnn = RNN([np.eye(2), np.eye(2)], Spec("rnn_relu", 2, 2, bias=False, dtype="f8"),
        ...           layout="keras")
        >>> y, h_n = rnn(np.ones((3, 1, 2)))
        >>> y[:, 0].tolist()
        [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
    """

    __slots__ = (
        "__weakref__",
        "_axes",
        "_is_plain",
        "_native",
        "_number",
        "_options",
        "_origin",
        "_spec",
        "_unrecorded",
        "_use",
    )
    _borrows = False

    @takes_options(MemoryOptions)
    def __init__(
        self,
        source: Any,
        spec: Spec | None = None,
        *,
        device: str = "cpu",
        batch_first: bool | None = None,
        cell_clip: tuple[float, float] | None = None,
        math: str = "default",
        algo: str = "auto",
        **options: Unpack[MemoryOptions],
    ) -> None:
        checked_options = read_options(device, batch_first, cell_clip, math, algo)
        self._prepare(source, make_reading(RNN.__init__, options, spec), checked_options)

    def _prepare(self, source: Any, reading: Reading, options: RNNOptions) -> None:
        rnn = read_source(source, reading)
        use = source_settings_of(rnn, options.batch_first)
        origin = reading.layout, reading.prefix, reading.dtype
        self._unrecorded = UnrecordedSettings(rnn, reading, options.batch_first) or None
        self._set(*weight_space_of(rnn, options.math, reading.dtype), options, use, origin)

    def _set(
        self,
        spec: Spec,
        weights: np.ndarray,
        options: RNNOptions,
        use: SourceSettings,
        origin: tuple[str | Layout | None, str, Any],
    ) -> None:
        threadpools.register_threads()
        self._spec, self._options, self._use, self._origin = spec, options, use, origin
        self._axes = BATCH_FIRST if use.batch_first else TIME_FIRST
        self._is_plain = not use.settings
        self._number = gpu_number(options)
        self._native: _native.Rnn | _native.GpuRnn
        if options.device == "auto" and self._number is not None:
            try:
                self._native = self._prepared(weights)
                return
            except gpu.CANNOT_RUN:
                self._number = None
                check_choices("cpu", options.math, options.algo)
        self._native = self._prepared(weights, self._borrows)

    def _prepared(self, weights: np.ndarray, borrows: bool = False) -> _native.Rnn | _native.GpuRnn:
        spec, clip, options = self._spec, self.cell_clip, self._options
        if self._number is None:
            return _native.Rnn(spec, weights, clip, options.math, borrows)
        gpu.require_gpu(self._number, spec, clip)
        is_tf32, is_standard = options.math == "tf32", options.algo == "standard"
        return _native.GpuRnn(spec, weights, self._number, is_tf32, is_standard)

    @property
    def spec(self) -> Spec:
        """The RNN's Spec."""
        return self._spec

    @property
    def input_size(self) -> int:
        """The elements of x per step, I."""
        return self._spec.input_size

    @property
    def hidden_size(self) -> int:
        """The units of a layer and direction, H."""
        return self._spec.hidden_size

    @property
    def num_layers(self) -> int:
        """The number of layers, L."""
        return self._spec.num_layers

    @property
    def bidirectional(self) -> bool:
        """Whether the RNN has two directions."""
        return self._spec.bidirectional

    @property
    def num_directions(self) -> int:
        """The number of directions, D."""
        return self._spec.num_directions

    @property
    def proj_size(self) -> int:
        """The projected size P of an LSTM, 0 without a projection."""
        return self._spec.proj_size

    @property
    def device(self) -> str:
        """The device of the weights and calls: "cpu", "cuda:0" ..."""
        return "cpu" if self._number is None else f"cuda:{self._number}"

    @property
    def batch_first(self) -> bool:
        """Whether x and y are (N, T, ...)."""
        return self._use.batch_first

    @property
    def cell_clip(self) -> tuple[float, float] | None:
        """(low, high), or None."""
        bound = self._use.cell_clip
        return self._options.cell_clip or (None if bound is None else (-bound, bound))

    @property
    def math(self) -> str:
        """ "default", "bfloat16", "int8" or "tf32"."""
        return self._options.math

    @property
    def algo(self) -> str:
        """ "auto" or "standard"."""
        return self._options.algo

    def __repr__(self) -> str:
        details = ", batch first" if self.batch_first else ""
        details += f", {self._use.settings}" if not self._is_plain else ""
        details += f", cell_clip {self.cell_clip}" if self.cell_clip else ""
        details += f", math {self.math}" if self.math != "default" else ""
        details += f", algo {self.algo}" if self.algo != "auto" else ""
        return f"<RNN of {self._spec}{details}, on {self.device}>"

    def _repr_html_(self) -> str:
        from rnnlayout._model.picture.html import html_table

        axes = "(N, T, I)" if self.batch_first else "(T, N, I)"
        facts = {"device": self.device, "x": axes, "math": self.math, "algo": self.algo}
        facts |= {"used with": "" if self._is_plain else str(self._use.settings)}
        facts |= {"cell_clip": str(self.cell_clip or "")}
        rows = [(name, fact) for name, fact in facts.items() if fact not in ("", "default", "auto")]
        return html_table(f"RNN of {self._spec}", rows)

    def __getstate__(self) -> tuple[Any, ...]:
        return self._spec, self._native.weights(), self._options, self._use, self._origin

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        spec, weights, *rest_of_state = state
        self._unrecorded = None  # the process that made the RNN reports them
        self._set(spec, as_carrier(weights), *rest_of_state)

    def __call__(
        self,
        x: Any,
        state: Any = None,
        *,
        lengths: Any = None,
        mask: Any = None,
        out: Any = None,
        h_out: Any = None,
        c_out: Any = None,
        stream: Any = None,
    ) -> Any:
        """Run whole sequences.

        x: (T, N, I), (N, T, I) with batch_first, or (T, I) without a batch; an array or a torch
            tensor on the CPU, of any strides, in the dtype of the weights; for an RNN on the CPU
            also float32 if the weights are narrower. For an RNN on a GPU all arrays may be in the
            GPU's memory: from PyTorch, CuPy, JAX, DeviceArrays, anything with __dlpack__,
            C-contiguous. Arrays in the GPU's memory are not copied. Torch tensors that require grad
            are refused while torch records gradients, which rnnlayout.torch.RNN supports.
        state: h_0, or (h_0, c_0) for an LSTM; None for the initial state of the source, or zeros if
            the source records no initial state. h is (L * D, N, P), c is (L * D, N, H); (L * D, P)
            and (L * D, H) without a batch. The dtype is the dtype of x.
        lengths: the steps of each sequence, (N,), in any order, 0 to T. y is zero past the end,
            the last state is the state after the sequence's last step, the backward direction
            starts at the sequence's last step; values of x past the end are ignored.
        mask: bools of shape x.shape[:-1], True where a step counts, any pattern; not with lengths,
            nor with arrays in a GPU's memory. A step that does not count keeps the state. y of the
            step is zero; of a Keras layer with one direction it repeats the last output, zero
            before the first step that counts, unless the layer has zero_output_for_mask=True.
        out, h_out, c_out: arrays to fill, without memory of x or of each other. The last state may
            overwrite the first.
        stream: for arrays on a GPU, the stream to run in: a number (1 is the legacy default
            stream), or an object with __cuda_stream__, cuda_stream or ptr. By default the current
            stream of PyTorch or CuPy, if x is an array of PyTorch or CuPy, otherwise the legacy
            default stream. If all arrays are of the same library, the call does not wait for the
            stream.

        Returns y, (T, N, D * P) or (N, T, D * P), with a merge_mode P instead of D * P, and h_n, or
        (h_n, c_n) for an LSTM: the arrays to fill, or new arrays of the library of x: torch
        tensors, on a GPU also arrays of CuPy and JAX; for all further libraries NumPy arrays, on a
        GPU DeviceArrays. Raises LayoutError if shapes, dtypes or memory do not fit; CudnnError if a
        call of cuDNN or of the driver fails.
        """
        native = self._native
        if self._unrecorded is not None:
            self._report_unrecorded(x, mask is not None or lengths is not None)
        if type(native) is _native.Rnn and self._is_plain and stream is None:
            repeats = self._use.repeats_masked
            result = native.run(
                x, state, lengths, mask, out, h_out, c_out, self._axes, repeats, False
            )
            if result is not None:
                return result
        return self._checked_call(self._axes, x, state, lengths, mask, out, h_out, c_out, stream)

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
        """Run one step of an RNN with one direction.

        x: (N, I), or (I,) without a batch. Returns y, (N, P), and the state for the next step.
        Further arguments: as in a call, except that outputs may overwrite inputs (in a GPU's memory
        only the states, not x):

            y, state = rnn.step(x, state, h_out=state[0], c_out=state[1])
        """
        native = self._native
        if self._unrecorded is not None and self._unrecorded.settings:
            self._report_unrecorded()
        if type(native) is _native.Rnn and self._is_plain and stream is None:
            result = native.run(x, state, None, None, out, h_out, c_out, STEP, False, False)
            if result is not None:
                return result
        return self._checked_call(STEP, x, state, None, None, out, h_out, c_out, stream)

    def stepper(self, state: Any = None) -> _native.Stepper:
        """Make a stepper for a live signal: one sequence that arrives step by step.

        The stepper keeps the state, so calls are cheaper than calls of step():

            s = rnn.stepper()
            y = s(x)          # x (I,), or (n, I) for n steps; y (P,), or (n, P)
            s(x, out=y)       # the same without a new array; y may be x
            s.state           # h (L, P), or (h, c) for an LSTM, c (L, H); can be set, None: zeros

        state: the first state, in the form of s.state; None for the initial state of the source, or
            zeros if the source records no initial state.

        Arrays are float32, or float64 if the weights are float64; C-contiguous NumPy arrays are not
        copied. The results have the bits of a single call with all steps. A stepper is for one
        thread at a time, and keeps the current weights of the RNN. Raises SpecError for an RNN with
        two directions, or that reads x from the last step to the first; on a GPU for bfloat16.

        On a GPU, x and y are on the host, in the dtype of the weights. A step, with the copies of x
        and y, is captured once as a CUDA graph, and each step launches the graph and waits. Results
        may differ from a single call in rounding; update() changes the weights of the stepper too.
        For several sequences, or arrays on the GPU, see bind().

            >>> import numpy as np
            >>> rnn = RNN([np.eye(2), np.eye(2)], Spec("rnn_relu", 2, 2, bias=False, dtype="f8"),
            ...           layout="keras")
            >>> s = rnn.stepper()
            >>> [s(np.ones(2)).tolist() for _ in range(3)]
            [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
        """
        if isinstance(self._native, _native.GpuRnn) and self._spec.dtype == "bfloat16":
            raise SpecError(
                f"stepper() of an RNN on {self.device} supports no bfloat16: call step(), or use"
                " float16 weights"
            )
        self._check_order("stepper()")
        self._report_unrecorded()
        return host.make_stepper(self._native, self._spec, self._use, state)

    def bind(
        self,
        x: Any,
        state: Any = None,
        *,
        lengths: Any = None,
        mask: Any = None,
        out: Any = None,
        h_out: Any = None,
        c_out: Any = None,
        stream: Any = None,
    ) -> _native.BoundCall:
        """Fix the arrays of a call, for the cheapest calls that repeat: y, state = call().

        The arguments are those of a call. bind() checks them once, makes the outputs that are not
        passed, and runs nothing. Each call() reads x and the first state where they are, with the
        values that they have then, and writes and returns the same y and last state; h_out and
        c_out may be the first state. lengths and mask are read once, by bind(). Calls use the
        weights of the last update(). On a GPU each call runs in the stream that is chosen by
        bind(), and its workspace lives as long as the BoundCall.

        Raises the errors of a call; LayoutError also for arrays that a call would copy; SpecError
        for an RNN with go_backwards, a merge_mode or initial states.

            >>> import numpy as np
            >>> rnn = RNN([np.eye(2), np.eye(2)], Spec("rnn_relu", 2, 2, bias=False, dtype="f8"),
            ...           layout="keras")
            >>> x = np.ones((3, 1, 2))
            >>> call = rnn.bind(x)
            >>> x[:] = 2
            >>> y, h_n = call()
            >>> y[:, 0].tolist()
            [[2.0, 2.0], [4.0, 4.0], [6.0, 6.0]]
        """
        if not self._is_plain:
            raise SpecError(
                f"bind() supports no {self._use.settings}, which this RNN has: a call makes copies"
                " for it, so call the RNN"
            )
        self._report_unrecorded(x, mask is not None or lengths is not None)
        native, spec, use, axes = self._native, self._spec, self._use, self._axes
        self._check_steps(x, lengths, mask)
        if isinstance(native, _native.GpuRnn) and mask is None:
            arrays = x, state, lengths, out, h_out, c_out
            bound = gpu.bind_on_gpu(self, native, spec, axes, arrays, stream)
            if bound is not None:
                return bound
        self._check_stream(stream)
        named = name_arrays(spec, x, state, out, h_out, c_out)
        if isinstance(native, _native.GpuRnn):
            gpu.check_host_call(named, use, stream)
            raise LayoutError(
                f"x is a {type(x).__name__} in the host's memory, but bind() of an RNN on a GPU"
                " needs all arrays on the GPU, and no mask: copy them, or call the RNN"
            )
        refuse_unreadable(named)
        return host.bind_host_arrays(self, native, spec, axes, use, named, lengths, mask)

    def record(self, x: Any, state: Any = None, *, lengths: Any = None) -> Tape:
        """Run whole sequences and keep what a backward pass needs, in a Tape.

        The arguments are those of a call; tape.y and tape.state have the bits of a call's results.
        tape.backward() gives the gradients of x, the first state and the weights. A Tape keeps the
        weights of its call, also after update(). tape_nbytes() says what it holds.

        Raises the errors of a call; SpecError for an RNN on a GPU, with a cell_clip or a math that
        rounds, with go_backwards, a merge_mode or initial states.

            >>> import numpy as np
            >>> rnn = RNN([np.eye(2), np.eye(2)], Spec("rnn_relu", 2, 2, bias=False, dtype="f8"),
            ...           layout="keras")
            >>> tape = rnn.record(np.ones((3, 1, 2)))
            >>> dx, dh_0, dweights = tape.backward(np.ones((3, 1, 2)))
            >>> dx[:, 0].tolist()
            [[3.0, 3.0], [2.0, 2.0], [1.0, 1.0]]
        """
        native = self._recordable()
        self._report_unrecorded(x, lengths is not None)
        return record_call(native, self._spec, self._axes, self._use, x, state, lengths)

    def tape_nbytes(self, T: int, N: int = 1) -> int:
        """Return the bytes that the Tape of T steps of N sequences holds."""
        return _native.tape_nbytes(self._recordable(), T, N)

    def _recordable(self) -> _native.Rnn:
        """Return the prepared RNN. Raises SpecError if its calls cannot be recorded."""
        if isinstance(self._native, _native.GpuRnn):
            raise SpecError(
                f"record() needs an RNN on the CPU, this one is on {self.device}: to train on a"
                " GPU, convert the weights into nn.LSTM, nn.GRU or nn.RNN with rl.convert()"
            )
        if not self._is_plain:
            raise SpecError(
                f"record() supports no {self._use.settings}, which this RNN has: train it in its"
                " framework"
            )
        return self._native

    def update(
        self,
        source: Any,
        *,
        layout: str | Layout | None = None,
        prefix: str | None = None,
        dtype: Any = None,
        stream: Any = None,
    ) -> None:
        """Replace the weights by the weights of a source with the same spec.

        layout, prefix, dtype: by default as for the first source; the prefix only for a dict. dtype
        must be the dtype of the RNN. Running calls finish with the old weights.
        stream: on a GPU, the stream in which graphs with calls of this RNN are replayed; by default
        the legacy default stream.

        Raises LayoutError if the source records different settings, or a different batch_first
        while RNN() got no batch_first.
        """
        self._check_stream(stream)
        passed = (layout, prefix, dtype)
        layout, prefix, dtype = (
            recorded if new is None else new
            for new, recorded in zip(passed, self._origin, strict=True)
        )
        if passed[1] is None and not has_names(source):
            prefix = ""
        rounds_to = _DTYPES_OF_MATH.get(self.math) if dtype is None else dtype
        reading = make_reading(
            RNN.update, {}, self._spec, layout=layout, prefix=prefix, dtype=rounds_to
        )
        rnn = read_source(source, reading)
        if rnn.batch_first is not None or rnn.config:  # the source records settings
            recorded = self.batch_first if rnn.batch_first is None else self._options.batch_first
            if (settings := source_settings_of(rnn, recorded)) != self._use:
                raise LayoutError(
                    f"the source has {settings}, this RNN {self._use}, and update() replaces only"
                    " weights: pass the weights alone, rl.Weights(source).tensors, or make another"
                    " RNN"
                )
        spec, weights = weight_space_of(rnn, self.math, dtype)
        if spec.dtype != self._spec.dtype:
            raise SpecError(f"dtype is {spec.dtype}, need {self._spec.dtype}, that of this RNN")
        if isinstance(self._native, _native.GpuRnn):
            self._native.update(weights, 1 if stream is None else stream_of(stream))
        else:
            self._native = self._prepared(weights)

    def _report_unrecorded(self, x: Any = None, is_masked: bool = False) -> None:
        """Warn of assumed settings that matter for a call and that no warning has named yet. x: of
        sequences. is_masked: whether the call has a mask or lengths."""
        if unrecorded := self._unrecorded:
            unrecorded.report(x, is_masked)
            self._unrecorded = unrecorded or None

    def _check_stream(self, stream: Any) -> None:
        """Raise SpecError if a stream is passed for an RNN on the CPU."""
        if stream is not None and self._number is None:
            why = "stream= is only for RNNs on a GPU, this one is on the CPU: omit "
            raise SpecError(why, Ask("stream", None))

    def _check_steps(self, x: Any, lengths: Any, mask: Any) -> None:
        """Raise LayoutError if a call cannot have this mask."""
        if mask is not None and lengths is not None:
            raise LayoutError(
                "mask and lengths both say which steps count: omit ", Ask("lengths", None)
            )
        if mask is not None and is_on_device(x):
            raise LayoutError(
                f"x is a {type(x).__name__} on a GPU, but a call with mask needs all arrays in the"
                " host's memory: pass lengths if the padding is at the end, or x.cpu() in PyTorch,"
                " x.get() in CuPy"
            )

    def _check_order(self, method: str) -> None:
        """Raise SpecError if the RNN does not read x from the first step to the last."""
        if not (self._spec.bidirectional or self._use.is_reversed):
            return
        why = f"needs the steps in order, this RNN has {self._use.settings}: it"
        if self._spec.bidirectional:
            why = "needs one direction, this RNN has two: the backward one"
        raise SpecError(
            f"{method} {why} starts at the last step, which has not come yet; call the RNN with"
            " whole sequences"
        )

    def _checked_call(
        self,
        axes: int,
        x: Any,
        state: Any,
        lengths: Any,
        mask: Any,
        out: Any,
        h_out: Any,
        c_out: Any,
        stream: Any,
    ) -> Any:
        """Run a call on a GPU, or a call with arrays that need checks or copies in Python."""
        native, spec, use = self._native, self._spec, self._use
        self._check_steps(x, lengths, mask)
        if isinstance(native, _native.GpuRnn) and self._is_plain and mask is None:
            outs = out, h_out, c_out
            result = gpu.call_on_gpu(native.call, spec, axes, x, state, lengths, outs, stream)
            if result is not None:
                return result
        self._check_stream(stream)
        if axes == STEP:
            self._check_order("step()")
        if lengths is not None and use.is_reversed:
            raise LayoutError(
                f"lengths cannot be used with {use.settings}, which reads x from the end of the"
                " batch, padding first: pass mask, True where a step counts"
            )
        named = name_arrays(spec, x, state, out, h_out, c_out)
        if self._number is None:
            refuse_unreadable(named)
        else:
            gpu.check_host_call(named, use, stream)
        return host.run_host_arrays(native, spec, axes, use, named, lengths, mask)


def weight_space_of(rnn: Weights, math: str, dtype: Any) -> tuple[Spec, np.ndarray]:
    """Return the spec and the 1-D array of bits that an RNN is prepared from, copied if needed."""
    if dtype is not None and dtype_name(dtype) != rnn.spec.dtype:
        rnn = run_conversion(rnn, CPU, dtype)
    spec = rnn.spec
    if math in _DTYPES_OF_MATH and spec.dtype == "float64":
        raise SpecError(
            f"math={math!r} would discard the precision of float64 weights: pass ",
            Ask("dtype", "float32"),
            " too",
        )
    name = _DTYPES_OF_MATH.get(math, spec.dtype)
    if rnn.layout.name not in ("cudnn", CPU.name) or spec.dtype != name:
        rnn = run_conversion(rnn, CPU, name)
    return rnn.spec, rnn.arrays[0]
