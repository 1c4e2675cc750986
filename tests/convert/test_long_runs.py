"""Long conversions: other threads run meanwhile, and Ctrl-C ends them."""

import threading

import numpy as np
import pytest
from midway import is_interrupted, lets_others_run

import rnnlayout as rl

# 512 MB, transposed: a few hundred milliseconds on any machine.
SPEC = rl.Spec("lstm", 2048, 2048, 4, bias="none")


@pytest.fixture(scope="module")
def conversion():
    """A call, and the elements that it fills first and last."""
    flat = np.zeros(SPEC.num_params, "f4")
    out = {name: np.zeros(shape, "f4") for name, shape in rl.describe(SPEC, "keras").items()}
    first, *_, last = out.values()
    return (
        lambda: rl.unpack(flat, SPEC, to="keras", out=out),
        first[0, 0, ...],
        last[-1, -1, ...],
    )


def test_ctrl_c_ends_a_conversion(conversion):
    assert is_interrupted(*conversion)
    call, _, last = conversion
    call()  # and the next call works
    assert last == 0


def test_other_threads_run_meanwhile(conversion):
    assert lets_others_run(*conversion)


def test_threads_may_share_a_plan():
    spec = rl.Spec("gru", 30, 20, 2, True)
    weights = {n: np.random.default_rng(0).normal(size=s).astype("f4")
               for n, s in rl.describe(spec, "torch").items()}  # fmt: skip
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
