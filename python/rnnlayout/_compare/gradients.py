"""Compare the gradients that two frameworks compute of the same loss."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._model.layout import ROLES, layer_in_words
from rnnlayout._model.spec import Spec
from rnnlayout._model.weights import Weights
from rnnlayout._native import LayoutError, LossyError
from rnnlayout._sources import frameworks

from .blocks import UNITS

_T, _N = 4, 2  # steps and sequences of the input


def compare_gradients(a: Any, b: Any, rtol: float = 0, atol: float = 0) -> str:
    """Return a text with a line per block whose gradients differ, or "". a, b: modules of torch,
    layers or lists of layers of Keras, with equal weights. rtol: relative to the largest gradient
    of a block; at least what rounding explains. Raises LayoutError for another source."""
    sides = _Trainable(a, "a"), _Trainable(b, "b")
    spec = sides[1].weights.spec
    rng, width = np.random.default_rng(0), spec.proj_size or spec.hidden_size
    x = rng.standard_normal((_T, _N, spec.input_size)) / 2
    coefficients = rng.standard_normal((_T, _N, spec.num_directions * width))
    if any(side.only_last for side in sides):
        coefficients[:-1, :, :width] = 0  # the last output of each direction
        coefficients[1:, :, width:] = 0
    first, second = (side.gradient(x, coefficients) for side in sides)
    try:
        first, second = (side.to(second.layout, dtype="float64") for side in (first, second))
    except LossyError as error:
        return f"the gradients of a and b differ: {error}"
    unit = max(UNITS[side.weights.spec.dtype] for side in sides)
    lines = [*_differences(first, second, max(rtol, _rounding(spec, unit)), atol)]
    if not lines:
        return ""
    return "\n".join([f"the gradients of {len(lines)} blocks differ between a and b:", *lines])


def _rounding(spec: Spec, unit: float) -> float:
    """Return the difference of two gradients that rounding explains, as a share of the largest
    gradient of a block. A gradient is the sum of T N products. Each factor is the result of at most
    2 T L steps, of I + D H products and about 8 other operations. Of n rounding errors with random
    signs about sqrt(n) remain; the factor 16 is for terms that cancel."""
    steps = 2 * _T * spec.num_layers
    operations = spec.input_size + spec.num_directions * spec.hidden_size + 8
    return 16 * float(np.sqrt(_T * _N * steps * operations)) * unit


def _differences(a: Weights, b: Weights, rtol: float, atol: float) -> Iterator[str]:
    directions = b.spec.num_directions
    for (layer, direction, role, _, gate), view in _native.blocks(
        b.layout, b.spec, b.optional_tensors
    ):
        x, y = (_block(rnn, view) for rnn in (a, b))
        gap = np.abs(x - y)
        if (gap <= atol + rtol * np.abs(y).max(initial=0)).all():
            continue
        at = int(np.argmax(np.nan_to_num(gap, nan=np.inf)))
        of_gate = f" of gate {gate}" if gate else ""
        yield (
            f"  {layer_in_words(layer, direction, directions)}, {ROLES[role]}{of_gate}: largest"
            f" difference {gap.flat[at]:.3g}: {x.flat[at]:.6g} and {y.flat[at]:.6g}"
        )


def _block(rnn: Weights, view: Sequence[int]) -> np.ndarray:
    tensor, at, rows, cols, row_stride, col_stride, _ = view
    index = at + np.arange(rows)[:, None] * row_stride + np.arange(cols) * col_stride
    block: np.ndarray = rnn.arrays[tensor].reshape(-1)[index]
    return block


class _Trainable:
    """An RNN whose framework computes gradients. only_last: whether it returns only the last
    output."""

    def __init__(self, source: Any, name: str) -> None:
        is_list = isinstance(source, (list, tuple))
        parts = list(source) if is_list else [source]
        framework = frameworks.framework_of(parts[0]) if parts else None
        self._is_keras = framework is frameworks.KERAS
        if framework is None or not (
            self._is_keras or (framework is frameworks.TORCH and not is_list)
        ):
            raise _no_gradients(source, name)
        self.weights = Weights(source)
        self._parts = [frameworks.rnn_of_model(part, framework) for part in parts]
        if self._is_keras and not all(hasattr(part, "return_sequences") for part in self._parts):
            raise _no_gradients(self._parts[0], name)  # a cell
        self.only_last = not getattr(self._parts[-1], "return_sequences", True)
        if any(getattr(part, "stateful", False) for part in self._parts):
            raise LayoutError(f"{name} is stateful: a call would change its state")
        if "merge_mode" in self.weights.config:
            mode = self.weights.config["merge_mode"]
            raise LayoutError(f"{name} has merge_mode {mode!r}, need 'concat': as torch and cuDNN")

    def gradient(self, x: np.ndarray, coefficients: np.ndarray) -> Weights:
        """Return the gradient of the sum of all outputs times coefficients. x: (T, N, I).
        coefficients: (T, N, D * P). Frozen parameters have zeros."""
        compute = _keras if self._is_keras else _torch
        arrays = compute(self._parts, x, coefficients)
        return Weights(arrays, self.weights.spec, self.weights.layout, kind="gradient")


def _no_gradients(source: Any, name: str) -> LayoutError:
    return LayoutError(
        f"{name} is a {type(source).__name__}, need an RNN that computes gradients: a module of"
        " torch, or a layer or a list of layers of Keras"
    )


# ---------------------------------------------------------------------------------------- torch


def _torch(parts: Sequence[Any], x: Any, coefficients: Any) -> dict[str, Any]:
    torch, (module,) = sys.modules["torch"], parts
    parameters = dict(module.named_parameters())
    like = next(iter(parameters.values()))
    x, coefficients = (
        torch.tensor(array, dtype=like.dtype, device=like.device) for array in (x, coefficients)
    )
    was_training = module.training
    module.eval()  # no dropout; cuDNN then has no backward pass
    try:
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            y = _run_torch(module, x) if hasattr(module, "num_layers") else _run_cell(module, x)
            return _torch_gradients((y * coefficients).sum(), parameters)
    finally:
        module.train(was_training)


def _run_torch(module: Any, x: Any) -> Any:
    if not module.batch_first:
        return module(x)[0]
    return module(x.swapaxes(0, 1))[0].swapaxes(0, 1)


def _run_cell(cell: Any, xs: Any) -> Any:
    state, ys = None, []
    for x in xs:
        state = cell(x, state)
        ys.append(state[0] if isinstance(state, tuple) else state)
    return sys.modules["torch"].stack(ys)


def _torch_gradients(loss: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    torch = sys.modules["torch"]
    trained = {name: value for name, value in parameters.items() if value.requires_grad}
    found = torch.autograd.grad(loss, [*trained.values()]) if trained else ()
    gradients = dict(zip(trained, found, strict=True))
    return {
        name: gradients[name] if name in gradients else torch.zeros_like(value)
        for name, value in parameters.items()
    }


# ---------------------------------------------------------------------------------------- Keras

_Loss = Callable[[Sequence[Callable[[Any], Any]], Callable[[Any], Any], Callable[[Any], Any]], Any]


def _keras(layers: Sequence[Any], x: Any, coefficients: Any) -> list[np.ndarray]:
    """Return the gradients in the order of get_weights()."""
    dtype = layers[0].get_weights()[0].dtype
    x, coefficients = (array.astype(dtype).swapaxes(0, 1) for array in (x, coefficients))

    def loss(
        calls: Sequence[Callable[[Any], Any]],
        tensor: Callable[[Any], Any],
        total: Callable[[Any], Any],
    ) -> Any:
        """Return the loss. calls: a call per layer. tensor: makes a tensor. total: its sum."""
        y = tensor(x)
        for call in calls:
            y = call(y)
            y = y[0] if isinstance(y, (list, tuple)) else y
        # without return_sequences y has no steps, and a single step of coefficients is not zero
        is_last = len(y.shape) == 2
        return total(y * tensor(coefficients.sum(axis=1) if is_last else coefficients))

    trained = [layer.trainable_weights for layer in layers]
    backend = _BACKENDS[_backend(layers[0])]
    gradients = backend(layers, trained, loss) if any(trained) else []
    by_variable = {
        id(variable): np.asarray(gradient)
        for variable, gradient in zip(chain(*trained), gradients, strict=True)
    }
    return [
        by_variable.get(id(variable), np.zeros(tuple(variable.shape), dtype))
        for layer in layers
        for variable in layer.weights
    ]


def _backend(layer: Any) -> str:
    """Return the backend that computes a layer: TensorFlow for every Keras but 3."""
    if type(layer).__module__.startswith("keras.src.") and hasattr(layer, "stateless_call"):
        return str(sys.modules["keras"].config.backend())
    return "tensorflow"


def _calls(layers: Sequence[Any]) -> list[Callable[[Any], Any]]:
    return [partial(layer, training=False) for layer in layers]


def _keras_on_torch(layers: Sequence[Any], trained: Any, loss: _Loss) -> list[Any]:
    torch = sys.modules["torch"]
    with torch.enable_grad():
        values = [variable.value for variable in chain(*trained)]
        total = loss(_calls(layers), lambda a: torch.tensor(a, device=values[0].device), torch.sum)
        return [gradient.cpu() for gradient in torch.autograd.grad(total, values)]


def _keras_on_tensorflow(layers: Sequence[Any], trained: Any, loss: _Loss) -> list[Any]:
    tf = sys.modules["tensorflow"]
    variables = [
        variable if callable(variable.value) else variable.value for variable in chain(*trained)
    ]
    with tf.GradientTape() as tape:
        total = loss(_calls(layers), tf.constant, tf.reduce_sum)
    return list(tape.gradient(total, variables))


def _keras_on_jax(layers: Sequence[Any], trained: Any, loss: _Loss) -> list[Any]:
    jax = sys.modules["jax"]

    def call(layer: Any, values: Any, y: Any) -> Any:
        others = [variable.value for variable in layer.non_trainable_variables]
        return layer.stateless_call(values, others, y, training=False)[0]

    def of_values(values: Any) -> Any:
        calls = [partial(call, *pair) for pair in zip(layers, values, strict=True)]
        return loss(calls, jax.numpy.asarray, jax.numpy.sum)

    values = [[variable.value for variable in variables] for variables in trained]
    return list(chain(*jax.grad(of_values)(values)))


_BACKENDS = {
    "torch": _keras_on_torch,
    "tensorflow": _keras_on_tensorflow,
    "jax": _keras_on_jax,
}
