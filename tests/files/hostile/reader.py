"""The process that reads hostile files, one after another, and reports what each of them took.

    WATCH_LOG=LOG LD_PRELOAD=watch.so python -m files.hostile.reader UNIT <JOBS

A job is a line of JSON, [what, how]; its answer is a line too. `what` is one of JOBS below. Work is
measured in UNIT, one of limits.py. All modules are imported before the first job, also those that
the standard library imports late.
"""

import contextlib
import encodings.ascii
import encodings.utf_32_be
import encodings.utf_32_le  # noqa: F401
import functools
import heapq  # noqa: F401
import io
import json
import os
import re
import signal
import sys
import unicodedata  # noqa: F401
from pathlib import Path

import h5py  # noqa: F401
import numpy as np
import onnx  # noqa: F401
from files.hostile.good import SPEC, allowed, beside, named
from files.hostile.limits import MOST_NBYTES, MOST_READINGS, Meter
from files.hostile.sins import SINS

import rnnlayout as rl
import rnnlayout._sources.hand_written
from rnnlayout._cli import main as _cli
from rnnlayout._model.printable import LONGEST

NPY = b"\x93NUMPY"
NUMBERS = (0, 1, 4, 2**31 - 1, 2**31, 2**32 - 1)  # of 32 bits, that a damaged file may have
PATIENCE = 600  # seconds until a job that hangs ends the process


def command(*arguments):
    """Run the command line. Returns its exit code and its messages."""
    words = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(words):
        try:
            code = _cli.main([str(argument) for argument in arguments])
        except SystemExit as error:
            code = error.code
        except BaseException as error:  # the user would see a traceback
            code = f"{type(error).__name__}: {error}"
    return code, words.getvalue()


class Watch:
    """Records a call as a dict: bytes, limits it exceeded, files it opened, modules it imported."""

    def __init__(self, unit):
        self._num_modules, self._caches = 0, []
        self._log = os.open(os.environ["WATCH_LOG"], os.O_RDONLY)
        self._meter, self.most_readings = Meter(unit), MOST_READINGS[unit]

    def __call__(self, call, *arguments):
        imported = set(sys.modules)
        start = os.fstat(self._log).st_size
        nbytes = 0
        for _ in range(self.most_readings):
            self._forget()
            with self._meter as meter:
                code, words = call(*arguments)
            # the first reading takes most: the next ones use what it freed
            nbytes = meter.nbytes = max(nbytes, meter.nbytes)
            if not meter.is_too_much_work or meter.nbytes >= MOST_NBYTES:
                break
        events = os.pread(self._log, os.fstat(self._log).st_size - start, start)
        return {
            "code": code,
            "words": words,
            "nbytes": meter.nbytes,
            "work": meter.work,
            "excess": meter.excess(),
            "events": os.fsdecode(events).removesuffix("\n").split("\n") if events else [],
            "imported": sorted(set(sys.modules) - imported),
        }

    def _forget(self):
        """Empty the caches of results, so that a second reading of a file takes what a first one
        takes: a file of 45 KB that took 3 seconds took none in the reading that checked that."""
        if self._num_modules != len(sys.modules):
            self._num_modules = len(sys.modules)
            modules = [module for name, module in sys.modules.items() if "rnnlayout" in name]
            things = [thing for module in modules for thing in vars(module).values()]
            # without functools.cache, which keeps facts of layouts
            caches = [thing for thing in things if hasattr(thing, "cache_clear")]
            self._caches = [
                each for each in caches
                if not hasattr(each, "cache_parameters") or each.cache_parameters()["maxsize"]
            ]  # fmt: skip
        for each in self._caches:
            each.cache_clear()


# ------------------------------------------------------------------------------------------- jobs


def read(watch, *commands):
    """Run commands on a file and return the list of answers."""
    return [watch(command, *arguments) for arguments in commands]


def warm(_, *commands):
    """Run commands without limits, so that all modules are imported; return the exit codes."""
    return [command(*arguments)[0] for arguments in commands]


def variants(watch, path, ends, flips, seed):
    """Read a good file, then with a byte, then four bytes, changed at many places, then cut short.

    Returns {"cut": count, "flipped": count, "kept": number of cut files read, "bad": [errors]}.
    """
    path, options = Path(path), HINTS.get(Path(path).suffix, [])
    data = path.read_bytes()
    whole = rl.load(path, SPEC if options else None)
    found = {"cut": 0, "flipped": 0, "kept": 0, "bad": []}
    changed = path.with_name("changed" + path.name)
    beside(changed)

    def one(what, codes):
        answer = watch(command, "inspect", changed, *options)
        if why := wrong(answer, codes, [*allowed(changed), *named(changed)]):
            found["bad"].append(f"{what}: {why}")
        return answer["code"] == 0

    changed.write_bytes(data)  # once: writing a whole file takes longer than reading it
    one("unchanged", (0,))
    with open(changed, "r+b", buffering=0) as file:
        changes = np.random.default_rng(seed)
        for at in changes.integers(len(data), size=flips).tolist():
            found["flipped"] += 1
            other, number = data[at] ^ int(changes.integers(1, 256)), int(changes.choice(NUMBERS))
            for new in (bytes([other]), number.to_bytes(4, "little")[: len(data) - at]):
                os.pwrite(file.fileno(), new, at)
                one(f"{new!r} at {at}", (0, 3, 4))
                os.pwrite(file.fileno(), data[at : at + 4], at)
        assert changed.read_bytes() == data
        for end in reversed(range(0, len(data), ends)):
            found["cut"] += 1
            file.truncate(end)
            if one(f"cut at {end}", (0, 3)):
                found["kept"] += 1
                fewer = path.suffix == ".eqx" and data[end:].startswith(NPY)  # a whole file too
                if not fewer and dict(whole) != dict(rl.load(changed)):
                    found["bad"].append(f"cut at {end}: read, and other tensors")
    changed.unlink()
    return found


HINTS = {".npy": ["--spec", str(SPEC)]}


def wrong(answer, codes, paths):
    """Return which promises an answer breaks, "" if none."""
    allowed = {f"open {path}" for path in paths}
    # an output is a file without a name in this folder, which is opened by its descriptor
    output = re.compile(rf"open ({re.escape(str(paths[0].parent))}/out(/.*)?|/proc/self/fd(/\d+)?)")
    error = answer["words"].removeprefix("error: ").rstrip("\n") if answer["code"] else ""
    others = [e for e in answer["events"] if e not in allowed and not output.fullmatch(e)]
    return "; ".join(
        words
        for words, is_wrong in {
            f"exit code {answer['code']}: {answer['words']}": answer["code"] not in codes,
            f"{answer['excess']}": answer["excess"],
            f"imported {answer['imported']}": answer["imported"],
            f"{others}": others,
            "a traceback": "Traceback" in answer["words"],
            f"an error of {len(error)} characters": len(error) > LONGEST,
            f"control characters: {error!r}": not error.replace("\n", "").isprintable(),
        }.items()
        if is_wrong
    )


def sinner(watch, path, which):
    """Do on purpose, once, what the watch must notice."""
    watch.most_readings = 1
    return watch(lambda: (0, str(SINS[which](path))))


JOBS = {"read": read, "warm": warm, "variants": variants, "sinner": sinner}


def main():
    _cli.make_parser = functools.cache(_cli.make_parser)  # most of a small file's time
    sys.stdout.reconfigure(line_buffering=True)
    answers, sys.stdout = sys.stdout, io.StringIO()
    watch = Watch(sys.argv[1])
    for line in sys.stdin:
        what, *how = json.loads(line)
        signal.alarm(PATIENCE)
        print(json.dumps(JOBS[what](watch, *how)), file=answers)


if __name__ == "__main__":
    main()
