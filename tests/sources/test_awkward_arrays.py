"""Awkward arrays, as weights and as `out`, arrays of every rank as any argument, and unusual
tensors of torch: they are read correctly, or refused with an error and nothing written."""

import array
import inspect
import itertools
import warnings

import ml_dtypes
import numpy as np
import pytest
import torch
from marks import pairwise
from oracles.some import normal_weights, random_weights, same_bits
from sources.awkward import NOT_BFLOAT16, SAME

import rnnlayout as rl

DTYPES = ("float16", "bfloat16", "float32", "float64")
# One layout with matrices, one that is flat, and a target in which every element moves.
SPEC = rl.Spec("gru", 5, 7)
N = SPEC.num_params
DST = "onnx"


def each_kind(layouts):
    """Every kind of array with every dtype that it has, and with every layout."""
    return pairwise(SAME | NOT_BFLOAT16, DTYPES, layouts,
                    fits=lambda kind, dtype, _: kind in SAME or dtype != "bfloat16")  # fmt: skip


def awkward(kind, a):
    return SAME[kind](a) if kind in SAME else NOT_BFLOAT16[kind](a)


@pytest.mark.parametrize("kind, dtype, src", each_kind(["torch", "keras", "onnx", "cudnn"]))
def test_kinds_of_arrays_are_taken_for_what_they_hold(kind, dtype, src):
    spec = SPEC.replace(dtype=dtype)
    weights = random_weights(src, spec)
    if kind == "torch negated":  # torch decides how to negate a signalling NaN
        weights = normal_weights(src, spec)
    wanted = rl.convert(weights, spec, layout=src, to=DST)
    if src == "cudnn":
        assert same_bits(rl.convert(awkward(kind, weights), spec, to=DST), wanted)
        return
    changed = {name: awkward(kind, a) for name, a in weights.items()}
    for source in (changed, list(changed.values()), tuple(changed.values())):
        assert same_bits(rl.convert(source, spec, layout=src, to=DST), wanted)


@pytest.mark.parametrize("src", ["torch", "cudnn"])
def test_lists_of_numbers(src):
    weights = normal_weights(src, SPEC)
    wanted = rl.convert(weights, SPEC, layout=src, to=DST)
    numbers = (
        weights.tolist() if src == "cudnn" else {name: a.tolist() for name, a in weights.items()}
    )
    assert same_bits(rl.convert(numbers, SPEC, layout=src, to=DST, dtype="float32"), wanted)
    with pytest.raises(rl.LayoutError, match="is float64, the spec says float32"):
        rl.convert(numbers, SPEC, layout=src, to=DST)
    assert same_bits(rl.pack(array.array("f", range(N)), SPEC), np.arange(N, dtype="f4"))


# ----------------------------------------------------------------------------------------- as out


@pytest.mark.parametrize("kind, dtype, dst", each_kind(["cudnn", "keras"]))
def test_out_is_filled_or_left_alone(kind, dtype, dst):
    spec = SPEC.replace(dtype=dtype)
    weights = normal_weights("torch", spec)
    wanted = rl.convert(weights, spec, layout="torch", to=dst)
    before = {
        name: np.full(shape, 7, wanted.dtype if dst == "cudnn" else wanted[name].dtype)
        for name, shape in rl.describe(spec, dst).items()
    }
    given = {name: awkward(kind, a) for name, a in before.items()}
    out = given["weight_space"] if dst == "cudnn" else given
    error = ""
    try:
        assert rl.convert(weights, spec, layout="torch", to=dst, out=out) is out
    except rl.LayoutError as refused:
        error = str(refused)
    found = {name: numbers_of(a) for name, a in given.items()}
    if error:
        assert all((a == 7).all() for a in found.values()), error
        assert any(word in error for word in ("read-only", "contiguous", "in place")), error
        assert kind not in ("torch", "a subclass", "a parameter of torch"), error
    else:
        assert same_bits(found["weight_space"] if dst == "cudnn" else found, wanted)


def numbers_of(a):
    a = a.detach().resolve_neg() if isinstance(a, torch.Tensor) else a
    return np.asarray(a).view(np.ndarray)


# -------------------------------------------------------------------------------------- overlapping


@pytest.mark.parametrize("second", [0, 5, 8])
def test_two_outs_that_overlap(second):
    """They are the same, overlap by half, or by the last element."""
    memory, spec = np.full(30, 7, "f4"), rl.Spec("rnn_tanh", 3, 3)
    out = {"kernel": memory[:9].reshape(3, 3), "bias": memory[20:23],
           "recurrent_kernel": memory[second : second + 9].reshape(3, 3)}  # fmt: skip
    with pytest.raises(rl.LayoutError, match="shares memory"):
        rl.convert(normal_weights("torch", spec), spec, to="keras", out=out)
    assert (memory == 7).all()


@pytest.mark.parametrize("shift", [-N, 1 - N, -1, 0, 1, N - 1, N])
def test_an_out_that_overlaps_the_flat_source(shift):
    """The first and the last only touch it. A strided source is read before anything is written."""
    memory = np.arange(3 * N, dtype="f4")
    source, out = memory[N : 2 * N], memory[N + shift : 2 * N + shift]
    if abs(shift) == N:
        assert same_bits(rl.convert(source, SPEC, to="cudnn", out=out), source)
    else:
        with pytest.raises(rl.LayoutError, match="shares memory"):
            rl.convert(source, SPEC, to="cudnn", out=out)
        assert (memory == np.arange(3 * N)).all()
    source = memory[::-1][:N]
    wanted = source.copy()
    rl.convert(source, SPEC, to="cudnn", out=memory[2 * N :])
    assert same_bits(memory[2 * N :], wanted)


# ------------------------------------------------------------------------------------- over 2 GiB


def large(least, dtype):
    """Return a spec of at least so many elements, and weights of zeros: pages that are never
    written use no memory."""
    hidden = int((least / 8) ** 0.5) + 1
    spec = rl.Spec("lstm", hidden, hidden, bias="none", dtype=dtype)
    return spec, np.zeros(spec.num_params, dtype)


@pytest.mark.long
def test_more_than_2_gib_are_converted():
    spec, flat = large(2**30 + 1, "float16")
    marks = [0, flat.size // 2 - 1, flat.size // 2, flat.size - 2, flat.size - 1]
    flat[marks] = np.arange(1, 6)
    tensors = rl.unpack(flat, spec, to="torch")
    assert list(tensors["weight_hh_l0"][-1, -2:]) == [4, 5]
    assert tensors["weight_ih_l0"].reshape(-1)[-1] == 2 and tensors["weight_hh_l0"][0, 0] == 3
    assert tensors["weight_ih_l0"][0, 0] == 1
    del tensors
    flat[-1] = np.float16(65504)
    assert rl.check(flat, spec, to="torch").grade == "exact"


def test_an_element_past_the_2_to_the_31st_is_named():
    """The weights are only checked; zero pages use no memory."""
    spec, flat = large(2**31 + 1, "float32")
    flat[-1] = 1e5
    report = rl.check(flat, spec, to="cudnn", dtype="float16")
    assert f"weight_space[{flat.size - 1}] is 100000" in report.reason


# ------------------------------------------------------------------ every argument at every rank

SQUARE = rl.Spec("rnn_tanh", 3, 3)
WEIGHTS = normal_weights("torch", SQUARE)
FLAT = rl.pack(WEIGHTS, SQUARE)
RNN = rl.RNN(FLAT, SQUARE, batch_first=False)
X, H = np.ones((2, 5, 3), "f4"), np.ones((1, 5, 3), "f4")
HINTS = dict(
    ignore=(), cell="rnn_tanh", reset="after", recurrent_activation="sigmoid", activation="tanh"
)
OPTIONS = dict(layout="torch", prefix="", **HINTS, dtype="float32", device="cpu",
               batch_first=False, cell_clip=None, math="default", algo="standard")  # fmt: skip
CALL = dict(state=H, lengths=[1, 2, 2, 0, 1], mask=None, out=None, h_out=None, c_out=None,
            stream=None)  # fmt: skip


def arrays_of_every_rank():
    """Arrays of sizes 0, 1 and 3 at each rank; size 3 fits some tensors of the square RNN."""
    for rank in range(5):
        for size in (0, 1, 3):
            for dtype in ("f4", "f8", "i8", "?", "U3", "O"):
                yield np.ones((size,) * rank, dtype)


def _to(to, dtype, exact):
    """Call Weights.to() by name, whose layout is positional."""
    return rl.Weights(WEIGHTS, SQUARE).to(to, dtype=dtype, exact=exact)


CALLS = [
    (rl.Spec, dict(cell="gru", input_size=3, hidden_size=4, num_layers=2, bidirectional=True,
                   proj_size=0, bias="double", reset="after", recurrent_activation="sigmoid",
                   skip_input=False, dtype="float32", peepholes=False, activation="tanh")),
    (SQUARE.replace, dict(num_layers=2)),
    (rl.Spec.from_dict, dict(data=SQUARE.to_dict())),
    (rl.layout, dict(name="concat", inputs="hx", z="state")),
    (rl.describe, dict(layout="torch", spec=SQUARE)),
    (rl.regions, dict(spec=SQUARE)),
    (rl.infer_spec, dict(tensors=WEIGHTS, layout="torch", prefix="", **HINTS)),
    (rl.pack, dict(source=WEIGHTS, spec=SQUARE, layout="torch", prefix="", **HINTS,
                   dtype="float32", exact=True, out=None, kind="weights")),
    (rl.unpack, dict(flat=FLAT, spec=SQUARE, to="keras", dtype="float32", exact=False,
                     out=None, kind="weights")),
    (rl.convert, dict(source=WEIGHTS, spec=SQUARE, layout="torch", to="onnx", prefix="", **HINTS,
                      dtype="float32", exact=True, out=None, kind="weights")),
    (rl.check, dict(source=WEIGHTS, spec=SQUARE, layout="torch", to="onnx", prefix="", **HINTS,
                    dtype="float32", kind="weights")),
    (rl.explain, dict(spec=SQUARE, layout="torch", to="onnx", kind="weights")),
    (rl.picture, dict(spec=SQUARE, layout="torch", to="onnx", width=300, kind="weights")),
    (rl.assign, dict(target=torch.nn.RNN(3, 3), tensors=WEIGHTS)),
    (rl.stack, dict(layers=[rl.Weights(WEIGHTS, SQUARE)])),
    (rl.Weights, dict(source=WEIGHTS, spec=SQUARE, layout="torch", prefix="", **HINTS,
                      dtype="float32", kind="weights")),
    (_to, dict(to="keras", dtype="float32", exact=False)),
    (rl.Weights(WEIGHTS, SQUARE).pack, dict(dtype="float32", exact=False)),
    (rl.RNN, dict(source=WEIGHTS, spec=SQUARE, **OPTIONS)),
    (rl.forward, dict(x=X, source=WEIGHTS, spec=SQUARE, **OPTIONS, **CALL)),
    (RNN, dict(x=X, **CALL)),
    (RNN.step, dict(x=X[0], state=H, out=None, h_out=None, c_out=None, stream=None)),
    (RNN.update, dict(source=WEIGHTS, layout="torch", prefix="", dtype="float32", stream=None)),
    (rl.set_num_threads, dict(n=0)),
]  # fmt: skip


def outcome(call, **arguments):
    """Return the result as text, None if the call was refused with an error message."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return str(
                call(*arguments.values()) if call is rl.set_num_threads else call(**arguments)
            )
        except (rl.LayoutError, rl.SpecError) as error:
            assert len(str(error)) > 10
            return None


def test_no_argument_is_forgotten():
    for call, arguments in CALLS:
        known = inspect.signature(call).parameters.values()
        wanted = {p.name for p in known if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        assert wanted <= set(arguments), call
        assert outcome(call, **arguments) is not None
    public = {getattr(rl, name) for name in rl.__all__ if callable(getattr(rl, name))}
    results = {c for c in public if isinstance(c, type)} - {rl.Spec, rl.Weights, rl.RNN}
    of_files = {rl.load, rl.save, rl.convert_file, rl.verify, rl.diagnose, rl.identify}
    without = {rl.layouts, rl.cpu_tier, rl.num_threads, rl.set_cudnn}
    assert public - results - of_files - without == {call for call, _ in CALLS} & public


@pytest.mark.parametrize(
    "call, arguments", CALLS, ids=[getattr(call, "__qualname__", str(call)) for call, _ in CALLS]
)
def test_every_argument_at_every_rank(call, arguments):
    """An array is refused where none is expected; one of rank 0 counts as its number."""
    for name, value in itertools.product(arguments, arrays_of_every_rank()):
        found = outcome(call, **{**arguments, name: value})
        if value.ndim == 0:
            number = value.item() if name != "out" else value
            assert found in (None, outcome(call, **{**arguments, name: number})), (name, value)
        else:
            assert found is None, (name, value)


@pytest.mark.parametrize(
    "layout", [name for name, info in rl.layouts().items() if SQUARE.cell in info["cells"]]
)
def test_every_tensor_at_every_rank(layout):
    """As a source and as out: accepted only if dtype and shape are right."""
    shapes = rl.describe(SQUARE, layout)
    flat = layout == "cudnn"
    for name, value in ((name, value) for name in shapes for value in arrays_of_every_rank()):
        right = value.dtype == "f4" and value.shape == shapes[name]
        source = {n: np.ones(s, "f4") for n, s in shapes.items()} | {name: value}
        source = value if flat else source
        assert (outcome(rl.convert, source=source, spec=SQUARE, layout=layout, to="onnx")
                is not None) == right  # fmt: skip
        out = {n: np.empty(s, "f4") for n, s in shapes.items()} | {name: value}
        before = value.tobytes()
        done = outcome(rl.convert, source=FLAT, spec=SQUARE, to=layout, out=value if flat else out)
        assert (done is not None) == right and (right or value.tobytes() == before)


# ------------------------------------------ tensors of torch: subclasses, quantized, without values


LSTM = rl.Spec("lstm", 5, 7)
TENSORS = normal_weights("torch", LSTM)
TORCH = {name: torch.from_numpy(w) for name, w in TENSORS.items()}


class Owned(torch.Tensor):
    """A user's subclass of Tensor."""


class OwnedParameter(torch.nn.Parameter):
    """A user's subclass of Parameter."""


@pytest.mark.parametrize("kind", [Owned, OwnedParameter])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("grad", [False, True])
def test_a_subclass_of_tensor(kind, dtype, grad):
    plain = {n: w.to(dtype) for n, w in TORCH.items()}
    owned = {n: w.clone().as_subclass(Owned) for n, w in plain.items()}
    if kind is OwnedParameter:
        owned = {n: OwnedParameter(w.clone()) for n, w in plain.items()}
    for tensor in owned.values():
        tensor.requires_grad_(grad)
    assert same_bits(rl.pack(owned), rl.pack(plain))


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(28, 5)


ONES = torch.ones(28, 5)


@pytest.mark.parametrize("make, text", [
    (lambda: ONES.to(torch.float8_e4m3fn),
     r"weight_ih_l0: dtype float8_e4m3fn, need one of float16.*multiply.*scale"),
    (lambda: np.ones((28, 5), ml_dtypes.float8_e4m3fn), "dtype float8_e4m3fn, need one of.*scale"),
    (fake, "weight_ih_l0 is a fake tensor: it has a shape but no values"),
    (lambda: torch.nested.nested_tensor([ONES] * 2), "weight_ih_l0 is a nested tensor.*.unbind"),
    (lambda: torch.nested.nested_tensor([ONES] * 2, layout=torch.jagged),
     "weight_ih_l0 is a nested tensor.*its .unbind"),
    (lambda: ONES.to("meta"), "weight_ih_l0 is on the meta device"),
    (lambda: Owned(ONES.to("meta")), "weight_ih_l0 is on the meta device"),
    (torch.nn.parameter.UninitializedParameter,
     "weight_ih_l0 is uninitialized: call its lazy module once"),
    (lambda: ONES.to(torch.complex64).conj(), "dtype complex64, need one of"),
    (lambda: ONES.to(torch.uint16), "dtype uint16, need one of"),
    (lambda: ONES.to_sparse(), "is a sparse_coo tensor"),
    (lambda: torch.quantize_per_tensor(ONES, 1, 0, torch.qint8), "is a quantized tens"),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_tensors_that_are_not_arrays_of_floats(make, text):
    with pytest.raises(rl.LayoutError, match=text):
        rl.pack(TORCH | {"weight_ih_l0": make()})


def test_a_tensor_inside_vmap():
    """functorch's wrappers have no values of their own."""

    def packed(w):
        return torch.from_numpy(rl.pack(TORCH | {"weight_ih_l0": w}))

    with pytest.raises(rl.LayoutError, match=r"weight_ih_l0 .*has no array of its own"):
        torch.func.vmap(packed)(torch.ones(2, 28, 5))


# --------------------------------------------------------------------------- quantized modules


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [torch.nn.LSTM, torch.nn.GRU, torch.nn.LSTMCell, torch.nn.RNNCell])
def test_a_quantized_module(make):
    model = torch.nn.ModuleDict({"rnn": make(5, 7)})
    quantized = torch.ao.quantization.quantize_dynamic(model, {make}, dtype=torch.qint8)
    assert type(quantized["rnn"]).__module__.startswith("torch.ao.nn.quantized")
    with pytest.raises(rl.LayoutError) as error:
        rl.pack(quantized["rnn"])
    text = str(error.value)
    assert f"torch.ao.nn.quantized.dynamic.{make.__name__}" in text
    assert "pass the module that it was quantized from" in text
    assert "is not an nn.LSTM" not in text
    rl.pack(model["rnn"], cell="rnn_tanh" if make is torch.nn.RNNCell else None)
