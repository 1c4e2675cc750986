"""Fixtures that all tests share, and the last lines of a run."""

import fcntl
import os
import shutil
import signal
import sys
from functools import cache
from pathlib import Path

import pytest
from clocks import Clock
from commands import ROOT, run

os.environ.setdefault("KERAS_BACKEND", "torch")  # on a CPU: Keras's own loop over the steps
os.environ.pop("PYTHONUNBUFFERED", None)  # of a container: programs then print as in a shell


@pytest.fixture(scope="session")
def c_build(tmp_path_factory):
    """Return a function that builds the C library and its check programs by a preset of CMake, and
    returns the folder. One of pytest-xdist's processes builds, the others wait for it."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "c"
    folder.mkdir(exist_ok=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    cmake = shutil.which("cmake", path=path)
    options = {"cwd": ROOT, "env": os.environ | {"PATH": path}}

    @cache
    def build(preset):
        if not cmake:
            pytest.fail("no cmake: python -m pip install -r tests/requirements.txt")
        out = folder / preset
        with open(folder / f"{preset}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (out / "complete").exists():
                run([cmake, "--preset", preset, "-B", out], **options)
                run([cmake, "--build", out], **options)
                (out / "complete").touch()
        return out

    return build


@pytest.fixture(autouse=True, scope="session")
def ctrl_c_interrupts():
    """Make Ctrl-C work even if a shell started the tests in the background and ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def threads():
    """Return a function that sets the number of threads for this test only."""
    import rnnlayout as rl  # some tests run where it is not installed

    yield rl.set_num_threads
    rl.set_num_threads(0)


@pytest.fixture(scope="session")
def fakes(tmp_path_factory):
    """A libcuda and a libcudnn that need no GPU, described in fakes/README.md."""
    import torch
    from fakes.build import Fakes

    if torch.version.cuda:
        pytest.skip("torch is one for CUDA: importing it loads a cuDNN, which no fake can replace")
    return Fakes(tmp_path_factory.mktemp("fakes"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Run all tests of a file in one process, so that what they share is made once."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log)


# ------------------------------------------------------------------ what a run leaves out, and CI

MARKS = ("long", "download")  # pyproject.toml leaves them out of a plain run
LEFT_OUT = " and ".join(f"not {mark}" for mark in MARKS)


@pytest.fixture(autouse=True)
def no_clock(request):
    """Forbid the tests of a plain run to read a clock."""
    Clock.is_forbidden = not any(map(request.node.get_closest_marker, MARKS))
    yield
    Clock.is_forbidden = False


def pytest_itemcollected(item):
    """Building the C library takes half a minute."""
    if "c_build" in item.fixturenames:
        item.add_marker("long")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session):
    """In CI every requirement is installed, so a skipped test is one that nobody runs: fail."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = len(reporter.stats.get("skipped", [])) if reporter and os.environ.get("CI") else 0
    if skipped and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    result = yield  # pytest's own summary is written here
    if skipped:
        reporter.write_line(f"CI is set and {skipped} skipped: that fails the run", red=True)
    if reporter and session.config.option.markexpr == LEFT_OUT:
        rest = f'python -m pytest -m "{" or ".join(MARKS)}"'
        reporter.write_line(f"long tests and downloads are left out; to run them: {rest}")
    return result
