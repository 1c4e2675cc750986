"""The fake cuDNN answers as real ones do: one table of calls, fakes/contract.py, is sent to all.

tools/cudnn.txt pins the real libraries: the first and the newest 9 among them. No GPU is needed.
"""

import json
import os
import random
import subprocess
import sys

import pytest
from commands import ROOT, TESTS
from fakes import build, contract, random_calls

sys.path.insert(0, str(ROOT / "tools"))

import get_cudnn

# The questions are different each time; setting this repeats those that failed.
SEED = int(os.environ.get("RNNLAYOUT_SEED") or random.SystemRandom().randrange(2**32))
RANDOM = 300
# The library's name in this test -> the version that it reports.
REAL = {"9.0": 90000, "9.1": 90100, "9.10": 91002, "9.19": 91900, "9.28": 92800}
FAKE = [90000, 90100, 91002, 92800]


def real(version):
    try:
        return get_cudnn.get(version)
    except get_cudnn.Unavailable as why:
        pytest.fail(f"no libcudnn to ask, and PyPI did not give it: {why}", pytrace=False)


def ask(folder, questions, version=None):
    """Return the answers of the libcudnn in a folder."""
    done = subprocess.run(
        [sys.executable, TESTS / "fakes/ask.py", folder],
        input="".join(json.dumps(question) + "\n" for question in questions),
        capture_output=True, text=True, check=False,
        env=os.environ | ({"FAKE_CUDNN": str(version)} if version else {}),
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(questions), done.stderr
    return found


def answers(folder, version=None, rows=contract.ROWS):
    """Return its answers to the table, in order."""
    return ask(folder, [{"call": call, **more} for _, call, _, more in rows], version)


def wrong(found, version, differences, rows=contract.ROWS):
    """Return the rows whose answer differs from the table."""
    for (what, call, expected, _), answer in zip(rows, found, strict=True):
        assert answer["cudnn"] == version
        expected = differences.get(what, expected)
        classes = contract.answer_class(version, answer)
        if expected not in classes:
            yield f"{what}: {call} is {expected} in the table, and it said {answer}"


def test_the_table_is_one():
    names = [row[0] for row in contract.ROWS]
    assert len(names) == len(set(names)) >= 100
    listed = set().union(*contract.DIFFERENCES.values(), *contract.FAKE_DIFFERENCES.values())
    assert listed <= set(names)


@pytest.mark.download
@pytest.mark.parametrize("asked", REAL)
def test_real(asked):
    version = REAL[asked]
    found = answers(real(asked))
    assert list(wrong(found, version, contract.DIFFERENCES[version])) == []


@pytest.mark.parametrize("version", FAKE)
def test_fake(fakes, version):
    differences, rows = contract.FAKE_DIFFERENCES[version], contract.ROWS
    if version < 92800:  # of the versions between, what differs and a part of the rest
        rows = [row for k, row in enumerate(rows) if row[0] in differences or k % 7 == 0]
    found = answers(fakes.cudnn, version, rows)
    assert list(wrong(found, version, differences, rows)) == []


@pytest.mark.download
def test_fake_and_real_tell_the_same(fakes):
    """Sizes and offsets in the weight space, what descriptors hold, which outputs are written."""
    pairs = zip(contract.ROWS, answers(fakes.cudnn), answers(real("9.28")), strict=True)
    for row, *both in pairs:
        ours, theirs = ({k: v for k, v in one.items() if k != "status"} for one in both)
        assert ours == theirs, row


@pytest.mark.download
@pytest.mark.parametrize("asked", REAL)
def test_fake_and_real_agree_on_random_calls(fakes, asked):
    version, rng = REAL[asked], random.Random(SEED)
    questions = [random_calls.question(rng) for _ in range(RANDOM)]
    ours = ask(fakes.cudnn, questions, version)
    classes = set()
    for question, fake, other in zip(questions, ours, ask(real(asked), questions), strict=True):
        theirs = contract.answer_class(version, other)
        agree = theirs & contract.answer_class(version, fake)
        assert agree, (question, fake, other, f"RNNLAYOUT_SEED={SEED} repeats it")
        classes |= agree
    assert classes >= {contract.T, contract.W, contract.U}


@pytest.mark.download
@pytest.mark.parametrize("cuda", [11, 13])
def test_signatures_of_libcuda_are_the_vendors(cuda):
    assert build.check(get_cudnn.cuda_headers(cuda)) == ""


@pytest.mark.download
@pytest.mark.parametrize("asked", REAL)
def test_signatures_of_libcudnn_are_the_vendors(asked):
    headers = get_cudnn.cuda_headers(13)
    assert build.check(headers, real(asked) / "include") == ""
