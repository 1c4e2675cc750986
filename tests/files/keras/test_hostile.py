"""Hostile Keras files: a FileError; no other file is opened, no code runs, no memory is taken."""

import io
import json
import sys
import zipfile
import zlib

import h5py
import numpy as np
import pytest
from files.hostile.limits import MOST_NBYTES, limited

import rnnlayout as rl

SPEC = rl.Spec("lstm", 3, 2)
KERNEL = "model_weights/lstm/lstm/lstm_cell/kernel"


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """{suffix: the bytes of a correct file}"""
    folder = tmp_path_factory.mktemp("good")
    made = {}
    for suffix in (".h5", ".weights.h5", ".keras"):
        rl.save(folder / f"a{suffix}", weights())
        made[suffix] = (folder / f"a{suffix}").read_bytes()
    return made


def weights():
    rng = np.random.default_rng(3)
    shapes = rl.describe(SPEC, "keras").items()
    return rl.Weights({n: rng.standard_normal(s).astype("f4") for n, s in shapes}, SPEC, "keras")


@pytest.fixture
def bad(tmp_path, good):
    """A good .h5 file, open to be spoiled, beside a folder with a secret."""
    path = tmp_path / "bad.h5"
    path.write_bytes(good[".h5"])
    (tmp_path / "secret").mkdir()
    with h5py.File(tmp_path / "secret" / "other.h5", "w") as other:
        other["kernel"] = np.ones((3, 8), "f4")
    (tmp_path / "secret" / "raw").write_bytes(bytes(4 * 24))
    with h5py.File(path, "r+") as file:
        yield file


def refused(file, why):
    path = file.filename
    file.close()
    with limited():
        for _ in range(2):  # and a second time: nothing is left behind
            with pytest.raises(rl.FileError, match=why):
                rl.load(path)


def replaced(file):
    """Remove the kernel and return its name."""
    del file[KERNEL]
    return KERNEL


# ------------------------------------------------------------------------------ to other places


@pytest.mark.parametrize("where", [KERNEL, "model_weights/lstm", "model_weights", "aside"])
def test_an_external_link(bad, where):
    if where in bad:
        del bad[where]
    bad[where] = h5py.ExternalLink("secret/other.h5", "/kernel")
    refused(bad, "is a link to another place")


@pytest.mark.parametrize("where", ["/model_weights/lstm/lstm/lstm_cell/bias", "/nowhere", "/"])
def test_a_soft_link(bad, where):
    bad[replaced(bad)] = h5py.SoftLink(where)
    refused(bad, "is a link to another place")


def test_a_dataset_in_another_file(bad):
    bad.create_dataset(replaced(bad), (3, 8), "f4", external=[("secret/raw", 0, 96)])
    refused(bad, "is stored in another file")


@pytest.mark.parametrize("name", ["secret/other.h5", "."])
@pytest.mark.parametrize("unlimited", [False, True])
def test_a_virtual_dataset(bad, name, unlimited):
    first = (None if unlimited else 3, 8)
    layout = h5py.VirtualLayout((3, 8), "f4", maxshape=first)
    source = h5py.VirtualSource(name, "kernel", (3, 8), "f4", maxshape=first)
    if unlimited:
        layout[h5py.h5s.UNLIMITED :, :] = source[h5py.h5s.UNLIMITED :, :]
    else:
        layout[:] = source
    bad.create_virtual_dataset(replaced(bad), layout)
    refused(bad, "is stored in another file")


def test_a_filter_that_would_be_loaded(bad):
    name = replaced(bad)
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((3, 8))
    properties.set_filter(32008, h5py.h5z.FLAG_OPTIONAL, ())
    space = h5py.h5s.create_simple((3, 8))
    h5py.h5d.create(bad.id, b"aside", h5py.h5t.IEEE_F32LE, space, properties)
    bad["aside"].id.write_direct_chunk((0, 0), bytes(96))
    bad[name] = bad["aside"]
    del bad["aside"]
    refused(bad, "filter 32008 is not supported")


# -------------------------------------------------------------------------------------- bombs


@pytest.mark.parametrize("chunks", [None, (1 << 10, 8)])
@pytest.mark.parametrize("rows", [1 << 22, 1 << 50])
def test_a_shape_that_nothing_stands_for(bad, chunks, rows):
    bad.create_dataset(replaced(bad), (rows, 8), "f4", chunks=chunks)
    refused(bad, "refused as a decompression bomb")


def test_many_small_shapes_that_nothing_stands_for(bad):
    for k in range(40):
        bad.create_dataset(f"aside/{k}", (1 << 20, 8), "f4")
    refused(bad, "refused as a decompression bomb")


def test_a_chunk_that_is_larger_than_its_dataset(bad):
    bad.create_dataset(replaced(bad), (3, 8), "f4", chunks=(1 << 26, 8), maxshape=(None, 8))
    refused(bad, "refused as a decompression bomb")


def test_a_chunk_that_inflates_to_more_than_its_size(bad):
    packed = zlib.compress(bytes(2 * MOST_NBYTES), 1)
    made = bad.create_dataset(replaced(bad), (3, 8), "f4", chunks=(1 << 12, 8),
                              maxshape=(None, 8), compression="gzip")  # fmt: skip
    made.id.write_direct_chunk((0, 0), packed)
    refused(bad, f"does not inflate to its {4 * 8 << 12} bytes")


@pytest.mark.parametrize("packed", [zlib.compress(bytes(95)), b"no zlib"])
def test_a_chunk_that_is_damaged(bad, packed):
    made = bad.create_dataset(replaced(bad), (3, 8), "f4", chunks=(3, 8), compression="gzip")
    made.id.write_direct_chunk((0, 0), packed)
    refused(bad, "kernel")


@pytest.mark.parametrize("how", [
    {"compression": "gzip"}, {"compression": "gzip", "shuffle": True}, {"shuffle": True}, {},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("chunks", [(3, 8), (2, 3)])
def test_honest_chunks_are_read(bad, how, chunks):
    value = bad[KERNEL][()]
    bad.create_dataset(replaced(bad), data=value.astype(">f4"), chunks=chunks, **how)
    path = bad.filename
    bad.close()
    found = rl.load(path)["lstm"]
    assert np.array_equal(found["kernel"], value) and found["kernel"].dtype.isnative


def test_the_other_byte_order_is_read(bad):
    value = bad[KERNEL][()]
    bad[replaced(bad)] = value.astype(">f4")
    path = bad.filename
    bad.close()
    assert np.array_equal(rl.load(path)["lstm"].pack(), weights().pack())


def test_without_h5py(tmp_path, good, monkeypatch):
    """Files are read without h5py, and written with it."""
    monkeypatch.setitem(sys.modules, "h5py", None)
    for suffix, data in good.items():
        path = tmp_path / f"a{suffix}"
        path.write_bytes(data)
        assert list(rl.load(path)) == ["lstm"]
        with pytest.raises(rl.MissingExtraError, match=r'pip install "rnnlayout\[h5\]"'):
            rl.save(tmp_path / f"b{suffix}", weights())
        assert not (tmp_path / f"b{suffix}").exists()


def test_names_that_all_lie_in_one_place(bad):
    del bad["model_weights"].attrs["layer_names"]
    bad["model_weights"].attrs.create(
        "layer_names", ["x" * 60000] * 4000, dtype=h5py.string_dtype()
    )
    refused(bad, "bomb|layer")


# ----------------------------------------------------------------------------------- structure


def test_a_group_in_itself(bad):
    bad["model_weights/lstm/again"] = bad["model_weights"]
    refused(bad, "is the same as")


def test_an_array_under_many_names(bad):
    bad["aside"] = bad[KERNEL]
    refused(bad, "is the same as")


def test_groups_in_groups(bad):
    bad.create_group("/".join(["x"] * 2000))
    refused(bad, "groups deep: refused")


@pytest.mark.parametrize("dtype", [
    h5py.string_dtype(), h5py.ref_dtype, h5py.vlen_dtype("f4"), np.dtype([("a", "f4")]),
    np.dtype("V4"), np.dtype("i4"),
], ids=str)  # fmt: skip
def test_an_array_of_what_is_no_number(bad, dtype):
    bad.create_dataset(replaced(bad), (3, 8), dtype)
    path = bad.filename
    bad.close()
    with limited(), pytest.raises(rl.LayoutError, match="need one of float16"):
        rl.load(path)


def test_an_array_of_nothing(bad):
    bad[replaced(bad)] = h5py.Empty("f4")
    path = bad.filename
    bad.close()
    with pytest.raises(ValueError, match="nothing, need one of"):
        rl.load(path)


@pytest.mark.parametrize("name", ["layer_names", "weight_names", "model_config"])
@pytest.mark.parametrize("value", [3, np.ones(3), b"\xff\xfe", h5py.Empty("S3"), "text"])
def test_attributes_that_are_something_else(bad, name, value):
    group = {"layer_names": bad["model_weights"], "weight_names": bad["model_weights/lstm"]}
    group.get(name, bad).attrs[name] = value
    path = bad.filename
    bad.close()
    with limited(), pytest.raises(rl.FileError):
        rl.load(path)


@pytest.mark.parametrize("text", [
    "", "[", "[]", "3", "[" * 100_000, '{"a":' * 100_000, '{"config": NaN}', "\ud800",
    '{"class_name": "Sequential", "config": {"layers": 3}}',
    '{"class_name": "Sequential", "config": {"layers": [3, {"class_name": []}]}}',
], ids=lambda text: ascii(text[:30]))  # fmt: skip
def test_a_config_that_is_none(bad, text):
    """A config that names no layer: the RNN is inferred from the weights."""
    try:
        bad.attrs["model_config"] = text.encode()
    except UnicodeEncodeError:
        bad.attrs["model_config"] = text.encode("utf8", "surrogatepass")
    path = bad.filename
    bad.close()
    with limited():
        try:
            found = rl.load(path)
        except rl.FileError:
            return
    assert text.startswith("{") and list(found) == ["lstm"]


@pytest.mark.parametrize("change", [
    {"units": "2"}, {"units": True}, {"units": None}, {"units": 10**30}, {"units": 3},
    {"activation": {"class_name": "function"}}, {"recurrent_activation": ["x"] * 1000},
], ids=lambda change: repr(change)[:40])  # fmt: skip
def test_a_config_that_makes_no_sense(bad, change):
    model = json.loads(bad.attrs["model_config"])
    model["config"]["layers"][1]["config"] |= change
    bad.attrs["model_config"] = json.dumps(model)
    path = bad.filename
    bad.close()
    with limited(), pytest.raises((rl.FileError, rl.LayoutError)) as caught:
        rl.load(path)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("backward", [{"class_name": "Dense"}, {"class_name": "Bidirectional"}])
def test_a_backward_layer_of_another_class(bad, backward):
    """This was a KeyError."""
    model = json.loads(bad.attrs["model_config"])
    lstm = model["config"]["layers"][1]
    both = {"name": "lstm", "layer": dict(lstm), "backward_layer": {**backward, "config": {}}}
    lstm.update(class_name="Bidirectional", config=both)
    bad.attrs["model_config"] = json.dumps(model)
    path = bad.filename
    bad.close()
    with pytest.raises(rl.LossyError, match=f"is a cell of class '{backward['class_name']}'"):
        rl.load(path)


ODD = [
    {"class_name": "Lambda", "config": {"name": "code", "function": ["4wEAAAA=", None, None]}},
    {"class_name": "LSTM", "module": "os", "registered_name": "os>system",
     "config": {"name": "shell", "units": "echo"}},
    {"class_name": "TFSMLayer", "module": "keras.layers",
     "config": {"name": "saved", "filepath": "/etc/passwd"}},
    {"class_name": "Custom>LSTM", "config": {"name": "custom", "layers": 3, "layer": "x"}},
]  # fmt: skip


@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_what_would_run_code_is_one_more_layer(tmp_path, good, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(good[suffix])
    if suffix == ".h5":
        with h5py.File(path, "r+") as file:
            model = json.loads(file.attrs["model_config"])
            model["config"]["layers"] += ODD
            file.attrs["model_config"] = json.dumps(model)
    else:
        members = in_zip(path)
        model = json.loads(members["config.json"])
        model["config"]["layers"] += ODD
        to_zip(path, members | {"config.json": json.dumps(model).encode()})
    before = set(sys.modules)
    assert list(rl.load(path)) == ["lstm"]
    assert set(sys.modules) == before


# -------------------------------------------------------------------------------------- archives


def in_zip(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def to_zip(path, members, **options):
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


@pytest.mark.parametrize("name", ["metadata.json", "config.json", "model.weights.h5"])
@pytest.mark.parametrize("data", [None, b"", b"[]", b"{", bytes(1000)])
def test_a_member_that_is_missing_or_something_else(tmp_path, good, name, data):
    path = tmp_path / "a.keras"
    path.write_bytes(good[".keras"])
    members = in_zip(path)
    del members[name]
    to_zip(path, members if data is None else members | {name: data})
    with limited(), pytest.raises(rl.FileError, match=name):
        rl.load(path)


def test_a_file_in_the_archive_that_is_a_bomb(tmp_path, good):
    path = tmp_path / "a.keras"
    path.write_bytes(good[".keras"])
    members = in_zip(path)
    inner = io.BytesIO(members["model.weights.h5"])
    with h5py.File(inner, "r+") as file:
        del file["layers/lstm/cell/vars/0"]
        file.create_dataset("layers/lstm/cell/vars/0", (1 << 40, 8), "f4")
    to_zip(path, members | {"model.weights.h5": inner.getvalue()})
    with limited(), pytest.raises(rl.FileError, match=r"model\.weights\.h5.*bomb"):
        rl.load(path)
