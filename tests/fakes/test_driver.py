"""What the fakes do as the driver and cuDNN: late work, graphs, errors, missing parts."""

import shutil

import pytest
from fakes.process import LSTM, process, said

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
    assert said(fakes.cudnn, code).split() == ["True", "True"]


@pytest.mark.parametrize("order", [
    "e = d.event(); d.cu('cuEventRecord', e, s); d.cu('cuStreamWaitEvent', t, e, 0)",
    "d.sync(s)",
    "d.cu('cuCtxSynchronize')",
    "while d.driver.cuStreamQuery(s): pass",
    "b = d.alloc(4); d.free(b)",
])  # fmt: skip
def test_what_orders_two_streams(fakes, order):
    code = f"""
d = Device(folder); a, s, t, p = d.alloc(8), d.stream(), d.stream(), ctypes.create_string_buffer(8)
d.memset(a, 65, 8, s)
{order}
d.memset(a + 4, 66, 4, t)
d.download(p, a, 8, t); d.sync(t)
print(p.raw.decode())
"""
    assert said(fakes.cudnn, code) == "AAAABBBB"


@pytest.mark.parametrize("first, second", [("None", "d.stream(0)"), ("d.stream(0)", "None"),
                                           ("c_void_p(2)", "None")])  # fmt: skip
def test_the_legacy_stream_orders_blocking_ones(fakes, first, second):
    code = f"""
d = Device(folder); a = d.alloc(8)
d.memset(a, 65, 8, {first}); d.memset(a, 66, 8, {second}); d.cu('cuCtxSynchronize')
print(d.read(a, 8).decode())
"""
    assert said(fakes.cudnn, code) == "BBBBBBBB"


def test_a_graph_does_it_again(fakes):
    """A forward call and a fill, with new numbers in the same places."""
    code = (
        LSTM
        + """
import struct
s, graph, made = d.stream(), c_void_p(), c_void_p()
f.fill("weights", struct.pack("312f", *[0.1] * 312))
d.cudnn("cudnnSetStream", d.handle, s)

def work():
    f.run()
    d.memset(f.at["y"], 65, 8, s)

def result():
    d.sync(s)
    return f.bytes("y"), f.bytes("cy")

def put(number):
    d.sync(s)
    f.fill("x", struct.pack("60f", *[number] * 60))

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
    assert said(fakes.cudnn, code).split() == ["1", "0", "True", "True", "True", "[]"]


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
    assert said(fakes.cudnn, code).split() == ["900", "905", "901", "None"]


def test_the_legacy_stream_is_not_asked_beside_a_blocking_capture(fakes):
    code = """
d = Device(folder); status = c_int()
for flags in (0, 1):
    s, graph = d.stream(flags), c_void_p()
    d.cu("cuStreamBeginCapture_v2", s, 1)
    print(d.driver.cuStreamIsCapturing(None, byref(status)))
    print(d.driver.cuStreamEndCapture(s, byref(graph)))
"""
    assert said(fakes.cudnn, code).split() == ["906", "0", "0", "0"]


# -------------------------------------------------------------------------- errors and pointers


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
    assert said(fakes.cudnn, code).split() == ["700", "700", "5003", "0"]


def test_a_stream_of_another_device(fakes):
    code = (
        LSTM
        + """
c = c_void_p(); d.cu("cuDevicePrimaryCtxRetain", byref(c), 1); d.cu("cuCtxPushCurrent_v2", c)
s = d.stream(); d.cu("cuCtxPopCurrent_v2", None)
print(d.library._library.cudnnSetStream(d.handle, s))
"""
    )
    assert said(fakes.cudnn, code, FAKE_CUDA_DEVICES="2") == "2007"


@pytest.mark.parametrize("machine, status", [({"FAKE_CUDA_DEVICES": "0"}, 100),
                                             ({"FAKE_CUDA_INIT": "999"}, 999)])  # fmt: skip
def test_a_machine_without_a_device(fakes, machine, status):
    done = process(fakes.cudnn, "Device(folder)", **machine)
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
    lines = said(fakes.cudnn, code).splitlines()
    assert lines == ["fake: handle, rnnDesc, xDesc or yDesc is NULL"]


# ------------------------------------------------------------------------------------- libraries


@pytest.mark.parametrize("missing, version, rnn", [
    ("", 0, 0), ("graph", -6, -6), ("ops", 0, 3009), ("adv", 0, 3009),
])  # fmt: skip
def test_a_library_that_is_missing_a_part(fakes, tmp_path, missing, version, rnn):
    """As with the real ones: an abort, or status 3009."""
    folder = shutil.copytree(fakes.cudnn, tmp_path / "cudnn")
    if missing:
        (folder / f"libcudnn_{missing}.so.9").unlink()
    code = "cudnn = ctypes.CDLL(folder + '/libcudnn.so.9', mode=ctypes.RTLD_GLOBAL)\n"
    assert process(folder, code + "cudnn.cudnnGetVersion()").returncode == version
    code += "status = cudnn.cudnnCreateRNNDescriptor(byref(c_void_p()))\nprint(status)"
    done = process(folder, code)
    assert (done.returncode or int(done.stdout)) == rnn
    assert ("cannot be opened" in done.stderr) == bool(rnn)


def test_parts_that_are_open_already_are_found(fakes, tmp_path):
    (tmp_path / "libcudnn.so.9").symlink_to(fakes.cudnn / "libcudnn.so.9")
    alone = shutil.copy(fakes.cudnn / "libcudnn.so.9", tmp_path / "alone.so")
    code = f"""
for name in ("graph", "ops", "adv"): ctypes.CDLL(f"{{folder}}/libcudnn_{{name}}.so.9")
print(ctypes.CDLL("{alone}").cudnnCreateRNNDescriptor(byref(c_void_p())))
"""
    assert said(fakes.cudnn, code) == "0"


def test_the_version_that_is_asked_for(fakes):
    code = "d = Device(folder); print(d.library.version)"
    assert said(fakes.cudnn, code) == "92800"
    assert said(fakes.cudnn, code, FAKE_CUDNN="91900") == "91900"
