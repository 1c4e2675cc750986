"""Weights.config: settings that change the outputs or the calls of an RNN, but not the shapes.

SETTINGS is the only table of facts about settings. The core serves the table.
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

# kind of setting: the Python types of a value
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
    """The facts about a setting (rnl_setting in rnnlayout.h).

    kind: a key of _TYPES. names: the values of a name that change outputs. neutral: the value that
    changes nothing, as JSON, for an RNN with one direction and for an RNN with two; of states, the
    value of each number; None if every value changes outputs. place: where the setting applies:
    "before" the first layer, "after" the last, in "each layer", also by an "argument" of a call;
    or, without changing a number of a call, to the order of the "axes" or between "calls".
    directions: the number of directions that a value needs unless the value is neutral; 0: any
    number. needs_c: whether the setting needs a cell state. layouts: the layouts whose framework
    has the setting. advice: the repair in a framework that lacks the setting.
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
        """Return the value that changes nothing; None if every value changes outputs."""
        text = self.neutral[directions - 1]
        return None if text is None else json.loads(text)

    def is_neutral(self, value: Any, directions: int) -> bool:
        """Return whether a value changes nothing in an RNN with one or two directions."""
        if self.neutral[directions - 1] is None:
            return False
        neutral = self.neutral_value(directions)
        if self.kind == "states":
            return _is_everywhere(neutral, value)
        return bool(value == neutral)

    @property
    def changes_a_call(self) -> bool:
        """Whether the numbers of a call depend on the setting."""
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
# The facts about a setting that the table lacks, such as a setting of a later release.
_UNKNOWN = SettingFacts("", (), (None, None), "each layer", 0, False, (), "apply it yourself")


def facts_of(key: str) -> SettingFacts:
    """Return the facts about a setting, also about an unknown setting."""
    return SETTINGS.get(key, _UNKNOWN)


def check_config(config: Config) -> None:
    """Raise LayoutError if the kind of a setting forbids the value, as in a damaged file."""
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
    """Return the settings that change something in an RNN with one or two directions."""
    return {k: v for k, v in config.items() if not facts_of(k).is_neutral(v, directions)}


def changes_outputs(config: Config, spec: Spec) -> dict[str, Any]:
    """Return the settings that change the numbers of one call."""
    settings = without_neutral(config, spec.num_directions)
    return {key: value for key, value in settings.items() if facts_of(key).changes_a_call}


def settings_lost(config: Config, spec: Spec, layout: str) -> dict[str, Any]:
    """Return the settings that a layout cannot represent: the framework lacks the setting, the
    value, or the setting for RNNs of this kind. The order of the axes is never lost: each framework
    has an order."""
    lost = {}
    for key, value in without_neutral(config, spec.num_directions).items():
        facts = facts_of(key)
        is_represented = layout in facts.layouts and facts.suits(spec) and facts.allows(value)
        if not is_represented and facts.place != "axes":
            lost[key] = value
    return lost


def unwritable_settings(config: Config, spec: Spec, layout: str) -> dict[str, Any]:
    """Return the settings that a file of a layout needs and cannot have. A setting that each call
    has as an argument may be left out: the report of the conversion names it."""
    lost = settings_lost(config, spec, layout)
    return {key: value for key, value in lost.items() if facts_of(key).place != "argument"}


def how_to_leave_out(entry: str, keys: Iterable[str]) -> str:
    """Return the code, for messages, that saves an RNN of a file without some settings."""
    deletions = "; ".join(f"del w.config[{key!r}]" for key in keys)
    return f"in Python w = rl.load(path)[{entry!r}]; {deletions}; rl.save(new_path, w)"


def unwritten_settings(name: str, settings: Config, why: str) -> LossyError:
    """Return the error for settings of an RNN that a file cannot have. why: the end of the
    sentence. The text ends with the code that leaves the settings out."""
    return LossyError(
        f"{name} is used with {describe_config(settings)}, {why}, "
        + how_to_leave_out(name, settings)
    )


def how_to_round(key: str, dtype: str) -> str:
    """Return the code, for messages, that rounds a setting of an RNN to a dtype of NumPy."""
    return f"round it first, w.config[{key!r}] = numpy.{dtype}(w.config[{key!r}]).tolist()"


def describe_config(config: Config) -> str:
    """Return the settings as text for a message."""
    settings = (f"{before_value(key)}{repr(value)[:80]}" for key, value in config.items())
    return ", ".join(settings) or "nothing more"


def before_value(key: str) -> str:
    """Return the text between "used with" and the value of a setting. mask= would be read as the
    argument of a call, which needs an array."""
    return "mask " if key == "mask" else f"{key}="


def initial_states(config: Config, name: str, num_layers: int) -> list[np.ndarray]:
    """Return the states of each layer from a setting. Raises LayoutError if the number of layers
    differs."""
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
    """Return the settings of a stack. layers: the settings of each layer, bottom first. directions:
    of each layer. Raises LayoutError if no stack has layers with these settings."""
    joined = dict(layers[0])
    for key, facts in SETTINGS.items():
        if facts.place == "after" and key in layers[-1]:
            joined[key] = layers[-1][key]
        elif facts.kind == "states" and joined.pop(key, None) is not None:
            joined |= _stacked_states(layers, key)
    for k, config in enumerate(layers):
        needed = layer_config(joined, k, len(layers))
        if without_neutral(config, directions) != without_neutral(needed, directions):
            neighbour = 0 if k else len(layers) - 1
            raise LayoutError(
                f"layer {k} is used with {describe_config(config)}, layer {neighbour} with"
                f" {describe_config(layers[neighbour])}: in one RNN layer {k} would be used with"
                f" {describe_config(needed)}"
            )
    return joined


def _stacked_states(layers: Sequence[Config], key: str) -> dict[str, Any]:
    """Return {key: the states of all layers}; {} if a layer lacks the setting."""
    if not all(key in config for config in layers):
        return {}
    states = [state for config in layers for state in initial_states(config, key, 1)]
    try:
        return {key: np.concatenate(states, _batch_axis(layers[0])).tolist()}
    except ValueError as error:
        raise LayoutError(f"{key} of the layers: {error}") from None


def _is_everywhere(number: Any, value: Any) -> bool:
    """Return whether each element of an array, or of lists of lists, is a number."""
    try:
        array = np.asarray(value)
    except ValueError:
        return False
    return array.dtype.kind in "biuf" and array.size > 0 and bool((array == number).all())


def _batch_axis(config: Config) -> int:
    return 1 if config.get("layout") else 0
