"""What users are told about cuDNN and GPUs: doctor, its page, errors. test_cudnn_places.py asks
where cuDNN is searched, and what is wrong with each place."""

import json
import os
import re
import shutil
import sys

import pytest
from commands import ROOT, run
from run.gpu.conftest import PACKAGE, environment, rnnlayout

import rnnlayout as rl
from rnnlayout import _native
from rnnlayout._cli.commands import doctor as _doctor
from rnnlayout._run import cudnn as _cudnn

# ------------------------------------------------------------------------------ doctor as text

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
        here["FAKE_CUDA_DRIVER"] = 12040
    if name == "alone":
        here["LD_LIBRARY_PATH"] = install(folder / "bundled", "libcudnn.so.9")
    return here


def as_shown(text, folder):
    """Return what doctor prints about the GPU, with the paths on the page and no line twice."""
    text = re.sub("Fake GPU", "NVIDIA H100 PCIe", text[text.index("GPU:") :])
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
    code = (ROOT / "csrc" / "forward" / "cudnn" / "load.c").read_text()
    said = re.sub(r"\s+", " ", PAGE)
    for reason in ("which belong beside it", "not a 64-bit library", "is too old",
                   "built for another CPU architecture", "of another cuDNN",
                   "it is built for CUDA", "its parts have different versions"):  # fmt: skip
        assert reason in re.sub(r'"\s*"', "", code) and reason in said, reason
    assert len(SHOWN) == 5


# ------------------------------------------------------------------------------ doctor as JSON


def test_json_of_a_machine_with_gpus(install, fakes, tmp_path):
    variables = machine("well", install, fakes, tmp_path) | {"FAKE_CUDA_DEVICES": 2}
    code, out, err = rnnlayout("doctor", "--json", **variables)
    found = json.loads(out)
    path = f"{tmp_path}/wheels/nvidia/cudnn/lib"
    gpu = {"name": "Fake GPU", "capability": "9.0", "why_not": None}
    assert (code, err, found["gpu"]) == (0, "", {
        "usable": True, "why_not": None, "hint": None,
        "cudnn": {"path": f"{path}/libcudnn.so.9", "version": "9.19.0", "cuda": "13.1",
                  "cublas": f"{path}/../../cu13/lib/libcublasLt.so.13"},
        "pip": {"installed": {}, "torch_requires": None, "extra": "cu13"},
        "driver": {"path": f"{tmp_path}/driver/libcuda.so.1", "cuda": "13.1", "why_not": None},
        "gpus": [{"device": "cuda:0", **gpu}, {"device": "cuda:1", **gpu}],
        "places": [*found["gpu"]["places"][:-1],
                   {"origin": "packages", "path": f"{path}/libcudnn.so.9", "why_not": None}],
    })  # fmt: skip


# ------------------------------------------------------------------------- an RNN on each GPU


def test_a_gpu_is_tried(fakes):
    fails = {"FAKE_FAIL": "cudnnRNNForward:2:5000"}
    for more, code, said in (({}, 0, "GPU: can be used"), (fails, 5, "GPU: cannot be used: an")):
        found, out, err = rnnlayout("doctor", "--require", "gpu", **fakes.environment(**more))
        assert (found, err) == (code, "") and said in out, out
    assert "cuda:0: Fake GPU: an RNN of one unit failed on it: rnnlayout.CudnnError: " in out


def test_a_gpu_that_cannot_be_used_is_not_tried(monkeypatch):
    gpu = {"name": "GPU", "capability": 90, "why_not": None}
    old = gpu | {"why_not": "too old"}
    report = _cudnn.cudnn_report() | {"why_not": None, "gpus": [gpu, old, gpu]}
    monkeypatch.setattr(_cudnn, "cudnn_report", lambda: report)
    tried = []
    monkeypatch.setattr(_doctor, "_why_not", tried.append)
    found = _doctor.examine_machine()["gpu"]
    assert sorted(tried) == ["cuda:0", "cuda:2"] and found["usable"]
    assert [one["why_not"] for one in found["gpus"]] == [None, "too old", None]


def test_why_a_trial_failed(monkeypatch):
    failed = "an RNN of one unit failed on it: "
    for program, told in [
        ("pass", None),
        ("import sys; sys.exit('first line\\nthe last line')", f"{failed}the last line"),
        ("import sys; sys.exit(1)", f"{failed}without a message"),
        ("import os; os.kill(os.getpid(), 9)", f"{failed}the process ended with SIGKILL"),
        ("import time; time.sleep(3600)", "an RNN of one unit did not end within 1 seconds"),
    ]:
        monkeypatch.setattr(_doctor, "_SECONDS", 1 if "time" in program else 600)
        monkeypatch.setattr(_doctor, "_TRIAL", program)
        assert _doctor._why_not("cuda:0") == told


# ------------------------------------------------------------------------------------ packages


def test_packages(monkeypatch):
    told = _doctor.examine_machine()
    assert all(one["version"] for one in told["packages"])  # the tests need all of them
    monkeypatch.setitem(_doctor._PACKAGES, "no_such_package", ("h5", "for nothing"))
    told = _doctor.examine_machine()
    assert told["packages"][-1]["version"] is None
    assert "\n  no_such_package  -  " in re.sub(" +(?=-  )", "  ", _doctor.machine_text(told))
    assert 'for nothing: pip install "rnnlayout[h5]"' in _doctor.machine_text(told)


# ----------------------------------------------------------------------------------- in Python


def test_without_a_gpu(install, tmp_path):
    """ "cuda" is an error, which reports the search; "auto" is the CPU and says nothing."""
    program = """
import numpy as np, rnnlayout as rl
w = np.zeros(84, "f4"), rl.Spec("lstm", 2, 3)
print(rl.RNN(*w, device="cpu").device, "libcudnn" in open("/proc/self/maps").read())
print(rl.RNN(*w, device="auto").device)
try:
    rl.RNN(*w, device="cuda")
except rl.CudnnNotFoundError as error:
    print(error)
"""
    command = [sys.executable, "-P", "-c", program]
    said = run(command, env=environment())
    assert said.startswith("cpu False\ncpu\ncuda:0 cannot be used: no usable cuDNN was found\n")
    assert f"\n  packages: {PACKAGE}: no libcudnn.so.9 in nvidia/cudnn" in said
    assert '\nhint: pip install "rnnlayout[cu13]"' in said
    said = run(command, env=environment(RNNLAYOUT_CUDNN=install(tmp_path)))
    assert said.startswith("cpu False\ncpu\ncuda:0 cannot be used: no NVIDIA driver with a GPU")
    assert issubclass(rl.CudnnNotFoundError, RuntimeError)


def wheels(torch=None, **versions):
    """Return the part of a report on pip's cuDNN packages. torch: the one that torch requires."""
    installed = {f"nvidia-cudnn-{extra}": version for extra, version in versions.items()}
    return {"wheels": {"installed": installed, "torch": torch}}


PLACE = {"origin": "packages", "path": "/there", "why_not": "empty"}
NONE = {"path": None, "why_not": "no usable cuDNN was found", "places": [PLACE], "cublas": None,
        "driver": None, "no_driver": None, "driver_cuda_version": 0, "gpus": [],
        "version": 91900, "cuda_version": 13010, **wheels()}  # fmt: skip
GPU = {"name": "GPU", "capability": 90, "why_not": None}
GPUS = {"path": "/libcudnn.so.9", "why_not": None, "gpus": [GPU, GPU | {"why_not": "too new"}]}


@pytest.mark.parametrize(
    "found, number, why, hint",
    [
        ({"driver_cuda_version": 11080}, 0, "no usable cuDNN", 'pip install "rnnlayout[cu12]"'),
        ({"driver_cuda_version": 12040}, 0, "no usable cuDNN", 'pip install "rnnlayout[cu12]"'),
        ({"driver_cuda_version": 13000}, 1, "no usable cuDNN", 'pip install "rnnlayout[cu13]"'),
        (wheels(cu12="9.8.0.87") | {"driver_cuda_version": 13000}, 0, "no usable cuDNN",
         'pip install --force-reinstall --no-deps "nvidia-cudnn-cu12==9.8.0.87"'),
        (wheels(cu13="9.19.0.56") | {"driver_cuda_version": 12040}, 0, "no usable cuDNN",
         'install a driver for CUDA 13; or pip install "rnnlayout[cu12]" in a new environment: here'
         " it would overwrite files of nvidia-cudnn-cu13"),
        (wheels(torch="nvidia-cudnn-cu12==9.10.2.21") | {"driver_cuda_version": 13000}, 0,
         "no usable cuDNN", 'pip install "nvidia-cudnn-cu12==9.10.2.21"'),
        (wheels(cu12="9.10.2.21") | {"places": [PLACE | {"why_not": "it needs libcublasLt.so.12"}]},
         0, "no usable cuDNN", 'pip install "nvidia-cudnn-cu12==9.10.2.21"'),
        (wheels(cu12="9.10.2.21", cu13="9.28.0.42", torch="nvidia-cudnn-cu12==9.10.2.21"), 0,
         "no usable cuDNN", "pip uninstall -y nvidia-cudnn-cu12 nvidia-cudnn-cu13, then pip install"
         ' "nvidia-cudnn-cu12==9.10.2.21"'),
        (wheels(cu12="9.10.2.21", cu13="9.28.0.42") | {"driver_cuda_version": 12040}, 0,
         "no usable cuDNN", "pip uninstall -y nvidia-cudnn-cu12 nvidia-cudnn-cu13, then pip install"
         ' "rnnlayout[cu12]"'),
        ({"places": [PLACE | {"origin": "chosen"}]}, 0, "no usable", "without RNNLAYOUT_CUDNN and"),
        (GPUS | {"why_not": "none", "no_driver": "none"}, 0, "none", "does nvidia-smi list a GPU?"),
        (GPUS | wheels(cu12="9.8.0.87"), 1, "too new", "pip install --upgrade nvidia-cudnn-cu12"),
        (GPUS | wheels(cu12="9.10.2.21", torch="nvidia-cudnn-cu12==9.10.2.21"), 1, "too new",
         "pip install --upgrade torch: a newer PyTorch brings a newer cuDNN than its"
         " nvidia-cudnn-cu12==9.10.2.21"),
        (GPUS | {"driver_cuda_version": 12080}, 1, "too new", 'pip install "rnnlayout[cu12]"'),
        (GPUS, 2, "this GPU does not exist", "nvidia-smi lists the GPUs"),
    ],
)  # fmt: skip
def test_why_a_gpu_cannot_be_used(monkeypatch, found, number, why, hint):
    monkeypatch.setattr(_cudnn, "cudnn_report", lambda: NONE | found)
    with pytest.raises(rl.CudnnNotFoundError) as error:
        _cudnn.require_cudnn(number)
    first, *_, last = str(error.value).splitlines()
    assert first.startswith(f"cuda:{number} cannot be used: {why}")
    assert last.startswith(f"hint: {hint}")


def write_metadata(site, name, version, *requirements):
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requirements]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")


def test_doctor_names_pips_cudnn_and_the_extra_that_fits(install, tmp_path):
    """nvidia-cudnn-cu12 and -cu13 write the same folder: the other extra is never proposed."""
    site, driver = tmp_path / "wheels", install(tmp_path / "driver", "libcuda.so.1")
    variables = {"PYTHONPATH": os.pathsep.join([str(site), PACKAGE]), "LD_LIBRARY_PATH": driver}

    def lines_of_doctor(cuda):
        _, out, _ = rnnlayout("doctor", **variables, FAKE_CUDA_DRIVER=cuda)
        return [line for line in out.splitlines() if line.startswith(("  pip: ", "hint: "))]

    pip, hint = lines_of_doctor(12040)
    assert pip == "  pip: no cuDNN package: rnnlayout[cu12] fits the driver"
    assert hint == 'hint: pip install "rnnlayout[cu12]"'
    torch = "nvidia-cudnn-cu12==9.10.2.21"
    write_metadata(site, "torch", "2.9.1", "numpy", f'{torch}; platform_system == "Linux"')
    fits = f"; torch requires {torch}: only rnnlayout[cu12] fits"
    pip, hint = lines_of_doctor(13010)
    assert pip == f"  pip: no cuDNN package{fits}" and "cu13" not in hint
    write_metadata(site, "nvidia-cudnn-cu12", "9.10.2.21")
    pip, hint = lines_of_doctor(13010)
    assert pip == f"  pip: nvidia-cudnn-cu12 9.10.2.21{fits}" and "cu13" not in hint
    write_metadata(site, "nvidia-cudnn-cu13", "9.28.0.42")
    pip, hint = lines_of_doctor(13010)
    both = "nvidia-cudnn-cu12 9.10.2.21 and nvidia-cudnn-cu13 9.28.0.42"
    assert pip.startswith(f"  pip: {both}, which write the same files")
    assert hint.startswith("hint: pip uninstall -y nvidia-cudnn-cu12 nvidia-cudnn-cu13, then")


@pytest.mark.parametrize("path", [7, "", "a\0b", b"", object()])
def test_a_name_that_is_none(path):
    with pytest.raises(rl.SpecError, match="need a file, a folder, 'off' or None"):
        rl.set_cudnn(path)


def test_off_opens_nothing(monkeypatch):
    monkeypatch.delattr(_native, "open_cudnn")
    monkeypatch.delattr(_native, "describe_cudnn")
    report = _cudnn._report("off", "chosen")
    assert report["why_not"] == "cuDNN is switched off" and report["driver"] is None


def test_what_is_no_folder_of_packages_is_left_out(monkeypatch, tmp_path):
    (tmp_path / "python.zip").touch()
    odd = ["", ".", "here", "a\0b", 7, None, tmp_path, str(tmp_path / "python.zip")]
    monkeypatch.setattr(sys, "path", [*odd, *sys.path, str(tmp_path), str(tmp_path)])
    folders = [root for origin, root, _ in _cudnn._roots() if origin == "packages"]
    assert folders.count(str(tmp_path)) == 1 and PACKAGE in folders
    assert all(os.path.isdir(folder) and os.path.isabs(folder) for folder in folders)
    assert os.path.dirname(os.__file__) not in folders
