"""The rules that the fakes enforce, their messages, and how a test reads and disturbs the fakes.

Each case is a few lines of Python on fakes/device.py, in a process of its own: breaking a rule ends
the process with FAKE_EXIT.
"""

import os
import re
import shutil
import subprocess
import sys

import pytest
from commands import TESTS

FAKE_EXIT = 86
BEGIN = "import ctypes, os, sys, threading; from fakes.device import *; folder = sys.argv[1]\n"
LSTM = "d = Device(folder); f = d.forward({}).zeros()\n"


def process(folder, code, **environment):
    return subprocess.run(
        [sys.executable, "-c", BEGIN + code, folder],
        cwd=TESTS, env=os.environ | environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def said(folder, code, **environment):
    """Return what the code prints; its process must end well."""
    done = process(folder, code, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# ------------------------------------------------------------- what ends the test; what is broken


WORDS = {
    # memory
    "x NULL": ("f.q['null'] = ['x']; f.run()", "x is NULL"),
    "y NULL": ("f.q['null'] = ['y']; f.run()", "y is NULL"),
    "x of the host": (
        "f.at['x'] = ctypes.addressof(ctypes.create_string_buffer(999)); f.run()",
        "x: .* is not device memory",
    ),
    "weights freed": ("d.free(f.at['weights']); f.run()", "weightSpace: .* was freed already"),
    "hx too small": (
        "f.at['hx'] = d.alloc(71); f.run()",
        "hx: 72 bytes are used, the block has 71",
    ),
    "y too small": (
        "f.shift = f.q['shift']['y'] = 4; f.run()",
        "y: 288 bytes are used, the block has 284",
    ),
    "weights too small": (
        "f.at['weights'] = d.alloc(1247); f.run()",
        "weightSpace: 1248 bytes are used, the block has 1247",
    ),
    "workspace too small": (
        "f.at['workspace'] = d.alloc(f.workspace.value - 1); f.run()",
        "workSpace: .* bytes are used",
    ),
    "x at an odd byte": (
        "f.at['x'] = d.alloc(300); f.q['shift']['x'] = 2; f.run()",
        "x: .* is not a multiple",
    ),
    "y over x": ("f.at['x'] = f.at['y'] = d.alloc(999); f.run()", "y overlaps x"),
    "hy over hx": ("f.at['hy'] = f.at['hx']; f.run()", "hy overlaps hx"),
    "freed twice": ("a = d.alloc(4); d.free(a); d.free(a)", "cuMemFree_v2: .* was freed already"),
    "freed in the middle": ("d.free(d.alloc(512) + 256)", "is not the start of an allocation"),
    "copied past the end": (
        "d.upload(d.alloc(4), d.pinned(8), 8)",
        "the target: 8 bytes are used, the block has 4",
    ),
    "filled past the end": ("d.memset(d.alloc(4), 0, 5)", "the target: 5 bytes are used"),
    "memory of a pool freed twice": (
        "a = d.alloc_in(8); d.free_in(a); d.free_in(a)",
        "the memory of cuMemFreeAsync: .* was freed already",
    ),
    "memory of a pool used after its end": (
        "a = d.alloc_in(8); d.free_in(a); d.memset(a, 0, 8)",
        "the target of cuMemsetD8Async: .* was freed already",
    ),
    "memory of a pool freed before another stream's use": (
        "a, s = d.alloc_in(8), d.stream(); d.sync(); d.memset(a, 0, 8, s); d.free_in(a)",
        "race: the memory of cuMemFreeAsync writes",
    ),
    "memory of a pool used in another stream": (
        "d.memset(d.alloc_in(8), 0, 8, d.stream())",
        "race: the target of cuMemsetD8Async writes",
    ),
    "memory of a pool freed without its order": (
        "d.free(d.alloc_in(8))",
        "cuMemFree_v2: it does not wait for the work on memory of a pool",
    ),
    # descriptors
    "state of another dtype": (
        "f.q['h']['dtype'] = 2; f.set_h(); f.run()",
        "hDesc or cDesc has another dtype",
    ),
    "training": (
        "f.q['mode'] = 1; f.sizes(); f.at['workspace'] = d.alloc(1 << 20);"
        "f.at['reserve'] = d.alloc(1 << 20); f.run()",
        "fwdMode 1, only inference",
    ),
    "dropout destroyed": (
        "d.cudnn('cudnnDestroyDropoutDescriptor', f.dropout); f.run()",
        "the dropout .* was destroyed already",
    ),
    "RNN destroyed": (
        "d.cudnn('cudnnDestroyRNNDescriptor', f.rnn); f.run()",
        "cudnnRNNForward: the rnn .* was destroyed already",
    ),
    "destroyed twice": ("d.cudnn('cudnnDestroy', d.handle); d.cudnn('cudnnDestroy', d.handle)",
                        "the handle .* was destroyed already"),
    "a descriptor of another kind": ("f.x = f.h; f.run()", "is a tensor, not a rnn_data"),
    # contexts, threads, processes
    "no context": ("d.cu('cuCtxPopCurrent_v2', None); f.run()", "whose context is not current"),
    "another device's context": (
        "c = c_void_p(); d.cu('cuDevicePrimaryCtxRetain', byref(c), 1);"
        "d.cu('cuCtxPushCurrent_v2', c); f.run()",
        "the handle belongs to device 0, whose context is not current",
    ),
    "created without a context": (
        "d.cu('cuCtxPopCurrent_v2', None); d.new_handle()",
        "cudnnCreate: no context is current",
    ),
    "released too often": (
        "d.cu('cuDevicePrimaryCtxRelease_v2', 0); d.cu('cuDevicePrimaryCtxRelease_v2', 0)",
        "the context is not retained",
    ),
    "pushed when released": (
        "d.cu('cuDevicePrimaryCtxRelease_v2', 0); d.cu('cuCtxPushCurrent_v2', d.context)",
        "the primary context of device 0 is released",
    ),
    "pushed for ever": (
        "[d.cu('cuCtxPushCurrent_v2', d.context) for _ in range(99)]",
        "16 contexts are pushed and none popped",
    ),
    "two threads": (
        "os.environ['FAKE_CUDNN_LINGER'] = '100000'\n"
        "t = threading.Thread(target=lambda: d.cudnn('cudnnSetStream', d.handle, None))\n"
        "t.start(); f.run()",
        "another thread is in a call with the handle",
    ),
    "after fork": (
        "child = os.fork()\n"
        "if child == 0: d.alloc(4)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))",
        "cuMemAlloc_v2 is called in a child",
    ),
    # order
    "race of two streams": (
        "a, s, t = d.alloc(8), d.stream(), d.stream(); d.memset(a, 0, 8, s); d.memset(a, 1, 8, t)",
        "race: the target of cuMemsetD8Async writes .*, which cuMemsetD8Async writes on stream",
    ),
    "race with the forward": (
        "s = d.stream(); d.cudnn('cudnnSetStream', d.handle, s); f.run();"
        "d.download(d.pinned(8), f.at['y'], 8, d.stream())",
        "race: the source of cuMemcpyDtoHAsync_v2 reads .*, which cudnnRNNForward writes",
    ),
    "race of two forwards over a workspace": (
        "g = d.forward({}).zeros(); g.at['workspace'] = f.at['workspace'];"
        "d.cudnn('cudnnSetStream', d.handle, d.stream()); f.run();"
        "d.cudnn('cudnnSetStream', d.handle, d.stream()); g.run()",
        "race: workSpace of cudnnRNNForward writes",
    ),
    "race for pinned memory": (
        "p, s, t = d.pinned(8), d.stream(), d.stream(); d.upload(d.alloc(8), p, 8, s);"
        "d.download(p, d.alloc(8), 8, t)",
        "race: the target of cuMemcpyDtoHAsync_v2 writes",
    ),
    # capture
    **{
        f"{name} in a capture": (
            f"p = d.pinned(8); a = d.alloc(8); s = d.stream(); e = d.event()\n"
            f"d.cu('cuStreamBeginCapture_v2', s, 1); {code}",
            f"{call} during a capture",
        )
        for name, code, call in [
            ("alloc", "d.alloc(4)", "cuMemAlloc_v2"),
            ("free", "d.free(a)", "cuMemFree_v2"),
            ("pinned", "d.pinned(4)", "cuMemHostAlloc"),
            ("sync", "d.sync(s)", "cuStreamSynchronize"),
            ("sync of an event", "d.cu('cuEventSynchronize', e)", "cuEventSynchronize"),
            ("create", "d.new_handle()", "cudnnCreate"),
        ]
    },
    "destroy beside a capture": (
        "d.cu('cuStreamBeginCapture_v2', d.stream(), 2)\n"
        "d.cu('cuThreadExchangeStreamCaptureMode', byref(c_int(2)))\n"
        "d.cudnn('cudnnDestroy', d.handle)",
        "cudnnDestroy waits for the device, which breaks every capture",
    ),
    "a copy of unpinned memory in a capture": (
        "a = d.alloc(8); s = d.stream(); d.cu('cuStreamBeginCapture_v2', s, 1);"
        "d.upload(a, b'12345678', 8, s)",
        "is not pinned, and the stream is capturing",
    ),
    "an event of a capture": (
        "s, e = d.stream(), d.event(); d.cu('cuStreamBeginCapture_v2', s, 1);"
        "d.cu('cuEventRecord', e, s); d.cu('cuStreamWaitEvent', d.stream(), e, 0)",
        "the event was recorded in a capture",
    ),
    "the legacy stream in a capture": (
        "a = d.alloc(8); d.cu('cuStreamBeginCapture_v2', d.stream(0), 1); d.memset(a, 0, 8)",
        "on the legacy stream while a blocking stream is capturing",
    ),
    "a graph after its lengths changed": (
        "g = d.forward({'rnn': {'flags': 1}, 'x': {'lengths': [4, 3, 2]}}).zeros()\n"
        "s, graph, made = d.stream(), c_void_p(), c_void_p()\n"
        "d.cudnn('cudnnSetStream', d.handle, s); g.run()\n"
        "d.cu('cuStreamBeginCapture_v2', s, 1); g.run()\n"
        "d.cu('cuStreamEndCapture', s, byref(graph))\n"
        "d.cu('cuGraphInstantiateWithFlags', byref(made), graph, c_ulonglong(0))\n"
        "d.cu('cuGraphLaunch', made, s); g.q['x']['lengths'] = [4, 1, 1]; g.set_x()\n"
        "d.cu('cuGraphLaunch', made, s)",
        "xDesc has changed since it was recorded",
    ),
    "a graph after its workspace went": (
        "s, graph, made = d.stream(), c_void_p(), c_void_p()\n"
        "d.cudnn('cudnnSetStream', d.handle, s); f.run()\n"
        "d.cu('cuStreamBeginCapture_v2', s, 1); f.run()\n"
        "d.cu('cuStreamEndCapture', s, byref(graph))\n"
        "d.cu('cuGraphInstantiateWithFlags', byref(made), graph, c_ulonglong(0))\n"
        "d.free(f.at['workspace']); d.cu('cuGraphLaunch', made, s)",
        "workSpace: .* was freed already",
    ),
}  # fmt: skip


@pytest.mark.parametrize("broken", WORDS)
def test_a_broken_rule_ends_the_process(fakes, broken):
    code, words = WORDS[broken]
    done = process(fakes.cudnn(9), LSTM + code, FAKE_CUDA_DEVICES="2")
    assert done.returncode == FAKE_EXIT, (done.returncode, done.stderr)
    assert re.search(f"fake: .*{words}", done.stderr), done.stderr


def test_before_8_9_7_lengths_belong_on_the_device(fakes):
    code = """
d = Device(folder)
question = {"rnn": {"flags": 1}, "x": {"lengths": [4, 3, 2]}}
d.forward(question | {"sequence_lengths": True}).zeros().run()
print("taken", flush=True)
d.forward(question).zeros().run()
"""
    done = process(fakes.cudnn(8), code)
    assert (done.returncode, done.stdout) == (FAKE_EXIT, "taken\n"), done.stderr
    assert "before 8.9.7 lengths must also be on the device" in done.stderr
    assert process(fakes.cudnn(8), code, FAKE_CUDNN="8907").returncode == 0


# --------------------------------------------------------------------------------- work runs late


def test_work_is_done_when_it_is_waited_for(fakes):
    code = (
        LSTM
        + """
f.run()
print(set(f.bytes("y")) == {255})
d.sync()
print(set(f.bytes("y")) == {0})
"""
    )
    assert said(fakes.cudnn(9), code).split() == ["True", "True"]
    assert said(fakes.cudnn(9), code, FAKE_CUDA_ORDER="now").split() == ["False", "True"]


def test_pinned_memory_that_is_used_again_too_early_goes_wrong(fakes):
    code = """
d = Device(folder)
a, p, s = d.alloc(8), d.pinned(8), d.stream()
ctypes.memmove(p, b"first...", 8)
d.upload(a, p, 8, s)
{wait}
ctypes.memmove(p, b"second..", 8)
d.sync(s)
print(d.read(a, 8).decode())
"""
    assert said(fakes.cudnn(9), code.format(wait="")) == "second.."
    assert said(fakes.cudnn(9), code.format(wait="d.sync(s)")) == "first..."
    event = "e = d.event(); d.cu('cuEventRecord', e, s); d.cu('cuEventSynchronize', e)"
    assert said(fakes.cudnn(9), code.format(wait=event)) == "first..."


@pytest.mark.parametrize("order", [
    "e = d.event(); d.cu('cuEventRecord', e, s); d.cu('cuStreamWaitEvent', t, e, 0)",
    "d.sync(s)",
    "d.cu('cuCtxSynchronize')",
    "e = d.event(); d.cu('cuEventRecord', e, s)\nwhile d.driver.cuEventQuery(e): pass",
    "b = d.alloc(4); d.free(b)",
])  # fmt: skip
def test_what_orders_two_streams(fakes, order):
    code = f"""
d = Device(folder); a, s, t, p = d.alloc(8), d.stream(), d.stream(), d.pinned(8)
d.memset(a, 65, 8, s)
{order}
d.memset(a + 4, 66, 4, t)
d.download(p, a, 8, t); d.sync(t)
print(ctypes.string_at(p, 8).decode())
"""
    assert said(fakes.cudnn(9), code) == "AAAABBBB"


@pytest.mark.parametrize("first, second", [("None", "d.stream(0)"), ("d.stream(0)", "None"),
                                           ("c_void_p(2)", "None")])  # fmt: skip
def test_the_legacy_stream_orders_blocking_ones(fakes, first, second):
    code = f"""
d = Device(folder); a = d.alloc(8)
d.memset(a, 65, 8, {first}); d.memset(a, 66, 8, {second}); d.cu('cuCtxSynchronize')
print(d.read(a, 8).decode())
"""
    assert said(fakes.cudnn(9), code) == "BBBBBBBB"


def test_a_graph_does_it_again(fakes):
    """A copy, a forward call and a fill, with new numbers in the same places."""
    code = (
        LSTM
        + """
import struct
p, s, graph, made = d.pinned(240), d.stream(), c_void_p(), c_void_p()
f.fill("weights", struct.pack("312f", *[0.1] * 312))
d.cudnn("cudnnSetStream", d.handle, s)

def work():
    d.upload(f.at["x"], p, 240, s)
    f.run()
    d.memset(f.at["y"], 65, 8, s)

def result():
    d.sync(s)
    return f.bytes("y"), f.bytes("cy")

def put(number):
    ctypes.memmove(p, struct.pack("60f", *[number] * 60), 240)

put(1); work(); one = result()
put(2); work(); two = result()
assert one != two
d.cu("cuStreamBeginCapture_v2", s, 1)
status = c_int()
d.cu("cuStreamIsCapturing", s, byref(status)); print(status.value)
work()
d.cu("cuStreamEndCapture", s, byref(graph))
d.cu("cuStreamIsCapturing", s, byref(status)); print(status.value)
d.cu("cuGraphInstantiateWithFlags", byref(made), graph, c_ulonglong(0))
d.cu("cuGraphDestroy", graph)
for number, wanted in ((1, one), (2, two), (1, one)):
    put(number); d.cu("cuGraphLaunch", made, s); print(result() == wanted)
d.cu("cuGraphExecDestroy", made)
print([kind for kind in d.live() if "graph" in kind])
"""
    )
    assert said(fakes.cudnn(9), code).split() == ["1", "0", "True", "True", "True", "[]"]


def test_a_broken_capture_gives_no_graph(fakes):
    code = (
        LSTM
        + """
s, e, graph = d.stream(), d.event(), c_void_p()
d.cu("cuEventRecord", e, d.stream())
print(d.driver.cuStreamBeginCapture_v2(None, 1))
d.cu("cuStreamBeginCapture_v2", s, 1)
print(d.driver.cuStreamWaitEvent(s, e, 0))
print(d.driver.cuStreamEndCapture(s, byref(graph)), graph.value)
d.sync(s)
"""
    )
    assert said(fakes.cudnn(9), code).split() == ["900", "905", "901", "None"]


def test_the_legacy_stream_is_not_asked_beside_a_blocking_capture(fakes):
    code = """
d = Device(folder); status = c_int()
for flags in (0, 1):
    s, graph = d.stream(flags), c_void_p()
    d.cu("cuStreamBeginCapture_v2", s, 1)
    print(d.driver.cuStreamIsCapturing(None, byref(status)))
    print(d.driver.cuStreamEndCapture(s, byref(graph)))
"""
    assert said(fakes.cudnn(9), code).split() == ["906", "0", "0", "0"]


def test_the_clamp(fakes):
    code = """
import struct
d = Device(folder); module, function = c_void_p(), c_void_p()
d.cu("cuModuleLoadData", byref(module), b".version 7.0 .entry clamp_f32(...)")
d.cu("cuModuleGetFunction", byref(function), module, b"clamp_f32")
a = d.alloc(16); d.write(a, struct.pack("4f", -9, 9, 0.5, float("nan")))
values = c_ulonglong(a), c_uint(4), ctypes.c_float(-1), ctypes.c_float(2)
pointers = (c_void_p * 4)(*[ctypes.addressof(v) for v in values])
d.cu("cuLaunchKernel", function, 1, 1, 1, 64, 1, 1, 0, None, pointers, None); d.sync()
print(*struct.unpack("4f", d.read(a, 16)))
print(d.driver.cuModuleGetFunction(byref(function), module, b"other"),
      d.driver.cuModuleLoadData(byref(module), b"nothing"))
"""
    assert said(fakes.cudnn(9), code) == "-1.0 2.0 0.5 nan\n500 200"


# --------------------------------------------------------------- what a test reads and disturbs


WHOLE = "d = Device(folder); f = d.forward({}).zeros(); f.run(); d.sync(); f.close(); d.close()\n"


def test_calls_are_taken_down(fakes, tmp_path):
    log = tmp_path / "log"
    count = said(fakes.cudnn(9), WHOLE + "print(d.driver.fake_calls())", FAKE_LOG=str(log))
    lines = log.read_text().splitlines()
    assert len(lines) == int(count) > 30
    forward = [line for line in lines if line.startswith("cudnnRNNForward ")]
    assert len(forward) == 1 and "weight_bytes=1248" in forward[0]
    assert lines[0] == "cuInit flags=0" and lines[-1].startswith("cuDevicePrimaryCtxRelease_v2 ")


def test_the_kth_call_fails(fakes):
    """Every call of a whole sequence, with the status of its library."""
    code = """
d = Device(folder); d.close(); calls = d.driver.fake_calls
def whole():
    d.cu("cuDevicePrimaryCtxRetain", byref(d.context), 0)
    d.cu("cuCtxPushCurrent_v2", d.context)
    d.handle = None
    f = d.forward({}).zeros(); f.run(); d.sync()
    for at in f.at.values(): d.free(at)
    d.close()
before = calls(); whole(); count = calls() - before
for k in range(1, count + 1):
    d.driver.fake_fail(c_longlong(k), 2, 4004)
    try:
        whole()
        print("nothing failed", k)
    except Failed as why:
        call = str(why).split(":")[0]
        assert why.status == (2 if call[:2] == "cu" and call[2].isupper() else 4004)
    except AssertionError:
        pass  # a descriptor that could not be created; ask.py asserts that it could
    d.driver.fake_fail(c_longlong(0), 0, 0)
    while d.driver.fake_live(b"pushed"): d.cu("cuCtxPopCurrent_v2", None)
whole()
print(count > 30)
"""
    assert said(fakes.cudnn(9), code) == "True"


@pytest.mark.parametrize("call, argument", [
    ("cuMemFree_v2", "c_ulonglong(d.alloc(4))"), ("cuMemFreeHost", "d.pinned(4)"),
    ("cuStreamDestroy_v2", "d.stream()"), ("cuEventDestroy_v2", "d.event()"),
    ("cuCtxPopCurrent_v2", "None"), ("cuDevicePrimaryCtxRelease_v2", "0"),
    ("cudnnDestroy", "d.new_handle()"),
])  # fmt: skip
def test_what_is_destroyed_is_gone_even_if_that_failed(fakes, call, argument):
    """Such an error belongs to an earlier call, so nobody destroys a second time."""
    library = "d.library._library" if call.startswith("cudnn") else "d.driver"
    code = f"""
d = Device(folder); before = d.live(); argument = {argument}
d.driver.fake_fail(c_longlong(1), 1, 4000)
print({library}.{call}(argument), sum(before.values()) - sum(d.live().values()))
"""
    failed, fewer = said(fakes.cudnn(9), code).split()
    assert failed in ("1", "4000")
    assert fewer == ("1" if "Ctx" in call else "0")


def test_an_error_that_sticks(fakes):
    code = (
        LSTM
        + """
d.driver.fake_fail(c_longlong(1), 700, 5000)
print(d.driver.cuStreamSynchronize(None), d.driver.cuMemAlloc_v2(byref(c_ulonglong()), c_size_t(4)))
try: f.run()
except Failed as why: print(why.status)
print(d.driver.cuCtxPopCurrent_v2(None))
"""
    )
    assert said(fakes.cudnn(9), code).split() == ["700", "700", "5003", "0"]


def test_the_memory_of_a_device_ends(fakes):
    code = (
        "d = Device(folder); a = d.alloc(600)\nprint(d.driver.cuMemAlloc_v2(byref(c_ulonglong()),"
    )
    code += " c_size_t(600))); d.free(a); d.alloc(600)"
    assert said(fakes.cudnn(9), code, FAKE_CUDA_MEMORY="1000") == "2"


def test_what_is_alive(fakes):
    assert said(fakes.cudnn(9), WHOLE + "print(d.live())") == "{}"
    code = LSTM + "d.stream(); d.event(); d.pinned(4); print(d.live())"
    found = {"context": 1, "pushed": 1, "memory": 8, "pinned": 1, "stream": 1, "event": 1,
             "handle": 1, "dropout": 1, "rnn": 1, "rnn_data": 2, "tensor": 2}  # fmt: skip
    assert said(fakes.cudnn(9), code) == str(found)


def test_pointers_tell_where_they_are(fakes):
    code = """
d = Device(folder); found = c_uint()
def ask(what, at):
    status = d.driver.cuPointerGetAttribute(byref(found), what, c_ulonglong(at))
    return status or (found.value, "ok")
other, managed = (d.driver.fake_alloc(c_size_t(4), *how) for how in ((1, 0), (0, 1)))
for at in (d.alloc(4), other, managed, d.pinned(4).value, ctypes.addressof(found)):
    print(ask(2, at), ask(9, at), ask(8, at))
"""
    assert said(fakes.cudnn(9), code, FAKE_CUDA_DEVICES="2").splitlines() == [
        "(2, 'ok') (0, 'ok') (0, 'ok')",
        "(2, 'ok') (1, 'ok') (0, 'ok')",
        "(2, 'ok') (0, 'ok') (1, 'ok')",
        "(1, 'ok') (0, 'ok') (0, 'ok')",
        "1 1 1",
    ]
    at_once = """
told = {2: c_uint(7), 8: c_uint(7), 9: c_uint(7)}
def ask(what, at):
    values = (c_void_p * 3)(*map(ctypes.addressof, told.values()))
    status = d.driver.cuPointerGetAttributes(3, (c_uint * 3)(*told), values, c_ulonglong(at))
    return status or (told[what].value, "ok")
"""
    before, after = code.split("def ask", 1)[0], code.split('"ok")\n', 1)[1]
    assert said(fakes.cudnn(9), before + at_once + after, FAKE_CUDA_DEVICES="2").splitlines() == [
        "(2, 'ok') (0, 'ok') (0, 'ok')",
        "(2, 'ok') (1, 'ok') (0, 'ok')",
        "(2, 'ok') (0, 'ok') (1, 'ok')",
        "(1, 'ok') (0, 'ok') (0, 'ok')",
        "(0, 'ok') (0, 'ok') (0, 'ok')",
    ]


def test_a_stream_of_another_device(fakes):
    code = (
        LSTM
        + """
c = c_void_p(); d.cu("cuDevicePrimaryCtxRetain", byref(c), 1); d.cu("cuCtxPushCurrent_v2", c)
s = d.stream(); d.cu("cuCtxPopCurrent_v2", None)
print(d.library._library.cudnnSetStream(d.handle, s))
"""
    )
    for major, status in ((8, "7"), (9, "2007")):
        assert said(fakes.cudnn(major), code, FAKE_CUDA_DEVICES="2") == status


@pytest.mark.parametrize("machine, status", [({"FAKE_CUDA_DEVICES": "0"}, 100),
                                             ({"FAKE_CUDA_INIT": "999"}, 999)])  # fmt: skip
def test_a_machine_without_a_device(fakes, machine, status):
    done = process(fakes.cudnn(9), "Device(folder)", **machine)
    assert f"Failed: cuInit: {status}" in done.stderr


def test_the_last_error_is_read_once(fakes):
    code = (
        LSTM
        + """
text = ctypes.create_string_buffer(100)
def read():
    d.library._library.cudnnGetLastErrorString(text, c_size_t(100)); print(text.value.decode())
f.q["null"] = ["y_desc"]
try: f.run()
except Failed: pass
f.q["null"] = []; f.run()
read(); read()
"""
    )
    lines = said(fakes.cudnn(9), code).splitlines()
    assert lines == ["fake: handle, rnnDesc, xDesc or yDesc is NULL"]


# ------------------------------------------------------------------------------------- libraries


@pytest.mark.parametrize("major, missing, version, rnn", [
    (9, "", 0, 0),
    (9, "graph", -6, -6), (9, "ops", 0, 3009), (9, "adv", 0, 3009),
    (8, "", 0, 0),
    (8, "ops_infer", -6, -6), (8, "adv_infer", 0, -6),
])  # fmt: skip
def test_a_library_that_is_missing_a_part(fakes, tmp_path, major, missing, version, rnn):
    """As with the real ones: an abort, or status 3009."""
    folder = shutil.copytree(fakes.cudnn(major), tmp_path / "cudnn")
    if missing:
        (folder / f"libcudnn_{missing}.so.{major}").unlink()
    code = f"cudnn = ctypes.CDLL(folder + '/libcudnn.so.{major}', mode=ctypes.RTLD_GLOBAL)\n"
    assert process(folder, code + "cudnn.cudnnGetVersion()").returncode == version
    code += "status = cudnn.cudnnCreateRNNDescriptor(byref(c_void_p()))\nprint(status)"
    done = process(folder, code)
    assert (done.returncode or int(done.stdout)) == rnn
    assert ("cannot be opened" in done.stderr) == bool(rnn)


def test_parts_that_are_open_already_are_found(fakes, tmp_path):
    (tmp_path / "libcudnn.so.9").symlink_to(fakes.cudnn(9) / "libcudnn.so.9")
    alone = shutil.copy(fakes.cudnn(9) / "libcudnn.so.9", tmp_path / "alone.so")
    code = f"""
for name in ("graph", "ops", "adv"): ctypes.CDLL(f"{{folder}}/libcudnn_{{name}}.so.9")
print(ctypes.CDLL("{alone}").cudnnCreateRNNDescriptor(byref(c_void_p())))
"""
    assert said(fakes.cudnn(9), code) == "0"


def test_what_the_versions_have(fakes):
    names = ["cudnnRNNSetClip_v9", "cudnnGetLastErrorString", "cudnnAdvVersionCheck",
             "cudnnAdvInferVersionCheck", "cudnnRNNSetClip_v8", "cudnnGetVersion"]  # fmt: skip
    code = (
        f"d = Device(folder); print(*(int(d.library.has(n)) for n in {names}), d.library.version)"
    )
    assert said(fakes.cudnn(9), code) == "1 1 1 0 1 1 92800"
    assert said(fakes.cudnn(8), code) == "0 0 0 1 1 1 8906"
    assert said(fakes.cudnn(9), code, FAKE_CUDNN="91900") == "1 1 1 0 1 1 91900"
