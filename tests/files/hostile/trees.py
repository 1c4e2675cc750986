"""Hostile files of JAX's libraries and of Paddle: .msgpack, .eqx, .pdparams."""

import pickle

import msgpack
import numpy as np
from files.hostile.bags import NPY, Touches
from files.hostile.good import good


def array(shape, dtype="float32", data=bytes(16), code=1):
    parts = msgpack.packb((shape, dtype, data)) if not isinstance(shape, bytes) else shape
    return msgpack.ExtType(code, parts)


def cell(value):
    return msgpack.packb({"params": {"cell": {"hi": {"kernel": value}}}})


def in_chunks(shape, chunks):
    return {"__msgpack_chunked_array__": True, "shape": shape, "chunks": chunks}


FLAT = array((4,))
MSGPACK = {
    "a number": b"\x01",
    "a text": msgpack.packb("weights"),
    "an array alone": msgpack.packb(array((4,))),
    "no arrays": msgpack.packb({"a": 1}),
    "an unused byte": b"\xc1",
    "a map of 2**32 items": b"\xdf\xff\xff\xff\xff",
    "a list of 2**32 items": b"\xdd\xff\xff\xff\xff" + bytes(1000),
    "a list of a million nothings": b"\xdd\x00\x0f\x42\x40" + b"\xc0" * 1_000_000,
    "a text beyond the end": b"\xdb\xff\xff\xff\xff" + b"a" * 100,
    "bytes beyond the end": b"\xc6\xff\xff\xff\xff" + b"a" * 100,
    "an own type beyond the end": b"\xc9\xff\xff\xff\xff\x01" + b"a" * 100,
    "lists in lists": b"\x91" * 100_000 + b"\xc0",
    "maps in maps": b"\x81\xa1a" * 100_000 + b"\xc0",
    "lists in an array": cell(array(b"\x91" * 100_000)),
    "a key that is a list": b"\x81\x91\x01\x01",
    "a key that is nil": b"\x81\xc0\x01",
    "a key twice": b"\x82\xa1a\x01\xa1a\x01",
    "a text that is not UTF-8": b"\x81\xa2\xff\xfe\x01",
    "bytes behind": cell(FLAT) + b"\0",
    "a shape of a petabyte": cell(array((1 << 48,))),
    "a product of 2**64": cell(array((1 << 32, 1 << 32))),
    "a negative size": cell(array((-4,))),
    "two negative sizes": cell(array((-1, -4))),
    "a size with a point": cell(array((4.0,))),
    "a size that is true": cell(array((True, 4))),
    "a size that is a list": cell(array(([4],))),
    "a shape that is a number": cell(array(4)),
    "very many axes": cell(array((1,) * 100_000)),
    "too few bytes": cell(array((5,))),
    "too many bytes": cell(array((3,))),
    "a dtype of objects": cell(array((2,), "object")),
    "a dtype that is a path": cell(array((2,), "../../etc/passwd")),
    "a dtype that is a number": cell(array((4,), 32)),
    "a dtype of fields": cell(array((4,), "f4,f4")),
    "a dtype of a huge text": cell(array((1,), "S2147483647")),
    "a dtype of a megabyte": cell(array((4,), "f" * 1_000_000)),
    "bytes that are a text": cell(array((4,), data="a" * 16)),
    "no parts": cell(array(msgpack.packb(()))),
    "parts that are cut": cell(array(msgpack.packb(((4,), "float32", bytes(16)))[:-1])),
    "no chunks": cell(in_chunks({"0": 4}, {})),
    "chunks that are a list": cell(in_chunks({"0": 4}, [FLAT])),
    "chunks without a shape": cell({"__msgpack_chunked_array__": True}),
    "chunks of a petabyte": cell(in_chunks({"0": 1 << 48}, {"0": FLAT})),
    "chunks of another size": cell(in_chunks({"0": 5}, {"0": FLAT})),
    "chunks of two dtypes": cell(in_chunks({"0": 6}, {"0": FLAT, "1": array((2,), "float64")})),
    "chunks that are matrices": cell(in_chunks({"0": 4}, {"0": array((2, 2))})),
    "chunks in chunks": cell(in_chunks({"0": 4}, {"0": in_chunks({"0": 4}, {"0": FLAT})})),
    "chunks in chunks without end": b"\x82\xb9__msgpack_chunked_array__\xc3\xa6chunks" * 30_000,
    "chunks that are out of order": cell(in_chunks({"0": 8}, {"1": FLAT, "0": FLAT})),
    "a name twice": msgpack.packb({"a": {"b": FLAT}, "a/b": FLAT}),
    "metadata of numbers": msgpack.packb({"__metadata__": {"a": 1}, "a": FLAT}),
    "metadata that is a text": msgpack.packb({"__metadata__": "a", "a": FLAT}),
    "records of a megabyte": msgpack.packb(
        {"__metadata__": {"rnnlayout": "[" * 1_000_000}, "a": FLAT}
    ),
    "very many arrays of nothing": msgpack.packb(
        {f"{k}": {"hi": {"kernel": array((0,), data=b"")}} for k in range(5_000)}
    ),
}


EQX = {
    **{name: data for name, data in NPY.items() if name not in ("no axes",)},
    "a line of JSON alone": b'{"a":1}\n',
    "a line of JSON without end": b"{" * 3_000_000,
    "an array that is cut": good(".eqx")[:-1],
    "bytes behind": good(".eqx") + b"a",
    "very many arrays": good(".eqx")[: 128 + 240] * 20_000,
    "an array beside a large one": good(".eqx") + NPY["a shape of a petabyte"],
}


class Calls:
    """What a pickle calls in the place of the tuple that Paddle's tensors are."""

    def __init__(self, call, *args):
        self.call, self.args = call, args

    def __reduce__(self):
        return self.call, self.args


W = np.ones((12, 5), "f4")
PDPARAMS = {
    "a tuple of a tuple": pickle.dumps({"a": Calls(tuple, (("a", ("b", W)),))}, 4),
    "a tuple of three": pickle.dumps({"a": Calls(tuple, ("a", W, W))}, 4),
    "a tuple that is empty": pickle.dumps({"a": Calls(tuple)}, 4),
    "a name that is a number": pickle.dumps({"a": Calls(tuple, (1, W))}, 4),
    "arrays in slices": pickle.dumps(
        {"UnpackBigParamInfor@@": {"a": {"slices": ["b"]}}, "b": W}, 4
    ),
    "names for nothing": pickle.dumps({"StructuredToParameterName@@": {"a": "b"}}, 4),
    "a pickle of protocol 0": pickle.dumps({"a": 1}, 0),
    "bytes behind": good(".pdparams") + b"a",
    "a binary variable": bytes(4) + b"\1" * 100,
    "a persistent tensor": b"\x80\x02}U\x01aQ.",
}


def touching(path):
    path.write_bytes(pickle.dumps({"a": Touches(path.with_name("mark"))}, 4))


def bytes_of(data):
    return lambda path: path.write_bytes(data)


CASES = {
    **{f"{name}.msgpack": bytes_of(data) for name, data in MSGPACK.items()},
    **{f"{name}.eqx": bytes_of(data) for name, data in EQX.items()},
    **{f"{name}.pdparams": bytes_of(data) for name, data in PDPARAMS.items()},
    "an object.pdparams": touching,
}
