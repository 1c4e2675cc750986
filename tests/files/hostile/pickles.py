"""Hostile checkpoints of torch, in each form: an archive, the older one, a bare pickle."""

import itertools
import os
import pickle
import subprocess

import torch
from files.hostile.case import Calls, each, files
from files.hostile.good import archive

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001


VALUES = bytes(16)


def in_archive(pickled, values=VALUES):
    return archive({"m/data.pkl": pickled, "m/data/0": values, "m/version": b"3\n"})


def in_old(pickled, values=b""):
    head = b"".join(pickle.dumps(part, 2) for part in (MAGIC, VERSION, {"little_endian": True}))
    storages = (len(values) // 4).to_bytes(8, "little") + values if values else b""
    return head + pickled + pickle.dumps(["0"] if values else [], 2) + storages


# The forms of a file, each with its suffix.
FORMS = {".pt": in_archive, ", old form.pt": in_old, ", bare.pt": bytes, ".pkl": bytes}
PAYLOADS = {
    "os.system": (lambda mark: Calls(os.system, f"touch {mark}"), r"(posix|os)\.system"),
    "eval": (lambda mark: Calls(eval, f"open({mark!r}, 'w')"), "eval"),
    "open": (lambda mark: Calls(open, mark, "w"), "open"),
    "getattr": (lambda mark: Calls(getattr, "x", "upper"), "getattr"),
    "Popen": (lambda mark: Calls(subprocess.Popen, ["touch", mark]), "Popen"),
    "torch.load": (lambda mark: Calls(torch.load, mark), r"torch\.serialization\.load"),
    "torch.jit": (lambda mark: Calls(torch.jit.load, mark), r"torch\.jit"),
    "mkdir": (lambda mark: Calls(os.mkdir, mark), "mkdir"),
    "deep in a dict": (
        lambda mark: {"state_dict": {"w": [{"a": Calls(os.mkdir, mark)}]}}, "mkdir",
    ),
}  # fmt: skip
# What several programs do: a text of 100,000 bytes; call the first thing with the second one.
TEXT, LATIN = b"X\xa0\x86\x01\x00" + b"a" * 100_000, b"X\x06\x00\x00\x00latin1"
AGAIN = b"h\x00h\x01R" * 20_000
PROGRAMS = {
    "GLOBAL": b"cos\nsystem\n(S'touch mark'\ntR.",
    "INST": b"(S'touch mark'\nios\nsystem\n.",
    "OBJ": b"(cos\nsystem\nS'touch mark'\no.",
    "a value of a dict": b"\x80\x02ccollections\nOrderedDict\n)R}X\x01\0\0\0acos\nsystem\nsb.",
    "getattr by hand":
        b"\x80\x02c__builtin__\ngetattr\nccollections\nOrderedDict\nX\x04\0\0\0copy\x86R.",
    "STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x0atouch mark\x85R.",
    "an import without a call": b"cthis\nthis\n.",
    "torch.load": b"\x80\x02ctorch.serialization\nload\nX\x0b\x00\x00\x00/etc/passwd\x85R.",
    "torch.hub": b"\x80\x04\x8c\x05torch\x8c\x10hub.load_from_url\x93.",
    "globals": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2.__globals__\n.",
    "a name of numbers": (b"\x80\x04K\x01K\x02\x93.", "a name that is not a text"),
    "a name of 3,000 bytes": (
        b"\x80\x04X\xb8\x0b\0\0" + b"a" * 3000 + b"\x8c\x01b\x93.", "name .*too long",
    ),
    "an extension's code": b"\x80\x02\x82\x01.",
    "NEWOBJ": b"\x80\x02ccollections\nOrderedDict\n)\x81.",
    "NEXT_BUFFER": b"\x80\x05\x97.",
    "BUILD of what is shared": b"\x80\x02ctorch\nFloatStorage\n}X\x01\x00\x00\x00aNsb.",
    "an empty stack": b"\x80\x02R.",
    "a mark too many": b"\x80\x02(.",
    "no end": b"\x80\x02}",
    "a text beyond the end": b"\x80\x02X\xff\xff\xff\x7fa.",
    "a frame beyond all": b"\x80\x04\x95" + b"\xff" * 8 + b".",
    "a long beyond all": b"\x80\x02\x8b\xff\xff\xff\x7f\x01.",
    "a memo of 2 GB": b"\x80\x02]r\x00\x00\x00\x70.",
    "dicts": b"\x80\x02" + b"}" * (1 << 20) + b".",
    "lists in lists": b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
    "tuples in tuples": b"\x80\x02N" + b"\x85" * (1 << 20) + b".",
    "dicts in dicts": b"\x80\x02}" + b"K\x01}" * 50_000 + b"s" * 50_000 + b".",
    "doubled a hundred times":
        b"\x80\x02}q\x00" + b"}q\x01(K\x01h\x00K\x02h\x00uq\x00" * 100 + b".",
    "a list in itself": b"\x80\x02]q\x00h\x00a.",
    "frames": b"\x80\x04" + b"\x95\x00\x00\x00\x00\x00\x00\x00\x00" * 300_000 + b"N.",
    "a tuple in 400,000 others, as a key": b"\x80\x02}N" + b"\x85" * 400_000 + b"Ns.",
    "two equal tuples in 100,000 others, as keys":
        b"\x80\x02}" + (b"N" + b"\x85" * 100_000 + b"Ns") * 2 + b".",
    "a tuple that is passed 90,000 times":
        b"\x80\x02(ccollections\ndefaultdict\nq\x00(" + b"N" * 100_000 + b"tq\x01R"
        + b"h\x00h\x01R" * 90_000 + b"t.",
    "a text that is copied by a rebuilt type":
        b"\x80\x02(ctorch._tensor\n_rebuild_from_type_v2\nq\x00(c_codecs\nencode\nN" + TEXT
        + LATIN + b"\x86Ntq\x01R" + AGAIN + b"t.",
    "a long key in 30,000 dicts":
        b"\x80\x02" + TEXT + b"q\x00(" + b"}h\x00cab\ncd\ns" * 30_000 + b"t.",
    "dimensions of an array":
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n\x85R(K\x01("
        + (b"\x8a\xff" + b"\xff" * 254 + b"\x7f") * 4000
        + b"tcnumpy\ndtype\nX\x02\x00\x00\x00u1\x85R\x89U\x01atb.",
    "a text that is copied 20,000 times":
        b"\x80\x02(c_codecs\nencode\nq\x00" + TEXT + LATIN + b"\x86q\x01R" + AGAIN + b"t.",
    "a dict that is copied 20,000 times":
        b"\x80\x02(ccollections\nOrderedDict\nq\x00}("
        + b"".join(b"M" + k.to_bytes(2, "little") + b"N" for k in range(20_000))
        + b"u\x85q\x01R" + AGAIN + b"t.",
    **{f"an array's state in a {kind} that is used 20,000 times":
       b"\x80\x02(cnumpy.core.multiarray\n_reconstruct\nq\x00cnumpy\nndarray\n\x85q\x01R" + first
       + b"(K\x01M\x50\xc3\x85cnumpy\ndtype\nX\x02\x00\x00\x00u1\x85R\x89X\x50\xc3\x00\x00"
       + b"a" * 50_000 + last + b"q\x02b" + b"h\x00h\x01Rh\x02b" * 20_000 + b"t."
       for kind, first, last in (("tuple", b"", b"t"), ("list", b"]", b"e"))},
    "a million marks": b"\x80\x02" + b"(" * 790_000 + b".",
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


def storage(numel, kind=b"FloatStorage", key=b"U\x010"):
    """Return a persistent id, as torch pickles a storage."""
    return (
        b"(U\x07storagectorch\n" + kind + b"\n" + key + b"U\x03cpu" + long(numel) + b"tQ"
    )  # fmt: skip


def long(n):
    """Return the program of an integer; other programs are given as bytes."""
    if isinstance(n, bytes):
        return n
    data = n.to_bytes(17, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def sizes(*numbers):
    return b"(" + b"".join(map(long, numbers)) + b"t"


def tensor(numel=4, shape=(4,), strides=(1,), offset=0, **more):
    """{"weight": a tensor}"""
    return (
        b"\x80\x02}U\x06weightctorch._utils\n_rebuild_tensor_v2\n(" + storage(numel, **more)
        + long(offset) + sizes(*shape) + sizes(*strides) + b"\x89ccollections\nOrderedDict\n)RtRs."
    )  # fmt: skip


REFUSED = r"\A(?!.*no recurrent layer)"  # not only for want of an RNN
STORAGE = "a storage of unknown kind"


CLAIMS = {
    "a storage of a petabyte": tensor(1 << 48, (1 << 48,)),
    "more than is stored": tensor(5, (5,)),
    "strides beyond its storage": tensor(shape=(2, 2), strides=(3, 1)),
    "a negative stride": tensor(strides=(-1,), offset=3),
    "an expanded bomb": tensor(shape=(1 << 40,), strides=(0,)),
    "sixty axes": tensor(shape=(1,) * 60, strides=(1,) * 60),
    "a storage of true": tensor(b"\x88", (1,)),
    **each(tensor, "numel", -4, b"U\x014"),
    **each(tensor, "shape", (5,), (-4,), (2, 2), (b"U\x012",)),
    **each(tensor, "offset", 1, -1),
    **each(tensor, "key", b"U\x13../../../etc/passwd", b"U\x011"),
    **each(tensor, "key", b"K\0", says=STORAGE),
    **each(tensor, "kind", b"Size", says=STORAGE),
}


# A tuple that has itself twice, 60 times over: its text would fill any memory.
DOUBLED = b"K\x01\x85q\x01" + b"h\x01\x86q\x01" * 60
CLAIMS |= {
    "a shape of doubled tuples": (
        b"\x80\x02}U\x06weightctorch._utils\n_rebuild_tensor_v2\n(" + storage(4) + b"K\0"
        + DOUBLED + sizes(1) + b"\x89}tRs."
    ),
    "a storage of doubled tuples": storage(4).replace(long(4), DOUBLED).join((b"\x80\x02", b".")),
    "an array of doubled tuples": (
        b"\x80\x02cnumpy._core.numeric\n_frombuffer\n(U\1acnumpy\ndtype\nU\2f4\x85R"
        + DOUBLED + b"U\1CtR."
    ),
}  # fmt: skip


def array(shape=(4,), kind=b"f4", data=bytes(16), more=b""):
    """{"weight": a NumPy array}"""
    return (
        b"\x80\x03}U\x06weightcnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85C\1b\x87R"
        b"(K\1" + sizes(*shape) + b"cnumpy\ndtype\nU" + bytes([len(kind)]) + kind
        + b"K\0K\1\x87R(K\3U\1<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89C"
        + bytes([len(data)]) + data + b"tb" + more + b"s."
    )  # fmt: skip


ARRAYS = {
    "an array": array(),
    **each(array, "shape", (1 << 50,), (1 << 100, 0), (-4,), (5,), (3,)),
    **each(array, "kind", b"O8", b"S4"),
    "an array of bytes by a short name": array(kind=b"c1", shape=(16,)),
    "an array of a thousand axes": array((1,) * 1000, data=bytes(4)),
    "an array with its state twice": array(more=b"(K\1)NtNb"),
    "a number of objects": (
        b"\x80\x02cnumpy._core.multiarray\nscalar\ncnumpy\ndtype\nU\2O8\x85RU\1a\x86R."
    ),
    "bytes by another codec": b"\x80\x02c_codecs\nencode\nU\1aU\5rot13\x86R.",
}
# the bytes of one array, of which others are views
SHARED = b"\x80\x04}\x8c\1a\x8e" + (1 << 20).to_bytes(8, "little") + bytes(1 << 20) + b"\x94s."


def in_turn(table, forms):
    """Return the cases of a table, each in one form. The machine is the same for all forms."""
    turns = zip(table.items(), itertools.cycle(forms), strict=False)
    return {
        name: case
        for (name, row), form in turns
        for name, case in files({name: row}, form, kind="pickle, ", form=FORMS[form]).items()
    }


TORCH = list(FORMS)[:3]
PAYLOADS_IN_FORMS = [  # each in three protocols, each of them in another form
    in_turn({f"{name}, {protocol}": (
        lambda path, make=make, p=protocol: pickle.dumps(make(str(path.with_name("mark"))), p),
        says) for protocol in (2, 4, 5)}, TORCH[k % 3:] + TORCH)
    for k, (name, (make, says)) in enumerate(PAYLOADS.items())
]  # fmt: skip
CASES = {
    **{name: case for table in PAYLOADS_IN_FORMS for name, case in table.items()},
    **in_turn(PROGRAMS, FORMS),
    **files(CLAIMS, ".pt", kind="pickle, ", form=in_archive, says=REFUSED),
    **files(CLAIMS, ", old form.pt", kind="pickle, ", form=lambda data: in_old(data, VALUES),
            says=REFUSED),
    **in_turn(ARRAYS | {"shared": SHARED}, list(FORMS)[::-1]),
}  # fmt: skip
