"""The rules that the fakes enforce: to break one ends the process with a message."""

import re

import pytest
from fakes.process import FAKE_EXIT, LSTM, process

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
        "d.upload(d.alloc(4), b'12345678', 8)",
        "the target: 8 bytes are used, the block has 4",
    ),
    "filled past the end": ("d.memset(d.alloc(4), 0, 5)", "the target: 5 bytes are used"),
    # descriptors
    "state of another dtype": (
        "f.q['h']['dtype'] = 2; f.set_h(); f.run()",
        "hDesc or cDesc has another dtype",
    ),
    "training": ("f.q['mode'] = 1; f.run()", "fwdMode 1, only inference"),
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
        "d.memset(f.at['y'], 0, 8, d.stream())",
        "race: the target of cuMemsetD8Async writes .*, which cudnnRNNForward writes",
    ),
    "race of two forwards over a workspace": (
        "g = d.forward({}).zeros(); g.at['workspace'] = f.at['workspace'];"
        "d.cudnn('cudnnSetStream', d.handle, d.stream()); f.run();"
        "d.cudnn('cudnnSetStream', d.handle, d.stream()); g.run()",
        "race: workSpace of cudnnRNNForward writes",
    ),
    # capture
    **{
        f"{name} in a capture": (
            f"a = d.alloc(8); s = d.stream(); e = d.event()\n"
            f"d.cu('cuStreamBeginCapture_v2', s, 1); {code}",
            f"{call} during a capture",
        )
        for name, code, call in [
            ("alloc", "d.alloc(4)", "cuMemAlloc_v2"),
            ("free", "d.free(a)", "cuMemFree_v2"),
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
    "a copy of the host's memory in a capture": (
        "a = d.alloc(8); s = d.stream(); d.cu('cuStreamBeginCapture_v2', s, 1);"
        "d.upload(a, b'12345678', 8, s)",
        "the stream is capturing, and the host's memory is not pinned",
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
    done = process(fakes.cudnn, LSTM + code, FAKE_CUDA_DEVICES="2")
    assert done.returncode == FAKE_EXIT, (done.returncode, done.stderr)
    assert re.search(f"fake: .*{words}", done.stderr), done.stderr
