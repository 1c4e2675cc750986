"""Threads that share an RNN, that go on while it runs, and that it runs on; Ctrl-C."""

import _thread
import signal
import threading
import time

import numpy as np
import pytest
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
    """Some seconds of work."""
    rnn = rl.RNN(np.full(LONG.num_params, 1e-3, "f4"), LONG)
    x = np.ones((10, 50, 300), "f4")
    rnn(x)
    start = time.perf_counter()
    rnn(x)
    once = time.perf_counter() - start
    x = np.ones((int(2 / once * 10), 50, 300), "f4")
    return rnn, x


@pytest.mark.parametrize("n", [1, 2])
def test_ctrl_c_is_answered_within_200_ms(long_call, threads, n):
    rnn, x = long_call
    threads(n)
    sent = []

    def interrupt():
        time.sleep(0.5)
        sent.append(time.perf_counter())
        _thread.interrupt_main(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        rnn(x)
    answered = time.perf_counter() - sent[0]
    thread.join()
    assert answered < 0.2
    rnn(x[:1])  # and the next call works


def test_other_threads_run_meanwhile(long_call):
    rnn, x = long_call
    ticks, done = [], threading.Event()

    def count():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    begin = time.perf_counter()
    rnn(x[: len(x) // 8])
    end = time.perf_counter()
    done.set()
    thread.join()
    # with the lock held there would be two at the most: one before it is taken, one after
    assert len([t for t in ticks if begin < t < end]) > 5


def test_the_number_of_threads(threads):
    threads(0)
    default = rl.num_threads()
    assert default >= 1
    for n, found in ((1, 1), (3, 3), (0, default), (2, 2), (-5, default), (-(2**70), default)):
        threads(n)
        assert rl.num_threads() == found
    threads(2**70)  # as many as there may be
    assert rl.num_threads() >= default
    for wrong in (1.5, "2", None):
        with pytest.raises(rl.SpecError, match=r"n is a <class '\w+'>, need a whole number"):
            rl.set_num_threads(wrong)
