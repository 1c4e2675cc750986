"""The LSTMs of Neural Amp Modeler compute in every framework what its library computed.

tests/data/record_audio.py made the records; how "weights" is cut here is what lstm.cpp does.
"""

import json

import numpy as np
import pytest
import torch
from commands import TESTS

import rnnlayout as rl

ANSWERS_FOR = ("nam",)
RECORDS = json.loads((TESTS / "data" / "audio.json").read_text())


def cut(weights, I, H, L):  # noqa: E741
    """Return the tensors of layout nam, the initial h and c of each layer, and the head."""
    rest, tensors, states = np.array(weights, np.float32), {}, []
    for k in range(L):
        inputs = H if k else I
        sizes = np.cumsum([4 * H * (inputs + H), 4 * H, H, H])
        w, b, *state, rest = np.split(rest, sizes)
        prefix = f"{k}/" if L > 1 else ""
        tensors |= {f"{prefix}W": w.reshape(4 * H, inputs + H), f"{prefix}b": b}
        states.append(state)
    h, c = np.array(states).swapaxes(0, 1)
    return tensors, h, c, rest


@pytest.mark.parametrize("name", ["one.nam", "two.nam"])
def test_the_weights_compute_in_torch_what_nam_computed(name):
    record = RECORDS[name]
    config = record["model"]["config"]
    I, H, L = config["input_size"], config["hidden_size"], config["num_layers"]  # noqa: E741
    tensors, h, c, head = cut(record["model"]["weights"], I, H, L)
    assert rl.describe(rl.Spec("lstm", I, H, L), "nam") == {k: a.shape for k, a in tensors.items()}
    module = torch.nn.LSTM(I, H, L, dtype=torch.float64)
    doubles = {name: tensor.astype("f8") for name, tensor in tensors.items()}
    rl.assign(module, rl.convert(doubles, layout="nam", to="torch", exact=True))
    x, *state = (torch.tensor(np.array(a))[:, None].double() for a in (record["x"], h, c))
    with torch.no_grad():
        y = module(x, tuple(state))[0][:, 0].numpy()
    both = np.hstack([y, (y @ head[:H] + head[H])[:, None]])
    # float32 sums of I + H + 1 products below 4, in two layers and 12 steps, of slope below 1
    np.testing.assert_allclose(both, record["y"], rtol=0, atol=12 * L * 24 * 2.0**-24)
    back = rl.convert(module, to="nam")
    assert all(back[name].tobytes() == doubles[name].tobytes() for name in doubles)


def test_a_dense_layer_of_these_names_is_not_an_lstm():
    with pytest.raises(rl.LayoutError):
        rl.infer_spec({"W": np.ones((12, 8)), "b": np.ones(12)})
