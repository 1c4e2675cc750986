"""The same RNN in each implementation that benchmarks/forward.py compares.

A peer is a function that takes a Problem and a number of threads and returns (call, read). call()
is timed; read(its result) returns [y, h_n, c_n] as NumPy arrays with rnnlayout's shapes.
"""

from contextlib import nullcontext
from importlib import import_module

import numpy as np
from workload import outputs

import rnnlayout as rl


def optional(name):
    try:
        return import_module(name)
    except ImportError:
        return None


torch, onnx, onnxruntime, openvino = map(optional, ("torch", "onnx", "onnxruntime", "openvino"))
GATES = {"lstm": 4, "gru": 3}


# ------------------------------------------------------------------------------------------- ours


def state_of(problem):
    """Return the state as rnnlayout and torch expect it: a pair for an LSTM."""
    if problem.state is None or problem.states == 2:
        return problem.state and tuple(problem.state)
    return problem.state[0]


def ours(problem, threads, space=None, math="default"):
    """An RNN prepared once. space: weights to use instead of the problem's own."""
    rl.set_num_threads(threads)
    flat = problem.space() if space is None else space
    dtype = flat.dtype.name if flat.dtype.name in ("float16", "bfloat16") else "float32"
    rnn = rl.RNN(flat, problem.spec.replace(dtype=dtype), math=math)
    x, state, given = problem.x, state_of(problem), outputs(problem)

    def read(_):
        return list(given.values())

    if problem.T > 1:
        return lambda: rnn(x, state, **given), read
    step = given | {"out": given["out"][0]}
    return lambda: rnn.step(x[0], state, **step), read


def ours_in(dtype):
    """An RNN with narrower weights."""
    return lambda problem, threads: ours(problem, threads, problem.space(dtype))


def ours_widened(dtype):
    """An RNN with the weights of ours_in(dtype), stored as float32."""
    return lambda problem, threads: ours(problem, threads, problem.space(dtype).astype("f4"))


def ours_coarse(problem, threads):
    """Arithmetic in bfloat16."""
    return ours(problem, threads, math="bfloat16")


def ours_once(problem, threads):
    """Nothing is prepared: each call starts from the weight space."""
    rl.set_num_threads(threads)
    flat, spec, given = problem.space(), problem.spec, outputs(problem)
    x, state = problem.x, state_of(problem)
    return lambda: rl.forward(x, flat, spec, state=state, **given), lambda _: list(given.values())


# ---------------------------------------------------------------------------------------- theirs


def by_torch(problem, threads, dtype="float32"):
    """torch's module. Call it inside inference()."""
    spec, dtype = problem.spec, getattr(torch, dtype)
    torch.set_num_threads(threads)
    module = getattr(torch.nn, spec.cell.upper())(
        spec.input_size, spec.hidden_size, spec.num_layers, bidirectional=spec.bidirectional
    )
    module.load_state_dict({n: torch.from_numpy(w) for n, w in problem.weights.items()})
    module.eval().to(dtype)
    x, state = torch.from_numpy(problem.x).to(dtype), None
    if problem.state is not None:
        tensors = tuple(torch.from_numpy(s).to(dtype) for s in problem.state)
        state = tensors if problem.states == 2 else tensors[0]

    def read(result):
        y, last = result
        return [a.float().numpy() for a in (y, *(last if problem.states == 2 else [last]))]

    return lambda: module(x, state), read


def by_torch_coarse(problem, threads):
    """Everything in bfloat16: weights, x, states and gates."""
    return by_torch(problem, threads, "bfloat16")


def inference():
    """Return the context in which everything is timed."""
    return torch.inference_mode() if torch else nullcontext()


def onnx_model(problem):
    """Return a model with one node per layer, weights as initializers, and fixed sizes."""
    spec, helper = problem.spec, onnx.helper
    D, H = spec.num_directions, spec.hidden_size
    tensors = rl.convert(problem.weights, spec, layout="torch", to="onnx")
    join = {"one": np.array([1])} if D == 1 else {"joined": np.array([0, 0, -1])}
    attributes = {"hidden_size": H, "direction": "bidirectional" if D == 2 else "forward"}
    if spec.cell == "gru":
        attributes["linear_before_reset"] = 1

    def value(name, *shape):
        return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)

    y = value("y", problem.T, problem.N, D * H)
    nodes, given, last = [], [value("x", *problem.x.shape)], []
    below = "x"
    for k in range(spec.num_layers):
        stack = f"{k}/" if spec.num_layers > 1 else ""
        above = "y" if k + 1 == spec.num_layers else f"{k}/y"
        start = [f"{k}/h0", f"{k}/c0"][: problem.states] if problem.state else []
        end = [f"{k}/h", f"{k}/c"][: problem.states]
        reads = [below, *(stack + name for name in "WRB"), *([""] if start else []), *start]
        nodes.append(helper.make_node(spec.cell.upper(), reads, [f"{k}/Y", *end], **attributes))
        if D == 1:
            nodes.append(helper.make_node("Squeeze", [f"{k}/Y", "one"], [above]))
        else:  # (T, D, N, H) to (T, N, D * H)
            turned = f"{k}/Yt"
            nodes.append(helper.make_node("Transpose", [f"{k}/Y"], [turned], perm=[0, 2, 1, 3]))
            nodes.append(helper.make_node("Reshape", [turned, "joined"], [above]))
        given += [value(name, D, problem.N, H) for name in start]
        last += [value(name, D, problem.N, H) for name in end]
        below = above
    initializers = [
        onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in (tensors | join).items()
    ]
    graph = helper.make_graph(nodes, "rnn", given, [y, *last], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def onnx_feed(problem):
    feed = {"x": problem.x}
    D = problem.spec.num_directions
    for letter, state in zip("hc", problem.state or (), strict=False):
        for k in range(problem.spec.num_layers):
            feed[f"{k}/{letter}0"] = state[k * D : (k + 1) * D]
    return feed


def onnx_outputs(problem):
    """Return a function from y, 0/h, 0/c, 1/h ... to [y, h_n, c_n]."""
    states = problem.states

    def read(result):
        y, *last = result
        return [y, *(np.concatenate(last[k::states]) for k in range(states))]

    return read


def by_onnxruntime(problem, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        onnx_model(problem), options, providers=["CPUExecutionProvider"]
    )
    feed = onnx_feed(problem)
    return lambda: session.run(None, feed), onnx_outputs(problem)


def by_openvino(problem, threads, precision="f32"):
    core = openvino.Core()
    config = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads,
              "PERFORMANCE_HINT": "LATENCY"}  # fmt: skip
    model = core.read_model(onnx_model(problem))
    request = core.compile_model(model, "CPU", config).create_infer_request()
    feed, in_order = onnx_feed(problem), onnx_outputs(problem)

    def call():
        return request.infer(feed, share_inputs=True, share_outputs=True)

    return call, lambda result: in_order([result[k] for k in range(len(result))])


def by_openvino_coarse(problem, threads):
    """Arithmetic in bfloat16."""
    return by_openvino(problem, threads, "bf16")


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def numpy_layer(cell, x, h, c, W, R, bW, bR, backward=False):
    """One direction of one layer, as a user would write it."""
    H = len(R[0])
    y = np.empty((*x.shape[:2], H), x.dtype)
    of_x = x @ W.T + bW
    for t in range(len(x))[:: -1 if backward else 1]:
        of_h = h @ R.T + bR
        if cell == "lstm":
            a = of_x[t] + of_h
            i, f, o = (sigmoid(a[:, k * H : (k + 1) * H]) for k in (0, 1, 3))
            c = f * c + i * np.tanh(a[:, 2 * H : 3 * H])
            h = o * np.tanh(c)
        else:
            r, z = (sigmoid(of_x[t, :, k] + of_h[:, k]) for k in (slice(H), slice(H, 2 * H)))
            n = np.tanh(of_x[t, :, 2 * H :] + r * of_h[:, 2 * H :])
            h = (1 - z) * n + z * h
        y[t] = h
    return y, h, c


def numpy_rnn(spec, weights, x, h0, c0):
    """Run an RNN in the dtype of its arrays. Return [y, h_n, c_n], for a GRU [y, h_n]."""
    last, p = [], 0
    for layer in range(spec.num_layers):
        parts = []
        for end in ("", "_reverse")[: spec.num_directions]:
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            given = [weights[f"{name}_l{layer}{end}"] for name in names]
            y, *state = numpy_layer(spec.cell, x, h0[p], c0[p], *given, backward=bool(end))
            parts.append(y)
            last.append(state)
            p += 1
        x = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)
    hs, cs = zip(*last, strict=True)
    return [x, np.stack(hs)] + ([np.stack(cs)] if spec.cell == "lstm" else [])


def by_numpy(problem, threads=1, dtype="f4"):
    """NumPy with its own BLAS, which chooses its number of threads; the process limits it by its
    number of CPUs."""
    weights = {n: w.astype(dtype) for n, w in problem.weights.items()}
    zeros = [np.zeros(problem.state_shape, dtype)] * 2
    state = [s.astype(dtype) for s in problem.state or ()]
    h0, c0 = state + zeros[len(state) :]
    x = problem.x.astype(dtype)
    return lambda: numpy_rnn(problem.spec, weights, x, h0, c0), list


def reference(problem):
    """Return the outputs of the recurrence in float64."""
    call, read = by_numpy(problem, dtype="f8")
    return read(call())


PEERS = {
    "torch": (by_torch, (torch,)),
    "onnxruntime": (by_onnxruntime, (onnx, onnxruntime)),
    "OpenVINO": (by_openvino, (onnx, openvino)),
}


# Compared with ours_coarse.
COARSE = {
    "OpenVINO": (by_openvino_coarse, (onnx, openvino)),
    "torch": (by_torch_coarse, (torch,)),
}


def found():
    """Return {name: peer} of the installed peers, and the names of the others."""
    there = {name: peer for name, (peer, needs) in PEERS.items() if all(needs)}
    return there, [name for name in PEERS if name not in there]


def found_coarse():
    return {name: peer for name, (peer, needs) in COARSE.items() if all(needs)}


def versions():
    modules = {"torch": torch, "onnx": onnx, "onnxruntime": onnxruntime, "openvino": openvino}
    return {n: m.__version__ for n, m in modules.items() if m} | {"numpy": np.__version__}
