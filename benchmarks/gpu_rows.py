"""Run cases in a process for each peer, and keep their rows: nothing that is known gets lost.

A row is one line of JSON: {"case", "seconds", "found"}, or with "failed" and "said" instead of
"found" if the process died or was over the time limit; then a new process runs the next case. A row
is on the disk before the next case is begun.
"""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

COMMAND = Path(__file__).resolve().parent / "gpu.py"
DYING = 10  # seconds that a killed process may take


@dataclass(frozen=True)
class Case:
    """words: what to do, which is its name too; more: arguments beside the name; peer: its process,
    since to import a framework and to load cuDNN takes longer than most cases."""

    words: tuple
    more: tuple = ()
    peer: str = "alone"

    @property
    def name(self):
        return " ".join(self.words)


class Worker:
    """A process that runs cases, one after the other."""

    def __init__(self):
        self.said = tempfile.TemporaryFile()  # noqa: SIM115, closed with the worker
        reading, writing = os.pipe()  # a library may print lines of its own to stdout
        self.process = subprocess.Popen(
            [sys.executable, COMMAND, "--serve", str(writing)], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=self.said, pass_fds=[writing],
        )  # fmt: skip
        os.close(writing)
        self.answers = os.fdopen(reading, "rb")

    def run(self, case, limit):
        """Return the row of a case. After a failure the process is gone."""
        began, line, late = time.monotonic(), b"", False
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps([*case.words, *case.more]).encode() + b"\n")
            self.process.stdin.flush()
        if select.select([self.answers], [], [], limit)[0]:
            line = self.answers.readline()
        else:
            late = True
            self.process.kill()
        row = {"case": case.name, "seconds": round(time.monotonic() - began, 1)}
        if line.endswith(b"\n"):
            return row | {"found": json.loads(line)}
        with suppress(subprocess.TimeoutExpired):  # a driver that hangs may keep it for ever
            self.process.wait(DYING)
        code = self.process.returncode
        failed = f"no answer within {limit:g} seconds" if late else f"exit code {code}"
        return row | {"failed": failed, "said": self.last_words()}

    def last_words(self):
        self.said.seek(0)
        return (self.said.read().decode(errors="replace").splitlines() or [""])[-1][-300:]

    def end(self):
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.answers.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(DYING)
        self.process.kill()


class Rows:
    """The rows in a file, by case; the last row of a case counts."""

    def __init__(self, path):
        self.path, self.known = path, {}
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                row = json.loads(line)
            except ValueError:
                continue  # it was being written when the command was killed
            self.known[row["case"]] = row

    def add(self, row):
        self.known[row["case"]] = row
        with self.path.open("a") as file:
            # the first line break ends a line that was cut off
            file.write(f"\n{json.dumps(row)}\n")
            file.flush()
            os.fsync(file.fileno())

    def pending(self, cases):
        """Return the cases without a result: those never run, then those that failed."""
        left = [case for case in cases if "found" not in self.known.get(case.name, {})]
        return sorted(left, key=lambda case: case.name in self.known)

    def fill(self, cases, limit, until, show):
        """Run the cases without a result, in order, until that time; call show(row) after each.
        Return how many are left."""
        workers, pending = {}, self.pending(cases)
        try:
            while pending and (left := until - time.monotonic()) > 0:
                case = pending.pop(0)
                worker = workers.setdefault(case.peer, None) or Worker()
                workers[case.peer] = worker
                row = worker.run(case, min(limit, left))
                if "failed" in row:
                    workers.pop(case.peer).end()
                    if left < limit and row["failed"].startswith("no answer"):
                        return len(pending) + 1  # it had less than its time
                self.add(row)
                show(row)
        finally:
            for worker in filter(None, workers.values()):
                worker.end()
        return len(pending)
