"""Arrays on a GPU that a call must refuse, and who owns memory; no test needs a GPU."""

import gc
import sys

import numpy as np
import pytest
import torch
from run.gpu.exporters import (
    CPU,
    CUDA,
    MANAGED,
    PINNED,
    ROCM,
    Exporter,
    Interface,
    OldExporter,
    exchanging,
    name_of,
)  # fmt: skip

import rnnlayout as rl
from rnnlayout import _native
from rnnlayout._run import foreign as _foreign, gpu as _gpu
from rnnlayout._run.shapes import name_arrays
from rnnlayout._run.use import Use

LSTM, GRU = rl.Spec("lstm", 5, 7, 2), rl.Spec("gru", 5, 7)
A, SHAPE = 1 << 40, (4, 3, 5)  # an address, and the shape of x
Y, S = (4, 3, 7), (2, 3, 7)
NBYTES = 4 * 4 * 3 * 7
X = Exporter(A, SHAPE)
USE = Use(batch_first=False)


@pytest.fixture(autouse=True)
def the_driver(monkeypatch):
    """What it would say of addresses."""

    def device_of(address):
        if address >= 3 << 40:
            raise rl.SpecError("it is managed memory")
        return {0: -1, 1: 0, 2: 1}[address >> 40]

    monkeypatch.setattr(_native, "gpu_device_of", device_of)


def call(x=X, state=None, spec=LSTM, axes=_native.TIME_FIRST, lengths=None, out=None, h_out=None,
         c_out=None, stream=None, use=USE):  # fmt: skip
    """Call an RNN on a cuda:0 that does not exist: the mistake must be found before that."""
    named = name_arrays(spec, x, state, out, h_out, c_out)
    return _gpu.run(None, 0, spec, axes, use, named, lengths, stream)


def bad(**changes):
    return Exporter(changes.pop("address", A), changes.pop("shape", SHAPE), **changes)


def states(h=None, c=None):
    return (
        Exporter(A + 8192, S) if h is None else h,
        Exporter(A + 16384, S) if c is None else c,
    )


def interface(**changes):
    return Interface(changes.pop("address", A), changes.pop("shape", SHAPE), **changes)


REFUSED = {
    "another dtype": (lambda: call(bad(dtype="float64")), "x is float64, need float32 like the w"),
    "no float": (lambda: call(bad(dtype="int32")), "x is int32, need float32 like the weights"),
    "complex": (lambda: call(bad(dtype="complex64")), "x is complex64, need float32"),
    "a bool": (lambda: call(bad(dtype="bool8")), "x is bool8, need float32"),
    "vectors": (lambda: call(bad(lanes=4)), "x is float32x4, need float32"),
    "an unknown type": (lambda: call(bad(dtype="?")), "x is DLPack type 9 with 9 bits, need float"),
    "another GPU": (lambda: call(bad(device=(CUDA, 1))), "x is on cuda:1, this RNN is on cuda:0"),
    "ROCm": (lambda: call(bad(device=(ROCM, 2))), "x is on ROCm device 2, this RNN is on cu"),
    "an unknown kind": (lambda: call(bad(device=(99, 0))), "x is on a device of kind 99 device 0,"),
    "managed": (lambda: call(bad(device=(MANAGED, 0))), "x is in managed memory, which is not sup"),
    "an exporter that lies": (
        lambda: call(Exporter(A, SHAPE, gives=bad(device=(CPU, 0)).capsule())),
        "x is in the host's memory, this RNN is on cuda:0",
    ),
    "strides": (
        lambda: call(bad(strides=(5, 20, 1))),
        r"x: strides \(5, 20, 1\) \(in elements\) with shape \(4, 3, 5\): it must be C-contig",
    ),
    "unaligned": (lambda: call(bad(address=A + 2)), "x: its address is not aligned for float32"),
    "unaligned by its offset": (lambda: call(bad(offset=1)), "x: its address is not aligned"),
    "no address": (lambda: call(bad(address=None)), "x: its address is 0, but it has elements"),
    "another width": (
        lambda: call(bad(shape=(4, 3, 6))),
        r"x: shape \(4, 3, 6\), expected \(T, N, 5\) or, without a batch, \(T, 5\), with I = 5",
    ),
    "a state's shape": (
        lambda: call(state=states(c=Exporter(A, (2, 3, 6)))),
        r"c_0: shape \(2, 3, 6\), expected \(2, 3, 7\) = \(L \* D, N, H\)",
    ),
    "a state's dtype": (
        lambda: call(state=states(h=Exporter(A, S, "float16"))),
        "h_0 is float16, need float32 like x",
    ),
    "one state for two": (lambda: call(state=X), r"state is a Exporter, need \(h_0, c_0\): an LST"),
    "c_out of a GRU": (lambda: call(spec=GRU, c_out=X), "c_out is given, but a GRU has no c"),
    "NumPy beside it": (
        lambda: call(state=states(h=np.zeros(S, "f4"))),
        "h_0 is a ndarray that is not on a GPU, but other arrays are: all arrays of a call must",
    ),
    "torch on the CPU beside it": (
        lambda: call(out=torch.zeros(Y)),
        "out is a Tensor that is not on a GPU, but other arrays",
    ),
    "pinned memory beside it": (
        lambda: call(out=Exporter(A, Y, device=(PINNED, 0))),
        "out is a Exporter that is not on a GPU",
    ),
    "a list beside it": (lambda: call(out=[1.0]), "out is a list that is not on a GPU"),
    "it beside NumPy": (
        lambda: call(np.zeros(SHAPE, "f4"), out=X),
        "out is a Exporter on a GPU, but x is not: all arrays of a call must be in the same",
    ),
    "a state beside NumPy": (
        lambda: call(np.zeros(SHAPE, "f4"), states()),
        "h_0 is a Exporter on a GPU, but x is not",
    ),
    "float32 for narrow weights on the host": (
        lambda: call(np.zeros(SHAPE, "f4"), spec=LSTM.replace(dtype="float16")),
        "x is float32, need float16 like the weights$",
    ),
    "a setting of the source": (
        lambda: call(use=Use(False, go_backwards=True)),
        r"x is a Exporter on a GPU, where go_backwards=True of the source is not supported",
    ),
    "lengths on the GPU": (
        lambda: call(lengths=Interface(A, (3,), "<i8")),
        r"lengths is a Interface on a GPU, but is needed on the host: pass lengths.cpu\(\)",
    ),
    "a length past the end": (lambda: call(lengths=[4, 5, 0]), r"lengths\[1\] is 5, need 0 to 4 ="),
    "a read-only output": (
        lambda: call(out=Exporter(2 * NBYTES + A, Y, flags=1), stream=1),
        "out is read-only",
    ),
    "a read-only output by its interface": (
        lambda: call(out=Interface(A, Y, data=(A + 8192, True)), stream=1),
        "out is read-only",
    ),
    "an output in a stream that is not known": (
        lambda: call(out=Exporter(A + 8192, Y)),
        "out is a Exporter whose stream is unknown: pass stream=",
    ),
    "an output of the second version": (
        lambda: call(h_out=Interface(A + 8192, S, version=2)),
        "h_out is a Interface whose stream is unknown: pass stream=",
    ),
    "out over x": (
        lambda: call(out=Exporter(A + 4, Y), stream=1),
        "out and x share memory: each needs its own",
    ),
    "out over h_0": (
        lambda: call(state=states(), out=Exporter(A + 8192 - NBYTES + 4, Y), stream=1),
        "out and h_0 share memory",
    ),
    "h_out a little off h_0": (
        lambda: call(state=states(), h_out=Exporter(A + 8196, S), stream=1),
        "h_out and h_0 share memory",
    ),
    "h_out over c_0": (
        lambda: call(state=states(), h_out=Exporter(A + 16384, S), stream=1),
        "h_out and c_0 share memory",
    ),
    "c_out over h_out": (
        lambda: call(h_out=Exporter(A + 8192, S), c_out=Exporter(A + 8192, S), stream=1),
        "c_out and h_out share memory",
    ),
    "big-endian": (lambda: call(interface(typestr=">f4")), "x is >f4, need native byte order"),
    "a mask": (lambda: call(interface(mask=X)), "x has a mask, which would be lost: fill"),
    "an interface without data": (
        lambda: call(interface(data=None)),
        "x: its __cuda_array_interface__ is invalid: KeyError",
    ),
    "a shape of no numbers": (
        lambda: call(interface(shape=(4, "n"))),
        "x: its __cuda_array_interface__ is invalid: TypeError",
    ),
    "stream 0": (lambda: call(interface(stream=0)), "x: its __cuda_array_interface__ gives stream"),
    "stream -1": (lambda: call(interface(stream=-1)), "x: its __cuda_array_interface__ is invalid"),
    "strides in bytes": (
        lambda: call(interface(strides=(20, 80, 4))),
        r"x: strides \(5, 20, 1\) \(in elements\)",
    ),
    "strides of half an element": (
        lambda: call(interface(strides=(60, 20, 2))),
        r"x: strides \(15, 5, -1\) \(in elements\)",
    ),
    "too few strides": (lambda: call(interface(strides=(4,))), r"x: 1 strides with shape \(4, 3, "),
    "no type of ours": (lambda: call(interface(typestr="|V2")), r"x is \|V2, need float32"),
    "an address of the host": (
        lambda: call(interface(address=4096)),
        "x is in the host's memory, this RNN is on cuda:0",
    ),
    "an address of another GPU": (lambda: call(interface(address=2 << 40)), "x is on cuda:1, this"),
    "a managed address": (lambda: call(interface(address=3 << 40)), "x: it is managed memory"),
    "no capsule": (
        lambda: call(Exporter(A, SHAPE, gives="x")),
        r"x: __dlpack__\(\) did not return a capsule, or returned a used one",
    ),
    "an exporter's own error": (
        lambda: call(Exporter(A, SHAPE, gives=BufferError("it requires grad"))),
        "x: Exporter does not export its memory: it requires grad",
    ),
    "another major version": (
        lambda: call(bad(version=(2, 0))),
        "x: DLPack 2.0 is not supported, need 1.x",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    wrong, text = REFUSED[name]
    with pytest.raises(rl.LayoutError, match=text):
        wrong()


class Stream:
    def __init__(self, **attributes):
        vars(self).update(attributes)


STREAMS = {
    "zero": (0, "stream is 0, which is ambiguous: 1 is the legacy default stream, 2 the per-th"),
    "a negative number": (
        -1,
        "stream is -1, need the number of a stream, or an object with __cuda",
    ),
    "no number": ("main", "stream is 'main', need the number of a stream"),
    "a bool": (True, "stream is True, need the number"),
    "too long": (1 << 64, "need the number of a stream"),
    "an object of nothing": (Stream(), "need the number of a stream, or an object with __cuda_str"),
    "a pointer that is none": (Stream(ptr="x"), "need the number of a stream"),
    "a protocol to come": (
        Stream(__cuda_stream__=lambda: (1, 5)),
        r"stream: __cuda_stream__\(\) has version 1, only 0 is supported",
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_refused(name):
    stream, text = STREAMS[name]
    with pytest.raises(rl.SpecError, match=text):
        call(stream=stream)


def test_a_stream_for_arrays_of_the_host():
    with pytest.raises(
        rl.SpecError, match="stream= is only for arrays on a GPU; x is on the host, wh"
    ):
        call(np.zeros(SHAPE, "f4"), stream=5)


@pytest.mark.parametrize(
    "stream, number",
    [
        (1, 1), (2, 2), (np.int64(77), 77), (Stream(cuda_stream=0), 1), (Stream(cuda_stream=9), 9),
        (Stream(ptr=0), 1), (Stream(ptr=2), 2), (Stream(__cuda_stream__=lambda: (0, 8)), 8),
        (Stream(__cuda_stream__=lambda: (0, 0), ptr=3), 1),
    ],
)  # fmt: skip
def test_streams_by_whatever_name(stream, number):
    assert _foreign.stream_of(stream) == number


# -------------------------------------------------------------------------------------- ownership


@pytest.mark.parametrize("kind", [Exporter, OldExporter])
def test_what_is_taken_is_deleted_once(kind):
    exporter = kind(A, SHAPE, strides=(15, 5, 1), offset=8)
    capsule = exporter.capsule()
    taken = _native.take_dlpack(capsule)
    assert taken[1:] == (A + 8, SHAPE, (15, 5, 1), "float32", CUDA, 0, False)
    assert name_of(capsule).startswith("used_dltensor")
    with pytest.raises(rl.LayoutError, match="did not return a capsule, or returned a used one"):
        _native.take_dlpack(capsule)
    del capsule
    gc.collect()
    assert exporter.deleted == 0
    del taken
    assert exporter.deleted == 1


@pytest.mark.parametrize("kind", [Exporter, OldExporter])
def test_a_deleter_that_is_none(kind):
    exporter = kind(A, SHAPE, deletes=False)
    assert _native.take_dlpack(exporter.capsule())[3] is None
    assert exporter.deleted == 0


def test_what_nobody_takes_is_its_exporters():
    exporter = Exporter(A, SHAPE)
    capsule = exporter.capsule()
    del capsule
    assert exporter.deleted == 1


def test_another_major_version_is_only_deleted():
    exporter = bad(version=(2, 0))
    capsule = exporter.capsule()
    with pytest.raises(rl.LayoutError, match=r"DLPack 2\.0"):
        _native.take_dlpack(capsule)
    assert (exporter.deleted, name_of(capsule)) == (1, "used_dltensor_versioned")


def test_a_refused_call_gives_everything_back():
    arrays = [Exporter(A, SHAPE), *states(), Exporter(A + 2, Y)]
    x, h, c, y = arrays
    with pytest.raises(rl.LayoutError, match="out: its address is not aligned"):
        call(x, (h, c), out=y, stream=5)
    gc.collect()
    assert [(a.deleted, a.streams) for a in arrays] == [(1, [5])] * 4


def test_without_a_stream_the_legacy_default_one_is_asked_for():
    x = bad(dtype="int32")
    with pytest.raises(rl.LayoutError):
        call(x)
    assert x.streams == [1]


def test_a_deleter_does_not_see_our_exception():
    seen = []

    class Curious(Exporter):
        def managed(self):
            made = super().managed()
            seen.append(sys.exc_info()[0])
            return made

    with pytest.raises(rl.LayoutError, match="x is int32"):
        call(Curious(A, SHAPE, "int32"))
    assert seen == [None]


@pytest.mark.parametrize("stream, number", [(0, 1), (77, 77)])
def test_the_stream_of_an_exchange_is_learned(stream, number):
    array = exchanging(lambda: stream)(A, SHAPE)
    found = _foreign.look(array, "x")
    assert (found.stream, found.address, found.device) == (number, A, (CUDA, 0))
    assert array.streams == []  # it needs no capsule
    del found
    assert array.deleted == 1


def test_an_exchange_of_another_major_version_is_not_used():
    array = exchanging(lambda: 7, version=(2, 0))(A, SHAPE)
    assert _foreign.look(array, "x")(5).stream is None
    assert array.streams == [5]


def test_the_exchange_of_torch():
    """Its real table, in the host's memory: no stream is asked for."""
    tensor = torch.arange(24, dtype=torch.bfloat16).view(2, 3, 4).transpose(0, 1)
    before = sys.getrefcount(tensor)
    (kept, address, shape, strides, dtype, kind, _, read_only), stream = _native.exchange(tensor)
    assert (address, shape, strides) == (tensor.data_ptr(), (3, 2, 4), tensor.stride())
    assert (dtype, kind, read_only, stream) == ("bfloat16", CPU, False, None)
    del kept
    assert sys.getrefcount(tensor) == before
    assert _native.exchange(np.ones(3)) is None
    with pytest.raises(Exception, match=r"sparse|layout"):
        _native.exchange(torch.ones(3).to_sparse())


def test_the_stream_of_an_interface_is_learned():
    assert _foreign.look(interface(stream=9), "x").stream == 9
    assert _foreign.look(interface(), "x").stream is None
    both = type("Both", (Exporter, Interface), {})(A, SHAPE)
    both.__cuda_array_interface__ = interface(stream=9).__cuda_array_interface__
    assert _foreign.look(both, "x").stream == 9 and both.streams == []
    del both.__cuda_array_interface__["stream"]  # DLPack's order is better than none
    assert _foreign.look(both, "x")(5).stream is None and both.streams == [5]


def test_arrays_without_elements_need_no_address():
    found = _foreign.look(interface(address=0, shape=(0, 3, 5), strides=(1, 2, 3)), "x")
    found.check_place(0)
    found.check(True)


@pytest.mark.parametrize("shape", [(1 << 40, 1 << 40), (1 << 62,), (1 << 61, 2)])
def test_more_memory_than_can_be_counted(shape):
    with pytest.raises(MemoryError):
        _native.device_arrays(0, "float16", (shape,), 1, None)


def test_a_device_array_without_elements_needs_no_gpu():
    array, _ = _native.device_arrays(0, "float64", ((2, 0, 3), (0, 4)), 5, None)
    assert (array.shape, array.dtype, array.address, len(array)) == ((2, 0, 3), "float64", 0, 2)
    assert array.__cuda_array_interface__["stream"] == array.stream == 5
    assert array.numpy().shape == (2, 0, 3) and array.numpy().dtype == np.float64
    found = _foreign.look(array, "x")
    assert (found.shape, found.device, found.stream) == ((2, 0, 3), (CUDA, 0), 5)
    taken = _native.take_dlpack(array.__dlpack__(stream=5, max_version=(1, 1)))
    assert taken[1:] == (0, (2, 0, 3), (0, 3, 1), "float64", CUDA, 0, False)
    for stream in (1, 2):
        with pytest.raises(rl.CudnnNotFoundError):  # it would have to be ordered
            array.__dlpack__(stream=stream)
    with pytest.raises(TypeError, match=r"in the memory of cuda:0: use .numpy\(\), which waits"):
        np.asarray(array)
    with pytest.raises(TypeError, match="cannot create"):
        rl.DeviceArray()
    with pytest.raises(rl.LayoutError, match=r"source is a DeviceArray|not an array: DeviceArray"):
        rl.RNN(array, LSTM)


def test_bfloat16_on_the_host_needs_a_package(monkeypatch):
    (array,) = _native.device_arrays(0, "bfloat16", ((0, 3),), 5, None)
    assert array.numpy().dtype.name == "bfloat16"
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(rl.LayoutError, match=r"ml_dtypes, .*: pip install \"rnnlayout\[bf16\]\""):
        array.numpy()
