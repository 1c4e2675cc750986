"""Hostile files of every format: refused with exit code 3, within 100 MB and a number of calls, and
in the long tests, which read other files, within a second of CPU time; nothing is run or imported,
and no other file is opened.

The command line reads them in a process that is watched from below Python: process.py. What a
hostile file is says case.py.
"""

from pathlib import Path

import h5py
import pytest
from files.hostile import (
    audio,
    hdf5,
    modules,
    onnxes,
    others,
    pickles,
    products,
    tensor_sets,
    tfjs,
    trees,
    uses,
    zips,
)
from files.hostile.good import LAYOUTS, allowed, beside, good
from files.hostile.limits import CALLS, MOST_NBYTES, SECONDS
from files.hostile.process import Reader
from files.hostile.reader import HINTS, wrong

from rnnlayout._files.formats.registry import readable_suffixes, writable_suffixes

MODULES = (
    audio, tensor_sets, tfjs, zips, pickles, modules, hdf5, onnxes, others, products, trees, uses,
)  # fmt: skip
SETS = [*(module.CASES for module in MODULES), products.LARGE]
CASES = {name: case for cases in SETS for name, case in cases.items()}
assert len(CASES) == sum(map(len, SETS)), "two files of one name"
# What takes seconds to read while calls are counted: files at the limit of steps, except two kinds,
# and all that is large by intent. The long tests read these files alone, and measure seconds.
ONLY_LONG = {
    "module, forty thousand modules in each other, old form.pt",
    "module, modules doubled 25 times, old form.pt",
    "module, modules with tensors doubled 25 times.pt",
    "module, sixty thousand modules in each other.pt",
    "pairs again, 480.pkl",
    "pickle, a dict that is copied 4,000 times.pkl",
    "pickle, a tuple in 400,000 others, as a key.pkl",
    "pickle, calls.pt",
    "pickle, lists in lists.pkl",
    "pickle, lists in the memo, bare.pt",
    "pickle, names.pkl",
    "subgraphs, 480.tflite",
    "very many arrays of nothing.msgpack",
    "very many tensors.index",
    "very many tensors of nothing.safetensors",
    *products.LARGE,
    *uses.CASES,
}  # fmt: skip
assert CASES.keys() > ONLY_LONG
SUFFIXES = sorted({Path(name).suffix for name in CASES})
# The number of bytes that are changed in a file of each format, and how far the cuts are apart.
PLAIN, LONG = (25, 512), (100, 128)
ONLY_READ = set(readable_suffixes()) - set(writable_suffixes())

pytestmark = pytest.mark.filterwarnings("ignore:Duplicate name")


@pytest.fixture(scope="module")
def reader(unit, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reader")
    reader = Reader(folder, unit, [job for suffix in LAYOUTS for job in warming(suffix, folder)])
    yield reader
    reader.close()


def warming(suffix, folder):
    """Read a format and refuse it, so that every module is imported."""
    path, bad = folder / f"warm{suffix}", folder / f"bad{suffix}"
    path.write_bytes(good(suffix))
    beside(path)
    bad.write_bytes(b"PK\3\4\x80\x02")
    return [["warm", ["inspect", path], *commands(bad)]]


def commands(path, out=""):
    """Return both commands that read a file: only for its RNNs, and for all that is in it."""
    suffix = out or "".join(path.suffixes[-2 if ".weights" in path.suffixes[-2:] else -1 :])
    new = path.parent / "out" / f"o{'.npz' if suffix in ONLY_READ else suffix}"
    new.parent.mkdir(exist_ok=True)
    hints = HINTS.get(path.suffix, [])
    convert = ["convert", path, new, "--to", LAYOUTS[path.suffix]]
    return [["inspect", path, *hints], [*convert, *hints]]


# ------------------------------------------------------------------------------------- the watch


@pytest.fixture(scope="module")
def sin(unit, tmp_path_factory):
    """A function that does a sin on a path of its own; returns the path and what was watched."""
    watched = Reader(tmp_path_factory.mktemp("watched"), unit)

    def do(which):
        folder = tmp_path_factory.mktemp("sin")
        path = folder / "a.npy"
        path.touch()
        if which == "external link":
            with h5py.File(path, "w") as file, h5py.File(folder / "other", "w") as other:
                other["there"] = [1, 2, 3]
                file["there"] = h5py.ExternalLink("other", "/there")
        path = folder if which == "list" else path
        return path, watched("sinner", path, which)

    yield do
    watched.close()


@pytest.mark.parametrize(
    "which, seen",
    {
        "open": "open {path}",
        "list": "open {path}",
        "external link": "open {path.parent}/other",
        "pickle": "run true",
        "start": "run ",
        "connect": "connect",
    }.items(),
)
def test_the_watch_sees(which, seen, sin):
    path, answer = sin(which)
    events = answer["events"]
    assert any(event.startswith(seen.format(path=path)) for event in events), events


def test_the_meter_measures(sin, unit):
    spent, held = sin({CALLS: "calls", SECONDS: "time"}[unit])[1], sin("memory")[1]
    assert [words.endswith(f" {unit}") for words in spent["excess"]] == [True]
    assert held["excess"] == []
    assert held["words"] == str(MOST_NBYTES * 3 // 4)  # more was refused
    assert MOST_NBYTES * 0.7 < held["nbytes"] < MOST_NBYTES
    assert "this" in sin("import")[1]["imported"]
    assert sin("abort")[1] == "SIGABRT"


# ------------------------------------------------------------------------------------- the files


def test_every_format_has_a_file_that_grows():
    assert {name[name.index(".") :] for name in products.PRODUCTS} >= LAYOUTS.keys()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_hostile_files(suffix, unit, reader, tmp_path):
    """All of a format at once, because most take only milliseconds; each finding is listed. Files
    that take long are read by one command: convert, which reads all that is in them."""
    findings = []
    for k, (name, case) in enumerate(CASES.items()):
        if Path(name).suffix == suffix and (unit == SECONDS) == (name in ONLY_LONG):
            (tmp_path / str(k)).mkdir()
            case.write(tmp_path / str(k) / name)
            path, most = tmp_path / str(k) / name, 1 if unit == SECONDS else 2
            findings += [f"{name}: {why}" for why in broken(case, path, reader, most)]
    assert not findings, "\n".join(findings)


def broken(case, path, reader, most=2):
    """Yield the promises that are broken when so many commands read the file."""
    # to write a .pt torch would be imported; a .bin is two files
    out = ".npz" if path.suffix in (".pt", ".bin") and 0 in case.codes else ""
    answers = reader("read", *commands(path, out)[-most:])
    if isinstance(answers, str):
        yield f"the process ended with {answers}"
        return
    *_, converted = answers
    written = list((path.parent / "out").glob("o*"))
    # without a layer that Keras 3 reads differently a model is copied unchanged
    is_model = path.suffix in (".h5", ".keras") and ".weights" not in path.suffixes
    copied = is_model and converted["code"] == 0
    if copied and written[0].read_bytes() != path.read_bytes():
        yield "another file was written"
    for answer in answers:
        if why := wrong(
            answer, (0,) if copied and answer is converted else case.codes, allowed(path)
        ):
            yield why
    error = answers[0]["words"].replace(str(path), "")  # the name may say the same
    if answers[0]["code"] and not case.said(error):
        yield f"need an error with {case.says!r}: {error}"
    if list(path.parent.glob("**/mark*")):
        yield "it left a mark"
    if len(written) != (converted["code"] == 0):
        yield f"exit code {converted['code']}, and there is {written}"


@pytest.mark.parametrize("suffix", LAYOUTS)
def test_a_damaged_file(suffix, unit, reader, tmp_path):
    """Whole: read. Cut: refused, or the same tensors. With another byte: any answer, no crash."""
    (flips, apart), path = {CALLS: PLAIN, SECONDS: LONG}[unit], tmp_path / f"good{suffix}"
    path.write_bytes(good(suffix))
    beside(path)
    found = reader("variants", path, apart, flips, 7)
    assert isinstance(found, dict), found
    assert found["bad"] == []
    assert found["flipped"] == flips and found["cut"] == -(-len(good(suffix)) // apart)
    assert found["kept"] < found["cut"] / 2
