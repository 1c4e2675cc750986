"""Weights.config: settings that change an RNN's outputs, or how it is called, but not its shapes.

SETTINGS is the only table of what is true of each setting. It is that of the core.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._native import LayoutError, LossyError

from .spec import CELLS, Spec

Config = Mapping[str, Any]

# The types of the values of each kind of setting.
_TYPES: dict[str, tuple[type, ...]] = {
    "flag": (bool, int),
    "name": (str,),
    "name or null": (str, type(None)),
    "number": (int, float),
    "states": (list,),
    "lengths": (list,),
}


@dataclass(frozen=True)
class SettingFacts:
    """What is true of a setting (rnl_setting in rnnlayout.h).

    kind: one of _TYPES. names: the values of a name that change something. neutral: the value that
    changes nothing in an RNN of one and of two directions, as JSON; of states: of each number; None
    if every value changes something. place: where it applies: "before" the first layer, "after" the
    last, in "each layer"; or, so that it changes no number of a call, to the order of the "axes"
    and between "calls". directions: the number that an RNN needs for any other value; 0: any
    number. needs_c: whether it needs a cell state. layouts: those whose framework has the setting.
    advice: what to do in a framework that lacks it.
    """

    kind: str
    names: Sequence[str]
    neutral: Sequence[str | None]
    place: str
    directions: int
    needs_c: bool
    layouts: Sequence[str]
    advice: str

    def neutral_value(self, directions: int) -> Any:
        """Return the value that changes nothing; None if there is none."""
        text = self.neutral[directions - 1]
        return None if text is None else json.loads(text)

    def is_neutral(self, value: Any, directions: int) -> bool:
        """Return whether a value changes nothing in an RNN of one or two directions."""
        neutral = self.neutral_value(directions)
        if self.kind == "states" and neutral is not None:
            return _is_everywhere(neutral, value)
        return neutral is not None and bool(value == neutral)

    @property
    def changes_a_call(self) -> bool:
        """Whether numbers of a call depend on the setting."""
        return self.place not in ("axes", "calls")

    def suits(self, spec: Spec) -> bool:
        """Return whether an RNN can have the setting with a value that is not neutral."""
        directions, has_c = spec.num_directions, CELLS[spec.cell].has_c
        return self.directions in (0, directions) and (has_c or not self.needs_c)

    def allows(self, value: Any) -> bool:
        """Return whether a flag or a name that is not neutral exists; True for other kinds."""
        if self.kind == "flag":
            return value in (False, True)
        if self.names:
            return value in self.names or (value is None and self.kind == "name or null")
        return True


SETTINGS = {key: SettingFacts(**facts) for key, facts in _native.settings().items()}
# What is true of a setting that the table lacks, such as one of a later release.
_UNKNOWN = SettingFacts("", (), (None, None), "each layer", 0, False, (), "apply it yourself")


def facts_of(key: str) -> SettingFacts:
    """Return what is true of a setting, also of an unknown one."""
    return SETTINGS.get(key, _UNKNOWN)


def check_config(config: Config) -> None:
    """Raise LayoutError for a setting whose value is not of its kind, as a damaged file has it."""
    for key, value in config.items():
        kind = facts_of(key).kind
        types = _TYPES.get(kind, ())
        if types and not isinstance(value, types):
            names = " or ".join("null" if t is type(None) else t.__name__ for t in types)
            raise LayoutError(f"config has {key} {repr(value)[:80]}, need {names}")
        if kind == "lengths" and not all(isinstance(length, int) for length in value):
            raise LayoutError(f"config has {key} {repr(value)[:80]}, need whole numbers")
        if kind == "states" and any(s.ndim != 3 for s in initial_states(config, key, 1)):
            raise LayoutError(f"config has {key} that is not of three dimensions")


def without_neutral(config: Config, directions: int) -> dict[str, Any]:
    """Return the settings but those that change nothing in an RNN of one or two directions."""
    return {k: v for k, v in config.items() if not facts_of(k).is_neutral(v, directions)}


def changes_outputs(config: Config, spec: Spec) -> dict[str, Any]:
    """Return the settings that change the numbers of one call."""
    settings = without_neutral(config, spec.num_directions)
    return {key: value for key, value in settings.items() if facts_of(key).changes_a_call}


def settings_lost(config: Config, spec: Spec, layout: str) -> dict[str, Any]:
    """Return the settings that a layout cannot represent: its framework lacks the setting, the
    value, or the setting for such an RNN. The order of the axes is not among them: each framework
    has its own."""
    lost = {}
    for key, value in without_neutral(config, spec.num_directions).items():
        facts = facts_of(key)
        is_represented = layout in facts.layouts and facts.suits(spec) and facts.allows(value)
        if not is_represented and facts.place != "axes":
            lost[key] = value
    return lost


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
    """Return a setting that is states per layer. Raises LayoutError if it does not have so many
    layers."""
    try:
        return np.split(np.asarray(config[name], np.float64), num_layers, _batch_axis(config))
    except (TypeError, ValueError, IndexError):
        raise LayoutError(
            f"{name} is {repr(config[name])[:80]}: need (L D, N, H) numbers, with layout=1"
            f" (N, L D, H), for L = {num_layers}"
        ) from None


def layer_config(config: Config, k: int, num_layers: int) -> dict[str, Any]:
    """Return the settings of layer k of a stack. Raises LayoutError as initial_states() does."""
    if num_layers == 1:
        return dict(config)
    settings = {}
    for key, value in config.items():
        facts = facts_of(key)
        if (facts.place == "before" and k > 0) or (facts.place == "after" and k < num_layers - 1):
            continue
        is_split = facts.kind == "states"
        settings[key] = initial_states(config, key, num_layers)[k].tolist() if is_split else value
    return settings


def stack_config(layers: Sequence[Config], directions: int) -> dict[str, Any]:
    """Return the settings of a stack of these layers, bottom first, of one or two directions each.
    Raises LayoutError if layers of one RNN cannot have these settings."""
    whole = dict(layers[0])
    for key, facts in SETTINGS.items():
        if facts.place == "after" and key in layers[-1]:
            whole[key] = layers[-1][key]
        elif facts.kind == "states" and whole.pop(key, None) is not None:
            whole |= _stacked_states(layers, key)
    for k, config in enumerate(layers):
        needed = layer_config(whole, k, len(layers))
        if without_neutral(config, directions) != without_neutral(needed, directions):
            other = 0 if k else len(layers) - 1
            raise LayoutError(
                f"layer {k} is used with {describe_config(config)}, layer {other} with"
                f" {describe_config(layers[other])}: in one RNN layer {k} would be used with"
                f" {describe_config(needed)}"
            )
    return whole


def _stacked_states(layers: Sequence[Config], key: str) -> dict[str, Any]:
    """Return the states of a stack as its setting, {} if a layer lacks them."""
    if not all(key in config for config in layers):
        return {}
    states = [state for config in layers for state in initial_states(config, key, 1)]
    try:
        return {key: np.concatenate(states, _batch_axis(layers[0])).tolist()}
    except ValueError as error:
        raise LayoutError(f"{key} of the layers: {error}") from None


def _is_everywhere(number: Any, value: Any) -> bool:
    """Return whether an array, or lists of lists, has this number in each place."""
    try:
        array = np.asarray(value)
    except ValueError:
        return False
    return array.dtype.kind in "biuf" and array.size > 0 and bool((array == number).all())


def _batch_axis(config: Config) -> int:
    return 1 if config.get("layout") else 0
