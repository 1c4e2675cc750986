"""Record what frameworks compute that are too large, or too old, to be installed with the tests.

    python tools/record_answers.py NAME     in an environment that has the framework and NumPy

NAME is paddle, mxnet, openvino, onednn or coreml: see tests/data/README.md. Writes
tests/data/answers-NAME.npz, with random weights in the framework's own tensors, inputs, initial
states, and the framework's outputs. It uses nothing of rnnlayout.
"""

import ctypes
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


# Constants of oneDNN: dnnl_types.h 3.2.
CPU, STREAM_IN_ORDER, F32, INFERENCE, LEFT_TO_RIGHT, BIDIRECTIONAL_CONCAT = 1, 1, 3, 96, 1, 3
ACTIVATIONS = {"rnn_relu": [0x20], "rnn_tanh": [0x21]}
TAGS = {3: 4, 4: 5, 5: 6}  # by the number of dimensions: dnnl_abc, dnnl_abcd, dnnl_abcde
ARGUMENTS = {"src_layer": 1, "src_iter": 2, "src_iter_c": 3, "weights_layer": 33,
             "weights_iter": 34, "weights_peephole": 35, "weights_projection": 36, "bias": 41,
             "dst_layer": 17, "dst_iter": 18, "dst_iter_c": 19}  # fmt: skip


class Argument(ctypes.Structure):
    _fields_ = (("number", ctypes.c_int), ("memory", ctypes.c_void_p))


class Onednn:
    """oneDNN's C library, for float32 tensors that are dense in the order of their dimensions."""

    def __init__(self):
        self.library = ctypes.CDLL(str(Path(sys.prefix) / "lib" / "libdnnl.so.3"))
        self.engine = self.make("engine_create", CPU, ctypes.c_size_t(0))
        self.stream = self.make("stream_create", self.engine, STREAM_IN_ORDER)

    def version(self):
        self.library.dnnl_version.restype = ctypes.POINTER(ctypes.c_int * 3)
        return ".".join(map(str, self.library.dnnl_version()[0]))

    def call(self, name, *arguments):
        if status := getattr(self.library, f"dnnl_{name}")(*arguments):
            raise RuntimeError(f"dnnl_{name}: status {status}")

    def make(self, name, *arguments):
        made = ctypes.c_void_p()
        self.call(name, ctypes.byref(made), *arguments)
        return made

    def describe(self, array):
        if array is None:
            return None
        dims = (ctypes.c_int64 * 12)(*array.shape)
        return self.make("memory_desc_create_with_tag", array.ndim, dims, F32, TAGS[array.ndim])

    def run(self, primitive, activation, direction, arrays):
        """Run a primitive. arrays: its arguments in their order, None for one that is left out."""
        described = {name: self.describe(array) for name, array in arrays.items()}
        numbers = [0, ctypes.c_float(0), ctypes.c_float(0)] if activation else [0]
        descriptor = self.make(
            f"{primitive}_forward_primitive_desc_create", self.engine, INFERENCE, *activation,
            direction, *described.values(), *numbers, None,
        )  # fmt: skip
        made = self.make("primitive_create", descriptor)
        given = [
            Argument(ARGUMENTS[name],
                     self.make("memory_create", described[name], self.engine,
                               ctypes.c_void_p(array.ctypes.data)))
            for name, array in arrays.items() if array is not None
        ]  # fmt: skip
        self.call(
            "primitive_execute", made, self.stream, len(given), (Argument * len(given))(*given)
        )
        self.call("stream_wait", self.stream)


def onednn(rng):
    library, P = Onednn(), 3
    kinds = [("lstm", 4, 4, "lstm", 2), ("lstm projected", 4, 4, "lstm", 1),
             ("lstm peepholes", 4, 4, "lstm", 1), ("gru", 3, 4, "lbr_gru", 2),
             ("gru before", 3, 3, "gru", 2), ("rnn_tanh", 1, 1, "vanilla_rnn", 2),
             ("rnn_relu", 1, 1, "vanilla_rnn", 2)]  # fmt: skip
    for name, gates, biases, primitive, D in kinds:
        cell = name.split()[0]
        width = P if "projected" in name else H
        tensors = {"weights_layer": weight(rng, (1, D, I, gates, H)),
                   "weights_iter": weight(rng, (1, D, width, gates, H))}  # fmt: skip
        if "peepholes" in name:
            tensors["weights_peephole"] = normal(rng, 1, D, 3, H)
        if "projected" in name:
            tensors["weights_projection"] = weight(rng, (1, D, H, width))
        tensors["bias"] = normal(rng, 1, D, biases, H)
        x, h = normal(rng, T, N, I), normal(rng, 1, D, N, width)
        y, h_n = np.zeros((T, N, D * width), np.float32), np.zeros_like(h)
        arrays = {"src_layer": x, "src_iter": h}
        start, last = [h[0]], [h_n[0]]
        if cell == "lstm":
            c = normal(rng, 1, D, N, H)
            start, last = [h[0], c[0]], [h_n[0], np.zeros_like(c[0])]
            arrays |= {"src_iter_c": c, "weights_layer": None, "weights_iter": None,
                       "weights_peephole": None, "weights_projection": None}  # fmt: skip
        arrays |= tensors | {"dst_layer": y, "dst_iter": h_n}
        if cell == "lstm":
            arrays["dst_iter_c"] = last[1][None]
        direction = BIDIRECTIONAL_CONCAT if D == 2 else LEFT_TO_RIGHT
        library.run(primitive, ACTIVATIONS.get(cell, []), direction, arrays)
        spec = {"cell": cell, "num_layers": 1, "bidirectional": D == 2}
        spec |= {"reset": "before"} if name == "gru before" else {}
        spec |= {"proj_size": P} if "projected" in name else {}
        yield name, spec, tensors, [x, *start], [y, *last]
    yield "version", library.version()


def coreml(rng):
    """Core ML itself runs on macOS alone. The tests of coremltools compare its operations with
    PyTorch and with NumPy: these weights and expected outputs are recorded."""
    import coremltools
    from coremltools.converters.mil import mil
    from coremltools.converters.mil.mil.ops.tests.iOS14 import test_recurrent as tests

    recorded, cells = {}, []

    def take_weights(**arguments):
        recorded["tensors"] = {key: value for key, value in arguments.items()
                               if key.startswith(("weight", "bias", "peephole"))}  # fmt: skip
        return [None] * 3  # the outputs

    def take_answers(build, _, values, types, outputs, **__):
        build(*values.values())
        recorded.update(values=[*values.values()], outputs=outputs)

    def take_cell(frame, event, _):  # the twin of an LSTM returns no cell state
        if event == "return" and frame.f_code.co_name.endswith("lstm_single_batch"):
            cells.append(frame.f_locals["c"])

    def of_directions(state):  # (N, D*H) -> (D, N, H)
        return np.reshape(state, (N, -1, H)).swapaxes(0, 1)

    for name in ("lstm", "gru", "rnn"):
        setattr(mil.Builder, name, take_weights)
    tests.run_compare_builder = take_answers
    # multiples of 2**-24, so that the weights of float32 are those of the NumPy twins
    np.random.rand = lambda *shape: rng.random(shape, np.float32).astype(float)
    sizes, common = (T, N, I, H), {"compute_unit": None, "backend": None, "has_bias": True,
                                   "dtype": np.float32}  # fmt: skip
    common_3 = common | {"output_sequence": True, "symbolic": False}
    names = ("seq_len", "batch_size", "input_size", "hidden_size")
    common_3 |= dict(zip(names, sizes, strict=True))
    lstms, spec = tests.TestLSTM(), {"num_layers": 1, "bidirectional": False}
    lstms.test_builder_to_backend_smoke_bidirlstm(**common_3)
    y, *last = recorded["outputs"]
    x, *start = recorded["values"]
    yield ("lstm", spec | {"cell": "lstm", "bidirectional": True}, recorded["tensors"],
           [x, *map(of_directions, start)], [y, *map(of_directions, last)])  # fmt: skip
    sys.setprofile(take_cell)
    lstms.test_numpy_numerical(
        **common, input_dims=[N, T, I], output_dim=H, activation="sigmoid",
        inner_activation="relu", outer_activation="relu", return_seq=True,
        forget_bias=False, has_peephole=True, coupled_input_forget=False, clip=50.0,
    )  # fmt: skip
    sys.setprofile(None)
    (x,), y = recorded["values"], recorded["outputs"]
    yield ("lstm peepholes", spec | {"cell": "lstm", "activation": "relu"}, recorded["tensors"],
           [x, *np.zeros((2, 1, N, H))], [y, y[-1:], np.array(cells)[None]])  # fmt: skip
    for case, make, options in (
        ("gru before", tests.TestGRU, {"activation_functions": ["tanh", "sigmoid"]}),
        ("rnn_tanh", tests.TestRNN, {}),
    ):
        make().test_builder_to_backend_smoke(**common_3, **options, direction="forward")
        (x, h), (y, last) = recorded["values"], recorded["outputs"]
        before = {"reset": "before"} if "gru" in case else {}
        yield (case, spec | {"cell": case.split()[0], **before}, recorded["tensors"],
               [x, h[None]], [y, last[None]])  # fmt: skip
    yield "version", coremltools.__version__


MAKERS = {"paddle": paddle, "mxnet": mxnet, "openvino": openvino, "onednn": onednn,
          "coreml": coreml}  # fmt: skip


def main():
    name = sys.argv[1]
    rng = np.random.default_rng(list(name.encode()))
    *cases, (_, version) = MAKERS[name](rng)
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
