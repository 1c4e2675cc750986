"""The commands of docs/howto/c-inference.md, from the checkpoint to the printed outputs."""

import json
import os
import re
import subprocess
import sys

import pytest
from commands import ROOT, run

sys.path.insert(0, str(ROOT / "tools"))

import get_cudnn
import run_pages

PAGE = ROOT / "docs" / "howto" / "c-inference.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE.read_text())  # (commands, what they print)
SHELL = """
rnnlayout() { "$PYTHON" -m rnnlayout "$@"; }
python() { case "$*" in *__path__*) echo "$NVIDIA" ;; *) [ "$3" = install ] ;; esac; }
gcc() { command gcc -Wall -Wextra -Werror "$@"; }
g++() { command g++ -Wall -Wextra -Werror "$@"; }
"""


def blocks(about):
    """Return the commands that mention something, and what they print."""
    found = [block for block in BLOCKS if about in block[0]]
    assert found, about
    return found


def shell(folder, commands, env):
    done = subprocess.run(
        ["bash", "-ec", SHELL + commands], text=True, cwd=folder, check=False,
        env=os.environ | {"PYTHON": sys.executable, "HOME": str(folder)} | env,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture
def folder(tmp_path):
    """A checkout in which the weights are exported."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    run_pages.run(PAGE, tmp_path)
    for commands, printed in blocks("rnnlayout convert"):
        assert shell(tmp_path, commands, {}) == printed
    return tmp_path


def test_every_command_is_run_here():
    tested = ("rnnlayout convert", "cmake", "cpu_inference", "cudnn_inference")
    assert [block for block in BLOCKS if not any(name in block[0] for name in tested)] == []


@pytest.mark.long  # builds the library, as the command of the page with cmake does
def test_on_the_cpu(folder, c_build):
    run(["cmake", "--install", c_build("release"), "--prefix", folder / ".local"])
    ((commands, printed),) = blocks("cpu_inference")
    assert shell(folder, commands, {}) == printed
    result = (folder / "out.y").read_bytes()
    shell(folder, "./cpu_inference_cpp lstm.bin x.bin 3 out", {})
    assert (folder / "out.y").read_bytes() == result
    refused(folder, "hidden_size", 17, "lstm.bin has 15360 bytes, but this RNN needs 17136")
    refused(folder, "cell", "lstms", "lstm.bin.json: cell is 'lstms', need one of: lstm, gru, rnn")
    refused(folder, "proj_size", 16, "lstm.bin.json: proj_size is 16")
    refused(folder, "crc32", "0" * 8, 'lstm.bin, lstm.bin.json: the CRC-32 of the weights is "')


def test_the_page_on_microcontrollers(tmp_path):
    """Its program prints what PyTorch prints."""
    page = ROOT / "docs" / "howto" / "microcontroller.md"
    ((_, by_torch, _),) = run_pages.run(page, tmp_path)
    (code,) = re.findall(r"^```c\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "main.c").write_text(code)
    for commands, printed in BLOCK.findall(page.read_text()):
        assert shell(tmp_path, commands, {}) == printed
    numbers = [f"{float(number):.4f}" for number in by_torch.strip("[ ]\n").split()]
    assert printed.split() == numbers


def refused(folder, key, value, text):
    """Run the program with one wrong value in the spec."""
    spec = (folder / "lstm.bin.json").read_text()
    (folder / "lstm.bin.json").write_text(json.dumps(json.loads(spec) | {key: value}))
    done = subprocess.run(["./cpu_inference", "lstm.bin", "x.bin", "3", "out"], text=True,
                          cwd=folder, capture_output=True, check=False)  # fmt: skip
    (folder / "lstm.bin.json").write_text(spec)
    assert done.returncode == 1 and "error: " in done.stderr and text in done.stderr, done


@pytest.mark.long
def test_the_page_of_the_c_api(tmp_path, c_build):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    run(["cmake", "--install", c_build("release"), "--prefix", tmp_path / ".local"])
    page = (ROOT / "docs" / "c-api.md").read_text()
    ((commands, _),) = [block for block in BLOCK.findall(page) if "pkg-config" in block[0]]
    first, second, *_, last = shell(tmp_path, commands, {}).splitlines()
    assert f"```text\n{first}\n{second}\n...\n{last}\n```" in page


@pytest.mark.download
def test_with_the_vendors_wheel(folder, fakes, c_build):
    """Its headers and its libcudnn.so.9 for the compiler; then the fakes run the programs."""
    cudnn, cuda = get_cudnn.get("9.28"), get_cudnn.cuda_headers(13)
    nvidia = folder / "nvidia"
    for made in (nvidia / "cudnn", nvidia / "cu13"):
        made.mkdir(parents=True)
    (nvidia / "cudnn" / "include").symlink_to(cudnn / "include")
    (nvidia / "cudnn" / "lib").symlink_to(cudnn)
    (nvidia / "cu13" / "include").symlink_to(cuda)
    env = {"NVIDIA": str(nvidia), "LIBRARY_PATH": str(fakes.cuda),
           "LD_LIBRARY_PATH": f"{fakes.cuda}:{fakes.cudnn}",
           "PKG_CONFIG_PATH": str(folder / ".local" / "lib" / "pkgconfig")}  # fmt: skip
    run(["cmake", "--install", c_build("release"), "--prefix", folder / ".local"])
    ((commands, printed),) = blocks("cudnn_inference")
    for run_it in (commands, "./cudnn_inference_cpp lstm.bin x.bin 3 out"):
        # before it, the loader says that the fake lacks version information
        assert shell(folder, run_it, env).endswith(f"\n{printed}")
