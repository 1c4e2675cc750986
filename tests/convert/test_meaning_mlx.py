"""The layers of MLX compute the same on both sides of a conversion."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from convert.meaning import Framework, check_both_ways
from mlx.utils import tree_flatten
from oracles.frameworks import H, I, seeded, weight
from oracles.reference import Run

import rnnlayout as rl

ANSWERS_FOR = ("mlx",)

LAYERS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn_tanh": nn.RNN, "rnn_relu": nn.RNN}


def mlx_layer(cell, rng=None, bias=True):
    options = {"nonlinearity": nn.relu} if cell == "rnn_relu" else {}
    layer = LAYERS[cell](I, H, bias=bias, **options)
    rng = rng or seeded("start")
    layer.update({name: mx.array(weight(rng, a.shape)) for name, a in layer.parameters().items()})
    return layer


def run_mlx(layer, x, h0, c0=None):
    """Run a layer, whose axes are (N, T, I)."""
    states = [mx.array(state[0]) for state in (h0, c0) if state is not None]
    found = layer(mx.array(x.swapaxes(0, 1)), *states)
    y, c = (found, None) if c0 is None else found
    y = np.asarray(y).swapaxes(0, 1)
    return Run(y, y[-1:], None if c is None else np.asarray(c)[None, :, -1])


def arrays(layer):
    return [np.asarray(layer[name]) for name in layer]


MLX = Framework("mlx", lambda spec, rng=None: mlx_layer(spec.cell, rng, spec.bias != "none"),
                run_mlx, arrays)  # fmt: skip


@pytest.mark.parametrize("bias", ["double", "none"])
@pytest.mark.parametrize("cell", LAYERS)
def test_both_ways(cell, bias):
    spec = rl.Spec(cell, I, H, bias=bias)
    check_both_ways(MLX, spec)
    assert rl.describe(spec, "mlx").keys() == set(mlx_layer(cell, bias=bias == "double"))


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_half_precision(dtype):
    layer, other = mlx_layer("gru", seeded("half")), mlx_layer("gru")
    for one in (layer, other):
        one.set_dtype(dtype)
    rl.assign(other, rl.convert(layer, to="torch", exact=True))
    assert all(mx.array_equal(other[name], layer[name]) for name in layer)
    assert other["Wx"].dtype == dtype


def test_a_file_that_mlx_wrote(tmp_path):
    layer = mlx_layer("lstm", seeded("file"))
    model = nn.Sequential(layer, nn.Linear(H, 2))
    for name in ("model.safetensors", "model.npz"):
        model.save_weights(str(tmp_path / name))
        assert (rl.load(tmp_path / name)["layers.0"].pack() == rl.pack(layer)).all()
    changed = rl.Weights(mlx_layer("lstm", seeded("other")))
    rl.convert_file(tmp_path / "model.safetensors", tmp_path / "torch.safetensors", to="torch")
    rl.save(tmp_path / "layer.safetensors", changed.to("mlx"))
    layer.load_weights(str(tmp_path / "layer.safetensors"))
    assert (rl.pack(layer) == changed.pack()).all()


class Doubled(nn.GRU):
    def __call__(self, x, hidden=None):
        return 2 * super().__call__(x, hidden)


def test_layers_that_compute_something_else():
    doubled, normed = Doubled(I, H), nn.LSTM(I, H)
    normed.norm = nn.LayerNorm(H)
    with pytest.raises(rl.LayoutError, match=r"overrides __call__\(\) of GRU") as caught:
        rl.Weights(doubled)
    repair = str(caught.value).split("computes the same, pass ")[1].split(", and run it with")[0]
    assert (eval(repair, {"rl": rl, "layer": doubled}).pack() == rl.pack(dict(doubled))).all()
    with pytest.raises(rl.LayoutError, match=r"'norm\.weight'"):
        rl.Weights(normed)
    with pytest.raises(rl.LossyError, match=r"need MLX's tanh or relu.*dict"):
        rl.Weights(nn.RNN(I, H, nonlinearity=mx.sin))
    with pytest.raises(rl.LayoutError, match="Linear is not an LSTM, GRU or RNN of MLX"):
        rl.Weights(nn.Linear(I, H))


def test_a_model_with_one_rnn():
    model = nn.Sequential(nn.Linear(2, I), mlx_layer("gru", seeded("one")))
    assert rl.Weights(model.layers[1]).batch_first
    assert (rl.pack(model) == rl.pack(model.layers[1])).all()
    assert rl.convert(dict(tree_flatten(model.parameters())), prefix="layers.1", to="mlx").keys()
    other = mlx_layer("gru", seeded("two"))
    assert rl.assign(model, other) is model
    assert (rl.pack(model) == rl.pack(other)).all()
