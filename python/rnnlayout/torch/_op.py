"""The operators rnnlayout::rnn and rnnlayout::rnn_backward, with their rules for autograd and vmap.

Operators of torch take no objects: a spec is JSON, without the dtype, which is the dtype of the
weights, and a tape is a tensor of bytes, which may be moved and copied.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NoReturn, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from rnnlayout import _native
from rnnlayout._model.dtypes import storage_dtype
from rnnlayout._model.spec import Spec
from rnnlayout._native import TIME_FIRST, LayoutError
from rnnlayout._run import threadpools
from rnnlayout._run.tape import ALIGNMENT, new_tape, num_weights

_DTYPES = {getattr(torch, name): name for name in ("float32", "float64", "float16", "bfloat16")}
State = tuple[Tensor | None, Tensor | None]  # h_0 and c_0
threadpools.register_threads()


def run_op(
    x: Tensor,
    weight_space: Tensor,
    state: State,
    lengths: Tensor | None,
    spec: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run an RNN: y, h_n and c_n. The call is recorded if a gradient is needed."""
    tensors: tuple[Tensor | None, ...] = (x, weight_space, *state)
    if torch.is_autocast_enabled("cpu"):
        tensors = tuple(map(_widen, tensors))
    # torch.compile traces no Function with jvp(), torch.func no operator with an autograd rule
    call: Any = _rnn_op if torch.compiler.is_compiling() else _rnn_function
    y, h_n, c_n, _ = call(*tensors, lengths, spec, _needs_gradient(*tensors))
    return y, h_n, c_n


def _widen(tensor: Tensor | None) -> Tensor | None:
    """Return float16 and bfloat16 as float32."""
    return tensor if tensor is None or tensor.dtype == torch.float64 else tensor.float()


def _needs_gradient(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


# ------------------------------------------------------------------------- forward and backward


@torch.library.custom_op("rnnlayout::rnn", mutates_args=())
def _rnn_op(
    x: Tensor,
    weight_space: Tensor,
    h_0: Tensor | None,
    c_0: Tensor | None,
    lengths: Tensor | None,
    spec: str,
    records: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x: (T, N, I). h_0, c_0: (L * D, N, P) and (L * D, N, H). lengths: (N,). Return y, h_n, c_n
    and the tape; c_n is empty unless the RNN is an LSTM, the tape unless records is True."""
    y, h_n, c_n, tape = _empty_results(x, weight_space, h_0, c_0, lengths, spec, records)
    native = _prepare(weight_space, spec)
    x_array, h, c, steps = _array(x, strided=True), _array(h_0), _array(c_0), _array(lengths)
    outputs = _array(y), _array(h_n), _array(c_n) if c_n.ndim == 3 else None
    if records:
        memory = _aligned(tape)
        _native.record(native, x_array, h, c, steps, *outputs, memory)
        if memory.ctypes.data != tape.data_ptr():
            tape.copy_(torch.from_numpy(memory))
    else:
        state = h if c is None else (h, c)
        native.run(x_array, state, steps, None, *outputs, TIME_FIRST, False, True)
    return y, h_n, c_n, tape


@_rnn_op.register_fake
def _empty_results(
    x: Tensor,
    weight_space: Tensor,
    h_0: Tensor | None,
    c_0: Tensor | None,
    lengths: Tensor | None,
    spec: str,
    records: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Check the arguments of a call, and make tensors for the results."""
    rnn = spec_of(spec, weight_space.dtype)
    T, N = x.shape[:2]
    layers, D = rnn.num_layers * rnn.num_directions, rnn.num_directions
    P = rnn.proj_size or rnn.hidden_size
    h_shape, c_shape = (layers, N, P), (layers, N, rnn.hidden_size)
    _check("x", x, (T, N, rnn.input_size), weight_space.dtype)
    _check("weight_space", weight_space, (num_weights(rnn),), weight_space.dtype)
    _check("h_0", h_0, h_shape, x.dtype)
    _check("c_0", c_0, c_shape, x.dtype)
    _check("lengths", lengths, (N,), torch.int64)
    is_lstm = rnn.cell == "lstm"
    if (c_0 is None) != (h_0 is None or not is_lstm):
        raise LayoutError(f"an LSTM needs both h_0 and c_0, a GRU or RNN h_0; cell is {rnn.cell}")
    per_row, per_sequence, constant = _tape_sizes(rnn) if records else (0, 0, 0)
    return (
        x.new_empty(T, N, D * P),
        x.new_empty(h_shape),
        x.new_empty(c_shape if is_lstm else 0),
        x.new_empty(per_row * T * N + per_sequence * N + constant, dtype=torch.uint8),
    )


@torch.library.custom_op("rnnlayout::rnn_backward", mutates_args=())
def _backward_op(
    tape: Tensor,
    x: Tensor,
    weight_space: Tensor,
    h_0: Tensor | None,
    c_0: Tensor | None,
    lengths: Tensor | None,
    dy: Tensor | None,
    dh_n: Tensor | None,
    dc_n: Tensor | None,
    spec: str,
    trains: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of x, of the weights if trains is True, of h_0 and c_0. Gradients that
    are not computed are empty."""
    real = torch.float64 if x.dtype == torch.float64 else torch.float32
    needs = x, weight_space if trains else None, h_0, c_0
    gradients = [None if need is None else torch.empty(need.shape, dtype=real) for need in needs]
    dx, dweights, dh_0, dc_0 = map(_array, gradients)
    dy, dh_n, dc_n = (None if g is None else g.to(real) for g in (dy, dh_n, dc_n))
    _native.backward(
        _prepare(weight_space, spec),
        _aligned(tape),
        x.shape[0],
        x.shape[1],
        _array(lengths),
        _array(dy, strided=True),
        _array(dh_n),
        _array(dc_n),
        dx,
        dh_0,
        dc_0,
        dweights,
        False,
    )
    results = (x.new_empty(0) if g is None else g.to(x.dtype) for g in gradients)
    return cast(tuple[Tensor, Tensor, Tensor, Tensor], tuple(results))


@_backward_op.register_fake
def _empty_gradients(
    tape: Tensor, x: Tensor, weight_space: Tensor, *others: Any
) -> tuple[Tensor, ...]:
    h_0, c_0, *_, trains = others
    needs = x, weight_space if trains else None, h_0, c_0
    return tuple(x.new_empty(0 if need is None else need.shape) for need in needs)


def _check(name: str, tensor: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raise LayoutError unless a tensor has the device, shape and dtype of an argument."""
    if tensor is None:
        return
    if tensor.device.type not in ("cpu", "meta"):
        raise LayoutError(
            f"{name} is on {tensor.device}, but rnnlayout.torch trains on the CPU: train nn.LSTM,"
            " nn.GRU or nn.RNN there, with the weights of rl.convert(layer.weights(), to='torch')"
        )
    if tuple(tensor.shape) != shape:
        raise LayoutError(f"{name}: shape {tuple(tensor.shape)}, expected {shape}")
    if tensor.dtype != dtype:
        raise LayoutError(f"{name} is {tensor.dtype}, need {dtype}: call {name}.to({dtype})")


def text_of(spec: Spec) -> str:
    """Return a spec without its dtype as JSON."""
    return json.dumps({name: value for name, value in spec.to_dict().items() if name != "dtype"})


@lru_cache(maxsize=256)
def spec_of(text: str, dtype: torch.dtype) -> Spec:
    """Return the spec of weights of a dtype."""
    if dtype not in _DTYPES:
        raise LayoutError(f"the weights are {dtype}, need one of {', '.join(map(str, _DTYPES))}")
    return Spec.from_dict({**json.loads(text), "dtype": _DTYPES[dtype]})


@lru_cache(maxsize=256)
def _tape_sizes(spec: Spec) -> tuple[int, int, int]:
    """Return bytes per step and sequence, per sequence, and for alignment: a bound on the size of a
    tape that symbolic sizes can be put in. With 64 sequences no array of a tape is padded."""
    zeros = np.zeros(num_weights(spec), storage_dtype(spec.dtype))
    native = _native.Rnn(spec, zeros, None, "default", True)
    one_step, two_steps = (_native.tape_nbytes(native, T, ALIGNMENT) // ALIGNMENT for T in (1, 2))
    per_row = two_steps - one_step
    arrays = 1 + 3 * spec.num_layers * spec.num_directions
    return per_row, one_step - per_row, arrays * ALIGNMENT


def _prepare(weight_space: Tensor, spec: str) -> _native.Rnn:
    array = _array(weight_space)
    return _native.Rnn(spec_of(spec, weight_space.dtype), array, None, "default", True)


def _array(tensor: Tensor | None, strided: bool = False) -> Any:
    """Return the array of a tensor, bfloat16 as uint16; a copy if it is not aligned, or not
    contiguous. strided: only the last axis has to be contiguous."""
    if tensor is None:
        return None
    is_contiguous = tensor.is_contiguous() or (strided and tensor.stride(-1) == 1)
    if not is_contiguous or tensor.data_ptr() % tensor.element_size():
        tensor = tensor.clone(memory_format=torch.contiguous_format)
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy(force=True).view(np.uint16)
    return tensor.numpy(force=True)


def _aligned(tape: Tensor) -> np.ndarray:
    """Return the bytes of a tape, copied unless they are aligned."""
    array: np.ndarray = tape.contiguous().numpy(force=True)
    if array.ctypes.data % ALIGNMENT == 0:
        return array
    memory = new_tape(array.nbytes)
    memory[:] = array
    return memory


# ---------------------------------------------------------------------------- autograd and vmap

_Dims = Sequence[int | None]
_Batch = tuple[tuple[Tensor, ...], _Dims]


class _RNN(Function):
    """The operator _rnn_op with its rules."""

    forward = staticmethod(_rnn_op)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.spec, ctx.records = inputs
        ctx.mark_non_differentiable(output[3])
        ctx.save_for_backward(output[3], *tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(
        ctx: Any, dy: Tensor | None, dh_n: Tensor | None, dc_n: Tensor | None, _: None
    ) -> tuple[Tensor | None, ...]:
        if dc_n is not None and dc_n.ndim < 3:
            dc_n = None  # of a GRU or plain RNN
        needs = ctx.needs_input_grad
        gradients = _backward_function(*ctx.saved_tensors, dy, dh_n, dc_n, ctx.spec, needs[1])
        chosen = (g if need else None for g, need in zip(gradients, needs, strict=False))
        return (*chosen, None, None, None)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> NoReturn:
        raise NotImplementedError(
            "rnnlayout.torch has no forward-mode derivatives (jvp, jacfwd, hessian): use reverse"
            " mode (vjp, grad, jacrev), or nn.LSTM, nn.GRU or nn.RNN"
        )

    @staticmethod
    def vmap(info: Any, in_dims: _Dims, *inputs: Any) -> _Batch:
        """Fold the axis into the sequences of one call, exactly, unless each sample has weights."""
        *tensors, spec, records = inputs
        B, keeps = info.batch_size, records or _needs_gradient(*tensors[:4])  # of outer transforms
        if in_dims[1] is not None:
            return _stack(_rnn_function(*_take(tensors, in_dims, b), spec, keeps) for b in range(B))
        *outputs, tape = _rnn_function(*_fold(tensors, in_dims, B), spec, keeps)
        unfolded, dims = _unfold(outputs, B)
        return (*unfolded, tape), (*dims, None)


class _Backward(Function):
    """The operator _backward_op with its rules."""

    forward = staticmethod(_backward_op)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> NoReturn:
        raise NotImplementedError(
            "rnnlayout.torch has no second derivatives (double backward): differentiate once, or"
            " use nn.LSTM, nn.GRU or nn.RNN"
        )

    jvp = _RNN.jvp

    @staticmethod
    def vmap(info: Any, in_dims: _Dims, *inputs: Any) -> _Batch:
        """Loop over the samples if each has a gradient of the weights. The tape of a folded call
        cannot be divided: the samples are recorded again."""
        tape, *tensors, spec, trains = inputs
        dims, B = in_dims[1:], info.batch_size
        is_folded = in_dims[0] is None and any(dim is not None for dim in dims[:5])
        if is_folded and not trains:
            return _unfold(_backward_function(tape, *_fold(tensors, dims, B), spec, trains), B)
        samples = []
        for b in range(B):
            sample = _take(tensors, dims, b)
            if is_folded:
                (*_, tape_of_sample) = _rnn_function(*sample[:5], spec, True)
            else:
                (tape_of_sample,) = _take([tape], in_dims, b)
            samples.append(_backward_function(tape_of_sample, *sample, spec, trains))
        return _stack(samples)


def _take(tensors: Sequence[Tensor | None], dims: _Dims, b: int) -> list[Tensor | None]:
    """Return sample b of each batched tensor, and the other tensors."""
    return [
        tensor if tensor is None or dim is None else tensor.select(dim, b)
        for tensor, dim in zip(tensors, dims, strict=False)
    ]


def _stack(samples: Iterable[tuple[Tensor, ...]]) -> _Batch:
    results = tuple(map(torch.stack, zip(*samples, strict=True)))
    return results, (0,) * len(results)


def _fold(tensors: Sequence[Tensor | None], dims: _Dims, B: int) -> list[Tensor | None]:
    """Return (..., B * N, ...) of each tensor but the weights, which is number 1."""
    folded = list(tensors)
    for k, (tensor, dim) in enumerate(zip(tensors, dims, strict=False)):
        if tensor is not None and k != 1:
            at = 0 if k == 4 else 1  # the axis of the sequences; lengths has no other
            batched = tensor.movedim(dim, at) if dim is not None else tensor.unsqueeze(at)
            sizes = [B if axis == at else -1 for axis in range(batched.ndim)]
            folded[k] = batched.expand(sizes).flatten(at, at + 1)
    return folded


def _unfold(results: Sequence[Tensor], B: int) -> _Batch:
    """Return the results of a folded call; some may be empty."""
    is_used = [result.ndim == 3 for result in results]
    unfolded = (
        result.view(result.shape[0], B, result.shape[1] // B, result.shape[2]) if used else result
        for result, used in zip(results, is_used, strict=True)
    )
    return tuple(unfolded), tuple(1 if used else None for used in is_used)


_rnn_function: Any = _RNN.apply
_backward_function: Any = _Backward.apply
_rnn_op.register_autograd(_RNN.backward, setup_context=_RNN.setup_context)
