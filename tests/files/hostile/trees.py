"""Hostile files of JAX's libraries, Paddle, TensorFlow and MXNet: .msgpack,
.eqx, .pdparams, .index, .params."""

import pickle
import struct

import msgpack
import numpy as np
from files.hostile.case import Calls, each, files
from files.hostile.good import (
    HEADER,
    MAGIC,
    allowed,
    beside,
    entries_of,
    entry,
    field,
    good,
    numbers,
    table,
    varint,
    weights,
)
from files.hostile.tensor_sets import NPY, touches


def array(shape, dtype="float32", data=bytes(16), code=1):
    parts = msgpack.packb((shape, dtype, data)) if not isinstance(shape, bytes) else shape
    return msgpack.ExtType(code, parts)


def tree(shape=(4,), **more):
    return cell(array(shape, **more))


def cell(value):
    return msgpack.packb({"params": {"cell": {"hi": {"kernel": value}}}})


def in_chunks(shape, chunks):
    return {"__msgpack_chunked_array__": True, "shape": shape, "chunks": chunks}


FLAT = array((4,))
# What is wrong with a shape itself is asked in the same way of every format: tensor_sets.py.
MSGPACK = {
    "an array alone": msgpack.packb(array((4,))),
    "no arrays": msgpack.packb({"a": 1}),
    "an unused byte": b"\xc1",
    "a list of 2**32 items": b"\xdd\xff\xff\xff\xff" + bytes(1000),
    "a list of a million nothings": b"\xdd\x00\x0f\x42\x40" + b"\xc0" * 1_000_000,
    "an own type beyond the end": b"\xc9\xff\xff\xff\xff\x01" + b"a" * 100,
    "lists in lists": b"\x91" * 100_000 + b"\xc0",
    "lists in an array": cell(array(b"\x91" * 100_000)),
    "a key that is a list": b"\x81\x91\x01\x01",
    "a key twice": b"\x82\xa1a\x01\xa1a\x01",
    "a text that is not UTF-8": b"\x81\xa2\xff\xfe\x01",
    **each(tree, "shape", (1 << 48,), (-4,), 4, (5,), (3,)),
    "a dtype of objects": tree((2,), dtype="object"),
    **each(tree, "dtype", "../../etc/passwd", 32, "f4,f4", "f" * 1_000_000),
    "bytes that are a text": tree(data="a" * 16),
    "parts that are cut": tree(msgpack.packb(((4,), "float32", bytes(16)))[:-1]),
    "no chunks": cell(in_chunks({"0": 4}, {})),
    "chunks that are a list": cell(in_chunks({"0": 4}, [FLAT])),
    "chunks that are matrices": cell(in_chunks({"0": 4}, {"0": array((2, 2))})),
    "chunks in chunks": cell(in_chunks({"0": 4}, {"0": in_chunks({"0": 4}, {"0": FLAT})})),
    "a name twice": msgpack.packb({"a": {"b": FLAT}, "a/b": FLAT}),
    "metadata of numbers": msgpack.packb({"__metadata__": {"a": 1}, "a": FLAT}),
    "records of a megabyte": msgpack.packb(
        {"__metadata__": {"rnnlayout": "[" * 1_000_000}, "a": FLAT}
    ),
    "very many arrays of nothing": msgpack.packb(
        {f"{k}": {"hi": {"kernel": array((0,), data=b"")}} for k in range(5_000)}
    ),
}


EQX = {
    **{name: row for name, row in NPY.items() if name != "no axes"},
    "a line of JSON alone": b'{"a":1}\n',
    "a line of JSON without end": b"{" * 3_000_000,
    "an array that is cut": good(".eqx")[:-1],
    "bytes behind": good(".eqx") + b"a",
    "an array beside a large one": good(".eqx") + NPY["a shape of a petabyte"][0],
}


W = np.ones((12, 5), "f4")
PDPARAMS = {
    "a tuple of a tuple": pickle.dumps({"a": Calls(tuple, (("a", ("b", W)),))}, 4),
    "a tuple that is empty": pickle.dumps({"a": Calls(tuple)}, 4),
    "a name that is a number": pickle.dumps({"a": Calls(tuple, (1, W))}, 4),
    "arrays in slices": pickle.dumps(
        {"UnpackBigParamInfor@@": {"a": {"slices": ["b"]}}, "b": W}, 4
    ),
    "names for nothing": pickle.dumps({"StructuredToParameterName@@": {"a": "b"}}, 4),
    "a pickle of protocol 0": pickle.dumps({"a": 1}, 0),
    "bytes behind": good(".pdparams") + b"a",
    "a persistent tensor": b"\x80\x02}U\x01aQ.",
    "an object": lambda path: pickle.dumps({"a": touches(path)}, 4),
}


GOOD = entries_of(weights("torch"))
FIRST = "weight_ih_l0"


def index(**first):
    """Return an index whose first matrix has another entry."""
    return table(GOOD | {FIRST: entry(**{"shape": (12, 5), "at": 0, "size": 240} | first)})


INDEX = {
    "nothing but the magic": bytes(40) + MAGIC,
    "no magic": good(".index")[:-1] + b"a",
    "a block longer than the file": (
        bytes(8) + (bytes(3) + varint(1 << 20)).ljust(40, b"\0") + MAGIC,
        "is beyond the end",
    ),
    "compressed": (table(GOOD, compression=1), "is compressed"),
    "no header": table({name: one for name, one in GOOD.items() if name}),
    "no tensors": table({"": HEADER}),
    "very many tensors": table(
        {"": HEADER, **dict.fromkeys((f"{k:05x}" for k in range(60_000)), entry((0,), 0, 0))}
    ),
    "a header of two shards": table(GOOD | {"": field(1, 2)}),
    "a header of texts": table(GOOD | {"": field(1, b"../../etc/passwd")}),
    "a big-endian machine": table(GOOD | {"": field(1, 1) + field(2, 1)}),
    "a name twice": table(
        {"": HEADER, "a": GOOD[FIRST], "a/.ATTRIBUTES/VARIABLE_VALUE": GOOD[FIRST]}
    ),
    "a shard beyond all": index(f3=1 << 40),
    **each(index, "at", 1 << 62, len(numbers()) - 239),  # the data overlap the end
    **each(index, "size", 1 << 62, 236),
    **each(index, "shape", (1 << 48,), ((1 << 64) - 12, 5), (1,) * 10_000),
    "a dtype that is a text": table(GOOD | {FIRST: field(1, b"float") + field(5, 240)}),
    "a shape that is a number": table(GOOD | {FIRST: field(1, 1) + field(2, 5) + field(5, 240)}),
    "an entry that is cut": table(GOOD | {FIRST: GOOD[FIRST][:-1]}),
    "a wire type that does not exist": table(GOOD | {FIRST: b"\x0f"}),
}


def nd(shape=(2,), magic=0xF993FAC9, stype=0, kind=0, data=bytes(8), ndim=None):
    """Return an array as MXNet writes it."""
    ndim = len(shape) if ndim is None else ndim
    return struct.pack(f"<Iii{len(shape)}qiii", magic, stype, ndim, *shape, 1, 0, kind) + data


def params(*arrays, names=("a",), count=None, more=None):
    texts = b"".join(struct.pack("<Q", len(name)) + name.encode() for name in names)
    counts = len(arrays) if count is None else count, len(names) if more is None else more
    first = struct.pack("<QQQ", 0x112, 0, counts[0]) + b"".join(arrays)
    return first + struct.pack("<Q", counts[1]) + texts


def damaged(**more):
    return params(nd(**more))


PARAMS = {
    "nothing but the magic": params()[:16],
    "no arrays": params(names=()),
    "2**63 arrays": params(nd(), count=1 << 63),
    "2**63 names": params(nd(), more=1 << 63),
    "more names than arrays": params(nd(), names=("a", "b")),
    "a name twice": params(nd(), nd(), names=("a", "a")),
    "a name of a megabyte": params(nd(), names=("a" * 1_000_000,)),
    "a name beyond the end": params(nd())[:-1],
    "bytes behind": params(nd()) + b"a",
    "a sparse array": params(nd(stype=1)),
    "of MXNet 0": params(nd(magic=2)),
    **each(damaged, "kind", 13, -1, says=r"array 0: shape \(2,\) or dtype (13|-1) is damaged"),
    **each(damaged, "shape", (-2,), (-1, -2, 0), says=r"0: shape \(-.*\) or dtype 0 is damaged"),
    **each(damaged, "shape", (1 << 48,), (1,) * 33, (1000,)),
    **each(damaged, "ndim", 2**31 - 1, 0),
}


def with_numbers(row, data=None):
    """Return the row of an index with its data, or other data, beside it."""
    table, *says = row if isinstance(row, tuple) else (row,)

    def write(path):
        beside(path)
        if data is not None:
            allowed(path)[-1].write_bytes(data)
        return table

    return (write, *says)


CASES = {
    **files(MSGPACK, ".msgpack"),
    **files(EQX, ".eqx"),
    **files(PDPARAMS, ".pdparams"),
    **files(PARAMS, ".params"),
    **files({name: with_numbers(row) for name, row in INDEX.items()}, ".index"),
    **files({"nothing beside it": good(".index"),
             "data that are cut": with_numbers(good(".index"), numbers()[:-1])}, ".index"),
}  # fmt: skip
