"""Check that a test fails for each mistake in a row of the table of layouts.

    python tools/mutate_table.py                   all mutants, some minutes
    python tools/mutate_table.py --only "^keras "  mutants whose name matches this expression
    python tools/mutate_table.py --list            print the names

A mutant is csrc/layout/formats.c with one change in one row: two gates swapped, two pieces swapped,
two axes swapped, a ravel, the z convention, the resets, the roles. The core is built with it. Then
the tests run that compare with the framework itself, and after them the tests that only know the
table's own invariants. One line per mutant names the first test that fails. The exit code is 1 if
no test fails for some mutant.
"""

import argparse
import ast
import contextlib
import importlib
import itertools
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import hypothesis  # noqa: F401  this and the following are imported once, for all forks
import numpy as np  # noqa: F401
import pytest

ROOT = Path(__file__).resolve().parent.parent
FORMATS = Path("csrc/layout/formats.c")
PREBUILT = ("CMakeLists.txt", "cmake", "csrc", "python")
LIMIT = 300  # CPU seconds for the tests of one mutant: twenty times what the slowest takes
MEMORY = 8 << 30  # bytes of it


def oracles():
    """Return layout -> the tests with answers that are not ours: their ANSWERS_FOR names it."""
    found = {}
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        declared = re.search(r"^ANSWERS_FOR = (\([^)]*\))", path.read_text(), re.MULTILINE)
        for layout in ast.literal_eval(declared[1]) if declared else ():
            found.setdefault(layout, []).append(path)
    return found


ORACLES = oracles()
# Tests of our own invariants
LAWS = ["model/test_layouts", "convert/test_conversions", "sources/test_errors",
        "sources/test_sources", "convert/test_laws"]  # fmt: skip

# Imported once, before forking: importing them in every run would take longer than the tests. Not
# jax, which cannot be forked.
PRELOAD = ("keras", "onnx", "onnxruntime", "tf_keras", "torch")


@dataclass(frozen=True)
class Mutant:
    layout: str
    name: str
    text: str  # of formats.c
    words: tuple[str, ...]  # in the names of the tests that should fail
    is_held: bool = False  # about what the layout supports, not about positions and meaning


# --------------------------------------------------------------------------------- the mutations


@dataclass(frozen=True)
class Row:
    layout: str
    number: int  # among the rows of the layout
    start: int  # in the text of formats.c
    text: str


def written_out(text):
    """Return the table with the macro of two rows expanded, so that a mutant changes only one."""
    shared = re.search(r"#define CUDNN_WEIGHT_SPACE((?:.*\\\n)+.*)\n", text)[1]
    head, mark, table = text.partition("const rnl_row rnl_rows[]")
    return (
        head + mark + table.replace("CUDNN_WEIGHT_SPACE", re.sub(r"\s*\\\n", "\n", shared).strip())
    )


def rows(text):
    starts = [m.start() for m in re.finditer(r'^    \{\.layout = "', text, re.MULTILINE)]
    # the row after these is not public, and has no literal name: check_forward tests it
    ends = [*starts[1:], text.index("    /* Not listed for users")]
    found = []
    for start, end in zip(starts, ends, strict=True):
        layout = re.match(r'\s*\{\.layout = "([\w-]+)"', text[start:end])[1]
        number = sum(row.layout == layout for row in found)
        found.append(Row(layout, number, start, text[start:end]))
    return found


def slots(row):
    """Return (name, start, end) of each slot in the row's text."""
    first = row.text.index(".slots = {") + len(".slots = {")
    at, found = first, []
    while match := re.compile(r'[\s,]*\{"([^"]+)"').match(row.text, at):
        start = row.text.index("{", match.start())
        depth, at = 0, start
        while depth or at == start:
            depth += {"{": 1, "}": -1}.get(row.text[at], 0)
            at += 1
        found.append((match[1], start, at))
    return found


def swapped(text, a, b):
    """Exchange two spans; a is before b."""
    return text[: a[0]] + text[b[0] : b[1]] + text[a[1] : b[0]] + text[a[0] : a[1]] + text[b[1] :]


def replaced(text, span, new):
    return text[: span[0]] + new + text[span[1] :]


def gate_swaps(row):
    match = re.search(r"GATES\((.*?)\)", row.text)
    if match is None:  # of a plain RNN alone, which has one gate
        return
    at = match.start(1)
    for cell, part in zip(("lstm", "gru", "rnn"), match[1].split(", "), strict=True):
        for k, m in itertools.combinations(range(1, len(part) - 1), 2):
            if part != "NULL":
                letters = part[k], part[m]
                text = swapped(row.text, (at + k, at + k + 1), (at + m, at + m + 1))
                yield f"{cell} gates {letters[0]} and {letters[1]} swapped", text, (cell,)
        at += len(part) + 2


def axis_swaps(row):
    """ "go" is read as "og" ...: shapes stay, elements move."""
    for name, start, end in slots(row):
        for match in re.finditer(r'"([a-z,+]+)"', row.text[start:end]):
            for pair in re.finditer(r"(?=([gdoi])([gdoi]))", match[1]):
                at = start + match.start(1) + pair.start()
                text = swapped(row.text, (at, at + 1), (at + 1, at + 2))
                yield f"{name}: axes {pair[1]}{pair[2]} of {match[0]} swapped", text, ()


def piece_swaps(row):
    """Exchange two roles of a row: within one tensor, or between two tensors."""
    roles = [
        (m[1], (start + m.start(1), start + m.end(1)))
        for _, start, end in slots(row)
        for m in re.finditer(r"RNL_(W|R|BW|BR)\b", row.text[start:end])
    ]
    for (a, span_a), (b, span_b) in itertools.combinations(roles, 2):
        if ("B" in a) == ("B" in b):
            yield f"{a} and {b} swapped", swapped(row.text, span_a, span_b), ()


def ravel_flips(row):
    for name, start, end in slots(row):
        slot = row.text[start:end]
        if ".ravels" in slot:
            new = slot.replace(", .ravels = true", "")
        elif re.search(r"RNL_[WR]\b", slot):
            new = slot[:-1] + ", .ravels = true}"
        else:
            continue
        yield f"{name}: ravels flipped", replaced(row.text, (start, end), new), ()


def z_flips(row):
    """Skip rows in which z is an option or the layout lacks GRUs: their own z is not used."""
    if "OPTION(RNL_OPT_Z)" not in row.text and ".z = " in row.text:
        kinds = "RNL_Z_KEEPS_STATE", "RNL_Z_TAKES_CANDIDATE"
        old, new = kinds if kinds[0] in row.text else kinds[::-1]
        yield "z flipped", row.text.replace(old, new), ("gru",)


def reset_flips(row):
    match = re.search(r"\.resets = ([A-Z |]+),", row.text)
    if not match:  # no GRU
        return
    for new in ("AFTER", "BEFORE", "AFTER | BEFORE"):
        # the previous row of the same layout is tried first
        if new != match[1] and not (row.number and "|" in new):
            yield f"resets {match[1]} are {new}", replaced(row.text, match.span(1), new), ("gru",)


def holding_flips(row):
    one, any_ = "SIGMOID_ONLY", "ANY_SIGMOID"
    old, new = (one, any_) if one in row.text else (any_, one)
    yield f"activations {new}", row.text.replace(old, new), ()
    relu = ".has_relu = true,\n"
    new = "" if relu in row.text else f"     {relu}"
    at = row.text.index("     .activations = ")
    without = row.text.replace(f"     {relu}", "")
    yield f"has_relu {bool(new)}", without[:at] + new + without[at:], ("lstm",)
    for flag in (".bias_by_mode = true", ".bias_always = true"):
        if flag in row.text:
            yield f"no {flag[1:].split()[0]}", row.text.replace(f"{flag},\n", "\n"), ()


def gate_names(row):
    """Exchange the names of two gates."""
    for name, start, end in slots(row):
        match = re.search(r'"((?:[a-z]:\S*\s?)+)"', row.text[start:end])
        words = list(re.finditer(r":(\S*)", match[1])) if match else []
        for a, b in itertools.pairwise(words):
            at = start + match.start(1)
            text = swapped(row.text, *((at + m.start(1), at + m.end(1)) for m in (a, b)))
            yield f"{name}: names {a[1]!r} and {b[1]!r} swapped", text, ()


def forget_biases(row):
    if match := re.search(r"\.forget_bias = 1\.0", row.text):
        yield "forget bias 0", replaced(row.text, match.span(), ".forget_bias = 0.0"), ("lstm",)


def piece_gates(row):
    """A piece loses the last of its gates."""
    for name, start, end in slots(row):
        for match in re.finditer(r'"([a-z]{2,})"', row.text[start:end]):
            if re.search(
                r"(\.gates = |\{RNL_\w+, \"\w+\", )$", row.text[start : start + match.start()]
            ):
                span = start + match.end(1) - 1, start + match.end(1)
                yield f"{name}: without gate {match[1][-1]}", replaced(row.text, span, ""), ()


MEANING = [gate_swaps, axis_swaps, piece_swaps, ravel_flips, z_flips, gate_names, forget_biases,
           piece_gates]  # fmt: skip
HELD = [reset_flips, holding_flips]


def mutants(text):
    for row in rows(text):
        # the difference between the rows of a layout
        before = ("before",) if ".resets = BEFORE" in row.text else ()
        where = f"{row.layout} {'before' if before else ''}".strip()
        for kind in MEANING + HELD:
            for name, new, words in kind(row):
                whole = replaced(text, (row.start, row.start + len(row.text)), new)
                words += before if words == ("gru",) else ()
                yield Mutant(row.layout, f"{where} {name}", whole, words, kind in HELD)


# ------------------------------------------------------------------------------ build and run them


class Builds:
    """The package in a separate folder, rebuilt for each mutant."""

    def __init__(self, folder):
        self.folder = folder
        self.count = 0
        for name in PREBUILT:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, folder / name)
        self.path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self._run("-S", folder, "-B", folder / "build", "-G", "Ninja", "-DRNNLAYOUT_PYTHON=ON",
                  f"-DPython_EXECUTABLE={sys.executable}")  # fmt: skip

    def _run(self, *arguments):
        cmake = shutil.which("cmake", path=self.path)
        done = subprocess.run(
            [cmake, *map(str, arguments)], env={**os.environ, "PATH": self.path}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"{arguments}: {done.stdout}")

    def site(self, text):
        """Build the mutant, and return a folder to import it from."""
        (self.folder / FORMATS).write_text(text)
        self._run("--build", self.folder / "build")
        self.count += 1
        package = self.folder / f"site{self.count}" / "rnnlayout"
        package.mkdir(parents=True)
        for path in (self.folder / "python" / "rnnlayout").iterdir():
            if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__"):
                (package / path.name).symlink_to(path)
        (library,) = (self.folder / "build").glob("_native*.so")
        shutil.copy(library, package)
        return package.parent


class FirstFailure:
    """A pytest plugin that records the first test that failed."""

    def __init__(self):
        self.nodeid = ""

    def pytest_runtest_logreport(self, report):
        self.nodeid = self.nodeid or (report.nodeid if report.failed else "")

    pytest_collectreport = pytest_runtest_logreport


def run_tests(site, batches, *options):
    """Return the first test that fails in this process, or "". A batch is (files, words)."""
    sys.path[:0] = [str(site), str(ROOT / "tests")]
    os.environ["PYTHONPATH"] = str(site)
    for files, words in batches:
        first = FirstFailure()
        arguments = [*options, "-x", "-q", "-p", "no:cacheprovider", "-m", ""]
        arguments += ["-k", " and ".join(words)] if words else []
        status = pytest.main([*arguments, *map(str, files)], plugins=[first])
        if first.nodeid or status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return first.nodeid or f"exit status {status}"
    return ""


def batches_for(mutant, tests):
    """Return the tests that should fail, likely ones first, as pairs (files, words)."""
    if tests:
        return [(tests, ())]
    oracles = ORACLES[mutant.layout]
    laws = [ROOT / "tests" / f"{name}.py" for name in LAWS]
    if mutant.is_held:
        return [(laws, ()), (oracles, ())]
    likely = [(oracles, mutant.words)] if mutant.words else []
    return [*likely, (oracles, ()), (laws, ())]


def start(mutant, site, batches, *options, limit=LIMIT):
    """Run tests in a fork of this process. Return the job for finish()."""
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
            report.write_text(run_tests(site, batches, *options))
    finally:
        os._exit(0)


def check_baseline(builds, text, chosen, tests):
    """Exit if the tests cannot be collected: they would seem to catch every mutant."""
    table = Mutant("", "the table as it is", text, ())
    files = {file for m in chosen for files, _ in batches_for(m, tests) for file in files}
    site = builds.site(text)
    if finish([start(table, site, [(sorted(files), ())], "--collect-only")])[1] != "":
        sys.exit((site / "log").read_text())


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="mutants whose name matches this expression")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of parallel runs")
    parser.add_argument("--list", action="store_true", help="print the names")
    parser.add_argument("tests", nargs="*", type=Path, help="tests to run instead of the default")
    args = parser.parse_args()
    tests = [path.resolve() for path in args.tests]
    text = written_out((ROOT / FORMATS).read_text())
    chosen = [m for m in mutants(text) if re.search(args.only, m.name)]
    if args.list:
        print(*(m.name for m in chosen), sep="\n")
        return 0
    if not tests:
        os.environ.setdefault("KERAS_BACKEND", "torch")
        for name in PRELOAD:
            importlib.import_module(name)
    survivors, running = 0, []
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        builds = Builds(Path(folder))
        check_baseline(builds, text, chosen, tests)
        for mutant in chosen:
            site = builds.site(mutant.text)
            if len(running) >= args.jobs:
                survivors += not finish(running)[1]
            running.append(start(mutant, site, batches_for(mutant, tests)))
        while running:
            survivors += not finish(running)[1]
    print(f"{len(chosen)} mutants, {survivors} survived")
    return 1 if survivors or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
