"""Quantized modules of torch: torch dequantizes the weights, and runs the module."""

import numpy as np
import pytest
import torch
from marks import pairwise
from oracles.frameworks import seeded, torch_cell, torch_module
from safetensors.torch import save_file
from torch.ao.nn import quantizable
from torch.ao.quantization import (
    default_dynamic_qconfig,
    float16_dynamic_qconfig as HALF,
    per_channel_dynamic_qconfig,
    quantize_dynamic,
)

import rnnlayout as rl

pytestmark = pytest.mark.filterwarnings("ignore")  # torch deprecates its quantization

N, I, H = 3, 11, 8  # noqa: E741
KINDS = {"int8": default_dynamic_qconfig, "per channel": per_channel_dynamic_qconfig, "half": HALF}
OPTIONS = {
    "plain": {}, "both ways": {"bidirectional": True}, "two layers": {"num_layers": 2},
    "three layers both ways": {"num_layers": 3, "bidirectional": True},
}  # fmt: skip
SAVED = {
    "state_dict": lambda model, path: torch.save(model.state_dict(), path),
    "module": torch.save,
    "old": lambda model, path: torch.save(model, path, _use_new_zipfile_serialization=False),
    "script": lambda model, path: torch.jit.save(torch.jit.script(model), path),
}
TENSORS = {"safetensors": lambda model, path: save_file(model.state_dict(), path)}


def quantized(module, kind):
    model = torch.nn.Sequential()
    model.enc = module
    return quantize_dynamic(model.eval(), {type(module): KINDS[kind]})


def unpacked(part, kind):
    """Return W, R, bW, bR of packed weights, by torch."""
    how, biases, _, _, layers = part.__getstate__()[0]
    assert how == ("quantized_fp16" if kind == "half" else "quantized_dynamic")
    both = [layer.__getstate__()[0] for layer in layers]
    weights = [weight.dequantize() if weight.is_quantized else weight for weight, _ in both]
    return [*weights, *(biases or [bias for _, bias in both])]


def near(weights, module, kind, right):
    """Return the difference of one step in torch's module and ours, relative to its bound. right:
    the weights that the bound is for.

    The module rounds x and h to 8 bits: their ranges, which include 0, have 127 parts if one bit is
    kept free (reduce_range), so an element is off by at most one part. A gate's sum is then off by
    d = |W| part_x + |R| part_h, summed over a row. Of an LSTM c' = f c + i g is off by
    (|c| / 4 + 1 / 4 + 1) d since a sigmoid's slope is at most 1/4 and a tanh's at most 1, h' by d
    / 4 more; of a GRU n is off by d (1 + 1 + |R h| / 4), h' by that and (|n| + |h|) d / 4. The
    rounding of float32 is a thousandth of that. In half precision x and h are not rounded.
    """
    rng = seeded("quantized", kind)
    x, h, c = (rng.standard_normal((1, N, n)).astype(np.float32) for n in (I, H, H))
    spec = weights.spec
    layers = spec.num_layers * spec.num_directions
    state = [np.repeat(one, layers, 0) for one in ((h, c) if spec.cell == "lstm" else (h,))]
    given = [torch.from_numpy(one) for one in state]
    with torch.no_grad():
        theirs, _ = module(torch.from_numpy(x), given[0] if len(given) == 1 else tuple(given))
    ours, _ = weights.rnn()(x, state[0] if len(state) == 1 else tuple(state))
    part = [0 if kind == "half" else (max(a.max(), 0) - min(a.min(), 0)) / 127 for a in (x, h)]
    w, r = (np.abs(right[f"weight_{k}h_l0"]).sum(1).max() for k in "ih")
    d = w * part[0] + r * part[1] + 1e-5  # and sums of float32
    most = 1.25 + np.abs(c).max() / 4 + 0.25
    if spec.cell == "gru":
        most = 2 + r * np.abs(h).max() / 4 + (1 + np.abs(h).max()) / 4
    return np.abs(theirs.numpy() - ours).max() / (d * most)


@pytest.mark.parametrize(
    "saved, kind, cell, option", pairwise(SAVED, KINDS, ["lstm", "gru"], OPTIONS)
)
def test_a_quantized_rnn(saved, kind, cell, option, tmp_path):
    spec = rl.Spec(cell, I, H, **OPTIONS[option])
    module = torch_module(spec, seeded(saved, kind, cell, option))
    model = quantized(module, kind)
    SAVED[saved](model, tmp_path / "m.pt")
    found = rl.load(tmp_path / "m.pt")
    (weights,) = found.values()
    assert list(found) == ["enc"] and weights.spec == spec
    assert weights.batch_first == (None if saved == "state_dict" else False)
    theirs = [one for part in model.enc._all_weight_values for one in unpacked(part.param, kind)]
    assert [array.tobytes() for array in weights.values()] == [
        one.detach().contiguous().numpy().tobytes() for one in theirs
    ]
    assert list(weights) == list(module.state_dict())
    told = "rounded to float16" if kind == "half" else "dequantized to float32; the module also"
    assert [note for note in found.notes if f"enc was {told}" in note] == found.notes
    if spec.num_layers == spec.num_directions == 1:
        assert near(weights, model.enc, kind, weights) < 1
        wrong = {name: -3 * one if name == "weight_ih_l0" else one for name, one in weights.items()}
        assert near(rl.Weights(wrong), model.enc, kind, weights) > 2


@pytest.mark.parametrize("saved, cell", pairwise(SAVED, ["lstm", "gru", "rnn_tanh", "rnn_relu"]))
def test_a_quantized_cell(saved, cell, tmp_path):
    module = torch_cell(rl.Spec(cell, I, H), seeded(saved, cell))
    model = quantized(module, "int8")
    SAVED[saved](model, tmp_path / "m.pt")
    plain = saved == "state_dict" and cell.startswith("rnn")
    (weights,) = rl.load(tmp_path / "m.pt", **({"cell": cell} if plain else {})).values()
    assert weights.spec == rl.Spec(cell, I, H)
    for side in ("ih", "hh"):
        weight, bias = getattr(model.enc, f"_packed_weight_{side}").__getstate__()[0]
        assert weights[f"weight_{side}"].tobytes() == weight.dequantize().numpy().tobytes()
        assert weights[f"bias_{side}"].tobytes() == bias.detach().numpy().tobytes()


def test_a_quantized_module_converted(tmp_path):
    model = quantized(torch.nn.LSTM(I, H), "int8")
    torch.save(model.state_dict(), tmp_path / "m.pt")
    done = rl.convert_file(tmp_path / "m.pt", tmp_path / "n.pt", to="torch")
    state = torch.load(tmp_path / "n.pt", weights_only=True)
    plain = torch.nn.Sequential()
    plain.enc = torch.nn.LSTM(I, H)
    plain.load_state_dict(state)
    found = rl.load(tmp_path / "m.pt")["enc"]
    assert rl.pack(plain.enc).tobytes() == found.pack().tobytes()
    assert any("is a state_dict" in note for note in done.notes)


# -------------------------------------------------------------------------------- before quantizing


def quantizable_lstm(module):
    module.qconfig = None
    return quantizable.LSTM.from_float(module)


@pytest.mark.parametrize("saved", ["state_dict", "module", "old", "safetensors"])
@pytest.mark.parametrize("option", OPTIONS)
def test_a_quantizable_lstm(saved, option, tmp_path):
    spec = rl.Spec("lstm", I, H, **OPTIONS[option])
    plain = torch_module(spec, seeded(option))
    model = torch.nn.Sequential()
    model.enc = quantizable_lstm(plain)
    path = tmp_path / ("m.safetensors" if saved == "safetensors" else "m.pt")
    (SAVED | TENSORS)[saved](model, path)
    (weights,) = rl.load(path).values()
    assert weights.pack().tobytes() == rl.pack(plain).tobytes() and weights.spec == spec
    x = torch.from_numpy(seeded("x").standard_normal((5, N, I)).astype("f4"))
    with torch.no_grad():
        theirs = model(x)[0].numpy()
    # sums of at most I + H + 2 numbers below 5 in each of 5 steps and 3 layers, in either
    np.testing.assert_allclose(weights.rnn()(x.numpy())[0], theirs, atol=2 * 15 * 5 * 21 * 2**-24)


def test_a_quantizable_lstm_that_rounds_its_weights(tmp_path):
    """Trained with quantization, it computes with other weights than those that it stores."""
    module = quantizable_lstm(torch.nn.LSTM(I, H))
    cell = module.layers[0].layer_fw.cell
    for side, width in (("igates", I), ("hgates", H)):
        config = torch.ao.quantization.get_default_qat_qconfig("fbgemm")
        setattr(cell, side, torch.ao.nn.qat.Linear(width, 4 * H, qconfig=config))
    torch.save(module.state_dict(), tmp_path / "m.pt")
    with pytest.raises(rl.FileError, match="no recurrent layer found"):
        rl.load(tmp_path / "m.pt")
