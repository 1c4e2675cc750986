"""Which tensors of a file are RNNs, decided only by names and shapes."""

import numpy as np
import pytest
from oracles import some

import rnnlayout as rl

GRU = {"weight_ih_l0": (12, 5), "weight_hh_l0": (12, 4), "bias_ih_l0": (12,), "bias_hh_l0": (12,)}
CELL = {name.removesuffix("_l0"): shape for name, shape in GRU.items()}
LSTM = {"weight_ih_l0": (12, 5), "weight_hh_l0": (12, 3), "bias_ih_l0": (12,), "bias_hh_l0": (12,)}
KERAS = {"kernel": (5, 12), "recurrent_kernel": (4, 12), "bias": (2, 12)}
ONNX = {"W": (1, 12, 5), "R": (1, 12, 4), "B": (1, 24)}


def file_of(folder, *parts):
    """Write an .npz with tensors of these names and shapes; np.savez allows any name."""
    rng = np.random.default_rng(0)
    shapes = {name: shape for part in parts for name, shape in part.items()}
    np.savez(folder / "a.npz", **{n: rng.normal(size=s).astype("f4") for n, s in shapes.items()})
    return folder / "a.npz"


def under(prefix, shapes):
    return {prefix + name: shape for name, shape in shapes.items()}


@pytest.mark.parametrize("prefix, shapes, entry, layout", [
    ("", GRU, "gru", "torch"),
    ("encoder.rnn.", GRU, "encoder.rnn", "torch"),
    ("net.cells.0.", CELL, "net.cells.0", "torch-cell"),
    ("gru_1/gru_cell/", KERAS, "gru_1", "keras"),
    ("model/gru_1/gru_cell_3/", KERAS, "model/gru_1", "keras"),
    ("a.", KERAS, "a", "keras"),
    ("a/b.", ONNX, "a/b", "onnx"),
    ("", ONNX, "gru", "onnx"),
])  # fmt: skip
def test_an_rnn_is_found_by_its_names(prefix, shapes, entry, layout, tmp_path):
    ((name, found),) = rl.load(file_of(tmp_path, under(prefix, shapes)), reset="after").items()
    assert (name, found.spec.cell, found.layout.name) == (entry, "gru", layout)


def test_what_only_looks_a_little_like_an_rnn_is_none(tmp_path):
    others = [
        {"dense/kernel": (5, 3), "dense/bias": (3,)},
        {"attention.W_q": (4, 4), "attention.W_o": (4, 4), "attention.b_o": (4,)},
        {"R": (3, 3)},
        {"scale.W": (3, 3), "scale.B": (3,)},
        {"other.weight_ih_l0_mask": (12, 5), "other.dropout": (3,)},
    ]
    found = rl.load(file_of(tmp_path, *others, under("lstm.", LSTM)))
    assert list(found) == ["lstm"] and not found.refused
    assert set(found.others) == {name for part in others for name in part}
    largest = (
        r"no recurrent layer found; its tensors, 'other.weight_ih_l0_mask' \(12, 5\), .* and 5"
    )
    with pytest.raises(rl.FileError, match=largest):
        rl.load(file_of(tmp_path, *others))


def test_layers_of_a_list_stay_apart_unless_stacked(tmp_path):
    second = {"weight_ih": (12, 4), **{n: s for n, s in CELL.items() if n != "weight_ih"}}
    parts = [under("cells.0.", CELL), under("cells.1.", second)]
    found = rl.load(file_of(tmp_path, *parts))
    assert list(found) == ["cells.0", "cells.1"]
    assert rl.stack(found.values()).spec.num_layers == 2
    ours = [under("0/", CELL), under("1/", second)]
    assert rl.load(file_of(tmp_path, *ours))["gru"].spec.num_layers == 2


def test_names_cut_short_are_those_of_a_torch_cell(tmp_path):
    short = {f"enc_{n.replace('weight', 'w').replace('bias', 'b')}": s for n, s in CELL.items()}
    path = file_of(tmp_path, short, {"enc_emb": (29, 5)})
    found = rl.load(path)
    assert found["enc"].layout.name == "torch-cell" and found.others == ("enc_emb",)
    assert "enc_w_ih, enc_w_hh, enc_b_ih, enc_b_hh taken as weight_ih" in found.notes[0]
    rl.convert_file(path, tmp_path / "b.npz", to="torch", prefix="enc")
    with np.load(tmp_path / "b.npz") as new, np.load(path) as old:
        assert new["enc.weight_hh_l0"].tobytes() == old["enc_w_hh"].tobytes()


def test_arrays_of_other_orders_are_read(tmp_path):
    spec = rl.Spec("lstm", 5, 3)
    tensors = some.normal_weights(rl.layout("torch"), spec)
    odd = {n: np.asfortranarray(a.astype(">f4")) for n, a in tensors.items()}
    np.savez_compressed(tmp_path / "a.npz", **odd)
    assert some.same_bits(dict(rl.load(tmp_path / "a.npz")["lstm"]), tensors)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("layout", [name for name in rl.layouts() if name != "cudnn"])
def test_all_layers_of_every_layout_are_found(layout, both, tmp_path):
    """Layers 1 and above of tensorrt were left out: their names were not known."""
    info = rl.layouts()[layout]
    reset = "before" if info["resets"] == ["before"] else "after"
    for cell in info["cells"]:
        spec = rl.Spec(cell, 5, 7, 3, both, reset=reset if cell == "gru" else "after")
        tensors = some.normal_weights(rl.layout(layout), spec)
        np.savez(tmp_path / "a.npz", **tensors)  # which keeps no record of the RNN
        (found,) = rl.load(tmp_path / "a.npz", spec, layout=layout).values()
        assert found.spec == spec


def test_one_rnn_is_found_once(tmp_path):
    """Tensors of Equinox, which Core ML names too, were two RNNs."""
    names = {"weight_ih": (12, 5), "weight_hh": (12, 3), "bias": (12,)}
    both = under("e.0/forward/", names) | under("e.0/backward/", names)
    assert list(rl.load(file_of(tmp_path, both))) == ["e"]


@pytest.mark.parametrize("side", ["forward", "backward"])
def test_one_direction_alone(side, tmp_path):
    """It was an RNN that runs forward, without a word."""
    other = {"forward": "backward", "backward": "forward"}[side]
    stack = file_of(tmp_path, under("a.", LSTM), under(f"e.0/{side}/", KERAS))
    assert f"missing '0/{other}/" in str(rl.load(stack).refused["e"])
    found = rl.load(file_of(tmp_path, under(f"both/{side}_gru/gru_cell/", KERAS)))
    assert list(found) == ["both"] and any(f"the {side} direction" in n for n in found.notes)
    pair = [under(f"both/{one}_gru/gru_cell/", KERAS) for one in (side, other)]
    found = rl.load(file_of(tmp_path, *pair))
    assert found["both"].spec.bidirectional and not any("direction" in n for n in found.notes)


def test_a_vector_of_any_name_under_a_prefix(tmp_path):
    vector = {"v": (rl.Spec("gru", 5, 4).num_params,)}
    path = file_of(tmp_path, under("enc.rnn.", vector), {"head": (3,)})
    options = {"spec": rl.Spec("gru", 5, 4), "layout": "cudnn", "prefix": "enc.rnn"}
    assert list(rl.load(path, **options)) == ["enc.rnn"]
