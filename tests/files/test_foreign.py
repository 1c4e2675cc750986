"""Files of programs whose formats are not read: the error says which program wrote the file, and
what to pass instead, which leads to the right numbers and never to a guess."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from files.hostile.good import good
from hints.following import LSTM, tensors

import rnnlayout as rl

VALUES = np.random.default_rng(0).standard_normal(364).astype("f4").tobytes()  # one bias per gate
CONVERTED = "pass the file of the model that it was converted from"
TENSORFLOW_JS = {
    "format": "layers-model",
    "modelTopology": {"model_config": {"class_name": "Sequential", "config": {"layers": []}}},
    "weightsManifest": [{"paths": ["group1-shard1of1.bin"], "weights": []}],
}
GRAPH = TENSORFLOW_JS | {"format": "graph-model", "modelTopology": {"node": []}}
MODEL = "of a TensorFlow.js model: pass model.json, which names it"


def put(folder, files):
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    return folder


def text_of(call):
    with pytest.raises(rl.Error) as caught:
        call()
    return caught.value.text


# ------------------------------------------------------------- .bin files that are not a vector

FOREIGN = [  # files, the first of which is read; the text of the error
    (
        {"group1-shard1of1.bin": VALUES, "model.json": TENSORFLOW_JS},
        f"part of the weights {MODEL}",
    ),
    ({"group1-shard2of3": VALUES}, f"part of the weights {MODEL}"),
    ({"weights.bin": VALUES, "model.json": TENSORFLOW_JS}, f"the weights {MODEL}"),
    ({"m.weights.bin": VALUES, "m.json": TENSORFLOW_JS}, r"pass m\.json, which names it"),
    ({"m.bin": VALUES, "m.xml": b"<net>"}, f"the weights of an OpenVINO model .*{CONVERTED}"),
    ({"m.ncnn.bin": VALUES, "m.ncnn.param": b"1"}, f"the weights of an ncnn model .*{CONVERTED}"),
    ({"weight.bin": VALUES}, f"the weights of a Core ML model: {CONVERTED}"),
    ({"m.bin": b"GGUF\3\0\0\0" + VALUES}, f"a GGUF model: {CONVERTED}"),
    ({"ggml-base.bin": b"lmgg" + VALUES}, f"a model of ggml: {CONVERTED}"),
]


@pytest.mark.parametrize("files, text", FOREIGN, ids=lambda value: next(iter(value)))
def test_a_bin_of_another_program_was_offered_spec(files, text, tmp_path):
    path = put(tmp_path, files) / next(iter(files))
    one_bias = LSTM.replace(bias="input")
    for arguments in ({}, {"spec": LSTM}, {"spec": one_bias}, {"spec": LSTM, "layout": "cudnn"}):
        said = text_of(lambda arguments=arguments: rl.load(path, **arguments))
        assert re.search(text, said) and "spec" not in said and "bias" not in said


def test_spec_and_layout_read_a_raw_vector(tmp_path):
    flat = rl.pack(tensors())
    for files in ({"m.bin": flat.tobytes()}, {"m.bin": flat.tobytes(), "m.xml": b"<net>"}):
        path = put(tmp_path, files) / "m.bin"
        assert np.array_equal(rl.load(path, LSTM, layout="cudnn")["lstm"].pack(), flat)


@pytest.mark.parametrize("arguments", [{}, {"spec": LSTM}, {"spec": LSTM, "layout": "keras"}])
def test_an_unknown_bin_asks_for_spec_and_layout(arguments, tmp_path):
    path = put(tmp_path, {"m.bin": rl.pack(tensors()).tobytes()}) / "m.bin"
    with pytest.raises(rl.Error, match=r"wrote .* pass the file that .* made") as caught:
        rl.load(path, **arguments)
    assert dict(caught.value.asks).keys() == {"spec", "layout"}


def test_a_description_beside_a_bin_comes_before_a_foreign_name(tmp_path):
    rl.save(tmp_path / "weight.bin", rl.Weights(tensors()))
    (tmp_path / "weight.xml").write_text("<net>")
    assert rl.load(tmp_path / "weight.bin")["lstm"].spec == LSTM
    (tmp_path / "weight.bin.json").write_text(json.dumps(LSTM.replace(hidden_size=9).to_dict()))
    assert "392 elements, need 576" in text_of(lambda: rl.load(tmp_path / "weight.bin"))


# ---------------------------------------------------------------------------------- TensorFlow.js


def test_a_folder_of_tensorflow_js_led_to_its_bin(tmp_path):
    put(tmp_path, {"model.json": TENSORFLOW_JS, "group1-shard1of1.bin": VALUES})
    said = text_of(lambda: rl.load(tmp_path))
    assert said.endswith(MODEL)


@pytest.mark.parametrize("files, name", [
    ({"m.xml": b"<net/>", "m.bin": VALUES}, "m.bin"),
    ({"weight.bin": VALUES}, "weight.bin"),
    ({"a.param": b"1", "a.bin": VALUES, "readme.txt": b"a"}, "a.bin"),
])  # fmt: skip
def test_a_folder_of_another_program_led_to_its_bin(files, name, tmp_path):
    said = text_of(lambda: rl.load(put(tmp_path, files)))
    assert f"a folder with {name}, " in said and said.endswith(CONVERTED)


def test_a_graph_model_of_tensorflow_js_was_a_model_of_rtneural(tmp_path):
    old = {key: value for key, value in GRAPH.items() if key != "format"}  # before 1.0
    put(tmp_path, {"model.json": GRAPH, "old.json": old})
    for name in ("model.json", "old.json"):
        said = text_of(lambda name=name: rl.load(tmp_path / name))
        assert f"a graph model of TensorFlow.js, {CONVERTED[5:]}" not in said
        assert re.search(f"a graph model of TensorFlow.js: {CONVERTED}", said)


def test_a_manifest_of_tensorflow_js_was_malformed(tmp_path):
    swapped = [{"weights": [{"name": "lstm/kernel"}], "paths": ["group1-shard1of1.bin"]}]
    put(tmp_path, {"a.json": TENSORFLOW_JS["weightsManifest"], "b.json": swapped})
    for name in ("a.json", "b.json"):
        said = text_of(lambda name=name: rl.load(tmp_path / name))
        assert "'group1-shard1of1.bin' does not exist: copy it to the folder of" in said


# ------------------------------------------------------------------------------------ XML, JSON

NET = b'<?xml version="1.0"?>\n<!-- made -->\n<net name="m" version="11">'
XML = [  # bytes, text of the error
    (NET, f"the graph of an OpenVINO model: its numbers are in a .bin file: {CONVERTED}"),
    (NET.partition(b"\n")[2], "the graph of an OpenVINO model"),
    (b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml">', "a web page"),
    (b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code>', "a web page"),
    (b'<?xml version="1.0"?><!DOCTYPE html PUBLIC "a"><html>', "a web page"),
    (b'\xef\xbb\xbf<?xml version="1.0"?><PMML>', "unknown format: it is an XML file of <PMML>"),
    (b'<?xml version="1.0"?>', "unknown format: it is an XML file"),
]


@pytest.mark.parametrize("data, text", XML)
def test_every_xml_was_a_web_page_with_a_login(data, text, tmp_path):
    (tmp_path / "m.xml").write_bytes(data)
    assert re.search(text, text_of(lambda: rl.load(tmp_path / "m.xml")))


def test_a_model_of_guitarml_was_the_description_of_a_bin(tmp_path):
    state = {name: array.tolist() for name, array in tensors(prefix="rec.").items()}
    model = {"model_data": {"unit_type": "LSTM", "input_size": 5, "skip": 1}, "state_dict": state}
    put(tmp_path, {"m.json": model, "n.json": dict(reversed(model.items()))})
    for name in ("m.json", "n.json"):
        assert rl.load(tmp_path / name)["rec"] == rl.Weights(tensors())


def test_any_json_with_an_input_size_was_the_description_of_a_bin(tmp_path):
    rl.save(tmp_path / "a.bin", rl.Weights(tensors()))
    said = text_of(lambda: rl.load(tmp_path / "a.bin.json"))
    assert "the description of a .bin file: read the .bin file itself" in said
    put(tmp_path, {"b.json": {"input_size": 5, "hidden_size": 7}})
    assert "description of a .bin" not in text_of(lambda: rl.load(tmp_path / "b.json"))


def test_the_graph_of_an_ncnn_model(tmp_path):
    put(tmp_path, {"m.param": b"7767517\n3 3\nInput in0 0 1 in0\n"})
    assert f"ncnn model: {CONVERTED}" in text_of(lambda: rl.load(tmp_path / "m.param"))


# ------------------------------------------------------------------------- archives and compression


def nemo(folder, mode):
    """Write a model of NeMo as its SaveRestoreConnector does."""
    torch.save(torch.nn.LSTM(5, 7).state_dict(), folder / "model_weights.ckpt")
    (folder / "model_config.yaml").write_text("target: x")
    path = folder / "x.nemo"
    with tarfile.open(path, mode) as file:
        for name in ("model_config.yaml", "model_weights.ckpt"):
            file.add(folder / name, f"./{name}")
            (folder / name).unlink()
    return path


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_a_nemo_was_to_be_decompressed_with_gunzip(mode, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = text_of(lambda: rl.load(nemo(tmp_path, mode)))
    command, name = re.search(
        r"a model of NeMo: unpack it \((.*?)\) and pass (\S+)$", said
    ).groups()
    subprocess.run(command, shell=True, check=True)
    assert rl.load(name)["lstm"].spec == LSTM


PROGRAMS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gunzip_refuses_a_file_without_its_suffix(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (Path("model.pt"), Path(f"m.pt.{name}")):
        path.write_bytes(PROGRAMS[name](good(".pt")))
        said = text_of(lambda path=path: rl.load(path))
        command, new = re.search(r"decompress it \((.*?)\) and pass (\S+)$", said).groups()
        subprocess.run(command, shell=True, check=True)
        assert [*rl.load(new)] == ["lstm"]


# ------------------------------------------------------------------------- objects in an .npz


def with_objects(path, **arrays):
    np.savez(path, **arrays, vocabulary=np.array(["a", None, 3], object))
    return path


def test_one_object_array_refused_a_whole_npz(tmp_path):
    path = with_objects(tmp_path / "a.npz", **tensors(prefix="enc."), scale=np.ones(3))
    found = rl.load(path)
    assert found["enc"] == rl.Weights(tensors())
    (note,) = found.notes
    assert "'vocabulary'" in note and "Python objects" in note
    for suffix, left_out in ((".npz", ()), (".safetensors", ("vocabulary",))):
        new = tmp_path / f"new{suffix}"
        done = rl.convert_file(path, new, to="keras")
        assert done.left_out == left_out and note in done.notes
        assert rl.verify(path, new).equal and "scale" in rl.load(new).others
    with np.load(tmp_path / "new.npz", allow_pickle=True) as copy:
        assert copy["vocabulary"].tolist() == ["a", None, 3]


def objects(contents, protocol=4):
    """Return the bytes of a .npy with an array of one dict, or of the elements of a list."""
    elements = [contents] if isinstance(contents, dict) else contents
    array, made = np.empty(len(elements) if elements is contents else (), object), io.BytesIO()
    for k, element in enumerate(elements):
        array[k if array.ndim else ()] = element
    header = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(made, header)
    return made.getvalue() + pickle.dumps(array, protocol)


def archive_of(path, **members):
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)
    return path


OTHER = np.arange(5.0)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_an_object_array_that_is_only_arrays_was_refused(protocol, tmp_path):
    """np.savez(path, model.state_dict()) and np.savez(path, np.array(weights, object))."""
    big, wanted = {n: np.array(a, ">f4") for n, a in tensors().items()}, rl.Weights(tensors())
    for name, members, rnn, others in (
        ("alone", {"arr_0": tensors()}, "lstm", ()),
        ("big-endian", {"arr_0": big}, "lstm", ()),
        ("dicts", {"model": {"enc": tensors(), "other": OTHER}}, "enc", ("other",)),
        ("two", {"a": tensors(), "b": [OTHER, OTHER]}, "a", ("b.0", "b.1")),
    ):
        data = {member: objects(contents, protocol) for member, contents in members.items()}
        path = archive_of(tmp_path / f"{name}.npz", **data)
        found = rl.load(path)
        assert (list(found), found.others, found.notes) == ([rnn], others, [])
        assert found[rnn] == wanted and all(a.dtype == "f4" for a in found[rnn].values())
        done = rl.convert_file(path, tmp_path / f"new-{name}.npz", to="keras")
        assert not done.left_out and not done.notes
        again = rl.load(tmp_path / f"new-{name}.npz")
        assert rl.verify(found, again) and again.others == others
    path = archive_of(tmp_path / "list.npz", arr_0=objects([*tensors().values()], protocol))
    assert rl.load(path, layout="torch")["lstm"] == wanted


def test_an_object_array_with_more_than_arrays_is_named_with_a_line_that_works(tmp_path):
    more = {
        "a number": tensors() | {"epoch": 3}, "a text": tensors() | {"text": "a"},
        "texts": tensors() | {"texts": np.array(["a"])},
        "objects": tensors() | {"objects": np.array([None])},
        "names twice": {"a": {"b": OTHER}, "a.b": OTHER, **tensors()},
        "a class": tensors() | {"class": Path("a")},
    }  # fmt: skip
    for name, contents in more.items():
        path = archive_of(tmp_path / f"{name}.npz", arr_0=objects(contents))
        said = text_of(lambda path=path: rl.load(path))
        assert "Python objects" in said, name
    line = re.search(
        r"numpy\.load\(.*?\.tolist\(\)", text_of(lambda: rl.load(tmp_path / "a text.npz"))
    )
    state = eval(line[0], {"numpy": np})
    assert rl.Weights(state | {"text": None}, ignore=["text"]) == rl.Weights(tensors())


def test_a_damaged_object_array_is_named(tmp_path):
    data, array = objects(tensors()), io.BytesIO()
    np.save(array, OTHER)
    for k in range(len(data) - 400, len(data), 7):
        path = archive_of(tmp_path / "a.npz", arr_0=data[:k], other=array.getvalue(), rnn=data)
        found = rl.load(path)
        assert list(found) == ["rnn"] and found.others == ("other",)
        assert "'arr_0'" in found.notes[0] and "Python objects" in found.notes[0]


def test_an_object_array_that_repeats_an_array_is_refused(tmp_path):
    """A copy would have 200 MB, 400 times as much as the file."""
    path = archive_of(tmp_path / "a.npz", arr_0=objects([np.ones(1 << 17, "f4")] * 400))
    with pytest.raises(rl.FileError, match="bytes of arrays, more than"):
        rl.load(path)


def test_an_object_array_of_python_2(tmp_path):
    """Its array data are texts of Latin-1."""

    class Python2(pickle._Pickler):
        def save_bytes(self, data):
            self.write(pickle.BINSTRING + len(data).to_bytes(4, "little") + data)
            self.memoize(data)

        dispatch = pickle._Pickler.dispatch | {bytes: save_bytes}

    array, made = np.array(tensors(), object), io.BytesIO()
    Python2(made, 2).dump(array)
    header = objects(tensors()).partition(b"\n")[0] + b"\n"
    path = archive_of(tmp_path / "a.npz", arr_0=header + made.getvalue())
    with np.load(path, allow_pickle=True, encoding="latin1") as file:
        assert np.array_equal(file["arr_0"][()]["bias_ih_l0"], tensors()["bias_ih_l0"])
    assert rl.load(path)["lstm"] == rl.Weights(tensors())


def test_an_object_array_of_an_rnn_is_named(tmp_path):
    arrays = tensors() | {"weight_hh_l0": np.array([1, None], object)}
    np.savez(tmp_path / "a.npz", **arrays)
    assert "weight_hh_l0 is an array of Python objects" in text_of(
        lambda: rl.load(tmp_path / "a.npz")
    )


def test_an_npz_with_nothing_but_objects(tmp_path):
    said = text_of(lambda: rl.load(with_objects(tmp_path / "a.npz")))
    assert "'vocabulary'" in said and "Python objects" in said
