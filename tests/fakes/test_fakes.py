"""What the fakes find that the real libraries do not: breaking a rule ends the process."""

import re
import subprocess
import sys

import pytest

BEGIN = """
import ctypes, os, threading
from ctypes import byref, c_char_p, c_size_t, c_uint, c_ulonglong, c_void_p

cuda = ctypes.CDLL("libcuda.so.1")

def call(name, *arguments):
    assert getattr(cuda, name)(*arguments) == 0, name

def made(name, *arguments, kind=c_void_p):
    one = kind()
    call(name, byref(one), *arguments)
    return one

def stream(flags=1):
    return made("cuStreamCreate", c_uint(flags))

def alloc(nbytes):
    return made("cuMemAlloc_v2", c_size_t(nbytes), kind=c_ulonglong)

def fill(at, nbytes, stream):
    call("cuMemsetD8Async", at, ctypes.c_ubyte(7), c_size_t(nbytes), stream)

def read(at, nbytes):
    cuda.fake_read(at, ctypes.create_string_buffer(nbytes), c_size_t(nbytes))

call("cuInit", c_uint(0))
context = made("cuDevicePrimaryCtxRetain", 0)
call("cuCtxPushCurrent_v2", context)
one, two, a = stream(), stream(), alloc(64)
"""
EVENT = """
event = made("cuEventCreate", c_uint(2))
call("cuEventRecord", event, one)
call("cuStreamWaitEvent", two, event, c_uint(0))
"""
CAPTURE = "call('cuStreamBeginCapture_v2', one, 1)\n"
# End the capture, call a function that destroys something, and launch the graph.
LAUNCH = """
graph = c_void_p()
call("cuStreamEndCapture", one, byref(graph))
exec = made("cuGraphInstantiateWithFlags", graph, c_ulonglong(0))
call("{}", {})
call("cuGraphLaunch", exec, one)
"""
HANDLE = "handle = made('cudnnCreate')\n"
RACE = "race: the target of cuMemsetD8Async writes .* on stream 0, and nothing orders"
# Code -> how it ends; None: well.
RULES = {
    "two streams": ("fill(a, 64, one); fill(a, 64, two)", RACE),
    "an event": (f"fill(a, 64, one){EVENT}fill(a, 64, two)", None),
    "an event before": (f"{EVENT}fill(a, 64, one); fill(a, 64, two)", RACE),
    "a wait": ("fill(a, 64, one); call('cuStreamSynchronize', one); fill(a, 64, two)", None),
    "a legacy stream": ("fill(a, 64, one); fill(a, 64, None)", RACE),
    "a legacy stream that waits": ("fill(a, 64, stream(0)); fill(a, 64, None)", None),
    "a host that reads": ("fill(a, 64, one); read(a, 64)", "race: the memory of the host reads"),
    "a host that waits": ("fill(a, 64, one); call('cuStreamSynchronize', one); read(a, 64)", None),
    "a free waits": ("fill(a, 64, one); call('cuMemFree_v2', alloc(4)); read(a, 64)", None),
    "too far": ("fill(a, 65, one)", "65 bytes are used, the block has 64"),
    "freed": ("call('cuMemFree_v2', a); fill(a, 64, one)", "was freed already"),
    "of the host": ("fill(c_ulonglong(id(a)), 4, one)", "is not device memory"),
    "freed twice": ("call('cuMemFree_v2', a); call('cuMemFree_v2', a)", "was freed already"),
    "destroyed": ("call('cuStreamDestroy_v2', one); fill(a, 4, one)", "was destroyed already"),
    "a fork": ("os.fork() or alloc(4); os._exit(os.wait()[1] >> 8)", "in a child of the process"),
    "no context": (f"{HANDLE}call('cuCtxPopCurrent_v2', None)\n"
                   "call('cudnnSetStream', handle, one)", "whose context is not current"),
    "two threads in a handle": (
        f"{HANDLE}os.environ['FAKE_CUDNN_LINGER'] = '{60 * 10**6}'\n"  # ends when they meet
        "thread = threading.Thread(target=lambda: cuda.cudnnSetStream(handle, None))\n"
        "thread.start(); call('cudnnSetStream', handle, None)", "another thread is in a call"),
    "an allocation in a capture": (f"{CAPTURE}alloc(4)", "cuMemAlloc_v2 during a capture"),
    "a wait in a capture": (f"{CAPTURE}call('cuStreamSynchronize', two)", "during a capture"),
    "relaxed": (f"{CAPTURE}mode = ctypes.c_int(2)\n"
                "call('cuThreadExchangeStreamCaptureMode', byref(mode)); alloc(4)", None),
    "a legacy stream beside": ("call('cuStreamBeginCapture_v2', stream(0), 1); fill(a, 4, None)",
                               "on the legacy stream while a blocking stream is capturing"),
    "a fork of a capture": (f"{CAPTURE}{EVENT}call('cuStreamEndCapture', one, byref(c_void_p()))",
               "a stream of the capture was not joined"),
    "a graph and freed memory": (
        f"{CAPTURE}fill(a, 64, one){LAUNCH.format('cuMemFree_v2', 'a')}", "was freed already"),
    "a graph and freed memory of the host": (
        f"host = c_void_p(); call('cuMemHostAlloc', byref(host), c_size_t(64), 0)\n{CAPTURE}"
        "call('cuMemcpyHtoDAsync_v2', a, host, c_size_t(64), one)"
        f"{LAUNCH.format('cuMemFreeHost', 'host')}", "memory of the host was freed already"),
    "a destroyed graph": (f"{CAPTURE}fill(a, 64, one){LAUNCH.format('cuGraphExecDestroy', 'exec')}",
                          "the graph_exec 0x[0-9a-f]+ was destroyed already"),
    "memory of the host in a capture": (
        f"{CAPTURE}call('cuMemcpyHtoDAsync_v2', a, b'text', c_size_t(4), one)", "is not pinned"),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_a_rule(fakes, name):
    code, text = RULES[name]
    done = subprocess.run([sys.executable, "-c", BEGIN + code], env=fakes.environment(),
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == (86 if text else 0), done.stderr
    assert not text or re.search(f"fake: .*{text}", done.stderr), done.stderr
