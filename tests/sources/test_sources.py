"""All kinds of sources: dicts, lists, prefixes, Keras's own paths; and what is kept of one answers
only the same question."""

import itertools
import pickle
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import torch
from oracles.some import normal_weights, same_bits

import rnnlayout as rl
from rnnlayout import _native
from rnnlayout._model.layout import Layout
from rnnlayout._sources import candidates, fitting, mismatch

LSTM = rl.Spec("lstm", 5, 7)
KERAS = normal_weights("keras", LSTM)
FLAT = rl.pack(KERAS)


def test_keras_own_paths():
    for path in ("{}", "{}:0", "lstm/{}:0", "lstm_3/lstm_cell/{}:0",
                 "sequential/lstm/lstm_cell_1/{}", "model_weights/enc/enc/lstm/{}:0"):  # fmt: skip
        assert same_bits(rl.pack({path.format(n): w for n, w in KERAS.items()}), FLAT), path
    numbered = {f"layers/lstm/cell/vars/{k}": w for k, w in enumerate(KERAS.values())}
    assert same_bits(rl.pack(numbered), FLAT)
    weights = normal_weights("keras", rl.Spec("lstm", 5, 7, 1, True))
    for path in ("bidirectional_1/{}_lstm/lstm_cell/{}:0", "{}_lstm_1/lstm_cell/{}:0",
                 "layers/bidirectional/{}_layer/cell/{}"):  # fmt: skip
        renamed = {path.format(*n.split("/")[1:]): w for n, w in weights.items()}
        assert same_bits(rl.pack(renamed), rl.pack(weights)), path
        backward_first = dict(sorted(renamed.items()))
        assert same_bits(rl.pack(backward_first), rl.pack(weights)), path


def specs(layout):
    """Return the RNNs of a layout, with and without biases."""
    info = rl.layouts()[layout]
    return [
        rl.Spec(cell, 5, 7, layers, both, bias=bias, reset=reset)
        for cell in info["cells"]
        for reset in (info["resets"] if cell == "gru" else ["after"])
        for layers, both, bias in itertools.product((1, 3), (False, True), ("double", "none"))
    ]


NAMED = [name for name in rl.layouts() if name not in ("cudnn", "miopen", "concat")]


@pytest.mark.parametrize("layout", NAMED)
def test_spec_and_layout_follow_from_names_and_shapes(layout):
    """Whether a layout always has biases was asked of the first row of its table for all cells."""
    info = rl.layouts()[layout]
    for spec in specs(layout):
        weights = normal_weights(layout, spec)
        always = rl.describe(spec.replace(bias="double"), layout) == rl.describe(spec, layout)
        wanted = spec.replace(bias="double") if always else spec
        hints = {"cell": spec.cell} if spec.cell.startswith("rnn") else {}
        hints |= {"reset": spec.reset} if spec.cell == "gru" else {}
        assert rl.infer_spec(weights, layout, **hints) == wanted, spec
        # refused: test_same_names.py
        no_biases = wanted.bias == "none" and layout != "torch"
        core_ml_too = layout == "equinox" and spec.cell == "lstm" and not spec.bidirectional
        if any((info["must_name"], info["options"], no_biases, core_ml_too)):
            continue
        found = rl.Weights(weights, **hints)
        assert (found.spec, found.layout) == (wanted, rl.layout(layout)), spec


def test_bfloat16_is_taken_as_bits():
    bits, spec = np.arange(LSTM.num_params, dtype="u2"), LSTM.replace(dtype="bfloat16")
    tensors = rl.unpack(bits.view(ml_dtypes.bfloat16), spec, to="torch")
    assert tensors["weight_ih_l0"].dtype == ml_dtypes.bfloat16
    torched = {
        n: torch.from_numpy(w.view("i2").copy()).view(torch.bfloat16) for n, w in tensors.items()
    }
    out = torch.empty(spec.num_params, dtype=torch.bfloat16)
    rl.pack(torched, out=out)
    assert same_bits(out.view(torch.int16).numpy().view("u2"), bits)
    assert same_bits(rl.pack(tensors, dtype="float32"), rl.pack(torched, dtype="float32"))


def test_dicts_of_other_kinds(tmp_path):
    """An .npz file is one; one that contains itself is searched to a depth."""
    np.savez(tmp_path / "w.npz", **KERAS)
    with np.load(tmp_path / "w.npz") as file:
        assert same_bits(rl.pack(file), FLAT)
    whole = {"epoch": 3, "model": dict(KERAS)}
    whole["trainer"] = whole
    with pytest.raises(rl.LayoutError, match=r"^this dict is a checkpoint .* pass its \['model'\]"):
        rl.Weights(whole)


# ------------------------------------------------------------------------------------ Weights


def test_weights_are_a_mapping_that_knows_what_it_is():
    w = rl.Weights(KERAS)
    assert (w.spec, w.layout, list(w)) == (LSTM, rl.layout("keras"), list(KERAS))
    assert same_bits(w.tensors, KERAS) and same_bits(dict(w), KERAS)
    assert same_bits(w.pack(), FLAT) and same_bits(w.to("cudnn").tensors, FLAT)
    assert not np.shares_memory(rl.Weights(FLAT, LSTM).to("cudnn").tensors, FLAT)
    assert same_bits(rl.pack(w), FLAT)
    assert w.report is None and w.to("torch").report.grade == "exact"
    assert "lstm, input_size 5, hidden_size 7 in keras" in repr(w)
    assert same_bits(pickle.loads(pickle.dumps(w)).tensors, KERAS)
    with pytest.raises(KeyError):
        w["nothing"]
    with pytest.raises(rl.LayoutError, match="in layout keras, not torch"):
        rl.pack(w, layout="torch")


@pytest.mark.parametrize(
    "layout", ["torch", "keras", "onnx", "cudnn", rl.layout("cudnn", version=8)], ids=str
)
@pytest.mark.parametrize("both", [False, True])
def test_stack_and_split(layout, both):
    spec = rl.Spec("gru", 5, 7, 3, both)
    whole = rl.Weights(normal_weights(layout, spec), spec, layout)
    parts = whole.split()
    assert [p.spec.input_size for p in parts] == [5, *[7 * spec.num_directions] * 2]
    again = rl.stack(parts)
    assert again == whole and {p.layout for p in parts} == {whole.layout}
    assert same_bits(rl.stack([rl.stack(parts[:2]), parts[2]]).tensors, whole.tensors)


@pytest.mark.parametrize("layout", ["torch", "cudnn"])
@pytest.mark.parametrize(
    "whole, layers",
    [
        ({"stateful": True}, [{"stateful": True}] * 3),
        ({"go_backwards": True}, [{"go_backwards": True}, {}, {}]),
        ({"merge_mode": "sum"}, [{}, {}, {"merge_mode": "sum"}]),
        ({"initial_h": [[[1.0]], [[2.0]], [[3.0]]]},
         [{"initial_h": [[[n]]]} for n in (1.0, 2.0, 3.0)]),
        ({"layout": 1, "initial_h": [[[1.0], [2.0], [3.0]]]},
         [{"layout": 1, "initial_h": [[[n]]]} for n in (1.0, 2.0, 3.0)]),
    ],
    ids=str,
)  # fmt: skip
def test_stack_and_split_dropped_what_weights_are_used_with(layout, whole, layers):
    """rnn() then ran without those settings."""
    spec = rl.Spec("gru", 5, 7, 3)
    weights = rl.Weights(normal_weights(layout, spec), spec, layout)
    weights.config = whole
    parts = weights.split()
    assert [part.config for part in parts] == layers
    assert rl.stack(parts).config == rl.Weights(weights).config == whole
    assert rl.stack([rl.stack(parts[:2]), parts[2]]).config == whole


@pytest.mark.parametrize("layers, text", [
    ([LSTM, LSTM], "layer 1 is .*would have to be lstm, input_size 7, hidden_size 7"),
    ([LSTM, rl.Spec("lstm", 7, 3)], "Layers of different sizes are several RNNs"),
    ([LSTM, rl.Spec("gru", 7, 7)], "layer 1 is gru"),
    ([LSTM, rl.Spec("lstm", 7, 7, bias=False)], "do not both have biases"),
    ([], "nothing to stack"),
    ([{"clip": 3.0}, {"clip": 2.0}], "layer 1 is .* clip=2.0, layer 0 with clip=3.0: in"),
    ([{}, {"go_backwards": True}], "layer 1 .*go_backwards=True, layer 0 with nothing more"),
    ([{"merge_mode": "sum"}] * 2, "layer 0 .*merge_mode='sum': .* used with nothing more"),
    ([{"initial_h": [[[1.0]]]}, {}], "layer 0 is used with initial_h=.*, layer 1 with nothing"),
    ([{"initial_h": [[[1.0]]]}, {"initial_h": [[[1.0, 2.0]]]}], "initial_h of the layers: "),
    ([{"initial_h": [[[1.0]], 2]}, {"initial_h": "x"}], "initial_h is .*, 2\\]: need \\(L D"),
], ids=str)  # fmt: skip
def test_what_does_not_stack(layers, text):
    """layers: their specs, or what they are used with."""
    parts = []
    for one in layers:
        spec, config = (one, {}) if isinstance(one, rl.Spec) else (rl.Spec("lstm", 7, 7), one)
        parts.append(rl.Weights(normal_weights("keras", spec)))
        parts[-1].config = config
    with pytest.raises(rl.LayoutError, match=text):
        rl.stack(parts)


# ------------------------------------------------------------------------- what is kept of a source


ARRAYS = {"kernel": np.ones((2, 9), "f4"), "recurrent_kernel": np.ones((3, 9), "f4")}
STATE = torch.nn.LSTM(3, 5).state_dict()


def answer(call):
    try:
        return call()
    except rl.Error as error:
        return f"{type(error).__name__}: {error}"


QUESTIONS = [
    lambda: rl.infer_spec(ARRAYS, reset="before"),
    lambda: rl.infer_spec(ARRAYS, reset="after"),
    lambda: rl.infer_spec(ARRAYS),
    lambda: rl.Weights(ARRAYS, rl.Spec("gru", 2, 3, bias=False, reset="before")).spec,
    lambda: rl.Weights(ARRAYS, rl.Spec("gru", 2, 4, bias=False)).spec,
    lambda: rl.infer_spec(ARRAYS, "coreml", reset="after"),
    lambda: rl.infer_spec({f"a/{k}": v for k, v in ARRAYS.items()}, reset="after"),
    lambda: rl.infer_spec(ARRAYS, prefix="a", reset="after"),
    lambda: rl.infer_spec(ARRAYS | {"kernel": np.ones((4, 9), "f4")}, reset="after"),
    lambda: rl.infer_spec({k: v.astype("f8") for k, v in ARRAYS.items()}, reset="after"),
    lambda: rl.infer_spec([*ARRAYS.values()], "keras", reset="after"),
    lambda: rl.infer_spec(torch.nn.LSTM(3, 5)),
    lambda: rl.infer_spec(STATE),
    lambda: rl.infer_spec({k: STATE[k] for k in list(STATE)[:2]}),
    lambda: rl.infer_spec(torch.nn.LSTM(3, 5, proj_size=2)),
    lambda: rl.infer_spec(torch.nn.GRU(3, 5)),
]


def test_the_order_of_questions_makes_no_difference():
    """The first answers are those of a process that keeps nothing from call to call."""
    first = []
    for question in QUESTIONS:
        fitting._fitting_rnns_or_error.cache_clear()
        fitting.names_in_layouts.cache_clear()
        first.append(answer(question))
    assert len(set(map(repr, first))) > 10  # some questions have one answer
    for seed in range(4):
        for k in np.random.default_rng(seed).permutation([*range(len(QUESTIONS))] * 2):
            assert answer(QUESTIONS[k]) == first[k]


def test_an_error_was_made_again_for_each_rnn_of_the_same_shapes(monkeypatch):
    """A cache of results alone kept no error: a file of 3,000 wrong RNNs made 3,000 errors."""
    find, searches = fitting._find_fitting_rnns, []
    monkeypatch.setattr(
        fitting, "_find_fitting_rnns", lambda *args: searches.append(args) or find(*args)
    )
    fitting._fitting_rnns_or_error.cache_clear()
    errors = []
    for _ in range(3):
        with pytest.raises(rl.LayoutError, match="kernel: shape") as caught:
            rl.infer_spec(ARRAYS | {"kernel": np.ones((4, 9, 1), "f4")})
        errors.append(caught.value)
    assert len({id(error) for error in errors}) == 3  # each is raised once, with its own frames
    assert len({str(error) for error in errors}) == 1
    assert len(searches) == len(set(map(repr, searches)))


def test_a_wrong_matrix_took_the_square_of_the_layers(monkeypatch):
    """Each matrix of the RNN was tried transposed: 12 seconds for 320 layers, of 83 KB."""
    solve, counts = mismatch.guess_sizes, []
    for layers in (3, 30):
        tensors = {
            f"{k}/{name}": np.ones(shape, "f4")
            for k in range(layers)
            for name, shape in {"kernel": (1, 2), "recurrent_kernel": (2, 1), "bias": 2}.items()
        }
        guesses = []
        monkeypatch.setattr(
            mismatch, "guess_sizes", lambda *args, made=guesses: made.append(args) or solve(*args)
        )
        with pytest.raises(rl.LayoutError, match="0/recurrent_kernel: shape"):
            rl.infer_spec(tensors)
        counts.append(len(guesses))
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("layout", rl.layouts())
def test_further_layers_are_like_the_second(layout):
    """The shapes of an RNN of five layers, from the dimensions of two layers."""
    sizes = {"H": 11, "I": 13, "P": 3}
    for rnn in candidates.one_layer_candidates(Layout(layout)):
        deep = replace(rnn, num_layers=5)
        shapes = _native.tensors(deep.layout, deep.spec(sizes), deep.optional_tensors)
        if not candidates.is_one_vector(deep.layout):
            solved = candidates.Guess(deep, {}, sizes, [])
            assert [(name, solved.shape(name)) for name in deep.names] == shapes
            assert len({*deep.dimensions.values()}) <= len(rnn.two_layers.names)


def test_the_first_layer_of_a_stack_is_not_read_as_a_whole_rnn():
    first = {f"0/{name}": value for name, value in ARRAYS.items()}
    with pytest.raises(rl.LayoutError, match="missing '1/kernel', '1/recurrent_kernel'"):
        rl.infer_spec(first, reset="after")
    assert rl.infer_spec(first, prefix="0", reset="after").num_layers == 1


def test_two_names_of_one_tensor_were_one_tensor():
    """Names of Flax's tensors may have dots for slashes, but not in two of the same tensor."""
    spec = rl.Spec("lstm", 3, 4)
    tensors = {name: np.ones(shape, "f4") for name, shape in rl.describe(spec, "flax-nnx").items()}
    dotted = {name.replace("/", "."): value for name, value in tensors.items()}
    assert rl.infer_spec(dotted) == rl.infer_spec(tensors) == spec
    name = next(name for name in tensors if "/" in name)
    with pytest.raises(rl.LayoutError):
        rl.infer_spec(tensors | {name.replace("/", "."): np.zeros_like(tensors[name])})
