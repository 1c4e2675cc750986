"""The kernel that clamps c_n, compiled as a driver would: by the vendor's ptxas, for each GPU that
cuDNN 9 supports. The text is that of the built extension."""

import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT

from rnnlayout import _native

sys.path.insert(0, str(ROOT / "tools"))

import get_cudnn

GPUS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121")
KERNELS = {"clamp_f16", "clamp_bf16", "clamp_f32", "clamp_f64"}


@pytest.fixture(scope="module")
def ptxas():
    try:
        return get_cudnn.ptxas()
    except get_cudnn.Unavailable as why:
        pytest.fail(f"PyPI did not give it: {why}", pytrace=False)


def compiled(ptxas, folder, text, gpu):
    (folder / "clamp.ptx").write_bytes(text)
    command = [ptxas, "--gpu-name", gpu, "--verbose", folder / "clamp.ptx", "-o", folder / "clamp"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def shipped():
    library = Path(_native.__file__).read_bytes()
    at = library.index(b".version 6.0\n")
    return library[at : library.index(b"\0", at)]


@pytest.mark.download
@pytest.mark.parametrize("gpu", GPUS)
def test_it_compiles(ptxas, tmp_path, gpu):
    done = compiled(ptxas, tmp_path, shipped(), gpu)
    assert done.returncode == 0, done.stderr
    assert {name for name in KERNELS if f"'{name}' for '{gpu}'" in done.stderr} == KERNELS


@pytest.mark.download
def test_an_error_is_seen(ptxas, tmp_path):
    wrong = shipped().replace(b"setp.lt.f64", b"setp.lt.f63")
    assert wrong != shipped() and compiled(ptxas, tmp_path, wrong, GPUS[0]).returncode
