"""Layers of MLX, recognized by their classes: nothing is imported. A layer is a dict of arrays."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from rnnlayout._native import LossyError

from . import mismatch
from .self_description import RNNDescription, class_among, class_names

_LAYERS = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn"}
_CURVES = ("tanh", "relu")


def is_mlx_module(value: Any) -> bool:
    return "Module" in class_names(value, "mlx.nn.")


def mlx_rnns(module: Any) -> Iterator[tuple[str, Any]]:
    named = module.named_modules()
    return ((name, one) for name, one in named if class_among(one, _LAYERS, "mlx.nn."))


def mlx_spec(layer: Any) -> RNNDescription:
    kind = class_among(layer, _LAYERS, "mlx.nn.")
    if kind is None:
        raise mismatch.not_recurrent(layer, "an LSTM, GRU or RNN of MLX")
    hints = {
        "cell": _LAYERS[kind],
        "input_size": layer["Wxh" if kind == "RNN" else "Wx"].shape[1],
        "hidden_size": layer.hidden_size,
        "num_layers": 1,
        "bidirectional": False,
        "bias": bool({"b", "bias"} & layer.keys()),
    }
    if kind == "RNN":
        curves = [c for c in _CURVES if getattr(sys.modules["mlx.nn"], c) is layer.nonlinearity]
        if not curves:
            raise LossyError(
                f"nonlinearity is {layer.nonlinearity}, no layout can represent it: need MLX's"
                " tanh or relu; if it computes the same, pass dict(layer), its weights alone"
            )
        hints["cell"] = f"rnn_{curves[0]}"
    return RNNDescription("mlx", hints, {}, batch_first=True)


def mlx_arrays(layer: Any, own: RNNDescription) -> list[tuple[str, Any]]:
    _, names = own.spec_and_names()
    arrays = dict(sys.modules["mlx.utils"].tree_flatten(layer.parameters()))
    if more := [name for name in arrays if name not in names]:
        raise mismatch.more_parameters(layer, class_among(layer, _LAYERS, "mlx.nn.") or "", more)
    return [(name, arrays[name]) for name in names]
