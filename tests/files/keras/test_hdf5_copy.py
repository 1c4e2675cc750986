"""All other content of a Keras HDF5 file is copied unchanged when the file is converted."""

import re

import h5py
import numpy as np
import pytest
from files.keras.comparison import tree
from files.keras.old_models import write_arrays
from oracles.frameworks import H, I, normal, seeded

import rnnlayout as rl
from rnnlayout._files.formats.keras.hdf5_tree import new_hdf5


@pytest.fixture
def old(tmp_path):
    """The weights of a CuDNNLSTM, as Keras 2 stores them, in a file that is open for more."""
    shapes = {"kernel": (I, 4 * H), "recurrent_kernel": (H, 4 * H), "bias": (8 * H,)}
    arrays = {f"rnn/{name}": normal(seeded(name), *shape) for name, shape in shapes.items()}
    write_arrays(tmp_path / "old.h5", {"rnn": arrays}, "2.3.1")
    with h5py.File(tmp_path / "old.h5", "r+") as file:
        yield file


@pytest.fixture
def converted(limited):
    """Return a function that converts a file within the limits, and returns tree() of the new file
    and of the old one."""

    def convert(file):
        old = file.filename
        new = f"{old[:-3]}_new.h5"
        file.close()
        with limited():
            rl.convert_file(old, new, to="keras")
        return tree(old), tree(new)

    return convert


def test_all_kinds(old, converted):
    others = old.create_group("mine/deep")
    arrays = {
        "big-endian": np.arange(6, dtype=">f8").reshape(2, 3), "number": np.float32(3),
        "half": np.ones(3, "f2"), "none": np.zeros((0, 4), "i8"), "true": np.array([True, False]),
        "texts": np.array([b"a", b"bcd"]), "opaque": np.frombuffer(bytes(range(6)), "V3"),
        "two pieces": np.arange(3 << 20, dtype="f4").reshape(3, -1),
    }  # fmt: skip
    for name, array in arrays.items():
        others[name] = array
    others["nothing"] = h5py.Empty("f4")
    long = np.arange(1000.0).reshape(100, 10)
    others.create_dataset("plain", data=long, chunks=(30, 4), maxshape=(None, 10))
    others.create_dataset("packed", data=long, compression="gzip", shuffle=True, chunks=(7, 10))
    others.create_dataset("brain", data=long.astype("f4").view("V2")).attrs["dtype"] = "bfloat16"
    others.create_dataset("holes", (50, 5), "f4", chunks=(10, 5), fillvalue=2.5)
    attributes = {
        "text": "ä", "bytes": b"ab", "number": 5, "numbers": np.arange(3, dtype=">i2"),
        "texts": ["a", "bc"], "many bytes": np.array([b"a", b"bc"]), "flag": True, "none": [],
        "nothing": h5py.Empty("S1"),
    }  # fmt: skip
    for where in (old, others, others["number"], old["rnn"]):
        where.attrs.update(attributes)
    before, after = converted(old)
    parts = {f"rnn/rnn/{name}:0" for name in ("kernel", "recurrent_kernel", "bias")}
    assert before.keys() == after.keys() and len(before) > len(arrays) + 8
    assert {name for name in before if before[name] != after[name]} == parts


@pytest.mark.parametrize("add", [
    lambda file: file.create_dataset("x", data=["texts"], dtype=h5py.string_dtype()),
    lambda file: file.create_dataset("x", data=np.zeros(2, "f4,i4")),
    lambda file: file.attrs.create("x", file.ref, dtype=h5py.ref_dtype),
    lambda file: file.attrs.create("x", np.zeros(2, "f4,i4")),
], ids=["texts", "records", "a reference", "records of an attribute"])  # fmt: skip
def test_what_is_not_copied(old, add, converted, tmp_path):
    add(old)
    with pytest.raises(rl.FileError, match=r"x.* is .* cannot be copied"):
        converted(old)
    assert [path.name for path in tmp_path.iterdir()] == ["old.h5"]


def test_a_damaged_type_is_refused(old, tmp_path, limited):
    """libhdf5 crashed when it had to write to such a file: a float of 202 bits, in 4 bytes."""
    old.close()
    path = tmp_path / "old.h5"
    float32 = bytes.fromhex("11201f00 04000000 0000")  # then its precision, 32
    damaged = re.sub(re.escape(float32) + b"\x20", float32 + b"\xca", path.read_bytes())
    assert damaged != path.read_bytes()
    path.write_bytes(damaged)
    with (
        limited(),
        pytest.raises(rl.LayoutError, match="a float of 202 bits that is not IEEE's"),
    ):
        rl.convert_file(path, tmp_path / "new.h5", to="keras")


def test_memory_that_ends_while_a_file_is_written(tmp_path):
    """The file is closed after that, which h5py then reports as an error of its own."""
    with pytest.raises(MemoryError), open(tmp_path / "a.h5", "w+b") as file, new_hdf5(file):
        try:
            raise MemoryError
        finally:
            raise ValueError("I/O operation on closed file")
