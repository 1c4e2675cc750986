"""Print the import graph of the Python package: its rooms, the arrows between them, and circles.

    python tools/rooms.py [PACKAGE_FOLDER]

A room is a folder of the package, or a file at its top. An arrow is an import at any level of
nesting, TYPE_CHECKING included. The C files of _native import one of our modules, _model.errors.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "python" / "rnnlayout"
# A room imports the rooms before it and itself. Inside _files: tensor_sets, then
# formats, then the rest.
ORDER = [
    "_native", "_model", "_sources", "_convert", "_run", "_files.tensor_sets", "_files.formats",
    "_files", "_compare", "_cli", "testing", "torch", "rnnlayout", "__main__",
]  # fmt: skip
Arrow = tuple[str, str]  # importing module, imported module: "_model.spec", "_native"
# The exceptions to the order: methods of Weights that read, convert, draw and run import these
# modules when they are called.
CALLED_LATER = {
    ("_model.weights", "_sources.read_source"), ("_model.weights", "_sources.reading"),
    ("_model.weights", "_convert.engine"), ("_model.weights", "_convert.explain"),
    ("_model.weights", "_run.rnn"),
}  # fmt: skip


def modules(package: Path = PACKAGE) -> dict[str, Path]:
    """Return the Python modules by dotted name below the package, whose own name is "rnnlayout"."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "rnnlayout"] = path
    return found


def arrows(package: Path = PACKAGE) -> set[Arrow]:
    """Return all imports of one module of the package by another."""
    known = modules(package)
    found = {
        (name, _existing(target, known))
        for name, path in known.items()
        for target in _imports(name, path)
    }
    return {(a, b) for a, b in found if a != b}


def _imports(name: str, path: Path) -> Iterator[str]:
    """Yield what a file imports from its own package, as dotted names below it."""
    inside = name.split(".")[: None if path.name == "__init__.py" else -1]
    if name == "rnnlayout":
        inside = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (a.name[10:] for a in node.names if a.name.startswith("rnnlayout."))
        elif isinstance(node, ast.ImportFrom):
            base = (node.module or "").split(".") if node.module else []
            if node.level:
                base = inside[: len(inside) - node.level + 1] + base
            elif base[:1] != ["rnnlayout"]:
                continue
            else:
                base = base[1:]
            yield from (".".join([*base, a.name]) for a in node.names)


def _existing(target: str, known: dict[str, Path]) -> str:
    """Return the module that an imported name is, or is in."""
    while target and target not in known and target != "_native":
        target = target.rpartition(".")[0]
    return target or "rnnlayout"


def room(module: str) -> str:
    """Return the room of a module."""
    for name in ("_files.tensor_sets", "_files.formats"):
        if f"{module}.".startswith(f"{name}."):
            return name
    return module.partition(".")[0]


def against_the_order(found: set[Arrow]) -> list[Arrow]:
    """Return the arrows from a room to a later one, other than CALLED_LATER, and those to or from
    no known room."""
    place = {name: k for k, name in enumerate(ORDER)}
    return sorted(
        (a, b)
        for a, b in found - CALLED_LATER
        if room(a) not in place or room(b) not in place or place[room(b)] > place[room(a)]
    )


def circle(found: set[Arrow]) -> list[str]:
    """Return modules of which each imports the one before it, from one back to itself; or none.
    CALLED_LATER makes no circle: these modules are imported after the first is complete."""
    after: dict[str, set[str]] = {}
    for a, b in found - CALLED_LATER:
        after.setdefault(a, set()).add(b)
    try:
        TopologicalSorter(after).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def main() -> None:
    package = Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE
    known, found = modules(package), arrows(package)
    lines: dict[str, int] = {}
    for name, path in known.items():
        lines[room(name)] = lines.get(room(name), 0) + len(path.read_text().splitlines())
    rank = {name: k for k, name in enumerate(ORDER)}
    for name in sorted(lines, key=lambda one: (rank.get(one, -1), one)):
        uses = {room(b) for a, b in found if room(a) == name} - {name}
        text = " ".join(sorted(uses, key=lambda one: (rank.get(one, -1), one)))
        print(f"{name:16} {lines[name]:6} lines  <- {text}")
    print(f"{sum(lines.values())} lines, {len(known)} files, {len(found)} imports")
    wrong = against_the_order(found)
    print(f"against the order: {len(wrong)}")
    for a, b in wrong:
        print(f"  {a} -> {b}")
    print("a circle:", " <- ".join(circle(found)) or "none")


if __name__ == "__main__":
    main()
