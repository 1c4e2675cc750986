"""load(save(x)) == x for random RNNs in every format, or save() refuses them with the reason."""

import random
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from files.hostile.tensor_sets import SETTINGS as WRONG_SETTINGS
from files.keras.comparison import changed, layer_of
from oracles import some
from oracles.some import LAYOUTS, holds, normal_weights, random_weights

import rnnlayout as rl
from rnnlayout._files.formats.registry import (
    FORMATS,
    format_to_write,
    readable_suffixes,
    writable_suffixes,
)
from rnnlayout._model.checked_rnn import checked_rnn_of
from rnnlayout._weights.weights import weights_of

# A suffix that has the format of another one, and a format that is not written, get a few.
COUNT, FEW = 100, 10
# tests/files/tensor_sets/test_c.py compiles them
WRITE_ONLY = FORMATS.keys() - set(readable_suffixes())
NOT_WRITTEN = FORMATS.keys() - set(writable_suffixes())
# These have one order of the axes of x each.
OWN_AXES = {".onnx", ".keras", ".h5", ".hdf5", ".weights.h5"}
SETTINGS = {
    "go_backwards": lambda rng, spec: True,
    "merge_mode": lambda rng, spec: rng.choice(["sum", "mul", "ave"]),
    "direction": lambda rng, spec: "reverse",
    "clip": lambda rng, spec: rng.choice([0.5, 0.1]),
    "initial_h": lambda rng, spec: state(rng, spec, spec.proj_size or spec.hidden_size),
    "initial_c": lambda rng, spec: state(rng, spec, spec.hidden_size),
    "sequence_lens": lambda rng, spec: [2, 3],
    "stateful": lambda rng, spec: True,
    "of_another_release": lambda rng, spec: {"a": [1, None, "é"]},
}


def state(rng, spec, size):
    value = rng.choice([0.5, 0.1])
    return [[[value] * size]] * (spec.num_layers * spec.num_directions)


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
    given = checked_rnn_of(
        rl.Weights(random_weights(layout, spec, rng.getrandbits(32)), spec, layout)
    )
    names = rng.sample(sorted(SETTINGS), rng.choice([0, 0, 1, 2]))
    config = {name: SETTINGS[name](rng, spec) for name in names}
    return weights_of(replace(given, config=config, batch_first=rng.choice([None, False, True])))


def plain_rnn(rng):
    """Return Weights of an RNN with one direction, whose numbers JSON has, in layout keras."""
    bias = rng.choice(["double", "input", "recurrent", "none"])
    spec = rl.Spec(rng.choice(["lstm", "gru"]), rng.randint(6, 8), 4, rng.randint(1, 3), bias=bias)
    tensors = normal_weights(rl.layout("keras"), spec, rng.getrandbits(32))
    given = checked_rnn_of(rl.Weights(tensors, spec, "keras"))
    return weights_of(replace(given, batch_first=rng.choice([None, False, True])))


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


CUDNN_OR_KERAS = {".npy", ".bin", ".json"}
ONE_LAYOUT = [suffix for suffix in FORMATS if suffix in OWN_AXES | WRITE_ONLY | CUDNN_OR_KERAS]


def sums(second):
    """Return an LSTM in torch's layout, whose second biases are this number."""
    shapes = rl.describe(SPEC, "torch")
    tensors = {name: np.ones(shape, "f4") for name, shape in shapes.items()}
    tensors["bias_hh_l0"][:] = second
    return rl.Weights(tensors)


SPEC = rl.Spec("lstm", 4, 3)


@pytest.mark.parametrize("suffix", ONE_LAYOUT)
def test_save_converts_to_the_one_layout_of_a_format(suffix, tmp_path):
    weights, path = sums(0.0), tmp_path / f"a{suffix}"
    rl.save(path, weights)
    rl.save(tmp_path / f"b{suffix}", weights.to(format_to_write(path).layouts[0]))
    if suffix in WRITE_ONLY:
        text = (tmp_path / f"b{suffix}").read_text()
        assert path.read_text() == text.replace("_B_H", "_A_H").replace('"b.c"', '"a.c"')
        return
    more = {"spec": SPEC} if suffix == ".npy" else {}
    ((name, found),) = rl.load(path, **more).items()
    assert found == rl.load(tmp_path / f"b{suffix}", **more)[name]
    assert rl.verify(found, weights)


def test_rnns_that_could_not_be_read_are_not_dropped_silently(tmp_path):
    """save(path, load(other)) names them; the repair in the message writes the others."""
    tensors = {f"fine.{name}": np.ones(shape) for name, shape in rl.describe(SPEC, "torch").items()}
    half = {"half.weight_ih": np.ones((3, 4)), "half.weight_hh_g": np.ones((3, 1))}
    np.savez(tmp_path / "a.npz", **tensors, **half)
    found, path = rl.load(tmp_path / "a.npz"), tmp_path / "b.npz"
    with pytest.raises(rl.LayoutError, match=r"half: .* nothing was written") as error:
        rl.save(path, found)
    assert not path.exists()
    repair = re.search(r"save\(.*?\)\)", str(error.value))[0]
    eval(f"rl.{repair}", {"rl": rl, "path": path, "found": found})
    assert list(rl.load(path)) == ["fine"]


# ----------------------------------------------------------------------------------------- settings


BOTH_WAYS = rl.Spec("lstm", 5, 3, bidirectional=True)


@pytest.mark.parametrize("key, value, need", [
    *((key, value, "") for key, value in WRONG_SETTINGS),
    ("go_backwards", np.True_, "need bool or int"),
])  # fmt: skip
@pytest.mark.parametrize("suffix", [".h5", ".keras", ".weights.h5", ".npz", ".bin", ".h"])
def test_a_setting_of_the_wrong_kind_is_not_saved(tmp_path, suffix, key, value, need):
    """Nor read: hostile/tensor_sets.py."""
    layout = "cudnn" if suffix in (".bin", ".h") else "keras"
    w = rl.Weights(some.normal_weights(rl.layout("keras"), BOTH_WAYS)).to(layout)
    w.config = {key: value}
    with pytest.raises(rl.LayoutError, match=f"config has {key}.*{need}"):
        rl.save(tmp_path / f"a{suffix}", w)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [[1], {"a": 1}, 1])
def test_a_merge_mode_in_a_keras_config(tmp_path, value):
    w = rl.Weights(some.normal_weights(rl.layout("keras"), BOTH_WAYS), BOTH_WAYS, "keras")
    rl.save(tmp_path / "a.h5", w)
    path = changed(tmp_path / "a.h5", tmp_path,
                   lambda c: layer_of(c, 1)["config"].update(merge_mode=value))  # fmt: skip
    with pytest.raises(rl.FileError, match="merge_mode"):
        rl.load(path)


def test_a_harmless_setting_does_not_hinder_an_array(tmp_path):
    """stateful says when a caller keeps states: a weight space computes the same without it."""
    w = rl.Weights(some.normal_weights(rl.layout("keras"), BOTH_WAYS)).to("cudnn")
    w.config = {"stateful": True}
    rl.save(tmp_path / "a.npy", w)
    assert some.same_bits(np.load(tmp_path / "a.npy"), w.tensors)
    w.config = {"stateful": True, "go_backwards": True}
    with pytest.raises(rl.LossyError, match="is used with go_backwards=True, and"):
        rl.save(tmp_path / "a.npy", w)


@pytest.mark.parametrize("suffix", [".bin", ".npz"])
def test_a_setting_that_json_does_not_have(suffix, tmp_path):
    w = rl.Weights(normal_weights(rl.layout("keras"), BOTH_WAYS)).to("cudnn")
    w.config = {"clip": np.inf}
    with pytest.raises(rl.LayoutError, match="cannot be written as JSON"):
        rl.save(tmp_path / f"a{suffix}", w)
