"""rnnlayout.testing: what passes, what fails, and the report of a failure."""

import itertools
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from oracles import frameworks
from oracles.some import normal_weights

import rnnlayout as rl
from rnnlayout.testing import assert_roundtrip, assert_same

pytestmark = frameworks.KERAS_NOISE
LSTM, GRU = rl.Spec("lstm", 5, 3), rl.Spec("gru", 5, 3)
GRU_STACK = rl.Spec("gru", 5, 3, 2, True)
DTYPES = "float16", "bfloat16", "float32", "float64"


def weights(spec, layout="torch", seed=0):
    return rl.Weights(normal_weights(rl.layout(layout), spec, seed), spec, layout)


def changed(w, *changes):
    """Return the weights with other tensors. changes: (pattern of a name, array -> array)."""
    tensors = dict(w)
    for names, change in changes:
        tensors |= {n: change(x.copy()) for n, x in tensors.items() if re.search(names, n)}
    return rl.Weights(tensors, w.spec, w.layout)


def put(value, at):
    """Return a change that puts a value at a place."""

    def change(array):
        array[at] = value
        return array

    return change


def said(a, b, **tolerance):
    """Return the lines of the report of a failure, after the conclusion."""
    with pytest.raises(AssertionError) as failure:
        assert_same(a, b, **tolerance)
    conclusion, *lines = str(failure.value).splitlines()
    assert conclusion.startswith(("a and b are different: ", "a and b compute the same function: "))
    return lines


def causes(a, b):
    start = "likely cause: "
    return [line.removeprefix(start) for line in said(a, b) if line.startswith(start)]


# ----------------------------------------------------------------------------------- what is same


def test_one_bias_in_one_of_them_is_compared_with_the_sum_of_two():
    """It may be rounded but not wrong: if nothing was rounded, a last bit counts."""
    spec = rl.Spec("lstm", 5, 3, 2, True)
    for dtype, layout in itertools.product(DTYPES, ("keras", "concat")):
        torch = weights(spec.replace(dtype=dtype))
        assert_same(torch, torch.to(layout))
        assert_same(torch.to(layout), torch)
    for mode in ("input", "recurrent"):
        one = spec.replace(bias=mode)
        assert_same(weights(spec), rl.Weights(rl.pack(weights(spec), one), one))

    torch, keras = weights(LSTM), weights(LSTM).to("keras")
    wrong = changed(keras, ("bias", lambda b: put(np.nextafter(b[4], np.float32(9)), 4)(b)))
    first, second, *_ = said(torch, wrong)
    assert first.startswith("1 of 12 blocks differ between a (torch) and b (keras), lstm")
    assert second.startswith("  layer 0, sum of the biases of gate f: 1 of 3 differ, largest ")
    assert " at [1]: " in second
    assert "sum of the biases of gate f: 1 of 3" in said(keras.to("torch"), wrong)[1]
    assert "input bias of gate f: 1 of 3" in said(keras, wrong)[1]
    # those of a GRU's candidate are never summed
    n = slice(6, 9)
    torch = changed(weights(GRU), ("bias", put(0.5, n)))
    moved = changed(torch, ("bias_hh", put(0, n)), ("bias_ih", put(1, n)))
    assert [line.split(":")[0] for line in said(torch, moved.to("concat"))[1:3]] == [
        "  layer 0, input bias of gate n", "  layer 0, recurrent bias of gate n",
    ]  # fmt: skip


def test_frameworks_own_objects():
    """What one does not record the other does."""
    rng = frameworks.seeded("testing")
    module, layers = frameworks.torch_module(GRU_STACK, rng), frameworks.keras_layers(GRU_STACK)
    rl.assign(layers, rl.convert(module, to="keras"))
    for one in (layers, module.state_dict(), rl.pack(module)):  # its spec is the module's
        assert_same(module, one)
        assert_same(one, module)
    assert assert_roundtrip(module, "cudnn").grade == "exact"
    frameworks.fill_keras(layers, rng)
    with pytest.raises(AssertionError, match=r"blocks differ between a \(torch\) and b \(keras\)"):
        assert_same(module, layers)
    tensors = dict(rl.convert(frameworks.torch_module(rl.Spec("rnn_relu", 4, 3)), to="onnx"))
    with pytest.raises(rl.SpecError, match="tanh or relu"):
        assert_same(tensors, tensors)


def test_tolerances():
    a = weights(GRU)
    half = a.to("torch", dtype="float16")
    first, second, *_ = said(a, half)
    assert first == ("float32 and float16 between a (torch) and b (torch): to compare their values"
                     " pass rtol=")  # fmt: skip
    assert second.startswith("  layer 0, input matrix of gate r: 15 of 15 differ, largest 0.000")
    assert_same(a, half, rtol=2.0**-11, atol=2.0**-25)  # half a unit in the last place
    assert "blocks differ" in said(a, half, rtol=2.0**-14)[0]
    assert_same(a, changed(a, ("bias_ih", lambda x: x + 0.25)), atol=0.26)


def test_what_one_side_lacks():
    lines = said(weights(GRU), weights(rl.Spec("gru", 5, 4, 2)))
    assert lines == ["two different RNNs between a (torch) and b (torch): hidden_size 3 and 4,"
                     " num_layers 1 and 2"]  # fmt: skip
    plain = dict(weights(LSTM).to("onnx"))
    peeping = {**plain, "P": np.arange(9, dtype="f4").reshape(1, 9)}
    assert_same(peeping, peeping)
    assert_same(plain, {**plain, "P": np.zeros((1, 9), "f4")})
    assert said(plain, peeping)[1:] == [
        "  layer 0, peephole of gate i: 2 of 3 differ, largest 2.0 at [2]: 0.0 and 2.0",
        "  layer 0, peephole of gate f: 3 of 3 differ, largest 8.0 at [2]: 0.0 and 8.0",
        "  layer 0, peephole of gate o: 3 of 3 differ, largest 5.0 at [2]: 0.0 and 5.0",
    ]
    without = weights(LSTM.replace(bias="none"))
    zero = changed(weights(LSTM), ("bias", np.zeros_like))
    assert_same(zero, without)
    assert_same(rl.Weights(rl.pack(without), without.spec), zero)
    lines = said(weights(LSTM), without)
    assert len(lines) == 1 + 8 + 1
    assert lines[-1] == "likely cause: the biases are replaced by 0 (explains all 8)"


# ------------------------------------------------------------------------------------ the report


def test_one_line_a_block_with_the_largest_difference_and_where():
    spec = rl.Spec("lstm", 3, 4, 2, True, dtype="float64")
    zeros = {name: np.zeros(shape) for name, shape in rl.describe(spec, "torch").items()}
    zeros = rl.Weights(zeros, spec, "torch")
    in_f = ("weight_hh_l0$", lambda x: put(-0.5, (6, 1))(put(0.25, np.s_[4:8, :3])(x)))
    assert said(zeros, changed(zeros, in_f, ("bias_ih_l1_reverse", put(np.nan, 15)))) == [
        "2 of 64 blocks differ between a (torch) and b (torch), lstm, input_size 3, hidden_size 4,"
        " num_layers 2, bidirectional, dtype float64",
        "  layer 0 forward, recurrent matrix of gate f: 12 of 16 differ, largest 0.5 at (2, 1): 0.0"
        " and -0.5",
        "  layer 1 backward, input bias of gate o: 1 of 4 differ, largest nan at [3]: 0.0 and nan",
    ]
    stack = rl.Spec("lstm", 2, 2, 8)
    lines = said(weights(stack, seed=1), weights(stack, seed=2))
    assert lines[0].startswith("128 of 128 blocks differ")
    assert lines[-2:] == [
        "  and 125 more",
        "other weights: none of the 16 matrices was found in any form that is searched for",
    ]
    a = weights(rl.Spec("rnn_tanh", 2, 2))
    a.tensors["weight_ih_l0"][:] = [[0.0, 1.0], [np.nan, 1.0]]
    flips = np.uint32([[1 << 31, 0], [1, 0]])
    b = changed(a, ("weight_ih", lambda x: (x.view("u4") ^ flips).view("f4")))
    assert said(a, b)[1] == (
        "  layer 0, input matrix of gate h: 2 of 4 differ, only in sign or NaN bits, first at"
        " (0, 0): 0.0 and -0.0"
    )
    assert_same(a, b, rtol=1e-9)


def gates(*order):
    """Return a change that puts the gates of an array in another order."""
    return lambda x: x.reshape(len(order), -1)[[*order]].reshape(x.shape)


def biases_exchanged(w):
    other = {"bias_ih_l0": "bias_hh_l0", "bias_hh_l0": "bias_ih_l0"}
    return rl.Weights({name: w[other.get(name, name)] for name in w}, w.spec, w.layout)


SAME_FUNCTION = "the same function, as only their sum matters (explains all 8)"
# spec, what is changed in torch's tensors, the likely causes
CAUSES = [
    (GRU_STACK, [("", gates(1, 0, 2))], ["gates r and z swapped (explains all 32)"]),
    (LSTM, biases_exchanged, [f"bR comes before bW, each in the other's place: {SAME_FUNCTION}"]),
    (GRU, biases_exchanged,
     ["bR comes before bW, each in the other's place: another function, as bR of gate n is"
      " multiplied by r (explains all 6)"]),
    (GRU, [("", lambda x: np.concatenate([x[:3], -x[3:6], x[6:]]))],
     ["gate z negated: z scales the old state in one and the candidate in the other"
      " (explains all 4)"]),
    (GRU, [("weight_ih", gates(0, 2, 1)), ("bias", gates(0, 2, 1)),
      ("weight_hh", lambda x: x.reshape(3, 3, 3).transpose(0, 2, 1).reshape(9, 3))],
     ["the recurrent matrices are transposed, each gate separately (explains 3 of 9)",
      "gates z and n swapped in the input matrices and biases (explains 6 of 9)"]),
]  # fmt: skip


@pytest.mark.parametrize("spec, change, wanted", CAUSES)
def test_likely_causes(spec, change, wanted):
    a = weights(spec)
    assert causes(a, change(a) if callable(change) else changed(a, *change)) == wanted


def test_what_was_done_to_one_bias_of_two():
    """A target with one bias lost the other; and a factor that no mistake explains has no cause: it
    was said to be sorted in another way, because half of the values are zero."""
    spec = rl.Spec("lstm", 5, 8, 2, bidirectional=True)
    torch = weights(spec)
    for dropped, what in (("bias_hh", "bR"), ("bias_ih", "bW")):
        (cause,) = causes(torch, changed(torch, (dropped, np.zeros_like)).to("keras"))
        assert cause.startswith(f"the biases are incomplete: {what} is replaced by 0")
    one = torch.to("keras")
    half, more = changed(one, ("bias", lambda x: x / 2)), changed(one, ("bias", lambda x: 3 * x))
    assert causes(torch, half) == ["the biases are halved (explains all 16)"]
    assert causes(torch, more) == causes(torch, weights(spec, seed=1)) == []


def test_a_layout_is_that_of_the_side_that_can_have_it():
    """A module is in torch's layout, so what is passed is about the arrays on the other side, which
    look like Keras's."""
    module = torch.nn.LSTM(3, 4)
    haste = dict(rl.convert(module, to="haste"))
    assert rl.verify(module, haste, layout="haste")
    assert rl.verify(haste, module, layout="haste")
    assert not rl.verify(module, haste)
    with pytest.raises(rl.LayoutError, match="LSTM is in layout torch, not onnx"):
        rl.verify(module, haste, layout="onnx")


# ---------------------------------------------------------------------------------------- the way


def test_a_way_that_rounds_or_that_no_weights_can_go():
    for dtype in DTYPES:
        torch = weights(rl.Spec("lstm", 5, 3, 2, True, dtype=dtype))
        report = assert_roundtrip(torch, ["cudnn", "keras", "onnx", "concat"])
        assert report == rl.Report("rounds", 48, "keras: 48 sums of two non-zero biases")
    for source, via, options, text in (
        (torch, ["keras"], {"exact": True}, r"torch -> keras -> torch: .* has one bias where"),
        (weights(rl.Spec("rnn_relu", 5, 3)), ["keras-cudnn"], {},
         "torch -> keras-cudnn -> torch: keras-cudnn has no"),
        (weights(GRU), ["cudnn", "concat"], {}, r"torch -> cudnn -> concat -> torch: .* of gate n"),
    ):  # fmt: skip
        with pytest.raises(AssertionError, match=text):
            assert_roundtrip(source, via, **options)


def test_a_way_that_loses_something_fails_with_the_report(monkeypatch):
    """The conversion is made wrong on purpose."""
    to = rl.Weights.to

    def swapping(self, dst, **options):
        there = to(self, dst, **options)
        if there.layout.name == "keras":
            there["kernel"][:] = there["kernel"][:, [3, 4, 5, 0, 1, 2, *range(6, 12)]]
        return there

    monkeypatch.setattr(rl.Weights, "to", swapping)
    with pytest.raises(AssertionError) as failure:
        assert_roundtrip(weights(LSTM), ["cudnn", "keras"])
    first, second, *_, last = str(failure.value).splitlines()
    assert first == ("2 of 12 blocks differ between before and after torch -> cudnn -> keras ->"
                     " torch, lstm, input_size 5, hidden_size 3")  # fmt: skip
    assert second.startswith("  layer 0, input matrix of gate i: 15 of 15 differ, largest ")
    assert last == "likely cause: gates i and f swapped in the input matrices (explains all 2)"


def test_it_is_not_imported_unless_asked_for_and_needs_no_pytest():
    code = (
        "import sys, rnnlayout; assert 'rnnlayout.testing' not in sys.modules\n"
        "import rnnlayout.testing; assert 'pytest' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("value", [np.nan, -1, "1e-3", np.inf, None])
def test_a_tolerance_is_a_number(value):
    """NaN and -1 were taken, and text raised NumPy's error."""
    for name in ("rtol", "atol"):
        with pytest.raises(rl.SpecError, match=f"{name} is .*, need a number, 0 or greater"):
            rl.verify(weights(LSTM), weights(LSTM), **{name: value})


def test_equal_values_in_two_dtypes():
    """It was "to compare their values pass rtol=; all of them are equal"."""
    half = {name: x.astype("f2") for name, x in weights(LSTM).items()}
    single = {name: x.astype("f4") for name, x in half.items()}
    verified = rl.verify(half, single)
    assert not verified and "with equal values: to ignore the dtypes pass rtol=1e-12" in str(
        verified
    )
    assert rl.verify(half, single, rtol=1e-12)


def test_other_weights_are_named_as_such():
    lines = str(rl.verify(weights(LSTM), weights(LSTM, seed=9))).splitlines()
    assert lines[-1].startswith("other weights: none of the 2 matrices was found")
