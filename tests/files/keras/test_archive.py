"""A .keras archive of Keras 2, converted as a whole.

tf_keras writes the archives. That Keras 3 computes the same from all kinds of models is tested with
the .h5 files.
"""

import io
import json
import zipfile

import keras
import pytest
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
def two(tmp_path_factory):
    """An archive of an LSTM, a GRU and a Dense."""
    return old.write("sequential", tmp_path_factory.mktemp("archives"))[0].with_suffix(".keras")


def arrays(path):
    """Return the form and the values of all variables by path."""
    file = io.BytesIO(members(path.read_bytes())[VARIABLES])
    return {name: form for name, (_, *form) in tree(file).items() if form}


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


def test_the_groups_of_keras_2_13(tmp_path, monkeypatch):
    """An attribute that names each layer twice was not skipped."""
    skipped = (saving_lib.ATTR_SKIPLIST - {"_layer_checkpoint_dependencies"}) | {"layers"}
    monkeypatch.setattr(saving_lib, "ATTR_SKIPLIST", skipped)
    model, _, twin = old.write("nested_in_sequential", tmp_path)
    source = model.with_suffix(".keras")
    assert any("_layer_checkpoint_dependencies/cu_dnngru" in name for name in arrays(source))
    assert [*rl.load(source)] == ["sequential/bidirectional", "sequential_1/cu_dnngru"]
    rl.convert_file(source, tmp_path / "new.keras", to="keras")
    x = old.inputs_of("nested_in_sequential", twin)
    computes(keras.models.load_model(tmp_path / "new.keras"), x, flat(twin(x)))


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
