"""Hostile files of every format: refused with exit code 3, within a second of CPU time and 100 MB;
nothing is run or imported, and no other file is opened.

The command line reads all of them in one process that is watched from below Python: process.py.
"""

import h5py
import pytest
from files.hostile import hdf5, onnxes, others, pickles, tensor_sets, trees, zips
from files.hostile.good import LAYOUTS, allowed, beside, good
from files.hostile.limits import MOST_NBYTES
from files.hostile.process import Reader
from files.hostile.reader import wrong
from files.hostile.sins import SINS
from marks import long

REFUSED = {
    **tensor_sets.CASES,
    **zips.CASES,
    **pickles.CASES,
    **hdf5.CASES,
    **onnxes.CASES,
    **others.CASES,
    **trees.CASES,
}
EITHER = {**tensor_sets.EITHER, **zips.EITHER, **hdf5.EITHER, **others.EITHER}
CASES = {**REFUSED, **EITHER}
# The number of bytes that are changed in a file of each format, and how far the cuts are apart.
PLAIN, LONG = (50, 256), (200, 64)
TO = {".safetensors": "cudnn", ".npz": "torch", ".npy": "cudnn", ".bin": "cudnn",
         ".pt": "torch", ".h5": "keras", ".keras": "keras", ".onnx": "onnx",
         ".pkl": "torch", ".msgpack": "flax-linen", ".eqx": "equinox",
         ".pdparams": "torch", ".index": "torch", ".params": "mxnet-gluon"}  # fmt: skip


pytestmark = pytest.mark.filterwarnings("ignore:Duplicate name")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """{name of a file: its folder}"""
    folder = tmp_path_factory.mktemp("files")
    found = {}
    for k, (name, make) in enumerate(CASES.items()):
        found[name] = folder / str(k)
        found[name].mkdir()
        make(found[name] / name)
    return found


@pytest.fixture(scope="module")
def answers(made, tmp_path_factory):
    """The reader's answers to all jobs."""
    work = tmp_path_factory.mktemp("reader")
    jobs = [*sins(work), *warming(work), *variants(work, *PLAIN)]  # some of the first end a process
    jobs += [[name, "read", *commands(folder / name)] for name, folder in made.items()]
    return Reader(work)(jobs)


def commands(path):
    """Return both commands that read a file: only for its RNNs, and for all that is in it."""
    suffix = "".join(s for s in path.suffixes if s in (".weights", path.suffix))
    if suffix in (".pkl", ".eqx", ".pdparams", ".index", ".params") or (
        suffix == ".pt" and path.name in EITHER
    ):
        suffix = ".npz"  # those are not written; to write a .pt torch would be imported
    out = path.parent / "out"
    out.mkdir(exist_ok=True)
    convert = ["convert", path, out / f"o{suffix}", "--to", TO[path.suffix]]
    return [["inspect", path], convert]


def warming(work):
    """Read every format once, and refuse it once, so that every module is imported."""
    for suffix in LAYOUTS:
        path = work / f"warm{suffix}"
        path.write_bytes(good(suffix))
        beside(path)
        bad = path.with_name(f"bad{suffix}")
        bad.write_bytes(b"PK\3\4\x80\x02")
        yield [f"warm {suffix}", "read", ["inspect", path], *commands(bad)]


def sins(work):
    for which in SINS:
        folder = work / which
        folder.mkdir()
        path = folder / "a.npy"
        path.touch()
        if which == "external link":
            with h5py.File(path, "w") as file, h5py.File(folder / "other", "w") as other:
                other["there"] = [1, 2, 3]
                file["there"] = h5py.ExternalLink("other", "/there")
        yield [f"sin {which}", "sinner", folder if which == "list" else path, which]


def variants(work, flips, apart):
    for suffix in LAYOUTS:
        path = work / f"good{suffix}"
        path.write_bytes(good(suffix))
        beside(path)
        yield [f"variants {suffix}", "variants", path, apart, flips, 7]


# ------------------------------------------------------------------------------------- the watch


@pytest.mark.parametrize(
    "which, seen",
    {
        "open": "open {path}",
        "list": "open {path}",
        "external link": "open {folder}/other",
        "pickle": "run true",
        "start": "run ",
        "connect": "connect",
    }.items(),
)
def test_the_watch_sees(which, seen, answers, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp() / "reader0" / which
    path = folder if which == "list" else folder / "a.npy"
    events = answers[f"sin {which}"]["events"]
    assert any(event.startswith(seen.format(path=path, folder=folder)) for event in events), events


def test_the_meter_measures(answers):
    assert answers["sin time"]["cpu"] >= answers["sin time"]["longest"]
    held = answers["sin memory"]
    assert held["words"] == str(MOST_NBYTES * 3 // 4)  # more was refused
    assert MOST_NBYTES * 0.7 < held["nbytes"] < MOST_NBYTES
    assert "this" in answers["sin import"]["imported"]
    assert answers["sin abort"] == "SIGABRT"


@pytest.mark.parametrize("suffix", LAYOUTS)
def test_a_good_file_is_read(suffix, answers):
    if suffix != ".npy":
        assert answers[f"warm {suffix}"][0]["code"] == 0
    assert answers[f"warm {suffix}"][1]["code"] == 3


# ------------------------------------------------------------------------------------- the files


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_file(name, made, answers):
    path = made[name] / name
    codes = (0, 3) if name in EITHER else (3,)
    assert isinstance(answers[name], list), answers[name]
    *others, last = answers[name]
    if path.suffix in (".h5", ".keras") and last["code"] == 0:
        # without a layer that Keras 3 reads differently the file is copied unchanged
        assert (made[name] / "out" / f"o{path.suffix}").read_bytes() == path.read_bytes()
        others, codes = [*others, last | {"code": codes[-1]}], codes
    else:
        others.append(last)
    assert [why for answer in others if (why := wrong(answer, codes, allowed(path)))] == []
    assert not list(made[name].glob("**/mark*"))
    written = [answer for answer in answers[name][1:] if answer["code"] == 0]
    assert len(list((made[name] / "out").glob("o*"))) == len(written)


@pytest.fixture(scope="module", params=[PLAIN, long(LONG)], ids=["some", "many"])
def damaged(request, answers, tmp_path_factory):
    """{"variants SUFFIX": what the reader found}, changed bytes, how far the cuts are apart."""
    if request.param == PLAIN:
        return answers, *PLAIN
    work = tmp_path_factory.mktemp("more")
    return Reader(work)([*warming(work), *variants(work, *LONG)]), *LONG


@pytest.mark.parametrize("suffix", LAYOUTS)
def test_a_damaged_file(suffix, damaged):
    """Cut short: refused, or the same tensors. One byte changed: any answer, but no crash."""
    found, flips, apart = damaged
    found = found[f"variants {suffix}"]
    assert isinstance(found, dict), found
    assert found["bad"] == []
    assert found["flipped"] == flips and found["cut"] == -(-len(good(suffix)) // apart)
    assert found["kept"] < found["cut"] / 2
