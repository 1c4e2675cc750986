"""Which kernels run: the best ones of the machine, as the kernel of Linux describes it."""

import platform
import re
import sys
from pathlib import Path

import pytest
from commands import run

TIERS = {
    "avx512bf16": {"avx512f", "avx512bw", "avx512vl", "avx512_bf16"},
    "avx512": {"avx512f", "avx512bw", "avx512vl"},
    "avx2": {"avx2", "fma", "f16c"},
    "plain": set(),
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="AArch64 has one tier")
def test_the_best_tier_of_the_machine_is_chosen(monkeypatch):
    flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    has = set(flags[1].split())
    monkeypatch.delenv("RNNLAYOUT_CPU", raising=False)
    code = "import rnnlayout as rl; print(rl.cpu_tier())"
    chosen = run([sys.executable, "-c", code]).strip()
    assert chosen == next(tier for tier, needs in TIERS.items() if needs <= has)
