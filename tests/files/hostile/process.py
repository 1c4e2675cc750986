"""Start a process that reads files and is watched: watch.c, reader.py."""

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
    """Runs the jobs of reader.py. If a job ends the process, a new process does the next one."""

    def __init__(self, folder):
        self._library, self._log = folder / "watch.so", folder / "log"
        run = ["cc", *FLAGS, "-o", self._library, HERE / "watch.c", "-ldl"]
        subprocess.run(run, check=True)

    def __call__(self, jobs):
        """Return {name: answer} of jobs [name, what, ...]. The answer of a job that ended the
        process is the name of the signal."""
        answers, left = {}, list(jobs)
        while left:
            code, words = self._run(left, answers)
            left = left[len(answers) - len(jobs) :] if len(answers) < len(jobs) else []
            if left:
                assert code < 0, words
                answers[left.pop(0)[0]] = signal.Signals(-code).name
        return answers

    def _run(self, jobs, answers):
        self._log.write_bytes(b"")
        done = subprocess.run(
            [sys.executable, "-m", "files.hostile.reader"],
            input="".join(json.dumps(job, default=str) + "\n" for job in jobs),
            cwd=TESTS,
            env=environment() | {"WATCH_LOG": str(self._log), "LD_PRELOAD": str(self._library)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        answers |= dict(map(json.loads, done.stdout.splitlines()))
        return done.returncode, done.stderr
