"""LSTMs and GRUs computed directly from their equations, in NumPy.

This is an independent check that converted weights are still the same network. Only the offsets
of cuDNN's weight space come from rnnlayout; the layouts are read as their frameworks document
them. It is not fast.

Each layout is read into one dict per layer, role -> gate -> array, in double:
    W (H, I) and bW (H,) act on the input, R (H, H) and bR (H,) on the state.
Gates: LSTM i f g o; GRU r z n. One direction, no projection. x and y are (T, N, width).
"""

import copy

import numpy as np

import rnnlayout as rl


def by_gate(gates, blocks):
    # a row-major copy in double: equal weights then give equal bits, whatever their layout was
    return {
        g: np.array(block, dtype="f8", order="C") for g, block in zip(gates, blocks, strict=True)
    }


# ---------------------------------------------------------------------------------- four layouts


def read_cudnn(flat, spec):
    """Read cuDNN's weight space by the offsets of its pieces."""
    layers = [{role: {} for role in ("W", "R", "bW", "bR")} for _ in range(spec.num_layers)]
    for piece in rl.regions(spec):
        at = piece["offset"] // flat.itemsize
        block = flat[at : at + piece["rows"] * piece["cols"]]
        if piece["cols"] > 1 or piece["role"] in ("W", "R"):
            block = block.reshape(piece["rows"], piece["cols"])
        layers[piece["layer"]][piece["role"]][piece["gate"]] = np.array(block, dtype="f8")
    return layers


def read_torch(tensors, gates):
    """Read torch.nn.LSTM (gates "ifgo") or GRU ("rzn"): each gate is H rows."""
    names = {"W": "weight_ih", "R": "weight_hh", "bW": "bias_ih", "bR": "bias_hh"}
    return [
        {role: by_gate(gates, np.split(tensors[f"{name}_l{layer}"], len(gates)))
         for role, name in names.items()}
        for layer in range(len(tensors) // 4)
    ]  # fmt: skip


def read_keras(layers, gates):
    """Read a Keras LSTM (gates "ifgo") or GRU(reset_after=True) ("zrn"): each gate is H columns.

    layers: get_weights() of each layer. An LSTM has one bias, a GRU two in one array.
    """
    read = []
    for kernel, recurrent, bias in layers:
        b_w, b_r = bias if bias.ndim == 2 else (bias, np.zeros_like(bias))
        read.append({
            "W": by_gate(gates, np.split(kernel.T, len(gates))),
            "R": by_gate(gates, np.split(recurrent.T, len(gates))),
            "bW": by_gate(gates, np.split(b_w, len(gates))),
            "bR": by_gate(gates, np.split(b_r, len(gates))),
        })  # fmt: skip
    return read


def read_cudnn_lstm(layers):
    """Read Keras 2's CuDNNLSTM.

    Its matrices have the shapes of an LSTM's, but the (I, H) columns of each gate contain the
    bytes of the (H, I) matrix. The bias is both biases, one after the other.
    """

    def windows(matrix):
        return [w.reshape(w.shape[::-1]) for w in np.split(matrix, 4, axis=1)]

    read = []
    for kernel, recurrent, bias in layers:
        b_w, b_r = np.split(bias, 2)
        read.append({
            "W": by_gate("ifgo", windows(kernel)),
            "R": by_gate("ifgo", windows(recurrent)),
            "bW": by_gate("ifgo", np.split(b_w, 4)),
            "bR": by_gate("ifgo", np.split(b_r, 4)),
        })  # fmt: skip
    return read


# --------------------------------------------------------------------------------- two equations


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def parts(layer, gate, x, h):
    """Return the contributions of the input and of the state to a gate."""
    return (x @ layer["W"][gate].T + layer["bW"][gate], h @ layer["R"][gate].T + layer["bR"][gate])


def lstm_step(layer, x, h, c):
    i, f, g, o = (sum(parts(layer, gate, x, h)) for gate in "ifgo")
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru_step(layer, x, h):
    r, z = (sigmoid(sum(parts(layer, gate, x, h))) for gate in "rz")
    from_x, from_h = parts(layer, "n", x, h)
    n = np.tanh(from_x + r * from_h)
    return (1 - z) * n + z * h


def lstm(layers, x):
    """Return the outputs of the last layer; all states start at zero."""
    for layer in layers:
        h = c = np.zeros((x.shape[1], len(layer["bW"]["i"].T)))
        y = []
        for x_t in x:
            h, c = lstm_step(layer, x_t, h, c)
            y.append(h)
        x = np.stack(y)
    return x


# ---------------------------------------------------------------------------- a derived tolerance


def merged_bias_errors(layers):
    """Return (layer, gate, unit, error) of every bW + bR that float32 cannot represent.

    The error is half an ulp of the rounded sum.
    """
    errors = []
    for k, layer in enumerate(layers):
        for gate, b_w in layer["bW"].items():
            sums = b_w + layer["bR"][gate]
            rounded = sums.astype("f4")
            errors += [(k, gate, unit, np.spacing(abs(rounded[unit])) / 2)
                       for unit in np.flatnonzero(rounded != sums)]  # fmt: skip
    return errors


def lstm_shift(layers, x, errors):
    """Return how far each output can move in the worst case if the biases have these errors.

    To first order this is the sum of |dy/db| * error. The derivatives are computed by the complex
    step: y(b + 1j t) = y(b) + 1j t y'(b) + O(t^2), so with t = 1e-20 the imaginary part divided by
    t is the derivative to the last bit. The batch has one entry per error; x has a batch of one.
    """
    step = 1e-20
    pushed = copy.deepcopy(layers)
    for layer in pushed:
        for gate, bias in layer["bW"].items():
            layer["bW"][gate] = np.tile(bias.astype(complex), (len(errors), 1))
    for k, (layer, gate, unit, error) in enumerate(errors):
        pushed[layer]["bW"][gate][k, unit] += 1j * step * error
    y = lstm(pushed, np.repeat(x, len(errors), axis=1))
    return abs(y.imag / step).sum(axis=1, keepdims=True)
