"""A process that reads files and is watched: watch.c, reader.py."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from commands import TESTS
from files.hostile.limits import environment

HERE = Path(__file__).resolve().parent
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared"]


class Reader:
    """Does the jobs of reader.py. If a job ends the process, a new process does the next one.

    unit: of work. first: jobs that each process does before any other.
    """

    def __init__(self, folder, unit, first=()):
        library, self._errors, log = folder / "watch.so", folder / "errors", folder / "log"
        run = ["cc", *FLAGS, "-o", library, HERE / "watch.c", "-ldl"]
        subprocess.run(run, check=True)
        log.touch()
        self._env = environment() | {"WATCH_LOG": str(log), "LD_PRELOAD": str(library)}
        self._command = [sys.executable, "-m", "files.hostile.reader", unit]
        self._first, self._process = list(first), None

    def __call__(self, *job):
        """Return the answer of a job, or the name of the signal by which the process ended."""
        if self._process is None:
            self._start()
            for one in self._first:
                assert not isinstance(end := self._ask(one), str), f"{one} ended it with {end}"
        return self._ask(job)

    def _start(self):
        with open(self._errors, "w") as errors:
            self._process = subprocess.Popen(
                self._command, cwd=TESTS, env=self._env, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip

    def _ask(self, job):
        print(json.dumps(job, default=str), file=self._process.stdin, flush=True)
        if line := self._process.stdout.readline():
            return json.loads(line)
        code = self.close()
        assert code < 0, self._errors.read_text()
        return signal.Signals(-code).name

    def close(self):
        process, self._process = self._process, None
        if process is not None:
            with process:
                process.stdin.close()
            return process.returncode
