"""Checkpoints with objects of unknown classes: nothing of them is imported, and a note names each.
Pickles of NumPy arrays, read as pickle.load() reads them and without it.

torch is the oracle: what torch.load() reads of the tensors when it is told to trust the file.
"""

import argparse
import collections
import datetime
import enum
import functools
import pathlib
import pickle
import re
import sys
import types

import haiku
import jax
import ml_dtypes
import numpy as np
import pytest
import torch
from files.hostile.pickles import in_archive, in_old, tensor
from marks import in_turn, pairwise
from oracles.some import normal_weights

import rnnlayout as rl
from rnnlayout._files.formats.torch import archive
from rnnlayout._files.tensor_sets.file_limits import InputFile

FORMS = {"zip": True, "old": False}


class Settings(collections.OrderedDict):
    """A class of the program that wrote the checkpoint."""


class Kind(enum.Enum):
    LSTM = 1


class Slots:
    __slots__ = ("a",)

    def __init__(self):
        self.a = torch.ones(2)

    class Nested:
        pass


def named(value, name):
    return {"model": torch.nn.LSTM(5, 3).state_dict(), name: value}


ODD = {
    "args": (argparse.Namespace(lr=0.1, tensor=torch.ones(3)), r"argparse\.Namespace"),
    "settings": (Settings(a=1, b=Settings()), "Settings"),
    "kind": (Kind.LSTM, "Kind"),
    "path": (pathlib.PurePosixPath("a/b"), r"pathlib.*PurePosixPath"),
    "when": (datetime.datetime(2026, 1, 2), r"datetime\.datetime"),
    "partial": (functools.partial(max, 1), r"functools\.partial"),
    "deque": (collections.deque([1, 2]), r"collections\.deque"),
    "slots": (Slots(), "Slots"),
    "nested": (Slots.Nested(), r"Slots\.Nested"),
    "class": (Kind, "Kind"),
    "function": (len, "len"),
    "frozen": (frozenset({1}), "frozenset"),
    "some": ({"a", "b"}, "set"),
    "device": (torch.device("cpu"), r"torch\.device"),
    "random": (np.random.default_rng(0), "numpy.random"),
    "integer": ({(1, 2): 1 << 1000, "x": argparse.Namespace()}, r"argparse\.Namespace"),
    "texts": (np.array(["a"]), "numpy.ndarray of objects or texts"),
    "objects": (np.array([None]), "numpy.ndarray of objects or texts"),
}


@pytest.mark.parametrize("name, protocol, form", pairwise([*ODD], [2, 4, 5], [*FORMS]))
def test_an_object_of_an_unknown_class(name, protocol, form, tmp_path):
    value, kind = ODD[name]
    path = tmp_path / "m.pt"
    torch.save(named(value, name), path, pickle_protocol=protocol,
               _use_new_zipfile_serialization=FORMS[form])  # fmt: skip
    found = rl.load(path)
    theirs = torch.load(path, weights_only=False)["model"]
    (ours,) = found.values()
    assert list(found) == ["model"]
    for key, array in theirs.items():
        assert ours[key].tobytes() == array.numpy().tobytes()
    (note,) = found.notes
    assert name in note and "was not read" in note
    assert re.search(kind, note)


HARMLESS = {
    "loss": np.float64(0.25),
    "step": np.int64(3),
    "history": collections.defaultdict(list, {"loss": [1.0, 2.0]}),
    "counter": collections.Counter("abca"),
    "nested": collections.OrderedDict(a=collections.OrderedDict(b=[(1, None, True, 2.5, b"x")])),
}


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_what_is_data_has_no_note(protocol, tmp_path):
    path = tmp_path / "m.pt"
    torch.save(named(HARMLESS, "more"), path, pickle_protocol=protocol)
    assert not rl.load(path).notes
    more = archive.read_torch_file(InputFile(path))["more"]
    assert (more["loss"], more["step"]) == (0.25, 3)
    assert more["history"] == HARMLESS["history"] and more["counter"] == HARMLESS["counter"]
    assert more["nested"]["a"]["b"] == [(1, None, True, 2.5, b"x")]


@pytest.mark.parametrize("name", ["weight_hh_l0", "bias_ih_l0"])
def test_an_object_where_a_tensor_is_needed(name, tmp_path):
    """An LSTM without biases is an LSTM too: that they are missing would not be noticed."""
    state = torch.nn.LSTM(5, 3).state_dict()
    state[name] = argparse.Namespace(quantized=state[name])
    if name == "bias_ih_l0":
        state["bias_hh_l0"] = argparse.Namespace()
    dec = torch.nn.GRU(5, 3).state_dict()
    torch.save(collections.defaultdict(dict, enc=state, dec=dec), tmp_path / "m.pt")
    found = rl.load(tmp_path / "m.pt")
    assert list(found) == ["dec"] and list(found.refused) == ["enc"]
    assert f"enc.{name} is argparse.Namespace" in str(found.refused["enc"])


KEYS = {"tuple": ("a", 1), "float": 1.5, "NoneType": None, "bool": True, "bytes": b"a"}


@pytest.mark.parametrize("kind", KEYS)
def test_an_item_with_a_key_that_is_not_a_name(kind, tmp_path):
    """It was left out without a word. Numbers cannot be a part of an RNN."""
    path, state, key = tmp_path / "m.pt", torch.nn.LSTM(5, 3).state_dict(), KEYS[kind]
    torch.save({"enc": state, "more": {key: state}}, path)
    advice = "give it a text as key, and save it again"
    found = rl.load(path)
    assert [*found] == ["enc"]
    assert found.notes == [
        f"an item with a key of type {kind} in 'more.<{kind}>' was not read: {advice}"
    ]
    torch.save({key: state}, path)
    with pytest.raises(rl.FileError, match=f"has no tensors that are read, but .*{kind}.*{advice}"):
        rl.load(path)
    torch.save({"enc": state | {key: torch.ones(3)}}, path)
    with pytest.raises(rl.UndecidedError, match=rf"further tensors .*'enc\.<{kind}>'"):
        rl.load(path)["enc"]
    torch.save({"enc": state | {key: 3}}, path)
    assert not rl.load(path).notes and rl.load(path)["enc"] == rl.Weights(torch_lstm(state))


def torch_lstm(state):
    module = torch.nn.LSTM(5, 3)
    module.load_state_dict(state)
    return module


def test_many_classes_make_few_notes(tmp_path):
    program = b"".join(
        b"X\x04\x00\x00\x00%04dccls\nC%04d\n" % (k, k) for k in range(5000)
    )  # fmt: skip
    state = pickle.dumps({"weight": np.ones(3)}, 2)[2:-1]
    path = tmp_path / "m.pkl"
    path.write_bytes(b"\x80\x02" + state + b"(" + program + b"u.")
    with pytest.raises(rl.FileError, match="4980 other classes") as caught:
        rl.load(path)
    assert len(str(caught.value)) < 3000


@pytest.mark.parametrize("value", [np.float64(0.5), np.ones(3)])
def test_a_copy_of_a_checkpoint_with_numpy_in_it(value, tmp_path):
    """torch's own loader refuses NumPy's numbers and arrays: each repair works."""
    path, new = tmp_path / "m.pt", tmp_path / "n.pt"
    torch.save(named(value, "best"), path)
    repairs = r"write another format, \.safetensors.*torch\.as_tensor\(x\) for each x of NumPy"
    with pytest.raises(rl.FileError, match=repairs) as error:
        rl.convert_file(path, new, to="cudnn")
    assert "\n" not in str(error.value) and "Weights only" not in str(error.value)
    rl.convert_file(path, tmp_path / "n.safetensors", to="cudnn")
    torch.save(named(torch.as_tensor(value), "best") | {"device": torch.device("cpu")}, path)
    rl.convert_file(path, new, to="cudnn")
    made = torch.load(new)
    assert torch.equal(made["best"], torch.as_tensor(value)) and made["device"].type == "cpu"


@pytest.mark.parametrize("value, kind", [
    (torch.nn.CrossEntropyLoss(), "torch.nn.modules.loss.CrossEntropyLoss"),
    (argparse.Namespace(), "argparse.Namespace"),
])  # fmt: skip
def test_a_copy_of_a_checkpoint_with_an_object_in_it(value, kind, tmp_path):
    """torch refuses its class, so a .pt cannot be copied. A criterion is a module without RNNs."""
    path = tmp_path / "m.pt"
    torch.save(named(value, "own"), path)
    assert rl.load(path).notes == [f"{kind} in 'own' was not read"]
    with pytest.raises(rl.FileError, match=f"write another format.*{kind}"):
        rl.convert_file(path, tmp_path / "n.pt", to="cudnn")
    done = rl.convert_file(path, tmp_path / "n.npz", to="cudnn")
    assert "own" in done.left_out and rl.verify(path, tmp_path / "n.npz")


# ------------------------------------------------------------- odd files; the others of hostile/


def test_nothing_lasts_of_a_pickle_that_changes_what_it_names(tmp_path):
    path = tmp_path / "m.pt"
    path.write_bytes(in_archive(b"\x80\x02ctorch\nFloatStorage\n}X\x04\x00\x00\x00nameNsb."))
    with pytest.raises(rl.FileError, match=r"m\.pt"):
        rl.load(path)
    torch.save(torch.nn.GRU(3, 2).state_dict(), path)
    assert list(rl.load(path)) == ["gru"]


@pytest.mark.parametrize("form", [in_archive, in_old])
def test_the_right_claim(form, tmp_path):
    """The hostile files of false claims are refused for their claim alone."""
    values, path = np.arange(4, dtype="f4").tobytes(), tmp_path / "m.pt"
    path.write_bytes(form(tensor(shape=(3,), offset=1), {"0": values}))
    assert archive.read_torch_file(InputFile(path))["weight"].bits().tolist() == [1, 2, 3]


def test_a_pickle_alone_has_no_storages(tmp_path):
    """tools/fuzz, .old.pt 12025: without its first pickle an old file is one pickle."""
    path = tmp_path / "m.pt"
    torch.save(torch.nn.GRU(3, 2).state_dict(), path, _use_new_zipfile_serialization=False)
    data = path.read_bytes()
    path.write_bytes(data[data.index(b"\x80\x02ccollections") :])
    with pytest.raises(rl.FileError, match=r"m\.pt.*storages of its tensors are missing"):
        rl.load(path)


# -------------------------------------------------------------------------- pickles of NumPy arrays


PROTOCOLS = [2, 3, 4, 5]


def state(cell=torch.nn.LSTM, dtype="f4", **options):
    torch.manual_seed(3)
    module = cell(5, 3, **options)
    return {name: one.detach().numpy().astype(dtype) for name, one in module.named_parameters()}


def written(path, value, protocol=5):
    path.write_bytes(pickle.dumps(value, protocol))
    return path


@pytest.mark.parametrize(
    "suffix, core, protocol",
    pairwise([".pkl", ".pickle", ".pt", "", ".model"], ["numpy.core", "numpy._core"], PROTOCOLS),
)
def test_a_dict_of_arrays(suffix, core, protocol, tmp_path):
    value = {"encoder": state(bidirectional=True), "decoder": state(torch.nn.GRU), "step": 3}
    value["words"] = np.array(["not", "read"], ">U4")
    path = written(tmp_path / f"a{suffix}", value, protocol)
    data = path.read_bytes()
    other = {"numpy.core": b"numpy._core", "numpy._core": b"numpy.core"}[core]
    if protocol < 4 or other not in data:  # lengths precede names in later protocols
        path.write_bytes(data.replace(other, core.encode()))
    found = rl.load(path)
    assert list(found) == ["encoder", "decoder"]
    assert found.notes == ["numpy.ndarray of objects or texts in 'words' was not read"]
    for name, weights in found.items():
        assert weights.spec.bidirectional == (name == "encoder")
        for key, array in value[name].items():
            assert weights[key].tobytes() == array.tobytes()


MEMORY = {
    "plain": lambda a: a,
    "in Fortran order": np.asfortranarray,
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "strided": lambda a: np.stack([a, a])[1],
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
}


@pytest.mark.parametrize(
    "form, dtype, protocol",
    pairwise([*MEMORY], ["f2", "f4", "f8", ml_dtypes.bfloat16], PROTOCOLS,
             fits=lambda form, dtype, _: form != "big-endian" or isinstance(dtype, str)),
)  # fmt: skip
def test_arrays(form, dtype, protocol, tmp_path):
    right = state(dtype=dtype)
    made = {name: MEMORY[form](array) for name, array in right.items()}
    found = rl.load(written(tmp_path / "a.pkl", made, protocol))["lstm"]
    assert found.spec.dtype == np.dtype(dtype).name
    assert all(found[name].tobytes() == array.tobytes() for name, array in right.items())


class OldArray:
    """As JAX 0.3 pickled an array."""

    def __init__(self, array):
        self.parts = array.__reduce__()

    def __reduce__(self):
        return reconstruct_device_array, (*self.parts, {"weak_type": False})


def reconstruct_device_array():
    pass


reconstruct_device_array.__module__ = "jax._src.device_array"


@pytest.mark.parametrize("form", [jax.numpy.asarray, OldArray])
def test_parameters_of_haiku_with_arrays_of_jax_were_refused(form, tmp_path, monkeypatch):
    old = types.ModuleType("jax._src.device_array")
    old.reconstruct_device_array = reconstruct_device_array
    monkeypatch.setitem(sys.modules, old.__name__, old)
    right = normal_weights(rl.layout("haiku"), rl.Spec("gru", 5, 3, reset="before"), 0)
    cell = {name: form(array) for name, array in right.items()}
    params = haiku.data_structures.to_immutable_dict({"enc/gru": cell})
    weights = next(iter(rl.load(written(tmp_path / "a.pkl", params, 4)).values()))
    assert all(weights[name].tobytes() == array.tobytes() for name, array in right.items())
    path = tmp_path / "b.pkl"
    path.write_bytes(b"\x80\x02cjax._src.array\n_reconstruct_array\n(NNNNtR.")
    with pytest.raises(rl.FileError, match="its pickle is damaged"):
        rl.load(path)


@pytest.mark.parametrize(
    "dtype, protocol",
    in_turn(["?", "i1", "u2", "i4", "u8", "c8", "c16", "f8"], PROTOCOLS),
)
def test_every_kind_of_number(dtype, protocol, tmp_path):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    value = {"array": array, "scalar": array[1, 2], "none": array[:0], "number": array[0].sum()}
    read = archive.read_torch_file(InputFile(written(tmp_path / "a.pkl", value, protocol)))
    assert read["scalar"] == value["scalar"] and read["number"] == value["number"]
    assert read["array"].array.tobytes() == array.tobytes() and read["none"].array.shape == (0, 3)


@pytest.mark.parametrize("protocol", [0, 1])
def test_protocols_before_2(protocol, tmp_path):
    """Protocol 0 is refused, which torch writes and cannot read; in protocol 1 only arrays."""
    with pytest.raises(rl.FileError, match="with protocol 2 or later"):
        rl.load(written(tmp_path / "a.pkl", state(), protocol))
    path = tmp_path / "a.pt"
    torch.save(torch.nn.GRU(5, 3).state_dict(), path, pickle_protocol=protocol)
    if protocol == 1:
        assert list(rl.load(path)) == ["gru"]
        return
    with pytest.raises(rl.FileError, match="is not plain data"):
        rl.load(path)
    with pytest.raises(AssertionError, match="saved_id must be a tuple"):
        torch.load(path, weights_only=False)


def test_bytes_of_python_2(tmp_path):
    """Python 2 writes the bytes of an array, and the names, as byte strings."""
    array = np.arange(300, dtype="f8").reshape(12, 25)
    data, length = pickle.dumps({"weight_ih_l0": array}, 3), (8 * 300).to_bytes(4, "little")
    old = data.replace(b"B" + length, b"T" + length)
    old = old.replace(b"X\x0c\x00\x00\x00weight_ih_l0", b"U\x0cweight_ih_l0")
    assert len(old) == len(data) - 3 and b"B" + length not in old
    (tmp_path / "a.pkl").write_bytes(old)
    theirs = pickle.loads(old, encoding="latin-1")
    ours = archive.read_torch_file(InputFile(tmp_path / "a.pkl"))
    assert ours["weight_ih_l0"].array.tobytes() == theirs["weight_ih_l0"].tobytes()


def test_a_copy_has_another_format(tmp_path):
    path = written(tmp_path / "a.pkl", {"enc": state(), "other": np.arange(3)})
    with pytest.raises(rl.FileError, match=r"\.pkl files are only read; files are written as"):
        rl.convert_file(path, tmp_path / "b.pkl", to="cudnn")
    rl.convert_file(path, tmp_path / "b.safetensors", to="cudnn")
    assert rl.verify(path, tmp_path / "b.safetensors")
    assert rl.load(tmp_path / "b.safetensors").others == ("other",)
    rl.convert_file(path, tmp_path / "b.pt", to="torch")
    assert torch.load(tmp_path / "b.pt", weights_only=True)["other"].tolist() == [0, 1, 2]
    with pytest.raises(rl.FileError, match="torch cannot read it"):
        rl.convert_file(path.rename(tmp_path / "a.pt"), tmp_path / "c.pt", to="cudnn")
