"""Paddle's RNNs in memory. The state_dict and its outputs are Paddle's, the layer is a fake."""

import re

import numpy as np
import pytest
from sources.paddle_layers import LSTM, RUN, Layer, encoder

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
def test_a_layer_was_an_array_of_numbers(time_major):
    layer = LSTM(encoder())
    layer.time_major = time_major
    with pytest.raises(rl.LayoutError, match="LSTM is a layer of Paddle") as caught:
        rl.pack(layer)
    text = str(caught.value)
    code = re.search(r"pass (layer\.state_dict\(\))", text)[1]
    batch_first = eval(re.search(r"batch_first=(\w+)", text)[1])
    assert batch_first is not time_major
    x = RUN["x"] if batch_first else RUN["x"].swapaxes(0, 1)
    y = rl.RNN(eval(code), batch_first=batch_first)(x)[0]
    np.testing.assert_allclose(y if batch_first else y.swapaxes(0, 1), RUN["y"], atol=1e-6)


def test_a_model_of_paddle_in_memory():
    model = Layer({f"enc.{name}": array for name, array in encoder().items()})
    with pytest.raises(rl.LayoutError, match=r"pass layer\.state_dict\(\)"):
        rl.RNN(model)
    same_outputs(rl.Weights(model.state_dict(), prefix="enc"))
