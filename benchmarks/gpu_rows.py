"""Run cases in processes of their own and keep their rows: nothing that is known gets lost.

A row is one line of JSON: {"case", "seconds", "found"}, or with "failed" and "said" instead of
"found" if the process died or was over the time limit. It is on the disk before the next case is
shown.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

COMMAND = Path(__file__).resolve().parent / "gpu.py"
DYING = 10  # seconds that a killed process may take


@dataclass(frozen=True)
class Case:
    """One process. words: what to do, which is its name too; more: arguments beside the name."""

    words: tuple
    more: tuple = ()
    at_once: int = 1  # how many such cases may run at once: one if it measures times

    @property
    def name(self):
        return " ".join(self.words)


def run(case, limit):
    """Return the row of a case."""
    command = [sys.executable, COMMAND, "--case", *case.words, *case.more]
    row, began = {"case": case.name}, time.monotonic()
    # files, because a pipe stays open as long as any process that the child has started
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=out, stderr=err)
        code = ended(process, limit)
        row["seconds"] = round(time.monotonic() - began, 1)
        if code == 0:
            with suppress(ValueError):  # a library may have printed a last line of its own
                return row | {"found": json.loads(last_line(out))}
        why = {None: f"no answer within {limit:g} seconds", 0: "no answer on its last line"}
        failed = why.get(code, f"exit code {code}")
        return row | {"failed": failed, "said": last_line(err)[-300:]}


def ended(process, limit):
    """Return the exit code of a process, or None if it has to be killed."""
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):  # a driver that hangs may keep it for ever
            process.wait(DYING)
        return None


def last_line(file):
    file.seek(0)
    return (file.read().decode(errors="replace").splitlines() or [""])[-1]


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

    def fill(self, cases, limit, show):
        """Run the cases without a result, in order, and call show(row) after each."""
        for at_once, some in groupby(self.pending(cases), key=lambda case: case.at_once):
            pool = ThreadPoolExecutor(at_once)
            try:
                for done in as_completed([pool.submit(run, case, limit) for case in some]):
                    self.add(done.result())
                    show(done.result())
            finally:
                pool.shutdown(cancel_futures=True)  # after Ctrl-C too, start nothing more
