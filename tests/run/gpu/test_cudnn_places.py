"""Which cuDNN is found, and what the report says about the others. The places are folders with good
and bad stubs, or with real libraries, which tools/cudnn.txt pins; each search is made in a process
of its own, because opened libraries stay open."""

import ctypes
import json
import os
import re
import shutil
import sys
import types
from unittest import mock

import pytest
from commands import ROOT, run
from marks import download
from run.gpu.children import Children
from run.gpu.conftest import VARIABLES

import rnnlayout as rl
from rnnlayout._run import cudnn

sys.path.insert(0, str(ROOT / "tools"))

import get_cudnn
from ask_cudnn import LIBRARIES

MODULE, LIBRARY = "run.gpu.test_cudnn_places", "libcudnn.so.9"
# The places in the order of the search: what the report calls them, and their folder of libraries.
PLACES = {
    "loaded": ("already loaded", "lib"),
    "site": ("packages", "nvidia/cudnn/lib"),
    "user": ("packages", "torch/lib"),
    "conda": ("CONDA_PREFIX", "lib"),
    "venv": ("environment", "lib"),
    "cudnn": ("CUDNN_PATH", "lib64"),
    "home": ("CUDNN_HOME", "."),
    "cuda": ("CUDA_PATH", "targets/x86_64-linux/lib"),
    "cuda_home": ("CUDA_HOME", "lib"),
    "first": ("LD_LIBRARY_PATH", "."),
    "second": ("LD_LIBRARY_PATH", "."),
    "loader": ("loader", "."),
}
NO_ELF = "libcudnn_ops.so.9: not a 64-bit library"
# Of a folder: the stub in it, the command that damages it, and why it is refused then.
KINDS = {
    "good9": ("good", "true", None),
    "empty": (None, "true", "no libcudnn.so.9"),
    "lone9": ("good", "rm libcudnn_*", "without libcudnn_graph.so.9, libcudnn_ops.so.9"),
    "pipe": ("good", "rm libcudnn_ops.so.9 && mkfifo libcudnn_ops.so.9", NO_ELF),
    "no_adv": ("good", "rm libcudnn_adv*", "without libcudnn_adv.so.9,"),
    "text": ("good", "echo version https://git-lfs > libcudnn_ops.so.9", NO_ELF),
    "foreign": ("good", "mv libcudnn_graph.so.9 x && { head -c 18 x; printf '\\002'; "
                "tail -c +20 x; } > libcudnn_graph.so.9 && rm x",
                "libcudnn_graph.so.9: built for another CPU architecture"),
    "secret": ("good", "ln -sf nowhere libcudnn_ops.so.9", "without libcudnn_ops.so.9,"),
    "eight": ("good", "mv libcudnn.so.9 libcudnn.so.8", "cuDNN 8 is too old: 9 is needed"),
    "lying": ("lying", "true", "it reports version 8.9.6: 9 is needed"),
    "other": ("other", "true", "it reports version 10.0.0: 9 is needed"),
    "mixed": ("mixed", "true", "cudnnAdvVersionCheck returned 1002 (STUB_STATUS)"),
    "undefined": ("good", "cp {stubs}/undefined/* .", "libcudnn_adv.so.9 does not open: /"),
    "lacking": ("lacking", "true", "it lacks cudnnGetVersion"),
}  # fmt: skip


def search():
    """Search in this process as the variable QUESTION says, and print the answers to its steps:
    reports, None, texts of errors."""
    question, answers = json.loads(os.environ["QUESTION"]), []
    for name in VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(question["variables"])
    if question["loaded"]:
        ctypes.CDLL(question["loaded"])
    for step in question["steps"]:
        if step == "find":
            with mock.patch.multiple(sys, path=question["packages"], prefix=question["environment"],
                                     base_prefix=question["environment"]):  # fmt: skip
                answers.append(cudnn.cudnn_report())
        elif step == "forget the variable":
            os.environ.pop("RNNLAYOUT_CUDNN", None)
        else:
            try:
                answers.append(rl.set_cudnn(step["choose"]))
            except rl.SpecError as error:
                answers.append(str(error))
    print(json.dumps(answers))


@pytest.fixture(scope="module")
def machine(stubs, install, tmp_path_factory):
    """Folders of every kind in every place, and a process that makes the searches."""
    root, loader = tmp_path_factory.mktemp("places"), tmp_path_factory.mktemp("loader")

    def root_of(place, kind):
        folder = root / place / kind
        if not folder.exists():
            fill(folder / PLACES[place][1], kind)
        return folder

    def folder_of(place, kind):
        return root_of(place, kind) / PLACES[place][1]

    def fill(folder, kind):
        stub, spoil, _ = KINDS[kind]
        folder.mkdir(parents=True, exist_ok=True)
        if stub:
            shutil.copy(stubs / stub / LIBRARY, install(folder))
        run(["sh", "-c", spoil.replace("{stubs}", str(stubs))], cwd=folder)

    def ask(*steps, variables=(), packages=(), environment="/nowhere", loaded=None):
        question = {"steps": steps, "variables": dict(variables), "packages": packages,
                    "environment": environment, "loaded": loaded}  # fmt: skip
        asked = json.dumps(question, default=str)
        return json.loads(children.run(MODULE, "search", QUESTION=asked))

    children = Children([MODULE], os.environ | {"LD_LIBRARY_PATH": str(loader)})
    yield types.SimpleNamespace(root_of=root_of, folder_of=folder_of, fill=fill, ask=ask,
                                loader=loader, stubs=stubs)  # fmt: skip
    children.close()


def emptied(folder):
    for path in folder.iterdir():
        path.unlink()
    return folder


@pytest.mark.parametrize("name", PLACES)
def test_every_place_in_its_order(machine, name):
    """Good ones from this place on, and empty ones before it."""
    until = list(PLACES).index(name)
    kinds = {place: "empty" if k < until else "good9" for k, place in enumerate(PLACES)}
    roots = {place: machine.root_of(place, kind) for place, kind in kinds.items()}
    machine.fill(emptied(machine.loader), kinds["loader"])
    variables = {PLACES[place][0]: roots[place]
                 for place in ("conda", "cudnn", "home", "cuda", "cuda_home")}  # fmt: skip
    variables["LD_LIBRARY_PATH"] = f"{roots['first']};{roots['second']}:"
    report, again = machine.ask(
        "find", "find", variables=variables, packages=[roots["site"], roots["user"]],
        environment=roots["venv"],
        loaded=machine.folder_of("loaded", "good9") / LIBRARY if name == "loaded" else None,
    )  # fmt: skip
    assert again == report  # the answer is kept
    places = [place for place in report["places"] if place["origin"] != "usual folders"]
    assert [place["origin"] for place in places] == [
        origin for origin, _ in list(PLACES.values())[: until + 1]]  # fmt: skip
    assert all(KINDS["empty"][2] in place["why_not"] for place in places[1:until])
    found = machine.loader if name == "loader" else machine.folder_of(name, "good9")
    assert places[-1]["why_not"] is None
    assert os.path.samefile(report["path"], found / LIBRARY)
    assert (report["version"], report["cuda_version"]) == (91900, 13010)
    assert report["why_not"] and report["no_driver"] and not report["cublas"]


def test_the_loader_is_not_asked_for_what_was_refused(machine):
    machine.fill(emptied(machine.loader), "empty")
    (report,) = machine.ask("find", variables={
        "LD_LIBRARY_PATH": machine.folder_of("first", "lone9")})  # fmt: skip
    assert report["places"][-1]["why_not"] == "not asked: it would load one of the above"
    assert report["path"] is None


def test_a_cudnn_of_another_library_is_not_mixed(machine):
    lone = machine.folder_of("loaded", "lone9") / LIBRARY
    (report,) = machine.ask("find", packages=[machine.root_of("site", "good9")], loaded=lone)
    first, second = report["places"][:2]
    assert "without libcudnn_graph.so.9" in first["why_not"]
    assert "has already loaded libcudnn.so.9 of another cuDNN, from /" in second["why_not"]


def choose(machine, path, why, by_call, loaded=None):
    """The chosen place alone is searched. Another one can be chosen unless this one is in use."""
    good = [machine.root_of("site", "good9")]
    steps = [{"choose": str(path)}] if by_call else []
    *_, report, chosen, again = machine.ask(
        *steps, "find", {"choose": None}, "forget the variable", "find", packages=good,
        variables={"RNNLAYOUT_CUDNN": "/nowhere" if by_call else str(path)}, loaded=loaded,
    )  # fmt: skip
    (place,) = report["places"]
    assert place["origin"] == ("chosen" if by_call else "RNNLAYOUT_CUDNN")
    assert why in place["why_not"] if why else place["why_not"] is None, place
    assert (report["path"] is None) == bool(why) and report["why_not"]
    if why:
        assert chosen is None and again != report
    else:
        assert "cannot change to another cuDNN: choose" in chosen and again == report


@pytest.mark.parametrize("name", KINDS)
def test_a_chosen_place(machine, name):
    """The folder of a toolkit by the variable, the path of its library by a call."""
    stub, _, why = KINDS[name]
    choose(machine, machine.root_of("cuda_home", name), why, by_call=False)
    if stub:
        library = f"libcudnn.so.{8 if name == 'eight' else 9}"
        choose(machine, machine.folder_of("cuda_home", name) / library, why, by_call=True)


def test_chosen_otherwise(machine):
    choose(machine, "off", "switched off", by_call=True)
    choose(machine, "off", "switched off", by_call=False)
    choose(machine, "/nowhere/at/all", "no such file or folder", by_call=True)
    choose(machine, "nowhere.so", "no such file or folder", by_call=False)
    good = machine.folder_of("site", "good9")
    choose(machine, good / "libcudnn_adv.so.9", "not the path of a libcudnn.so.9", by_call=True)
    loaded = machine.folder_of("loaded", "good9")
    choose(machine, loaded, None, by_call=True, loaded=loaded / LIBRARY)


def test_a_place_that_two_variables_name_is_searched_once(machine):
    lone, empty = (machine.root_of("cuda_home", name) for name in ("lone9", "empty"))
    (report,) = machine.ask("find", variables={
        "CUDA_PATH": lone, "CUDA_HOME": lone, "CUDNN_PATH": empty, "CUDNN_HOME": empty,
    })  # fmt: skip
    paths = [place["path"] for place in report["places"]]
    assert sum("/lone9/" in path for path in paths) == 1
    folders = "lib64, lib, itself, targets/x86_64-linux/lib, targets/sbsa-linux/lib"
    (why,) = [place["why_not"] for place in report["places"] if "/empty" in place["path"]]
    assert why == f"no libcudnn.so.9 in {folders}"


# What the stubs and fakes play, where cuBLAS is -> the texts of the report: for cuDNN's place, the
# driver, the first GPU, and all together ("why_not").
BESIDE, NONE = ".", "no usable cuDNN was found"
DRIVER = "no NVIDIA driver"
DRIVEN = [
    ({"FAKE_CUDA_DEVICES": 2}, "../../cu13/lib", {}),
    ({}, "../../cublas/lib", {}),
    ({}, BESIDE, {}),
    ({}, "loader", {}),
    ({}, None, {"why_not": NONE, "place": "it needs libcublasLt.so.13, "}),
    ({"FAKE_CUDA_DRIVER": 12040}, BESIDE, {
        "why_not": NONE, "place": "built for CUDA 13, but the driver supports CUDA 12.4 at most"}),
    ({"STUB_NEWEST_GPU": 890}, BESIDE, {
        "why_not": "supports 8.9 at most",
        "gpu": "capability is 9.0, but this cuDNN supports 8.9 at most"}),
    ({"FAKE_CUDA_INIT": 100, "CUDA_VISIBLE_DEVICES": 7}, BESIDE, {
        "why_not": DRIVER, "no_driver": "cuInit: 100 (CUDA_ERROR_NO_DEVICE): no CUDA-capable "
        'device is detected; CUDA_VISIBLE_DEVICES is "7"'}),
    ({"FAKE_CUDA_DEVICES": 0, "FAKE_CUDA_INIT": 0}, BESIDE, {
        "why_not": DRIVER, "no_driver": "cuDeviceGetCount: 100"}),
    *(({"FAKE_FAIL": f"{call}:1:0"}, BESIDE,
       {"why_not": DRIVER, "no_driver": f"{call}: 1 (no name): no text"})
      for call in ("cuDriverGetVersion", "cuDeviceGetCount")),
    *(({"FAKE_FAIL": f"{call}:1:0"}, BESIDE,
       {"why_not": f"{call}: 1", "gpu": f"{call}: 1"})
      for call in ("cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute")),
    ({"DRIVER": "old_driver"}, BESIDE, {
        "why_not": DRIVER, "no_driver": "lacks cuInit: the driver is too old"}),
]  # fmt: skip


@pytest.mark.parametrize("variables, cublas, texts", DRIVEN, ids=str)
def test_drivers_and_what_cudnn_needs(machine, install, tmp_path, variables, cublas, texts):
    folder = install(tmp_path / "nvidia/cudnn/lib")
    driver = variables.get("DRIVER", "driver")
    shutil.copy(machine.stubs / driver / "libcuda.so.1", emptied(machine.loader))
    if cublas:
        there = machine.loader if cublas == "loader" else folder / cublas
        install(there, "libcublasLt.so.12", "libcublasLt.so.13")
    given = {key: str(value) for key, value in variables.items()}
    (report,) = machine.ask("find", variables={"RNNLAYOUT_CUDNN": folder, **given})
    said = {"why_not": report["why_not"], "place": report["places"][0]["why_not"],
            "no_driver": report["no_driver"]}  # fmt: skip
    for gpu in report["gpus"]:
        said["gpu"] = gpu["why_not"]
        assert "gpu" in texts or (gpu["capability"], gpu["name"]) == (90, "Fake GPU")
    for key, text in said.items():
        assert texts[key] in text if key in texts else text is None, (key, text)
    assert texts.keys() <= said.keys() and report["driver"].endswith("/libcuda.so.1")
    assert (report["cublas"] is None) == ("why_not" in texts and "gpu" not in texts)
    gpus = 0 if "no_driver" in texts else variables.get("FAKE_CUDA_DEVICES", 1)
    assert len(report["gpus"]) == gpus
    assert not report["cublas"] or report["cublas"].endswith("/libcublasLt.so.13")


# ------------------------------------------------------------------------------- real libraries


def linked(to, *libraries):
    to.mkdir(exist_ok=True)
    for library in libraries:
        (to / library.name).symlink_to(library)
    return to


@pytest.mark.parametrize("asked", [download(name) for name in ("9.0", "9.19", "9.28")])
def test_a_real_cudnn(machine, tmp_path, asked):
    folder = get_cudnn.get(asked)
    *parts, main = (folder / name for name in LIBRARIES[9])
    for place in ({"variables": {"RNNLAYOUT_CUDNN": folder}}, {"loaded": main}):
        (report,) = machine.ask("find", **place)
        assert cudnn.cudnn_version(report) == f"{asked}.0" and len(report["places"]) == 1
        assert os.path.samefile(report["path"], main) and report["cublas"] is None
        assert str(report["cuda_version"] // 1000) in folder.name.split("-")[2]  # cu13
        assert report["why_not"] == "no NVIDIA driver with a GPU was found"
    for number, missing in enumerate([parts, *([part] for part in parts)]):
        kept = [part for part in parts if part not in missing]
        place = linked(tmp_path / str(number), *kept, main)
        (report,) = machine.ask("find", variables={"RNNLAYOUT_CUDNN": place})
        lacks = f"found {main.name} without {', '.join(part.name for part in missing)}, "
        assert report["path"] is None and report["places"][0]["why_not"].startswith(lacks)


# The part with another version, and the message. The main library only passes calls on to the
# others: one of 9.0 works with 9.28 too.
OTHERS = {
    "libcudnn_graph.so.9": "libcudnn_ops.so.9 does not open: .*: undefined symbol",
    "libcudnn_ops.so.9": "libcudnn_ops.so.9 does not open: .*: undefined symbol",
    "libcudnn_adv.so.9": r"its parts have different versions: \w+ returned 1002 \(",
    "libcudnn.so.9": None,
}


@pytest.mark.download
@pytest.mark.parametrize("other", OTHERS)
def test_real_parts_of_two_versions(machine, tmp_path, other):
    newest, oldest = get_cudnn.get("9.28"), get_cudnn.get("9.0")
    mixed = linked(tmp_path, oldest / other, *(newest / name for name in OTHERS if name != other))
    (report,) = machine.ask("find", variables={"RNNLAYOUT_CUDNN": mixed})
    if OTHERS[other]:
        assert report["path"] is None and re.match(OTHERS[other], report["places"][0]["why_not"])
    else:
        assert cudnn.cudnn_version(report) == "9.28.0"
