"""Real cuDNN, whole and incomplete, found without a GPU; each search in a process of its own.

tools/cudnn.txt pins the libraries, tools/get_cudnn.py downloads them.
"""

import os
import re
import sys

import pytest
from commands import ROOT
from marks import download
from run.gpu.conftest import PACKAGE, doctor, python

sys.path.insert(0, str(ROOT / "tools"))

import get_cudnn
from ask_cudnn import LIBRARIES

VERSIONS = {"9.0": "9.0.0", "9.19": "9.19.0", "9.28": "9.28.0"}


@pytest.fixture(params=map(download, VERSIONS))
def real(request):
    """(version, folder, names of its libraries)"""
    return VERSIONS[request.param], get_cudnn.get(request.param), LIBRARIES[9]


def link(folder, names, to):
    to.mkdir(parents=True, exist_ok=True)
    for name in names:
        (to / name).symlink_to(folder / name)
    return to


def test_it_is_found_and_named(real, tmp_path):
    version, folder, names = real
    link(folder, names, tmp_path / "nvidia/cudnn/lib")
    wheels = {"PYTHONPATH": os.pathsep.join([str(tmp_path), PACKAGE])}
    for variables in ({"RNNLAYOUT_CUDNN": folder}, {"RNNLAYOUT_CUDNN": folder / names[-1]}, wheels):
        code, found = doctor(**variables)
        gpu = found["gpu"]
        assert code == 0 and gpu["why_not"] == "no NVIDIA driver with a GPU was found"
        assert gpu["cudnn"]["version"] == version
        assert gpu["cudnn"]["cuda"].split(".")[0] in folder.name.split("-")[2]  # cu13
        assert gpu["cudnn"]["path"] == gpu["places"][-1]["path"]
        assert gpu["cudnn"]["cublas"] is None
    assert gpu["places"][-1]["origin"] == "packages"


def test_one_that_is_loaded_already_is_shared(real, tmp_path):
    version, folder, names = real
    program = f"""
import ctypes
for name in {names!r}:
    ctypes.CDLL({str(folder)!r} + "/" + name)
from rnnlayout._run import cudnn as _cudnn
report = _cudnn.cudnn_report()
print(_cudnn.cudnn_version(report), report["places"][0]["origin"], len(report["places"]))
"""
    assert python(program) == f"{version} already loaded 1\n"


def test_one_that_misses_parts_is_an_error(real, tmp_path):
    _, folder, (*parts, main) = real
    for number, missing in enumerate([parts, *([part] for part in parts)]):
        kept = [part for part in parts if part not in missing]
        place = link(folder, [*kept, main], tmp_path / str(number))
        code, found = doctor(RNNLAYOUT_CUDNN=place)
        (said,) = found["gpu"]["places"]
        assert code == 0 and found["gpu"]["cudnn"] is None
        assert said["why_not"].startswith(f"found {main} without {', '.join(missing)}, ")


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
def test_parts_of_two_versions_are_an_error(other, tmp_path):
    newest, oldest = get_cudnn.get("9.28"), get_cudnn.get("9.0")
    mixed = link(newest, [name for name in OTHERS if name != other], tmp_path)
    link(oldest, [other], mixed)
    code, found = doctor(RNNLAYOUT_CUDNN=mixed)
    (place,) = found["gpu"]["places"]
    assert code == 0
    if OTHERS[other]:
        assert found["gpu"]["cudnn"] is None and re.match(OTHERS[other], place["why_not"])
    else:
        assert found["gpu"]["cudnn"]["version"] == VERSIONS["9.28"]
