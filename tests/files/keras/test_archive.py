"""A .keras archive of Keras 2, converted as a whole.

tf_keras writes the archives. That Keras 3 computes the same from all kinds of models is tested with
the .h5 files.
"""

import io
import json
import zipfile

import keras
import numpy as np
import pytest
import tf_keras
from files.hostile.good import archive, members
from files.hostile.hdf5 import edited
from files.keras import old_models as old
from files.keras.comparison import changed, computes, flat, refused, tree
from oracles.frameworks import KERAS_NOISE
from tf_keras.src.saving import saving_lib

import rnnlayout as rl

pytestmark = [KERAS_NOISE, pytest.mark.filterwarnings("ignore::UserWarning:keras")]

VARIABLES = "model.weights.h5"
PARTS = {"config.json", "metadata.json", VARIABLES}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("archives")


@pytest.fixture(scope="module")
def two(folder):
    """An archive of an LSTM, a GRU and a Dense."""
    return old.write("sequential", folder)[0].with_suffix(".keras")


def arrays(path):
    """Return the form and the values of all variables by path."""
    file = io.BytesIO(members(path.read_bytes())[VARIABLES])
    return {name: form for name, (_, *form) in tree(file).items() if form}


def same(a, b):
    return a.dtype == b.dtype and np.array_equal(a, b)


def test_all_else_stays(two, tmp_path):
    source = tmp_path / "old.keras"
    parts = {"assets/words.txt": b"a\nb\n", **members(two.read_bytes()), "last": b""}
    with zipfile.ZipFile(source, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            how = zipfile.ZIP_STORED if name == VARIABLES else None
            file.writestr(zipfile.ZipInfo(name, (2019, 1, 2, 3, 4, 6)), content, how)
    rl.convert_file(source, tmp_path / "new.keras", to="keras")
    with zipfile.ZipFile(source) as a, zipfile.ZipFile(tmp_path / "new.keras") as b:
        for before, after in zip(a.infolist(), b.infolist(), strict=True):
            for key in ("filename", "date_time", "compress_type", "external_attr"):
                assert getattr(before, key) == getattr(after, key)
    after = members((tmp_path / "new.keras").read_bytes())
    assert {name for name in parts if parts[name] != after[name]} == PARTS
    a, b = (json.loads(p["metadata.json"]) for p in (parts, after))
    assert a | {"keras_version": "3.0.0"} == b and a["date_saved"]
    a, b = arrays(source), arrays(tmp_path / "new.keras")
    moved = {f"layers/cu_dnn{x}/vars/{k}": f"layers/{x}/cell/vars/{k}"
             for x in ("lstm", "gru") for k in range(3)}  # fmt: skip
    assert list(moved) == [name for name in moved if name in a]
    assert {moved.get(name, name) for name in a} == b.keys()
    assert any(name.startswith("optimizer/") for name in a)
    assert all(a[name] == b[name] for name in a.keys() - moved.keys())
    a, b = (json.loads(p["config.json"]) for p in (parts, after))
    assert a["compile_config"] == b["compile_config_of_keras_2"] and "compile_config" not in b


def test_without_a_compile_config(two, tmp_path):
    source = changed(two, tmp_path, lambda c: c.update(compile_config=None))
    assert not rl.convert_file(source, tmp_path / "new.keras", to="keras").notes


def test_both_kinds_of_layer_are_counted_together(tmp_path):
    """Both then have the class LSTM, and a group is named by its class and its number."""
    x = old.Input((old.T, old.IN))
    make = [old.layers.LSTM, old.CuDNNLSTM, old.CuDNNLSTM, old.layers.LSTM]
    y = x
    for kind in make:
        y = kind(4, return_sequences=True)(y)
    model = tf_keras.Model(x, y)
    rng = np.random.default_rng(5)
    model.set_weights([rng.uniform(-0.4, 0.4, w.shape) for w in model.get_weights()])
    model.save(tmp_path / "old.keras")
    model.save(tmp_path / "old.h5")
    for suffix in ("keras", "h5"):
        rl.convert_file(tmp_path / f"old.{suffix}", tmp_path / f"new.{suffix}", to="keras")
    ours, theirs = (keras.models.load_model(tmp_path / f"new.{s}") for s in ("keras", "h5"))
    assert len(ours.get_weights()) == 3 * len(make)
    assert all(map(same, ours.get_weights(), theirs.get_weights()))
    assert arrays(tmp_path / "new.keras").keys() == {
        f"layers/lstm{n}/cell/vars/{k}" for n in ("", "_1", "_2", "_3") for k in range(3)
    }


def test_the_groups_of_keras_2_13(folder, tmp_path, monkeypatch):
    """An attribute that names each layer twice was not skipped."""
    skipped = (saving_lib.ATTR_SKIPLIST - {"_layer_checkpoint_dependencies"}) | {"layers"}
    monkeypatch.setattr(saving_lib, "ATTR_SKIPLIST", skipped)
    (folder / "2.13").mkdir()
    model, _, twin = old.write("nested", folder / "2.13")
    source = model.with_suffix(".keras")
    assert any("_layer_checkpoint_dependencies/cu_dnngru" in name for name in arrays(source))
    assert set(rl.load(source)) == {"middle/cu_dnngru", "inner/cu_dnnlstm"}
    rl.convert_file(source, tmp_path / "new.keras", to="keras")
    x = old.inputs_of("nested", twin)
    computes(keras.models.load_model(tmp_path / "new.keras"), x, flat(twin(x)))


def test_an_archive_without_such_layers(tmp_path):
    """Keras 3 cannot read the config of an archive with an LSTM, either."""
    twin = old.sequential(old.PLAIN)
    twin.save(tmp_path / "old.keras")
    with pytest.raises(ValueError, match="time_major"):
        keras.models.load_model(tmp_path / "old.keras")
    done = rl.convert_file(tmp_path / "old.keras", tmp_path / "new.keras", to="keras")
    assert not done.reports
    assert arrays(tmp_path / "old.keras").keys() == arrays(tmp_path / "new.keras").keys()
    model = keras.models.load_model(tmp_path / "new.keras")
    assert all(map(same, model.get_weights(), twin.get_weights()))


# ------------------------------------------------------------------------------------------ refused


def test_a_name_that_is_taken(two, tmp_path):
    parts, source = members(two.read_bytes()), tmp_path / "old.keras"
    parts[VARIABLES] = edited(parts[VARIABLES], source, lambda f: f.create_group("layers/lstm"))
    source.write_bytes(archive(parts))
    refused(source, rl.FileError, r"model\.weights\.h5")


def test_another_member_of_ill_will(two, tmp_path):
    """The limits of the archive also hold for a member that is only copied."""
    source = tmp_path / "old.keras"
    source.write_bytes(two.read_bytes())
    with zipfile.ZipFile(source, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("assets/zeros", bytes(200 << 20))
    refused(source, rl.FileError, "bomb")
