"""Hostile checkpoints of torch, in each form: an archive, the older one, a bare pickle.

Some are objects that Python pickles, and some programs that no pickler writes.
"""

import codecs
import io
import itertools
import os
import pickle
import subprocess
from collections import OrderedDict

import numpy as np
import torch
from files.hostile.case import Calls, each, files
from files.hostile.good import archive

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001
RECONSTRUCT = np._core.multiarray._reconstruct
STORED = {"0": bytes(16)}  # the values of a storage, by its key


def in_archive(pickled, stored=STORED):
    members = {f"m/data/{key}": values for key, values in stored.items()}
    return archive({"m/data.pkl": pickled, **members, "m/version": b"3\n"})


def in_old(pickled, stored=STORED):
    head = b"".join(pickle.dumps(part, 2) for part in (MAGIC, VERSION, {"little_endian": True}))
    values = [(len(one) // 4).to_bytes(8, "little") + one for one in stored.values()]
    return head + pickled + pickle.dumps([*stored], 2) + b"".join(values)


# ---------------------------------------------------------------- objects that Python pickles


class Storage:
    """What torch pickles of a storage; its values are elsewhere."""

    def __init__(self, numel=4, kind=torch.FloatStorage, key="0"):
        self.told = "storage", kind, key, "cpu", numel


class Instance:
    """An object of a class that need not exist. name: "module class"."""

    def __init__(self, name, state):
        self.name, self.state = name, state


class Pickler(pickle._Pickler):
    def persistent_id(self, one):
        return one.told if isinstance(one, Storage) else None

    def save_instance(self, one):
        self.write(b"c" + one.name.encode().replace(b" ", b"\n") + b"\n)" + pickle.NEWOBJ)
        self.memoize(one)
        self.save(one.state)
        self.write(pickle.BUILD)

    dispatch = pickle._Pickler.dispatch | {Instance: save_instance}


def dumped(value, protocol=2):
    made = io.BytesIO()
    Pickler(made, protocol).dump(value)
    return made.getvalue()


def view(shape=(4,), strides=(1,), offset=0, **storage):
    """Return what is pickled as a tensor. storage: arguments of Storage."""
    make = torch._utils._rebuild_tensor_v2
    return Calls(make, Storage(**storage), offset, shape, strides, False, OrderedDict())


def tensor(**more):
    return dumped({"weight": view(**more)})


def array(shape=(4,), dtype="f4", data=bytes(16)):
    """Return what is pickled as a NumPy array."""
    state = (1, shape, np.dtype(dtype), False, data)
    return Calls(RECONSTRUCT, np.ndarray, (0,), b"b", state=state)


# A tuple that has itself twice, 60 times over: its text would fill any memory.
DOUBLED = (1,)
for _ in range(60):
    DOUBLED = (DOUBLED, DOUBLED)
REFUSED = r"\A(?!.*no recurrent layer)"  # not only for want of an RNN
STORAGE = "a storage of unknown kind"
CLAIMS = {
    "a storage of a petabyte": tensor(numel=1 << 48, shape=(1 << 48,)),
    "more than is stored": tensor(numel=5, shape=(5,)),
    "strides beyond its storage": tensor(shape=(2, 2), strides=(3, 1)),
    "a negative stride": tensor(strides=(-1,), offset=3),
    "an expanded bomb": tensor(shape=(1 << 40,), strides=(0,)),
    "sixty axes": tensor(shape=(1,) * 60, strides=(1,) * 60),
    "a storage of true": tensor(numel=True, shape=(1,)),
    **each(tensor, "numel", -4, "4", DOUBLED),
    **each(tensor, "shape", (5,), (-4,), (2, 2), ("2",), DOUBLED),
    **each(tensor, "offset", 1, -1),
    **each(tensor, "key", "../../../etc/passwd", "1"),
    **each(tensor, "key", 0, says=STORAGE),
    **each(tensor, "kind", torch.Size, says=STORAGE),
}


def pickled_array(**more):
    return dumped({"weight": array(**more)}, 3)


ARRAYS = {
    "an array": pickled_array(),
    **each(pickled_array, "shape", (1 << 50,), (1 << 100, 0), (-4,), (5,), (3,), DOUBLED,
           (1 << 2000,) * 4000),
    **each(pickled_array, "dtype", "O", "S4", "c"),
    "an array of a thousand axes": pickled_array(shape=(1,) * 1000, data=bytes(4)),
    "a number of objects": dumped(Calls(np._core.multiarray.scalar, np.dtype("O"), "a")),
    "bytes by another codec": dumped(Calls(codecs.encode, "a", "rot13")),
    "a large array": pickled_array(shape=(1 << 20,), dtype="u1", data=bytes(1 << 20)),
}  # fmt: skip

# ---------------------------------------------------------------------------- calls, and programs

# The forms of a file, each with its suffix.
FORMS = {".pt": in_archive, ", old form.pt": lambda data: in_old(data, {}), ", bare.pt": bytes,
         ".pkl": bytes}  # fmt: skip
PAYLOADS = {
    "os.system": (lambda mark: Calls(os.system, f"touch {mark}"), r"(posix|os)\.system"),
    "eval": (lambda mark: Calls(eval, f"open({mark!r}, 'w')"), "eval"),
    "Popen": (lambda mark: Calls(subprocess.Popen, ["touch", mark]), "Popen"),
    "deep in a dict": (
        lambda mark: {"state_dict": {"w": [{"a": Calls(os.mkdir, mark)}]}}, "mkdir",
    ),
}  # fmt: skip
PAYLOADS = {
    f"{name}, {protocol}": (
        lambda path, make=make, p=protocol: pickle.dumps(make(str(path.with_name("mark"))), p),
        says,
    )
    for name, (make, says) in PAYLOADS.items()
    for protocol in (2, 4, 5)
}
TEXT = "a" * 100_000


def again(make, *arguments, state=None):
    """Return a function that makes a pickle with 4,000 calls of something with these arguments."""
    return lambda path: dumped([Calls(make, *arguments, state=state) for _ in range(4000)])


PROGRAMS = {
    "INST": b"(S'touch mark'\nios\nsystem\n.",
    "OBJ": b"(cos\nsystem\nS'touch mark'\no.",
    "an import without a call": b"cthis\nthis\n.",
    "a name of numbers": (b"\x80\x04K\x01K\x02\x93.", "a name that is not a text"),
    "a name of 3,000 bytes": (
        b"\x80\x04X\xb8\x0b\0\0" + b"a" * 3000 + b"\x8c\x01b\x93.", "name .*too long",
    ),
    "an extension's code": b"\x80\x02\x82\x01.",
    "NEWOBJ": b"\x80\x02ccollections\nOrderedDict\n)\x81.",
    "BUILD of what is shared": b"\x80\x02ctorch\nFloatStorage\n}X\x01\x00\x00\x00aNsb.",
    "a mark too many": b"\x80\x02(.",
    "a text beyond the end": b"\x80\x02X\xff\xff\xff\x7fa.",
    "a memo of 2 GB": b"\x80\x02]r\x00\x00\x00\x70.",
    "lists in lists": b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
    "doubled a hundred times":
        b"\x80\x02}q\x00" + b"}q\x01(K\x01h\x00K\x02h\x00uq\x00" * 100 + b".",
    "a list in itself": b"\x80\x02]q\x00h\x00a.",
    "frames": b"\x80\x04" + b"\x95\x00\x00\x00\x00\x00\x00\x00\x00" * 100_000 + b"N.",
    "a tuple in 400,000 others, as a key": b"\x80\x02}N" + b"\x85" * 400_000 + b"Ns.",
    "a text that is copied by a rebuilt type":
        again(torch._tensor._rebuild_from_type_v2, codecs.encode, None, (TEXT, "latin1"), None),
    "a long key in 4,000 dicts": lambda path: dumped([{TEXT: len} for _ in range(4000)]),
    "a text that is copied 4,000 times": again(codecs.encode, TEXT, "latin1"),
    "a dict that is copied 4,000 times": again(OrderedDict, dict.fromkeys(range(20_000))),
    **{f"an array's state, a {kind.__name__} that is used 4,000 times":
       again(RECONSTRUCT, np.ndarray, (0,), "b",
             state=kind((1, (50_000,), np.dtype("u1"), False, TEXT[:50_000])))
       for kind in (tuple, list)},
    "lists in the memo": b"\x80\x04" + b"]\x94" * 390_000 + b".",
    "names": b"\x80\x02" + b"cab\ncd\n" * 700_000 + b".",
    "calls": b"\x80\x02" + b"cnumpy\ndtype\nX\2\0\0\0f4\x85R" * 190_000 + b".",
    "a function that makes tensors, made by itself": (
        b"\x80\x02" + b"(ctorch._tensor\n_rebuild_from_type_v2\nN" * 5000 + b"NNt" * 5000 + b"R."
    ),
    "keys that collide": b"\x80\x02}(" + b"".join(
        b"\x8a\x0b" + (k * (2**61 - 1)).to_bytes(11, "little") + b"N" for k in range(30_000)
    ) + b"u.",
}  # fmt: skip


# Opcodes in an order that no pickler writes.
ODD = [
    b"ctorch\nFloatStorage\n}X\x05\x00\x00\x00_makeNsb.",  # changes what is shared by all
    b"ctorch._utils\n_rebuild_tensor_v2\n(}}ttb.",
    b"ctorch\nFloatStorage\n(N}tb.",
    b"]}b.", b"}]b.", b"K\x01)R.", b"N)R.", b"0.", b".", b"(.", b"t.", b"u.", b"R.", b"Q.", b"NQ.",
    b"N.", b"h\x07.", b"j\xff\xff\xff\x7f.", b"}]Ns.", b"](K\x01u.", b"NNa.", b"(NNe.",
    b"X\xff\xff\xff\xffa.", b"X\x01\x00\x00\x00\xff.", b"U\x05a.", b"\x8a\xff.", b"J\x00.",
    b"r\xff\xff\xff\xff.", b"\x8a\x09" + b"\x01" * 9 + b".", b"\x97.",
    b"\x95" + b"\xff" * 8 + b".", b"T\xff\xff\xff\xff.", b"B\xff\xff\xff\x7f.",
    b"ctorch._utils\n_rebuild_tensor_v2\n)R.",
    b"ctorch._utils\n_rebuild_tensor_v2\n(NK\x00)))tR.",
    b"ctorch._utils\n_rebuild_parameter\n)R.",
    b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch\nSize\nNNNtR.",
    b"ccollections\nOrderedDict\n(K\x01tR.",
]  # fmt: skip
PROGRAMS |= {f"opcodes {k}": b"\x80\x02" + program for k, program in enumerate(ODD)}


def in_turn(table, forms, kind="pickle, "):
    """Return the cases of a table, each in one form. The machine is the same for all forms."""
    turns = zip(table.items(), itertools.cycle(forms), strict=False)
    return {
        name: case
        for (name, row), form in turns
        for name, case in files({name: row}, form, kind=kind, form=FORMS[form]).items()
    }


CASES = {
    **in_turn(PAYLOADS | PROGRAMS, FORMS),
    **files(CLAIMS, ".pt", kind="pickle, ", form=in_archive, says=REFUSED),
    **files(CLAIMS, ", old form.pt", kind="pickle, ", form=in_old, says=REFUSED),
    **in_turn(ARRAYS, list(FORMS)[::-1]),
}
