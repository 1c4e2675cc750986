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
TENSORS = {"safetensors": lambda model, path: save_file(
    {name: tensor.clone() for name, tensor in model.state_dict().items()}, path)}  # fmt: skip


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


class Model(torch.nn.Module):
    """An RNN or a cell that trains with quantization, and another layer."""

    def __init__(self, rnn):
        super().__init__()
        self.enc, self.head = rnn, torch.nn.Linear(H, 2)

    def forward(self, x):
        y = self.enc(x)
        return self.head(y[0] if isinstance(y, tuple) else y)


def prepared(rnn, prepare):
    """Return a model with observers or fake quantizations that have seen numbers."""
    model = Model(rnn).train()
    model.qconfig = torch.ao.quantization.get_default_qat_qconfig("fbgemm")
    model = prepare(model)
    for module in model.modules():
        if hasattr(module, "qconfig"):
            del module.qconfig  # it cannot be pickled
    x = torch.from_numpy(seeded("x").standard_normal((N, I)).astype("f4"))
    model(x if isinstance(rnn, torch.nn.GRUCell) else x[None])
    return model.eval()


def as_mapping(model, path):
    return [rl.Weights(model.state_dict(), prefix="enc")]


def from_file(save):
    def loaded(model, path):
        save(model, path)
        return [*rl.load(path).values()]

    return loaded


READERS = {name: from_file(save) for name, save in (SAVED | TENSORS).items() if name != "script"}
PREPARED = {
    "observers": torch.ao.quantization.prepare,
    "training": torch.ao.quantization.prepare_qat,
}


@pytest.mark.parametrize("read", [as_mapping, *READERS.values()], ids=["mapping", *READERS])
@pytest.mark.parametrize("prepare", PREPARED.values(), ids=PREPARED)
@pytest.mark.parametrize("make", [lambda: torch.nn.LSTM(I, H), lambda: torch.nn.GRUCell(I, H)])
def test_a_fake_quantization_that_is_switched_off(make, prepare, read, tmp_path):
    rnn = make()
    original = rl.Weights(rnn)
    model = prepared(rnn, prepare)
    model.apply(torch.ao.quantization.disable_fake_quant)
    x = torch.from_numpy(seeded("x").standard_normal((5, N, I)).astype("f4"))
    is_cell = isinstance(rnn, torch.nn.GRUCell)
    path = tmp_path / ("m.safetensors" if read is READERS["safetensors"] else "m.pt")
    (weights,) = read(model, path)
    assert weights == original
    with torch.no_grad():
        theirs = model.enc(x[0]) if is_cell else model.enc(x)[0]
    ours, *_ = weights.rnn()(x[:1].numpy() if is_cell else x.numpy())
    # sums of at most I + H + 2 numbers below 5 in each of 5 steps, in either
    np.testing.assert_allclose(
        ours.reshape(theirs.shape), theirs.numpy(), atol=2 * 5 * 5 * 21 * 2**-24
    )
    if is_cell:
        assert rl.Weights(model) == original


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("make", [lambda: torch.nn.LSTM(I, H), lambda: torch.nn.GRUCell(I, H)])
def test_a_fake_quantization_that_is_on(make, alone, read, tmp_path):
    """It computes with other weights and outputs than those of the RNN that the file has."""
    model = prepared(make(), torch.ao.quantization.prepare_qat)
    if alone:
        model = model.enc
    path = tmp_path / ("m.safetensors" if read is READERS["safetensors"] else "m.pt")
    assert read(model, path) == []
    (question,) = rl.load(path).undecided.values()
    if read not in (READERS["module"], READERS["old"]) or isinstance(model, quantizable.LSTM):
        assert "fake_quant_enabled" in str(question)
        assert len(rl.load(path, ignore=["*quant*", "*post_process*"])) == 1
    with pytest.raises(rl.LayoutError):
        rl.Weights(model.state_dict(), prefix="" if alone else "enc")


def test_a_live_cell_with_a_fake_quantization():
    model = prepared(torch.nn.GRUCell(I, H), torch.ao.quantization.prepare_qat)
    with pytest.raises(rl.LayoutError, match="has the forward hook _observer_forward_hook"):
        rl.Weights(model)


def test_one_fake_quantization_that_is_on_among_others(tmp_path):
    model = prepared(torch.nn.LSTM(I, H), torch.ao.quantization.prepare_qat)
    model.apply(torch.ao.quantization.disable_fake_quant)
    model.enc.layers[0].layer_fw.cell.hgates.weight_fake_quant.enable_fake_quant()
    torch.save(model.state_dict(), tmp_path / "m.pt")
    (question,) = rl.load(tmp_path / "m.pt").undecided.values()
    assert "ignore=['enc.layers.0.layer_fw.cell.hgates.weight_fake_quant.*']" in str(question)
    with pytest.raises(rl.LayoutError, match="fake_quant"):
        rl.Weights(model.state_dict(), prefix="enc")
