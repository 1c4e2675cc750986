"""Weights.config: settings that change an RNN's outputs but not its shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rnnlayout._native import LayoutError, LossyError

Config = Mapping[str, Any]

# Applied before the first layer, and after the last. All other settings belong to each layer.
_BEFORE, _AFTER = "go_backwards", "merge_mode"
# Whether states are kept between calls, which is the caller's work, and the order of the axes,
# which CheckedRNN.batch_first records: they do not change the numbers of one call.
_HARMLESS = ("stateful", "time_major", "layout")
_STATES = ("initial_h", "initial_c")  # ONNX's, (L D, N, H), with layout=1 (N, L D, H)
# The kinds of the values of settings that are read from files.
_KINDS: dict[str, tuple[type, ...]] = {
    "go_backwards": (bool, int),
    "stateful": (bool, int),
    "time_major": (bool, int),
    "merge_mode": (str, type(None)),
    "direction": (str,),
    "layout": (int,),
    "clip": (int, float),
    "cell_clip": (int, float),
    "proj_clip": (int, float),
    **dict.fromkeys(_STATES, (list,)),
}


def check_config(config: Config) -> None:
    """Raise LayoutError for a setting whose value is not of its kind, as a damaged file has it."""
    for key, value in config.items():
        kinds = _KINDS.get(key)
        if kinds is not None and not isinstance(value, kinds):
            names = " or ".join("null" if one is type(None) else one.__name__ for one in kinds)
            raise LayoutError(f"config has {key} {repr(value)[:80]}, need {names}")
    for name in _STATES:
        if name in config and any(s.ndim != 3 for s in initial_states(config, name, 1)):
            raise LayoutError(f"config has {name} that is not of three dimensions")


def changes_outputs(config: Config) -> dict[str, Any]:
    """Return the settings that change the numbers of one call."""
    return {key: value for key, value in config.items() if key not in _HARMLESS}


def how_to_leave_out(entry: str, keys: Iterable[str]) -> str:
    """Return the code, for messages, that saves an RNN of a file without these settings."""
    deleted = "; ".join(f"del w.config[{key!r}]" for key in keys)
    return f"in Python w = rl.load(path)[{entry!r}]; {deleted}; rl.save(new_path, w)"


def unwritten_settings(name: str, settings: Config, why: str) -> LossyError:
    """Return the error for settings of an RNN that a file cannot have. why: the end of the
    sentence, before the code that leaves them out."""
    return LossyError(
        f"{name} is used with {describe_config(settings)}, {why}, "
        + how_to_leave_out(name, settings)
    )


def how_to_round(key: str, dtype: str) -> str:
    """Return the code, for messages, that rounds a setting of an RNN to a dtype of NumPy."""
    return f"round it first, w.config[{key!r}] = numpy.{dtype}(w.config[{key!r}]).tolist()"


def describe_config(config: Config) -> str:
    """Return the settings as text for a message."""
    settings = (f"{key}={repr(value)[:80]}" for key, value in config.items())
    return ", ".join(settings) or "nothing more"


def initial_states(config: Config, name: str, num_layers: int) -> list[np.ndarray]:
    """Return one of _STATES per layer. Raises LayoutError if it is not one of so many layers."""
    try:
        return np.split(np.asarray(config[name], np.float64), num_layers, _batch_axis(config))
    except (TypeError, ValueError):
        raise LayoutError(
            f"{name} is {repr(config[name])[:80]}: need (L D, N, H) numbers, with layout=1"
            f" (N, L D, H), for L = {num_layers}"
        ) from None


def layer_config(config: Config, k: int, num_layers: int) -> dict[str, Any]:
    """Return the settings of layer k of a stack. Raises LayoutError as initial_states() does."""
    found = dict(config)
    if num_layers == 1:
        return found
    if k > 0:
        found.pop(_BEFORE, None)
    if k < num_layers - 1:
        found.pop(_AFTER, None)
    for name in _STATES:
        if name in config:
            found[name] = initial_states(config, name, num_layers)[k].tolist()
    return found


def stack_config(layers: Sequence[Config]) -> dict[str, Any]:
    """Return the settings of a stack of these layers, bottom first. Raises LayoutError if layers of
    one RNN cannot have these settings."""
    whole = dict(layers[0])
    if _AFTER in layers[-1]:
        whole[_AFTER] = layers[-1][_AFTER]
    for name in _STATES:
        whole.pop(name, None)
        if all(name in config for config in layers):
            states = [state for config in layers for state in initial_states(config, name, 1)]
            try:
                whole[name] = np.concatenate(states, _batch_axis(layers[0])).tolist()
            except ValueError as error:
                raise LayoutError(f"{name} of the layers: {error}") from None
    for k, config in enumerate(layers):
        wanted = layer_config(whole, k, len(layers))
        if config != wanted:
            other = 0 if k else len(layers) - 1
            raise LayoutError(
                f"layer {k} is used with {describe_config(config)}, layer {other} with"
                f" {describe_config(layers[other])}: in one RNN layer {k} would be used with"
                f" {describe_config(wanted)}"
            )
    return whole


def _batch_axis(config: Config) -> int:
    return 1 if config.get("layout") else 0
