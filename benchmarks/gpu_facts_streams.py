"""What cuDNN and the driver do in streams, and beside torch."""

import ctypes
import re
import threading
import time
from ctypes import byref, c_float, c_int, c_uint, c_void_p
from pathlib import Path

from gpu_arrays import torch_there
from gpu_ask import fact, new
from gpu_device import Clock

import rnnlayout as rl


def in_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@fact(legacy=0, per_thread=0)
def streams(gpu):
    """The status of cudnnSetStream, and its time in microseconds."""
    gpu.new_handle()
    stream = gpu.stream()

    def us(one, other):
        began = time.perf_counter()
        for _ in range(500):
            gpu.cudnn("cudnnSetStream", gpu.handle, one)
            gpu.cudnn("cudnnSetStream", gpu.handle, other)
        return round(1e3 * (time.perf_counter() - began), 3)

    call = gpu.library._library.cudnnSetStream
    return {"legacy": call(gpu.handle, None), "per_thread": call(gpu.handle, c_void_p(2)),
            "unchanged_us": us(stream, stream), "changed_us": us(stream, None)}  # fmt: skip


@fact()
def stream_numbers_come_again(gpu):
    """Whether a new stream can have the number of a destroyed one."""
    streams = [gpu.stream().value for _ in range(2)]
    gpu.cu("cuStreamDestroy_v2", c_void_p(streams[0]))
    return {"again": gpu.stream().value in streams}


@fact(waits=True)
def legacy_stream_waits_for_threads(gpu):
    """The legacy stream waits for another thread's per-thread stream, as rnnlayout assumes."""
    at, host = gpu.alloc(4), gpu.pinned(4)
    gpu.write(at, bytes(4))

    def work():
        gpu.cu("cuCtxPushCurrent_v2", gpu.context)
        if hasattr(gpu.driver, "cuLaunchHostFunc"):  # the fakes delay work themselves
            usleep = ctypes.cast(ctypes.CDLL(None).usleep, c_void_p)
            gpu.cu("cuLaunchHostFunc", c_void_p(2), usleep, c_void_p(200_000))
        gpu.memset(at, 7, 4, c_void_p(2))

    in_a_thread(work)
    gpu.download(host, at, 4)
    gpu.sync()
    return {"waits": ctypes.string_at(host, 4) == b"\7\7\7\7"}


@fact()
def stream_of_another_context(gpu):
    gpu.new_handle()
    if not hasattr(gpu.driver, "cuCtxCreate_v2"):
        return {"status": None}
    other = c_void_p()
    gpu.cu("cuCtxCreate_v2", byref(other), c_uint(0), c_int(0))
    stream = gpu.stream()
    gpu.cu("cuCtxPopCurrent_v2", None)
    return {"status": gpu.library._library.cudnnSetStream(gpu.handle, stream)}


class Forwarded:
    """A tensor by DLPack alone: results are then DeviceArrays, not tensors."""

    def __init__(self, tensor):
        self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__


@fact(context_is_left=True, one_context=True, one_cudnn=True, wrong_after_a_race=0)
def beside_torch(gpu):
    """rl.RNN in one process with torch. Results are passed to a torch stream and dropped at once:
    their memory must not be overwritten while that stream still reads it."""
    torch, where, missing = torch_there()
    if where != "cuda":
        return {"left_out": missing}
    x = Forwarded(torch.ones(20, 4, 64, device="cuda"))
    before = gpu.calls.current()
    rnn = rl.RNN(new(spec=rl.Spec("gru", 64, 96)).weights, rl.Spec("gru", 64, 96), device="cuda")
    right = torch.from_dlpack(rnn(x)[0]).clone()
    found = {"context_is_left": gpu.calls.current() == before}
    found["one_context"] = before == gpu.context.value
    paths = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()
             if re.search(r"/libcudnn\.so\.\d", line)}  # fmt: skip
    found["one_cudnn"] = len(paths) == 1
    side, bad = torch.cuda.Stream(), torch.zeros((), device="cuda", dtype=torch.int64)
    side.wait_stream(torch.cuda.current_stream())
    for _ in range(1000):
        y = rnn(x)[0]
        with torch.cuda.stream(side):
            bad += (torch.from_dlpack(y) != right).sum()
        del y
    torch.cuda.synchronize()
    return found | {"wrong_after_a_race": bad.item()}


@fact(eager=True, replayed=True)
def torchs_graph(gpu):
    """rl.RNN below torch.cuda.graph(), with results that torch makes there, replayed on another x;
    and without a graph on the same tensors, whose memory torch's allocator gives and takes."""
    torch, where, missing = torch_there()
    if where != "cuda":
        return {"left_out": missing}
    spec = rl.Spec("lstm", 64, 96)
    rnn = rl.RNN(new(spec=spec).weights, spec, device="cuda")
    one, two = (torch.randn(20, 4, 64, device="cuda") for _ in range(2))
    right = [rnn(x)[0].clone() for x in (one, two)]
    wrong = torch.zeros((), device="cuda", dtype=torch.int64)
    for _ in range(200):
        wrong += (rnn(one)[0] != right[0]).sum()
    x = one.clone()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, _ = rnn(x)
    same = []
    for given, answer in zip((one, two), right, strict=True):
        x.copy_(given)
        graph.replay()
        same.append(bool((y == answer).all()))
    return {"eager": wrong.item() == 0, "replayed": all(same)}


@fact()
def time_of_an_event(gpu):
    """The device time between two events with nothing between them."""
    clock, took = Clock(gpu.calls), c_float()
    gpu.cu("cuEventRecord", clock.first, None)
    gpu.cu("cuEventRecord", clock.last, None)
    gpu.cu("cuEventSynchronize", clock.last)
    gpu.cu("cuEventElapsedTime", byref(took), clock.first, clock.last)
    return {"us": round(1e3 * took.value, 2)}
