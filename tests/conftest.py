"""What tests share: the C library built out of tree, the number of threads; CI skips nothing."""

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from commands import ROOT, run


class CBuilds:
    """CMake builds of the C library and its check programs, one a preset, made when asked for."""

    def __init__(self, folder):
        self._folder = folder
        self._done = {}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self._env = os.environ | {"PATH": path}
        self._cmake = shutil.which("cmake", path=path)

    def __call__(self, preset):
        if preset not in self._done:
            self._done[preset] = self._build(preset)
        return self._done[preset]

    def _build(self, preset):
        if not self._cmake:
            pytest.fail("no cmake: python -m pip install -r tests/requirements.txt")
        out = self._folder / preset
        options = {"cwd": ROOT, "env": self._env}
        run([self._cmake, "--preset", preset, "-B", out], **options)
        run([self._cmake, "--build", out], **options)
        return out


@pytest.fixture(scope="session")
def c_build(tmp_path_factory):
    """preset -> the folder of its build"""
    return CBuilds(tmp_path_factory.mktemp("c"))


@pytest.fixture(autouse=True, scope="session")
def ctrl_c_interrupts():
    """Also where the tests were started in the background, by a shell that has it ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def threads():
    """Set the number of an RNN's threads for one test alone."""
    import rnnlayout as rl  # some tests are run where it is not installed

    yield rl.set_num_threads
    rl.set_num_threads(0)


@pytest.fixture(scope="session")
def fakes(tmp_path_factory):
    """A libcuda and a libcudnn that need no GPU: fakes/README.md"""
    from fakes.build import Fakes  # here, since test_conftest.py copies this file alone

    return Fakes(tmp_path_factory.mktemp("fakes"))


# In CI every requirement is installed, so a skipped test is one that nobody runs.


def _skipped_in_ci(reporter):
    return len(reporter.stats.get("skipped", [])) if os.environ.get("CI") and reporter else 0


def pytest_sessionfinish(session):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if _skipped_in_ci(reporter) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    skipped = _skipped_in_ci(terminalreporter)
    if skipped:
        terminalreporter.write_line(
            f"CI is set and {skipped} skipped: that fails the run", red=True
        )
