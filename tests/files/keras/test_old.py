"""Files of old Keras: Keras 1 with one array per gate, CuDNN layers, configs with fewer keys.

tf_keras's own loader is the oracle: it converts such arrays for its own layers. Keras 1 cannot be
installed any more: the tests write its files as it wrote them, name by name.
"""

import h5py
import numpy as np
import pytest
import tf_keras
import torch
from files.keras import old_models as old
from files.keras.comparison import same_arrays
from oracles.frameworks import KERAS_NOISE, H, I, fill_keras, normal, seeded
from tf_keras.src.layers.rnn.cudnn_gru import CuDNNGRU
from tf_keras.src.layers.rnn.cudnn_lstm import CuDNNLSTM
from tf_keras.src.saving.legacy.hdf5_format import preprocess_weights_for_loading

import rnnlayout as rl
from rnnlayout._files.write_into import convert_into

pytestmark = KERAS_NOISE


def loaded_by_tf_keras(layer, arrays):
    layer.build((None, None, I))
    return preprocess_weights_for_loading(layer, list(arrays), "1")


@pytest.mark.parametrize("version", [None, "1.2.2"])
@pytest.mark.parametrize("suffix", ["", ":0"], ids=["theano", "tensorflow"])
def test_keras_1(tmp_path, version, suffix):
    rng, L = seeded("keras 1"), tf_keras.layers
    of = {  # the name of a layer: its class, the arrays in the file, and the same layer of Keras 2
        "a": ("LSTM", old.keras_1_arrays("LSTM", "a", rng), L.LSTM(H)),
        "b": ("GRU", old.keras_1_arrays("GRU", "b", rng), L.GRU(H, reset_after=False)),
        "c": ("LSTM", old.keras_1_arrays("LSTM", "c", rng, joined=True), L.LSTM(H)),
        "d": ("SimpleRNN", old.keras_1_arrays("SimpleRNN", "d", rng, joined=True), L.SimpleRNN(H)),
        "two": ("LSTM", old.keras_1_arrays("LSTM", "forward_lstm_1", rng)
                | old.keras_1_arrays("LSTM", "backward_lstm_1", rng), L.Bidirectional(L.LSTM(H))),
    }  # fmt: skip
    # a Sequential was the bare list of its layers
    config = [old.keras_1_layer(kind, name) for name, (kind, *_) in of.items()]
    both = {"name": "two", "merge_mode": "ave", "layer": config.pop(), "trainable": True}
    config.append({"class_name": "Bidirectional", "config": both})
    layers = {name: arrays for name, (_, arrays, _) in of.items()}
    old.write_arrays(tmp_path / "a.h5", layers, version,
                     {"class_name": "Sequential", "config": config}, suffix)  # fmt: skip
    found = rl.load(tmp_path / "a.h5")
    assert list(found) == list(of) and not found.refused
    for name, (kind, arrays, layer) in of.items():
        assert same_arrays(found[name], loaded_by_tf_keras(layer, arrays.values())), name
        assert found[name].spec.reset == ("before" if kind == "GRU" else "after")
        squash = "sigmoid" if kind == "SimpleRNN" else "hard_sigmoid_keras2"
        assert found[name].spec.recurrent_activation == squash
    assert found["two"].spec.bidirectional and found["two"].config == {"merge_mode": "ave"}
    with pytest.raises(rl.LayoutError, match=r"a: the file stores .*U_i.*: no place for kernel"):
        convert_into(found, tmp_path / "new.h5", into=tmp_path / "a.h5")
    assert not (tmp_path / "new.h5").exists()

    del layers["two"]
    old.write_arrays(tmp_path / "b.h5", layers, version, suffix=suffix)  # save_weights()
    alone = rl.load(tmp_path / "b.h5", cell="rnn_relu")
    assert list(alone) == ["d"] and list(alone.undecided) == ["a", "b", "c"]
    assert "hard_sigmoid was the default" in str(alone.undecided["a"])
    for name in alone.undecided:
        assert rl.load(tmp_path / "b.h5", found[name].spec, prefix=name)[name] == found[name]


DIFFER, NO_MATRICES = "a: the arrays of its gates differ in shape or dtype", "^a: the arrays of its"


@pytest.mark.parametrize("arrays, says", [
    ({"a_W_c": None}, r"a: its arrays are W_i, U_i.*: not an LSTM"),
    ({"a_W_c": np.zeros((I, H + 1), "f4")}, DIFFER),
    ({"a_W_c": np.zeros((I, H))}, DIFFER),
    ({f"a_W_{gate}": np.zeros((), "f4") for gate in "icfo"}, NO_MATRICES),
    ({f"a_W_{gate}": np.zeros((1, H, H), "f4") for gate in "icfo"}, NO_MATRICES),
], ids=["one less", "another shape", "another dtype", "numbers", "three axes"])  # fmt: skip
def test_keras_1_with_gates_that_do_not_fit(arrays, says, tmp_path):
    arrays = old.keras_1_arrays("LSTM", "a", seeded("keras 1", "wrong")) | arrays
    arrays = {name: array for name, array in arrays.items() if array is not None}
    old.write_arrays(tmp_path / "a.h5", {"a": arrays}, config=old.keras_1_model("a"))
    with pytest.raises(rl.LayoutError, match=says):
        rl.load(tmp_path / "a.h5")


# ---------------------------------------------------------------------------------------- Keras 2


def cudnn_model():
    x = tf_keras.Input((None, I))
    inner = tf_keras.Sequential([tf_keras.Input((None, I)), CuDNNGRU(H, name="deep")], name="inner")
    outputs = [
        CuDNNLSTM(H, name="one")(x),
        tf_keras.layers.Bidirectional(CuDNNLSTM(H), name="two")(x),
        CuDNNGRU(H, name="back", go_backwards=True)(x),
        inner(x),
    ]
    model = tf_keras.Model(x, outputs)
    layers = {layer.name: layer for layer in model.layers if layer.weights}
    layers["inner/deep"] = layers.pop("inner").layers[-1]
    fill_keras(layers.values(), seeded("cudnn"))
    return model, layers


def test_cudnn_layers(tmp_path):
    model, layers = cudnn_model()
    for name in ("a.h5", "a.keras"):
        model.save(tmp_path / name)
    model.save_weights(tmp_path / "w.h5", save_format="h5")
    model.save_weights(tmp_path / "w.weights.h5")
    for name in ("a.h5", "a.keras"):
        found = rl.load(tmp_path / name)
        assert set(found) == set(layers) and not found.refused
        for entry, layer in layers.items():
            assert found[entry].layout.name == "keras-cudnn"
            assert same_arrays(found[entry], layer.get_weights()), entry
        assert found["back"].config == {"go_backwards": True} and found["one"].config == {}
        done = rl.convert_file(tmp_path / name, tmp_path / f"new_{name}", to="keras")
        assert done.reports["two"] == rl.check(found["two"], to="keras")
    for name in ("w.h5", "w.weights.h5"):
        found = rl.load(tmp_path / name)
        assert len(found) == len(layers) and not found.refused
        assert ["go_backwards=False" in note for note in found.notes] == [True]  # "back" has it
        for entry, layer in layers.items():
            assert [same_arrays(w, layer.get_weights()) for w in found.values()].count(True) == 1, (
                entry
            )


def test_cudnn_weights_are_written_as_keras_2_takes_them(tmp_path):
    _, layers = cudnn_model()
    entries = {name: rl.Weights(layer) for name, layer in layers.items() if "/" not in name}
    rl.save(tmp_path / "a.h5", entries)
    x = tf_keras.Input((None, I))
    again = tf_keras.Model(x, [
        CuDNNLSTM(H)(x), tf_keras.layers.Bidirectional(CuDNNLSTM(H))(x), CuDNNGRU(H)(x),
    ])  # fmt: skip
    again.load_weights(tmp_path / "a.h5")
    ours = [array for w in entries.values() for array in w.values()]
    assert all(map(np.array_equal, again.get_weights(), ours))
    for name, weights in rl.load(tmp_path / "a.h5").items():
        assert same_arrays(weights, list(entries[name].values()))
    with pytest.raises(rl.LayoutError, match=r"convert with \.to\('keras-cudnn'\)"):
        rl.save(tmp_path / "b.h5", entries | {"mixed": entries["one"].to("keras")})


@pytest.mark.parametrize("version, config, reset, squash", [
    ("2.1.5", {}, "before", "hard_sigmoid_keras2"),  # reset_after did not exist yet
    ("2.1.6-tf", {"reset_after": True}, "after", "hard_sigmoid_keras2"),
    ("3.0.0", {"reset_after": False}, "before", "hard_sigmoid"),
])  # fmt: skip
def test_what_the_version_decides(tmp_path, version, config, reset, squash):
    arrays = {
        "g/kernel": np.ones((I, 3 * H), "f4"),
        "g/recurrent_kernel": np.ones((H, 3 * H), "f4"),
    }
    gru = {"name": "g", "units": H, "activation": "tanh", "use_bias": False,
           "recurrent_activation": "hard_sigmoid", **config}  # fmt: skip
    model = {
        "class_name": "Sequential",
        "config": {"layers": [{"class_name": "GRU", "config": gru}]},
    }
    old.write_arrays(tmp_path / "a.h5", {"g": arrays}, version, model)
    spec = rl.load(tmp_path / "a.h5")["g"].spec
    assert (spec.reset, spec.recurrent_activation) == (reset, squash)


def test_lists_that_keras_splits(tmp_path):
    """Attributes have at most 64 KiB: Keras splits longer lists into numbered parts. So do we."""
    format = tf_keras.src.saving.legacy.hdf5_format
    tensors = {name: normal(seeded(name), *shape) for name, shape in
               rl.describe(rl.Spec("lstm", I, H), "keras").items()}  # fmt: skip
    names = [f"layer_{'x' * 2000}_{k}" for k in range(35)]
    rl.save(tmp_path / "a.h5", dict.fromkeys(names, rl.Weights(tensors, layout="keras")))
    assert list(rl.load(tmp_path / "a.h5")) == names
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        group = file["model_weights"]
        theirs = format.load_attributes_from_hdf5_group(group, "layer_names")
        assert [name for name in theirs if not name.endswith("_input")] == names
        parts = [name for name in group.attrs if name.startswith("layer_names")]
        assert len(parts) > 1
        for name in parts:
            del group.attrs[name]
        format.save_attributes_to_hdf5_group(group, "layer_names", [x.encode() for x in theirs])
    assert list(rl.load(tmp_path / "a.h5")) == names


def test_an_hdf5_file_with_the_names_of_torch_had_no_rnn(tmp_path):
    """h5py writes a state_dict flat or in groups."""
    arrays = {name: a.numpy() for name, a in torch.nn.GRU(5, 3).state_dict().items()}
    for path, separator in (("a.h5", "."), ("b.hdf5", "/")):
        with h5py.File(tmp_path / path, "w") as file:
            for name, array in arrays.items():
                file[f"enc{separator}{name}"] = array
            file["step"] = 3
        assert dict(rl.load(tmp_path / path)) == {"enc": rl.Weights(arrays)}
    rl.convert_file(tmp_path / "a.h5", tmp_path / "n.keras", to="keras")
    assert (rl.pack(rl.load(tmp_path / "n.keras")) == rl.pack(rl.convert(arrays, to="keras"))).all()
    with pytest.raises(rl.FileError, match="write the RNNs to another format"):
        rl.convert_file(tmp_path / "a.h5", tmp_path / "n.h5", to="keras")
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["enc.norm"] = np.ones(3)
    with pytest.raises(rl.UndecidedError, match=r"further tensors .*'enc\.norm'"):
        rl.load(tmp_path / "a.h5")["enc"]
