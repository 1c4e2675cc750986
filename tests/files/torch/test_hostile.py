"""Hostile and damaged .pt files: a FileError before anything runs, is imported or allocated."""

import builtins
import io
import os
import pickle
import struct
import subprocess
import zipfile

import numpy as np
import pytest
import torch
from files.hostile.pickles import MAGIC, VERSION, Calls

import rnnlayout as rl
from rnnlayout._files.formats.torch import archive as _torch_file

pytestmark = pytest.mark.filterwarnings("ignore")

FORMS = {"zip": True, "old": False}
every_form = pytest.mark.parametrize("form", FORMS)


def save(path, value, form="zip"):
    torch.save(value, path, _use_new_zipfile_serialization=FORMS[form])
    return path


def archive(path, pickled, **members):
    """Write the zip form by hand."""
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("m/data.pkl", pickled)
        for name, data in members.items():
            made.writestr(f"m/data/{name.strip('_')}", data)
    return path


def old(path, pickled, storages=b"", keys=()):
    """Write the older form by hand."""
    parts = [MAGIC, VERSION, {"little_endian": True}]
    head = b"".join(pickle.dumps(part, 2) for part in parts)
    path.write_bytes(head + pickled + pickle.dumps(list(keys), 2) + storages)
    return path


def bare(path, pickled):
    path.write_bytes(pickled)
    return path


FILES = {"archive": archive, "old": old, "bare": bare}


def refused(path, match):
    with pytest.raises(rl.FileError, match=match) as caught:
        rl.load(path)
    assert str(path) in str(caught.value)


# ------------------------------------------------------------------------------ pickles that run


def payloads(mark):
    """Return {name: (an object that makes a file at `mark` when loaded, what the refusal names)}"""
    touch = f"open({mark!r}, 'w')"
    return {
        "os.system": (Calls(os.system, f"touch {mark}"), r"(posix|os)\.system"),
        "eval": (Calls(eval, touch), "eval"),
        "exec": (Calls(exec, touch), "exec"),
        "open": (Calls(open, mark, "w"), "open"),
        "getattr": (Calls(getattr, "x", "upper"), "getattr"),
        "import": (Calls(builtins.__import__, "this"), "__import__"),
        "popen": (Calls(subprocess.Popen, ["touch", mark]), "Popen"),
        "torch.load": (Calls(torch.load, mark), r"torch\.serialization\.load"),
        "torch.jit": (Calls(torch.jit.load, mark), r"torch\.jit"),
        "from_file": (Calls(np.load, mark), "load"),
        "mkdir": (Calls(os.mkdir, mark), "mkdir"),
        "in a dict": ({"weight": [{"a": Calls(os.system, f"touch {mark}")}]}, "system"),
    }


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("name", list(payloads("")))
def test_a_pickle_that_runs_code(name, protocol, kind, tmp_path):
    mark = tmp_path / "mark"
    value, named = payloads(str(mark))[name]
    path = FILES[kind](tmp_path / "m.pt", pickle.dumps(value, protocol))
    refused(path, named)
    assert not mark.exists()


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize(
    "program",
    [
        b"cos\nsystem\n(S'touch mark'\ntR.",
        b"(S'touch mark'\nios\nsystem\n.",
        b"(cos\nsystem\nS'touch mark'\no.",
        b"\x80\x02cos\nsystem\nX\x0a\x00\x00\x00touch mark\x85R.",
        b"\x80\x02ccollections\nOrderedDict\n)R}X\x01\x00\x00\x00acos\nsystem\nsb.",
        b"\x80\x02c__builtin__\ngetattr\nccollections\nOrderedDict\nX\x04\x00\x00\x00copy\x86R.",
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2.__globals__\n.",
        b"\x80\x04\x8c\x05torch\x8c\x10hub.load_from_url\x93.",
        b"\x80\x02\x82\x01.",  # an extension's code
        b"\x80\x02ccollections\nOrderedDict\n)\x81.",
        b"\x80\x02\x97.",
    ],
)
def test_programs_by_hand(program, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = FILES[kind](tmp_path / "m.pt", program)
    refused(path, "asks for|opcode|not written by|has no tensors")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "program",
    [
        b"ctorch\nFloatStorage\n}X\x05\x00\x00\x00_makeNsb.",  # changes what is shared by all
        b"ctorch._utils\n_rebuild_tensor_v2\n(}}ttb.",
        b"ctorch\nFloatStorage\n(N}tb.",
        b"]}b.", b"}]b.", b"K\x01)R.", b"N)R.", b"0.", b".", b"(.", b"t.", b"u.", b"R.", b"Q.",
        b"NQ.",
        b"h\x07.", b"j\xff\xff\xff\x7f.", b"}]Ns.", b"](K\x01u.", b"NNa.", b"(NNe.",
        b"X\xff\xff\xff\xffa.", b"X\x01\x00\x00\x00\xff.", b"U\x05a.", b"\x8a\xff.", b"J\x00.",
        b"r\xff\xff\xff\xff.", b"\x8a\x09" + b"\x01" * 9 + b".",
        b"\x95" + b"\xff" * 8 + b".", b"T\xff\xff\xff\xff.", b"B\xff\xff\xff\x7f.",
        b"ctorch._utils\n_rebuild_tensor_v2\n)R.",
        b"ctorch._utils\n_rebuild_tensor_v2\n(NK\x00)))tR.",
        b"ctorch._utils\n_rebuild_parameter\n)R.",
        b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch\nSize\nNNNtR.",
        b"ccollections\nOrderedDict\n(K\x01tR.",
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", FILES)
def test_oddities(program, kind, tmp_path):
    """Opcodes in an order that no pickler writes: refused, or nothing is found in the result."""
    refused(FILES[kind](tmp_path / "m.pt", b"\x80\x02" + program), "")


def test_nothing_lasts_of_a_pickle_that_changes_what_it_names(tmp_path):
    path = archive(tmp_path / "m.pt", b"\x80\x02ctorch\nFloatStorage\n}X\x04\x00\x00\x00nameNsb.")
    refused_any = pytest.raises(rl.FileError)
    with refused_any:
        rl.load(path)
    state = torch.nn.GRU(3, 2).state_dict()
    assert list(rl.load(save(tmp_path / "n.pt", state))) == ["gru"]


# -------------------------------------------------------------------------------------- claims


def tensor(numel, shape, strides, offset=0, key="0", kind="FloatStorage"):
    """A dict of one tensor, as torch would pickle it."""

    class Storage(Calls):
        pass

    class Pickler(pickle._Pickler):
        def persistent_id(self, value):
            return value.args if isinstance(value, Id) else None

        def save_global(self, value, name=None):
            self.write(b"c" + value.text.encode() + b"\n")

        dispatch = {**pickle._Pickler.dispatch}  # noqa: RUF012

    class Id:
        def __init__(self, *args):
            self.args = args

    class Global:
        def __init__(self, text):
            self.text = text

        def __call__(self):
            pass

        def __reduce__(self):
            return self.text

    storage = Id("storage", Global(f"torch\n{kind}"), key, "cpu", numel)
    rebuild = Global("torch._utils\n_rebuild_tensor_v2")
    out = io.BytesIO()
    call = Calls(rebuild, storage, offset, shape, strides, False, {})
    Pickler(out, 2).dump({"weight": call})
    return out.getvalue()


CLAIMS = {
    "a huge storage": tensor(1 << 50, (1 << 50,), (1,)),
    "beyond any integer": tensor((1 << 62), (4,), (1,)),
    "negative": tensor(-4, (4,), (1,)),
    "no number": tensor("4", (4,), (1,)),
    "true": tensor(True, (1,), (1,)),
    "more than is stored": tensor(5, (5,), (1,)),
    "fewer than are stored": tensor(3, (3,), (1,)),
    "a shape beyond the storage": tensor(4, (5,), (1,)),
    "strides beyond it": tensor(4, (2, 2), (3, 1)),
    "an offset beyond it": tensor(4, (4,), (1,), 1),
    "a negative offset": tensor(4, (4,), (1,), -1),
    "a negative stride": tensor(4, (4,), (-1,), 3),
    "a negative shape": tensor(4, (-4,), (1,)),
    "an expanded bomb": tensor(4, (1 << 40,), (0,)),
    "sixty dimensions": tensor(4, (1,) * 60, (1,) * 60),
    "fewer strides": tensor(4, (2, 2), (1,)),
    "strings": tensor(4, ("2",), (1,)),
    "another member": tensor(4, (4,), (1,), key="1"),
    "a path": tensor(4, (4,), (1,), key="../../../etc/passwd"),
    "a key that is not a string": tensor(4, (4,), (1,), key=0),
    "an unknown kind": tensor(4, (4,), (1,), kind="Size"),
}


@pytest.mark.parametrize("kind", ["archive", "old"])
@pytest.mark.parametrize("name", CLAIMS)
def test_claims(name, kind, tmp_path):
    values = np.arange(4, dtype="f4").tobytes()
    if kind == "archive":
        path = archive(tmp_path / "m.pt", CLAIMS[name], _0=values)
    else:
        path = old(tmp_path / "m.pt", CLAIMS[name], struct.pack("<q", 4) + values, ["0"])
    with pytest.raises(rl.FileError, match=r"m\.pt"):
        # rl.load() would find no RNN in it and so refuse any of them
        _torch_file.read_torch_file(path)


@pytest.mark.parametrize("kind", ["archive", "old"])
def test_the_right_claim(kind, tmp_path):
    """The files of test_claims are refused for their claim alone."""
    values = np.arange(4, dtype="f4").tobytes()
    right = tensor(4, (3,), (1,), 1)
    if kind == "archive":
        path = archive(tmp_path / "m.pt", right, _0=values)
    else:
        path = old(tmp_path / "m.pt", right, struct.pack("<q", 4) + values, ["0"])
    assert _torch_file.read_torch_file(path)["weight"].bits().tolist() == [1, 2, 3]


# --------------------------------------------------------------------------- other kinds of files


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.GRU(3, 2)

    def forward(self, x):
        return self.rnn(x)[0]


@every_form
@pytest.mark.parametrize("make", [Net, lambda: torch.nn.GRU(3, 2)], ids=["own", "torch's"])
def test_a_whole_module(make, form, tmp_path):
    refused(save(tmp_path / "m.pt", make(), form), "state_dict")


def test_programs_of_torch(tmp_path):
    path = tmp_path / "m.pt"
    torch.jit.save(torch.jit.script(Net()), path)
    refused(path, r"TorchScript archive.*torch\.jit\.load\(\)")
    path = tmp_path / "m.pt2"
    with zipfile.ZipFile(path, "w") as made:  # torch.export.save() takes 10 s
        made.writestr("m/archive_format", "pt2")
        made.writestr("m/models/model.json", "{}")
    refused(path, "torch.export archive")
    for suffix in (".jit", ".pt2"):
        with pytest.raises(rl.FileError, match=r"unknown format.*\.pt,"):
            rl.save(tmp_path / f"n{suffix}", rl.Weights(torch.nn.GRU(3, 2)))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.pt", "m.pt2"]


def test_a_quantized_module(tmp_path):
    net = torch.nn.Sequential(torch.nn.LSTM(5, 3))
    quantized = torch.ao.quantization.quantize_dynamic(net, {torch.nn.LSTM}, dtype=torch.qint8)
    refused(save(tmp_path / "m.pt", quantized.state_dict()), "ScriptObject.*quantized module")


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"PK\x03\x04", b"\x80\x02N.", b"hello", b"\x80", b"\x89HDF\r\n\x1a\n"],
    ids=repr,
)  # fmt: skip
def test_something_else(data, tmp_path):
    refused(bare(tmp_path / "m.pt", data), "")


def test_zip_oddities(tmp_path):
    good = save(tmp_path / "m.pt", torch.nn.GRU(3, 2).state_dict())
    with zipfile.ZipFile(good) as opened:
        members = {info.filename: opened.read(info) for info in opened.infolist()}

    def again(change, compression=zipfile.ZIP_STORED):
        path = tmp_path / "n.pt"
        with zipfile.ZipFile(path, "w", compression) as made:
            for name, data in change(dict(members)).items():
                made.writestr(name, data)
        return path

    assert list(rl.load(again(lambda m: m))) == ["gru"]
    refused(again(lambda m: m, zipfile.ZIP_DEFLATED), "compressed")
    refused(again(lambda m: m | {"m/byteorder": b"big"}), "big-endian")
    refused(again(lambda m: {k: v for k, v in m.items() if k != "m/data/1"}), "no member m/data/1")
    refused(again(lambda m: {k: v for k, v in m.items() if k != "m/data.pkl"}), r"data\.pkl")
    refused(again(lambda m: m | {"m/code/a.py": b""}), "TorchScript")


def test_a_pickle_alone_has_no_storages(tmp_path):
    """tools/fuzz, .old.pt 12025: without its first pickle an old file is one pickle."""
    path = tmp_path / "m.pt"
    save(path, torch.nn.GRU(3, 2).state_dict(), "old")
    data = path.read_bytes()
    at = data.index(b"\x80\x02ccollections")
    refused(bare(path, data[at:]), "storages of its tensors are missing")
