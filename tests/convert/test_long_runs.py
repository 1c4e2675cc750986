"""Long conversions: other threads run meanwhile, and Ctrl-C ends them."""

import numpy as np
import pytest
from interpreter_lock import ends_without_the_lock, keeps_the_lock, polls_rarely
from midway import is_interrupted, lets_others_run

import rnnlayout as rl

# 512 MB, transposed: a few hundred milliseconds on any machine.
SPEC = rl.Spec("lstm", 2048, 2048, 4, bias="none")


def conversion_of(spec):
    """Return a call, and the elements that it fills first and last."""
    flat = np.zeros(spec.num_params, "f4")
    out = {name: np.zeros(shape, "f4") for name, shape in rl.describe(spec, "keras").items()}
    first, *_, last = out.values()
    return (lambda: rl.unpack(flat, spec, to="keras", out=out), first[0, 0, ...], last[-1, -1, ...])


def test_ctrl_c_ends_a_long_conversion_and_other_threads_run_meanwhile():
    call, first, last = conversion_of(SPEC)
    assert is_interrupted(call, first, last)
    call()  # and the next call works
    assert last == 0
    assert lets_others_run(call, first, last)


@pytest.mark.long
def test_a_conversion_polls_rarely():
    assert polls_rarely(conversion_of(SPEC)[0])


def test_a_conversion_outside_the_main_thread_does_not_ask_for_the_lock():
    """Of 256 MB: long enough to ask."""
    assert ends_without_the_lock(*conversion_of(rl.Spec("lstm", 2048, 2048, 2, bias="none")))


def test_a_short_conversion_keeps_the_lock():
    spec = rl.Spec("gru", 30, 20)
    flat = np.zeros(spec.num_params, "f4")
    rl.unpack(flat, spec, to="keras")
    assert keeps_the_lock(lambda: rl.unpack(flat, spec, to="keras"))
