"""No circle of files in the C library: if one file calls another, no way leads back."""

from collections import defaultdict
from graphlib import TopologicalSorter

from commands import run


def test_no_circle_of_files(c_build):
    objects = sorted((c_build("release") / "CMakeFiles" / "rnnlayout.dir").rglob("*.o"))
    defined_in, needs = {}, defaultdict(set)
    for path in objects:
        for line in run(["nm", "-g", path]).splitlines():
            *_, kind, symbol = line.split()
            if kind == "U":
                needs[path].add(symbol)
            else:
                defined_in[symbol] = path
    graph = {path: {defined_in[s] for s in needs[path] & defined_in.keys()} for path in objects}
    assert sum(map(len, graph.values())) > len(objects)
    TopologicalSorter(graph).prepare()  # CycleError: its last argument is the circle
