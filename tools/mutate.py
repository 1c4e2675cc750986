"""Check that a test fails for a mistake in the Python code: draw mistakes, run the tests for each.

    python -m pip install coverage .            not editable: that would hide the mutants
    python tools/mutate.py --map tests          see which tests run a line: half an hour, once
    python tools/mutate.py --each 30 --seed 7   30 mutants in each room of the package
    python tools/mutate.py --only "_convert/plan.py:3[0-9] .*<"

A mutant is a copy of the package with one change in one line: another comparison, `and` for `or`,
another number or name, two arguments swapped, a statement left out. Docstrings, type hints and the
texts of errors stay. The tests that run the line come first, then others of their files, quick ones
before slow ones, as many as take BUDGET seconds. One line per mutant names the first that fails.
What only a child process runs, such as a test of a GPU, is listed as not run.
"""

import argparse
import ast
import functools
import importlib
import itertools
import json
import os
import random
import re
import shutil
import sys
import time
from collections import Counter
from copy import copy
from dataclasses import dataclass
from pathlib import Path

import coverage
import forked_tests
import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "python" / "rnnlayout"
BUILD = ROOT / "build" / "mutate"  # a copy of the package, its mutants, and the map
PACKAGE, MAP, SECONDS = BUILD / "rnnlayout", BUILD / "coverage", BUILD / "seconds.json"
BUDGET = 12.0  # CPU seconds of tests per mutant, when coverage counts
START, SLOWER = 60, 5  # CPU seconds to import the frameworks; a mutant that is so much slower hangs
OTHERS = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,), ast.And: (ast.Or,),
    ast.Or: (ast.And,), ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.FloorDiv,),
    ast.FloorDiv: (ast.Mult,),
}  # fmt: skip
DROPPED = (ast.Raise, ast.AugAssign, ast.Break, ast.Continue)

# --------------------------------------------------------------------------------- the mutations


@dataclass(frozen=True)
class Mutant:
    file: Path  # relative to the package
    line: int
    old: str
    new: str
    text: str  # of the file

    @property
    def room(self):
        return self.file.parts[0]

    @property
    def name(self):
        return f"{self.file}:{self.line} " + " ".join(f"{self.old} -> {self.new}".split())


def changes(node):
    """Yield what can replace this expression or statement."""

    def other(**fields):
        new = copy(node)
        vars(new).update(fields)
        return new

    match node:
        case ast.Compare(ops=[op]):
            yield from (other(ops=[kind()]) for kind in OTHERS[type(op)])
        case ast.BoolOp(op=op, values=values):
            yield other(op=OTHERS[type(op)][0]())
            yield from (other(values=[v for v in values if v != left]) for left in values)
        case ast.BinOp(op=op):
            yield from (other(op=kind()) for kind in OTHERS.get(type(op), ()))
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.Constant(value=str(value)) if re.fullmatch(r"[\w./:-]+", value):
            yield ast.Constant(value + "x")
        case ast.Call(func=function, args=args) if ast.unparse(function) not in ("min", "max"):
            for k, (a, b) in enumerate(itertools.pairwise(args)):
                yield other(args=[*args[:k], b, a, *args[k + 2 :]])
        case ast.Return(value=ast.expr()):
            yield ast.Return()
        case ast.Expr(value=ast.Call()) | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case _ if isinstance(node, DROPPED):
            yield ast.Pass()


def is_kept(parent, field):
    """Is this part of the parent a docstring, a type hint, the text of an error, or a decorator?"""
    match parent:
        case ast.Raise() | ast.JoinedStr() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Call(func=function):
            return bool(re.search(r"(Error|^TypeVar|^cast)$", ast.unparse(function)))
        case ast.If(test=ast.Name("TYPE_CHECKING")) | ast.Subscript(value=ast.Name("Literal")):
            return True
        case ast.keyword(arg="strict"):  # of zip(): our own assertion
            return True
    return field in {"annotation", "returns", "decorator_list"}


def sites(node):
    """Yield (node, replacement) for all changes in a tree."""
    yield from ((node, new) for new in changes(node))
    for test in [node.test] if hasattr(node, "test") else getattr(node, "ifs", []):
        if not isinstance(test, ast.Compare | ast.UnaryOp):
            yield test, ast.UnaryOp(ast.Not(), test)
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not is_kept(node, field):
                yield from sites(child)


def mutants(path):
    source = path.read_bytes()
    starts = [0, *itertools.accumulate(map(len, source.splitlines(keepends=True)))]
    for node, new in sites(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        text = ast.unparse(ast.fix_missing_locations(new))
        text = f"({text})" if isinstance(new, ast.expr) else text
        whole = (source[:start] + text.encode() + source[end:]).decode()
        old = source[start:end].decode()
        yield Mutant(path.relative_to(SOURCE), node.lineno, old, text, whole)


def drawn(rooms, each, seed):
    """Draw lines of each room, and one change in each line."""
    for room in rooms:
        lines = {}
        for path in sorted((SOURCE / room).rglob("*.py")):
            for mutant in mutants(path):
                lines.setdefault((mutant.file, mutant.line), []).append(mutant)
        draw = random.Random(f"{seed} {room}")
        for line in draw.sample(sorted(lines), min(each, len(lines))):
            yield draw.choice(lines[line])


# -------------------------------------------------------------------------- which tests run a line


class Contexts:
    """A pytest plugin that tells coverage which test runs, and takes the CPU time of those that
    pass."""

    def __init__(self, measured):
        self.measured, self.seconds = measured, {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        since = time.process_time()
        self.measured.switch_context(item.nodeid)
        self.seconds[item.nodeid] = 0.0
        done = yield
        self.measured.switch_context("")
        if item.nodeid in self.seconds:
            self.seconds[item.nodeid] = round(time.process_time() - since, 3)
        return done

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.seconds.pop(report.nodeid, None)


def write_map(tests):
    measured = coverage.Coverage(str(MAP), include=[f"{PACKAGE}/*"], config_file=False)
    plugin = Contexts(measured)
    with measured.collect():
        pytest.main(["-q", "-p", "no:cacheprovider", *tests], plugins=[plugin])
    measured.save()
    SECONDS.write_text(json.dumps(plugin.seconds))


def tests_for(mutant, lines, seconds):
    """Return file -> the tests to run. lines: number -> the tests that run it, of the file."""
    own = set(lines.get(mutant.line, ())) & seconds.keys()
    if mutant.line in lines and not own:  # it is run once, when the module is imported
        own = set().union(*lines.values()) & seconds.keys()
    files, chosen, left = {name.split("::")[0] for name in own}, {}, BUDGET
    candidates = [name for name in seconds if name.split("::")[0] in files]
    room = f"tests/{mutant.room[1:]}/"
    for name in sorted(candidates, key=lambda n: (n not in own, room not in n, seconds[n])):
        if (left := left - seconds[name]) > 0 or not chosen:
            chosen.setdefault(name.split("::")[0], []).append(name)
    return chosen


# ------------------------------------------------------------------------------------ run the tests


def copy_package():
    """Copy the source and the compiled module, to import it from there."""
    installed = Path(importlib.util.find_spec("rnnlayout").origin).parent
    if installed == SOURCE:
        sys.exit("rnnlayout is installed editable: python -m pip install .")
    shutil.rmtree(PACKAGE, ignore_errors=True)
    shutil.copytree(SOURCE, PACKAGE, ignore=shutil.ignore_patterns("*.[ch]", "__pycache__"))
    for library in installed.glob("_native*.so"):
        shutil.copy(library, PACKAGE)
    sys.path[:0] = [str(BUILD)]
    os.environ["PYTHONPATH"] = str(BUILD)


def write_mutant(mutant, site):
    """Write a package of links to the files of the copy, and of the file that is changed."""
    shutil.rmtree(site, ignore_errors=True)
    for folder in mutant.file.parents:  # the deepest first
        here = site / "rnnlayout" / folder
        here.mkdir(parents=True, exist_ok=True)
        for path in (PACKAGE / folder).iterdir():
            if not (here / path.name).exists() and path.name != "__pycache__":
                (here / path.name).symlink_to(path)
    target = site / "rnnlayout" / mutant.file
    target.unlink()
    target.write_text(mutant.text)


def check(chosen, jobs):
    """Print a line per mutant and the numbers of each room. Return how many were not caught."""
    covered, seconds = coverage.CoverageData(str(MAP)), json.loads(SECONDS.read_text())
    covered.read()
    running, results = [], Counter()

    def finish():
        mutant, caught = forked_tests.finish(running)
        results[mutant.room, "caught" if caught else "survived"] += 1

    for number, mutant in enumerate(chosen):
        lines = covered.contexts_by_lineno(str(PACKAGE / mutant.file))
        tests = tests_for(mutant, lines, seconds)
        if not tests:
            print(f"{mutant.name:60} not run by any test", flush=True)
            results[mutant.room, "not run"] += 1
            continue
        write_mutant(mutant, site := BUILD / "mutants" / str(number))
        limit = START + SLOWER * sum(seconds[name] for names in tests.values() for name in names)
        if len(running) == jobs:
            finish()
        batches = [(names, ()) for names in tests.values()]
        run = functools.partial(forked_tests.run_tests, site, batches)
        running.append(forked_tests.start(mutant, site, run, int(limit)))
    while running:
        finish()
    for (room, result), count in sorted(results.items()):
        print(f"{room:10} {result:10} {count:4}")
    return sum(count for (_, result), count in results.items() if result != "caught")


def main():
    rooms = sorted(path.name for path in SOURCE.glob("_*") if (path / "__init__.py").exists())
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--map", nargs="+", metavar="TESTS", help="run TESTS to see their lines")
    parser.add_argument("--each", type=int, default=30, help="number of mutants per room")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--room", choices=rooms, help="draw in this one alone")
    parser.add_argument("--only", help="all mutants whose name matches this expression")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of parallel runs")
    args = parser.parse_args()
    os.chdir(ROOT)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(BUILD / "hypothesis")
    copy_package()
    if args.map:
        return write_map(args.map)
    chosen = drawn([args.room] if args.room else rooms, args.each, args.seed)
    if args.only:
        everything = (mutant for path in sorted(SOURCE.rglob("*.py")) for mutant in mutants(path))
        chosen = (mutant for mutant in everything if re.search(args.only, mutant.name))
    for name in forked_tests.PRELOAD:
        importlib.import_module(name)  # once for all forks
    return min(check(chosen, args.jobs), 1)


if __name__ == "__main__":
    sys.exit(main())
