"""What an RNN that runs promises besides its numbers: bits, memory, threads, errors."""

import _thread
import copy
import pickle
import signal
import threading
import time

import ml_dtypes
import numpy as np
import pytest
import torch
from bits import DTYPES
from frameworks import seeded
from some import normal_weights, same_bits
from test_awkward_arrays import NOT_BFLOAT16, SAME, Loud

import rnnlayout as rl

# All different: steps, batch, input, hidden, projected. H is past several vectors of any tier, and
# makes work enough for several threads.
T, N, I, H, P = 6, 11, 21, 130, 50  # noqa: E741
LENGTHS = np.array([6, 2, 0, 5, 1, 6, 3, 4, 0, 2, 5])
KINDS = [
    rl.Spec("lstm", I, H),
    rl.Spec("lstm", I, H, 2, True, P),
    rl.Spec("lstm", I, H, dtype="bfloat16"),
    rl.Spec("lstm", I, H, recurrent_activation="hard_sigmoid"),
    rl.Spec("gru", I, H, 3, dtype="float16"),
    rl.Spec("gru", I, H, 2, True),
    rl.Spec("gru", I, H, 2, reset="before"),
    rl.Spec("gru", I, H, 2, reset="before", dtype="float64"),
    rl.Spec("rnn_tanh", I, H, 2, True, dtype="float64"),
    rl.Spec("rnn_relu", H, H, 2, skip_input=True),
]
every_kind = pytest.mark.parametrize("spec", KINDS, ids=str)
one_direction = pytest.mark.parametrize(
    "spec", [spec for spec in KINDS if not spec.bidirectional], ids=str
)


def rnn_of(spec, **options):
    special = spec.reset == "before" or spec.recurrent_activation != "sigmoid"
    layout = "onnx" if special else "cudnn"
    weights = normal_weights(rl.layout(layout), spec)
    tensors = weights if special else {"weight_space": weights}
    for a in tensors.values():
        a /= np.array(H, a.dtype)
    return rl.RNN(weights, spec, layout=layout, **options)


def inputs(spec, steps=T, batch=N, dtype=None):
    """x and a state for it, as a call takes them."""
    rng = seeded("behaviour", spec)
    dtype = DTYPES[dtype or spec.dtype][0]
    layers = spec.num_layers * spec.num_directions

    def numbers(*shape):
        return rng.normal(size=shape).astype(dtype)

    x = numbers(steps, batch, spec.input_size)
    h0 = numbers(layers, batch, spec.proj_size or H)
    return x, (h0, numbers(layers, batch, H)) if spec.cell == "lstm" else h0


def flat(result):
    """y, h_n and c_n."""
    y, state = result
    return [y, *state] if isinstance(state, tuple) else [y, state]


def same(a, b):
    return all(same_bits(np.asarray(x), np.asarray(y))
               for x, y in zip(flat(a), flat(b), strict=True))  # fmt: skip


def rows(state, which):
    """Some sequences of a state."""
    return tuple(a[:, which] for a in state) if isinstance(state, tuple) else state[:, which]


@pytest.fixture
def threads():
    """Set their number for this test alone."""
    yield rl.set_num_threads
    rl.set_num_threads(0)


# ------------------------------------------------------------------------------------------- bits


@every_kind
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "lengths"])
def test_threads_change_no_bit(spec, lengths, threads):
    rnn, (x, state) = rnn_of(spec), inputs(spec)
    threads(1)
    wanted = rnn(x, state, lengths=lengths)
    for n in (2, 3, 5):
        threads(n)
        assert rl.num_threads() == n
        for _ in range(3):
            assert same(rnn(x, state, lengths=lengths), wanted)


@every_kind
def test_a_sequence_alone_is_what_it_is_in_a_batch(spec):
    rnn, (x, state) = rnn_of(spec), inputs(spec)
    whole = rnn(x, state)
    for some in (slice(0, 1), slice(4, 5), slice(N - 1, N), slice(3, 9), slice(None, None, -1)):
        y, last = rnn(x[:, some], rows(state, some))
        assert same((y, last), (whole[0][:, some], rows(whole[1], some)))
    y, last = rnn(x[:, 7], rows(state, 7))
    assert same((y, last), (whole[0][:, 7], rows(whole[1], 7)))


@every_kind
def test_lengths_are_shorter_calls(spec):
    rnn, (x, state) = rnn_of(spec), inputs(spec)
    y, last = rnn(x, state, lengths=LENGTHS)
    for n, length in enumerate(LENGTHS):
        one = slice(n, n + 1)
        alone = rnn(x[:length, one], rows(state, one))
        assert same(alone, (y[:length, one], rows(last, one)))
        assert not y[length:, n].any()
        if length == 0:
            assert same((y, rows(last, one)), (y, rows(state, one)))


@one_direction
def test_steps_are_one_call(spec):
    """States in float16 or bfloat16 are rounded at each step: those of steps are in float32."""
    dtype = "float64" if spec.dtype == "float64" else "float32"
    rnn, (x, state) = rnn_of(spec), inputs(spec, dtype=dtype)
    wanted = rnn(x, state)
    ys = []
    for step in x:
        y, state = rnn.step(step, state)
        ys.append(y)
    assert same((np.stack(ys), state), wanted)
    zero = rnn(x[:1])
    y, state = rnn.step(x[0])
    assert same((y[None], state), zero)
    y, state = rnn.step(x[0, 3])
    assert y.shape == (spec.proj_size or H,)
    assert same((y[None], state), (zero[0][:, 3], rows(zero[1], 3)))


@every_kind
def test_batch_first_is_a_matter_of_strides(spec):
    rnn, other, (x, state) = rnn_of(spec), rnn_of(spec, batch_first=True), inputs(spec)
    assert other.batch_first and not rnn.batch_first
    y, last = rnn(x, state, lengths=LENGTHS)
    swapped = np.array(x.swapaxes(0, 1), order="C")
    assert same(other(swapped, state, lengths=LENGTHS), (y.swapaxes(0, 1), last))
    assert same(other(x.swapaxes(0, 1), state, lengths=LENGTHS), (y.swapaxes(0, 1), last))
    assert same(other(x[:, 2], rows(state, 2)), rnn(x[:, 2], rows(state, 2)))


@every_kind
def test_forward_and_pickles_and_copies(spec):
    rnn, (x, state) = rnn_of(spec), inputs(spec)
    wanted = rnn(x, state)
    for other in (pickle.loads(pickle.dumps(rnn)), copy.copy(rnn), copy.deepcopy(rnn)):
        assert same(other(x, state), wanted)
        assert other.spec == spec and repr(other) == repr(rnn)
    if spec.reset == "after" and spec.recurrent_activation == "sigmoid":
        weights = normal_weights(rl.layout("cudnn"), spec)
        weights /= np.array(H, weights.dtype)
        assert same(rl.forward(x, weights, spec, state=state), wanted)


def test_options_are_pickled():
    spec = KINDS[0]
    rnn = rnn_of(spec, batch_first=True, cell_clip=(-0.5, 0.25), device="auto")
    other = pickle.loads(pickle.dumps(rnn))
    assert (other.batch_first, other.cell_clip, other.device) == (True, (-0.5, 0.25), "cpu")
    assert repr(other) == f"<RNN of {spec}, batch first, cell_clip (-0.5, 0.25), on cpu>"
    x, state = inputs(spec)
    assert same(other(x.swapaxes(0, 1), state), rnn(x.swapaxes(0, 1), state))
    _, (_, c) = other(x[:1].swapaxes(0, 1), state)
    assert c.min() == -0.5 and c.max() == 0.25


# ---------------------------------------------------------------------------------------- updates


def test_update():
    spec = rl.Spec("gru", I, H, 2)
    first, second = (
        {k: np.random.default_rng(s).normal(size=v).astype("f4") / H
         for k, v in rl.describe("torch", spec).items()}
        for s in (1, 2)
    )  # fmt: skip
    x, state = inputs(spec)
    rnn = rl.RNN(first)
    before, wanted = rnn(x, state), rl.RNN(second)(x, state)
    for wrong in ({k: v[:-1] for k, v in second.items()}, second | {"more": x},
                  {k: v.astype("f8") for k, v in second.items()}):  # fmt: skip
        with pytest.raises(rl.LayoutError):
            rnn.update(wrong)
        assert same(rnn(x, state), before)
    rnn.update(second)
    assert same(rnn(x, state), wanted) and not same(wanted, before)
    rnn.update(rl.pack(first))
    assert same(rnn(x, state), before)
    rnn.update({f"a.{k}": v for k, v in second.items()}, prefix="a")
    assert same(rnn(x, state), wanted)


def test_weights_are_read_when_they_are_given():
    spec = rl.Spec("rnn_tanh", I, H)
    weights = normal_weights(rl.layout("cudnn"), spec) / np.float32(H)
    x, state = inputs(spec)
    rnn = rl.RNN(weights, spec)
    before = rnn(x, state)
    weights[:] = 0
    assert same(rnn(x, state), before)


def test_update_while_others_run():
    """Each call sees the old weights or the new ones, never some of each."""
    spec = rl.Spec("gru", I, H)
    x, state = inputs(spec)
    sources = [normal_weights(rl.layout("cudnn"), spec, s) / np.float32(H) for s in (1, 2)]
    right = [np.concatenate([a.ravel() for a in flat(rl.forward(x, s, spec, state=state))])
             for s in sources]  # fmt: skip
    rnn, wrong, done = rl.RNN(sources[0], spec), [], threading.Event()

    def work():
        while not done.is_set():
            found = np.concatenate([a.ravel() for a in flat(rnn(x, state))])
            if not any(same_bits(found, r) for r in right):
                wrong.append(1)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for t in workers:
        t.start()
    for k in range(100):
        rnn.update(sources[k % 2])
    done.set()
    for t in workers:
        t.join()
    assert not wrong


# ----------------------------------------------------------------------------------------- arrays

ARRAYS = rl.Spec("lstm", 5, 7)
BFLOAT16 = ARRAYS.replace(dtype="bfloat16")


def small(spec):
    rng = np.random.default_rng(3)
    dtype = DTYPES[spec.dtype][0]
    flat = (rng.normal(size=spec.num_params) / 4).astype(dtype)
    x, h, c = (rng.normal(size=s).astype(dtype) for s in ((4, 3, 5), (1, 3, 7), (1, 3, 7)))
    return rl.RNN(flat, spec), x, h, c


@pytest.mark.parametrize("kind", SAME | NOT_BFLOAT16)
def test_awkward_arrays(kind):
    if kind == "a buffer":  # which may be anything's: arrays only
        return
    change = (SAME | NOT_BFLOAT16)[kind]
    rnn, x, h, c = small(ARRAYS)
    wanted = rnn(x, (h, c))
    assert same(rnn(change(x), (change(h), change(c))), wanted)
    assert same(rnn(change(x), (h, change(c)), lengths=[4, 4, 4]), wanted)
    step = rnn.step(x[0], (h, c))
    assert same(rnn.step(change(x[0]), (change(h), change(c))), step)


@pytest.mark.parametrize("kind", [k for k in SAME if k != "__array__"])
def test_awkward_arrays_of_bfloat16(kind):
    rnn, x, h, c = small(BFLOAT16)

    def change(a):
        return SAME[kind](a.view("u2")).view(a.dtype)

    wanted = rnn(x, (h, c))
    assert wanted[0].dtype == ml_dtypes.bfloat16
    assert same(rnn(change(x), (change(h), change(c))), wanted)
    as_torch = [torch.from_numpy(a.view("i2")).view(torch.bfloat16) for a in (x, h, c)]
    assert same(rnn(as_torch[0], tuple(as_torch[1:])), wanted)


def test_numbers_of_16_bits_are_no_bfloat16():
    rnn, x, h, c = small(BFLOAT16)
    with pytest.raises(rl.LayoutError, match="x is uint16, need bfloat16, as the weights are, or"):
        rnn(x.view("u2"), (h.view("u2"), c.view("u2")))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_float32_for_narrow_weights(dtype):
    """x in float32 is as it stands; the result is not rounded to the dtype of the weights."""
    rnn, x, h, c = small(ARRAYS.replace(dtype=dtype))
    wide = [a.astype("f4") for a in (x, h, c)]
    found = flat(rnn(wide[0], tuple(wide[1:])))
    assert all(a.dtype == np.float32 for a in found)
    narrow = flat(rnn(x, (h, c)))
    assert all(same_bits(a.astype(x.dtype), b) for a, b in zip(found, narrow, strict=True))


OUTS = {
    "plain": lambda a: np.empty_like(a),
    "in a wider array": lambda a: np.empty((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)[..., 3:10],
    "backwards": lambda a: np.empty_like(a)[::-1],
    "swapped": lambda a: np.empty(a.shape[1::-1] + a.shape[2:], a.dtype).swapaxes(0, 1),
    "a subclass": lambda a: np.empty_like(a).view(Loud),
    "torch": lambda a: torch.empty(a.shape),
}


@pytest.mark.parametrize("kind", OUTS)
def test_outputs_of_the_caller(kind):
    rnn, x, h, c = small(ARRAYS)
    wanted = rnn(x, (h, c))
    outs = [OUTS[kind](a) for a in flat(wanted)]
    y, (hn, cn) = rnn(x, (h, c), out=outs[0], h_out=outs[1], c_out=outs[2])
    assert y is outs[0] and hn is outs[1] and cn is outs[2]
    assert same((np.asarray(y), (np.asarray(hn), np.asarray(cn))), wanted)
    y, (hn, cn) = rnn(x, (h, c), h_out=outs[1])  # and only some
    assert hn is outs[1] and same((y, (np.asarray(hn), cn)), wanted)


def test_outputs_of_bfloat16():
    rnn, x, h, c = small(BFLOAT16)
    wanted = rnn(x, (h, c))
    outs = [np.empty_like(a) for a in flat(wanted)]
    y, (hn, cn) = rnn(x, (h, c), out=outs[0], h_out=outs[1], c_out=outs[2])
    assert y is outs[0] and hn is outs[1] and cn is outs[2] and same((y, (hn, cn)), wanted)


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("batch_first", [False, True])
def test_nothing_to_run(shape, batch_first):
    rnn, _, h, c = small(ARRAYS)
    rnn = rl.RNN(rnn._native.weights(), ARRAYS, batch_first=batch_first)
    steps, batch = shape
    h, c = (np.resize(a, (1, batch, 7)) for a in (h, c))
    axes = shape[::-1] if batch_first else shape
    for lengths in (None, np.full(batch, steps), [steps] * batch):
        y, (hn, cn) = rnn(np.empty((*axes, 5), "f4"), (h, c), lengths=lengths)
        assert y.shape == (*axes, 7) and same_bits(hn, h) and same_bits(cn, c)
        assert hn is not h
    out = np.empty((*axes, 7), "f4")
    assert rnn(np.empty((*axes, 5), "f4"), (h, c), out=out)[0] is out


@pytest.mark.parametrize(
    "lengths",
    [[4, 0, 2], (4, 0, 2), np.array([4, 0, 2], "i1"), np.array([4, 0, 2], ">u8"),
     np.array([9, 4, 9, 0, 9, 2])[1::2], torch.tensor([4, 0, 2])],
    ids=["list", "tuple", "int8", "big-endian", "strided", "torch"],
)  # fmt: skip
def test_lengths_of_any_kind(lengths):
    rnn, x, h, c = small(ARRAYS)
    assert same(rnn(x, (h, c), lengths=lengths), rnn(x, (h, c), lengths=np.array([4, 0, 2])))


def test_in_place_in_a_call():
    """The last state over the first; x is only read."""
    rnn, x, h, c = small(ARRAYS)
    wanted, before = rnn(x, (h, c)), x.copy()
    h2, c2 = h.copy(), c.copy()
    assert same(rnn(x, (h2, c2), h_out=h2, c_out=c2), wanted)
    assert same_bits(h2, wanted[1][0]) and same_bits(x, before)
    h2, c2 = h.copy(), c.copy()  # crosswise: what is still to be read is copied
    assert same(rnn(x, (h2, c2), h_out=c2, c_out=h2), wanted)


@pytest.mark.parametrize("shift", [-1, 1])
def test_the_last_state_of_a_layer_over_the_first_of_the_next(shift):
    spec = rl.Spec("gru", I, H, 3)
    rnn, (x, h0) = rnn_of(spec), inputs(spec)
    room = np.zeros((5, N, H), "f4")
    room[1:4] = h0
    first, last = room[1:4], room[1 + shift : 4 + shift]
    assert same(rnn(x, first, h_out=last), rnn(x, h0))


def test_in_place_in_a_step():
    spec = rl.Spec("lstm", 7, 9, proj_size=7)
    rng = np.random.default_rng(5)
    rnn = rl.RNN(rng.normal(size=spec.num_params).astype("f4"), spec)
    x = rng.normal(size=(3, 7)).astype("f4")
    state = rng.normal(size=(1, 3, 7)).astype("f4"), rng.normal(size=(1, 3, 9)).astype("f4")
    wanted = rnn.step(x, state)
    x2, h2, c2 = x.copy(), *(a.copy() for a in state)
    y, last = rnn.step(x2, (h2, c2), out=x2, h_out=h2, c_out=c2)
    assert y is x2 and last[0] is h2 and last[1] is c2 and same((y, last), wanted)
    # as strangely as can be: the outputs lie over each input, shifted
    room = np.zeros(1000, "f4")
    h3, y3, x3 = (room[k : k + 21] for k in (0, 30, 7))
    y3, x3, h3 = y3.reshape(3, 7), x3.reshape(3, 7), h3.reshape(1, 3, 7)
    x3[...] = x
    assert same(rnn.step(x3, state, out=y3, h_out=h3), wanted)
    x3[...] = x
    over = room[10:31].reshape(3, 7)
    assert same(rnn.step(x3, state, out=over), wanted)
    wide = np.zeros((3, 14), "f4")
    wide[:, :7] = x
    assert same(rnn.step(wide[:, :7], state, out=wide[:, 7:]), wanted)
    assert same_bits(wide[:, :7], x)


def test_outputs_between_the_columns_of_x():
    """They share a block of memory, and no element."""
    rnn, x, h, c = small(ARRAYS)
    wide = np.zeros((4, 3, 12), "f4")
    wide[..., :5] = x
    assert same(rnn(wide[..., :5], (h, c), out=wide[..., 5:]), rnn(x, (h, c)))


# ------------------------------------------------------------------------------------- not numbers


@every_kind
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_sequence_keeps_its_nans_to_itself(spec, poison):
    rnn, (x, state) = rnn_of(spec), inputs(spec)
    wanted = rnn(x, state)
    bad = x.copy()
    bad[2, 5, 3] = poison
    y, last = rnn(bad, state)
    others = np.arange(N) != 5
    assert same((y[:, others], rows(last, others)), (wanted[0][:, others], rows(wanted[1], others)))
    if np.isnan(poison):
        assert np.isnan(y[2, 5].astype("f8")).any()


@every_kind
def test_what_is_past_the_end_is_not_looked_at(spec):
    rnn, (x, state) = rnn_of(spec), inputs(spec)
    wanted = rnn(x, state, lengths=LENGTHS)
    x[np.arange(T)[:, None] >= LENGTHS] = np.nan
    assert same(rnn(x, state, lengths=LENGTHS), wanted)


def test_a_nan_is_not_clipped():
    rnn, x, h, c = small(ARRAYS)
    rnn = rl.RNN(rnn._native.weights(), ARRAYS, cell_clip=(-1, 1))
    c[0, 1, 2] = np.nan
    _, (_, cn) = rnn(x, (h, c))
    assert np.isnan(cn[0, 1]).any() and not np.isnan(cn[0, [0, 2]]).any()


# ----------------------------------------------------------------------------------------- threads


def test_many_threads_share_one_rnn():
    spec = rl.Spec("gru", I, H, 2, True)
    rnn = rnn_of(spec)
    calls = [(inputs(spec, steps, batch)) for steps, batch in ((6, 11), (1, 1), (9, 3), (2, 40))]
    wanted = [rnn(*call) for call in calls]
    wrong = []

    def work(k):
        for n in range(100):
            which = (k + n) % len(calls)
            if not same(rnn(*calls[which]), wanted[which]):
                wrong.append(which)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(5)]
    for t in workers:
        t.start()
    for t in workers:
        t.join()
    assert not wrong


LONG = rl.Spec("lstm", 300, 1000)


@pytest.fixture(scope="module")
def long_call():
    """Some seconds of work."""
    rnn = rl.RNN(np.full(LONG.num_params, 1e-3, "f4"), LONG)
    x = np.ones((10, 50, 300), "f4")
    rnn(x)
    start = time.perf_counter()
    rnn(x)
    once = time.perf_counter() - start
    x = np.ones((int(2 / once * 10), 50, 300), "f4")
    return rnn, x


@pytest.mark.parametrize("n", [1, 2])
def test_ctrl_c_is_answered_within_200_ms(long_call, threads, n):
    rnn, x = long_call
    threads(n)
    sent = []

    def interrupt():
        time.sleep(0.5)
        sent.append(time.perf_counter())
        _thread.interrupt_main(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        rnn(x)
    answered = time.perf_counter() - sent[0]
    thread.join()
    assert answered < 0.2
    rnn(x[:1])  # and the next call works


def test_other_threads_run_meanwhile(long_call):
    rnn, x = long_call
    ticks, done = [], threading.Event()

    def count():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    begin = time.perf_counter()
    rnn(x[: len(x) // 8])
    end = time.perf_counter()
    done.set()
    thread.join()
    # with the lock held there would be two at the most: one before it is taken, one after
    assert len([t for t in ticks if begin < t < end]) > 5


def test_the_number_of_threads(threads):
    threads(0)
    default = rl.num_threads()
    assert default >= 1
    for n, found in ((1, 1), (3, 3), (0, default), (2, 2), (-5, default), (-(2**70), default)):
        threads(n)
        assert rl.num_threads() == found
    threads(2**70)  # as many as there may be
    assert rl.num_threads() >= default
    for wrong in (1.5, "2", None):
        with pytest.raises(rl.SpecError, match=r"n is a <class '\w+'>, need a whole number"):
            rl.set_num_threads(wrong)


# ------------------------------------------------------------------------------------------ errors

LSTM, GRU = rl.RNN(np.zeros(ARRAYS.num_params, "f4"), ARRAYS), rl.Spec("gru", 5, 7)
GRU_RNN = rl.RNN(np.zeros(GRU.num_params, "f4"), GRU)
BOTH = rl.Spec("gru", 5, 7, 2, True)
BOTH_RNN = rl.RNN(np.zeros(BOTH.num_params, "f4"), BOTH)
PROJECTED = rl.Spec("lstm", 5, 7, proj_size=3)
PROJECTED_RNN = rl.RNN(np.zeros(PROJECTED.num_params, "f4"), PROJECTED)
HALF = rl.RNN(np.zeros(ARRAYS.num_params, "f2"), ARRAYS.replace(dtype="float16"))
FIRST = rl.RNN(np.zeros(ARRAYS.num_params, "f4"), ARRAYS, batch_first=True)
X, HC = np.zeros((4, 3, 5), "f4"), np.zeros((1, 3, 7), "f4")
Y = np.zeros((4, 3, 7), "f4")
ROOM = np.zeros(1000, "f4")


def frozen(a):
    a = a.copy()
    a.flags.writeable = False
    return a


CALLS = {
    "a list": (lambda: LSTM([[0.0] * 5]), "x is a list, need an array of float32, as the weights"),
    "nothing": (lambda: LSTM(None), "x is a NoneType, need an array"),
    "x of another dtype": (lambda: LSTM(X.astype("f8")), "x is float64, need float32, as the wei"),
    "x of integers": (lambda: LSTM(X.astype("i8")), "x is int64, need float32, as the weights"),
    "torch integers": (lambda: LSTM(torch.zeros(4, 3, 5, dtype=torch.int32)), "x is int32, need f"),
    "x for narrow weights": (
        lambda: HALF(X.astype("f8")),
        r"x is float64, need float16, as the weights are, or float32$",
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
    "None of two": (lambda: LSTM(X, (HC, None)), "c_0 is a NoneType, need an array of float32, as"),
    "two for one": (lambda: GRU_RNN(X, (HC, HC)), "h_0 is a tuple, need an array of float32, as x"),
    "a state of another dtype": (lambda: LSTM(X, (HC, HC.astype("f8"))), "c_0 is float64, need fl"),
    "a state as the weights": (
        lambda: HALF(X, (HC.astype("f2"),) * 2),
        "h_0 is float16, need float32, as x is",
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
        r"lengths with an x of shape \(3, 5\)",
    ),
    "too few lengths": (lambda: LSTM(X, lengths=[1, 2]), r"lengths: shape \(2,\), expected \(3,\)"),
    "a number for lengths": (lambda: LSTM(X, lengths=4), r"lengths: shape \(\), expected \(3,\) ="),
    "no lengths": (lambda: LSTM(X, lengths=[1, [2], 3]), "lengths is no array: list"),
    "broken lengths": (lambda: LSTM(X, lengths=[1.0, 2, 3]), "lengths is float64, need whole numb"),
    "true lengths": (lambda: LSTM(X, lengths=[True] * 3), "lengths is bool, need whole numbers"),
    "a length below 0": (lambda: LSTM(X, lengths=[1, 2, -1]), r"lengths\[2\] is -1, need 0 to 4 ="),
    "a length past T": (lambda: LSTM(X, lengths=[1, 5, -1]), r"lengths\[1\] is 5, need 0 to 4 = T"),
    "a length past all": (
        lambda: LSTM(X, lengths=np.array([0, 2**64 - 1, 0], "u8")),
        r"lengths\[1\] is 18446744073709551615, need 0 to 4",
    ),
    "c for a GRU": (lambda: GRU_RNN(X, c_out=HC), "c_out is given, and a GRU has no c"),
    "out of another shape": (
        lambda: LSTM(X, out=Y[:3]),
        r"out: shape \(3, 3, 7\), expected \(4, 3, 7\), as x has it",
    ),
    "out of another dtype": (
        lambda: LSTM(X, out=Y.astype("f8")),
        "out is float64, need float32, a",
    ),
    "out that is none": (lambda: LSTM(X, out=7), "out is a int, need an array of float32, as x is"),
    "out read-only": (lambda: LSTM(X, out=frozen(Y)), "out is read-only"),
    "h_out read-only": (lambda: LSTM(X, h_out=frozen(HC)), "h_out is read-only"),
    "out big-endian": (
        lambda: LSTM(X, out=Y.astype(">f4")),
        "out cannot be written in place: pass",
    ),
    "out in columns": (
        lambda: LSTM(X, out=np.zeros((4, 7, 3), "f4").swapaxes(1, 2)),
        "out has to be aligned and its last axis contiguous",
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
        "out shares memory with x, which is read while it is written",
    ),
    "c_out over x": (
        lambda: LSTM(ROOM[:60].reshape(X.shape), c_out=ROOM[:21].reshape(HC.shape)),
        "c_out shares memory with x",
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
    "a stream": (lambda: LSTM(X, stream=0), "stream is 0: on the CPU there are none, leave it out"),
    "a stream of a step": (lambda: LSTM.step(X[0], stream=7), "stream is 7: on the CPU"),
    "steps backward": (
        lambda: BOTH_RNN.step(X[0]),
        r"step\(\) needs one direction, this RNN has two",
    ),
    "a device": (
        lambda: rl.RNN(X, device="gpu"),
        "device is 'gpu', need 'cpu', 'cuda', 'cuda:N' or",
    ),
    "no device": (lambda: rl.RNN(X, device=0), "device is 0, need 'cpu'"),
    "math": (lambda: rl.RNN(X, math="fma"), "math is 'fma'; the CPU has one choice: 'default'"),
    "algo": (lambda: rl.RNN(X, algo="persist"), "algo is 'persist'; .* one choice: 'standard'"),
    "batch_first": (lambda: rl.RNN(X, batch_first=2), "batch_first is 2, need True or False"),
    "no spec": (lambda: rl.RNN(np.zeros(5, "f4")), "a flat vector of 5 elements does not tell"),
    "a clip of one": (lambda: rl.RNN(X, cell_clip=1.0), r"cell_clip is 1.0, need \(low, high\)"),
    "a clip of words": (
        lambda: rl.RNN(X, cell_clip="ab"),
        r"cell_clip is 'ab', need \(low, high\)",
    ),
    "a clip of nothing": (
        lambda: rl.RNN(np.zeros(ARRAYS.num_params, "f4"), ARRAYS, cell_clip=(1, -1)),
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
    peepholes = {name: np.ones(shape, "f4") for name, shape in rl.describe("onnx", spec).items()}
    peepholes["P"] = np.ones((1, 21), "f4")
    with pytest.raises(rl.LossyError, match="peephole"):
        rl.RNN(peepholes, spec, layout="onnx")
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
