"""Record what frameworks compute that are too large, or too old, to be installed with the tests.

    python tools/record_answers.py NAME     in an environment that has the framework and NumPy

NAME is paddle, mxnet or openvino: see tests/data/README.md. Writes tests/data/answers-NAME.npz,
with random weights in the framework's own tensors, inputs, initial states, and the framework's
outputs. It uses nothing of rnnlayout.
"""

import json
import sys
from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
T, N, I, H = 3, 2, 5, 4  # noqa: E741


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def weight(rng, shape):
    return normal(rng, *shape) * np.float32(0.3 if len(shape) > 1 else 0.5)


def states(rng, directions, cell, layers=1):
    """Return h0, and c0 for an LSTM: (layers * directions, N, H)."""
    return [normal(rng, layers * directions, N, H) for _ in range(1 + (cell == "lstm"))]


def paddle(rng):
    import paddle

    kinds = {"lstm": (paddle.nn.LSTM, {}), "gru": (paddle.nn.GRU, {}),
             "rnn_tanh": (paddle.nn.SimpleRNN, {}),
             "rnn_relu": (paddle.nn.SimpleRNN, {"activation": "relu"})}  # fmt: skip
    for cell, (make, options) in kinds.items():
        rnn = make(I, H, 2, direction="bidirect", time_major=True, **options)
        own = {k: v for k, v in rnn.state_dict().items() if "cell" not in k}
        tensors = {name: weight(rng, value.shape) for name, value in own.items()}
        for name, value in own.items():
            value.set_value(tensors[name])
        x, start = normal(rng, T, N, I), states(rng, 2, cell, 2)
        given = tuple(map(paddle.to_tensor, start))
        y, last = rnn(paddle.to_tensor(x), given if cell == "lstm" else given[0])
        last = last if cell == "lstm" else [last]
        spec = {"cell": cell, "num_layers": 2, "bidirectional": True}
        yield cell, spec, tensors, [x, *start], [y.numpy(), *(s.numpy() for s in last)]
    yield "version", paddle.__version__


def mxnet(rng):
    import mxnet as mx

    modes = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
    for cell, gates in modes.items():
        size = sum(
            2 * gates * H * (below + H) for below in (I, 2 * H)
        ) + 2 * 2 * 2 * gates * H  # fmt: skip
        flat = normal(rng, size) * np.float32(0.3)
        x, start = normal(rng, T, N, I), states(rng, 2, cell, 2)
        y, *last = mx.nd.RNN(
            mx.nd.array(x), mx.nd.array(flat), *map(mx.nd.array, start), mode=cell, state_size=H,
            num_layers=2, bidirectional=True, state_outputs=True,
        )  # fmt: skip
        spec = {"cell": cell, "num_layers": 2, "bidirectional": True}
        yield (cell, spec, {"weight_space": flat}, [x, *start],
               [y.asnumpy(), *(s.asnumpy() for s in last)])  # fmt: skip
    yield "version", mx.__version__


def openvino(rng):
    import openvino as ov
    from openvino import opset5

    kinds = [("lstm", 4, 4, opset5.lstm_sequence, {}),
             ("gru", 3, 4, opset5.gru_sequence, {"linear_before_reset": True}),
             ("gru before", 3, 3, opset5.gru_sequence, {"linear_before_reset": False}),
             ("rnn_tanh", 1, 1, opset5.rnn_sequence, {"activations": ["tanh"]}),
             ("rnn_relu", 1, 1, opset5.rnn_sequence, {"activations": ["relu"]})]  # fmt: skip
    for name, gates, biases, make, options in kinds:
        cell = name.split()[0]
        tensors = {"W": weight(rng, (2, gates * H, I)), "R": weight(rng, (2, gates * H, H)),
                   "B": weight(rng, (2, biases * H))}  # fmt: skip
        x, start = normal(rng, T, N, I), states(rng, 2, cell)
        given = [opset5.parameter(a.shape, np.float32)
                 for a in (x.swapaxes(0, 1), *(s.swapaxes(0, 1) for s in start))]  # fmt: skip
        node = make(*given, np.full(N, T, np.int32), *tensors.values(), H, "bidirectional",
                    **options)  # fmt: skip
        compiled = ov.compile_model(
            ov.Model(node.outputs(), given), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
        )
        results = compiled([p.swapaxes(0, 1) for p in (x, *start)])
        y, *last = (results[k] for k in range(len(start) + 1))  # (N, D, T, H), (N, D, H)
        y = y.transpose(2, 0, 1, 3).reshape(T, N, 2 * H)
        spec = {"cell": cell, "num_layers": 1, "bidirectional": True}
        spec |= {"reset": "before"} if name == "gru before" else {}
        yield name, spec, tensors, [x, *start], [y, *(s.swapaxes(0, 1) for s in last)]
    yield "version", ov.__version__


def main():
    name = sys.argv[1]
    rng = np.random.default_rng(list(name.encode()))
    *cases, (_, version) = {"paddle": paddle, "mxnet": mxnet, "openvino": openvino}[name](rng)
    arrays, about = {}, {"framework": name, "version": version, "cases": {}}
    for case, spec, tensors, given, results in cases:
        about["cases"][case] = {"input_size": I, "hidden_size": H, **spec}
        for key, array in tensors.items():
            arrays[f"{case}/tensors/{key}"] = array
        for kind, values in (("given", given), ("results", results)):
            for part, array in zip(
                ("x" if kind == "given" else "y", "h", "c"), values, strict=False
            ):
                arrays[f"{case}/{kind}/{part}"] = np.ascontiguousarray(array, np.float32)
    about = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez_compressed(DATA / f"answers-{name}.npz", about=about, **arrays)
    print(DATA / f"answers-{name}.npz", version, [case for case, *_ in cases])


if __name__ == "__main__":
    main()
