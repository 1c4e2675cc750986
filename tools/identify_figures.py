"""Print for how many random networks of all rows of the table identify() finds the convention.

python tools/identify_figures.py [--most N]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from compare import network_machine as machine  # noqa: E402  it is among the tests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, help="networks (default: all rows once)")
    count: Counter[str] = Counter()
    longest = 0.0
    for one in machine.cases(parser.parse_args().most):
        start = time.perf_counter()
        verdict = machine.verdict(one)
        longest = max(longest, time.perf_counter() - start)
        count[verdict] += 1
        if verdict != "first":
            print(f"{verdict}: {one.spec} in {one.layout}, {one.settings}, {one.y.shape}")
    total = count.total()
    print(f"{total} random networks of {len({str(row[0]) for row in machine.rows()})} layouts")
    print(f"  first    {count['first']} ({count['first'] / total:.1%})")
    print(f"  tied     {count['tied']}")
    print(f"  wrong    {count['wrong']}")
    print(f"  longest  {longest:.1f} s")


if __name__ == "__main__":
    main()
