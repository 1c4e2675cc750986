"""Random networks in every row of the table, each with an x and the y of the reference.

The reference shares no code with the package; only the conversion to its own form does.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from oracles import reference
from oracles.some import LAYOUTS, holds

import rnnlayout as rl

T, N, H = 6, 2, 3
I = 5  # noqa: E741
ALL = [layout for layout in LAYOUTS if layout.name != "tf1"]
ALL += [rl.layout("tf1", forget_bias=bias) for bias in (1.0, 0.0)]
CELLS = [
    (cell, reset, activation, state)
    for cell, resets in [("lstm", ["after"]), ("gru", ["after", "before"]), ("rnn_tanh", ["after"]),
                         ("rnn_relu", ["after"])]
    for reset in resets
    for activation in ["sigmoid", "hard_sigmoid", "hard_sigmoid_keras2"]
    for state in ["tanh", "relu"]
    if (activation, state) == ("sigmoid", "tanh") or cell in ("lstm", "gru")
]  # fmt: skip
SHOWN = ("named", "listed", "unnamed", "joined")
MERGES = {"concat": None, "sum": lambda a, b: a + b, "mul": lambda a, b: a * b,
          "ave": lambda a, b: (a + b) / 2}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """layout, spec, settings and batch_first are to be found; tensors, x, y are given."""

    layout: rl.Layout
    spec: rl.Spec
    settings: dict
    batch_first: bool
    tensors: object
    x: np.ndarray
    y: np.ndarray


def rows():
    """Return (layout, spec) for all rows, cells, directions and 1 and 2 layers."""
    return [
        (layout, spec)
        for layout, (cell, reset, activation, state), both, layers, projected
        in itertools.product(ALL, CELLS, (False, True), (1, 2), (0, 2))
        if not projected or cell == "lstm"
        for spec in [rl.Spec(cell, I, H, layers, both, projected, reset=reset,
                             recurrent_activation=activation, activation=state)]
        if holds(layout, spec)
    ]  # fmt: skip


def outputs(tensors, layout, spec, x):
    """Return y (T, N, D P) and h_n of the reference, in float64."""
    if spec.proj_size:  # cuDNN has these weights, but not every activation
        usual = spec.replace(recurrent_activation="sigmoid", activation="tanh")
        layers = reference.from_cudnn(rl.pack(tensors, usual, layout=layout, dtype="f8"),
                                      usual.replace(dtype="float64"))  # fmt: skip
    else:
        onnx = rl.convert(tensors, spec, layout=layout, to="onnx", dtype="f8")
        layers = reference.from_onnx(onnx, spec)
    rows, P = spec.num_layers * spec.num_directions, spec.proj_size or H
    c0 = np.zeros((rows, N, H)) if spec.cell == "lstm" else None
    run = reference.forward(layers, spec, x, np.zeros((rows, N, P)), c0)
    return run.y.value, run.h.value


def case(seed, layout, spec, shown="named"):
    """Make a case: random weights, how they are used, and what of the output is given."""
    rng = np.random.default_rng(seed)
    made = {name: rng.normal(size=shape, scale=0.6).astype("f4")
            for name, shape in rl.describe(spec, layout).items()}  # fmt: skip
    tensors = made["weight_space"] if layout.name == "cudnn" else made
    x = rng.normal(size=(T, N, I)).astype("f4")
    settings, batch_first = {}, bool(rng.integers(2))
    form = rng.choice(["steps", "steps", "last"])
    if not spec.bidirectional and rng.integers(4) == 0:
        settings["go_backwards"] = True
    y, h_n = outputs(tensors, layout, spec, x[::-1] if settings else x)
    if form == "last":
        y = np.concatenate([*h_n[-spec.num_directions :]], -1)
    if spec.bidirectional:
        merge = str(rng.choice(list(MERGES)))
        if MERGES[merge]:
            settings["merge_mode"] = merge
            y = MERGES[merge](*np.split(y, 2, -1))
    if np.mean(h_n == 0) > 0.5 or not y.any():  # a network with relu that shows nothing
        return case(seed + 10_000, layout, spec, shown)
    if batch_first:
        x, y = x.swapaxes(0, 1), (y if form == "last" else y.swapaxes(0, 1))
    given = {
        "named": tensors,
        "listed": [*made.values()],
        "unnamed": {f"tensor {k}": a for k, a in enumerate(made.values())},
        "joined": np.concatenate([a.ravel() for a in made.values()]),
    }[shown]
    return Case(layout, spec, settings, batch_first, given, x, y.astype("f4"))


def cases(most=None, seed=0):
    """Yield random cases, at most so many, spread over all rows."""
    found = rows()
    order = np.random.default_rng(seed).permutation(len(found))[:most]
    for k, at in enumerate(order):
        yield case(seed + k, *found[at], SHOWN[k % len(SHOWN)])


def verdict(one):
    """Return "first", "tied" if several candidates are the same function, else "wrong"."""
    found = rl.identify(one.tensors, one.x, one.y)
    tied = found.candidates[: found.tied]
    right = [candidate for candidate in tied if is_true(candidate, one)]
    if not right:
        return "wrong"
    return "first" if len(tied) == 1 else "tied" if are_one_function(tied) else "wrong"


def is_true(candidate, one):
    """Is this the convention by which y was made?"""
    spec = candidate.spec.replace(bias="double")
    same = spec == one.spec and candidate.settings == one.settings
    return same and candidate.batch_first == one.batch_first and one.layout in candidate.layouts


def are_one_function(candidates):
    """Do they agree on another x too? Different functions would not."""
    x = np.random.default_rng(1).normal(size=(9, 9, I)).astype("f4")
    ys = [rl.forward(x, candidate.weights)[0] for candidate in candidates]
    return all(y.shape == ys[0].shape and np.abs(y - ys[0]).max() < 1e-4 for y in ys)
