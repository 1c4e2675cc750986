"""Tensors that are torch's in an unusual way: subclasses, quantized, without values."""

import ml_dtypes
import numpy as np
import pytest
import torch
from oracles.some import normal_weights, same_bits

import rnnlayout as rl

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
