"""Programs for fake_gpu.py: lifetimes, failures, many threads."""

import gc
import itertools
import pickle
import sys
import threading
from ctypes import c_longlong

from run.gpu.exporters import Consumed
from run.gpu.fake_gpu import LSTM, Device, assert_near, inputs, on_device, weights_of

import rnnlayout as rl


def errors():
    """Each call of both libraries fails in turn: it raises an error, and the next call works.

    Not those that free the results: they can only fail if the device is lost."""
    cpu, gpu = (rl.RNN(weights_of(LSTM), LSTM, device=d) for d in ("cpu", "cuda"))
    d = Device()
    x, state = inputs(LSTM)
    right = cpu(x, state)
    given = on_device(d, x)
    least = {"host": 5, "lengths": 5, "device": 3, "new": 8}

    ways = {
        "host": lambda: gpu(x, state),
        "lengths": lambda: (gpu(x, state, lengths=[1, 4, 2]), gpu(x, state, lengths=[3, 3, 3])),
        "device": lambda: gpu(given),
        "new": lambda: rl.RNN(weights_of(LSTM), LSTM, device="cuda"),
    }
    for name, way in ways.items():
        way()
        gc.collect()
        before, count, failed = d.all_live(), len(d.calls(way)), set()
        for k, (cuda, cudnn) in itertools.product(range(1, count + 1), ((801, 5000), (2, 4000))):
            d.driver.fake_fail(c_longlong(k), cuda, cudnn)
            results = None
            try:
                results = way()
            except rl.CudnnError as error:
                assert error.status in (cuda, cudnn), (name, k, error)
                assert error.call.startswith("cu") and error.call in str(error), (name, k, error)
                again = pickle.loads(pickle.dumps(error))
                assert (again.status, again.call) == (error.status, error.call)
                failed.add(error.call)
            except MemoryError as error:
                assert cuda == 2 and "memory" in str(error), (name, k, error)
            d.driver.fake_fail(c_longlong(0), 0, 0)
            del results
        gc.collect()
        assert len(failed) >= least[name], (name, failed)
        now = d.all_live()
        assert now["pushed"] == 0 and now["memory"] <= before["memory"], (name, now, before)
        assert_near(gpu(x, state), right, LSTM)


def threads():
    """Many simultaneous calls of one RNN, on host and device arrays, while it is updated."""
    cpu, gpu = (rl.RNN(weights_of(LSTM), LSTM, device=d) for d in ("cpu", "cuda"))
    d = Device()
    x, state = inputs(LSTM)
    right, wrong = cpu(x, state), []

    def work():
        try:
            mine = on_device(d, x)
            firsts = tuple(on_device(d, a) for a in state)
            for _ in range(10):
                assert_near(gpu(x, state), right, LSTM)
                assert_near(gpu(mine, firsts), right, LSTM)
        except BaseException as error:
            wrong.append(error)

    running = [threading.Thread(target=work) for _ in range(6)]
    for thread in running:
        thread.start()
    for _ in range(10):
        gpu.update(weights_of(LSTM))
    for thread in running:
        thread.join()
    if wrong:
        raise wrong[0]


def at_exit():
    """An array, an RNN and a consumer's capsule that live to the end of the process."""
    gpu = rl.RNN(weights_of(LSTM), LSTM, device="cuda")
    y, _ = gpu(on_device(Device(), inputs(LSTM)[0]))
    sys.modules["left"] = [gpu, y, Consumed(y.__dlpack__()), y.__dlpack__()]
    sys.exit()
