"""load(save(x)) == x for random RNNs in every format, or save() refuses them with the reason."""

import random
from collections import Counter

import numpy as np
import pytest
from files.hostile.tensor_sets import SETTINGS as WRONG_SETTINGS
from files.keras.comparison import changed, layer_of
from oracles import some
from oracles.some import LAYOUTS, holds, normal_weights, random_weights

import rnnlayout as rl
from rnnlayout._files.formats.registry import (
    FORMATS,
    readable_suffixes,
    writable_suffixes,
)
from rnnlayout._model.weights import changed_weights

# A suffix that has the format of another one, and a format that is not written, get a few.
COUNT, FEW = 100, 10
# tests/files/tensor_sets/test_c.py compiles them
WRITE_ONLY = FORMATS.keys() - set(readable_suffixes())
NOT_WRITTEN = FORMATS.keys() - set(writable_suffixes())
# These have one order of the axes of x each.
OWN_AXES = {".onnx", ".keras", ".h5", ".hdf5", ".weights.h5"}


def random_settings(rng, spec):
    """Return up to two settings."""
    layers = spec.num_layers * spec.num_directions
    value, mode = rng.choice([0.5, 0.1]), rng.choice(["sum", "mul", "ave"])
    settings = {
        "go_backwards": True, "merge_mode": mode, "direction": "reverse", "clip": value,
        "initial_h": [[[value] * (spec.proj_size or spec.hidden_size)]] * layers,
        "initial_c": [[[value] * spec.hidden_size]] * layers, "sequence_lens": [2, 3],
        "stateful": True, "of_another_release": {"a": [1, None, "é"]},
    }  # fmt: skip
    return {name: settings[name] for name in rng.sample([*settings], rng.choice([0, 0, 1, 2]))}


def random_spec(rng):
    cell = rng.choice(["lstm", "gru", "rnn_tanh", "rnn_relu"])
    hidden, skips = rng.randint(3, 5), not rng.randrange(8)
    activations = ["sigmoid", "sigmoid", "hard_sigmoid", "hard_sigmoid_keras2"]
    return rl.Spec(
        cell,
        hidden if skips else rng.randint(6, 8),
        hidden,
        rng.randint(1, 3),
        rng.random() < 0.5,
        rng.choice([0, 0, 2]) if cell == "lstm" else 0,
        rng.choice(["double", "input", "recurrent", "none"]),
        rng.choice(["after", "before"]) if cell == "gru" else "after",
        rng.choice(activations) if cell in ("lstm", "gru") else "sigmoid",
        skips,
        rng.choice(["float16", "bfloat16", "float32", "float64"]),
    )


def random_rnn(rng, layouts):
    """Return Weights of random bits, in one of the layouts that can represent them."""
    spec = random_spec(rng)
    while not (fitting := [layout for layout in layouts if holds(layout, spec)]):
        spec = random_spec(rng)
    layout = rng.choice(fitting)
    tensors = random_weights(layout, spec, rng.getrandbits(32))
    return made_of(rng, tensors, spec, layout, config=random_settings(rng, spec))


def plain_rnn(rng):
    """Return Weights of an RNN with one direction, whose numbers JSON has, in layout keras."""
    bias = rng.choice(["double", "input", "recurrent", "none"])
    spec = rl.Spec(rng.choice(["lstm", "gru"]), rng.randint(6, 8), 4, rng.randint(1, 3), bias=bias)
    tensors = normal_weights(rl.layout("keras"), spec, rng.getrandbits(32))
    return made_of(rng, tensors, spec, "keras")


def made_of(rng, tensors, spec, layout, **more):
    """Return Weights with an order of the axes of x, or none."""
    weights = rl.Weights(tensors, spec, layout)
    return changed_weights(weights, batch_first=rng.choice([None, False, True]), **more)


def cases(suffix):
    """Yield random RNNs, half of them in the layouts that fit the format most often."""
    rng = random.Random(f"round trips of {suffix}")
    usual = [rl.layout(name) for name in ("cudnn", "keras", "keras-cudnn", "onnx")]
    first = next(one for one in FORMATS if FORMATS[one] is FORMATS[suffix])
    for k in range(COUNT if suffix == first and suffix not in NOT_WRITTEN else FEW):
        plain = suffix == ".json" and k % 2  # few of the others fit RTNeural
        yield plain_rnn(rng) if plain else random_rnn(rng, usual if k % 2 else LAYOUTS)


@pytest.mark.parametrize("suffix", FORMATS)
def test_load_returns_what_save_was_given_or_save_refuses_it(suffix, tmp_path):
    path, met = tmp_path / f"file{suffix}", Counter()
    for weights in cases(suffix):
        try:
            rl.save(path, {"one": weights})
        except rl.Error as error:
            assert not list(tmp_path.iterdir()), error
            assert len(str(error)) > 40
            met["refused"] += 1
            continue
        met["saved"] += 1
        if suffix not in WRITE_ONLY:
            spec = {"spec": weights.spec} if suffix == ".npy" else {}
            check(rl.load(path, **spec), weights, suffix)
        for file in tmp_path.iterdir():
            file.unlink()
    assert met["refused" if suffix in NOT_WRITTEN else "saved"] >= FEW // 5, met


def check(found, weights, suffix):
    """Compare what load() found with what save() was given."""
    assert not found.refused
    again = rl.stack(found.values())
    if again.layout != weights.layout:  # exactly converted, to the one that the format has
        assert suffix in OWN_AXES | {".npy", ".bin", ".json"}
        weights = weights.to(again.layout, exact=True)
    if suffix == ".npy":  # numbers only: save() refuses settings that change outputs
        weights.config = {}
    assert again == weights, (again.spec, again.config, weights.spec, weights.config)
    if suffix not in OWN_AXES | {".npy"}:
        assert again.batch_first == weights.batch_first
        assert list(found) == ["one"]


# ----------------------------------------------------------------------------------------- settings


def both_ways(layout="cudnn", **config):
    """Return an RNN of two directions with settings."""
    spec = rl.Spec("lstm", 5, 3, bidirectional=True)
    weights = rl.Weights(normal_weights(rl.layout("keras"), spec)).to(layout)
    weights.config = config
    return weights


@pytest.mark.parametrize("key, value, need", [
    *((key, value, "") for key, value in WRONG_SETTINGS),
    ("go_backwards", np.True_, "need bool or int"),
])  # fmt: skip
@pytest.mark.parametrize("suffix", [".h5", ".keras", ".weights.h5", ".npz", ".bin", ".h"])
def test_a_setting_of_the_wrong_kind_is_not_saved(tmp_path, suffix, key, value, need):
    """Nor read: hostile/tensor_sets.py."""
    layout = "cudnn" if suffix in (".bin", ".h") else "keras"
    with pytest.raises(rl.LayoutError, match=f"config has {key}.*{need}"):
        rl.save(tmp_path / f"a{suffix}", both_ways(layout, **{key: value}))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [[1], {"a": 1}, 1])
def test_a_merge_mode_in_a_keras_config(tmp_path, value):
    rl.save(tmp_path / "a.h5", both_ways("keras"))
    path = changed(tmp_path / "a.h5", tmp_path,
                   lambda c: layer_of(c, 1)["config"].update(merge_mode=value))  # fmt: skip
    with pytest.raises(rl.FileError, match="merge_mode"):
        rl.load(path)


def test_settings_that_a_file_cannot_store(tmp_path):
    """stateful says when a caller keeps states: a weight space computes the same without it."""
    path, weights = tmp_path / "a.npy", both_ways(stateful=True)
    rl.save(path, weights)
    assert some.same_bits(np.load(path), weights.tensors)
    with pytest.raises(rl.LossyError, match="is used with go_backwards=True, and"):
        rl.save(path, both_ways(stateful=True, go_backwards=True))
    for suffix in (".bin", ".npz"):  # JSON has no infinity
        with pytest.raises(rl.LayoutError, match="cannot be written as JSON"):
            rl.save(tmp_path / f"a{suffix}", both_ways(clip=np.inf))
