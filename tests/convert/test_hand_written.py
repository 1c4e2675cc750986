"""LSTMs and GRUs written by hand: read with a row of a few lines, they compute what their own code
computes, in torch and in the forward pass."""

import re
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import rnnlayout as rl

I, H, N, T = 5, 3, 2, 4  # noqa: E741


class Cell(nn.Module):
    """A cell whose gates() are before the activation, one per letter of `order`."""

    order = "ifgo"

    def weights(self, **shapes):
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape) / 2))

    def forward(self, x, h, c):
        i, f, g, o = (dict(zip(self.order, self.gates(x, h), strict=True))[k] for k in "ifgo")
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class LinearPair(Cell):
    row: ClassVar = {"gates": {"lstm": "ifgo"}, "tensors": {
        "x2h.weight": "W (G*H, I)", "x2h.bias": "bW (G*H)",
        "h2h.weight": "R (G*H, H)", "h2h.bias": "bR (G*H)",
    }}  # fmt: skip

    def __init__(self):
        super().__init__()
        self.x2h, self.h2h = nn.Linear(I, 4 * H), nn.Linear(H, 4 * H)

    def gates(self, x, h):
        return (self.x2h(x) + self.h2h(h)).chunk(4, -1)


class OtherOrder(LinearPair):
    """i2h and h2h, the latter without a bias; gates o f i g."""

    order = "ofig"
    row: ClassVar = {"gates": {"lstm": "ofig"}, "tensors": {
        "i2h.weight": "W (G*H, I)", "i2h.bias": "bW (G*H)", "h2h.weight": "R (G*H, H)",
    }}  # fmt: skip

    def __init__(self):
        nn.Module.__init__(self)
        self.i2h, self.h2h = nn.Linear(I, 4 * H), nn.Linear(H, 4 * H, bias=False)

    def gates(self, x, h):
        return (self.i2h(x) + self.h2h(h)).chunk(4, -1)


class LinearPerGate(Cell):
    """The names of PyTorch's documentation."""

    row: ClassVar = {"gates": {"lstm": "ifgo"}, "tensors": {
        "W_i{gate}.weight": "W (H, I)", "W_i{gate}.bias": "bW (H)",
        "W_h{gate}.weight": "R (H, H_in)", "W_h{gate}.bias": "bR (H)",
    }}  # fmt: skip

    def __init__(self):
        super().__init__()
        for gate in self.order:
            self.add_module(f"W_i{gate}", nn.Linear(I, H))
            self.add_module(f"W_h{gate}", nn.Linear(H, H))

    def gates(self, x, h):
        return [getattr(self, f"W_i{k}")(x) + getattr(self, f"W_h{k}")(h) for k in self.order]


class MatrixOfHAndX(Cell):
    row: ClassVar = {"gates": {"lstm": "ifgo"}, "tensors": {
        "W_{gate:g=c}": "R + W (H, H + I)", "b_{gate:g=c}": "bW (H)",
    }}  # fmt: skip

    def __init__(self):
        super().__init__()
        self.weights(**{f"W_{k}": (H, H + I) for k in "ifco"}, **{f"b_{k}": (H,) for k in "ifco"})

    def gates(self, x, h):
        hx = torch.cat([h, x], -1)
        return [hx @ getattr(self, f"W_{k}").T + getattr(self, f"b_{k}") for k in "ifco"]


class OneLinear(Cell):
    order = "gifo"
    row: ClassVar = {"gates": {"lstm": "gifo"}, "tensors": {
        "gate.weight": "W + R (G*H, I + H)", "gate.bias": "bW (G*H)",
    }}  # fmt: skip

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(I + H, 4 * H)

    def gates(self, x, h):
        return self.gate(torch.cat([x, h], -1)).chunk(4, -1)


class MatrixPerGate(Cell):
    """As in d2l.ai: x W_xi + h W_hi + b_i."""

    row: ClassVar = {"gates": {"lstm": "ifgo"}, "tensors": {
        "W_x{gate:g=c}": "W (I, H)", "W_h{gate:g=c}": "R (H_in, H)", "b_{gate:g=c}": "bW (H)",
    }}  # fmt: skip

    def __init__(self):
        super().__init__()
        self.weights(**{f"W_x{k}": (I, H) for k in "ifco"}, **{f"W_h{k}": (H, H) for k in "ifco"})
        self.weights(**{f"b_{k}": (H,) for k in "ifco"})

    def gates(self, x, h):
        return [
            x @ getattr(self, f"W_x{k}") + h @ getattr(self, f"W_h{k}") + getattr(self, f"b_{k}")
            for k in "ifco"
        ]


class GatesSideBySide(Cell):
    order = "fiog"
    row: ClassVar = {"gates": {"lstm": "fiog"}, "tensors": {
        "W": "W (I, G*H)", "U": "R (H, G*H)", "b": "bW (G*H)",
    }}  # fmt: skip

    def __init__(self):
        super().__init__()
        self.weights(W=(I, 4 * H), U=(H, 4 * H), b=(4 * H,))

    def gates(self, x, h):
        return (x @ self.W + h @ self.U + self.b).chunk(4, -1)


class Interleaved(Cell):
    """The four values of a unit side by side."""

    order = "ogif"
    row: ClassVar = {"gates": {"lstm": "ogif"}, "tensors": {
        "W": "W (H*G, I)", "U": "R (H, G, H_in)", "b": "bW (H, G)",
    }}  # fmt: skip

    def __init__(self):
        super().__init__()
        self.weights(W=(4 * H, I), U=(H, 4, H), b=(H, 4))

    def gates(self, x, h):
        both = (x @ self.W.T).reshape(N, H, 4) + torch.einsum("ni,hgi->nhg", h, self.U) + self.b
        return both.unbind(-1)


@pytest.mark.parametrize("make", [*Cell.__subclasses__(), OtherOrder], ids=lambda c: c.__name__)
def test_an_lstm_written_by_hand(make):
    torch.manual_seed(0)
    cell, mine = make().double(), rl.layout(make.row)
    x = torch.randn(T, N, I, dtype=torch.float64)
    h = c = torch.zeros(N, H, dtype=torch.float64)
    with torch.no_grad():
        y, (h_n, _) = rl.RNN(cell.state_dict(), layout=mine, batch_first=False)(x)
        converted = rl.convert(cell.state_dict(), layout=mine, to="torch")
        module = nn.LSTM(I, H, dtype=torch.float64)
        rl.assign(module, converted)
        of_torch, _ = module(x)
        for t in range(T):
            h, c = cell(x[t], h, c)
            # float64: 4 steps of sums of 9 products, each rounded by 1e-16 of numbers below 10
            np.testing.assert_allclose(y[t], h, rtol=0, atol=1e-13)
            np.testing.assert_allclose(of_torch[t], h, rtol=0, atol=1e-13)
    np.testing.assert_allclose(h_n[0], h, rtol=0, atol=1e-13)
    back = rl.convert(converted, to=mine)
    two_biases = "bR" in str(make.row)  # whose sum torch then has as one of the two
    for name, tensor in cell.state_dict().items():
        assert two_biases or np.array_equal(back[name], tensor), name


@pytest.mark.parametrize("make", [*Cell.__subclasses__(), OtherOrder], ids=lambda c: c.__name__)
@pytest.mark.parametrize("prefix", ["", "encoder.rnn."])
def test_the_names_alone_give_the_row_but_for_what_only_the_code_shows(make, prefix):
    """The order of the gates, which the row here has as the cell; and nothing for other names."""
    tensors = {f"{prefix}{name}": tensor for name, tensor in make().state_dict().items()}
    with pytest.raises(rl.LayoutError) as caught:
        rl.Weights(tensors)
    asked = [value for name, value in caught.value.asks if name == "layout"]
    if make is Interleaved:
        assert not prefix or not asked
        return
    (mine,) = asked
    assert rl.layout(mine.row | {"gates": {"lstm": make.order}}) == rl.layout(make.row)
    gates_are_in_names = "{gate" in str(make.row)
    assert ("order of its gates" in str(caught.value)) != gates_are_in_names
    assert ("x or h comes first" in str(caught.value)) == (" + " in str(make.row))
    assert (f"tensors under {prefix!r} look" in str(caught.value)) == bool(prefix)
    assert rl.Weights(tensors, layout=mine, prefix=prefix).spec == rl.Spec("lstm", I, H)


LINEAR = {"W": "W (G*H, I)", "R": "R (G*H, H_in)", "bW": "bW (G*H)", "bR": "bR (G*H)"}
COLUMNS = {"W": "W (I, G*H)", "R": "R (H_in, G*H)", "bW": "bW (G*H)"}
OF_GATES = {"W": "W (H, I)", "R": "R (H, H_in)", "bW": "bW (H)", "bR": "bR (H)"}
JOINED = {"W + R": "W + R (G*H, I + H_in)", "bW": "bW (G*H)"}
JOINED_OF_GATES = {"R + W": "R + W (H, H_in + I)", "bW": "bW (H)"}
ORDER, JOINS = "the order of its gates for 'CELL'", "whether x or h comes first"
NAMES = [  # of tensors, what is in them, and what only the code shows
    ("W_x.weight W_h.weight W_x.bias W_h.bias", LINEAR, ORDER),
    ("W_ih.weight W_hh.weight W_ih.bias W_hh.bias", LINEAR, ORDER),
    ("Wx.weight Wh.weight Wx.bias Wh.bias", LINEAR, ORDER),
    ("W.weight U.weight W.bias U.bias", LINEAR, ORDER),
    ("W_x{}.weight W_h{}.weight W_x{}.bias W_h{}.bias", OF_GATES, ""),
    ("W_{}.weight U_{}.weight W_{}.bias U_{}.bias", OF_GATES, ""),
    ("W_ih W_hh b", COLUMNS, ORDER),
    ("W_x W_h b", COLUMNS, ORDER),
    ("Wx Wh b", COLUMNS, ORDER),
    ("W_{} U_{} b_{}", OF_GATES, ""),
    ("W_{}.weight W_{}.bias", JOINED_OF_GATES, JOINS),
    ("gates.weight gates.bias", JOINED, f"{ORDER}, {JOINS}"),
    ("linear.weight linear.bias", JOINED, f"{ORDER}, {JOINS}"),
]
CELLS = {  # gates in the row, in names; what else only the code shows
    "lstm": ("ifgo", "{gate}", {}, ""),
    "gru": ("rzn", "{gate:z=u n=h}", {"reset": "after", "z": "state"}, "reset and z"),
}


@pytest.mark.parametrize("names, texts, unknown", NAMES)
@pytest.mark.parametrize("cell", CELLS)
def test_further_names_that_are_common(cell, names, texts, unknown):
    gates, gate, fields, more = CELLS[cell]
    tensors = dict(
        zip((name.replace("{}", gate) for name in names.split()), texts.values(), strict=False)
    )
    row = {"gates": {cell: gates}, "tensors": tensors, **fields}
    shapes = rl.describe(rl.Spec(cell, I, H), rl.layout(row))
    with pytest.raises(rl.LayoutError) as caught:
        rl.Weights({name: np.zeros(shape, "f4") for name, shape in shapes.items()})
    assert [value for name, value in caught.value.asks if name == "layout"] == [rl.layout(row)]
    unknown = ", ".join(filter(None, [unknown.replace("CELL", gates), more]))
    advice = f"put in what only its code shows ({unknown}) and pass " if unknown else "pass "
    assert f"written by hand: {advice}layout=rl.layout(" in str(caught.value)


@pytest.mark.parametrize(
    "names, texts", [("x2h.weight h2h.weight", LINEAR), ("W U b", COLUMNS)], ids=["rows", "columns"]
)
def test_a_square_matrix_of_x(names, texts):
    """Of a Linear the rows are the outputs; of other names the columns are assumed."""
    row = {"gates": {"lstm": "ifgo"}}
    row["tensors"] = dict(zip(names.split(), texts.values(), strict=False))
    shapes = rl.describe(rl.Spec("lstm", 4 * H, H), rl.layout(row))
    with pytest.raises(rl.LayoutError) as caught:
        rl.Weights({name: np.zeros(shape, "f4") for name, shape in shapes.items()})
    assert [value for name, value in caught.value.asks if name == "layout"] == [rl.layout(row)]


@pytest.mark.parametrize(
    "shapes",
    [
        {"W": (5, 12), "U": (3, 15), "b": (15,)},  # five gates
        {"W": (5, 12), "U": (3, 12, 1), "b": (12,)},
        {"W": (0, 12), "U": (3, 12), "b": (12,)},
        {"W": (5, 12), "b": (12,)},  # no recurrent matrix
        {f"{name}_{k}": (3, 3) for name in "WU" for k in "ifcx"},  # not the letters of gates
        {"W_i": (3, 5), "W_f": (3, 5), "U_i": (3, 3)},
    ],
)
def test_names_that_are_common_with_other_shapes(shapes):
    with pytest.raises(rl.LayoutError) as caught:
        rl.Weights({name: np.zeros(shape, "f4") for name, shape in shapes.items()})
    assert not re.search("written by hand: |^tensors:", str(caught.value))


def test_a_gru_written_by_hand():
    """h' = (1 - z) h + z n, with r before the matrix, which neither torch nor cuDNN has."""
    rng = np.random.default_rng(0)
    mine = rl.layout({
        "gates": {"gru": "zrn"},
        "reset": "before",
        "z": "candidate",
        "tensors": {
            "W_{gate:n=h}": "W (H, I)", "U_{gate:n=h}": "R (H, H_in)", "b_{gate:n=h}": "bW (H)",
        },
    })  # fmt: skip

    def sigmoid(a):
        return 1 / (1 + np.exp(-a))

    w = {f"W_{k}": rng.standard_normal((H, I)) for k in "zrh"}
    w |= {f"U_{k}": rng.standard_normal((H, H)) for k in "zrh"}
    w |= {f"b_{k}": rng.standard_normal(H) for k in "zrh"}
    x, h = rng.standard_normal((T, N, I)), np.zeros((N, H))
    y, _ = rl.RNN(w, layout=mine, batch_first=False)(x)
    for t in range(T):
        z, r = (sigmoid(x[t] @ w[f"W_{k}"].T + h @ w[f"U_{k}"].T + w[f"b_{k}"]) for k in "zr")
        n = np.tanh(x[t] @ w["W_h"].T + (r * h) @ w["U_h"].T + w["b_h"])
        h = (1 - z) * h + z * n
        np.testing.assert_allclose(y[t], h, rtol=0, atol=1e-13)  # as above
