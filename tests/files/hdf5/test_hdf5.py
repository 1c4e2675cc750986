"""The HDF5 reader against h5py: the same tree, the same bits and the same texts; and files that
lead a reader in circles: on those of the global heap libhdf5 never returns."""

import io
import re
from contextlib import contextmanager, suppress
from pathlib import Path

import h5py
import numpy as np
import pytest
from files.hostile.hdf5 import endless_heap, plain, texts_in_a_heap, written
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

import rnnlayout as rl
from rnnlayout._files.formats.keras.hdf5_tree import open_hdf5
from rnnlayout._files.tensor_sets.file_limits import Budget

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "data"
KINDS = ["<f4", ">f4", "<f8", ">f8", "<f2", "<i4", ">i8", "u1", "i1", "?", "S3", "V3", "V2"]
NAMES = st.text("ab/ä_1 ", min_size=1, max_size=5).filter(
    lambda name: name.strip("/") and "//" not in name and not name.startswith("/")
)


def ours(source):
    """Return {path: its attributes, and its array or the names of its groups} as we read a file."""

    def value(item, name):
        return (
            None if item.attributes[name].shape is None else content(item.attributes[name].values)
        )

    def look(item, what):
        found[item.path] = {name: value(item, name) for name in item.attributes}, what

    def walk(group):
        look(group, [*group.groups])
        for data in group.datasets.values():
            look(data, None if data.dtype == "nothing" else content(data.stored.read()))
        for inner in group.groups.values():
            walk(inner)

    found = {}
    with open_hdf5(source, Budget("a file", 1 << 20)) as root:
        walk(root)
    return found


def theirs(source):
    """Return the same as h5py reads it."""

    def value(item, name):
        one = item.attrs.get_id(name)
        return None if one.shape is None else content(item.attrs[name], one.dtype)

    def look(item, what):
        found[item.name] = {name: value(item, name) for name in item.attrs}, what

    def walk(group):
        look(group, [name for name in group if isinstance(group[name], h5py.Group)])
        for item in group.values():
            if isinstance(item, h5py.Group):
                walk(item)
            else:
                look(item, None if item.shape is None else content(item[()], item.dtype))

    found = {}
    with h5py.File(io.BytesIO(source) if isinstance(source, bytes) else source, "r") as file:
        walk(file)
    return found


def content(array, dtype=None):
    """Return shape, kind and bits; texts of variable length as bytes."""
    if dtype is not None and dtype.kind == "O":
        array = np.vectorize(lambda x: x if isinstance(x, bytes) else x.encode(), [object])(array)
    array = np.asarray(array, dtype)
    if array.dtype.kind == "O":
        return array.shape, "text", array.reshape(-1).tolist()
    return array.shape, array.dtype.str, array.tobytes()


def same(source):
    mine, reference = ours(source), theirs(source)
    assert mine.keys() == reference.keys()
    for path, wanted in reference.items():
        assert mine[path] == wanted, path


@contextmanager
def compared(**options):
    """Make a file, which then both read."""
    blob = io.BytesIO()
    with h5py.File(blob, "w", **options) as file:
        yield file
    same(blob.getvalue())


@st.composite
def arrays(draw):
    dtype = np.dtype(draw(st.sampled_from(KINDS)))
    shape = tuple(draw(st.lists(st.integers(0, 7), max_size=3)))
    bits = np.random.default_rng(draw(st.integers(0, 99))).bytes(dtype.itemsize * 343)
    if dtype.kind in "bS":
        bits = bytes(1 + b % 2 if dtype.kind == "S" else b % 2 for b in bits)
    return np.frombuffer(bits, dtype, int(np.prod(shape))).reshape(shape).copy()


@st.composite
def storage(draw, shape):
    """Options of create_dataset()."""
    if not shape or 0 in shape or draw(st.booleans()):
        return {}
    more = {"chunks": tuple(draw(st.integers(1, n)) for n in shape)}
    more["maxshape"] = tuple(n + draw(st.integers(0, 3)) for n in shape)
    if draw(st.booleans()):
        more |= {"compression": "gzip", "compression_opts": draw(st.integers(0, 9))}
    more["shuffle"] = draw(st.booleans())
    return more


texts = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=30)
values = st.one_of(
    texts,
    st.lists(texts, min_size=1, max_size=5),
    st.binary(min_size=1, max_size=9).filter(lambda b: not b.endswith(b"\0")).map(np.bytes_),
    st.integers(-5, 5),
    st.booleans(),
    st.just(h5py.Empty("S1")),
    st.just([]),
    st.just("long " * 1500),
    st.just([f"layer_{k}" for k in range(900)]),
    arrays().filter(lambda array: array.dtype.kind != "V"),
)


@settings(
    phases=[Phase.explicit, Phase.generate],
    max_examples=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_random_trees(data):
    draw = data.draw
    libver = draw(st.sampled_from(["earliest", "v108", "latest"]))
    order = draw(st.booleans())
    with compared(libver=libver, track_order=order) as file:
        for name in draw(st.lists(NAMES, max_size=8, unique=True)):
            try:
                group = file.create_group(name, track_order=draw(st.booleans()))
            except ValueError:  # it exists
                continue
            for key, value in draw(st.dictionaries(NAMES, values, max_size=10)).items():
                group.attrs[key] = value
            for number in range(draw(st.sampled_from([0, 1, 3, 12]))):
                array = draw(arrays())
                # chunks of "latest" are refused
                stored = {} if libver == "latest" else draw(storage(array.shape))
                try:
                    made = group.create_dataset(f"n{number}", data=array, **stored)
                except ValueError:  # h5py has no chunks for it
                    continue
                made.attrs["mine"] = draw(values)


@pytest.mark.parametrize("libver", ["earliest", "v108", "latest"])
@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("count", [7, 9, 120, 1000])
def test_many_links(libver, order, count):
    with compared(libver=libver, track_order=order) as file:
        for k in np.random.default_rng(count).permutation(count):
            file.create_group(f"layer_{k}_{'x' * (k % 50)}")


@pytest.mark.parametrize("libver", ["earliest", "v108", "latest"])
@pytest.mark.parametrize("count", [7, 9, 120, 1000])
def test_many_attributes(libver, count):
    """In a header that goes on elsewhere, or in a fractal heap; large ones are apart from it."""
    is_old = libver == "earliest"
    with compared(libver=libver, track_order=not is_old) as file:
        for k in range(min(count, 200) if is_old else count):
            file.attrs[f"a{k}"] = np.bytes_(b"x" * (1 + 37 * k % (2000 if is_old else 5000)))
        if not is_old:
            file.attrs["huge"] = np.zeros(100_000)


CHUNKS = {
    "one chunk": {"chunks": (5, 300)},
    "one packed chunk": {"chunks": (5, 300), "compression": "gzip"},
    "chunks": {"chunks": (2, 7)},
    "packed chunks": {"chunks": (2, 7), "compression": "gzip", "shuffle": True},
    "an array that may be larger": {"chunks": (2, 7), "maxshape": (9, 400)},
    "many chunks": {"chunks": (1, 1)},
    "many packed chunks": {"chunks": (1, 1), "shuffle": True},
    "a packed array that grows": {"chunks": (1, 7), "maxshape": (9, None), "compression": "gzip"},
    "an array that grows both ways": {"chunks": (2, 7), "maxshape": (None, None)},
}


@pytest.mark.parametrize("libver", ["earliest", "v108"])
@pytest.mark.parametrize("how", CHUNKS)
def test_chunks(how, libver):
    value = np.random.default_rng(4).standard_normal((5, 300)).astype("f4")
    with compared(libver=libver) as file:
        file.create_dataset("whole", data=value, **CHUNKS[how])
        file.create_dataset("holes", (5, 300), "f4", fillvalue=2.5, **CHUNKS[how])[2:4, 50:200] = 1
        if "maxshape" in CHUNKS[how]:
            file["whole"].resize((4, 200))


@pytest.mark.parametrize(
    "padding", [h5py.h5t.STR_NULLTERM, h5py.h5t.STR_NULLPAD, h5py.h5t.STR_SPACEPAD]
)
def test_texts_of_other_programs(padding):
    with compared() as file:
        kind = h5py.h5t.C_S1.copy()
        kind.set_size(6)
        kind.set_strpad(padding)
        value, space = np.array([b"ab  ", b"a c   ", b"abcde"], "S6"), h5py.h5s.create_simple((3,))
        for where in (file, file.create_group("g")):
            h5py.h5a.create(where.id, b"a", kind, space).write(value)
        h5py.h5d.create(file.id, b"d", kind, space).write(h5py.h5s.ALL, h5py.h5s.ALL, value)


@pytest.mark.parametrize("nbytes, first, bits", [
    (4, 0, 24), (4, 16, 16), (2, 0, 15), (3, 0, 24), (16, 0, 128),
])  # fmt: skip
def test_integers_that_numpy_does_not_have(nbytes, first, bits):
    """h5py cannot be asked: of the first three it says that they are int32 and int16."""

    def fill(file):
        kind = h5py.h5t.STD_I64LE.copy()
        kind.set_size(max(nbytes, 8))
        kind.set_precision(bits)
        kind.set_offset(first)
        kind.set_size(nbytes)
        h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple((3,)))

    with open_hdf5(written(fill), Budget("a file", 1 << 20)) as root:
        assert root.datasets["x"].dtype == f"an integer of {bits} bits"


def test_a_compact_dataset_and_a_user_block():
    with compared(userblock_size=512) as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_layout(h5py.h5d.COMPACT)
        kind, space = h5py.h5t.IEEE_F64LE, h5py.h5s.create_simple((3, 2))
        made = h5py.h5d.create(file.id, b"x", kind, space, properties)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(6.0).reshape(3, 2))
        file["y"], file["z"] = np.arange(5.0), h5py.Empty("f4")
        file.create_dataset("not written", (3, 4), "f4", fillvalue=7)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.hdf5")), ids=lambda path: path.name)
def test_published_files(path):
    same(path)


# ----------------------------------------------------------------------------------- damaged files

MOST = 2**64 - 1
OVERFLOWS = "attribute 'layer_names': the object of a global heap at .* is longer than its heap"


def put(data, at, number, nbytes=8):
    data[at : at + nbytes] = number.to_bytes(nbytes, "little")


def opened(data):
    return open_hdf5(bytes(data), Budget("a file", len(data)))


@pytest.fixture
def refused(limited):
    """Return a function that asserts that a file is refused, within the limits."""

    def read(data, why):
        with limited(), pytest.raises(rl.FileError, match=f"a file: .*{why}"), opened(data) as root:
            root.texts("layer_names")

    return read


@pytest.mark.parametrize("number", [0, 7], ids=["free space", "an object"])
def test_a_heap_that_libhdf5_reads_for_ever(number, limited):
    """hostile/test_page.py shows that libhdf5 does."""
    with limited(), opened(endless_heap(number)) as root:
        assert root.texts("layer_names") == ["a", "bc"]


@pytest.mark.parametrize("at_end, changes, says", [
    (False, {0: (1, 2), 8: (MOST - 15, 8)}, OVERFLOWS),
    (True, {0: (7, 2), 8: (MOST - 15, 8)}, OVERFLOWS),
    (False, {0: (9, 2)}, "has no object"),
], ids=["the size of an object", "the size of the last", "another number"])  # fmt: skip
def test_a_heap_with_wrong_numbers(at_end, changes, says, refused):
    data, first, free = texts_in_a_heap()
    for at, number in changes.items():
        put(data, at + (free if at_end else first), *number)
    refused(data, says)


def test_a_header_that_goes_on_in_itself(refused):
    def fill(file):
        for k in range(20):
            file.attrs[f"a{k}"] = np.zeros(20)

    data = bytearray(written(fill))
    at = int.from_bytes(data[64:72], "little")  # of the root's header
    message = data.index(b"\x10\0\x10\0", at)  # a continuation of 16 bytes
    put(data, message + 8, message)
    put(data, message + 16, 24)
    refused(data, "bytes of HDF5 structures")


def groups(file, n):
    for k in range(n):
        file.create_group(f"g/group {k}")


@pytest.mark.parametrize("level", [0, 1, 255])
def test_a_tree_in_itself(level, refused):
    data = bytearray(written(lambda file: groups(file, 1)))
    node = data.index(b"TREE")
    data[node + 5] = level
    put(data, node + 32, node)
    refused(data, "does not begin with 'SNOD'" if level == 0 else "has type 0 and level")


def test_a_new_tree_in_itself(refused):
    data = bytearray(written(lambda file: groups(file, 3000), libver="latest"))
    node = data.index(b"BTIN")
    records = int.from_bytes(data[data.index(b"BTHD") + 26 : data.index(b"BTHD") + 28], "little")
    for k in range(records + 1):
        put(data, node + 6 + 11 * records + k * 10, node)
    refused(data, "does not begin with 'BTLF'|same name|cut short|not in the file|overlap")


@pytest.mark.parametrize("size", [0, 1, 2**31, MOST])
@pytest.mark.parametrize("signature, at", [
    ("HEAP", 8), ("HEAP", 24), ("TREE", 6), ("SNOD", 6), ("FRHP", 9), ("FRHP", 110),
    ("FRHP", 112), ("FRHP", 120), ("FRHP", 128), ("FRHP", 132), ("FRHP", 140), ("BTHD", 6),
    ("BTHD", 10), ("BTHD", 12), ("BTHD", 16), ("BTHD", 24),
])  # fmt: skip
def test_extreme_fields(signature, at, size, limited):
    """Any end within the limits is right, except for another error than a FileError."""

    def fill(file):
        groups(file, 40)
        for k in range(40):
            file["g"].attrs[f"a{k}"] = np.zeros(k)
        if is_old:
            file.create_dataset("x", data=np.ones((9, 9)), chunks=(2, 2), maxshape=(20, None))

    is_old = signature in ("HEAP", "TREE", "SNOD")
    data = bytearray(written(fill, libver="earliest" if is_old else "latest"))
    start = data.index(signature.encode())
    for nbytes in (1, 2, 4, 8):
        damaged = data.copy()
        put(damaged, start + at, min(size, 256**nbytes - 1), nbytes)
        with limited(), suppress(rl.FileError), opened(damaged) as root:
            for dataset in root.all_datasets():
                dataset.bits()


def test_an_array_that_is_not_needed_is_not_read(tmp_path):
    def damage(file, path):
        aside = file.create_dataset("aside", (5, 12), "f4", chunks=(5, 12), compression="gzip")
        aside.id.write_direct_chunk((0, 0), b"no zlib")

    (tmp_path / "a.h5").write_bytes(plain(damage)(tmp_path))
    assert rl.load(tmp_path / "a.h5").others == ("aside",)


def test_checksums_are_not_verified(tmp_path):
    data = bytearray(written(lambda file: groups(file, 40), libver="latest"))
    right, (tree,) = ours(bytes(data)), [one.start() for one in re.finditer(b"BTHD", data)]
    put(data, tree + 34, 0, 4)  # the last of the header's 38 bytes
    assert ours(bytes(data)) == right
    with pytest.raises(RuntimeError, match="checksum"):
        theirs(bytes(data))


def test_damaged_attributes_of_the_root_are_an_error_that_names_it(tmp_path):
    attributes = {f"a{k}": k for k in range(20)}  # so many that they are in a heap
    data = written(lambda file: file.attrs.update(attributes), libver="latest")
    assert data.count(b"FRHP") == 1
    (tmp_path / "a.h5").write_bytes(data.replace(b"FRHP", b"FRHX"))
    with pytest.raises(rl.FileError, match=r"'/': the fractal heap at .* not begin with 'FRHP'"):
        rl.load(tmp_path / "a.h5")
