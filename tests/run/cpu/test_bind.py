"""RNN.bind(): a call with fixed arrays has the bits of a call, and reads them when it is made."""

import threading

import numpy as np
import pytest
import torch
from oracles.some import same_bits
from run.cpu.running import BFLOAT16, SMALL, every_kind, flat, inputs, rnn_of, same, small

import rnnlayout as rl

STEPS = {"all": {}, "lengths": {"lengths": [6, 0, 2]}, "mask": {"mask": np.eye(6, 3, dtype=bool)}}


@every_kind
@pytest.mark.parametrize("steps", STEPS)
def test_a_bound_call_is_a_call(spec, steps):
    rnn, (x, state), steps = rnn_of(spec), inputs(spec, batch=3), STEPS[steps]
    call = rnn.bind(x, state, **steps)
    first = call()
    assert same(first, rnn(x, state, **steps))
    x[:] /= 2
    flat((x, state))[1][:] = 0
    again = call()
    assert all(a is b for a, b in zip(flat(first), flat(again), strict=True))
    assert same(again, rnn(x, state, **steps))


@pytest.mark.parametrize("spec", [SMALL, BFLOAT16], ids=str)
def test_batch_first_and_states_of_zeros(spec):
    rnn, x, _, _ = small(spec)
    turned = rl.RNN(rnn._native.weights().view(x.dtype), spec, batch_first=True)
    x = np.ascontiguousarray(x.swapaxes(0, 1))
    assert same(turned.bind(x, lengths=[1, 2, 3])(), turned(x, lengths=[1, 2, 3]))


def test_the_state_moves_on_in_place():
    rnn, x, h, c = small()
    h, c = h.copy(), c.copy()
    y = np.empty((*x.shape[:-1], 7), "f4")
    call = rnn.bind(x, (h, c), out=y, h_out=h, c_out=c)
    expected = rnn(x, rnn(x, (h.copy(), c.copy()))[1])
    call()
    result = call()
    assert same(result, expected) and result[0] is y and result[1][0] is h and result[1][1] is c


def test_lengths_and_masks_are_read_once():
    rnn, x, _, _ = small()
    lengths, mask = np.full(3, 4), np.ones((4, 3), bool)
    calls = rnn.bind(x, lengths=lengths), rnn.bind(x, mask=mask)
    lengths[:], mask[:] = 0, False
    for call in calls:
        assert same(call(), rnn(x))


def test_an_update_reaches_bound_calls():
    rnn, x, _, _ = small()
    call = rnn.bind(x)
    rnn.update(rnn._native.weights() * np.float32(0.5))
    assert same(call(), rnn(x))


def test_tensors_of_torch_are_used_in_place():
    rnn, x, h, c = small()
    x, h, c = map(torch.from_numpy, (x, h, c))
    call = rnn.bind(x, (h, c), h_out=h, c_out=c)
    expected = rnn(x.clone(), (h.clone(), c.clone()))
    y, (h_n, c_n) = call()
    assert isinstance(y, torch.Tensor) and h_n is h and c_n is c
    assert torch.equal(y, expected[0]) and torch.equal(h, expected[1][0])


def test_threads_share_a_bound_call():
    spec = rl.Spec("gru", 40, 50)
    rng = np.random.default_rng(1)
    rnn = rl.RNN(rng.standard_normal(spec.num_params).astype("f4"), spec, batch_first=False)
    x = rng.standard_normal((300, 2, 40)).astype("f4")  # long enough to release the lock
    call = rnn.bind(x)
    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same(call(), rnn(x))


def refuses(text, kind=rl.LayoutError, rnn=None, **changes):
    own, x, h, c = small()
    arguments = {"x": x, "state": (h, c)} | {
        name: change(x, h, c) for name, change in changes.items()
    }
    with pytest.raises(kind, match=text):
        (rnn or own).bind(**arguments)


def test_arrays_that_a_call_would_copy_are_refused():
    place = "cannot be used in place"
    refuses("x is a list, need an array", x=lambda x, h, c: x.tolist())
    refuses(f"x {place}", x=lambda x, h, c: np.repeat(x, 2, -1)[..., ::2])
    refuses(f"x {place}", x=lambda x, h, c: x.astype(">f4"))
    refuses(f"h_0 {place}", state=lambda x, h, c: (np.asfortranarray(h), c))
    refuses(f"c_0 {place}", state=lambda x, h, c: (h, c[:, ::-1]))
    refuses(f"h_out {place}", h_out=lambda x, h, c: np.asfortranarray(h))
    refuses("x is float64, need float32", x=lambda x, h, c: x.astype("f8"))
    refuses("h_0: shape", state=lambda x, h, c: (h[:, :2], c))


def test_outputs_that_share_memory_are_refused():
    refuses("h_out must not share memory with c_0", h_out=lambda x, h, c: c)
    refuses("c_out must not share memory with h_0", c_out=lambda x, h, c: h)
    both = np.zeros((1, 3, 7), "f4")
    refuses("share memory", h_out=lambda x, h, c: both, c_out=lambda x, h, c: both)
    buffer = np.zeros(4 * 3 * 7, "f4")
    refuses("out must not share memory with x", x=lambda x, h, c: buffer[:60].reshape(4, 3, 5),
            out=lambda x, h, c: buffer.reshape(4, 3, 7))  # fmt: skip
    refuses("out must not share memory with h_0",
            state=lambda x, h, c: (buffer[:21].reshape(1, 3, 7), c),
            out=lambda x, h, c: buffer.reshape(4, 3, 7))  # fmt: skip


def test_other_refusals():
    rnn = small()[0]
    for name, value in {"go_backwards": True, "initial_h": np.ones((1, 3, 7)).tolist()}.items():
        weights = rl.Weights(rnn._native.weights(), SMALL)
        weights.config = {name: value}
        refuses(f"bind.. supports no {name}", rl.SpecError, rl.RNN(weights, batch_first=False))
    refuses("stream= is only for RNNs on a GPU", rl.SpecError, stream=lambda x, h, c: 1)
    refuses("both say which steps", lengths=lambda x, h, c: [4] * 3,
            mask=lambda x, h, c: np.ones((4, 3), bool))  # fmt: skip
    refuses("x requires grad", x=lambda x, h, c: torch.tensor(x, requires_grad=True))
    call = rnn.bind(small()[1])
    with pytest.raises(TypeError, match="takes no arguments"):
        call(small()[1])
    with pytest.raises(TypeError):
        type(call)()
    assert same_bits(call()[0], rnn(small()[1])[0])
