"""identify: the layout and conventions by which tensors turn x into y."""

import dataclasses

import numpy as np
import pytest
import torch
from compare import network_machine as machine
from oracles.some import normal_weights, prefixed

import rnnlayout as rl
from rnnlayout._compare import identify_search

T, N, I, H = 6, 2, 5, 3  # noqa: E741
SPEC = rl.Spec("lstm", I, H)
ONE_STEP = "one step from a zero state does not show the recurrent matrix: pass more steps"
VECTOR = "a vector was read in the layouts of the table only, with at most 8 layers"
NO_ROW = "in layouts that are in no row, not tried: projections, peepholes"
ROUNDED = "for y made in TF32 or on a GPU with reduced precision, pass atol=, such as 0.01"


def lstm(spec=SPEC):
    return normal_weights(rl.layout("torch"), spec)


def data(tensors, steps=T, inputs=I, **options):
    """Return x and the y that belongs to it."""
    x = np.random.default_rng(0).normal(size=(steps, N, inputs)).astype("f4")
    return x, rl.forward(x, tensors, batch_first=False, **options)[0]


def case(spec=SPEC, **options):
    """Return weights by torch's names, x, and the y that belongs to it."""
    weights = lstm(spec)
    return weights, *data(weights, **options)


def first(found):
    """Return the only candidate that agrees."""
    assert found.tied == 1, str(found)
    return found.candidates[0]


# ------------------------------------------------------------------------------ rows of the table


def check(verdicts):
    wrong = [one for one in verdicts if machine.verdict(one) == "wrong"]
    assert [(one.spec, one.layout, one.settings, one.y.shape) for one in wrong] == []


def test_random_networks_are_identified():
    check(machine.cases(8, seed=2))
    assert {layout.name for layout, _ in machine.rows()} == {*rl.layouts()}


@pytest.mark.long
@pytest.mark.parametrize("part", range(2))
def test_networks_of_all_rows_are_identified(part):
    cases = list(machine.cases(80))  # tools/figures.py has all
    check(cases[part::2])


# ------------------------------------------------------------------------ frameworks as the oracle


def test_the_state_that_y_begins_from():
    module, cell = torch.nn.LSTM(I, H), torch.nn.GRUCell(I, H)
    x, h, c = torch.randn(1, N, I), torch.randn(1, N, H), torch.randn(1, N, H)
    with torch.no_grad():
        y, one_step = module(x, (h, c))[0], cell(x[0], h[0])
    tensors = dict(module.state_dict())
    assert first(rl.identify(tensors, x, y, state=(h, c))).layouts[0].name == "torch"
    assert not rl.identify(tensors, x, y)  # from a zero state it is another y
    found = rl.identify(dict(cell.state_dict()), x[0], one_step, state=h[0])
    assert "torch-cell" in found.text and found.best.spec.cell == "gru"


# -------------------------------------------------------------------------- layouts of one's own


def gates(order):
    """Return a function that orders the gates of an array of torch."""
    return lambda a: np.concatenate([np.split(a, len(order))[k] for k in order])


def interleaved(a):
    return np.stack(np.split(a, 4), 1).reshape(a.shape)


def each(change):
    """Return a function that makes tensors of the arrays of torch, by their names, each changed."""
    return lambda *arrays: {f"t{k}": change(a) for k, a in enumerate(arrays)}


def backward_first(*arrays):
    return [gates((2, 3, 0, 1))(a).T for a in (*arrays[4:], *arrays[:4])]


def forward_layers_first(*arrays):
    order = [*range(4), *range(8, 12), *range(4, 8), *range(12, 16)]
    return [gates((2, 1, 0))(arrays[k]).T for k in order]


IN_RZ = np.repeat([1, 1, 0], H).astype("f4")  # of r z n: the gates whose biases are only summed
OIGF, NRZ = gates((3, 0, 2, 1)), gates((2, 0, 1))
GRU, BOTH = rl.Spec("gru", I, H), rl.Spec("gru", I, H, 2, True)
# the RNN, what makes tensors of the arrays of torch, what of the outputs is shown, words
OWN = [
    (SPEC, lambda *w: [OIGF(w[0]).T, OIGF(w[1]).T, OIGF(w[2] + w[3])], "y",
     "lstm in no known layout: gates o i g f, input matrix (I, gates x units), recurrent matrix (H,"
     " gates x units), one bias, sigmoid, x is (T, N, I): agrees with y to "),
    (SPEC, lambda W, R, b, c: [interleaved(gates((1, 0, 3, 2))(a)) for a in (W, R, b + c)], "y",
     "gates f i o g, input matrix (units x gates, I), recurrent matrix (units x gates, H), one"
     " bias"),
    (SPEC, lambda W, R, b, c: [OIGF(np.hstack([W, R])), OIGF(b + c)], "y",
     "gates o i g f, one matrix (gates x units, I + H), x before h, one bias"),
    (SPEC, lambda W, R, b, c: [OIGF(np.hstack([R, W])).T, OIGF(b), OIGF(c)], "y",
     "gates o i g f, one matrix (I + H, gates x units), h before x, two biases"),
    (SPEC, lambda W, R, b, c: [OIGF(W), OIGF(R), np.stack([OIGF(b), OIGF(c)])], "y",
     "gates o i g f, input matrix (gates x units, I), recurrent matrix (gates x units, H), two"
     " biases"),
    (GRU, lambda W, R, b, c: [NRZ(a) for a in (W, R, c, b)], "y",
     "gates n r z, input matrix (gates x units, I), recurrent matrix (gates x units, H), the"
     " recurrent bias before the input bias, two biases, reset after"),
    (GRU, lambda W, R, b, c: [NRZ(W).T, NRZ(R).T, NRZ(b + c * IN_RZ), c[2 * H:]], "y",
     "gates n r z, input matrix (I, gates x units), recurrent matrix (H, gates x units), one bias"
     " and bR of n, reset after"),
    (SPEC, each(lambda a: gates((1, 0, 3, 2))(a).reshape(4, H, -1).swapaxes(0, 1).squeeze()), "y",
     "gates f i o g, input matrix (units, gates, I), recurrent matrix (units, gates, H)"),
    (SPEC.replace(bidirectional=True), each(lambda a: gates((2, 3, 0, 1))(a).T), "states",
     "gates g o i f"),
    (SPEC.replace(bidirectional=True), backward_first, "y", "the backward direction first"),
    (BOTH, each(lambda a: gates((2, 1, 0))(a).T), "sum", "gates n z r"),  # these were not tried
    (BOTH, forward_layers_first, "states", "all forward layers first"),
    (rl.Spec("gru", I, H, 2), each(lambda a: np.concatenate(np.split(a, 3)[::-1]).T *
     np.repeat([1, -1, 1], H).astype("f4")), "y", "z is multiplied with the candidate"),
    # of 256 units the search ended before half of the networks: each was run on its own
    (rl.Spec("lstm", I, 48, 2, True), each(lambda a: gates((3, 1, 2, 0))(a).T), "y",
     "gates o f g i"),
]  # fmt: skip


@pytest.mark.parametrize("spec, make, shown, words", OWN)
def test_a_layout_of_ones_own(spec, make, shown, words):
    weights, x, y = case(spec)
    if shown == "sum":
        y = y[..., :H] + y[..., H:]
    states = rl.forward(x, weights)[1]
    states = states[0] if isinstance(states, tuple) else states
    found = rl.identify(make(*weights.values()), x, states if shown == "states" else y)
    one = first(found)
    assert words in found.text and one.spec == spec, found
    assert one.layouts == () and found.best.layout == rl.layout("torch") and not found.notes
    assert one.settings == ({"merge_mode": "sum"} if shown == "sum" else {})
    assert ("the directions are added" in found.text) == (shown == "sum")
    # a sum of two biases, below 4, is rounded by at most 2 ** -23, in each of T steps, and in both
    # of two directions that are summed
    most = 2 * T * 2.0**-23 * (1 + (shown == "sum"))
    np.testing.assert_allclose(one.weights.rnn()(x)[0], y, rtol=0, atol=most)
    # names t0, t1 ... of two layers, and lists in such an order, are those of no row
    assert (one.layout is None) == (spec.num_layers > 1 or words.endswith("first"))
    if one.layout is not None:
        read = rl.Weights(make(*weights.values()), spec, one.layout)
        np.testing.assert_array_equal(read.rnn()(x)[0], one.weights.rnn()(x)[0])


@pytest.mark.parametrize(
    "fields, forget",
    [({"recurrent_activation": "hard_sigmoid"}, 0), ({"activation": "relu"}, 0), ({}, 1)],
)
def test_the_row_has_the_activations_and_the_forget_bias(fields, forget):
    spec = SPEC.replace(**fields)
    weights = normal_weights(rl.layout("keras"), spec)
    weights["bias"] = np.round(weights["bias"] * 256) / 256  # so that 1 is subtracted exactly
    x, y = data(weights, spec=spec)
    weights["bias"] = weights["bias"] - np.repeat(np.float32([0, forget, 0, 0]), H)
    tensors = {name: OIGF(array.T).T for name, array in weights.items()}
    one = first(rl.identify(tensors, x, y))
    assert one.spec.replace(bias="double") == spec and one.layouts == ()
    row = one.layout.row
    assert row["gates"] == {"lstm": "oigf"} and row.get("forget_bias", 0) == forget
    assert row.keys() & {"activation", "recurrent_activation"} == fields.keys()
    read = rl.Weights(tensors, one.spec, rl.layout(row))
    np.testing.assert_array_equal(read.rnn()(x)[0], one.weights.rnn()(x)[0])


def by_place(*arrays):
    """Tensors named by layer and direction, 4 of each."""
    leaves = [f"l{k}.{side}.{leaf}" for k in range(2) for side in ("fw", "bw")
              for leaf in ("wx", "wh", "bx", "bh")]  # fmt: skip
    return {name: gates((2, 1, 0))(a).T for name, a in zip(leaves, arrays, strict=True)}


def by_gate(W, R, b, c):
    """A matrix of each gate, W of an output per row and R of one per column."""
    parts = {"Wx_": np.split(W, 4), "Wh_": [a.T for a in np.split(R, 4)], "b_": np.split(b + c, 4)}
    return {f"{key}{gate}": parts[key]["ifgo".index(gate)] for key in parts for gate in "ofig"}


def in_ones(W, R, b, c):
    """Matrices with a first dimension of length 1."""
    return {"x": OIGF(W).T[None], "h": OIGF(R).T[None], "b": OIGF(b + c)}


NAMED = [
    (BOTH, by_place, {
        "l{layer}.{direction:f|b}w.wx": "W (I, G*H)",
        "l{layer}.{direction:f|b}w.wh": "R (H_in, G*H)",
        "l{layer}.{direction:f|b}w.bx": "bW (G*H)",
        "l{layer}.{direction:f|b}w.bh": "bR (G*H)",
    }),
    (SPEC, by_gate, {"Wx_{gate}": "W (H, I)", "Wh_{gate}": "R (H_in, H)", "b_{gate}": "bW (H)"}),
    (SPEC, in_ones, {"x": "W (1, I, G*H)", "h": "R (1, H_in, G*H)", "b": "bW (G*H)"}),
]  # fmt: skip


@pytest.mark.parametrize("spec, make, texts", NAMED)
def test_the_row_has_the_names_of_layers_directions_and_gates(spec, make, texts):
    weights, x, y = case(spec)
    tensors = make(*weights.values())
    one = first(rl.identify(tensors, x, y))
    assert one.layouts == () and one.layout.row["tensors"] == texts
    other = {name: array + 1 for name, array in tensors.items()}  # the next checkpoint
    assert rl.Weights(other, layout=one.layout).spec == spec
    read = rl.Weights(tensors, layout=one.layout)
    np.testing.assert_array_equal(read.rnn()(x)[0], one.weights.rnn()(x)[0])


@pytest.mark.parametrize("layout", ["torch", "flax-linen"])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_layout_under_other_names_reads_the_next_checkpoint(cell, layout):
    weights, x, y = case(SPEC.replace(cell=cell))
    if cell == "gru" and layout == "flax-linen":  # which has no such biases
        weights["bias_hh_l0"][: 2 * H] = 0
        x, y = data(weights)
    known = dict(rl.convert(weights, to=layout))
    own = {f"my_{name}": array for name, array in known.items()}
    found = rl.identify(own, x, y)
    read = rl.Weights(own, layout=found.layout)
    assert found.candidates[0].layouts[0] == rl.layout(layout) != found.layout
    np.testing.assert_array_equal(read.rnn()(x)[0], found.best.rnn()(x)[0])
    assert rl.identify(known, x, y).layout == rl.layout(layout)


# ---------------------------------------------------------------------- what the data do not show


def test_the_notes():
    weights, x, y = case()
    state = tuple(np.random.default_rng(1).normal(size=(2, 1, N, H)).astype("f4"))
    assert rl.identify(weights, x, y).notes == rl.identify(rl.pack(weights), x, y).notes == ()
    one = rl.identify(weights, x[:1], y[:1])
    assert one.notes == (ONE_STEP,) and [*one.report] == [one.text, f"note: {ONE_STEP}"]
    _, from_state = data(weights, state=state)
    assert rl.identify(weights, x[:1], from_state[:1], state=state).notes == ()
    other = np.random.default_rng(2).uniform(-1, 1, y.shape).astype("f4")
    found = rl.identify([np.ones((7, 7), "f4")], x, y)
    assert not found and found.best is None
    assert "no layout has tensors of these shapes" in found.text
    found = rl.identify(weights, x, other)
    assert found.notes == (NO_ROW,) and found.text.startswith("no layout agrees with y; the neare")
    assert not found and found.tied == 0 and not found.candidates[0].agrees and found.best
    assert rl.identify(rl.pack(weights), x, other).notes == (VECTOR,)


def test_a_y_that_was_masked_agrees_in_the_other_steps():
    """The answer was a bare "no layout agrees"."""
    weights, x, y = case()
    masked = y.copy()
    masked[T - 2 :] = 0
    found = rl.identify(weights, x, masked)
    shown = (T - 2) * N
    note = f"{shown} of {T * N} steps agree with a network, step {T - 2} of sequence 0 is the first"
    assert not found and found.notes[1].startswith(note), found
    assert found.candidates[0].layouts[0].name == "torch"
    assert rl.identify(weights, x[: T - 2], masked[: T - 2])  # as the note says


def test_y_with_the_backward_direction_first():
    """best gave the halves of y in the other order, without a word."""
    weights, x, y = case(SPEC.replace(bidirectional=True))
    found = rl.identify(weights, x, np.concatenate([y[..., H:], y[..., :H]], -1))
    assert found and "exchange the two halves of each output" in found.notes[0]
    np.testing.assert_array_equal(found.best.rnn()(x)[0], y)


def test_the_note_on_a_rounded_y_is_right():
    weights, x, y = case()
    rounded = y + np.float32(1e-3) * np.sign(y)
    assert rl.identify(weights, x, rounded).notes == (NO_ROW, ROUNDED)
    found = rl.identify(weights, x, rounded, atol=0.01)  # as the note says
    assert found.tied == 1 and found.notes == () and repr(found) == str(found)
    wide = {name: array.astype("f8") for name, array in weights.items()}
    assert rl.identify(wide, x.astype("f8"), rounded.astype("f8")).notes == (NO_ROW,)


def test_zero_biases_tie_what_only_they_tell_apart():
    """Without a recurrent bias and after one step the reset of a GRU does not show."""
    weights = normal_weights(rl.layout("onnx"), rl.Spec("gru", I, H))
    weights["B"] = weights["B"] * np.repeat([1, 0], 3 * H).astype("f4")
    x = np.random.default_rng(0).normal(size=(1, N, I)).astype("f4")
    y, _ = rl.forward(x, weights, reset="after")
    found = rl.identify(weights, x, y)
    assert {one.spec.reset for one in found.candidates[: found.tied]} == {"after", "before"}
    assert "which x and y cannot tell apart" in found.text


def test_the_report_shows_the_tied_and_at_least_one_other():
    """Of as many steps as rows, with a tolerance that nothing exceeds."""
    weights = lstm()
    found = rl.identify(weights, *data(weights, steps=N), atol=9)
    assert len(found.candidates) == 6 and found.tied == 1
    for tied, shown in [(0, 5), (1, 2), (2, 2), (3, 3), (5, 5), (6, 5)]:
        lines = dataclasses.replace(found, tied=tied, notes=()).report
        rows = [one.text for one in found.candidates[:shown]]
        assert lines[0] == found.text and lines[1 + shown :] == ["  and 1 more"] * (tied > 5)
        assert [line.removeprefix("  ")[8:].strip() for line in lines[1 : 1 + shown]] == rows


def test_an_rnn_that_amplifies_rounding():
    """y in float32 differs from float64 by far more than a unit, and later by anything."""
    spec = rl.Spec("rnn_tanh", I, 40)
    weights = {name: a * (0.5 if "hh" in name else 1) for name, a in lstm(spec).items()}
    x, y = data(weights, steps=300, cell="rnn_tanh")
    wide = {name: a.astype("f8") for name, a in weights.items()}
    exact, _ = rl.forward(x.astype("f8"), wide, spec.replace(dtype="float64"))
    assert np.abs(exact - y)[-1].max() > 0.1
    assert rl.layout("torch") in first(rl.identify([*weights.values()], x, y)).layouts
    assert rl.identify([*weights.values()], x, y[-1]).tied == 0  # rounding explains any last step


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_narrow_types(dtype):
    """y is rounded to the dtype; torch computes it in the dtype itself."""
    torch.manual_seed(0)
    module = torch.nn.LSTM(I, H).to(getattr(torch, dtype))
    x = torch.randn(T, N, I, dtype=module.weight_ih_l0.dtype)
    with torch.no_grad():
        y, _ = module(x)
    one = first(rl.identify([*module.state_dict().values()], x, y))
    assert one.spec.dtype == dtype and one.weights.spec.dtype == dtype


# --------------------------------------------------------------------------- what is given, as what


def test_integers_as_x_and_nested_dicts():
    weights = lstm()
    x = np.random.default_rng(0).integers(-2, 3, size=(T, N, I))
    y, _ = rl.forward(x.astype("f4"), weights)
    assert rl.identify({"model": {"rnn": weights}}, x.tolist(), y)
    assert rl.identify(weights, torch.tensor(x), torch.tensor(y))


def test_the_call_reads_the_tensors():
    """By any names or none, and one RNN of a whole checkpoint, with tensors of other kinds, and one
    with the name of a prefix."""
    weights, x, y = case()
    layouts = first(rl.identify(weights, x, y)).layouts
    assert {layout.name for layout in layouts} == {"torch", "paddle"}
    unnamed = {f"t{k}": a for k, a in enumerate(reversed(weights.values()))}
    parts = {f"layers.{k}": normal_weights("torch", SPEC, 9 + k) for k in range(4)}
    parts["layers.2"] = weights
    whole = {"step": np.ones((), "i8"), "layers.2": np.ones(3, "f4")}
    for prefix, one in parts.items():
        whole |= prefixed(prefix, one)
    nested = {"layers": {str(k): one for k, one in enumerate(parts.values())}}
    for tensors in (weights, [*weights.values()], unnamed, rl.pack(weights), whole, nested):
        found = rl.identify(tensors, x, y)
        one = first(found)
        assert np.abs(eval(one.call, {"rl": rl, "tensors": tensors}).rnn()(x)[0] - y).max() < 1e-6
        assert f"read it with: {one.call}" in str(found)
        assert ("prefix='layers.2'" in one.call and "under 'layers.2'" in found.text) == (
            tensors is whole
        )
    assert rl.identify(whole, x, y, prefix="layers.2")
    assert not rl.identify(whole, x, y, prefix="layers.1")


@pytest.mark.parametrize(
    "tensors, x, y, options, said",
    [
        ({}, 0, 0, {}, "no tensors in the dict"),
        ([], 0, 0, {}, "the list of tensors is empty"),
        ("weights", np.full((T, N, I), np.nan), 0, {}, "x: 60 of 60 values are NaN or infinite"),
        ("weights", 0, np.full((T, N, H), np.inf), {}, "y: 36 of 36 values are NaN or infinite"),
        ("weights", 0, np.zeros((T, N, H)), {}, "y is zero everywhere"),
        ("weights", 0, np.ones((T + 1, 4, H)), {}, "y: shape (7, 4, 3) does not belong to x"),
        ("weights", np.ones((2, 2, 2, 2)), 0, {}, "need 1 to 3 dimensions"),
        ("weights", 0, 0, {"prefix": "no"}, "no tensors are under 'no'"),
        ([np.ones((12, 5), "i4")], 0, 0, {}, "quantized weights must be dequantized"),
        ([np.ones((12, 5)), np.ones((12, 3), "f4")], 0, 0, {}, "all tensors need one dtype"),
        ([np.ones((0, 5), "f4")], 0, 0, {}, "has no elements"),
        ({"a": np.full(3, np.nan, "f4")}, 0, 0, {}, "a: 3 of 3 values are NaN"),
        (torch.nn.LSTM(2, 2), 0, 0, {}, "describes its RNN itself"),
        (3, 0, 0, {}, "need a dict of arrays, a list of them, or one 1-D array"),
        ("weights", 0, 0, {"atol": -1}, "atol is -1"),
        ("weights", 0, (np.ones((T, N, H)), np.ones((1, N, H))), {}, "y has arrays of several"),
        ("weights", 0, 0, {"state": np.ones((1, N, H, 1))}, "h_0: shape (1, 2, 3, 1)"),
    ],
)  # fmt: skip
def test_what_is_refused(tensors, x, y, options, said):
    weights = lstm()
    good_x, good_y = data(weights)
    tensors = weights if isinstance(tensors, str) else tensors
    x, y = (good if isinstance(bad, int) else bad for bad, good in ((x, good_x), (y, good_y)))
    with pytest.raises((rl.LayoutError, rl.SpecError)) as caught:
        rl.identify(tensors, x, y, **options)
    assert said in str(caught.value)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["tensors", "x", "y", "state", "prefix", "atol"])
def test_any_value_as_any_argument(name):
    """An answer, or an error that says what is wrong."""
    weights, x, y = case()
    good = {"tensors": weights, "x": x, "y": y}
    shapes = [(), (1,), (3,), (2, 3), (1, 2, 3), (6, 2, 5), (2, 2, 2, 2), (0,)]
    dtypes = ["f8", "f4", "c8", "O", "U3", "f4", "?", "i4"]
    values = [np.ones(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    values += [{}, [], "no such file.npy", b"x", (y, (y, y)), [[1.0], [1.0, 2.0]], object()]
    rng = np.random.default_rng(0)
    values += [[rng.normal(size=rng.integers(1, 14, k)).astype("f4") for k in ranks]
               for ranks in [(3, 1, 0, 2), (2, 2, 1), (2, 1, 2, 1)]]  # fmt: skip
    for value in [*values, {1: {2: 3}}]:
        try:
            rl.identify(**{**good, name: value})
        except (rl.LayoutError, rl.SpecError, FileNotFoundError) as error:
            assert len(str(error)) > 10


# ---------------------------------------------------------------------------------- its own limits


@pytest.mark.parametrize("others", [False, True])
def test_every_search_that_stopped_says_so(monkeypatch, others):
    """For a y of other weights, all networks are tried unless the search stops."""
    tensors = prefixed("enc", lstm(SPEC.replace(bidirectional=True)))
    if others:  # all tensors are searched after those of enc, and are no network
        tensors["head.weight"] = np.ones((7, 7), "f4")
    x, _ = data(lstm(), steps=2)
    y = np.random.default_rng(1).normal(size=(2, N, 2 * H)).astype("f4")
    whole = rl.identify(tensors, x, y)
    assert not any("not everything was tried" in note for note in whole.notes)
    for limit in (1e3, 1e4, 1e5):
        monkeypatch.setattr(identify_search, "_MOST_WORK", limit)
        found = rl.identify(tensors, x, y)
        said = f"not everything was tried: the search ended after {found.tried} networks"
        assert said in found.notes and found.tried < whole.tried, limit


def own_square(layers):
    """Return tensors, I = H, that are transposed with gates in an order of their own."""
    weights = lstm(rl.Spec("lstm", H, H, layers))
    return [gates((3, 0, 2, 1))(a).T for a in weights.values()], *data(weights, inputs=H)


def test_square_layers_of_ones_own_are_not_tried_as_a_product():
    """Which of two square matrices is which was tried for each layer: 16 times as many networks."""
    found = {layers: rl.identify(*own_square(layers)) for layers in (1, 4)}
    assert all(first(one).spec.num_layers == layers for layers, one in found.items())
    assert found[4].tried < 2 * found[1].tried


@pytest.mark.parametrize("activations", [("hard_sigmoid", "tanh"), ("sigmoid", "relu")])
def test_first_steps_of_ones_own_are_those_of_forward(activations):
    """Of a GRU whose gate n comes before r, so that r is needed before it is in memory."""
    weights = lstm(rl.Spec("gru", I, H, 2))
    settings = dict(zip(("recurrent_activation", "activation"), activations, strict=True))
    x, y = data(dict(rl.convert(weights, to="onnx")), layout="onnx", reset="after", **settings)
    one = first(rl.identify([gates((2, 1, 0))(a).T for a in weights.values()], x, y))
    assert (one.spec.recurrent_activation, one.spec.activation) == activations


def test_a_vector_of_a_projected_layer():
    """Its hidden size follows from the number of values."""
    spec = rl.Spec("lstm", I, H, 2, proj_size=2)
    weights, x, y = case(spec)
    found = rl.identify(rl.pack(weights, spec), x, y)
    assert (found.tied, found.best.spec) == (1, spec), found
