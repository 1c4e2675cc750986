"""Layouts whose tensors have equal names and shapes, but define other networks."""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from oracles.some import normal_weights, same_bits

import rnnlayout as rl

# By convention these names are read as the first layout's: "Names that layouts share" in
# docs/layouts.md. A new row of the table whose names are read silently as another's fails here.
CONVENTIONS = {("keras", "haste"), ("torch-cell", "coreml")}
KINDS = [("lstm", "after"), ("gru", "after"), ("gru", "before"), ("rnn_tanh", "after"),
         ("rnn_relu", "after")]  # fmt: skip
I, H, P = 5, 7, 3  # noqa: E741


def specs(input_size):
    for (cell, reset), layers, both, bias, proj, peepholes in itertools.product(
        KINDS, (1, 2), (False, True), ("double", "none"), (0, P), (False, True)
    ):
        if cell == "lstm" or not (proj or peepholes):
            yield rl.Spec(cell, input_size, H, layers, both, proj, bias, reset, peepholes=peepholes)


def by_names_and_shapes(input_size):
    """Return all RNNs of the table, (layout, spec), in groups with equal tensors."""
    groups = defaultdict(list)
    for name, spec in itertools.product(rl.layouts(), specs(input_size)):
        try:
            tensors = rl.describe(spec, name)
        except rl.LossyError:
            continue
        if len(tensors) > 1:  # one vector never records its layout
            groups[frozenset(tensors.items())].append((name, spec))
    return groups.values()


def same_network(tensors, one, other):
    """Are the tensors the same network in both layouts: is the conversion of nothing but copies?"""
    (a, spec), (b, other_spec) = one, other
    if spec.replace(bias="double") != other_spec.replace(bias="double"):
        return False
    try:
        return same_bits(rl.convert(tensors, spec, layout=a, to=b), {
            name: tensors[name] for name in rl.describe(spec, b)
        })  # fmt: skip
    except rl.LossyError:
        return False


@pytest.mark.parametrize("input_size", [I, pytest.param(H, marks=pytest.mark.long)])
def test_tensors_are_never_read_silently_as_another_network(input_size):
    """A dict with the names and shapes of several layouts, with and without its spec."""
    guessed, refused = set(), set()
    for group in by_names_and_shapes(input_size):
        for layout, spec in group:
            tensors = normal_weights(layout, spec)
            for asked in (None, spec):
                try:
                    found = rl.Weights(tensors, asked)
                except rl.UndecidedError:  # asks for the cell or the reset
                    continue
                except rl.LayoutError as error:
                    assert f"layout={layout!r}" in str(error) or f"layout({layout!r}" in str(error)
                    refused.add(layout)
                    continue
                read = found.layout.name, found.spec
                if not same_network(tensors, read, (layout, spec)):
                    guessed.add((read[0], layout))
    assert guessed == CONVENTIONS
    assert {"equinox", "coreml", "webnn", "tf1", "tf1-cudnn-canonical"} < refused


def test_a_file_of_core_ml_or_equinox(tmp_path):
    """The gates of Core ML are in the order i, f, o, g, and were read as i, f, g, o."""
    tensors, path = normal_weights("coreml", rl.Spec("lstm", I, H)), tmp_path / "a.npz"
    np.savez(path, **tensors)
    with pytest.raises(
        rl.LayoutError, match=r"pass layout='coreml' or layout='equinox'; if another program"
    ):
        rl.load(path)
    for layout in ("coreml", "equinox"):
        assert [*rl.load(path, layout=layout).values()] == [rl.Weights(tensors, layout=layout)]
