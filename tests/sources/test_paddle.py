"""Paddle's RNNs in memory. The state_dict and its outputs are Paddle's, the layers are fakes."""

import re

import numpy as np
import pytest
import torch
from sources.paddle_layers import (
    LSTM,
    RNN,
    RUN,
    BiRNN,
    GRUCell,
    Layer,
    LSTMCell,
    SimpleRNNCell,
    Tensor,
    cell,
    encoder,
    lstm_layer,
)

import rnnlayout as rl


def same_outputs(source):
    y = rl.RNN(source, batch_first=True)(RUN["x"])[0]
    np.testing.assert_allclose(y, RUN["y"], atol=1e-6)


def test_a_state_dict_proposed_half_of_a_bidirectional_rnn_as_prefix():
    same_outputs(encoder())
    model = {f"net.encoder.{name}": array for name, array in encoder().items()}
    same_outputs(rl.Weights(model, prefix="net.encoder"))
    assert rl.convert(encoder(), to="onnx").keys()


def test_the_prefixes_of_a_model_are_its_rnns():
    model = {f"{rnn}.{name}": array for rnn in ("enc", "dec") for name, array in encoder().items()}
    with pytest.raises(rl.LayoutError, match=r"would work: 'dec', 'enc'$"):
        rl.pack(model)
    same_outputs(rl.Weights(model, prefix="enc"))
    checkpoint = {"epoch": 3, "encoder": encoder()}
    with pytest.raises(rl.LayoutError, match=r"pass its \['encoder'\]$"):
        rl.pack(checkpoint)
    same_outputs(checkpoint["encoder"])


def test_a_cell_with_other_values_than_its_rnn_is_not_left_out():
    arrays = encoder()
    arrays["0.cell_fw.weight_ih"] = arrays["0.cell_fw.weight_ih"] + 1
    with pytest.raises(rl.LayoutError, match=r"'0\.cell_fw\.weight_ih'"):
        rl.pack(arrays)


@pytest.mark.parametrize("time_major", [False, True])
def test_a_layer_was_an_array_of_numbers_and_is_read(time_major):
    x, y = RUN["x"], rl.RNN(lstm_layer(time_major=time_major))
    assert y.batch_first is not time_major
    outputs = y(x.swapaxes(0, 1) if time_major else x)[0]
    outputs = outputs.swapaxes(0, 1) if time_major else outputs
    np.testing.assert_allclose(outputs, RUN["y"], atol=1e-6)  # |y| < 1, 7 steps in float32
    assert rl.pack(lstm_layer()).tobytes() == rl.pack(encoder()).tobytes()


def test_a_model_with_a_layer():
    model = Layer(enc=lstm_layer(), out=Layer(weight=Tensor(np.ones((6, 2), "f4"))))
    same_outputs(rl.Weights(model))
    model.dec = lstm_layer()
    with pytest.raises(rl.LayoutError, match=r"'enc' \(LSTM\), 'dec' .*prefix='enc'"):
        rl.pack(model)
    same_outputs(rl.Weights(model, prefix="dec"))
    with pytest.raises(rl.LayoutError, match="Layer is not one of Paddle's LSTM, GRU, SimpleRNN"):
        rl.pack(model.out)


CELLS = {LSTMCell: ("lstm", 4), GRUCell: ("gru", 3), SimpleRNNCell: ("rnn_tanh", 1)}


def arrays_of(kind, seed=0):
    rng, gates = np.random.default_rng(seed), CELLS[kind][1]
    shapes = {"weight_ih": (5,), "weight_hh": (3,), "bias_ih": (), "bias_hh": ()}
    return {name: rng.standard_normal((3 * gates, *s)).astype("f4") for name, s in shapes.items()}


@pytest.mark.parametrize("kind", CELLS)
def test_cells_and_the_layers_that_run_them(kind):
    """Paddle 3.3.1 ran these layers and cells: docs/layouts.md."""
    arrays, other = arrays_of(kind), arrays_of(kind, 1)
    expected = rl.Weights({f"{k}_l0": v for k, v in arrays.items()}, cell=CELLS[kind][0])
    weights = rl.Weights(cell(kind, arrays))
    assert weights.layout.name == "torch-cell" and weights.batch_first is None
    assert rl.pack(weights).tobytes() == rl.pack(expected).tobytes()
    reverse = rl.Weights(RNN(cell=cell(kind, arrays), is_reverse=True, time_major=True))
    assert rl.pack(reverse).tobytes() == rl.pack(expected).tobytes()
    assert reverse.config == {"direction": "reverse"} and reverse.batch_first is False
    both = rl.Weights(BiRNN(cell_fw=cell(kind, arrays), cell_bw=cell(kind, other)))
    assert both.spec == expected.spec.replace(bidirectional=True) and both.batch_first
    assert both["weight_hh_l0_reverse"].tobytes() == other["weight_hh"].tobytes()


def test_a_projection_is_transposed_in_paddle():
    arrays = arrays_of(LSTMCell) | {"weight_hh": np.ones((12, 2), "f4")}
    arrays["weight_ho"] = np.arange(6, dtype="f4").reshape(3, 2)  # (H, P)
    layer = LSTM([cell(LSTMCell, arrays, proj_size=2)], 1, could_use_cudnn=False)
    weights = rl.Weights(layer)
    assert weights.spec.proj_size == 2
    assert (weights["weight_hr_l0"] == arrays["weight_ho"].T).all()


def test_layers_that_compute_something_else_are_refused():
    class Own(LSTMCell):
        def forward(self):
            pass

    layer = RNN(cell=cell(Own, arrays_of(LSTMCell)))
    with pytest.raises(rl.LayoutError, match=r"Own overrides forward\(\) of LSTMCell") as caught:
        rl.pack(layer)
    code = re.search(r"pass (rl\.Weights\(.*layout='torch'\))", str(caught.value))[1]
    plain = RNN(cell=cell(LSTMCell, arrays_of(LSTMCell)))
    assert rl.pack(eval(code)).tobytes() == rl.pack(plain).tobytes()
    layer = lstm_layer()
    layer._forward_post_hooks[0] = arrays_of
    with pytest.raises(rl.LayoutError, match="LSTM has the forward hook arrays_of"):
        rl.pack(layer)
    layer = RNN(cell=cell(LSTMCell, arrays_of(LSTMCell) | {"scale": np.ones(3, "f4")}))
    with pytest.raises(rl.LayoutError, match=r"more parameters than RNN: 'cell\.scale'"):
        rl.pack(layer)
    layer = BiRNN(
        cell_fw=cell(SimpleRNNCell, arrays_of(SimpleRNNCell)),
        cell_bw=cell(SimpleRNNCell, arrays_of(SimpleRNNCell), activation="relu"),
    )
    with pytest.raises(rl.LayoutError, match=r"the cells differ.*they are several RNNs"):
        rl.pack(layer)
    with pytest.raises(rl.LayoutError, match="Layer is not one of Paddle's cells LSTMCell"):
        rl.pack(RNN(cell=Layer()))


def test_a_layer_without_a_bias_has_false_names_in_paddle():
    """With bias_ih_attr=False, Paddle 3.3.1 names bias_ih bias_hh_l0, and its kernel crashes."""
    layer = LSTM([cell(LSTMCell, arrays_of(LSTMCell))], 1)
    layer.bias_hh_l0 = layer.bias_ih_l0
    del layer.bias_ih_l0
    with pytest.raises(rl.LayoutError, match="attributes of LSTM lack tensors of its cells"):
        rl.pack(layer)


@pytest.mark.parametrize("kind", [LSTM, RNN, LSTMCell])
def test_assign_into_layers_and_cells_was_refused(kind):
    """Paddle 3.3.1 itself computed the outputs of the layer that the weights came from."""
    if kind is LSTM:
        source, layer = lstm_layer(), lstm_layer()
    else:
        source, layer = (cell(LSTMCell, arrays_of(LSTMCell, seed)) for seed in (0, 1))
        source, layer = (RNN(cell=c) if kind is RNN else c for c in (source, layer))
    for tensor in layer.parameters():
        tensor.set_value(tensor.numpy() + 1)
    assert rl.assign(layer, rl.Weights(source).to("onnx")) is layer
    assert rl.pack(layer).tobytes() == rl.pack(source).tobytes()


def test_assign_transposes_a_projection_and_changes_nothing_that_does_not_fit():
    arrays = arrays_of(LSTMCell) | {"weight_hh": np.ones((12, 2), "f4")}
    arrays["weight_ho"] = np.zeros((3, 2), "f4")
    layer = Layer(enc=LSTM([cell(LSTMCell, arrays, proj_size=2)], 1, could_use_cudnn=False))
    new = dict(rl.Weights(layer)) | {"weight_hr_l0": np.arange(6, dtype="f4").reshape(2, 3)}
    weights = rl.Weights(new)
    rl.assign(layer, weights)
    inner = getattr(layer.enc, "0").cell
    assert (inner.weight_ho.numpy() == np.arange(6).reshape(2, 3).T).all()
    with pytest.raises(rl.LayoutError, match="hidden_size 4, the target 3"):
        rl.assign(layer, torch.nn.LSTM(5, 4, proj_size=2))
    assert rl.pack(layer).tobytes() == rl.pack(weights).tobytes()
    with pytest.raises(rl.LossyError, match="round"):
        rl.assign(layer, {n: a.astype("f8") / 3 for n, a in new.items()})


def test_bfloat16_is_bits_in_paddle():
    arrays = {f"{k}_l0": v for k, v in arrays_of(LSTMCell).items()}
    halves = {k: Tensor((v.view("u4") >> 16).astype("u2"), "bfloat16") for k, v in arrays.items()}
    weights = rl.Weights(halves)
    assert weights.spec.dtype == "bfloat16"
    assert weights.bits["bias_hh_l0"].tobytes() == halves["bias_hh_l0"].numpy().tobytes()
    layer = LSTMCell(input_size=5, hidden_size=3, proj_size=2)
    for name, shape in {"weight_ih": (12, 5), "weight_hh": (12, 2), "weight_ho": (3, 2),
                        "bias_ih": (12,), "bias_hh": (12,)}.items():  # fmt: skip
        setattr(layer, name, Tensor(np.zeros(shape, "u2"), "bfloat16"))
    layer = LSTM([layer], 1, could_use_cudnn=False)
    rl.assign(layer, torch.nn.LSTM(5, 3, proj_size=2).to(torch.bfloat16))
    assert rl.Weights(layer).spec.dtype == "bfloat16" and rl.pack(layer).any()
