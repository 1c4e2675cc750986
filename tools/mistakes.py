"""Print how many of the mistakes that the tests make are named by diagnose() and undone.

python tools/mistakes.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from compare import mistake_machine as machine  # noqa: E402  it is among the tests


def main() -> None:
    for what, verdicts in (
        ("single mistakes", machine.singles()),
        ("random pairs and triples", machine.several()),
    ):
        found = list(verdicts)
        exactly = sum(one.exactly for one in found)
        lossless = [one.restored for one in found if one.restored is not None]
        wrong = sum(one.wrong for one in found)
        print(f"{what}: {len(found)}, of {len({one.made for one in found})} kinds")
        print(f"  named exactly            {exactly} ({exactly / len(found):.1%})")
        print(f"  restored bit for bit     {sum(lossless)} of {len(lossless)} without a loss")
        print(f"  wrong with confidence    {wrong}")
        for one in found:
            if not one.exactly or one.restored is False:
                print(f"    {one.spec}: made {', '.join(one.made)}; named {', '.join(one.named)}")


if __name__ == "__main__":
    main()
