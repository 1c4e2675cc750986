"""The names of RNNs in a file: no two are the same, so none is lost or written as another; and
prefix=, what is under it and what is not."""

import json
import re

import numpy as np
import pytest
import safetensors.numpy
from files.formats import LAYOUTS
from hypothesis import strategies as st
from marks import examples
from oracles import some

import rnnlayout as rl
from rnnlayout._cli import main as _cli

TORCH = rl.Spec("lstm", 5, 3)
KERAS = rl.Spec("gru", 4, 2)
SUFFIXES = [suffix for suffix in LAYOUTS if suffix != ".npy"]  # which load() reads with a spec


def tensors_of(layout, spec, seed, prefix):
    given = some.normal_weights(rl.layout(layout), spec, seed)
    return {prefix + name: array for name, array in given.items()}


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".pt"])
def test_numbers_do_not_make_names_equal(suffix, tmp_path):
    """Of three RNNs two are called lstm, and the third lstm_2; each is converted under its name."""
    three = {
        "lstm": ("lstm.", "torch", TORCH),
        "lstm_3": ("lstm/lstm_cell/", "keras", KERAS),
        "lstm_2": ("lstm_2.", "torch", TORCH),
    }
    path, new, tensors, wanted = tmp_path / "a.safetensors", tmp_path / f"new{suffix}", {}, {}
    for k, (name, (prefix, layout, spec)) in enumerate(three.items()):
        tensors |= tensors_of(layout, spec, k, prefix)
        wanted[name] = rl.Weights(tensors_of(layout, spec, k, ""))
    safetensors.numpy.save_file(tensors, path)
    assert dict(rl.load(path)) == wanted
    rl.convert_file(path, new, to="cudnn")
    assert dict(rl.load(new)) == {name: weights.to("cudnn") for name, weights in wanted.items()}


def test_a_recorded_name_stays(tmp_path):
    """Of two RNNs of one name, the one that rnnlayout has written keeps it, wherever it is."""
    path = tmp_path / "a.safetensors"
    rl.save(path, {"enc": rl.Weights(tensors_of("keras", KERAS, 1, ""))})
    with safetensors.safe_open(path, "numpy") as file:
        metadata = file.metadata()
    recorded = {name: array.copy() for name, array in safetensors.numpy.load_file(path).items()}
    other = tensors_of("torch", TORCH, 2, "enc.")
    safetensors.numpy.save_file({**other, **recorded}, path, metadata)
    cells = {name: weights.spec.cell for name, weights in rl.load(path).items()}
    assert cells == {"enc": "gru", "enc_2": "lstm"}


REFUSED = [  # a format, the names of RNNs, what the error says
    # names that are equal in C, also those of macros, which are in upper case
    *((".h", names, "same name in C|both be named")
      for names in [("lstm", "LSTM"), ("a", "a_find"), ("a.b", "a_b"), ("", "lstm")]),
    (".keras", ("lstm", "lstm_input"), "both be named 'lstm_input'"),  # the model's input
    *((suffix, (name,), "not text") for suffix in LAYOUTS for name in ("a\0b", "\ud800")),
]  # fmt: skip


@pytest.mark.parametrize("suffix, names, says", REFUSED, ids=ascii)
def test_names_that_a_format_cannot_store(suffix, names, says, tmp_path):
    weights = rl.Weights(some.normal_weights(rl.layout("keras"), TORCH))
    weights = weights.to(LAYOUTS.get(suffix, ["cudnn"])[0])
    with pytest.raises(rl.LayoutError, match=says):
        rl.save(tmp_path / f"a{suffix}", dict.fromkeys(names, weights))
    assert not list(tmp_path.iterdir())


def test_a_name_that_a_zip_archive_would_cut(tmp_path):
    path = tmp_path / "a.safetensors"
    tensors = {**tensors_of("torch", TORCH, 1, "a."), "x\0y": np.ones(2, "f4")}
    safetensors.numpy.save_file(tensors, path)
    with pytest.raises(rl.FileError, match="cannot store this name"):
        rl.convert_file(path, tmp_path / "new.npz", to="keras")


# ------------------------------------------------------------------------------------- prefix=

SIMILAR = ("LSTM_1_forward", "LSTM_1_backward", "LSTM_10", "LSTM_1_forwards", "LSTM")


@pytest.fixture(params=["npz", "onnx", "keras", "h5", "weights.h5"])
def path(request, tmp_path):
    """A file with RNNs of similar names, in every kind of file."""
    path = tmp_path / f"m.{request.param}"
    layout = {"npz": "torch", "onnx": "onnx"}.get(request.param, "keras")
    weights = rl.Weights(some.normal_weights(rl.layout("keras"), TORCH)).to(layout)
    rl.save(path, dict.fromkeys(SIMILAR, weights))
    return path


def test_a_prefix_has_both_directions_and_no_other_rnn(path, tmp_path, capsys):
    assert sorted(rl.load(path, prefix="LSTM_1")) == ["LSTM_1_backward", "LSTM_1_forward"]
    for name in SIMILAR:
        assert list(rl.load(path, prefix=name)) == [name]
    with pytest.raises(rl.FileError, match="did you mean 'LSTM_10'"):
        rl.load(path, prefix="LSTM_100")
    # the tensors of the other RNNs are not among those without an RNN
    assert _cli.main(["inspect", str(path), "--prefix", "LSTM_10", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["files"]
    assert [one["name"] for one in told["entries"]] == ["LSTM_10"] and told["others"] == []
    # a conversion names the RNNs that it leaves out, and not their tensors
    for k, choice in enumerate(({"prefix": "LSTM_10"}, {"only": ["LSTM_10"]})):
        done = rl.convert_file(path, tmp_path / f"{k}.bin", to="cudnn", **choice)
        assert list(done.reports) == ["LSTM_10"]
        assert sorted(done.left_out) == sorted({*SIMILAR} - {"LSTM_10"})


# ---------------------------------------------------------------- every format, names that collide

NAMES = ["", "lstm", "lstm_2", "lstm_3", "gru", "lstm.", "lstm/", "lstm_0", "lstm/0", "lstm.0",
         "lstm_input", "LSTM", "lstm.lstm", "lstm/lstm_cell", "0", "a b", "module", "_orig_mod",
         "lstm_regions", "lstm_find", "layers", "vars", "X", "weight_space"]  # fmt: skip


@st.composite
def entries(draw, suffix):
    """Draw a few RNNs with names that are alike, in one layout or in several."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    layouts = LAYOUTS[suffix]
    if suffix == ".h5":  # a file of one or of the other
        layouts = [draw(st.sampled_from(layouts))]
    result = {}
    for k, name in enumerate(names):
        layout = draw(st.sampled_from(layouts))
        cell = draw(st.sampled_from(["lstm", "gru"]))
        layers = 1 if layout == "torch-cell" else draw(st.sampled_from([1, 1, 2]))
        spec = rl.Spec(cell, 3, 2, layers)
        result[name] = rl.Weights(some.normal_weights(rl.layout(layout), spec, k), spec, layout)
    return result


def entries_of(name, weights, suffix):
    """Return what load() makes of an entry, by name: in Keras's files each layer is one."""
    name = name or weights.spec.cell
    if suffix not in (".keras", ".h5", ".weights.h5"):
        return {name: weights}
    name = re.sub("[/.]", "_", name)
    layers = weights.split()
    return {name if len(layers) == 1 else f"{name}_{k}": one for k, one in enumerate(layers)}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_all_entries_come_back_or_save_refuses(suffix, tmp_path):
    path = tmp_path / f"a{suffix}"

    @examples(30, saved=entries(suffix))
    def check(saved):
        path.unlink(missing_ok=True)
        try:
            rl.save(path, saved)
        except (rl.LayoutError, rl.FileError) as error:
            # FileError: in a tree of dicts, "" may have an array where another name needs a dict
            assert len(saved) > 1 and not path.exists()
            assert isinstance(error, rl.LayoutError) or "rename one" in str(error)
            return
        found = rl.load(path)
        expected = {}
        for name, weights in saved.items():
            expected |= entries_of(name, weights, suffix)
        assert not found.refused and found.keys() == expected.keys()
        for name, weights in expected.items():
            assert found[name].spec == weights.spec
            assert some.same_bits(dict(found[name]), dict(weights))

    check()


def test_options_of_a_layout_that_the_caller_leaves_out_are_those_of_the_file(tmp_path):
    stored = rl.layout("concat", inputs="xh", z="state")
    shapes = rl.describe(rl.Spec("lstm", 5, 3), stored)
    arrays = {name: np.random.default_rng(0).random(shape, "f4") for name, shape in shapes.items()}
    rl.save(tmp_path / "w.npz", rl.Weights(arrays, layout=stored))
    weights = rl.load(tmp_path / "w.npz")
    assert rl.load(tmp_path / "w.npz", layout="concat") == weights
    for other in (rl.layout("concat", inputs="hx"), "tf1"):
        with pytest.raises(rl.LayoutError, match="the file has it in layout concat"):
            rl.load(tmp_path / "w.npz", layout=other)
