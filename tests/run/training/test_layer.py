"""rnnlayout.torch.RNN computes what torch's modules compute, and what they refuse to compute."""

import copy
import io
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from oracles.some import normal_weights
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.utils.rnn import pack_sequence

import rnnlayout as rl
import rnnlayout.torch as rlt
from rnnlayout import _native
from rnnlayout._model.dtypes import storage_dtype
from rnnlayout.torch import _op

T, N, I, H = 5, 3, 4, 6  # noqa: E741
# In float64, at 2 T steps of two layers, sums of at most 4 * T * N * H products of size 1.
CLOSE = {"rtol": 0, "atol": 2 * T * 4 * T * N * H * 2.0**-53}
MODULES = {
    "lstm": lambda: nn.LSTM(I, H),
    "lstm 2 layers": lambda: nn.LSTM(I, H, 2, bidirectional=True, batch_first=True),
    "lstm projected": lambda: nn.LSTM(I, H, 2, proj_size=2, bias=False),
    "gru": lambda: nn.GRU(I, H, 2, bidirectional=True),
    "tanh": lambda: nn.RNN(I, H, batch_first=True),
    "relu": lambda: nn.RNN(I, H, 2, nonlinearity="relu", bias=False),
}
CELLS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}
every_module = pytest.mark.parametrize("kind", MODULES)
every_cell = pytest.mark.parametrize("cell", CELLS)


def pair(kind):
    """Return a module of torch in float64, and the layer with its weights."""
    torch.manual_seed(0)
    module = MODULES[kind]().double()
    return module, rlt.RNN(module)


def numbers(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


def states_of(module, *batch):
    rows = module.num_layers * (1 + module.bidirectional)
    h = numbers(rows, *batch, module.proj_size or H)
    return (h, numbers(rows, *batch, H)) if isinstance(module, nn.LSTM) else h


def leaves(*values):
    """Return all tensors in nested tuples."""
    for value in values:
        if isinstance(value, tuple):
            yield from leaves(*value)
        else:
            yield value


def copied(value):
    """Return leaves of autograd with the same values."""
    if isinstance(value, tuple):
        return (
            type(value)(*map(copied, value))
            if hasattr(value, "_fields")
            else tuple(map(copied, value))
        )
    return value.detach().clone().requires_grad_(value.is_floating_point())


def gradients(module, x, state):
    """Return the outputs and all gradients of a loss, those of the weights as a dict."""
    x, state = copied(x), None if state is None else copied(state)
    outputs = list(leaves(module(x, state)))
    sum((tensor * torch.arange(1.0, tensor.numel() + 1).view_as(tensor).sin()).sum()
        for tensor in outputs if tensor.is_floating_point()).backward()  # fmt: skip
    inputs = [tensor.grad for tensor in leaves(x, *([] if state is None else [state]))]
    if isinstance(module, rlt.RNN):
        weights = rl.unpack(module.weight_space.grad, module.spec, to="torch", kind="gradient")
    else:
        weights = {name: p.grad.numpy() for name, p in module.named_parameters()}
    return outputs, inputs, weights


def assert_same_gradients(module, layer, x, state):
    found, wanted = gradients(layer, x, state), gradients(module, x, state)
    for a, b in zip([*found[0], *found[1]], [*wanted[0], *wanted[1]], strict=True):
        torch.testing.assert_close(a, b, **CLOSE)
    assert list(found[2]) == list(wanted[2])
    for name, array in found[2].items():
        np.testing.assert_allclose(array, wanted[2][name], **CLOSE)


@every_module
@pytest.mark.parametrize("batch, has_state", [((), False), ((N,), True)])
def test_outputs_and_gradients_are_those_of_torch(kind, batch, has_state):
    module, layer = pair(kind)
    x = numbers(*((N, T) if module.batch_first and batch else (T, *batch)), I)
    assert_same_gradients(module, layer, x, states_of(module, *batch) if has_state else None)
    with torch.no_grad():
        for a, b in zip(leaves(layer(x)), leaves(module(x)), strict=True):
            torch.testing.assert_close(a, b, **CLOSE)
            assert not a.requires_grad
        assert all(map(torch.equal, leaves(layer(x)), leaves(rl.RNN(module)(x))))


@every_module
def test_lengths_are_those_of_a_packed_sequence(kind):
    module, layer = pair(kind)
    sequences = [numbers(steps, I) for steps in (2, T, 2, 4)]
    packed, state = pack_sequence(sequences, enforce_sorted=False), states_of(module, 4)
    y, last = layer(packed, state)
    wanted, wanted_last = module(packed, state)
    assert torch.equal(y.batch_sizes, wanted.batch_sizes)
    assert torch.equal(y.unsorted_indices, wanted.unsorted_indices)
    for a, b in zip(leaves(y.data, last), leaves(wanted.data, wanted_last), strict=True):
        torch.testing.assert_close(a, b, **CLOSE)
    padded = nn.utils.rnn.pad_sequence(sequences, batch_first=module.batch_first)
    for lengths in ([2, T, 2, 4], torch.tensor([2, T, 2, 4], dtype=torch.int32)):
        y, last_of_lengths = layer(padded, state, lengths)
        assert all(map(torch.equal, leaves(last_of_lengths), leaves(last)))
        unpacked, _ = nn.utils.rnn.pad_packed_sequence(wanted, batch_first=module.batch_first)
        torch.testing.assert_close(y, unpacked, **CLOSE)


@pytest.mark.parametrize("kind", ["lstm 2 layers", "gru", "tanh"])
def test_dropout_between_layers_is_that_of_torch(kind):
    """Also its random numbers, of x of the same shape."""
    module, _ = pair(kind)
    module.dropout = 0.5
    layer = rlt.RNN(module)
    x, state = numbers(T, T, I), states_of(module, T)
    results = []
    for rnn in (layer, module):
        torch.manual_seed(1)
        results.append(gradients(rnn, x, state))
    for a, b in zip(*(outputs + inputs for outputs, inputs, _ in results), strict=True):
        torch.testing.assert_close(a, b, **CLOSE)
    for name, array in results[0][2].items():
        np.testing.assert_allclose(array, results[1][2][name], **CLOSE)
    assert_same_gradients(module.eval(), layer.eval(), x, state)


SPECIAL = [
    rl.Spec("lstm", I, H, 2, dtype="float64", peepholes=True, recurrent_activation="hard_sigmoid"),
    rl.Spec("gru", I, H, bidirectional=True, dtype="float64", reset="before"),
]


@pytest.mark.parametrize("spec", SPECIAL, ids=str)
def test_gradients_of_rnns_that_torch_lacks(spec):
    """Beside differences of outputs, for one and for several gradients of y at once."""
    torch.manual_seed(0)
    weights = normal_weights("onnx", spec)
    layer = rlt.RNN(weights, spec, layout="onnx", batch_first=False)
    assert rl.verify(rl.Weights(weights, spec, "onnx"), layer.weights())
    rows = spec.num_layers * spec.num_directions
    first = [numbers(rows, N, H) for _ in range(1 + (spec.cell == "lstm"))]
    inputs = [t.requires_grad_() for t in (numbers(T, N, I), layer.weight_space.detach(), *first)]

    def run(x, weight_space, *first):
        state = first if len(first) == 2 else first[0]
        arguments = x, state, torch.tensor([T, 0, 2])
        return tuple(leaves(functional_call(layer, {"weight_space": weight_space}, arguments)))

    assert torch.autograd.gradcheck(run, inputs, check_batched_grad=True)
    tape = rl.RNN(weights, spec, layout="onnx", batch_first=False).record(np.ones((T, N, I)))
    *_, dweights = tape.backward(np.ones((T, N, spec.num_directions * H)))
    full = layer(torch.ones(T, N, I, dtype=torch.float64))[0].sum()
    (found,) = torch.autograd.grad(full, layer.weight_space)
    assert found.numpy().tobytes() == dweights.tobytes()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@every_cell
def test_gradients_of_narrow_weights_are_rounded_once(cell, dtype):
    """float32 keeps 2^-24 of sums of fewer than 2^8 terms of size 1: much less than half a unit of
    the last place, 2^-11 or 2^-8 of the value, which the rounding adds."""
    torch.manual_seed(0)
    layer = rlt.RNN(CELLS[cell](I, H)).to(dtype)
    assert layer.spec.dtype == str(dtype).removeprefix("torch.")
    x = numbers(T, N, I, dtype=dtype)
    wide = copy.deepcopy(layer).float()
    found, wanted = x.clone().requires_grad_(), x.float().requires_grad_()
    assert layer(found)[0].dtype == dtype
    for rnn, leaf in ((layer, found), (wide, wanted)):
        rnn(leaf)[0].sum().backward()
    for a, b in ((found.grad, wanted.grad), (layer.weight_space.grad, wide.weight_space.grad)):
        assert a.dtype == dtype
        assert torch.equal(a, b.to(dtype))


def test_autocast_runs_the_layer_in_float32():
    layer = rlt.RNN(nn.GRU(I, H))
    x = numbers(T, N, I, dtype=torch.bfloat16).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, h_n = layer(x)
        assert layer.double()(x.double())[0].dtype == torch.float64
    layer.float()
    y.sum().backward()
    assert torch.equal(y, layer(x.float())[0]) and y.dtype == h_n.dtype == torch.float32
    assert x.grad.dtype == torch.bfloat16 and x.grad.abs().sum() > 0


# ------------------------------------------------------------------------- transforms of torch


def losses(module, x):
    """Return a function from the weights and x to a loss, and the weights."""
    weights = {name: p.detach() for name, p in module.named_parameters()}
    return lambda w, x: functional_call(module, w, (x,))[0].sin().sum(), weights


TASKS = {
    "vmap": lambda f, w, xs: vmap(f, (None, 0))(w, xs),
    "vmap over weights": lambda f, w, xs: vmap(f)(
        {k: torch.stack([v * (b + 1) for b in range(len(xs))]) for k, v in w.items()}, xs
    ),
    "gradient through vmap": lambda f, w, xs: grad(lambda w: vmap(f, (None, 0))(w, xs).sum())(w),
    "per-sample gradients": lambda f, w, xs: vmap(grad(f), (None, 0))(w, xs),
}


@every_cell
@pytest.mark.parametrize("task", TASKS)
def test_tasks_that_raise_in_torch_run_here(task, cell):
    """In float64: an nn.LSTM of float32 has per-sample gradients."""
    torch.manual_seed(0)
    module = CELLS[cell](I, H).double()
    layer, xs = rlt.RNN(module), numbers(4, T, N, I)
    function, weights = losses(module, xs)
    with pytest.raises(RuntimeError, match=r"Batching rule not implemented|output with shape"):
        TASKS[task](function, weights, xs)
    function, weights = losses(layer, xs)
    found = TASKS[task](function, weights, xs)
    if task == "vmap over weights":
        scaled = [{name: w * (b + 1) for name, w in weights.items()} for b in range(4)]
        wanted = torch.stack(list(map(function, scaled, xs)))
    elif task == "vmap":
        wanted = torch.stack([function(weights, x) for x in xs])
    else:
        found = found["weight_space"]
        each = [grad(function)(weights, x)["weight_space"] for x in xs]
        wanted = torch.stack(each) if task == "per-sample gradients" else sum(each)
    torch.testing.assert_close(found, wanted, **CLOSE)


def test_an_lstm_of_float32_has_per_sample_gradients_in_torch():
    module = nn.LSTM(I, H)
    xs = numbers(2, T, N, I, dtype=torch.float32)
    function, weights = losses(module, xs)
    with pytest.warns(UserWarning, match="performance drop"):
        assert len(TASKS["per-sample gradients"](function, weights, xs)) == 4


@every_cell
def test_vmap_takes_any_axis_lengths_states_and_nests(cell):
    torch.manual_seed(0)
    layer = rlt.RNN(CELLS[cell](I, H).double())
    weights = dict(layer.named_parameters())  # not detached: an outer backward pass is possible
    xs, lengths = numbers(T, 4, N, I), torch.randint(0, T + 1, (N, 4))
    h = numbers(1, N, H, 4)

    def run(x, steps, h):
        state = (h, 2 * h) if cell == "LSTM" else h
        return tuple(leaves(functional_call(layer, weights, (x, state, steps))))

    found = vmap(run, in_dims=(1, 1, -1), out_dims=1)(xs, lengths, h)
    wanted = zip(*(run(xs[:, b], lengths[:, b], h[..., b]) for b in range(4)), strict=True)
    assert all(torch.equal(a, torch.stack(b, 1)) for a, b in zip(found, wanted, strict=True))

    def loss(w, x):
        return functional_call(layer, w, (x,))[0].sin().sum()

    xs = numbers(2, 3, T, N, I)
    found = vmap(vmap(grad(loss, (0, 1)), (None, 0)), (None, 0))(weights, xs)
    each = [[grad(loss, (0, 1))(weights, x) for x in row] for row in xs]
    wanted = torch.stack([torch.stack([w["weight_space"] for w, _ in row]) for row in each])
    torch.testing.assert_close(found[0]["weight_space"], wanted, **CLOSE)
    wanted = torch.stack([torch.stack([dx for _, dx in row]) for row in each])
    torch.testing.assert_close(found[1], wanted, **CLOSE)
    only_x = vmap(vmap(grad(loss, 1), (None, 0)), (None, 0))(weights, xs)
    torch.testing.assert_close(only_x, wanted, **CLOSE)
    layer.requires_grad_(False)  # below vmap nothing shows that x needs a gradient
    through = grad(lambda xs: vmap(vmap(lambda x: loss(weights, x)))(xs).sum())(xs)
    torch.testing.assert_close(through, wanted, **CLOSE)


def test_jacobians_of_reverse_mode():
    module, layer = pair("gru")
    x = numbers(T, N, I)
    found = torch.func.jacrev(lambda x: layer(x)[1].sum(1))(x)
    wanted = torch.autograd.functional.jacobian(lambda x: module(x)[1].sum(1), x)
    torch.testing.assert_close(found, wanted, **CLOSE)


@pytest.mark.parametrize(
    "derivative",
    [
        lambda f, x: torch.func.jvp(f, (x,), (x,)),
        lambda f, x: torch.func.jacfwd(f)(x),
        lambda f, x: torch.func.hessian(f)(x),
        lambda f, x: torch.func.jvp(torch.func.vjp(f, x)[1], (f(x),), (f(x),)),
        lambda f, x: vmap(lambda one: torch.func.jvp(f, (one,), (one,)))(torch.stack([x, x])),
    ],
)
def test_forward_mode_is_refused_by_name(derivative):
    _, layer = pair("gru")
    with pytest.raises(NotImplementedError, match=r"no forward-mode derivatives.*use reverse mode"):
        derivative(lambda x: layer(x)[0].sum(), numbers(T, N, I))


def test_second_derivatives_are_refused_by_name():
    _, layer = pair("lstm")
    x = numbers(T, N, I).requires_grad_()
    (dx,) = torch.autograd.grad(layer(x)[0].sin().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match=r"no second derivatives.*differentiate once"):
        dx.sum().backward()


@pytest.mark.parametrize("kind", ["lstm 2 layers", "gru"])
def test_the_compiled_layer_is_one_graph(kind):
    module, layer = pair(kind)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="does not support RNN, GRU, or LSTM"):
        torch.compile(module, fullgraph=True, backend="eager")(numbers(T, N, I))
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for steps, batch in ((T, N), (T + 2, N + 1)):
        x = numbers(steps, batch, I)
        count, longest = (steps, batch) if layer.batch_first else (batch, steps)
        lengths = torch.arange(count) % (longest + 1)
        for arguments in ((x,), (x, None, lengths)):
            results = []
            for rnn in (compiled, layer):
                layer.zero_grad()
                leaf = x.clone().requires_grad_()
                outputs = [*leaves(rnn(leaf, *arguments[1:]))]
                sum(tensor.sin().sum() for tensor in outputs).backward()
                results.append([*outputs, leaf.grad, layer.weight_space.grad])
            assert all(map(torch.equal, *results))
    with torch.no_grad():
        assert all(map(torch.equal, leaves(compiled(x)), leaves(layer(x))))


@pytest.mark.long
def test_inductor_compiles_a_model_around_the_layer():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, I), rlt.RNN(nn.RNN(I, H)))
    x, found = numbers(T, N, 2, dtype=torch.float32), []
    for call in (torch.compile(model, fullgraph=True), model):
        model.zero_grad()
        call(x)[0].square().sum().backward()
        found.append([p.grad.clone() for p in model.parameters()])
    # the linear layer's sums of T * N terms may be in another order
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=float(T * N * b.abs().max()) * 2.0**-23)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_an_exported_program_runs_and_trains(kind):
    _, layer = pair(kind)
    sizes = {0: torch.export.Dim("T"), 1: torch.export.Dim("N")}
    program = torch.export.export(layer, (numbers(T, N, I),), dynamic_shapes=(sizes,))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    module, x = torch.export.load(file).module(), numbers(T + 3, N + 2, I)
    assert all(map(torch.equal, leaves(module(x)), leaves(layer(x))))
    module(x)[0].sum().backward()
    layer(x)[0].sum().backward()
    (parameter,) = module.parameters()
    assert torch.equal(parameter.grad, layer.weight_space.grad)


@pytest.mark.parametrize("kind", ["lstm projected", "gru"])
def test_torch_checks_the_operators(kind):
    """With torch.library.opcheck(). A tape has bytes that no call writes."""
    module, layer = pair(kind)
    x, state = numbers(T, N, I), states_of(module, N)
    h, c = state if isinstance(state, tuple) else (state, None)
    inputs = [x, layer.weight_space.detach(), h, c, torch.tensor([T, 0, 2]), layer._spec]
    torch.library.opcheck(_op._rnn_op, (*inputs, False))
    for tensor in filter(torch.is_tensor, inputs[:4]):
        tensor.requires_grad_()
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(_op._rnn_op, (*inputs, True), test_utils=tests)


# -------------------------------------------------------------------------- memory and modules


def test_a_tape_may_be_moved():
    """To memory of another alignment, as by stacking; and it fits whichever T and N."""
    _, layer = pair("lstm 2 layers")
    x, text = numbers(T, N, I), layer._spec
    inputs = x, layer.weight_space.detach(), None, None, None
    y, _, _, tape = _op._rnn_op(*inputs, text, True)
    moved = torch.cat([tape[:1], tape])[1:]
    assert moved.data_ptr() % 64
    results = [
        _op._backward_op(tape, *inputs, torch.ones_like(y), None, None, text, True)
        for tape in (tape, moved)
    ]
    assert all(map(torch.equal, *results)) and results[0][1].abs().sum() > 0
    for spec in (layer.spec, *SPECIAL, rl.Spec("lstm", 3, 5, 2, proj_size=2), rl.Spec("gru", 1, 1)):
        ((_, (n,)),) = _native.tensors(rl.Layout("the forward pass"), spec)
        native = _native.Rnn(spec, np.zeros(n, storage_dtype(spec.dtype)))
        a, b, c = _op._tape_sizes(spec)
        for steps in (1, 2, 3, 7, 64, 65):
            for batch in (1, 2, 5, 16, 17, 63):
                need = _native.tape_nbytes(native, steps, batch)
                assert 0 <= a * steps * batch + b * batch + c - need <= c


@every_module
def test_copies_and_files(kind):
    _, layer = pair(kind)
    x = numbers(N, T, I)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for other in (
        copy.deepcopy(layer),
        pickle.loads(pickle.dumps(layer)),
        torch.load(file, weights_only=False),
    ):
        assert torch.equal(other(x)[0], layer(x)[0]) and repr(other) == repr(layer)
        assert other.weight_space.data_ptr() != layer.weight_space.data_ptr()
    with torch.no_grad():
        other.weight_space.zero_()
    assert list(layer.state_dict()) == ["weight_space"]
    assert other.load_state_dict(layer.state_dict()) and torch.equal(other(x)[0], layer(x)[0])


def test_threads_share_a_layer():
    _, layer = pair("lstm 2 layers")
    xs = [numbers(N, T, I) for _ in range(32)]

    def step(x):
        return torch.autograd.grad(layer(x)[0].sin().sum(), layer.weight_space)[0]

    with ThreadPoolExecutor(4) as pool:
        assert all(map(torch.equal, pool.map(step, xs), map(step, xs)))


@every_module
def test_views_have_the_names_of_torch(kind):
    module, layer = pair(kind)
    views = layer.tensors("torch")
    assert list(views) == list(dict(module.named_parameters()))
    for name, view in views.items():
        assert torch.equal(view, getattr(module, name))
        assert view.untyped_storage().data_ptr() == layer.weight_space.untyped_storage().data_ptr()
    name = list(views)[-1]
    views[name].sum().backward()
    assert layer.weight_space.grad.sum() == views[name].numel()
    with torch.no_grad():
        views[name].zero_()
    changed = rl.unpack(layer.weight_space.detach(), layer.spec, to="torch")
    assert not changed[name].any() and changed[next(iter(views))].any()


def test_layouts_without_views_are_refused():
    _, layer = pair("gru")
    with pytest.raises(rl.LayoutError, match=r"no views exist: copy them with rl\.convert"):
        layer.tensors("keras")
    spec = SPECIAL[0].replace(recurrent_activation="sigmoid")
    with pytest.raises(rl.LossyError, match="torch has no peepholes"):
        rlt.RNN(normal_weights("onnx", spec), spec, layout="onnx", batch_first=False).tensors()


@every_module
def test_decay_without_the_biases_is_that_of_parameter_groups(kind):
    module, layer = pair(kind)
    x = numbers(N, T, I)
    biases = [p for name, p in module.named_parameters() if name.startswith("bias")]
    others = [p for name, p in module.named_parameters() if not name.startswith("bias")]
    groups = [{"params": others, "weight_decay": 0.1}, {"params": biases, "weight_decay": 0.0}]
    one = torch.optim.AdamW([layer.weight_space], lr=0.01, weight_decay=0.0)
    several = torch.optim.AdamW([group for group in groups if group["params"]], lr=0.01)
    assert layer.bias_mask().sum() == sum(p.numel() for p in biases)
    for _ in range(3):
        for rnn, optimizer in ((layer, one), (module, several)):
            optimizer.zero_grad()
            rnn(x)[0].sin().sum().backward()
            if rnn is layer:
                with torch.no_grad():
                    matrices = layer.weight_space * ~layer.bias_mask()
                    layer.weight_space.sub_(matrices, alpha=0.01 * 0.1)
            optimizer.step()
    # Adam divides a gradient by its size: a step of 0.01 has the gradient's relative error
    for name, view in layer.tensors().items():
        torch.testing.assert_close(view, getattr(module, name), rtol=0, atol=1e-9)


# ------------------------------------------------------------------------------------- refusals


def test_settings_that_torch_lacks_are_refused_by_name():
    import keras

    def layer(kind=keras.layers.LSTM, **settings):
        made = kind(H, return_sequences=True, **settings)
        made.build((None, T, I))
        return made

    both = keras.layers.Bidirectional(layer(), merge_mode="sum")
    both.build((None, T, I))
    refused = {
        "go_backwards=True": layer(go_backwards=True),
        "merge_mode='sum'": both,
        "dropout of Keras=0.5": layer(dropout=0.5),
        "recurrent_dropout of Keras=0.1": layer(keras.layers.GRU, recurrent_dropout=0.1),
        "kernel_regularizer of Keras=": layer(kernel_regularizer="l2"),
        "bias_constraint of Keras=": layer(bias_constraint="non_neg"),
    }
    for text, source in refused.items():
        with pytest.raises(rl.LossyError) as error:
            rlt.RNN(source)
        assert text in str(error.value) and "To train without that: w = rl." in str(error.value)
        weights = rl.Weights(source)
        weights.config.clear()
        assert rlt.RNN(weights).batch_first
    onnx = normal_weights("onnx", SPECIAL[0])
    weights = rl.Weights(onnx, SPECIAL[0], "onnx")
    weights.config = {"clip": 3.0}
    with pytest.raises(rl.LossyError, match="clip"):
        rlt.RNN(weights, batch_first=False)


def test_the_order_of_the_axes_is_assumed_aloud():
    state_dict = nn.GRU(I, H).state_dict()
    with pytest.warns(rl.AssumedWarning, match="the source does not record the order of the axes"):
        rlt.RNN(state_dict)
    assert rlt.RNN(state_dict, batch_first=True).batch_first


def test_wrong_arguments_are_named():
    _, lstm = pair("lstm")
    _, gru = pair("gru")
    x, h = numbers(T, N, I), numbers(1, N, H)
    with pytest.raises(rl.LayoutError, match=r"x: shape \(5, 3, 5\), expected .* with I = 4"):
        lstm(numbers(T, N, I + 1))
    with pytest.raises(rl.LayoutError, match=r"state: a Tensor, need \(h_0, c_0\) or None"):
        lstm(x, h)
    with pytest.raises(rl.LayoutError, match="state: a tuple, need h_0 or None"):
        gru(x, (h, h))
    with pytest.raises(rl.LayoutError, match=r"c_0: shape \(1, 2, 6\), expected \(1, 3, 6\)"):
        lstm(x, (h, h[:, :2]))
    with pytest.raises(
        rl.LayoutError, match=r"x is torch\.float32, need torch\.float64: call x\.to"
    ):
        lstm(x.float())
    with pytest.raises(rl.LayoutError, match=r"lengths are torch\.float32, need integers"):
        lstm(x, lengths=torch.ones(N))
    with pytest.raises(rl.LayoutError, match=r"lengths\[1\]|lengths"):
        lstm(x, lengths=[1, T + 1, 2])
    with pytest.raises(rl.LayoutError, match="lengths need a batch"):
        lstm(x[:, 0], lengths=[T])
    with pytest.raises(rl.LayoutError, match="a PackedSequence has its own lengths"):
        lstm(pack_sequence([x[:, 0]]), lengths=[T])


def test_a_gpu_is_refused_with_the_way_to_train_there():
    layer = rlt.RNN(nn.GRU(I, H))
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):  # no GPU is needed
        x = torch.empty(T, N, I, device="cuda")
        with pytest.raises(
            rl.LayoutError, match=r"x is on cuda:0, but .* trains on the CPU: train nn"
        ):
            layer(x)
