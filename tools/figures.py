"""Print how much diagnose() and identify() find of what the tests make up.

python tools/figures.py diagnose            mistakes in packers: how many are named and undone
python tools/figures.py identify [MOST]     random networks of all rows: for how many the convention
"""

import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from compare import mistake_machine, network_machine


def diagnose():
    for what, verdicts in (
        ("single mistakes", mistake_machine.singles()),
        ("random pairs and triples", mistake_machine.several()),
    ):
        found = list(verdicts)
        exactly = sum(one.exactly for one in found)
        lossless = [one.restored for one in found if one.restored is not None]
        print(f"{what}: {len(found)}, of {len({one.made for one in found})} kinds")
        print(f"  named exactly            {exactly} ({exactly / len(found):.1%})")
        print(f"  restored bit for bit     {sum(lossless)} of {len(lossless)} without a loss")
        print(f"  wrong with confidence    {sum(one.wrong for one in found)}")
        for one in found:
            if not one.exactly or one.restored is False:
                print(f"    {one.spec}: made {', '.join(one.made)}; named {', '.join(one.named)}")


def identify(most=None):
    count, longest = Counter(), 0.0
    for one in network_machine.cases(most and int(most)):
        start = time.perf_counter()
        verdict = network_machine.verdict(one)
        longest = max(longest, time.perf_counter() - start)
        count[verdict] += 1
        if verdict != "first":
            print(f"{verdict}: {one.spec} in {one.layout}, {one.settings}, {one.y.shape}")
    layouts = len({str(row[0]) for row in network_machine.rows()})
    print(f"{count.total()} random networks of {layouts} layouts")
    for verdict in ("first", "tied", "wrong"):
        print(f"  {verdict:8} {count[verdict]} ({count[verdict] / count.total():.1%})")
    print(f"  longest  {longest:.1f} s")


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    {"diagnose": diagnose, "identify": identify}[name](*arguments)
