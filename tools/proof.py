"""Count what the tests check, for the README and docs/compatibility.md: tools/tables.py.

Every number is the length of a list that a test goes through, or that of recorded data.
"""

import ast
import itertools
import random
import sys
from collections import Counter
from pathlib import Path

import layout_tables
import numpy as np

import rnnlayout as rl

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"


if str(TESTS) not in sys.path:
    sys.path.append(str(TESTS))


def table():
    """All rows: docs/compatibility.md."""
    rows = [[f"[{label}](../{path})", truth, text] for label, path, truth, text in (
                offsets(), meanings(), networks(), pairs(), hostile(), mistakes())]  # fmt: skip
    return layout_tables.markdown(["checked", "against", "how much"], rows)


def main_table():
    """Three rows: README.md."""
    rows = [[f"[{label}]({path})", text] for label, path, _, text in (
                meanings(), networks(), mistakes())]  # fmt: skip
    return layout_tables.markdown(["checked", "how much"], rows)


def offsets():
    from model.recorded import RECORDED
    from model.test_real_cudnn import LIBRARIES, sweep

    versions = sorted({v for answer in RECORDED for v in answer["cudnn_versions"]})
    found = sum(len(answer["params"]) for answer in RECORDED)
    asked = Counter(question["dtype"] for question in sweep(random.Random(0)))
    least = asked.total() - asked["bfloat16"]  # which older versions do not have
    return (
        "offsets in cuDNN's weight space",
        "tests/model/test_real_cudnn.py",
        f"what libcudnn {listed(map(release, versions))} answer",
        f"{found:,} pieces of {len(RECORDED)} recorded RNNs, and {least:,} or more"
        f" random RNNs asked through the calls of cuDNN {listed(sorted(LIBRARIES))} each",
    )


def release(number):
    """Write 8906 as 8.9.6 and 91900 as 9.19.0, as CUDNN_VERSION has them."""
    major, rest = divmod(number, 10000 if number >= 90000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def listed(words):
    *first, last = words
    return f"{', '.join(first)} and {last}"


def meanings():
    counts = Counter(info["checked"][0] for info in rl.layouts().values())
    return (
        "the meaning of each layout",
        "docs/every-layout.md",
        "outputs of its framework",
        f"{counts['framework']} layouts against the framework itself, {counts['recorded']} against"
        f" its recorded answers, {counts['documents']} against its documents",
    )


def networks():
    from oracles.some import LAYOUTS

    path = TESTS / "convert" / "test_laws.py"
    counts = list(laws(ast.parse(path.read_text())))
    return (
        "the laws of conversion: there and back, each bit is the same",
        str(path.relative_to(ROOT)),
        "random bits, with NaN payloads, subnormals and both zeros",
        f"{sum(counts) * len(LAYOUTS):,} random networks: {sum(counts)} for each of"
        f" {len(LAYOUTS)} layouts and options, in {len(counts)} laws",
    )


def laws(tree):
    """Yield how many random networks each law gets per layout: its line @examples(10, ...)."""
    for function in tree.body:
        names = {ast.unparse(one) for one in getattr(function, "decorator_list", ())}
        if "every_layout" in names:
            yield from (
                call.args[0].value
                for call in function.decorator_list
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "examples"
            )


def pair_signs():
    """Return {sign of layout_tables.SIGNS: the number of pairs}."""
    return Counter(
        layout_tables.sign(spec, source, target)[0]
        for kind, spec in layout_tables.KINDS.items()
        for source, target in itertools.product(*layout_tables.grid(kind))
    )


def pairs():
    signs = pair_signs()
    return (
        "the grade of each pair of layouts",
        "tests/convert/test_pairs.py",
        "weights without a zero",
        f"{signs.total():,} pairs, of which {signs['=']:,} keep every bit and {signs['x']} are"
        " refused with the reason",
    )


def hostile_counts():
    """Return the number of hostile files, and the limit of memory in bytes."""
    from files.hostile.limits import MOST_NBYTES
    from files.hostile.test_hostile import CASES

    return len(CASES), MOST_NBYTES


def hostile():
    from files.hostile.limits import MOST_CALLS, MOST_SECONDS
    from files.hostile.test_hostile import LAYOUTS, LONG, PLAIN

    files, nbytes = hostile_counts()
    return (
        "hostile files",
        "tests/files/hostile/test_hostile.py",
        f"an error within {nbytes // 10**6} MB and {MOST_CALLS // 10**6} million calls of"
        f" functions, in the long tests within {MOST_SECONDS} s of CPU time; nothing is run, no"
        " other file opened",
        f"{files:,} files, and one of each of {len(LAYOUTS)} formats with {PLAIN[0]} bytes"
        f" changed and cut every {PLAIN[1]} bytes; in the long tests {LONG[0]} and {LONG[1]}",
    )


def mistake_counts():
    """Return the number of mistakes that a packer may make, and of their kinds."""
    from compare import mistake_machine

    rng = np.random.default_rng(0)
    rules = [mistake.rule for spec in mistake_machine.CELLS
             for mistake in mistake_machine.single_mistakes(spec, rng)]  # fmt: skip
    return len(rules), len({*rules})


def mistakes():
    from compare import mistake_machine

    count, kinds = mistake_counts()
    return (
        "mistakes in packers, named and undone",
        "tests/compare/test_diagnose.py",
        "an independent generator of mistakes",
        f"{count} mistakes of {kinds} kinds, and 99 % or more of {mistake_machine.COMBINED}"
        " pairs and triples",
    )
