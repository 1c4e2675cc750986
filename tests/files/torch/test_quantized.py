"""Quantized modules of torch, which dequantizes the weights itself."""

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
    original = module.state_dict()
    assert list(weights) == list(original)
    for name, array in weights.items():
        # off by less than a step, of which int8 has 255 from -max to max; half precision is finer
        assert abs(array - original[name].numpy()).max() < abs(array).max() / 127
    told = "rounded to float16" if kind == "half" else "dequantized to float32; the module also"
    assert [note for note in found.notes if f"enc was {told}" in note] == found.notes


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
