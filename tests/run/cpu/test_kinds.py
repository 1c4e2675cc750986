"""Results are of the kind of x, in the memory that the call has written."""

import gc
import sys
import tracemalloc
import weakref

import numpy as np
import pytest
import torch
from oracles.bits import DTYPES
from oracles.some import same_bits
from run.cpu.running import BFLOAT16, SMALL, flat, small
from sources.awkward import Converts, Interface

import rnnlayout as rl
from rnnlayout._run import call_arrays

TORCH = {name: getattr(torch, name) for name in DTYPES}


def tensor(a):
    """Return a tensor with the same bits."""
    if a.dtype.name == "bfloat16":
        return torch.from_numpy(a.view("i2").copy()).view(torch.bfloat16)
    return torch.from_numpy(a.copy())


def bits(a):
    a = a.view(torch.int16) if a.dtype == torch.bfloat16 else a
    return a.numpy().tobytes()


def test_arrays_of_jax_on_the_host_are_read():
    from jax.numpy import asarray

    rnn, x, h, c = small()
    found = flat(rnn(asarray(x), (asarray(h), asarray(c)), lengths=asarray([4, 0, 2])))
    wanted = flat(rnn(x, (h, c), lengths=[4, 0, 2]))
    assert all(map(same_bits, found, wanted)) and {type(a) for a in found} == {np.ndarray}


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_in_tensors_out(dtype):
    rnn, x, h, c = small(SMALL.replace(dtype=dtype))
    for lengths in (None, [4, 0, 2]):
        wanted = flat(rnn(x, (h, c), lengths=lengths))
        found = flat(rnn(tensor(x), (tensor(h), tensor(c)), lengths=lengths))
        for a, b in zip(found, wanted, strict=True):
            assert type(a) is torch.Tensor and a.dtype == TORCH[dtype] and a.shape == b.shape
            assert not a.requires_grad and a.device.type == "cpu" and bits(a) == b.tobytes()
    step = flat(rnn.step(tensor(x[0]), (tensor(h), tensor(c))))
    wanted = flat(rnn.step(x[0], (h, c)))
    assert [bits(a) for a in step] == [b.tobytes() for b in wanted]
    wide = flat(rnn(tensor(x).float())) if dtype in ("float16", "bfloat16") else []
    assert all(a.dtype == torch.float32 for a in wide)
    gru = rl.Spec("gru", 5, 7, dtype=dtype)
    y, last = rl.forward(tensor(x), np.zeros(gru.num_params, x.dtype), gru)
    assert (type(y), type(last)) == (torch.Tensor, torch.Tensor)


def test_bfloat16_tensors_do_not_need_ml_dtypes(monkeypatch):
    rnn, x, h, c = small(BFLOAT16)
    wanted = flat(rnn(x, (h, c)))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(rl.LayoutError, match="ml_dtypes, which is not installed"):
        rnn(x, (h, c))
    found = flat(rnn(tensor(x), (tensor(h), tensor(c))))
    assert [bits(a) for a in found] == [b.tobytes() for b in wanted]


class Marked(torch.Tensor):
    """A user's class of tensors."""


def test_the_kind_of_x_decides():
    rnn, x, h, c = small()
    wanted = flat(rnn(x, (h, c)))
    tensors = [tensor(a) for a in (x, h, c)]
    calls = {
        torch.Tensor: [(tensors[0], (h, c)), (tensors[0], (tensors[1], c)),
                       (tensors[0].as_subclass(Marked), (h, c))],
        np.ndarray: [(x, tuple(tensors[1:])), (x, (h, tensors[2])), (Converts(x), (h, c)),
                     (Interface(x), tuple(tensors[1:]))],
    }  # fmt: skip
    for kind, given in calls.items():
        for call in given:
            found = flat(rnn(*call))
            assert {type(a) for a in found} == {kind}
            assert all(map(same_bits, map(np.asarray, found), wanted))


def test_tensors_are_not_copied():
    """A call allocates the memory of its results and nothing of the size of x or y."""
    spec = rl.Spec("gru", 400, 300)
    rnn = rl.RNN(np.zeros(spec.num_params, "f4"), spec)
    x = torch.zeros(500, 1, 400)
    rnn(x)
    tracemalloc.start()
    try:
        y, _ = rnn(x)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    nbytes = 4 * y.numel()
    assert nbytes <= peak < nbytes + 100_000 < 4 * x.numel()


# --------------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize("k, name", [(0, "x"), (1, "h_0"), (2, "c_0")])
def test_a_tensor_that_requires_grad_is_refused(k, name):
    """Unless torch records nothing. That the repair works: hints/calls.py."""
    rnn, *arrays = small()
    given, wanted = [tensor(a) for a in arrays], flat(rnn(arrays[0], tuple(arrays[1:])))
    given[k] = torch.nn.Parameter(given[k])
    x, *state = given
    for call in (lambda: rnn(x, tuple(state)), lambda: rnn.step(x[0], tuple(state)),
                 lambda: rnn(arrays[0] if k else x, tuple(state))):  # fmt: skip
        with pytest.raises(rl.LayoutError, match=f"{name} requires grad"):
            call()
    with torch.no_grad():
        found = flat(rnn(x, tuple(state)))
    assert [bits(a) for a in found] == [b.tobytes() for b in wanted]


# ------------------------------------------------------------------------------------- the object


def test_its_sizes_and_a_weak_reference():
    spec = rl.Spec("lstm", 5, 7, 3, True, 4)
    rnn = rl.RNN(np.zeros(spec.num_params, "f4"), spec)
    sizes = (rnn.input_size, rnn.hidden_size, rnn.num_layers, rnn.num_directions, rnn.proj_size)
    assert sizes == (5, 7, 3, 2, 4) and rnn.bidirectional is True
    assert small()[0].bidirectional is False
    found = weakref.ref(rnn)
    assert found() is rnn
    del rnn
    gc.collect()
    assert found() is None


def test_the_modules_of_known_kinds_make_arrays():
    """torch and JAX are real here."""
    import jax.dlpack

    for name in set(call_arrays._MAKERS.values()) - {"cupy"}:
        assert callable(sys.modules[name].from_dlpack)
    assert call_arrays.maker_of(torch.nn.Parameter(torch.ones(1))) == "torch"
    assert call_arrays.maker_of(jax.numpy.ones(1)) == "jax.dlpack"
    assert call_arrays.maker_of(np.ones(1)) is None
