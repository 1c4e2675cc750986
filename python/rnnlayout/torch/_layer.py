"""RNN: a layer of torch with one parameter, the weight space."""

from __future__ import annotations

from math import prod
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from rnnlayout import _native
from rnnlayout._model.describe import describe
from rnnlayout._model.errors import Ask
from rnnlayout._model.layout import CUDNN, Layout, as_layout
from rnnlayout._model.reading_options import MemoryOptions, takes_options
from rnnlayout._model.spec import Spec
from rnnlayout._model.weights import Weights, layer_spec
from rnnlayout._native import LayoutError, LossyError, SpecError
from rnnlayout._run.rnn import weight_space_of
from rnnlayout._run.settings import CPU, source_settings_of
from rnnlayout._run.unrecorded import UnrecordedSettings
from rnnlayout._sources.frameworks import KERAS, framework_of, rnn_of_model
from rnnlayout._sources.keras_tree import layer_with_cells
from rnnlayout._sources.read_source import read_source
from rnnlayout._sources.reading import make_reading

from ._op import State, run_op, spec_of, text_of

# Attributes of a layer of Keras that change training alone.
_OF_TRAINING = ["dropout", "recurrent_dropout", "activity_regularizer"] + [
    f"{part}_{rule}"
    for part in ("kernel", "recurrent", "bias")
    for rule in ("regularizer", "constraint")
]


class RNN(nn.Module):
    """A layer that trains on the CPU, in the place of nn.LSTM, nn.GRU or nn.RNN.

    source, spec, further arguments: as in rl.RNN(). The weights are copied.
    batch_first: x and y are (N, T, ...). By default as recorded in the source.
    dropout: between layers in training mode, as in nn.LSTM. By default as recorded in the source.

    The parameter weight_space is cuDNN's weight space, (n,), for RNNs that cuDNN lacks the one of
    rl.RNN. Its dtype is the dtype of the layer, which layer.double() and the like change. tensors()
    returns views with names. Further attributes: spec, input_size, hidden_size, num_layers,
    bidirectional, proj_size, batch_first and dropout.

    Outputs are those of rl.RNN, gradients of float16 and bfloat16 weights are computed in float32
    and rounded once. Under torch.autocast the layer runs in float32. Forward-mode and second
    derivatives raise NotImplementedError. A tensor on a GPU raises LayoutError.

    Raises LossyError if the source has a setting that changes outputs or training and that torch's
    RNNs lack (go_backwards, a merge_mode, cell_clip, recurrent_dropout ...), and the errors of
    pack().

        >>> layer = RNN(nn.LSTM(3, 4, batch_first=True))
        >>> layer
        RNN(lstm, input_size 3, hidden_size 4, batch_first)
        >>> y, (h_n, c_n) = layer(torch.ones(2, 5, 3), lengths=torch.tensor([5, 2]))
        >>> y.shape, h_n.shape
        (torch.Size([2, 5, 4]), torch.Size([1, 2, 4]))
    """

    weight_space: nn.Parameter

    @takes_options(MemoryOptions)
    def __init__(
        self,
        source: Any,
        spec: Spec | None = None,
        *,
        batch_first: bool | None = None,
        dropout: float | None = None,
        **options: Unpack[MemoryOptions],
    ) -> None:
        super().__init__()
        reading = make_reading(RNN.__init__, options, spec)
        rnn = read_source(source, reading)
        use = source_settings_of(rnn, batch_first)
        settings = {**use.around, "cell_clip": use.cell_clip, "mask": rnn.config.get("mask")}
        settings |= _training_settings(source, reading.prefix)
        recorded = settings.pop("dropout", 0.0)
        for name, value in settings.items():
            if value is not None:
                raise LossyError(
                    f"the source has {name}={value!r}, which rnnlayout.torch does not apply. To"
                    f" train without that: w = rl.Weights(source); w.config.pop({name!r}, None);"
                    " rnnlayout.torch.RNN(w)"
                )
        UnrecordedSettings(rnn, reading, batch_first).report(np.empty((0, 0, 0)))
        exact_spec, bits = weight_space_of(rnn, "default", reading.dtype)
        self.weight_space = nn.Parameter(_tensor(bits, exact_spec.dtype))
        self.input_size, self.hidden_size = exact_spec.input_size, exact_spec.hidden_size
        self.num_layers, self.bidirectional = exact_spec.num_layers, exact_spec.bidirectional
        self.proj_size, self.batch_first = exact_spec.proj_size, use.batch_first
        self.dropout = recorded if dropout is None else float(dropout)
        self._spec, self._has_c = text_of(exact_spec), exact_spec.cell == "lstm"

    @property
    def spec(self) -> Spec:
        """The Spec of the layer."""
        return spec_of(self._spec, self.weight_space.dtype)

    def extra_repr(self) -> str:
        """Return the spec and the options, for repr()."""
        details = ", batch_first" * self.batch_first
        return f"{self.spec}{details}" + (f", dropout {self.dropout}" if self.dropout else "")

    def weights(self) -> Weights:
        """Return the weights as a Weights, in the memory of weight_space: rl.convert(), rl.save(),
        rl.assign() and Keras layers take them."""
        layout = CUDNN if _has_cudnn_form(self.spec) else CPU
        flat = self.weight_space.detach()
        return Weights(flat, self.spec, layout)

    def tensors(self, layout: str | Layout = "torch") -> dict[str, Tensor]:
        """Return views of weight_space, with the names and shapes of a layout.

        Gradients flow to weight_space, and in-place changes under torch.no_grad() change it. Raises
        LayoutError if the layout orders or transposes the weights otherwise, as Keras does;
        LossyError if it cannot represent the RNN.

            >>> {name: w.shape for name, w in RNN(nn.GRU(3, 4, bias=False)).tensors().items()}
            {'weight_ih_l0': torch.Size([12, 3]), 'weight_hh_l0': torch.Size([12, 4])}
        """
        target, spec, flat = as_layout(layout), self.spec, self.weight_space
        views = {}
        starts = _starts_of_views(spec, target)
        for (name, shape), start in zip(describe(spec, target).items(), starts, strict=True):
            views[name] = flat[start : start + prod(shape)].view(shape)
        return views

    def bias_mask(self) -> Tensor:
        """Return a bool per element of weight_space, True for a bias: for weight decay that leaves
        out biases."""
        mask = torch.zeros(self.weight_space.shape, dtype=torch.bool)
        for (_, _, role, _, _), (_, at, rows, *_) in _native.blocks(CPU, self.spec):
            mask[at : at + rows] = mask[at : at + rows] | role.startswith("b")
        return mask

    def flatten_parameters(self) -> None:
        """Do nothing: as in nn.LSTM, but the parameter is always one buffer."""

    def forward(
        self, x: Any, state: Any = None, lengths: Any = None
    ) -> tuple[Any, Tensor | tuple[Tensor, Tensor]]:
        """Run sequences. Return y and h_n, or (h_n, c_n) for an LSTM, as nn.LSTM, GRU and RNN do.

        x: (T, N, I), (N, T, I) with batch_first, (T, I), or a PackedSequence; y is of this kind.
        state: h_0, or (h_0, c_0) for an LSTM; None for zeros.
        lengths: the steps of each sequence, (N,), in any order, 0 to T; y is zero past the end.
        """
        if isinstance(x, PackedSequence):
            return self._run_packed(x, state, lengths)
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            axes = "(N, T, I)" if self.batch_first else "(T, N, I)"
            raise LayoutError(
                f"x: shape {tuple(x.shape)}, expected {axes} or (T, I) with I = {self.input_size}"
            )
        h_0, c_0 = self._states(state)
        if x.ndim == 2:
            if lengths is not None:
                raise LayoutError("lengths need a batch, and x is (T, I): cut x instead")
            y, h_n, c_n = self._run(x.unsqueeze(1), (_batched(h_0), _batched(c_0)), None)
            last = self._one_or_both(h_n, c_n)
            single = (last[0][:, 0], last[1][:, 0]) if isinstance(last, tuple) else last[:, 0]
            return y[:, 0], single
        time_first = x.transpose(0, 1) if self.batch_first else x
        y, h_n, c_n = self._run(time_first, (h_0, c_0), lengths)
        return y.transpose(0, 1) if self.batch_first else y, self._one_or_both(h_n, c_n)

    def _run(self, x: Tensor, state: State, lengths: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Run batched sequences, time first."""
        steps = None if lengths is None else _lengths(lengths)
        if not (self.training and self.dropout and self.num_layers > 1):
            return run_op(x, self.weight_space, state, steps, self._spec)
        y, lasts = x, []
        D = 1 + self.bidirectional
        for k, (spec, ranges) in enumerate(_layers(self.spec)):
            if k:
                y = nn.functional.dropout(y, self.dropout)
            flat = torch.cat([self.weight_space[start:end] for start, end in ranges])
            h_0, c_0 = (None if first is None else first[k * D : (k + 1) * D] for first in state)
            y, *last = run_op(y, flat, (h_0, c_0), steps, spec)
            lasts.append(last)
        h_n, c_n = map(torch.cat, zip(*lasts, strict=True))
        return y, h_n, c_n

    def _run_packed(
        self, x: PackedSequence, state: Any, lengths: Any
    ) -> tuple[PackedSequence, Tensor | tuple[Tensor, Tensor]]:
        if lengths is not None:
            raise LayoutError("a PackedSequence has its own lengths: omit ", Ask("lengths", None))
        padded, steps = pad_packed_sequence(PackedSequence(x.data, x.batch_sizes))  # longest first
        h_0, c_0 = (_permute(first, x.sorted_indices) for first in self._states(state))
        y, *lasts = self._run(padded, (h_0, c_0), steps)
        data = pack_padded_sequence(y, steps).data
        packed = PackedSequence(data, x.batch_sizes, x.sorted_indices, x.unsorted_indices)
        h_n, c_n = (_permute(last, x.unsorted_indices) for last in lasts)
        return packed, self._one_or_both(h_n, c_n)

    def _states(self, state: Any) -> State:
        """Return h_0 and c_0."""
        if state is None:
            return None, None
        is_pair = isinstance(state, (tuple, list))
        if is_pair != self._has_c or (is_pair and len(state) != 2):
            need = "(h_0, c_0)" if self._has_c else "h_0"
            raise LayoutError(f"state: a {type(state).__name__}, need {need} or None")
        return (state[0], state[1]) if is_pair else (state, None)

    def _one_or_both(self, h_n: Tensor, c_n: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return (h_n, c_n) if self._has_c else h_n


def _training_settings(source: Any, prefix: str) -> dict[str, Any]:
    """Return the settings of a layer or module that change training alone; dropout of torch's."""
    layers = source if isinstance(source, (list, tuple)) else [source]
    settings: dict[str, Any] = {}
    for layer in layers:
        framework = framework_of(layer)
        if framework is None:
            continue
        module = rnn_of_model(layer, framework, prefix)
        if framework is KERAS:
            cells = [*layer_with_cells(module)]
            values = {
                f"{name} of Keras": getattr(cell, name, None)
                for cell in cells
                for name in _OF_TRAINING
            }
            settings |= {name: value for name, value in values.items() if value}
        elif getattr(module, "num_layers", 1) > 1 and getattr(module, "dropout", 0):
            settings["dropout"] = module.dropout
    return settings


def _has_cudnn_form(spec: Spec) -> bool:
    try:
        return spec.num_params > 0
    except SpecError:
        return False


def _tensor(bits: np.ndarray, dtype: str) -> Tensor:
    """Return a copy of an array of bits as a tensor."""
    is_bfloat16 = dtype == "bfloat16"
    tensor = torch.from_numpy((bits.view(np.int16) if is_bfloat16 else bits).copy())
    return tensor.view(torch.bfloat16) if is_bfloat16 else tensor


def _starts_of_views(spec: Spec, target: Layout) -> list[int]:
    """Return where each tensor of a layout starts in the weight space. Raises LayoutError unless
    its blocks are there in the same order."""
    places = {key: view for key, (_, *view) in _native.blocks(CPU, spec)}
    starts: dict[int, int] = {}
    for key, (tensor, at, *strides) in _native.blocks(target, spec):
        place, *place_strides = places.get(key, [0])
        if strides != place_strides or starts.setdefault(tensor, place - at) != place - at:
            raise LayoutError(
                f"{target} orders the weights of an {spec.cell} unlike the weight space, so that no"
                f" views exist: copy them with rl.convert(layer.weights(), to={str(target)!r})"
            )
    return [starts[tensor] for tensor in sorted(starts)]


def _layers(spec: Spec) -> list[tuple[str, list[tuple[int, int]]]]:
    """Return the spec of each layer as JSON, and the ranges of its weights in the weight space."""
    places = {key: view for key, view in _native.blocks(CPU, spec)}
    layers = []
    for k in range(spec.num_layers):
        alone, ranges = layer_spec(spec, k), list[tuple[int, int]]()
        blocks = sorted(_native.blocks(CPU, alone), key=lambda block: block[1][1])
        for (_, direction, role, number, gate), (_, _, rows, cols, *_) in blocks:
            start = places[k, direction, role, number, gate][1]
            end = start + rows * cols
            if ranges and ranges[-1][1] == start:
                start = ranges.pop()[0]
            ranges.append((start, end))
        layers.append((text_of(alone), ranges))
    return layers


def _lengths(lengths: Any) -> Tensor:
    steps = torch.as_tensor(lengths)
    if steps.is_floating_point() or steps.dtype == torch.bool:
        raise LayoutError(f"lengths are {steps.dtype}, need integers")
    return steps.to(torch.int64)


def _batched(state: Tensor | None) -> Tensor | None:
    return None if state is None else state.unsqueeze(1)


def _permute(state: Any, indices: Tensor | None) -> Any:
    """Return a state with its sequences in another order; None and an empty state as they are."""
    is_state = state is not None and state.ndim == 3 and indices is not None
    return state.index_select(1, indices) if is_state else state
