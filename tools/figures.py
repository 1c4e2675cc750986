"""Print how much diagnose() and identify() find of what the tests make up.

python tools/figures.py diagnose            mistakes in packers: how many are named and undone
python tools/figures.py sentences [FIRST LAST]  wrong buffers by number: is each sentence true?
python tools/figures.py uses [WORD [N 2N]]  files that use one thing n times: what commands take
python tools/figures.py identify [MOST]     random networks of all rows: for how many the convention
"""

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from compare import diagnoses, mistake_machine, network_machine, repairs, wrong_packers
from compare.sentences import false_sentences
from files.hostile import growth


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


def sentences(first=0, last=1000):
    verdicts, kinds = Counter(), Counter()
    for number in range(int(first), int(last)):
        case = wrong_packers.make_case(number)
        diagnosis, fixed = diagnoses.diagnosis_of(case)
        kinds.update(mistake.name.split(" of ")[0] for mistake in case.made)
        restored = "restored" if repairs.same(fixed, case.meant) else "not restored"
        lossy = "values lost" if diagnosis.lost else "nothing lost"
        verdicts[f"{'sure' if diagnosis.sure else 'unsure'}, {lossy}, {restored}"] += 1
        false = false_sentences(case, diagnosis)
        wrong = repairs.is_wrong(case, diagnosis, fixed)
        verdicts["sure and wrong"] += wrong
        verdicts["with a false sentence"] += bool(false)
        for sentence, why in [("sure and wrong", diagnosis.text)] * wrong + false[:1]:
            print(f"{number}: {case.name}\n    {sentence}\n    {why}")
    print(f"{last} - {first} wrong buffers with mistakes of {len(kinds)} kinds")
    for verdict, count in verdicts.most_common():
        print(f"  {verdict:40} {count}")


def uses(word="", *sizes):
    print("command  exit     KB  seconds (exponent)     MB  bytes per byte (of the smaller)  file")
    with tempfile.TemporaryDirectory() as folder:
        reader = growth.new_reader(Path(folder))
        for name in growth.USES | growth.PRODUCTS:
            if word not in name:
                continue
            for row in growth.growth(reader, Path(folder), name, [*map(int, sizes)] or growth.N):
                exponent = "" if row.exponent is None else f"({row.exponent:.2f})"
                print(f"{row.command:8} {row.code:4} {row.nbytes // 1000:6} {row.seconds:8.2f}"
                      f" {exponent:10} {row.memory / 1e6:7.1f} {row.memory / row.nbytes:8.1f}"
                      f" ({row.memory_per_byte_before:.1f}) {name}", flush=True)  # fmt: skip
        reader.close()


def identify(most=None):
    count, longest = Counter(), 0.0
    print(f"of {len(network_machine.rows())} networks in half a second each:")
    for number, one in enumerate(network_machine.cases(most and int(most))):
        if number % 100 == 0:
            print(f"{number} ...", flush=True)
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
    figures = {f.__name__: f for f in (diagnose, identify, sentences, uses)}
    figures[name](*arguments)
