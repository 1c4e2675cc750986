"""What a conversion leaves in memory when it is done: nothing, without Python's cycle collector.

A conversion that is part of a reference cycle keeps its source and its result until a full
collection, which may be minutes later: a gigabyte for a file of a gigabyte.
"""

import gc
import threading
import tracemalloc
from collections import Counter
from contextlib import contextmanager

import keras
import pytest
import torch
from files.formats import LAYOUTS, SINGLE

import rnnlayout as rl
from rnnlayout._files.tensor_sets import layerwise

SPEC = rl.Spec("lstm", 24, 128, 3)
LAYER_NBYTES = rl.Spec("lstm", 128, 128).nbytes


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a file of each format, by suffix, with one RNN of three layers."""
    folder = tmp_path_factory.mktemp("sources")
    paths = {suffix: folder / f"source{suffix}" for suffix in LAYOUTS}
    weights = rl.Weights(torch.nn.LSTM(24, 128, 3))
    for suffix, path in paths.items():
        rl.save(path, {"rnn": weights.to(LAYOUTS[suffix][0])})
    return paths


@contextmanager
def without_collector():
    gc.disable()
    gc.freeze()  # get_objects() returns only what is created from here on
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        gc.unfreeze()
        gc.enable()


def ours():
    """Return how many new objects and functions of the package are alive, by name."""
    return Counter(
        f"{kind.__module__}.{kind.__qualname__}"
        for one in gc.get_objects()
        for kind in [one if callable(one) and hasattr(one, "__code__") else type(one)]
        if str(kind.__module__).startswith("rnnlayout.")
    )


def convert_all(source, suffix, folder):
    """Convert the whole file, or, for a format of one RNN, each of its layers."""
    hints = {"spec": SPEC} if source.suffix == ".npy" else {}
    for prefix in rl.load(source, **hints) if suffix in SINGLE else [""]:
        rl.convert_file(source, folder / f"new{suffix}", to=LAYOUTS[suffix][0], prefix=prefix,
                        force=True, **hints)  # fmt: skip


@pytest.mark.parametrize(
    "source, target",
    [pair for k in (0, 1) for pair in zip(LAYOUTS, [*[*LAYOUTS][k:], *LAYOUTS], strict=False)],
)
def test_a_conversion_leaves_nothing_in_memory(files, source, target, tmp_path, monkeypatch):
    monkeypatch.setattr(layerwise, "SMALL_NBYTES", 0)  # layer by layer, however small
    convert_all(files[source], target, tmp_path)  # imports and caches
    with without_collector():
        threads = threading.active_count()
        convert_all(files[source], target, tmp_path)
        assert ours() == {}
        assert tracemalloc.get_traced_memory()[0] < LAYER_NBYTES / 4
        assert threading.active_count() == threads


@pytest.mark.parametrize("others", [1, 0])
def test_a_refused_rnn_keeps_nothing_in_memory(others, tmp_path):
    """An error that is kept, or raised if no other RNN exists, must not keep its frames."""
    path, x, LSTM = tmp_path / "model.keras", keras.Input((None, 24)), keras.layers.LSTM
    layers = [LSTM(128, activation="selu", name="odd"), *(LSTM(128) for _ in range(others))]
    keras.Model(x, [layer(x) for layer in layers]).save(path)

    def load():
        if others:
            assert list(rl.load(path).refused) == ["odd"]
        else:
            with pytest.raises(rl.LossyError, match="selu"):
                rl.load(path)

    load()
    with without_collector():
        load()
        assert ours() == {}
        assert tracemalloc.get_traced_memory()[0] < LAYER_NBYTES / 4
