"""Run tests in forks of a process that has imported the frameworks: the runs of tools/mutate.py and
tools/mutate_table.py."""

import os
import re
import resource
import signal
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 300  # CPU seconds for the tests of one mutant: twenty times what the slowest takes
MEMORY = 8 << 30  # bytes of it

# Imported once, before forking: importing them in every run would take longer than the tests. Not
# jax, which cannot be forked.
PRELOAD = ("keras", "onnx", "onnxruntime", "tf_keras", "torch")


class FirstFailure:
    """A pytest plugin that records the first test that failed."""

    def __init__(self):
        self.nodeid = ""

    def pytest_runtest_logreport(self, report):
        self.nodeid = self.nodeid or (report.nodeid if report.failed else "")

    pytest_collectreport = pytest_runtest_logreport


def run_tests(site, batches):
    """Return the first test that fails in this process, or "". A batch is (files, words). site: a
    folder that may have the package to test."""
    sys.path[:0] = [str(site), str(ROOT / "tests")]
    os.environ["PYTHONPATH"] = str(site)
    for files, words in batches:
        first = FirstFailure()
        arguments = ["-x", "-q", "-p", "no:cacheprovider", "-m", ""]
        arguments += ["-k", " and ".join(words)] if words else []
        status = pytest.main([*arguments, *map(str, files)], plugins=[first])
        if first.nodeid or status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return first.nodeid or f"exit status {status}"
    return ""


def start(mutant, site, run, limit=LIMIT):
    """Call run() in a fork of this process, which returns the first test that fails. Return the job
    for finish(). site: a folder for the log."""
    report = site / "caught"
    pid = os.fork()
    if pid:
        return pid, mutant, report, time.monotonic()
    try:
        with open(site / "log", "w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            signal.alarm(10 * limit)  # for a test that waits
            report.write_text(run())
    finally:
        os._exit(0)


def finish(running):
    """Wait for a running job and print its line. Return the mutant and what caught it: "" if no
    test did, None if one of the tests does not exist."""
    pid, status = os.wait()
    (job,) = [job for job in running if job[0] == pid]
    running.remove(job)
    _, mutant, report, since = job
    caught = short(report.read_text()) if report.exists() else ""
    died = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if died and died not in (signal.SIGALRM, signal.SIGXCPU):
        caught = f"killed by {signal.Signals(died).name}"
    said = caught or ("SURVIVED, timeout" if died else "SURVIVED")
    log = report.with_name("log").read_text()
    missing = re.search("^ERROR: .*not found: ", log, re.MULTILINE)
    if missing and caught == f"exit status {pytest.ExitCode.USAGE_ERROR}":
        caught, said = None, "NOT RUN, a test does not exist: write the map again"
    print(f"{mutant.name:60} {time.monotonic() - since:5.1f} s  {said}", flush=True)
    return mutant, caught


def short(nodeid):
    return re.sub(r"\[.*", "", nodeid.rsplit("/", 1)[-1], flags=re.DOTALL)
