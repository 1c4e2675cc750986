"""The error of a wrong call or option says what is needed; nothing is written."""

import numpy as np
import pytest
import torch
from run.cpu.running import SMALL

import rnnlayout as rl

LSTM, GRU = rl.RNN(np.zeros(SMALL.num_params, "f4"), SMALL), rl.Spec("gru", 5, 7)
GRU_RNN = rl.RNN(np.zeros(GRU.num_params, "f4"), GRU)
BOTH = rl.Spec("gru", 5, 7, 2, True)
BOTH_RNN = rl.RNN(np.zeros(BOTH.num_params, "f4"), BOTH)
PROJECTED = rl.Spec("lstm", 5, 7, proj_size=3)
PROJECTED_RNN = rl.RNN(np.zeros(PROJECTED.num_params, "f4"), PROJECTED)
HALF = rl.RNN(np.zeros(SMALL.num_params, "f2"), SMALL.replace(dtype="float16"))
FIRST = rl.RNN(np.zeros(SMALL.num_params, "f4"), SMALL, batch_first=True)
X, HC = np.zeros((4, 3, 5), "f4"), np.zeros((1, 3, 7), "f4")
Y = np.zeros((4, 3, 7), "f4")
ROOM = np.zeros(1000, "f4")


class Endless:
    """An array whose own code fails."""

    def __array__(self, dtype=None, copy=None):
        raise OverflowError("too many")


def frozen(a):
    a = a.copy()
    a.flags.writeable = False
    return a


CALLS = {
    "a list": (lambda: LSTM([[0.0] * 5]), "x is a list, need an array of float32 like the weigh"),
    "nothing": (lambda: LSTM(None), "x is a NoneType, need an array"),
    "x of another dtype": (lambda: LSTM(X.astype("f8")), "x is float64, need float32 like the wei"),
    "a packed sequence": (
        lambda: LSTM(torch.nn.utils.rnn.pack_sequence([torch.zeros(4, 3), torch.zeros(2, 3)])),
        "x is a PackedSequence, need an array of float32 like the weights: pass both results of",
    ),
    "x of integers": (lambda: LSTM(X.astype("i8")), "x is int64, need float32 like the weights"),
    "torch integers": (lambda: LSTM(torch.zeros(4, 3, 5, dtype=torch.int32)), "x is int32, need f"),
    "x for narrow weights": (
        lambda: HALF(X.astype("f8")),
        r"x is float64, need float16 like the weights, or float32$",
    ),
    "a masked x": (lambda: LSTM(np.ma.masked_array(X)), "x is a masked array: fill it first"),
    "x of another width": (
        lambda: LSTM(X[..., :4]),
        r"x: shape \(4, 3, 4\), expected \(T, N, 5\) or, without a batch, \(T, 5\), with I = 5",
    ),
    "x of one axis": (lambda: LSTM(X[0, 0]), r"x: shape \(5,\), expected \(T, N, 5\) or"),
    "x of four axes": (lambda: FIRST(X[None]), r"\(1, 4, 3, 5\), expected \(N, T, 5\) or, .* \(T"),
    "x of a step": (lambda: LSTM.step(X), r"\(4, 3, 5\), expected \(N, 5\) or, without .* \(5,\),"),
    "an array for two": (lambda: LSTM(X, HC), r"state is a ndarray, need \(h_0, c_0\): an LSTM ha"),
    "one of two": (lambda: LSTM(X, (HC,)), r"state is a tuple, need \(h_0, c_0\)"),
    "None of two": (lambda: LSTM(X, (HC, None)), "c_0 is a NoneType, need an array of float32 lik"),
    "two for one": (
        lambda: GRU_RNN(X, (HC, HC)),
        "h_0 is a tuple, need an array of float32 like x",
    ),
    "a state of another dtype": (lambda: LSTM(X, (HC, HC.astype("f8"))), "c_0 is float64, need fl"),
    "a state as the weights": (
        lambda: HALF(X, (HC.astype("f2"),) * 2),
        "h_0 is float16, need float32 like x",
    ),
    "a state of another batch": (
        lambda: LSTM(X, (HC[:, :2], HC)),
        r"h_0: shape \(1, 2, 7\), expected \(1, 3, 7\) = \(L \* D, N, H\)",
    ),
    "a state of fewer layers": (
        lambda: BOTH_RNN(X, HC),
        r"h_0: shape \(1, 3, 7\), expected \(4, 3, 7\)",
    ),
    "a state unprojected": (
        lambda: PROJECTED_RNN(X, (HC, HC)),
        r"h_0: shape \(1, 3, 7\), expected \(1, 3, 3\) = \(L \* D, N, P\)",
    ),
    "a batch of states": (
        lambda: LSTM(X[0], (HC, HC)),
        r"h_0: shape \(1, 3, 7\), expected \(1, 7\) = \(L \* D, H\)",
    ),
    "lengths of no batch": (
        lambda: LSTM(X[0], lengths=[3]),
        r"lengths need a batch, but x has shape \(3, 5\): cut x",
    ),
    "too few lengths": (lambda: LSTM(X, lengths=[1, 2]), r"lengths: shape \(2,\), expected \(3,\)"),
    "a number for lengths": (lambda: LSTM(X, lengths=4), r"lengths: shape \(\), expected \(3,\) ="),
    "no lengths": (lambda: LSTM(X, lengths=[1, [2], 3]), "lengths is not an array: list"),
    "broken lengths": (lambda: LSTM(X, lengths=[1.0, 2, 3]), "lengths is float64, need integers"),
    "true lengths": (lambda: LSTM(X, lengths=[True] * 3), "lengths is bool, need integers"),
    "lengths without an end": (
        lambda: LSTM(X, lengths=Endless()),
        r"lengths is not an array: Endless \(too many\)",
    ),
    "a length below 0": (lambda: LSTM(X, lengths=[1, 2, -1]), r"lengths\[2\] is -1, need 0 to 4 ="),
    "a length past T": (lambda: LSTM(X, lengths=[1, 5, -1]), r"lengths\[1\] is 5, need 0 to 4 = T"),
    "a length past T of an array": (
        lambda: LSTM(X, lengths=np.array([1, 5, -1])),
        r"lengths\[1\] is 5, need 0 to 4 = T",
    ),
    "an array of lengths of no batch": (
        lambda: LSTM(X[0], lengths=np.array([3])),
        r"lengths need a batch, but x has shape \(3, 5\): cut x",
    ),
    "a length past all": (
        lambda: LSTM(X, lengths=np.array([0, 2**64 - 1, 0], "u8")),
        "lengths has 18446744073709551615, need at most T",
    ),
    "c for a GRU": (lambda: GRU_RNN(X, c_out=HC), "c_out is given, but a GRU has no cell s"),
    "out of another shape": (
        lambda: LSTM(X, out=Y[:3]),
        r"out: shape \(3, 3, 7\), expected \(4, 3, 7\) for this x",
    ),
    "out of another dtype": (
        lambda: LSTM(X, out=Y.astype("f8")),
        "out is float64, need float32 l",
    ),
    "out that is none": (lambda: LSTM(X, out=7), "out is a int, need an array of float32 like x"),
    "out read-only": (lambda: LSTM(X, out=frozen(Y)), "out is read-only"),
    "h_out read-only": (lambda: LSTM(X, h_out=frozen(HC)), "h_out is read-only"),
    "out big-endian": (
        lambda: LSTM(X, out=Y.astype(">f4")),
        "out cannot be written in place: pass",
    ),
    "out in columns": (
        lambda: LSTM(X, out=np.zeros((4, 7, 3), "f4").swapaxes(1, 2)),
        "out must be aligned and contiguous in its last axis",
    ),
    "out over itself": (
        lambda: LSTM(X, out=np.lib.stride_tricks.as_strided(Y, Y.shape, (0, 28, 4))),
        "out: its elements share memory",
    ),
    "h_out over itself": (
        lambda: LSTM(X, h_out=np.lib.stride_tricks.as_strided(HC, HC.shape, (0, 0, 4))),
        "h_out: its elements share memory",
    ),
    "out over x": (
        lambda: LSTM(ROOM[:60].reshape(X.shape), out=ROOM[59:143].reshape(Y.shape)),
        "out must not share memory with x",
    ),
    "c_out over x": (
        lambda: LSTM(ROOM[:60].reshape(X.shape), c_out=ROOM[:21].reshape(HC.shape)),
        "c_out must not share memory with x",
    ),
    "out over h_out": (
        lambda: LSTM(X, out=ROOM[:84].reshape(Y.shape), h_out=ROOM[80:101].reshape(HC.shape)),
        "out and h_out share memory: each needs its own",
    ),
    "h_out over c_out": (lambda: LSTM(X, h_out=HC, c_out=HC), "h_out and c_out share memory"),
    "a step's out over h_out": (
        lambda: LSTM.step(X[0], out=HC[0], h_out=HC),
        "out and h_out share memory: each needs its own",
    ),
}
OPTIONS = {
    "a stream": (lambda: LSTM(X, stream=0), "stream= is only for RNNs on a GPU, this one is on th"),
    "a stream of a step": (lambda: LSTM.step(X[0], stream=7), "stream= is only for RNNs"),
    "steps backward": (
        lambda: BOTH_RNN.step(X[0]),
        r"step\(\) needs one direction, this RNN has two",
    ),
    "a device": (
        lambda: rl.RNN(X, device="gpu"),
        "device is 'gpu', need 'cpu', 'cuda', 'cuda:N' or",
    ),
    "no device": (lambda: rl.RNN(X, device=0), "device is 0, need 'cpu'"),
    "math": (
        lambda: rl.RNN(X, math="fma"),
        "math is 'fma', need 'default', 'bfloat16' or 'int8' on the CPU",
    ),
    "bfloat16 math of float64": (
        lambda: rl.RNN(np.zeros(SMALL.num_params), SMALL.replace(dtype="f8"), math="bfloat16"),
        "math='bfloat16' would discard the precision of float64",
    ),
    "algo": (
        lambda: rl.RNN(X, algo="persist"),
        "algo is 'persist', need 'auto' or 'standard' on the",
    ),
    "math of a GPU": (
        lambda: rl.RNN(X, math="tf32"),
        "math is 'tf32', need 'default', 'bfloat16' or",
    ),
    "math of the CPU": (
        lambda: rl.RNN(X, math="bfloat16", device="cuda"),
        "math is 'bfloat16', need 'default' or 'tf32' on cuda:0",
    ),
    "math of nobody": (
        lambda: rl.RNN(X, math="fma", device="auto"),
        "math is 'fma', need 'default', 'bfloat16', 'int8' or 'tf32'$",
    ),
    "algo of nobody": (
        lambda: rl.RNN(X, algo="persist", device="auto"),
        "algo is 'persist', need 'auto' or 'standard'$",
    ),
    "batch_first": (lambda: rl.RNN(X, batch_first=2), "batch_first is 2, need True or False"),
    "no spec": (lambda: rl.RNN(np.zeros(5, "f4")), "a flat vector of 5 elements does not record"),
    "a clip of one": (lambda: rl.RNN(X, cell_clip=1.0), r"cell_clip is 1.0, need \(low, high\)"),
    "a clip of words": (
        lambda: rl.RNN(X, cell_clip="ab"),
        r"cell_clip is 'ab', need \(low, high\)",
    ),
    "a clip of nothing": (
        lambda: rl.RNN(np.zeros(SMALL.num_params, "f4"), SMALL, cell_clip=(1, -1)),
        "clip",
    ),
    "a clip of a GRU": (
        lambda: rl.RNN(np.zeros(GRU.num_params, "f4"), GRU, cell_clip=(-1, 1)),
        "clip",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_says_what_it_needs(name):
    call, text = CALLS[name]
    with pytest.raises(rl.LayoutError, match=text):
        call()
    assert not any(a.any() for a in (Y, HC, ROOM))  # nothing was written


@pytest.mark.parametrize("name", OPTIONS)
def test_a_wrong_option_says_what_there_is(name):
    call, text = OPTIONS[name]
    with pytest.raises(rl.SpecError, match=text):
        call()


def test_weights_that_no_rnn_can_have():
    spec = rl.Spec("lstm", 5, 7)
    peeping = rl.describe(spec.replace(peepholes=True), "onnx")
    tensors = {name: np.ones(shape, "f4") for name, shape in peeping.items()}
    with pytest.raises(rl.LossyError, match="because the spec says peepholes=False"):
        rl.RNN(tensors, spec, layout="onnx")
    assert rl.RNN(tensors, layout="onnx").spec.peepholes
    with pytest.raises(rl.LayoutError, match="weight space: 5 elements, need"):
        rl.RNN(np.zeros(5, "f4"), spec)
    with pytest.raises(rl.LossyError, match="reset"):
        rl.RNN(np.zeros(5, "f4"), rl.Spec("gru", 5, 7, reset="before"))


def test_the_layout_of_the_cpu_is_not_for_users():
    assert "cpu" not in rl.layouts()


def test_attributes_cannot_be_set():
    for name in ("spec", "device", "batch_first", "cell_clip", "other"):
        with pytest.raises(AttributeError):
            setattr(LSTM, name, None)
