"""Layers of MLX, recognized by class: nothing is imported. A layer is a dict of arrays."""

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
    return ((name, layer) for name, layer in named if class_among(layer, _LAYERS, "mlx.nn."))


def mlx_spec(layer: Any) -> RNNDescription:
    kind = class_among(layer, _LAYERS, "mlx.nn.")
    if kind is None:
        raise mismatch.not_recurrent(layer, "an LSTM, GRU or RNN of MLX")
    fields = {
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
        fields["cell"] = f"rnn_{curves[0]}"
    return RNNDescription("mlx", fields, {}, batch_first=True)


def mlx_arrays(layer: Any, description: RNNDescription) -> list[tuple[str, Any]]:
    _, names = description.spec_and_names()
    arrays = dict(sys.modules["mlx.utils"].tree_flatten(layer.parameters()))
    if extra := [name for name in arrays if name not in names]:
        raise mismatch.more_parameters(layer, class_among(layer, _LAYERS, "mlx.nn.") or "", extra)
    return [(name, arrays[name]) for name in names]
