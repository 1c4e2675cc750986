"""The commands of CI name files that exist."""

import pytest
from commands import ROOT, run

FOLDERS = ("benchmarks/", "examples/", "tests/", "tools/")


@pytest.mark.parametrize("script", ["tools/check", ".ci/run"])
def test_named_files_exist(script):
    paths = [word for word in (ROOT / script).read_text().split() if word.startswith(FOLDERS)]
    assert paths
    names = run(["bash", "-c", f"printf '%s ' {' '.join(paths)}"]).split()  # with bash's braces
    assert [name for name in names if not (ROOT / name).exists()] == []
