"""Long conversions: they let other threads run, and stop at Ctrl-C."""

import _thread
import signal
import threading
import time

import numpy as np
import pytest

import rnnlayout as rl

# 512 MB, transposed: a few hundred milliseconds on any machine.
SPEC = rl.Spec("lstm", 2048, 2048, 4, bias="none")
OUT = {}


@pytest.fixture(scope="module")
def flat():
    return np.zeros(SPEC.num_params, "f4")


def convert(flat):
    if not OUT:
        OUT.update({n: np.zeros(s, "f4") for n, s in rl.describe("keras", SPEC).items()})
    rl.unpack(flat, SPEC, layout="keras", out=OUT)


def test_ctrl_c_is_answered_within_200_ms(flat):
    convert(flat)  # first touch of the pages is not what is measured
    start = time.perf_counter()
    convert(flat)
    whole = time.perf_counter() - start
    sent = []

    def interrupt():
        time.sleep(whole / 4)
        sent.append(time.perf_counter())
        _thread.interrupt_main(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        while True:
            convert(flat)
    answered = time.perf_counter() - sent[0]
    thread.join()
    assert answered < 0.2
    convert(flat)  # and the next call works


def test_other_threads_run_meanwhile(flat):
    ticks = []
    done = threading.Event()

    def count():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    begin = time.perf_counter()
    convert(flat)
    end = time.perf_counter()
    done.set()
    thread.join()
    during = [t for t in ticks if begin < t < end]
    # with the lock held there would be two at the most: one before it is taken, one after
    assert len(during) > 5


def test_threads_may_share_a_plan():
    spec = rl.Spec("gru", 30, 20, 2, True)
    weights = {n: np.random.default_rng(0).normal(size=s).astype("f4")
               for n, s in rl.describe("torch", spec).items()}  # fmt: skip
    wanted = rl.pack(weights).tobytes()
    wrong = []

    def work():
        for _ in range(200):
            if rl.pack(weights).tobytes() != wanted:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
