"""Files that belong to another file are opened by one rule, whatever the format: a bare name, in
the folder of the named file or in the folder of the file that the named file is a link to."""

import json
import os
import shutil

import onnx
import pytest
from files.hostile.good import (
    LAYOUTS,
    PARTS,
    allowed,
    beside,
    good,
    in_another_file,
    index_of,
    parts_suffix,
    tfjs_model,
)

import rnnlayout as rl
from rnnlayout._files.tensor_sets.file_limits import InputFile, _is_bare

WITH_COMPANIONS = [".data.onnx", ".index", ".pb", ".bin", *PARTS]


@pytest.fixture(params=WITH_COMPANIONS)
def model(request, tmp_path):
    """A file in a folder of its own, with all its companions."""
    path = tmp_path / "model" / f"saved_model{request.param}"
    path.parent.mkdir()
    path.write_bytes(good(request.param))
    beside(path)
    return path


def companions(path):
    """Return the companions that exist."""
    return [one for one in allowed(path) if one != path and one.is_file()]


def tensors(path):
    (found,) = rl.load(path).values()
    return {name: array.tobytes() for name, array in found.items()}


def test_all_companions_are_listed(model):
    assert sorted(rl.load(model).files) == sorted(companions(model))
    assert len(companions(model)) == (2 if model.suffix == ".pb" or parts_suffix(model) else 1)


@pytest.mark.parametrize("relative", [False, True])
def test_a_cache_of_links_is_read(model, relative, tmp_path, monkeypatch):
    """As Hugging Face's: every file is a link into a folder of blobs. ONNX's data were refused."""
    before, blobs = tensors(model), tmp_path / "blobs"
    blobs.mkdir()
    for k, path in enumerate([model, *companions(model)]):
        path.rename(blobs / f"{k}")
        path.symlink_to(os.path.relpath(blobs / f"{k}", path.parent))
    monkeypatch.chdir(tmp_path)
    path = model.relative_to(tmp_path) if relative else model
    assert tensors(path) == before
    monkeypatch.chdir(model.parent)
    assert tensors(model.name) == before


def test_a_folder_that_is_a_link_is_read(model, tmp_path):
    before = tensors(model)
    (tmp_path / "link").symlink_to(model.parent)
    assert tensors(tmp_path / "link" / model.name) == before


def test_a_link_out_of_the_folder_is_refused(model, tmp_path):
    """TensorFlow's index followed it, alone and in a SavedModel. The repair works."""
    before = tensors(model)
    for path in companions(model):
        secret = path.rename(tmp_path / "secret")
        path.symlink_to(secret)
        with pytest.raises(rl.FileError, match=f"{path.name}' is a link out of.*by a copy"):
            rl.load(model)
        path.unlink()
        shutil.copy(secret, path)
        assert tensors(model) == before


def test_a_folder_of_companions_that_is_a_link_is_refused(tmp_path):
    """variables/ of a SavedModel."""
    path = tmp_path / "model" / "saved_model.pb"
    path.parent.mkdir()
    path.write_bytes(good(".pb"))
    beside(path)
    (path.parent / "variables").rename(tmp_path / "elsewhere")
    (path.parent / "variables").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(rl.FileError, match="is a link out of"):
        rl.load(path)


def test_a_file_of_several_hard_links_is_read(model, tmp_path):
    """None of its names is the first. Servers share files so."""
    before = tensors(model)
    for k, path in enumerate([model, *companions(model)]):
        os.link(path, tmp_path / f"{k}")
    assert tensors(model) == before


def test_a_companion_that_is_not_a_file(model):
    path = companions(model)[-1]
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(rl.Error, match=r"is not a regular file|does not record which RNN"):
        rl.load(model)


# What may not be the name of a companion, in any system.
NAMES = ["C:onnx.data", "onnx.data::$DATA", "\\onnx.data", "a\\b", "a/b", "../onnx.data", "..", ".",
         ".hidden", "/etc/passwd", "", "a\0b"]  # fmt: skip


def named_by_onnx(path, name):
    model = in_another_file(onnx.ModelProto.FromString(good(".onnx")))
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            entry.value = name if entry.key == "location" else entry.value
    path.write_bytes(model.SerializeToString())
    return path


def named_by_index(path, name):
    index = index_of(parts_suffix(path))
    index["weight_map"] |= {"more": name}
    path.write_text(json.dumps(index))
    return path


def named_by_manifest(path, name):
    model = tfjs_model()
    model["weightsManifest"][0]["paths"] = [name]
    path.write_text(json.dumps(model))
    return path


NAMED = {".onnx": named_by_onnx, **dict.fromkeys(PARTS, named_by_index),
         ".tfjs.json": named_by_manifest}  # fmt: skip


@pytest.mark.parametrize("suffix", NAMED)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_may_lead_elsewhere_is_not_opened(suffix, name, tmp_path):
    """A name with a colon was opened: in Windows it is in another folder, or a stream."""
    path = NAMED[suffix](tmp_path / f"model{suffix}", name)
    beside(path)
    try:
        (tmp_path / name).write_bytes(allowed(path)[-1].read_bytes())
    except (OSError, ValueError):
        assert name not in NAMES[:4]
    with pytest.raises(rl.FileError, match="is not opened: need the name of another regular"):
        rl.load(path)


@pytest.mark.parametrize("suffix", NAMED)
def test_a_file_that_names_itself(suffix, tmp_path):
    path = NAMED[suffix](tmp_path / f"model{suffix}", f"model{suffix}")
    beside(path)
    with pytest.raises(rl.FileError, match="is the file itself: need the name"):
        rl.load(path)


def test_the_output_is_not_a_companion(model, tmp_path):
    """Also if it is written in one piece: the name is compared after reading."""
    data = companions(model)[-1]
    out = data.with_name("new.npz")
    out.symlink_to(data.name)
    before = data.read_bytes()
    with pytest.raises(rl.FileError, match="is the input"):
        rl.convert_file(model, out, to=LAYOUTS[f".{model.name.partition('.')[2]}"], force=True)
    assert data.read_bytes() == before


def test_a_companion_adds_to_the_budget(tmp_path):
    for name, size in (("a", 10), ("b", 1000), ("c", 7)):
        (tmp_path / name).write_bytes(bytes(size))
    file = InputFile(tmp_path / "a")
    second = file.companion("b")
    assert second.budget is file.budget and file.budget.size == 1010
    assert second.companion("c").budget is file.budget and file.budget.size == 1017
    assert file.companions == [tmp_path / "b", tmp_path / "c"]
    assert (str(second), second.path) == (str(tmp_path / "b"), tmp_path / "b")


@pytest.mark.parametrize("name", ["NUL", "aux", "aux.weight", "com1.data", "Con .x"])
def test_a_device_of_windows_is_a_name_elsewhere(name):
    assert _is_bare(name, windows=False) and not _is_bare(name, windows=True)
    assert _is_bare(f"m.{name}", windows=True)


@pytest.mark.parametrize("name", ["C:x", "x::$DATA", "a\\b", "a/b", ".a", "..", ""])
def test_a_name_that_windows_joins_elsewhere_is_refused_everywhere(name):
    assert not _is_bare(name, windows=False)
