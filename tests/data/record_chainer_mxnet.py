"""Record what the RNNs of Chainer 7.8.1 and MXNet 1.9.1 compute, in chainer-mxnet.npz.

Neither is developed any more. Both run on Python 3.11 with NumPy 1.26, in an environment of their
own: pip install chainer==7.8.1 mxnet==1.9.1 numpy==1.26.4, the former with --no-build-isolation.

    python record_chainer_mxnet.py chainer-mxnet.npz
"""

import builtins
import sys

import numpy as np

for name in ("bool", "int", "float", "object", "complex"):  # NumPy had other names for them
    if name not in np.__dict__:
        setattr(np, name, getattr(builtins, name))

import chainer  # noqa: E402
import mxnet  # noqa: E402

T, N, I, H, L = 4, 2, 3, 5, 2  # noqa: E741


def random(rng, shape):
    return rng.uniform(-0.7, 0.7, shape).astype("float32")


def chainer_nstep(cell, both, rng):
    """Return (parameters, inputs, answers) of a stack."""
    links = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNNTanh", "rnn_relu": "RNNReLU"}
    link = getattr(chainer.links, f"NStep{'Bi' if both else ''}{links[cell]}")(L, I, H, 0.0)
    params = fill(link, rng)
    x, *states = inputs(rng, cell, L * (1 + both))
    *answers, ys = link(*states, [x[:, n] for n in range(N)])
    return params, (x, *states), (np.stack([y.array for y in ys], 1), *(a.array for a in answers))


def chainer_link(cell, both, rng):
    link = {"lstm": chainer.links.StatelessLSTM, "gru": chainer.links.StatelessGRU}[cell](I, H)
    params = fill(link, rng)
    x, *states = inputs(rng, cell, 1)
    h, *c = (state[0] for state in states)
    ys = []
    for x_t in x:
        if cell == "lstm":
            c[0], h = link(c[0], h, x_t)
        else:
            h = link(h, x_t)
        ys.append(h.array)
    return params, (x, *states), (np.stack(ys), *(a.array[None] for a in (h, *c)))


def fill(link, rng):
    params = {}
    for name, param in link.namedparams():
        param.array[...] = random(rng, param.shape)
        params[name[1:]] = param.array.copy()
    return params


def gluon(cell, both, rng):
    rnn = mxnet.gluon.rnn
    options = {"num_layers": L, "bidirectional": both, "input_size": I}
    if cell.startswith("rnn"):
        layer = rnn.RNN(H, activation=cell[4:], **options)
    else:
        layer = {"lstm": rnn.LSTM, "gru": rnn.GRU}[cell](H, **options)
    layer.initialize()
    params = {}
    for name, param in layer.collect_params().items():
        params[name.removeprefix(layer.prefix)] = value = random(rng, param.shape)
        param.set_data(mxnet.nd.array(value))
    x, *states = inputs(rng, cell, L * (1 + both))
    y, answers = layer(mxnet.nd.array(x), [mxnet.nd.array(state) for state in states])
    return params, (x, *states), (y.asnumpy(), *(a.asnumpy() for a in answers))


def inputs(rng, cell, layers):
    shapes = [(T, N, I), (layers, N, H), *([(layers, N, H)] if cell == "lstm" else [])]
    return [random(rng, shape) for shape in shapes]


CASES = [
    (layout, run, cell, both)
    for layout, run, cells, directions in [
        ("chainer-nstep", chainer_nstep, ["lstm", "gru", "rnn_tanh", "rnn_relu"], [True]),
        ("chainer-links", chainer_link, ["lstm", "gru"], [False]),
        ("mxnet-gluon", gluon, ["lstm", "gru", "rnn_tanh", "rnn_relu"], [True]),
    ]
    for cell in cells
    for both in directions
]


def main():
    recorded = {}
    for k, (layout, run, cell, both) in enumerate(CASES):
        params, given, answers = run(cell, both, np.random.default_rng(k))
        case = f"{layout} {cell} {'both' if both else 'one'}"
        for kind, values in (
            ("params", params.items()),
            ("inputs", zip(("x", "h0", "c0"), given, strict=False)),
            ("answers", zip(("y", "h", "c"), answers, strict=False)),
        ):
            recorded.update({f"{case} {kind} {name}": value for name, value in values})
    np.savez_compressed(sys.argv[1], **recorded)


if __name__ == "__main__":
    main()
