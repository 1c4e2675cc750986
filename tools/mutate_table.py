"""Check that a test fails for each mistake in a row of the table of layouts.

    python tools/mutate_table.py                   all mutants, half an hour on two cores
    python tools/mutate_table.py --only "^keras "  mutants whose name matches this expression
    python tools/mutate_table.py --list            print the names

A mutant is the row of a layout as data, as in rl.layout("keras").row, with one change: two gates
swapped, two pieces swapped, two axes swapped, raveled, the z convention, the resets, the roles. The
tests are collected once. A fork of that process then gives the layout of this name the mutant's row
and runs the tests that compare with the framework itself, and after them the tests that only know
the table's own invariants, up to the first that fails. One line per mutant names this test. The
exit code is 1 if no test fails for some mutant.
"""

import argparse
import ast
import copy
import functools
import gc
import itertools
import json
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from forked_tests import FirstFailure, finish, start

import rnnlayout as rl
from rnnlayout import _native
from rnnlayout._model import layout as layout_module

ROOT = Path(__file__).resolve().parent.parent


def oracles():
    """Return layout -> the tests with answers that are not ours: their ANSWERS_FOR names it."""
    found = {}
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        declared = re.search(r"^ANSWERS_FOR = (\([^)]*\))", path.read_text(), re.MULTILINE)
        for layout in ast.literal_eval(declared[1]) if declared else ():
            found.setdefault(layout, []).append(path)
    return found


ORACLES = oracles()
# Tests of our own invariants, the slowest last
LAWS = [
    ROOT / "tests" / f"{name}.py"
    for name in ("model/test_layouts", "convert/test_conversions", "sources/test_errors",
                 "sources/test_sources", "convert/test_laws")
]  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    layout: str
    number: int  # of the row among the rows of the layout
    kind: object  # the function that makes the change
    change: str
    words: tuple[str, ...]  # in the names of the tests that should fail

    @property
    def name(self):
        row = f"row {self.number} " if self.number else ""
        return f"{self.layout} {row}{self.change}"

    @property
    def is_held(self):
        """Is it about what the layout supports, not about positions and meaning?"""
        return self.kind in HELD

    def applied_to(self, layout):
        """Return the layout's row, or rows, with the change; options may have removed its cause."""
        whole = layout.row
        rows = whole.get("rows", [whole])
        changed = {name: row for name, row, _ in self.kind(rows[self.number])}
        rows[self.number] = changed.get(self.change, rows[self.number])
        return {"rows": rows}


# --------------------------------------------------------------------------------- the mutations
# Each yields (name, row, words in the names of the tests that should fail).

TEXT = re.compile(r"([^(]+) \(([^)]*)\)(.*)")  # pieces, shape, repetition and raveled


def texts(row):
    """Yield (tensor, number of the part, text) of each tensor or part of a tensor in a row."""
    for name, value in row["tensors"].items():
        for k, text in enumerate(value if isinstance(value, list) else [value]):
            yield name, k, text


def with_text(row, name, k, text):
    new = copy.deepcopy(row)
    if isinstance(new["tensors"][name], list):
        new["tensors"][name][k] = text
    else:
        new["tensors"][name] = text
    return new


def exchanged(text, a, b):
    """Exchange two spans; a is before b."""
    return text[: a[0]] + text[b[0] : b[1]] + text[a[1] : b[0]] + text[a[0] : a[1]] + text[b[1] :]


def gate_swaps(row):
    for cell, gates in row["gates"].items():
        for k, m in itertools.combinations(range(len(gates)), 2):
            new = exchanged(gates, (k, k + 1), (m, m + 1))
            change = f"{cell} gates {gates[k]} and {gates[m]} swapped"
            yield change, row | {"gates": row["gates"] | {cell: new}}, (cell,)


def axis_swaps(row):
    """ "G*H" is read as "H*G" ...: shapes stay, elements move."""
    for name, k, text in texts(row):
        for pair in re.finditer(r"\b(?=(\w+)\*(\w+))", text):
            new = exchanged(text, pair.span(1), pair.span(2))
            change = f"{name}: {pair[1]}*{pair[2]} of {text} at {pair.start()} swapped"
            yield change, with_text(row, name, k, new), ()


def piece_swaps(row):
    """Exchange two roles of a row: within one tensor, or between two tensors."""
    inputs = {"W": "I", "R": "P" if has_role(row, "P") else "H_in"}  # the input axis of a role
    pieces = [
        (name, k, n, role.partition("[")[0])
        for name, k, text in texts(row)
        for n, role in enumerate(TEXT.fullmatch(text)[1].split(" + "))
    ]
    for a, b in itertools.combinations(pieces, 2):
        if {a[3], b[3]} in ({"W", "R"}, {"bW", "bR"}):
            new = row
            for (name, k, n, old), role in ((a, b[3]), (b, a[3])):
                text = dict(((t, m), v) for t, m, v in texts(new))[name, k]
                new = with_text(new, name, k, with_role(text, n, old, role, inputs))
            yield f"{a[0]} and {b[0]}: {a[3]} and {b[3]} swapped", new, ()


def has_role(row, role):
    return any(role in TEXT.fullmatch(text)[1].split(" + ") for *_, text in texts(row))


def with_role(text, n, old, role, inputs):
    """Return a text in which piece n has another role, and the input axis of the role."""
    pieces, shape, rest = TEXT.fullmatch(text).groups()
    parts = pieces.split(" + ")
    parts[n] = parts[n].replace(old, role, 1)
    dimensions = []
    for dimension in shape.split(", "):
        terms = dimension.split(" + ")
        for at in [n] if len(terms) > 1 else range(len(terms)):
            if role in inputs:
                terms[at] = re.sub(rf"\b{inputs[old]}$|\b{inputs[old]}\b", inputs[role], terms[at])
        dimensions.append(" + ".join(terms))
    return f"{' + '.join(parts)} ({', '.join(dimensions)}){rest}"


def ravel_flips(row):
    for name, k, text in texts(row):
        if text.endswith(" raveled"):
            new = text.removesuffix(" raveled")
        elif re.match(r"[WR]\b", text):
            new = text + " raveled"
        else:
            continue
        yield f"{name}: raveled flipped", with_text(row, name, k, new), ()


def z_flips(row):
    if "z" in row:
        yield (
            "z flipped",
            row | {"z": {"state": "candidate", "candidate": "state"}[row["z"]]},
            ("gru",),
        )


def reset_flips(row):
    for new in ("after", "before", ["after", "before"]) if "reset" in row else ():
        if new != row["reset"]:
            yield f"reset {row['reset']} is {new}", row | {"reset": new}, ("gru",)


def holding_flips(row):
    if row["gates"].keys() & {"lstm", "gru"}:  # a plain RNN has no activations of these kinds
        every = ["sigmoid", "hard_sigmoid", "hard_sigmoid_keras2"]
        old = row.get("recurrent_activation", "sigmoid")
        new = "sigmoid" if old == every else every
        yield f"recurrent activations {new}", row | {"recurrent_activation": new}, ()
        relu = [] if "activation" in row else ["relu"]
        yield f"relu {bool(relu)}", row | {"activation": ["tanh", *relu]}, ("lstm",)
    if "biases" in row and "forget_bias" not in row:
        yield f"biases not {row['biases']}", row | {"biases": "optional"}, ()


def gate_names(row):
    """Exchange the names of two gates."""
    for name in row["tensors"]:
        match = re.search(r"\{gate:([^}]*)\}", name)
        words = [word.partition("=")[::2] for word in match[1].split(" ")] if match else []
        for (a, name_a), (b, name_b) in itertools.pairwise(words):
            new = match[0].replace(f"{a}={name_a}", f"{a}={name_b}", 1)
            new = new.replace(f"{b}={name_b}", f"{b}={name_a}", 1)
            tensors = {(key.replace(match[0], new) if key == name else key): text
                       for key, text in row["tensors"].items()}  # fmt: skip
            yield f"{name}: names of {a} and {b} swapped", row | {"tensors": tensors}, ()


def forget_biases(row):
    if row.get("forget_bias") == 1:
        yield "forget bias 0", row | {"forget_bias": 0}, ("lstm",)


def piece_gates(row):
    """A piece loses the last of its gates."""
    for name, k, text in texts(row):
        for match in re.finditer(r"(\w+)\[\w+(\w)\]", text):
            new = text[: match.start(2)] + text[match.end(2) :]
            yield f"{name}: {match[1]} without gate {match[2]}", with_text(row, name, k, new), ()


MEANING = [gate_swaps, axis_swaps, piece_swaps, ravel_flips, z_flips, gate_names, forget_biases,
           piece_gates]  # fmt: skip
HELD = [reset_flips, holding_flips]


def mutants():
    for layout in map(rl.layout, rl.layouts()):
        whole = layout.row
        for number, row in enumerate(whole.get("rows", [whole])):
            # the difference between the rows of a layout
            before = ("before",) if row.get("reset") == "before" else ()
            for kind in MEANING + HELD:
                for change, _, words in kind(row):
                    words += before if words == ("gru",) else ()
                    yield Mutant(layout.name, number, kind, change, words)


def things_of_layouts():
    """Return what a changed row changes: the caches of rnnlayout's functions, and all Layouts."""
    caches, layouts = [], []
    for thing in gc.get_objects():
        is_cached = type(thing) is functools._lru_cache_wrapper
        if is_cached and str(thing.__module__).startswith("rnnlayout."):
            caches.append(thing)
        if type(thing) is layout_module.Layout:
            layouts.append(thing)
    return [cache for cache in caches if cache != layout_module.known_layouts], layouts


def give_row(mutant, caches, layouts):
    """Let the mutant's layout have its row in this process, and every Layout of this name."""
    known, original = layout_module.known_layouts(), layout_module.Layout.__init__

    def change(layout):
        if layout.name == mutant.layout and not layout.json:
            layout.__dict__["rows"] = None  # as the table has it
            text = json.dumps(mutant.applied_to(layout)).encode()
            layout.__dict__["rows"] = _native.read_rows(text)[1]
            layout.__dict__.pop("facts", None)

    def make(layout, *arguments, **options):
        original(layout, *arguments, **options)
        change(layout)

    for cache in caches:
        cache.cache_clear()
    for layout in layouts:
        change(layout)
    layout_module.Layout.__init__ = make
    facts = known[mutant.layout]
    kept = {key: facts[key] for key in ("options", "must_name", "aliases", "sources", "checked")}
    rows = zip(facts["rows"], _native.layout_rows(rl.layout(mutant.layout)), strict=True)
    same = ("layout", "options", "must_name", "checked", "source")
    rows = [new | {key: old[key] for key in same} for old, new in rows]
    facts |= layout_module._facts_of(rows) | kept


# ----------------------------------------------------------------------------------- run the tests


class Mutants:
    """A pytest plugin that forks, after the tests have been collected, a process per mutant."""

    def __init__(self, chosen, tests, jobs, folder):
        self.chosen, self.tests, self.jobs, self.folder = chosen, tests, jobs, folder
        self.survivors, self.not_rows, self.running = [], 0, []

    def finish(self):
        mutant, caught = finish(self.running)
        self.survivors += [mutant] if not caught else []

    def pytest_runtestloop(self, session):
        threads = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
        if any(name.startswith("tf_") for name in threads):  # of TensorFlow or JAX
            pytest.exit("importing the tests starts threads, which a fork lacks", 1)
        caches, layouts = things_of_layouts()
        gc.freeze()  # a collection in a fork would copy the memory of all frameworks
        for number, mutant in enumerate(self.chosen):
            try:
                rl.layout(mutant.applied_to(rl.layout(mutant.layout)))
            except rl.LayoutError as error:
                print(f"{mutant.name:60}        not a row: {error}"[:160])
                self.not_rows += 1
                continue
            if len(self.running) >= self.jobs:
                self.finish()
            site = Path(self.folder) / str(number)
            site.mkdir()
            items = session.items if self.tests else ordered(mutant, session.items)
            run = functools.partial(run_items, mutant, items, caches, layouts)
            self.running.append(start(mutant, site, run))
        while self.running:
            self.finish()
        return True


def ordered(mutant, items):
    """Return the tests for a mutant, those that are likely to fail first."""
    oracles = ORACLES[mutant.layout]

    def order(item):
        is_oracle = item.path in oracles
        words = sum(word in item.name for word in (*mutant.words, *mutant.layout.split("-")))
        return is_oracle == mutant.is_held, -words, 0 if is_oracle else LAWS.index(item.path)

    return sorted((item for item in items if item.path in (*oracles, *LAWS)), key=order)


def run_items(mutant, items, caches, layouts):
    """Return the first of the tests that fails for a mutant, or ""."""
    give_row(mutant, caches, layouts)
    first = FirstFailure()
    items[0].config.pluginmanager.register(first)
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if first.nodeid:
            break
    return first.nodeid


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="mutants whose name matches this expression")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of parallel runs")
    parser.add_argument("--list", action="store_true", help="print the names")
    parser.add_argument("tests", nargs="*", type=Path, help="tests to run instead of the default")
    args = parser.parse_args()
    chosen = [m for m in mutants() if re.search(args.only, m.name)]
    if args.list:
        print(*(m.name for m in chosen), sep="\n")
        return 0
    sys.path[:0] = [str(ROOT / "tests")]
    files = {file for m in chosen for file in (*ORACLES[m.layout], *LAWS)}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
        plugin = Mutants(chosen, args.tests, args.jobs, Path(folder))
        arguments = ["-q", "-s", "-p", "no:cacheprovider"]
        arguments += map(str, args.tests or sorted(files))
        status = pytest.main(arguments, plugins=[plugin])
    print(f"{len(chosen)} mutants, {plugin.not_rows} not rows, {len(plugin.survivors)} survived")
    for mutant in plugin.survivors:
        print(f"  {mutant.name}")
    return 1 if status or plugin.survivors or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
