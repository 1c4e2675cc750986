"""HDF5 files that lead a reader in circles. On those of the global heap libhdf5 never returns."""

from contextlib import suppress

import numpy as np
import pytest
from files.hostile.hdf5 import written
from files.hostile.limits import limited

import rnnlayout as rl
from rnnlayout._files.formats.keras.hdf5_tree import open_hdf5
from rnnlayout._files.tensor_sets.file_limits import Budget

MOST = 2**64 - 1
OVERFLOWS = "attribute 'layer_names': the object of a global heap at .* is longer than its heap"


def put(data, at, number, nbytes=8):
    data[at : at + nbytes] = number.to_bytes(nbytes, "little")


def opened(data):
    return open_hdf5(bytes(data), Budget("a file", len(data)))


def refused(data, why):
    with limited(), pytest.raises(rl.FileError, match=f"a file: .*{why}"), opened(data) as root:
        root.texts("layer_names")


@pytest.fixture
def texts():
    """A file with texts in a global heap, and where the heap's first entry and free space are."""
    data = bytearray(written(lambda file: file.attrs.update(layer_names=["a", "bc"])))
    first = data.index(b"GCOL") + 16
    return data, first, first + 2 * 24


@pytest.mark.parametrize("entry", ["free space", "an object"])
def test_a_heap_that_libhdf5_reads_for_ever(entry, texts):
    """The size of the entry after the objects is 0, so the next entry is this one."""
    data, _, free = texts
    put(data, free, 0 if entry == "free space" else 7, 2)
    put(data, free + 8, 0)
    with limited(), opened(data) as root:
        assert root.texts("layer_names") == ["a", "bc"]


@pytest.mark.parametrize("at_end, changes, says", [
    (False, {0: (1, 2), 8: (MOST - 15, 8)}, OVERFLOWS),
    (True, {0: (7, 2), 8: (MOST - 15, 8)}, OVERFLOWS),
    (False, {0: (9, 2)}, "has no object"),
], ids=["the size of an object", "the size of the last", "another number"])  # fmt: skip
def test_a_heap_with_wrong_numbers(at_end, changes, says, texts):
    data, first, free = texts
    for at, number in changes.items():
        put(data, at + (free if at_end else first), *number)
    refused(data, says)


def test_a_header_that_goes_on_in_itself():
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
def test_a_tree_in_itself(level):
    data = bytearray(written(lambda file: groups(file, 1)))
    node = data.index(b"TREE")
    data[node + 5] = level
    put(data, node + 32, node)
    refused(data, "does not begin with 'SNOD'" if level == 0 else "has type 0 and level")


def test_a_new_tree_in_itself():
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
def test_extreme_fields(signature, at, size):
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


def test_damaged_attributes_of_the_root_are_an_error_that_names_it(tmp_path):
    attributes = {f"a{k}": k for k in range(20)}  # so many that they are in a heap
    data = written(lambda file: file.attrs.update(attributes), libver="latest")
    assert data.count(b"FRHP") == 1
    (tmp_path / "a.h5").write_bytes(data.replace(b"FRHP", b"FRHX"))
    with pytest.raises(rl.FileError, match=r"'/': the fractal heap at .* not begin with 'FRHP'"):
        rl.load(tmp_path / "a.h5")
