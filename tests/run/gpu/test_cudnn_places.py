"""Which cuDNN is found, and what the report says about the others. The places are folders with good
and bad stubs; each search is made in a process of its own, because opened libraries stay open."""

import dataclasses
import json
import os
import random
import re
import shutil
import types

import pytest
from commands import run
from run.gpu.children import Children
from run.gpu.conftest import PARTS

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
NOTHING, SOME, ALL = range(3)


@dataclasses.dataclass(frozen=True)
class Kind:
    """What is in a folder: a stub, and the command that damages the folder."""

    stub: str | None = "good"
    major: int = 9
    spoil: str = "true"
    why: str | None = None  # it is refused
    opens: int = NOTHING  # what has been opened when that is known


NO_ELF = "libcudnn_ops.so.9: not a 64-bit library"
KINDS = {
    "empty": Kind(None, 0, why="no libcudnn.so.9 or libcudnn.so.8"),
    "good9": Kind(opens=ALL),
    "good8": Kind(major=8, opens=ALL),
    "lone9": Kind(spoil="rm libcudnn_*", why="without libcudnn_graph.so.9, libcudnn_ops.so.9"),
    "pipe": Kind(spoil="rm libcudnn_ops.so.9 && mkfifo libcudnn_ops.so.9", why=NO_ELF),
    "lone8": Kind(major=8, spoil="rm libcudnn_*", why="without libcudnn_ops_infer.so.8, "),
    "no_adv": Kind(spoil="rm libcudnn_adv*", why="without libcudnn_adv.so.9,"),
    "cut": Kind(spoil="truncate -s 5000 libcudnn_adv.so.9", why="truncated at 5000 bytes"),
    "cut_late": Kind(spoil="set -- $(readelf -lW libcudnn_graph.so.9 | grep DYNAMIC) && "
                     "truncate -s $(($2 + 1)) libcudnn_graph.so.9",
                     why="libcudnn_graph.so.9: truncated at"),
    "text": Kind(spoil="echo version https://git-lfs > libcudnn_ops.so.9", why=NO_ELF),
    "foreign": Kind(spoil="mv libcudnn_graph.so.9 x && { head -c 18 x; printf '\\002'; "
                    "tail -c +20 x; } > libcudnn_graph.so.9 && rm x",
                    why="libcudnn_graph.so.9: built for another CPU architecture"),
    "secret": Kind(spoil="ln -sf nowhere libcudnn_ops.so.9", why="without libcudnn_ops.so.9,"),
    "old": Kind("old", 8, why="cuDNN 8.5.0 is too old", opens=ALL),
    "lying": Kind("lying", why="it reports version 8.9.6", opens=ALL),
    "other": Kind("other", why="it reports version 10.0.0", opens=ALL),
    "mixed": Kind("mixed", why="cudnnAdvVersionCheck returned 1002 (STUB_STATUS)", opens=ALL),
    "undefined": Kind(spoil="cp {stubs}/undefined/* .", why="libcudnn_adv.so.9 does not open: /",
                      opens=SOME),
    "lacking": Kind("lacking", why="it lacks cudnnGetVersion", opens=ALL),
    "seven": Kind(None, 0, "touch libcudnn.so.7", why="cuDNN 7: 8.9 or 9 is needed"),
}  # fmt: skip
REFUSED = Kind(None, 0, why="not asked")
MISSING = Kind(None, 0, why="cannot open shared object file")


@pytest.fixture(scope="module")
def machine(stubs, tmp_path_factory):
    """Folders of every kind in every place, and a process that makes the searches."""
    root, loader = tmp_path_factory.mktemp("places"), tmp_path_factory.mktemp("loader")

    def root_of(place, kind):
        return root / place / kind

    def folder_of(place, kind):
        return root_of(place, kind) / PLACES[place][1]

    def fill(folder, kind):
        folder.mkdir(parents=True, exist_ok=True)
        if kind.stub:
            for name in PARTS[kind.major]:
                shutil.copy(stubs / "parts" / name, folder)
            shutil.copy(stubs / kind.stub / f"libcudnn.so.{kind.major}", folder)
        run(["sh", "-c", kind.spoil.replace("{stubs}", str(stubs))], cwd=folder)

    def ask(*steps, variables=(), packages=(), environments=(), loaded=None):
        question = {"steps": steps, "variables": dict(variables), "packages": packages,
                    "environments": environments, "loaded": loaded}  # fmt: skip
        asked = json.dumps(question, default=str)
        return json.loads(children.run("run.gpu.searches", "search", QUESTION=asked))

    for kind in KINDS:
        for place in list(PLACES)[:-1]:
            fill(folder_of(place, kind), KINDS[kind])
    children = Children(["run.gpu.searches"], os.environ | {"LD_LIBRARY_PATH": str(loader)})
    yield types.SimpleNamespace(root_of=root_of, folder_of=folder_of, fill=fill, ask=ask,
                                loader=loader, stubs=stubs)  # fmt: skip
    children.close()


def emptied(folder):
    for path in folder.iterdir():
        path.unlink()
    return folder


def expected_loader(kinds, opened):
    """Yield the places of the system's loader, which is not asked for what is there already."""
    for major in (9, 8):
        above = opened[major] == ALL or major in (kinds["first"].major, kinds["second"].major)
        there = kinds["loader"] if kinds["loader"].major == major else MISSING
        yield "loader", REFUSED if above else there


def assert_as_expected(report, kinds):
    """Compare the report with a model of the search: kinds of folders by their places."""
    opened, found = {9: NOTHING, 8: NOTHING, 0: NOTHING}, None
    places = iter([p for p in report["places"] if p["origin"] != "usual folders"])

    def is_taken(name, kind, shared=False):
        place = next(places)
        assert place["origin"] == PLACES[name][0], (name, place)
        said = place["why_not"]
        if opened[kind.major] and not shared and said and "has already loaded libcudnn" in said:
            return False
        blocked = opened[kind.major] and not shared and kind.opens
        assert not blocked and (kind.why in said if kind.why else said is None), (name, kind, said)
        opened[kind.major] = max(opened[kind.major], kind.opens)
        return said is None

    loaded = kinds["loaded"]
    if loaded.stub:
        opened[loaded.major] = ALL
    first = loaded if loaded.stub else Kind(None, 0, why="not loaded in this process")
    found = is_taken("loaded", first, shared=True)
    for name in list(PLACES)[1:-1]:
        found = found or is_taken(name, kinds[name])
    if not found:
        found = any(is_taken(*place) for place in expected_loader(kinds, opened))
    assert next(places, None) is None and found == (report["path"] is not None)
    assert not found or (report["version"] in (91900, 8906) and report["cuda_version"] == 13010)
    assert report["why_not"] and report["no_driver"] and not report["cublas"]


def random_machines(rng):
    """Yield what is in each place: mostly nothing or something bad, so that the search goes on."""
    for name in PLACES:
        yield {place: "empty" for place in PLACES} | {name: "good9"}
        yield {place: "empty" for place in PLACES} | {name: "good8"}
    for turn in range(60):
        kinds = {}
        for place in PLACES:
            bad = "empty" if turn % 3 else rng.choice(list(KINDS))
            kinds[place] = bad if rng.random() < 2 / 3 else rng.choice(list(KINDS))
            if turn % 2 and not KINDS[kinds[place]].why:
                kinds[place] = "empty"
        if kinds["loader"] == "pipe":  # the system's loader would wait for it
            kinds["loader"] = "empty"
        yield kinds


def test_every_place_in_its_order(machine):
    for names in random_machines(random.Random(1)):
        kinds = {place: KINDS[name] for place, name in names.items()}
        roots = {place: machine.root_of(place, name) for place, name in names.items()}
        machine.fill(emptied(machine.loader), kinds["loader"])
        variables = {PLACES[place][0]: roots[place]
                     for place in ("conda", "cudnn", "home", "cuda", "cuda_home")}  # fmt: skip
        variables["LD_LIBRARY_PATH"] = f"{roots['first']}:{roots['second']}"
        loaded = kinds["loaded"]
        file = machine.folder_of("loaded", names["loaded"]) / f"libcudnn.so.{loaded.major}"
        first, again = machine.ask(
            "find", "find", variables={name: str(root) for name, root in variables.items()},
            packages=[roots["site"], roots["user"]], environments=[roots["venv"]],
            loaded=file if loaded.stub else None,
        )  # fmt: skip
        assert_as_expected(first, kinds)
        assert again == first  # the answer is kept


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
    assert (chosen is None) == bool(why) and (again == report) == (not why)


@pytest.mark.parametrize("name", KINDS)
def test_a_chosen_place(machine, name):
    kind, folder = KINDS[name], machine.folder_of("site", name)
    paths = [folder, machine.root_of("cuda_home", name)]
    paths += [folder / f"libcudnn.so.{kind.major}"] if kind.stub else []
    for k, path in enumerate(paths):
        choose(machine, path, kind.why, by_call=k % 2)
        choose(machine, path, kind.why, by_call=not k % 2)


def test_chosen_otherwise(machine):
    choose(machine, "off", "switched off", by_call=True)
    choose(machine, "off", "switched off", by_call=False)
    choose(machine, "/nowhere/at/all", "no such file or folder", by_call=True)
    choose(machine, "nowhere.so", "no such file or folder", by_call=False)
    good = machine.folder_of("site", "good9")
    choose(machine, good / "libcudnn_adv.so.9", "not called libcudnn.so.9", by_call=True)
    lone, loaded = (machine.folder_of("loaded", name) for name in ("lone9", "good9"))
    choose(machine, good, "has already loaded libcudnn.so.9 of another cuDNN, from /", by_call=True,
           loaded=lone / "libcudnn.so.9")  # fmt: skip
    for path in (loaded, machine.folder_of("site", "good8")):
        choose(machine, path, None, by_call=True, loaded=loaded / "libcudnn.so.9")


def test_a_place_that_two_variables_name_is_searched_once(machine):
    lone, empty = (machine.root_of("cuda_home", name) for name in ("lone9", "empty"))
    (report,) = machine.ask("find", variables={
        "CUDA_PATH": str(lone), "CUDA_HOME": str(lone),
        "CUDNN_PATH": str(empty), "CUDNN_HOME": str(empty),
    })  # fmt: skip
    paths = [place["path"] for place in report["places"]]
    assert sum("/lone9/" in path for path in paths) == sum("/empty" in path for path in paths) == 1


# What is installed -> what the report says: variables of the stubs, the place of cuBLAS, and the
# texts, each for cuDNN's place ("place"), the driver, the first GPU, and all together ("why_not").
BESIDE, NONE = ".", "no usable cuDNN was found"
DRIVER = "no NVIDIA driver"
DRIVEN = [
    ("good9", {"STUB_GPUS": 2}, "../../cu13/lib", {}),
    ("good9", {}, "../../cublas/lib", {}),
    ("good9", {}, BESIDE, {}),
    ("good9", {}, "loader", {}),
    ("good8", {"STUB_CUDA": 11080}, "../../cublas/lib", {}),
    ("good8", {"STUB_CUDA": 11080}, "without libcublas.so.11",
     {"why_not": NONE, "place": "it needs libcublas.so.11, "}),
    ("good9", {}, None, {"why_not": NONE, "place": "it needs libcublasLt.so.13, "}),
    ("good9", {"STUB_DRIVER": 12040}, BESIDE, {
        "why_not": NONE, "place": "built for CUDA 13, but the driver supports CUDA 12.4 at most"}),
    ("good9", {"STUB_NEWEST_GPU": 890}, BESIDE, {
        "why_not": "supports 8.9 at most",
        "gpu": "capability is 9.0, but this cuDNN supports 8.9 at most"}),
    ("good9", {"STUB_INIT": 100, "CUDA_VISIBLE_DEVICES": 7}, BESIDE, {
        "why_not": DRIVER, "no_driver": "cuInit: 100 (CUDA_ERROR_NO_DEVICE): no CUDA-capable "
        'device is detected; CUDA_VISIBLE_DEVICES is "7"'}),
    ("good9", {"STUB_GPUS": 0}, BESIDE, {"why_not": DRIVER, "no_driver": "cuDeviceGetCount: 100"}),
    *(("good9", {"STUB_FAILS": call}, BESIDE,
       {"why_not": DRIVER, "no_driver": f"{call}: 1 (CUDA_ERROR_STUB): a stub"})
      for call in ("cuDriverGetVersion", "cuDeviceGetCount")),
    *(("good9", {"STUB_FAILS": call}, BESIDE, {"why_not": f"{call}: 1", "gpu": f"{call}: 1"})
      for call in ("cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute")),
    ("empty", {}, BESIDE, {"why_not": NONE, "place": "no libcudnn.so.9"}),
    ("good9", {"DRIVER": "old_driver"}, BESIDE, {
        "why_not": DRIVER, "no_driver": "lacks cuDevicePrimaryCtxRetain: the driver is too old"}),
]  # fmt: skip


@pytest.mark.parametrize("name, variables, cublas, texts", DRIVEN, ids=str)
def test_drivers_and_what_cudnn_needs(machine, tmp_path, name, variables, cublas, texts):
    folder = tmp_path / "nvidia/cudnn/lib"
    machine.fill(folder, KINDS[name])
    driver = variables.get("DRIVER", "driver")
    shutil.copy(machine.stubs / driver / "libcuda.so.1", emptied(machine.loader))
    if cublas:
        there = machine.loader if cublas == "loader" else folder / (
            cublas if cublas.startswith(".") else BESIDE)  # fmt: skip
        there.mkdir(parents=True, exist_ok=True)
        for path in (machine.stubs / "parts").glob("libcublas*"):
            if path.name not in cublas:
                shutil.copy(path, there)
    given = {key: str(value) for key, value in variables.items()}
    (report,) = machine.ask("find", variables={"RNNLAYOUT_CUDNN": str(folder), **given})
    said = {"why_not": report["why_not"], "place": report["places"][0]["why_not"],
            "no_driver": report["no_driver"]}  # fmt: skip
    for gpu in report["gpus"]:
        said["gpu"] = gpu["why_not"]
        assert "gpu" in texts or (gpu["capability"], gpu["name"][:9]) == (90, "Stub GPU ")
    for key, text in said.items():
        assert texts[key] in text if key in texts else text is None, (key, text)
    assert texts.keys() <= said.keys() and report["driver"].endswith("/libcuda.so.1")
    assert (report["cublas"] is None) == ("why_not" in texts and "gpu" not in texts)
    assert len(report["gpus"]) == (0 if "no_driver" in texts else variables.get("STUB_GPUS", 1))
    assert not report["cublas"] or re.search(r"libcublasLt\.so\.1[13]$", report["cublas"])
