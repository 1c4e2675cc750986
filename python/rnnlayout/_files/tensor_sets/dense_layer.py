"""The dense layers of a model: the matrix and the bias that make outputs of the states of an RNN.

Frameworks store a matrix in two orientations: torch as `weight` (outputs, inputs), Keras and Flax
as `kernel` (inputs, outputs).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np

from rnnlayout._model.dtypes import widen_bits
from rnnlayout._model.errors import Ask, FileError
from rnnlayout._model.similar import unknown_name
from rnnlayout._native import LayoutError, LossyError

from .tensor_set import FileTensor

# The names of a layer's tensors: `lin.weight`, `dense/kernel:0`, and `dense/vars/0` of Keras 3.
_TENSOR = re.compile(r"(?:(.+)[./])?(weight|kernel|bias)(?::0)?|(.+)/vars/([01])")
_ROLE_OF_NUMBER = {"0": "kernel", "1": "bias"}
_INPUTS_FIRST = ("paddle", "burn")  # layouts of frameworks whose `weight` is (inputs, outputs)
_LISTED = 6


@dataclass(frozen=True)
class DenseLayer:
    """y = x kernel + bias. name: the layer, for messages. tensors: the names of the tensors in the
    file. kernel: (inputs, outputs), bias: (outputs,), both float32. shape: the shape of the matrix
    in the file, for messages. is_rounded: whether float32 rounds a number of the file."""

    name: str
    tensors: tuple[str, ...]
    kernel: np.ndarray
    bias: np.ndarray
    shape: str
    is_rounded: bool

    def notes(self, target: str) -> list[str]:
        """Return notes about the layer in the place of `target`."""
        rounding = ", rounded once to float32" if self.is_rounded else ""
        return [f"{target} has the numbers of {', '.join(self.tensors)}{rounding}"]

    def check_fits(self, inputs: int, outputs: int, owner_text: str) -> None:
        """Raise LayoutError if the layer has other numbers of inputs or outputs. owner_text: the
        head that needs them, for the message."""
        if self.kernel.shape != (inputs, outputs):
            raise LayoutError(
                f"{self.name}: its matrix has shape {self.shape}, {owner_text} has {inputs} inputs"
                f" and {outputs} outputs: pass with ",
                Ask("head"),
                " the dense layer on top of the RNN, or with ",
                Ask("into"),
                " a model whose head has the sizes of the layer",
            )


def dense_layers(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return {layer: {role: tensor}} of all dense layers; the roles are weight or kernel, and bias.

    >>> dense_layers(["lin.weight", "lin.bias", "emb.weight", "d/vars/0", "scale"])
    {'lin': {'weight': 'lin.weight', 'bias': 'lin.bias'}, 'emb': {'weight': 'emb.weight'}, \
'd': {'kernel': 'd/vars/0'}}
    """
    layers: dict[str, dict[str, str]] = {}
    for name in names:
        if match := _TENSOR.fullmatch(name):
            role = match[2] or _ROLE_OF_NUMBER[match[4]]
            layers.setdefault(match[1] or match[3] or "", {})[role] = name
    return {layer: roles for layer, roles in layers.items() if not roles.keys() <= {"bias"}}


def read_dense_layer(
    layer: str,
    names: Collection[str],
    read: Callable[[Collection[str]], dict[str, FileTensor]],
    layout: str,
    *,
    exact: bool,
) -> DenseLayer:
    """Return a dense layer of a file. layer: the name, or the end of the name. names: of the file's
    tensors outside the RNNs. read: return tensors by name. layout: of the file's RNNs. exact:
    whether to refuse rounding. Raises FileError if the layer does not exist, LayoutError if the
    tensors are not a dense layer."""
    layers = dense_layers(names)
    matches = [path for path in layers if path == layer or f"/{path}".endswith(f"/{layer}")]
    path = layer if layer in layers else matches[0] if len(matches) == 1 else None
    if path is None:
        raise _unknown_layer(layer, matches or [*layers], is_ambiguous=bool(matches))
    roles = layers[path]
    tensors = read(roles.values())
    values = {
        role: widen_bits(tensors[name].floats(name).array, tensors[name].dtype)
        for role, name in roles.items()
    }
    matrix_role = "kernel" if "kernel" in values else "weight"
    matrix = values[matrix_role]
    if matrix.ndim != 2:
        raise LayoutError(
            f"{roles[matrix_role]} has shape {matrix.shape}, need the matrix of a dense layer: pass"
            " another ",
            Ask("head"),
        )
    is_inputs_first = matrix_role == "kernel" or layout in _INPUTS_FIRST
    kernel = matrix if is_inputs_first else matrix.T
    bias = values.get("bias", np.zeros(kernel.shape[1]))
    if bias.shape != kernel.shape[1:]:
        raise LayoutError(
            f"{roles['bias']} has shape {bias.shape}, need ({kernel.shape[1]},), the outputs of"
            f" {roles[matrix_role]} with shape {matrix.shape}: pass another ",
            Ask("head"),
        )
    with np.errstate(over="ignore"):
        narrow = kernel.astype(np.float32), bias.astype(np.float32)
    is_rounded = any((a != b).any() for a, b in zip(narrow, (kernel, bias), strict=True))
    if is_rounded and (exact or not all(np.isfinite(array).all() for array in narrow)):
        raise LossyError(f"{path}: its numbers are not float32, as those of the new file")
    axes = "inputs, outputs" if is_inputs_first else "outputs, inputs"
    shape = f"{matrix.shape} = ({axes})"
    return DenseLayer(path, tuple(roles.values()), *narrow, shape, is_rounded)


def replace_dense_layer(
    tensors: dict[str, FileTensor], names: Iterable[str], head: DenseLayer, model: str
) -> list[str]:
    """Put a dense layer into the tensors of a model, in the place of its only dense layer; return
    notes. names: of the tensors outside the RNNs. model: the name of the file. Raises FileError if
    the model has no dense layer or several, LayoutError if the sizes differ, LossyError if the
    model has no bias for the bias of the layer."""
    layers = {
        path: roles
        for path, roles in dense_layers(names).items()
        if len(tensors[roles.get("kernel") or roles["weight"]].shape) == 2
    }
    if len(layers) != 1:
        count = f"{len(layers)} dense layers ({', '.join(layers)})" if layers else "no dense layer"
        raise FileError(f"{model} has {count}, and one is replaced: omit ", Ask("head", None))
    ((path, roles),) = layers.items()
    owner_text = f"{path} of {model}"
    is_inputs_first = "kernel" in roles
    matrix_name = roles["kernel" if is_inputs_first else "weight"]
    rows, columns = tensors[matrix_name].shape
    head.check_fits(*((rows, columns) if is_inputs_first else (columns, rows)), owner_text)
    if "bias" in roles:
        tensors[roles["bias"]] = FileTensor.of(head.bias, "float32")
    elif head.bias.any():
        raise LossyError(f"{head.name}: its bias is not zero, and {owner_text} has no bias")
    matrix = head.kernel if is_inputs_first else head.kernel.T
    tensors[matrix_name] = FileTensor.of(matrix, "float32")
    return head.notes(owner_text)


def _unknown_layer(layer: str, names: list[str], *, is_ambiguous: bool) -> FileError:
    if not names:
        return FileError(
            f"the source has no dense layer {layer!r}, nor another: omit ",
            Ask("head", None),
            ", and the head of the model stays as it is",
        )
    takes = f" takes {', '.join(map(repr, names[:_LISTED]))}"
    problem = "several dense layers end in" if is_ambiguous else "the source has no dense layer"
    return FileError(unknown_name(f"{problem} {layer!r}", layer, names, Ask("head"), takes))
