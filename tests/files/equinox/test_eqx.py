"""Files of equinox.tree_serialise_leaves()."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rnnlayout as rl

I, H = 5, 3  # noqa: E741
KEY = jax.random.key(0)


def cell(make=eqx.nn.GRUCell, size=I, seed=0, dtype="f4", **options):
    """Return a cell with random values; its own initialization takes a second."""
    rng = np.random.default_rng(seed)
    shapes = eqx.filter_eval_shape(make, size, H, key=KEY, **options)
    return jax.tree.map(lambda a: jnp.asarray(rng.standard_normal(a.shape), dtype), shapes)


def written(path, model, line=b""):
    with open(path, "wb") as file:
        file.write(line)
        eqx.tree_serialise_leaves(file, model)
    return path


@pytest.mark.parametrize("make, options", [
    (eqx.nn.GRUCell, {}), (eqx.nn.LSTMCell, {}), (eqx.nn.GRUCell, {"use_bias": False}),
    (eqx.nn.LSTMCell, {"dtype": jnp.bfloat16}),
])  # fmt: skip
def test_a_cell(make, options, tmp_path):
    own = cell(make, **options)
    for line in (b"", b'{"size": 3}\n'):
        (found,) = rl.load(written(tmp_path / "a.eqx", own, line)).values()
        assert found == rl.Weights(own)


def test_a_prefix(tmp_path):
    """It was ignored."""
    path = written(tmp_path / "m.eqx", cell(eqx.nn.LSTMCell))
    assert rl.load(path, prefix="lstm") == rl.load(path)
    with pytest.raises(rl.FileError, match=r"under 'enc': with prefix= these would work: 'lstm'"):
        rl.load(path, prefix="enc")


def test_layers_and_directions(tmp_path):
    layers, both = [cell(seed=1), cell(size=H, seed=2)], [cell(seed=1), cell(seed=2)]
    for model, live in ((layers, layers), (both, {"0": {"forward": both[0], "backward": both[1]}})):
        (found,) = rl.load(written(tmp_path / "a.eqx", model)).values()
        assert found == rl.Weights(live) and found.spec.num_layers == 1 + (model is layers)


def test_two_cells_that_may_be_layers_or_directions(tmp_path):
    path = written(tmp_path / "a.eqx", [cell(size=H, seed=1), cell(size=H, seed=2)])
    found = rl.load(path)
    with pytest.raises(rl.UndecidedError, match=r"num_layers=2.* bidirectional=True"):
        found["gru"]
    (weights,) = rl.load(path, rl.Spec("gru", H, H, bidirectional=True)).values()
    assert weights.spec.bidirectional
