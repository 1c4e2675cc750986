"""identify: its notes, and the words for layouts that are in no row of the table."""

import numpy as np
import pytest
from oracles.some import normal_weights

import rnnlayout as rl

T, N, I, H = 6, 2, 5, 3  # noqa: E741
ONE_STEP = "one step from a zero state does not show the recurrent matrix: pass more steps"
VECTOR = "a vector was read in the layouts of the table only, with at most 8 layers"
NO_ROW = "in layouts that are in no row, not tried: projections, peepholes"
ROUNDED = "for y made in TF32 or on a GPU with reduced precision, pass atol=, such as 0.01"


def case(cell="lstm", state=None):
    """Return the weights of a layer, x, and its y."""
    weights = normal_weights(rl.layout("torch"), rl.Spec(cell, I, H))
    x = np.random.default_rng(0).normal(size=(T, N, I)).astype("f4")
    return weights, x, rl.forward(x, weights, state=state)[0]


def test_the_notes():
    weights, x, y = case()
    state = tuple(np.random.default_rng(1).normal(size=(2, 1, N, H)).astype("f4"))
    assert rl.identify(weights, x, y).notes == ()
    one = rl.identify(weights, x[:1], y[:1])
    assert one.notes == (ONE_STEP,) and [*one.report] == [one.text, f"note: {ONE_STEP}"]
    assert rl.identify(weights, x[:1], case(state=state)[2][:1], state=state).notes == ()
    other = np.random.default_rng(2).uniform(-1, 1, y.shape).astype("f4")
    found = rl.identify(weights, x, other)
    assert found.notes == (NO_ROW,) and found.text.startswith("no layout agrees with y; the neare")
    assert rl.identify(rl.pack(weights), x, other).notes == (VECTOR,)
    assert rl.identify(rl.pack(weights), x, y).notes == ()


def test_a_vector_of_a_projected_layer():
    """Its hidden size follows from the number of values."""
    spec = rl.Spec("lstm", I, H, 2, proj_size=2)
    weights = normal_weights(rl.layout("torch"), spec)
    x = np.random.default_rng(0).normal(size=(T, N, I)).astype("f4")
    found = rl.identify(rl.pack(weights, spec), x, rl.forward(x, weights)[0])
    assert (found.tied, found.best.spec) == (1, spec), found


def test_the_note_on_a_rounded_y_is_right():
    weights, x, y = case()
    rounded = y + np.float32(1e-3) * np.sign(y)
    assert rl.identify(weights, x, rounded).notes == (NO_ROW, ROUNDED)
    found = rl.identify(weights, x, rounded, atol=0.01)  # as the note says
    assert found.tied == 1 and found.notes == () and repr(found) == str(found)
    wide = {name: array.astype("f8") for name, array in weights.items()}
    assert rl.identify(wide, x.astype("f8"), rounded.astype("f8")).notes == (NO_ROW,)


def own(cell):
    """Return (W, R, bW, bR) with gates in an order that no row has."""
    weights, x, y = case(cell)
    order = (3, 0, 2, 1) if cell == "lstm" else (2, 0, 1)
    made = [[np.split(array, len(order))[k] for k in order] for array in weights.values()]
    return [np.concatenate(parts) for parts in made], x, y


@pytest.mark.parametrize(
    "cell, make, text",
    [
        (
            "lstm",
            lambda W, R, b, c: [np.hstack([W, R]), b + c],
            "gates o i g f, one matrix (gates x units, I + H), x before h, one bias",
        ),
        (
            "lstm",
            lambda W, R, b, c: [np.hstack([R, W]).T, b, c],
            "gates o i g f, one matrix (I + H, gates x units), h before x, two biases",
        ),
        (
            "gru",
            lambda W, R, b, c: [W, R, c, b],
            "gates n r z, input matrix (gates x units, I), recurrent matrix (gates x units, H), the"
            " recurrent bias before the input bias, two biases, reset after",
        ),
    ],
)
def test_a_layout_of_ones_own(cell, make, text):
    tensors, x, y = own(cell)
    found = rl.identify(make(*tensors), x, y)
    start = f"{cell} in no known layout: {text}, sigmoid, x is (T, N, I): agrees with y to "
    assert found.tied == 1 and found.text.startswith(start), found
    again = found.best.rnn()(x)[0]
    # a sum of two biases, below 4, is rounded by at most 2 ** -23, in each of T steps
    np.testing.assert_allclose(again, y, rtol=0, atol=2 * T * 2.0**-23)
