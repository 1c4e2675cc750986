"""Threads that share an RNN, that continue while it runs, and that it uses; Ctrl-C."""

import threading

import numpy as np
import pytest
from midway import is_interrupted, lets_others_run
from run.cpu.running import H, I, inputs, rnn_of, same

import rnnlayout as rl


def test_many_threads_share_one_rnn():
    spec = rl.Spec("gru", I, H, 2, True)
    rnn = rnn_of(spec)
    calls = [(inputs(spec, steps, batch)) for steps, batch in ((6, 11), (1, 1), (9, 3), (2, 40))]
    wanted = [rnn(*call) for call in calls]
    wrong = []

    def work(k):
        for n in range(100):
            which = (k + n) % len(calls)
            if not same(rnn(*calls[which]), wanted[which]):
                wrong.append(which)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(5)]
    for t in workers:
        t.start()
    for t in workers:
        t.join()
    assert not wrong


LONG = rl.Spec("lstm", 300, 1000)


@pytest.fixture(scope="module")
def long_call():
    """A call with 100 G operations, and the elements that it fills first and last."""
    rnn = rl.RNN(np.full(LONG.num_params, 1e-3, "f4"), LONG)
    x, y = np.ones((200, 50, 300), "f4"), np.empty((200, 50, 1000), "f4")
    return lambda: rnn(x, out=y), y[0, 0, 0, ...], y[-1, -1, -1, ...]


@pytest.mark.parametrize("n", [1, 2])
def test_ctrl_c_ends_a_call(long_call, threads, n):
    threads(n)
    assert is_interrupted(*long_call)
    call, _, last = long_call
    call()  # and the next call works
    assert not np.isnan(last)


def test_other_threads_run_meanwhile(long_call):
    assert lets_others_run(*long_call)


def test_the_number_of_threads(threads):
    threads(0)
    default = rl.num_threads()
    assert default >= 1
    for n, found in ((1, 1), (3, 3), (0, default), (2, 2), (-5, default), (-(2**70), default)):
        threads(n)
        assert rl.num_threads() == found
    threads(2**70)  # as many as possible
    assert rl.num_threads() >= default
    for wrong in (1.5, "2", None):
        with pytest.raises(rl.SpecError, match=r"n is a <class '\w+'>, need a whole number"):
            rl.set_num_threads(wrong)
