"""Which weights compensate for Keras 2's hard_sigmoid, which is another function in Keras 3.

That Keras 3 then computes the same shows test_model.py.
"""

import h5py
import numpy as np
import pytest
import tf_keras
from files.keras import old_models as old
from files.keras.comparison import changed, layer_of, refused, tree
from oracles.frameworks import KERAS_NOISE

import rnnlayout as rl

pytestmark = [KERAS_NOISE, pytest.mark.filterwarnings("ignore::UserWarning:keras")]

# Keras's documentation of get_weights(): i f c o, and z r h, of which c and h are for tanh.
SCALED = {"lstm": [True, True, False, True], "gru": [True, True, False]}


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """A model's file: Keras 2's LSTM and GRU with it, an LSTM without it, and cuDNN layers."""
    folder = tmp_path_factory.mktemp("hard_sigmoid")
    return old.write_model(*old.HARD_MODELS["hard_beside_cudnn"], folder)[0]


def arrays(path, layer):
    with h5py.File(path) as file:
        group = file["model_weights"][layer]
        return {name.split("/")[-1]: group[name][()] for name in group.attrs["weight_names"]}


def by_gate(array, cell):
    gates = len(SCALED[cell])
    return array.reshape(*array.shape[:-1], gates, array.shape[-1] // gates)


@pytest.mark.parametrize("dtype", [None, "float16", "float64"])
def test_the_gates_are_multiplied_and_nothing_else(beside, tmp_path, dtype):
    done = rl.convert_file(beside, tmp_path / "new.h5", to="keras", dtype=dtype)
    for layer, cell in {"lstm": "lstm", "gru": "gru", "gru_1": "gru"}.items():
        before, after = arrays(beside, layer), arrays(tmp_path / "new.h5", layer)
        assert before.keys() == after.keys() and len(before) == (2 if layer == "gru_1" else 3)
        count = 0
        for name, array in before.items():
            wanted = by_gate(array.astype("f8"), cell)
            wanted[..., SCALED[cell], :] *= 1.2
            count += np.count_nonzero(wanted[..., SCALED[cell], :])
            got = by_gate(after[name], cell)
            assert got.dtype == (dtype or "float32")
            assert np.array_equal(got, wanted.astype(got.dtype))
        reason = f"{count} weights times 1.2, for Keras 3's hard_sigmoid"
        change = {"float16": " and float32 to float16", "float64": " and float32 to float64"}
        assert done.reports[layer] == rl.Report("rounds", 0, reason + change.get(dtype, ""))
    assert list(done.reports) == ["lstm", "cu_dnnlstm", "gru", "gru_1", "cu_dnngru"]
    assert not done.left_out
    before, after = tree(beside), tree(tmp_path / "new.h5")
    assert before.keys() == after.keys()
    changed = [name for name in before if name and before[name] != after[name]]
    assert {name.split("/")[1] for name in changed} == done.reports.keys()


def one_layer(path, kind="LSTM", fill=0.25):
    """A file of one layer with hard_sigmoid."""
    layer = getattr(old.HARD, kind)(4, name="rnn")
    model = tf_keras.Sequential([old.Input((None, 3)), layer, old.Dense(2, name="dense")])
    for weight in layer.weights:
        weight.assign(np.full(weight.shape, fill))
    model.save(path)
    return path


def test_an_early_config_that_does_not_say(tmp_path):
    """hard_sigmoid was the default before Keras 2.3, and sigmoid since then."""
    source = changed(one_layer(tmp_path / "old.h5"), tmp_path,
                     lambda c: layer_of(c, 1)["config"].pop("recurrent_activation"))  # fmt: skip
    for version, changes in (("2.2.4", ["rnn"]), ("2.3.0", [])):
        old.reword(source, lambda config: config, version)
        done = rl.convert_file(source, tmp_path / "new.h5", to="keras", force=True)
        assert list(done.reports) == changes


# ----------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_exact_refuses(tmp_path, kind, limited):
    count = {"LSTM": 3 * 4 * (3 + 4 + 1), "GRU": 2 * 4 * (3 + 4 + 2)}[kind]
    refused(limited, one_layer(tmp_path / "old.h5", kind), rl.LossyError,
            f"'rnn' has the hard_sigmoid of Keras 2.* {count} w", exact=True)  # fmt: skip
    done = rl.convert_file(
        one_layer(tmp_path / "zero.h5", kind, 0), tmp_path / "new.h5", to="keras", exact=True
    )
    assert done.reports["rnn"] == rl.Report("exact")


def test_too_large(tmp_path, limited):
    for dtype, fill in (("float32", 3e38), ("float64", 1.7e308)):
        tf_keras.backend.set_floatx(dtype)
        try:
            source = one_layer(tmp_path / "old.h5", fill=fill)
        finally:
            tf_keras.backend.set_floatx("float32")
        refused(limited, source, rl.LossyError, r"a weight of 'rnn' is infinite, times 1\.2")


def test_a_config_of_more_layers_than_there_are_weights(tmp_path, limited):
    hard = {"name": "dense", "units": 2, "recurrent_activation": "hard_sigmoid"}
    source = changed(one_layer(tmp_path / "old.h5"), tmp_path,
                     lambda c: layer_of(c, 2).update(class_name="LSTM", config=hard))  # fmt: skip
    refused(limited, source, rl.FileError,
            "'dense': the file has weights of 0 cells, its config has 1 cells")  # fmt: skip
