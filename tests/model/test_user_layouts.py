"""Layouts of your own: rows as data, which run through the same code as those of the table."""

import gc
import json
import pickle
import random
import re

import numpy as np
import pytest

import rnnlayout as rl
from rnnlayout import _native
from rnnlayout._model.layout import layout_from_json
from rnnlayout._sources.candidates import one_layer_candidates

LSTM = {
    "gates": {"lstm": "fiog"},
    "tensors": {"x2h": "W (I, G*H)", "h2h": "R (H, G*H)", "b": "bW (G*H)"},
}
GRU = {
    "gates": {"gru": "zrn"},
    "reset": "before",
    "z": "candidate",
    "tensors": {"W_{gate}": "R + W (H, H + I)", "b_{gate:r=reset z=update n=new}": "bW (H)"},
}
EVERY_LAYOUT = [
    *map(rl.layout, rl.layouts()),
    rl.layout("concat", inputs="xh", z="candidate"),
    rl.layout("tf1", forget_bias=0.25),
]
SIZES = {"I": 5, "H": 3, "P": 2}


def specs_of(layout):
    """Return every RNN of a layout, of one layer and of two, with its optional tensors."""
    for candidate in one_layer_candidates(layout):
        for rnn in (candidate, candidate.two_layers):
            yield rnn.spec(SIZES, dtype="float64"), rnn.optional_tensors


@pytest.mark.parametrize("layout", EVERY_LAYOUT, ids=str)
def test_a_row_of_the_table_read_at_run_time_is_the_same_layout(layout):
    """Same names, shapes and blocks, and the same steps from and to a layout that has everything:
    signs, sums, constants and what must be zero."""
    read_back = rl.layout(layout.row)
    assert read_back.row == layout.row and read_back != layout
    assert [*specs_of(read_back)] == [*specs_of(layout)] != []
    rows = zip(_native.layout_rows(layout), _native.layout_rows(read_back), strict=True)
    for row, user_row in rows:  # z, forget_bias: of a GRU, of an LSTM
        assert {key for key in row if row[key] != user_row[key]} <= {
            "layout", "options", "must_name", "checked", "source", "z",
        }  # fmt: skip
    for spec, optional in specs_of(layout):
        assert _native.tensors(read_back, spec, optional) == _native.tensors(layout, spec, optional)
        assert _native.blocks(read_back, spec, optional) == _native.blocks(layout, spec, optional)
        for to in map(rl.layout, ("concat", "tf1", "cudnn")):
            try:
                expected = _native.Plan(spec, layout, optional, to).block_ops()
            except rl.LossyError:
                continue
            assert _native.Plan(spec, read_back, optional, to).block_ops() == expected


@pytest.mark.parametrize(
    "text, shapes",
    [
        ("W + R (I + H, G*H)", {"x": (8, 12)}),
        ("R + W (G*H, H + I)", {"x": (12, 8)}),
        ("W + R (H*G, I + H_in)", {"x": (12, 8)}),
        ("W + R + bW (I + H_in + 1, G, H)", {"x": (9, 4, 3)}),
    ],
)
def test_one_tensor_of_all(text, shapes):
    mine = rl.layout({"gates": {"lstm": "ifgo"}, "tensors": {"x": text}})
    assert rl.describe(rl.Spec("lstm", 5, 3), mine) == shapes


def test_one_tensor_of_two_pieces_of_peepholes():
    peephole = {"p": "peephole[if] + peephole[o] (G + G, H)"}
    mine = rl.layout(LSTM | {"tensors": LSTM["tensors"] | peephole})
    assert rl.describe(rl.Spec("lstm", 5, 3, peepholes=True), mine)["p"] == (3, 3)


def test_an_H_of_R_is_the_input_if_only_the_other_is_beside_G():
    def row_with(text):
        return LSTM | {"tensors": LSTM["tensors"] | {"h2h": text}}

    assert rl.layout(row_with("R (H, H*G)")) == rl.layout(row_with("R (H_in, H*G)"))
    assert rl.layout(row_with("R (G*H, H,)")) == rl.layout(row_with("R ( G*H ,P )"))
    assert rl.layout(row_with("R (H, G*H)")) != rl.layout(row_with("R (G*H, H)"))
    for unclear in ("R (G, H, H)", "R (G*H*H)"):
        with pytest.raises(rl.LayoutError, match=r"tensors.h2h: R has two sizes H.* write H_in"):
            rl.layout(row_with(unclear))


def changed(**fields):
    return {key: value for key, value in (LSTM | fields).items() if value is not None}


def with_tensors(**tensors):
    return changed(tensors=LSTM["tensors"] | tensors)


WRONG = [
    (changed(gates=None), "gates: missing, need the gates of each cell"),
    (changed(tensors=None), "tensors: missing, need"),
    (changed(gates={}), "gates: missing"),
    (changed(gates={"lstm": "fico"}), "gates.lstm: 'fico', need the letters ifgo, each once"),
    (changed(gates={"lstm": 3}), "gates.lstm: 3, need a string with the gates"),
    (changed(gates={"ltsm": "ifgo"}), "gates.ltsm: no cell has this name, need lstm, gru"),
    (changed(color="red"), "color: unknown field, need one of: schema, name, rows, gates"),
    (changed(schema=2), "schema: 2, rnnlayout"),
    (changed(name="torch"), "name: need 1 to 39 letters"),
    (changed(name="a b"), "name: need 1 to 39 letters"),
    (changed(z="state"), "z: only a row with a gru has it"),
    (GRU | {"z": "old"}, "z: 'old', need state or candidate"),
    ({k: v for k, v in GRU.items() if k != "z"}, 'z: missing, need "state" if h\' = z h'),
    ({k: v for k, v in GRU.items() if k != "reset"}, 'reset: missing, need "after" if the'),
    (GRU | {"reset": []}, "reset: the list is empty"),
    (GRU | {"reset": ["after", "never"]}, "reset is 'never', need one of: after, before"),
    (changed(activation="relu"), "activation: need tanh, or a list with it"),
    (changed(recurrent_activation=["hard_sigmoid"]), "recurrent_activation: need sigmoid, or a li"),
    (
        changed(biases="always", tensors={"W": "W (I, G*H)", "R": "R (H, G*H)"}),
        "biases: no tensor has bW or bR",
    ),
    (changed(biases="maybe"), "biases: 'maybe', need optional, always or by_mode"),
    (changed(forget_bias=1), 'forget_bias: needs an lstm with a tensor of bW and "biases": "alw'),
    (changed(forget_bias="1", biases="always"), 'forget_bias: "1", need a finite number'),
    (with_tensors(x2h="W (5, G*H)"), "tensors.x2h: '5, G*H)', need a size: G (gates), H (hidden"),
    (with_tensors(x2h="W I, G*H"), "tensors.x2h: 'I, G*H', need a shape in parentheses"),
    (with_tensors(x2h="V (I, G*H)"), "tensors.x2h: 'V (I, G*H)', need W, R, P, bW, bR or peephole"),
    (with_tensors(x2h="W (G*H)"), "tensors.x2h: W needs the sizes H and I, each once"),
    (with_tensors(x2h="W (I, H)"), "tensors.x2h: W needs the size G once, as in G*H, or {gate} in"),
    (with_tensors(x2h="W (H_in, G*H)"), "tensors.x2h: W has no size H_in"),
    (with_tensors(x2h="W (D, I, G*H)"), "tensors.h2h: R lacks the size D, which other tensors ha"),
    (with_tensors(x2h="W (I, G*H) + R (H, G*H)"), "write the shape of the whole tensor last"),
    (with_tensors(x2h="W + R (I, G*H)"), "the shape does not show how 2 matrices or biases lie"),
    (with_tensors(x2h="W (I + H, G*H)"), "the shape adds 2 sizes, need one for each of the 1"),
    (with_tensors(x2h="W[ifg] (I, G*H)"), "tensors: W of gate o of the lstm is in no tensor"),
    (with_tensors(more="W (I, G*H)"), "tensors: in '0/more' of the lstm some elements are in no w"),
    (
        changed(tensors={"a": "W[if] + R (I + H_in, G*H)", "b": "W[go] (I, G*H)"}),
        "tensors: in '0/a' of the lstm two weights would be the same element",
    ),
    (with_tensors(x2h=["W (I, G*H)"] * 2), 'need "per layer" or "per layer and direction"'),
    (with_tensors(x2h=[]), "tensors.x2h: the list is empty"),
    (
        with_tensors(**{"W_{gates}": "W (I, H)"}),
        "tensors.W_{gates}: '{gates}' is unknown, need {layer}",
    ),
    (with_tensors(**{"b{layer}": "bR (G*H)"}), "two tensors of the lstm would be called 'b0': the"),
    (with_tensors(**{"b}": "bR (G*H)"}), "tensors.b}: a brace without the other one"),
    (with_tensors(**{"é": "bR (G*H)"}), "printable ASCII characters"),
    (with_tensors(**{"b" * 60: "bR (G*H)"}), "the name may have 75 bytes with a layer, direction"),
    (with_tensors(**{f"b{k}": "bR (G*H)" for k in range(9)}), "a row has at most 8 tensors"),
    (with_tensors(**{"{gate}{gate}": "bR (H)"}), "tensors.{gate}{gate}: {gate} occurs twice"),
    (
        with_tensors(**{"{gate:i=" + 57 * "a" + "}": "bR (H)"}),
        "the name may have 72 bytes with a layer, direction",
    ),
    (with_tensors(x2h="W + R + bW + bR (I + H_in + 1 + 1, G*H)"), "more than 3 matrices or biases"),
    (with_tensors(b="bW[x] (G*H)"), "tensors.b: [x] (G*H), need letters of gates, each once"),
    (with_tensors(b="bW[iifgo] (G*H)"), "tensors.b: [ifgo] (G*H), need letters of gates, each onc"),
    (with_tensors(b="bW[] (G*H)"), "tensors.b: need the letters of gates between [ and ]"),
    (with_tensors(b=f"bW ({24 * '1*'}G*H)"), "tensors.b: more than 24 sizes"),
    (with_tensors(b="bW (1, 1, 1, 1, G, H)"), "tensors.b: more than 5 dimensions"),
    (with_tensors(h2h="R (I, G*H)"), "tensors.h2h: R has no size I"),
    (with_tensors(x2h="W (P, G*H)"), "tensors.x2h: W has no size P"),
    (with_tensors(p="P (G*P, H)"), "tensors.p: P has no size G"),
    (
        with_tensors(**{"{gate:i=" + 57 * "a" + " f=b}": "bR (H)"}),
        "the name may have 72 bytes with a layer, direction",
    ),
    (with_tensors(**{"{gate:i=a x=b}": "bR (H)"}), "need {gate:i=input f=forget ...}: the letter"),
    ({"rows": [LSTM] * 5}, "more than 4 rows"),
    (with_tensors(x2h="W + P (G*I + P, H)"), "H is the output of one matrix and the input of ano"),
    (with_tensors(x2h="W (I, G*H) per layer"), "a vector of all layers has 2 dimensions, need 1"),
    (with_tensors(b="bW (G*H) raveled"), "tensors.b: only W alone or R alone can be raveled"),
    (
        with_tensors(**{"b{layer}{direction:|_b}{gate:i=in}": "bR (G*H)"}),
        "tensors.b{layer}{direction:|_b}{gate:i=in}: bR needs the size G once",
    ),
    (with_tensors(**{"{direction:a}": "bR (G*H)"}), "need {direction:a|b} once"),
    ({"rows": [LSTM, LSTM]}, "rows[1]: rows[0] has this lstm already"),
    ({"rows": []}, "rows: the list is empty"),
    ({"rows": [LSTM], "gates": {}}, "gates: beside rows: the fields of a row belong into a row"),
    ({"rows": [LSTM | {"name": "a"}]}, "rows[0].name: a field of the layout, not of a row"),
    ({"gates": {1: {2}}}, "the row of a layout is not JSON: Object of type set"),
]


@pytest.mark.parametrize("row, text", WRONG, ids=[text[:30] for _, text in WRONG])
def test_a_wrong_row_is_refused_by_the_name_of_its_field(row, text):
    with pytest.raises(rl.LayoutError, match=re.escape(text)) as caught:
        rl.layout(row)
    assert str(caught.value).startswith("rows[") == text.startswith("rows[")


def test_what_is_no_object_of_json():
    with pytest.raises(rl.SpecError, match="the JSON ends after byte 9"):
        layout_from_json(b'{"gates":')
    twice = b'{"gates": {"lstm": "ifgo", "lstm": "ofgi"}}'
    with pytest.raises(rl.LayoutError, match=r"gates\.lstm: occurs twice"):
        layout_from_json(twice)
    with pytest.raises(rl.LayoutError, match=r"^reset: occurs twice"):
        layout_from_json(b'{"reset": "after", "reset": "before"}')
    with pytest.raises(rl.LayoutError, match="has 70000 bytes, need at most 65536"):
        layout_from_json(b" " * 70000)
    with pytest.raises(rl.LayoutError, match="a layout of your own has no options"):
        rl.layout(LSTM, inputs="hx")


def hostile_rows(count, seed):
    """Yield rows of the table and of this file as JSON, each with some mistakes."""
    draw = random.Random(seed)
    texts = [json.dumps(row) for row in [*(layout.row for layout in EVERY_LAYOUT), LSTM, GRU]]
    pieces = [piece for text in texts for piece in re.findall(r'"[^"]*"|[\w{}*+(),:\[\]]+', text)]
    for _ in range(count):
        text = draw.choice(texts)
        for _ in range(draw.choice((1, 1, 2, 5))):
            at, length = draw.randrange(len(text)), draw.choice((0, 1, 1, 2, 8, 40))
            sign = draw.choice('GHIPD1*+(),[]{}|:"\\\0é')
            new = draw.choice(("", draw.choice(pieces), sign, text[at : at + 20]))
            text = text[:at] + new + text[at + length :]
        yield text


def check_hostile_rows(count, seed):
    """Each is refused with a typed error, or is a layout whose blocks tile its tensors."""
    checked = {rl.layout(layout.row).json for layout in EVERY_LAYOUT}
    accepted = 0
    for text in hostile_rows(count, seed):
        try:
            mine = layout_from_json(text.encode())
        except (rl.LayoutError, rl.SpecError) as error:
            assert len(str(error)) > 10, text
            continue
        accepted += 1
        if mine.json in checked:
            continue
        checked.add(mine.json)
        assert rl.layout(mine.row) == mine
        for spec, optional in [*specs_of(mine)][1::2]:  # of two layers
            tensors = _native.tensors(mine, spec, optional)
            counts = [np.zeros(shape, int).ravel() for _, shape in tensors]
            for _, (tensor, at, rows, cols, row_stride, col_stride, _) in _native.blocks(
                mine, spec, optional
            ):
                places = at + np.arange(rows)[:, None] * row_stride + np.arange(cols) * col_stride
                np.add.at(counts[tensor], places, 1)
            assert all((count == 1).all() for count in counts), text
    return accepted


def test_hostile_rows_are_refused_or_tile():
    assert check_hostile_rows(40, seed=1) >= 1


@pytest.mark.long
def test_ten_thousand_hostile_rows():
    assert check_hostile_rows(10_000, seed=2) > 100


# ------------------------------------------------------------------------------------- a value


def test_a_layout_of_a_row_is_a_value():
    mine = rl.layout(LSTM)
    tensors = LSTM["tensors"] | {"h2h": "R (H_in, G*H)"}
    again = rl.layout({"tensors": tensors, "gates": LSTM["gates"]})
    assert mine == again == pickle.loads(pickle.dumps(mine)) and hash(mine) == hash(again)
    assert mine == rl.layout(LSTM | {"schema": 1})
    assert mine != rl.layout(LSTM | {"name": "mine"}) != rl.layout(LSTM | {"biases": "always"})
    assert str(mine) == "custom" and str(rl.layout(LSTM | {"name": "mine"})) == "mine"
    assert eval(f"rl.{mine!r}") == mine == rl.layout(mine.row)


def test_a_plan_keeps_the_rows_that_it_uses():
    """An error of the run has the name of the target, which is a text of the rows."""
    without_biases = {"name": "bare", "gates": {"lstm": "fiog"}}
    tensors = {name: LSTM["tensors"][name] for name in ("x2h", "h2h")}
    target = rl.layout(without_biases | {"tensors": tensors})
    plan = _native.Plan(rl.Spec("lstm", 5, 3), rl.layout(LSTM), 1, target)
    del target
    gc.collect()
    others = [rl.layout(GRU | {"name": f"other{k}"}) for k in range(10)]
    arrays = [np.ones(shape, "f4") for _, shape in plan.sources]
    out = [np.empty(shape, "f4") for _, shape in plan.targets]
    with pytest.raises(rl.LossyError, match="bare"):
        plan.run(arrays, out, "float32", "float32", False, True)
    del others


@pytest.mark.parametrize(
    "name", ["wx{layer}", "{layer}wx", "W{layer}x", "a{layer}/b", "x2h{layer}", "layer{layer}.x2h"]
)
@pytest.mark.parametrize("direction", ["{direction:|_reverse}", "{direction:f|b}"])
def test_the_number_of_a_layer_anywhere_in_a_name(tmp_path, name, direction):
    """wx0 and wx1 were not read, only numbers after a dot, _, l or r."""
    texts = {"W": "W (I, G*H)", "U": "R (G*H, H)", "b": "bW (G*H)"}
    tensors = {f"{key}{name}{direction}": text for key, text in texts.items()}
    mine = rl.layout({"gates": {"lstm": "ofig"}, "tensors": tensors})
    spec, rng = rl.Spec("lstm", 5, 3, num_layers=3, bidirectional=True), np.random.default_rng(0)
    arrays = {name: rng.random(shape, "f4") for name, shape in rl.describe(spec, mine).items()}
    expected = rl.convert([*arrays.values()], spec, layout=mine, to="cudnn")
    assert np.array_equal(rl.convert(arrays, layout=mine, to="cudnn"), expected)
    below = {f"encoder.{name}": array for name, array in arrays.items()}
    np.savez(tmp_path / "w.npz", **below, **{"dense.weight": np.ones((4, 4), "f4")})
    (weights,) = rl.load(tmp_path / "w.npz", layout=mine).values()
    assert weights.spec == spec and np.array_equal(weights.pack(), expected)


def test_a_tensor_named_like_a_stored_part_of_torchs_is_read(tmp_path):
    """weight_hr_data was taken for a part from which torch computes weight_hr."""
    tensors = {"weight_hr_data": "W (I, G*H)", "weight_hh_orig": "R (H, G*H)", "b": "bW (G*H)"}
    mine = rl.layout({"gates": {"lstm": "fiog"}, "tensors": tensors})
    rng, spec = np.random.default_rng(0), rl.Spec("lstm", 5, 3)
    arrays = {name: rng.random(shape, "f4") for name, shape in rl.describe(spec, mine).items()}
    expected = rl.convert([*arrays.values()], layout=mine, to="cudnn")
    below = {f"encoder.{name}": array for name, array in arrays.items()}
    np.savez(tmp_path / "w.npz", **below)
    sources = (
        rl.Weights(arrays, layout=mine),
        rl.Weights(below, layout=mine, prefix="encoder"),
        rl.load(tmp_path / "w.npz", layout=mine)["encoder"],
    )
    for weights in sources:
        assert weights.spec == spec and np.array_equal(weights.pack(), expected)
