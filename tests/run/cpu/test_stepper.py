"""A stepper has the bits of one call, reads what RNN.step reads, and says what it does not."""

import threading

import numpy as np
import pytest
import torch
from midway import TRIES
from oracles.bits import DTYPES
from oracles.some import same_bits
from run.cpu.running import KINDS, H, I, T, inputs, rnn_of, rows, same

import rnnlayout as rl


def live(spec):
    """Return an RNN, x of one sequence and a state, and what one call gives for them."""
    rnn, (x, state) = rnn_of(spec), inputs(spec, dtype="float32")
    x, state = np.ascontiguousarray(x[:, 3]), rows(state, 3)
    return rnn, x, state, rnn(x, state)


# c/check_stepper.c asks the same of random RNNs of all kinds.
@pytest.mark.parametrize("spec", [rl.Spec("lstm", I, H), KINDS[2], KINDS[3]], ids=str)
def test_a_stepper_is_one_call(spec):
    rnn, x, state, (wanted, last) = live(spec)
    s, y = rnn.stepper(state), np.empty_like(wanted)
    assert same((wanted, s.state), (wanted, state))
    assert same((np.stack([s(step) for step in x]), s.state), (wanted, last))
    s.state = state
    assert same((np.concatenate([s(x[:2]), s(x[2:2]), s(x[2:])]), s.state), (wanted, last))
    s.state = state
    assert s(x, y) is y and same_bits(y, wanted)
    s.state = state
    assert s(x[0], out=y[1]).base is y and same_bits(y[1], wanted[0])
    s.state = None
    for fresh in (s, rnn.stepper()):
        assert same((fresh(x), fresh.state), rnn(x))


def test_y_may_be_x_and_may_overlap_it():
    rnn = rnn_of(rl.Spec("rnn_tanh", H, H, 2))
    x, _ = inputs(rnn.spec)
    x = np.ascontiguousarray(x[:, 3])
    wanted, _ = rnn(x)
    room = np.empty((T + 1, H), "f4")
    for at in (0, 1):
        room[:T] = x
        rnn.stepper()(room[:T], out=room[at : at + T])
        assert same_bits(room[at : at + T], wanted)


def test_any_array_can_be_read():
    spec = rl.Spec("lstm", I, H)
    rnn, x, state, (wanted, last) = live(spec)
    wide = np.empty((T, 2 * I), "f4")
    wide[:, ::2] = x
    for other in (wide[:, ::2], x.astype(">f4"), x[::-1].copy()[::-1]):
        s = rnn.stepper(state)
        out = np.empty((T, H + 3), "f4")[:, :H]
        assert same((s(other), s.state), (wanted, last))
        s.state = tuple(part.astype(">f4") for part in state)
        assert s(other, out=out) is out
        assert same_bits(np.ascontiguousarray(out), wanted)
    s = rnn.stepper(tuple(torch.tensor(part) for part in state))
    y = s(torch.tensor(x))
    assert isinstance(y, torch.Tensor)
    assert same_bits(y.numpy(), wanted)


def test_a_stepper_keeps_its_weights_and_its_rnn():
    rnn, x, _, _ = live(rl.Spec("gru", I, H))
    wanted, _ = rnn(x)
    s = rnn.stepper()
    rnn.update(np.zeros_like(rnn._native.weights()), layout="cudnn")
    assert same_bits(s(x), wanted)
    s.state = None
    del rnn
    assert same_bits(s(x), wanted)


def test_what_a_stepper_refuses():
    rnn, x, state, _ = live(rl.Spec("lstm", I, H))
    s = rnn.stepper()
    frozen = np.empty((T, H), "f4")
    frozen.flags.writeable = False
    for call, error, text in [
        (lambda: s(x, out=frozen), rl.LayoutError, "out is read-only"),
        (lambda: s(x[:, :2].copy()), rl.LayoutError, rf"x: shape \({T}, 2\), expected \({I},\) or"),
        (lambda: s(x[None]), rl.LayoutError, rf"x: shape \(1, {T}, {I}\)"),
        (lambda: s(x.astype("f8")), rl.LayoutError, "x is float64, need float32"),
        (lambda: s([1.0] * I), rl.LayoutError, "x is a list"),
        (lambda: s(x, out=np.empty((T, H))), rl.LayoutError, "out is float64, need float32"),
        (lambda: s(x, out=np.empty(H, "f4")), rl.LayoutError, r"out: shape \(130,\), expected"),
        (lambda: s(torch.tensor(x, requires_grad=True)), rl.LayoutError, "x requires grad"),
        (lambda: s(), TypeError, r"x and out=: y = s\(x\)"),
        (lambda: s(x, y=x), TypeError, r"x and out=: y = s\(x\)"),
        (lambda: rnn.stepper(state[0]), rl.LayoutError, r"need \(h_0, c_0\)"),
        (lambda: rnn.stepper((state[0][:, :2], state[1])), rl.LayoutError, r"h_0: shape \(1, 2\)"),
        (lambda: rnn_of(rl.Spec("gru", I, H, 1, True)).stepper(), rl.SpecError, "one direction"),
    ]:
        with pytest.raises(error, match=text):
            call()
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del s.state
    for dtype in ("float16", "bfloat16"):  # whose state is float32
        s = rnn_of(rl.Spec("gru", I, H, dtype=dtype)).stepper()
        with pytest.raises(rl.LayoutError, match=f"x is {dtype}, need float32: a stepper"):
            s(x.astype(DTYPES[dtype][0]))
        assert s.state.dtype == "f4"


def test_a_long_call_lets_other_threads_run_and_is_alone():
    """If this thread sees only the end of a call, it is tried again."""
    rnn = rnn_of(rl.Spec("lstm", I, H))
    s, x = rnn.stepper(), np.zeros((100_000, I), "f4")

    def refusal():
        running = threading.Thread(target=lambda: s(x))
        running.start()
        try:
            while running.is_alive():
                _ = s.state
        except RuntimeError as error:
            return str(error)
        finally:
            running.join()

    texts = (refusal() for _ in range(TRIES))
    assert next(filter(None, texts)) == (
        "this stepper is running in another thread: make one per thread"
    )
    assert np.isfinite(s.state[0]).all()
