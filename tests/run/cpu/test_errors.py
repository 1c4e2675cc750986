"""The error of a wrong call or option says what is needed; nothing is written. hints/calls.py has
those that say what to call instead."""

import numpy as np
import pytest
import torch
from run.cpu.running import SMALL
from run.gpu.exporters import Exporter

import rnnlayout as rl


def zeros(spec, **options):
    return rl.RNN(np.zeros(spec.num_params, spec.dtype), spec, **options)


GRU = rl.Spec("gru", 5, 7)
LSTM, GRU_RNN, BOTH_RNN = zeros(SMALL), zeros(GRU), zeros(rl.Spec("gru", 5, 7, 2, True))
PROJECTED_RNN, HALF = zeros(SMALL.replace(proj_size=3)), zeros(SMALL.replace(dtype="float16"))
FIRST = zeros(SMALL, batch_first=True)
X, HC, Y = np.zeros((4, 3, 5), "f4"), np.zeros((1, 3, 7), "f4"), np.zeros((4, 3, 7), "f4")
FLAT = np.zeros(SMALL.num_params, "f4")
ROOM = np.zeros(1000, "f4")
HUGE = np.array([0, 2**64 - 1, 0], "u8")


def room(start, like):
    return ROOM[start : start + like.size].reshape(like.shape)


class Endless:
    """An array whose own code fails."""

    def __array__(self, dtype=None, copy=None):
        raise OverflowError("too many")


class OnDevice(Exporter):
    """As a torch tensor on a GPU: it converts to an array, by a copy."""

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("an array on a GPU must not be copied silently")


def frozen(a):
    a = a.copy()
    a.flags.writeable = False
    return a


NOT_LAST = np.zeros((4, 7, 3), "f4").swapaxes(1, 2)
shared = np.lib.stride_tricks.as_strided
# A call, and what its error says.
CALLS = [
    (lambda: LSTM([[0.0] * 5]), "x is a list, need an array of float32 like the weigh"),
    (lambda: LSTM(None), "x is a NoneType, need an array"),
    (lambda: LSTM(OnDevice(1 << 40, X.shape)), "x is a OnDevice on a GPU, but this RNN is on"),
    (lambda: LSTM(X, (HC, OnDevice(1 << 40, HC.shape))), "c_0 is a OnDevice .*device='cuda' to rl"),
    (lambda: LSTM(X.astype("f8")), "x is float64, need float32 like the wei"),
    (lambda: LSTM(torch.zeros(4, 3, 5, dtype=torch.int32)), "x is int32, need f"),
    (lambda: HALF(X.astype("f8")), r"x is float64, need float16 like the weights, or float32$"),
    (lambda: LSTM(np.ma.masked_array(X)), "x is a masked array: fill it first"),
    (lambda: LSTM(X[..., :4]), r"\(4, 3, 4\), expected \(T, N, 5\) or, .* \(T, 5\), with I = 5"),
    (lambda: LSTM(X[0, 0]), r"x: shape \(5,\), expected \(T, N, 5\) or"),
    (lambda: FIRST(X[None]), r"\(1, 4, 3, 5\), expected \(N, T, 5\) or, .* \(T"),
    (lambda: LSTM.step(X), r"\(4, 3, 5\), expected \(N, 5\) or, without .* \(5,\),"),
    (lambda: LSTM(X, HC), r"state is a ndarray, need \(h_0, c_0\): an LSTM ha"),
    (lambda: LSTM(X, (HC,)), r"state is a tuple, need \(h_0, c_0\)"),
    (lambda: LSTM(X, (HC, None)), "c_0 is a NoneType, need an array of float32 lik"),
    (lambda: GRU_RNN(X, (HC, HC)), "h_0 is a tuple, need an array of float32 like x"),
    (lambda: LSTM(X, (HC, HC.astype("f8"))), "c_0 is float64, need fl"),
    (lambda: HALF(X, (HC.astype("f2"),) * 2), "h_0 is float16, need float32 like x"),
    (lambda: LSTM(X, (HC[:, :2], HC)), r"h_0: .*, expected \(1, 3, 7\) = \(L \* D, N, H\)"),
    (lambda: BOTH_RNN(X, HC), r"h_0: shape \(1, 3, 7\), expected \(4, 3, 7\)"),
    (lambda: PROJECTED_RNN(X, (HC, HC)), r"expected \(1, 3, 3\) = \(L \* D, N, P\)"),
    (lambda: LSTM(X[0], (HC, HC)), r"h_0: shape .*, expected \(1, 7\) = \(L \* D, H\)"),
    (lambda: LSTM(X[0], lengths=[3]), r"lengths need a batch, but x has shape \(3, 5\): cut x"),
    (lambda: LSTM(X[0], lengths=np.array([3])), r"lengths need a batch, but x has .*: cut x"),
    (lambda: LSTM(X, lengths=[1, 2]), r"lengths: shape \(2,\), expected \(3,\)"),
    (lambda: LSTM(X, lengths=4), r"lengths: shape \(\), expected \(3,\) ="),
    (lambda: LSTM(X, lengths=[1, [2], 3]), "lengths is not an array: list"),
    (lambda: LSTM(X, lengths=[1.0, 2, 3]), "lengths is float64, need integers"),
    (lambda: LSTM(X, lengths=[True] * 3), "lengths is bool, need integers"),
    (lambda: LSTM(X, lengths=Endless()), r"lengths is not an array: Endless \(too many\)"),
    (lambda: LSTM(X, lengths=[1, 2, -1]), r"lengths\[2\] is -1, need 0 to 4 ="),
    (lambda: LSTM(X, lengths=[1, 5, -1]), r"lengths\[1\] is 5, need 0 to 4 = T"),
    (lambda: LSTM(X, lengths=np.array([1, 5, -1])), r"lengths\[1\] is 5, need 0 to 4 = T"),
    (lambda: LSTM(X, lengths=HUGE), "lengths has 18446744073709551615, need at most T"),
    (lambda: GRU_RNN(X, c_out=HC), "c_out is given, but a GRU has no cell s"),
    (lambda: LSTM(X, out=Y[:3]), r"out: shape \(3, 3, 7\), expected \(4, 3, 7\) for this x"),
    (lambda: LSTM(X, out=torch.zeros(4, 3, 7, requires_grad=True)), "out requires grad"),
    (lambda: LSTM(X, out=Y.astype("f8")), "out is float64, need float32 l"),
    (lambda: LSTM(X, out=7), "out is a int, need an array of float32 like x"),
    (lambda: LSTM(X, out=frozen(Y)), "out is read-only"),
    (lambda: LSTM(X, h_out=frozen(HC)), "h_out is read-only"),
    (lambda: LSTM(X, out=Y.astype(">f4")), "out cannot be written in place: pass"),
    (lambda: LSTM(X, out=NOT_LAST), "out must be aligned and contiguous in its last axis"),
    (lambda: LSTM(X, out=shared(Y, Y.shape, (0, 28, 4))), "out: its elements share memory"),
    (lambda: LSTM(X, h_out=shared(HC, HC.shape, (0, 0, 4))), "h_out: its elements share memory"),
    (lambda: LSTM(room(0, X), out=room(59, Y)), "out must not share memory with x"),
    (lambda: LSTM(room(0, X), c_out=room(0, HC)), "c_out must not share memory with x"),
    (lambda: LSTM(X, out=room(0, Y), h_out=room(80, HC)), "out and h_out share memory: each"),
    (lambda: LSTM(X, h_out=HC, c_out=HC), "h_out and c_out share memory"),
    (lambda: LSTM.step(X[0], out=HC[0], h_out=HC), "out and h_out share memory: each needs"),
]
OPTIONS = [
    (lambda: LSTM.step(X[0], stream=7), "stream= is only for RNNs"),
    (lambda: BOTH_RNN.step(X[0]), r"step\(\) needs one direction, this RNN has two"),
    (lambda: rl.RNN(X, device="gpu"), "device is 'gpu', need 'cpu', 'cuda', 'cuda:N' or"),
    (lambda: rl.RNN(X, device=0), "device is 0, need 'cpu'"),
    (lambda: rl.RNN(X, math="fma"), "'fma', need 'default', 'bfloat16' or 'int8' on the CPU"),
    (lambda: rl.RNN(X, algo="persist"), "algo is 'persist', need 'auto' or 'standard' on the"),
    (lambda: rl.RNN(X, math="tf32"), "math is 'tf32', need 'default', 'bfloat16' or"),
    (lambda: rl.RNN(X, math="bfloat16", device="cuda"), "need 'default' or 'tf32' on cuda:0"),
    (lambda: rl.RNN(X, math="fma", device="auto"), "'default', 'bfloat16', 'int8' or 'tf32'$"),
    (lambda: rl.RNN(X, algo="persist", device="auto"), "'persist', need 'auto' or 'standard'$"),
    (lambda: rl.RNN(X, batch_first=2), "batch_first is 2, need True or False"),
    (lambda: rl.RNN(np.zeros(5, "f4")), "a flat vector of 5 elements does not record"),
    (lambda: rl.RNN(X, cell_clip=1.0), r"cell_clip is 1.0, need \(low, high\)"),
    (lambda: rl.RNN(X, cell_clip="ab"), r"cell_clip is 'ab', need \(low, high\)"),
    (lambda: rl.RNN(FLAT, SMALL, cell_clip=(1, -1)), "clip"),
    (lambda: rl.RNN(np.zeros(GRU.num_params, "f4"), GRU, cell_clip=(-1, 1)), "clip"),
]


@pytest.mark.parametrize("call, text", CALLS, ids=[text for _, text in CALLS])
def test_a_wrong_call_says_what_it_needs(call, text):
    with pytest.raises(rl.LayoutError, match=text):
        call()
    assert not any(a.any() for a in (Y, HC, ROOM))  # nothing was written


@pytest.mark.parametrize("call, text", OPTIONS, ids=[text for _, text in OPTIONS])
def test_a_wrong_option_says_what_there_is(call, text):
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


def test_attributes_cannot_be_set():
    for name in ("spec", "device", "batch_first", "cell_clip", "other"):
        with pytest.raises(AttributeError):
            setattr(LSTM, name, None)
