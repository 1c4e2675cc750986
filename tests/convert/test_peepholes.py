"""Peepholes are kept from ONNX to ONNX, the only layout with them. Oracle: onnxruntime."""

import numpy as np
import onnx
import pytest
from oracles.frameworks import inputs, normal, onnx_model, run_onnx, seeded
from oracles.some import normal_weights, same_bits

import rnnlayout as rl

LSTM = rl.Spec("lstm", 5, 7)


@pytest.mark.parametrize("layers, both", [(1, False), (1, True), (2, True)])
def test_onnx_to_onnx_moves_peepholes(layers, both):
    spec = rl.Spec("lstm", 5, 7, layers, both)
    rng = seeded("peepholes", layers, both)
    weights = {
        n: normal(rng, *shape) * np.float32(0.3) for n, shape in rl.describe(spec, "onnx").items()
    }
    for name in [n for n in weights if n.endswith("R")]:
        weights[name[:-1] + "P"] = normal(rng, spec.num_directions, 21)
    x, h0, c0 = inputs(rng, spec)
    made = rl.convert(weights, to="onnx")
    assert made.keys() == weights.keys() and made.report.grade == "exact"
    before, after = (run_onnx(w, spec, x, h0, c0) for w in (weights, made))
    without = run_onnx({n: w for n, w in weights.items() if not n.endswith("P")}, spec, x, h0, c0)
    assert same_bits(before.y, after.y) and not same_bits(before.y, without.y)
    wide = rl.convert(weights, to="onnx", dtype="float64")
    assert all(np.array_equal(wide[n], w.astype("f8")) for n, w in weights.items())
    again = rl.Weights(rl.Weights(weights).to("onnx"))
    assert same_bits({n: again[n] for n in weights}, weights)
    assert rl.check(weights, to="onnx").grade == "exact"


def test_a_file_keeps_peepholes(tmp_path):
    weights = normal_weights(rl.layout("onnx"), LSTM) | {"P": normal(seeded("P"), 1, 21)}
    onnx.save(onnx_model(weights, LSTM), tmp_path / "a.onnx")
    rl.convert_file(tmp_path / "a.onnx", tmp_path / "b.npz", to="onnx")
    with np.load(tmp_path / "b.npz") as stored:
        assert any(np.array_equal(stored[n], weights["P"]) for n in stored)
    (one,) = rl.load(tmp_path / "b.npz").values()
    assert same_bits({n: one[n] for n in weights}, weights)
    rl.convert_file(tmp_path / "a.onnx", tmp_path / "c.onnx", to="onnx")
    rl.save(tmp_path / "d.onnx", rl.load(tmp_path / "a.onnx"))
    for name in ("c.onnx", "d.onnx"):
        (again,) = rl.load(tmp_path / name).values()
        assert same_bits({n: again[n] for n in weights}, weights)
