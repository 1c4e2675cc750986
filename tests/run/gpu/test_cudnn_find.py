"""Finding cuDNN as users see it: doctor, errors, variables; with stubs for cuDNN and the driver.

test_cudnn_places.py asks about the order of places, and what is wrong with each.
"""

import os
import re
import shutil
import sys

import pytest
from commands import ROOT
from run.gpu.conftest import PARTS
from run.gpu.doctor import PACKAGE, doctor, python, rnnlayout

import rnnlayout as rl
from rnnlayout._cli.commands import doctor as _doctor
from rnnlayout._run import cudnn as _cudnn


@pytest.fixture
def install(stubs):
    """(folder, *names): copies of some stubs, by default those of cuDNN 9.19.0."""

    def copy(folder, *names):
        folder.mkdir(parents=True, exist_ok=True)
        for name in names or [*PARTS, "libcudnn.so.9"]:
            where = {"libcudnn.so.9": "good", "libcuda.so.1": "driver"}.get(name, "parts")
            shutil.copy(stubs / where / name, folder)
        return folder

    return copy


# --------------------------------------------------------------------------------- the commands


def test_nothing_at_all():
    code, found = doctor()
    assert code == 0
    assert found["schema"] == "rnnlayout.doctor/2" and found["rnnlayout"] == rl.__version__
    assert found["cpu"]["kernels"] == rl.cpu_tier()
    gpu = found["gpu"]
    assert (gpu["usable"], gpu["cudnn"], gpu["gpus"]) == (False, None, [])
    assert gpu["why_not"] == "no usable cuDNN was found"
    assert gpu["hint"].startswith('pip install "rnnlayout[cu13]"')
    assert gpu["driver"]["path"] is None and "libcuda.so.1" in gpu["driver"]["why_not"]
    origins = [place["origin"] for place in gpu["places"]]
    assert origins == sorted(origins, key=["already loaded", "packages", "environment",
                                           "usual folders", "loader"].index)  # fmt: skip
    assert PACKAGE in [place["path"] for place in gpu["places"]]
    assert all(place["why_not"] for place in gpu["places"])


def test_all_that_is_needed(install, tmp_path):
    folder = install(tmp_path / "nvidia/cudnn/lib")
    install(tmp_path / "nvidia/cu13/lib", "libcublasLt.so.13")
    code, found = doctor(
        PYTHONPATH=os.pathsep.join([str(tmp_path), PACKAGE]), STUB_GPUS=2,
        LD_LIBRARY_PATH=install(tmp_path / "driver", "libcuda.so.1"),
    )  # fmt: skip
    gpu = found["gpu"]
    aborts = "an RNN of one unit failed on it: the process ended with SIGABRT"  # the stubs do
    assert code == 0 and not gpu["usable"] and gpu["why_not"] == aborts
    assert gpu["cudnn"] == {
        "path": f"{folder}/libcudnn.so.9",
        "version": "9.19.0",
        "cuda": "13.1",
        "cublas": f"{folder}/../../cu13/lib/libcublasLt.so.13",
    }
    assert gpu["driver"] == {
        "path": f"{tmp_path}/driver/libcuda.so.1", "cuda": "13.1", "why_not": None,
    }  # fmt: skip
    assert gpu["gpus"] == [
        {"device": f"cuda:{k}", "name": f"Stub GPU {k}", "capability": "9.0", "why_not": aborts}
        for k in range(2)
    ]
    assert gpu["places"][-1] == {
        "origin": "packages", "path": f"{folder}/libcudnn.so.9", "why_not": None,
    }  # fmt: skip


def test_a_gpu_is_tried(fakes):
    environment = fakes.environment()
    for variables, code, said in (
        (environment, 0, "GPU: can be used"),
        (environment | {"FAKE_FAIL": "40:700:5000"}, 5, "GPU: cannot be used: an RNN of one"),
    ):
        found, out, err = rnnlayout("doctor", "--require", "gpu", **variables)
        assert (found, err) == (code, "") and said in out, out
    assert "cuda:0: Fake GPU: an RNN of one unit failed on it: rnnlayout.CudnnError: " in out
    assert rnnlayout("doctor", **variables)[0] == 0


def test_a_gpu_that_cannot_be_used_is_not_tried(monkeypatch):
    gpu = {"name": "GPU", "capability": 90, "why_not": None}
    old = gpu | {"why_not": "too old"}
    report = _cudnn.cudnn_report() | {"why_not": None, "gpus": [gpu, old, gpu]}
    monkeypatch.setattr(_cudnn, "cudnn_report", lambda: report)
    tried = []
    monkeypatch.setattr(_doctor, "_trials", lambda devices: tried.extend(devices) or {})
    found = _doctor.examine_machine()["gpu"]
    assert tried == ["cuda:0", "cuda:2"] and found["usable"]
    assert [one["why_not"] for one in found["gpus"]] == [None, "too old", None]


@pytest.mark.parametrize(
    "program, told",
    [
        ("pass", None),
        ("import sys; sys.exit('first line\\nthe last line')", "the last line"),
        ("import sys; sys.exit(1)", "without a message"),
        ("import os; os.kill(os.getpid(), 1)", "the process ended with SIGHUP"),
        ("import os; os.kill(os.getpid(), 9)", "the process ended with SIGKILL"),
    ],
)
def test_why_a_trial_failed(monkeypatch, program, told):
    monkeypatch.setattr(_doctor, "_TRIAL", program)
    failed = f"an RNN of one unit failed on it: {told}"
    assert _doctor._trials(["cuda:0"]) == {"cuda:0": told and failed}


def test_packages(monkeypatch):
    told = _doctor.examine_machine()
    assert all(one["version"] for one in told["packages"])  # the tests need all of them
    monkeypatch.setitem(_doctor._PACKAGES, "no_such_package", ("h5", "for nothing"))
    told = _doctor.examine_machine()
    assert told["packages"][-1]["version"] is None
    assert "no_such_package  -  " in re.sub(" +(?=-  )", "  ", _doctor.machine_text(told))
    assert 'for nothing: pip install "rnnlayout[h5]"' in _doctor.machine_text(told)


def test_text_and_json_say_the_same(install, tmp_path):
    folder = install(tmp_path / "ünï", "libcudnn.so.9")
    for encoding in ("utf-8", "ascii"):
        code, out, err = rnnlayout("doctor", RNNLAYOUT_CUDNN=folder, PYTHONIOENCODING=encoding)
        assert (code, err) == (0, "")
        assert out.startswith(f"rnnlayout {rl.__version__}, Python 3.")
        lines = out[out.index("CPU:") :].splitlines()
        del lines[1 : lines.index("GPU: cannot be used: no usable cuDNN was found") - 1]
        assert lines[2] == "GPU: cannot be used: no usable cuDNN was found"
        assert "/libcudnn.so.9: found libcudnn.so.9 without libcudnn_graph.so.9," in lines[3]
        assert ("ünï" in lines[3]) == (encoding == "utf-8")
        assert lines[-1].startswith("hint: without RNNLAYOUT_CUDNN")


def test_the_script_is_installed_with_the_package():
    text = (ROOT / "pyproject.toml").read_text()
    assert 'rnnlayout = "rnnlayout._cli.main:main"' in text
    assert re.search(r'^cu12 = \["nvidia-cudnn-cu12>=9,<10"\]', text, re.MULTILINE)
    assert re.search(r'^cu13 = \["nvidia-cudnn-cu13>=9,<10"\]', text, re.MULTILINE)


# ----------------------------------------------------------------------------------- in Python

WEIGHTS = "import numpy as np, rnnlayout as rl; w = np.zeros(84, 'f4'), rl.Spec('lstm', 2, 3);"
MAPPED = "'libcudnn' in open('/proc/self/maps').read()"


def refused(device, **variables):
    """Return the error of making an RNN in this environment."""
    return python(
        WEIGHTS
        + f"""
try:
    rl.RNN(*w, device={device!r})
except Exception as error:
    print(type(error).__name__, error)
""",
        **variables,
    )


def test_cuda_never_falls_back():
    said = refused("cuda")
    assert said.startswith("CudnnNotFoundError cuda:0 cannot be used: no usable cuDNN was found")
    assert f"\n  packages: {PACKAGE}: no libcudnn.so.9 in nvidia/cudnn" in said
    assert '\nhint: pip install "rnnlayout[cu13]"' in said
    assert issubclass(rl.CudnnNotFoundError, RuntimeError)


def test_auto_without_a_gpu_is_the_cpu_and_says_nothing(install, tmp_path):
    """With a GPU: on_gpu_numpy.py."""
    folder = install(tmp_path)
    for device, variables in [("auto", {}), ("auto", {"RNNLAYOUT_CUDNN": folder}),
                              ("auto", {"RNNLAYOUT_CUDNN": "off"})]:  # fmt: skip
        program = WEIGHTS + f"print(rl.RNN(*w, device={device!r}).device)"
        assert python(program, **variables) == "cpu\n"
    program = WEIGHTS + f"print(rl.RNN(*w, device='cpu').device, {MAPPED})"
    assert python(program, RNNLAYOUT_CUDNN=folder) == "cpu False\n"


def test_each_gpu_is_asked(install, tmp_path):
    folder = install(tmp_path)
    install(tmp_path, "libcublasLt.so.13", "libcuda.so.1")
    here = {"RNNLAYOUT_CUDNN": folder, "LD_LIBRARY_PATH": folder, "STUB_GPUS": 2}
    said = refused("cuda:2", **here)
    assert said.startswith("CudnnNotFoundError cuda:2 cannot be used: this GPU does not exist\n")
    assert "\n  cuda:1: Stub GPU 1: compute capability 9.0\n" in said
    said = refused("cuda:1", **here, STUB_NEWEST_GPU=890)
    assert "cuda:1 cannot be used: its compute capability is 9.0" in said
    assert "hint: pip install --upgrade" in said


@pytest.mark.parametrize("cuda, extra", [(11080, "cu12"), (12040, "cu12"), (13000, "cu13")])
def test_the_hint_knows_the_driver(install, tmp_path, cuda, extra):
    driver = install(tmp_path, "libcuda.so.1")
    said = refused("cuda", LD_LIBRARY_PATH=driver, STUB_DRIVER=cuda)
    assert said.endswith(f'hint: pip install "rnnlayout[{extra}]"\n')


def test_a_fork_cannot_have_the_driver(install, tmp_path):
    folder = install(tmp_path)
    install(tmp_path, "libcublasLt.so.13", "libcuda.so.1")
    program = (
        WEIGHTS
        + """
import os
from rnnlayout._run import cudnn as _cudnn
assert not _cudnn.cudnn_report()["why_not"]
if os.fork() == 0:
    try:
        rl.RNN(*w, device="cuda")
    except rl.CudnnNotFoundError as error:
        os.write(1, str(error).encode())
    os._exit(0)
os.wait()
"""
    )
    said = python(program, RNNLAYOUT_CUDNN=folder, LD_LIBRARY_PATH=folder)
    assert "start processes with spawn" in said


def test_a_cudnn_that_is_named(install, tmp_path):
    folder = install(tmp_path / "good")
    lone = install(tmp_path / "lone", "libcudnn.so.9")
    program = f"""
import pathlib, rnnlayout as rl
from rnnlayout._run import cudnn as _cudnn

def found():
    place = _cudnn.cudnn_report()["places"][0]
    print(place["origin"], place["why_not"] and place["why_not"][:27])

rl.set_cudnn("off"); found()
rl.set_cudnn({str(lone)!r}); found()
rl.set_cudnn(pathlib.Path({str(folder)!r}, "libcudnn.so.9")); found()
try:
    rl.set_cudnn(None)
except rl.SpecError as error:
    print(error)
"""
    assert python(program, RNNLAYOUT_CUDNN="/nowhere").splitlines() == [
        "chosen switched off",
        "chosen found libcudnn.so.9 without",
        "chosen None",
        f"the process already uses {folder}/libcudnn.so.9 and cannot change to another cuDNN:"
        " choose one before the first use of a GPU",
    ]


@pytest.mark.parametrize("path", [7, "", "a\0b", b"", object()])
def test_a_name_that_is_none(path):
    with pytest.raises(rl.SpecError, match="need a file, a folder, 'off' or None"):
        rl.set_cudnn(path)


def test_off_opens_nothing(install, tmp_path):
    install(tmp_path, "libcuda.so.1")
    code, found = doctor(RNNLAYOUT_CUDNN="off", LD_LIBRARY_PATH=tmp_path)
    assert code == 0 and found["gpu"]["why_not"] == "cuDNN is switched off"
    assert found["gpu"]["driver"] == {"path": None, "cuda": None, "why_not": None}


def test_what_is_no_folder_of_packages_is_left_out(monkeypatch, tmp_path):
    (tmp_path / "python.zip").touch()
    odd = ["", ".", "here", "a\0b", 7, None, tmp_path, str(tmp_path / "python.zip")]
    monkeypatch.setattr(sys, "path", [*odd, *sys.path, str(tmp_path), str(tmp_path)])
    folders = [root for origin, root, _ in _cudnn._roots() if origin == "packages"]
    assert folders.count(str(tmp_path)) == 1 and PACKAGE in folders
    assert all(os.path.isdir(folder) and os.path.isabs(folder) for folder in folders)
    assert os.path.dirname(os.__file__) not in folders


# -------------------------------------------------------------------------------- the page of it

PAGE = (ROOT / "docs" / "gpu.md").read_text()
SHOWN = dict(re.findall(r"<!-- doctor: (.*?) -->\n```text\n(.*?)```", PAGE, re.DOTALL))
VENV, SITE = "/home/me/venv", "/home/me/venv/lib/python3.11/site-packages"


def machine(name, install, fakes, folder):
    """Return the environment of a machine that the page shows."""
    wheels = folder / "wheels"
    here = {"PYTHONPATH": os.pathsep.join([str(wheels), PACKAGE])}
    if name == "well":  # an RNN is run
        shutil.copytree(fakes.cudnn, wheels / "nvidia/cudnn/lib")
        (wheels / "nvidia/cu13/lib").mkdir(parents=True)
        shutil.move(wheels / "nvidia/cudnn/lib/libcublasLt.so.13", wheels / "nvidia/cu13/lib")
        here["LD_LIBRARY_PATH"] = shutil.copytree(fakes.cuda, folder / "driver")
        here |= {"FAKE_CUDNN": 91900, "FAKE_CUDA_DRIVER": 13010}
    if name in ("no GPU", "old driver"):
        install(wheels / "nvidia/cudnn/lib")
        install(wheels / "nvidia/cu13/lib", "libcublasLt.so.13")
    if name == "old driver":
        here["LD_LIBRARY_PATH"] = install(folder / "driver", "libcuda.so.1")
    if name == "old driver":
        here["STUB_DRIVER"] = 12040
    if name == "alone":
        here["LD_LIBRARY_PATH"] = install(folder / "bundled", "libcudnn.so.9")
    return here


def as_shown(text, folder):
    """Return what doctor prints about the GPU, with the paths on the page and no line twice."""
    text = re.sub("Stub GPU 0|Fake GPU", "NVIDIA H100 PCIe", text[text.index("GPU:") :])
    text = text.replace(f"{folder}/wheels", SITE).replace(f"{folder}/bundled", "/opt/app/lib")
    text = text.replace(f"{folder}/driver", "/usr/lib/x86_64-linux-gnu")
    text = re.sub(r"(packages: )\S+(: no )", rf"\1{SITE}\2", text)
    text = re.sub(r"(environment: )\S+(: no )", rf"\1{VENV}\2", text)
    text = re.sub(r"(usual folders: \S+): .*", r"\1: no such folder", text)
    lines = [line for line in text.splitlines() if "LD_LIBRARY_PATH: /usr/lib/" not in line]
    return "\n".join(dict.fromkeys(lines)) + "\n"


@pytest.mark.parametrize("name", SHOWN)
def test_the_page_shows_what_doctor_prints(name, install, fakes, tmp_path):
    _, out, _ = rnnlayout("doctor", **machine(name, install, fakes, tmp_path))
    assert as_shown(out, tmp_path) == SHOWN[name]


def test_the_page_explains_every_reason():
    """The page's table has each message of the core about a folder."""
    folder = ROOT / "csrc" / "forward" / "cudnn"
    code = "".join((folder / name).read_text() for name in ("load.c", "library.c"))
    said = re.sub(r"\s+", " ", PAGE)
    for reason in ("which belong beside it", "truncated at", "not a 64-bit library", "is too old",
                   "built for another CPU architecture", "of another cuDNN",
                   "it is built for CUDA", "its parts have different versions"):  # fmt: skip
        assert reason in re.sub(r'"\s*"', "", code) and reason in said, reason
    assert len(SHOWN) == 5
