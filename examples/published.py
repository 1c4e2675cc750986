"""What published networks compute, by their own packages or frameworks.

docs/howto/published-files.md shows its use:

    python examples/published.py PACKAGE FILE [NAME]    writes x.npy and theirs.npy
    python examples/published.py compare A.npy B.npy    exit code 1 if they differ

PACKAGE: textgenrnn, chars2vec (tf_keras), g2p-en (torch), silero-vad (onnxruntime), g2pM (its own
NumPy code). NAME: the RNN, where the file has several. Arrays are (T, N, features).
"""

import sys
from pathlib import Path

import numpy as np

T, N = 4, 3
TOLERANCE = 1e-5  # float32 products of some hundred terms, over a few steps


def some(*shape):
    return np.random.default_rng(7).standard_normal(shape).astype("f4")


def keras_layers(path, sizes, name, **options):
    """Run one layer of a stack of LSTMs, whose weights tf_keras loads."""
    import tf_keras

    layers = [
        tf_keras.layers.LSTM(size, return_sequences=True, name=layer, **options)
        for layer, size in list(sizes.items())[1:]
    ]
    model = tf_keras.Sequential([tf_keras.Input((None, sizes["input"])), *layers])
    model.load_weights(path, by_name=True)
    layer = model.get_layer(name)
    x = some(T, N, layer.input_shape[-1])
    return x, layer(x.swapaxes(0, 1)).numpy().swapaxes(0, 1)


def textgenrnn(path, name):
    return keras_layers(path, {"input": 100, "rnn_1": 128, "rnn_2": 128}, name)


def chars2vec(path, name):
    """Keras 2.2: hard_sigmoid is the default, and no file of weights records it."""
    sizes = {"input": 59, "lstm_1": 50, "lstm_2": 50}
    return keras_layers(path, sizes, name, recurrent_activation="hard_sigmoid")


def g2p_en(path, name):
    import torch

    arrays = np.load(path)
    gru = torch.nn.GRU(256, 256)
    state = {"weight_ih": "w_ih", "weight_hh": "w_hh", "bias_ih": "b_ih", "bias_hh": "b_hh"}
    gru.load_state_dict(
        {f"{key}_l0": torch.from_numpy(arrays[f"{name}_{own}"]) for key, own in state.items()}
    )
    x = some(T, N, 256)
    return x, gru(torch.from_numpy(x))[0].detach().numpy()


def silero_vad(path, _):
    """Run the whole network on noise. x, y: what goes into its LSTM, and what comes out."""
    import onnx
    import onnxruntime

    model = onnx.load(path)
    (node,) = (node for node in model.graph.node if node.op_type == "LSTM")
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in (node.input[0], node.output[0]))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    feed = {one.name: np.zeros([n if isinstance(n, int) else 1 for n in one.shape], "f4")
            for one in session.get_inputs()}  # fmt: skip
    feed["input"] = some(T, 576) / 8
    x, y = session.run([node.input[0], node.output[0]], feed)
    return x, y[:, 0]


def g2pm(path, _):
    """Run the package's code, in the folder of the file. It unpickles its files: trust it."""
    sys.path.insert(0, str(Path(path).resolve().parent.parent))
    from g2pM import G2pM

    own, x, states, y = G2pM(), some(T, N, 64), [None, None], []
    for x_t in x:
        states[0] = own.fw_lstm_cell(x_t, states[0])
        y.append(states[0][0])
    back = []
    for x_t in x[::-1]:
        states[1] = own.bw_lstm_cell(x_t, states[1])
        back.append(states[1][0])
    return x, np.concatenate([y, back[::-1]], -1)


def compare(a, b):
    y, theirs = np.load(a), np.load(b)
    same = y.shape == theirs.shape and abs(y - theirs).max() < TOLERANCE
    print(f"{a} and {b} {'agree' if same else 'DIFFER'}: {y.shape}, tolerance {TOLERANCE:g}")
    return not same


def main(package, *rest):
    if package == "compare":
        return compare(*rest)
    path, name = (*rest, "")[:2]
    x, theirs = globals()[package.lower().replace("-", "_")](path, name)
    np.save("x.npy", x)
    np.save("theirs.npy", theirs)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
