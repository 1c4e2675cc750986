"""Programs for fake_gpu.py: the memory of results, and when it is free again."""

import gc
import os

import pytest
from run.gpu.calls import Tensor
from run.gpu.exporters import Exporter
from run.gpu.fake_gpu import LSTM, Device, flat, inputs, on_device, weights_of
from run.gpu.on_gpu_captures import capture
from run.gpu.played import played

import rnnlayout as rl


def in_the_order_of_a_stream():
    """Tensors that are dropped in a loop: nothing waits for the device, nothing races."""
    gpu, d = rl.RNN(weights_of(LSTM), LSTM, device="cuda"), Device()
    with played("torch", Tensor) as Array:
        x = on_device(d, inputs(LSTM)[0], Array)
        for lengths in (None, range(4, 1, -1)):
            gpu(x, lengths=lengths)
            gc.collect()

            def loop(lengths=lengths):
                for _ in range(3):
                    found = gpu(x, lengths=lengths)
                    del found
                    gc.collect()

            made = d.calls(loop)
            # each call has results and a workspace
            assert made.count("cuMemAllocAsync") == made.count("cuMemAllocFromPoolAsync") == 3
            assert made.count("cuMemFreeAsync") == 6
            waits = {"cuMemAlloc_v2", "cuMemFree_v2", "cuStreamSynchronize", "cuEventSynchronize"}
            assert not waits.intersection(made), made
    d.sync()


def waits_to_free(gpu, d, package):
    with played(package, Tensor) as Array:
        x = on_device(d, inputs(LSTM)[0], Array)
        gpu(x)
        gc.collect()
        made = d.calls(lambda: (gpu(x), gc.collect()))
        return made.count("cuMemAlloc_v2") == made.count("cuMemFree_v2") > 0


def for_other_libraries():
    """Their streams may be gone when the result is dropped: to free it waits for the device."""
    gpu, d = rl.RNN(weights_of(LSTM), LSTM, device="cuda"), Device()
    assert not waits_to_free(gpu, d, "torch")
    assert waits_to_free(gpu, d, "cupy") and waits_to_free(gpu, d, "jaxlib")


def without_pools():
    os.environ["FAKE_CUDA_POOLS"] = "0"
    gpu, d = rl.RNN(weights_of(LSTM), LSTM, device="cuda"), Device()
    assert waits_to_free(gpu, d, "torch")


def beside_a_capture():
    """A tensor that ends while its stream is captured is freed with the next one."""
    gpu, d = rl.RNN(weights_of(LSTM), LSTM, device="cuda"), Device()
    x, _ = inputs(LSTM)
    with played("torch", Tensor) as Array:
        before = d.live("memory")
        found = gpu(on_device(d, x, Array))
        assert d.live("memory") == before + 1
        with capture(d, flags=0):  # the legacy default stream waits for it
            del found
            gc.collect()
            assert d.live("memory") == before + 1
        gpu(on_device(d, x, Array))
        gc.collect()
        assert d.live("memory") == before


def new_results_in_a_capture():
    """They would not live as long as the graph: outputs are asked for, and the capture goes on."""
    cpu, gpu = (rl.RNN(weights_of(LSTM), LSTM, device=d) for d in ("cpu", "cuda"))
    d = Device()
    x, _ = inputs(LSTM)
    right = cpu(x)
    outs = dict(zip(("out", "h_out", "c_out"), (on_device(d, a * 0) for a in flat(right)),
                    strict=True))  # fmt: skip
    for package, kind in (("torch", Tensor), ("cupy", Exporter)):
        with played(package, kind) as Array:
            given = on_device(d, x, Array)
            gpu(given)
            with capture(d) as side:
                for lengths in (None, range(4, 1, -1)):
                    with pytest.raises(rl.SpecError, match="pass all outputs: out=, h_out= and"):
                        gpu(given, lengths=lengths, stream=side)
            gpu(given, stream=side, **outs)
            d.sync(side)
            with capture(d) as side:
                with pytest.raises(rl.SpecError, match="pass all outputs"):
                    gpu(given, stream=side, out=outs["out"])
                gpu(given, stream=side, **outs)
