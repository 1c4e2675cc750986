"""Values of the settings of the table: those that change nothing, and those that change something.

Whatever loops over them tests a new row of the table too.
"""

import numpy as np

import rnnlayout as rl
from rnnlayout._model.config import SETTINGS

I, H, T, N = 5, 3, 4, 2  # noqa: E741
ONE, BOTH = rl.Spec("lstm", I, H), rl.Spec("lstm", I, H, 1, True)


def states(spec, number, batch):
    """Return states of this number, in the order of ONNX without layout=1."""
    return np.full((spec.num_layers * spec.num_directions, batch, H), number).tolist()


def neutral_cases():
    """Yield (spec, config) for each value that changes nothing."""
    for key, facts in SETTINGS.items():
        for spec in (ONE, BOTH):
            value = facts.neutral_value(spec.num_directions)
            values = {"flag": [False, 0], "states": [states(spec, 0.0, N), states(spec, 0, 1)]}
            for each in [] if value is None else values.get(facts.kind, [value]):
                yield spec, {key: each}


def changing_cases():
    """Yield (spec, config) for each setting, of values that are not neutral."""
    for key, facts in SETTINGS.items():
        spec = BOTH if facts.directions == 2 else ONE
        values = {
            "flag": [True, 1], "name": facts.names, "name or null": [*facts.names, None],
            "number": [0.25], "states": [states(spec, 0.5, N), states(spec, 0.5, 1)],
            "lengths": [[T, T - 1]],
        }  # fmt: skip
        if key == "mask":
            values["name or null"] = ["Masking(mask_value=0.0)"]
        for value in values[facts.kind]:
            yield spec, {key: value}


def case_id(value):
    """Return a short name of a spec or a config."""
    if isinstance(value, rl.Spec):
        return "two directions" if value.bidirectional else "one direction"
    return ", ".join(f"{key}={str(setting)[:12]}" for key, setting in value.items())
