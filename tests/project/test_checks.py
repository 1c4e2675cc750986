"""The commands of CI name files that exist, and its lists of packages agree."""

import re

import pytest
from commands import ROOT, run

FOLDERS = ("benchmarks/", "examples/", "tests/", "tools/")


@pytest.mark.parametrize("script", ["tools/check", ".ci/run"])
def test_named_files_exist(script):
    paths = [word for word in (ROOT / script).read_text().split() if word.startswith(FOLDERS)]
    assert paths
    names = run(["bash", "-c", f"printf '%s ' {' '.join(paths)}"]).split()  # with bash's braces
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_a_pinned_version_is_in_one_list():
    lists = (ROOT / "tools/release.txt", *ROOT.glob("*/requirements.txt"))
    text = "\n".join(one.read_text() for one in lists)
    pins = [name.lower().replace("_", "-") for name in re.findall(r"(?m)^([\w-]+).*==", text)]
    assert len(pins) > 30 and sorted(pins) == sorted(set(pins))
