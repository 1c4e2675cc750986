"""Threads that share an RNN, that continue while it runs, and that it uses; Ctrl-C; forks."""

import itertools
import sys
import threading

import numpy as np
import pytest
from commands import run
from interpreter_lock import ends_without_the_lock, keeps_the_lock, polls_rarely
from midway import is_interrupted, lets_others_run
from run.cpu.running import SMALL, H, I, inputs, same

import rnnlayout as rl


def test_a_call_beside_an_update_uses_the_old_or_the_new_weights():
    """Long calls and updates release the lock; each call has the bits of one set of weights. The
    threads' calls are of different sizes."""
    spec = rl.Spec("lstm", I, H)
    both = [np.random.default_rng(k).normal(size=spec.num_params).astype("f4") for k in (0, 1)]
    rnn = rl.RNN(both[0], spec)
    calls = [inputs(spec, steps, batch) for steps, batch in ((30, 5), (2, 40), (40, 1))]
    found = [set() for _ in calls]

    def work(x, mine):
        wanted = [rl.RNN(weights, spec)(*x) for weights in both]
        while mine < {0, 1}:  # both were seen, or a mix
            y = rnn(*x)
            mine.add(next((k for k in (0, 1) if same(y, wanted[k])), "a mix"))

    workers = [threading.Thread(target=work, args=args) for args in zip(calls, found, strict=True)]
    for t in workers:
        t.start()
    for n in itertools.count():
        if not any(t.is_alive() for t in workers):
            break
        rnn.update(both[n % 2])
    assert found == [{0, 1}] * 3


LONG = rl.Spec("lstm", 300, 1000)


def call_of(steps):
    """Return a call with half a G operations per step, and what it fills first and last."""
    rnn = rl.RNN(np.full(LONG.num_params, 1e-3, "f4"), LONG)
    x, y = np.ones((steps, 50, 300), "f4"), np.empty((steps, 50, 1000), "f4")
    return lambda: rnn(x, out=y), y[0, 0, 0, ...], y[-1, -1, -1, ...]


@pytest.fixture(scope="module")
def long_call():
    return call_of(200)


@pytest.mark.parametrize("n", [1, 2])
def test_ctrl_c_ends_a_call(long_call, threads, n):
    threads(n)
    assert is_interrupted(*long_call)
    call, _, last = long_call
    call()  # and the next call works
    assert not np.isnan(last)


def test_other_threads_run_meanwhile(long_call):
    assert lets_others_run(*long_call)


def test_a_call_outside_the_main_thread_does_not_ask_for_the_lock(threads):
    threads(1)  # another one would fill the last element
    assert ends_without_the_lock(*call_of(40))


@pytest.mark.long
@pytest.mark.parametrize("n", [1, 2])
def test_a_call_polls_rarely(long_call, threads, n):
    threads(n)
    assert polls_rarely(long_call[0])


# Calls of microseconds: other threads would keep the lock for 5 ms.
MIDDLE = rl.Spec("lstm", 100, 128)


@pytest.mark.parametrize("spec", [SMALL, MIDDLE], ids=str)
def test_short_calls_keep_the_lock(spec):
    weights, x = np.zeros(spec.num_params, "f4"), np.zeros((7, spec.input_size), "f4")
    rnn = rl.RNN(weights, spec)
    for call in (lambda: rl.RNN(weights, spec), lambda: rnn.step(x[0]), lambda: rnn(x),
                 lambda: rl.forward(x[:1], weights, spec)):  # fmt: skip
        call()  # the first one imports
        assert keeps_the_lock(call)


# A call lets a handler run after 50 ms, which forks in its middle. The parent's call goes on; the
# child's ends with the same numbers, or with an error if its threads exist in the parent only.
FORK = """
import os, signal, sys
import numpy as np
import rnnlayout as rl
rl.set_num_threads(threads := int(sys.argv[1]))
spec = rl.Spec("lstm", 300, 512)
rnn = rl.RNN(np.random.default_rng(0).normal(0, 0.03, spec.num_params).astype("f4"), spec)
x, y = np.ones((500, 8, 300), "f4"), np.empty((500, 8, 512), "f4")  # shared: few rows
wanted, pid, text = rnn(x)[0], None, ""

def fork(*_):
    global pid
    if not np.isnan(y[0, 0, 0]) and np.isnan(y[-1, -1, -1]):
        pid = os.fork()

signal.signal(signal.SIGALRM, fork)
while pid is None:
    y[...] = np.nan
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    try:
        rnn(x, out=y)
    except RuntimeError as error:
        text = str(error)
assert "forked during this call" in text if text else np.array_equal(y, wanted)
assert np.array_equal(rnn(x)[0], wanted)  # the next call works
if pid == 0:
    os._exit(threads == 1 and text != "")
assert text == "" and os.waitpid(pid, 0)[1] == 0
"""


@pytest.mark.parametrize("n", [1, 2])
def test_a_handler_that_forks(n):
    run([sys.executable, "-c", FORK, n], timeout=1500)


def test_the_number_of_threads(threads):
    """c/check_team.c asks for more."""
    threads(0)
    default = rl.num_threads()
    for n, found in ((3, 3), (0, default), (2, 2), (-(2**70), default)):
        threads(n)
        assert rl.num_threads() == found
    threads(2**70)  # as many as possible
    assert rl.num_threads() >= default >= 1
    for wrong in (1.5, "2", None):
        with pytest.raises(rl.SpecError, match=r"n is a <class '\w+'>, need a whole number"):
            rl.set_num_threads(wrong)
