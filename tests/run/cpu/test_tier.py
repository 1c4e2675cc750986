"""Which kernels run: the best ones of the machine, as the kernel of Linux describes it."""

import platform
import re
import sys
from pathlib import Path

import pytest
from commands import run

TIERS = {
    "amx": {"avx512f", "avx512bw", "avx512vl", "avx512_bf16", "amx_tile", "amx_bf16"},
    "avx512bf16": {"avx512f", "avx512bw", "avx512vl", "avx512_bf16", "AuthenticAMD"},
    "avx512vnni": {"avx512f", "avx512bw", "avx512vl", "avx512_vnni"},
    "avx512": {"avx512f", "avx512bw", "avx512vl"},
    "avx2": {"avx2", "fma", "f16c"},
    "plain": set(),
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="AArch64 has one tier")
def test_the_best_tier_of_the_machine_is_chosen(monkeypatch):
    lines = re.findall(r"^(?:vendor_id|flags)\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    has = set(" ".join(lines).split())
    monkeypatch.delenv("RNNLAYOUT_CPU", raising=False)
    code = "import rnnlayout as rl; print(rl.cpu_tier())"
    chosen = run([sys.executable, "-c", code]).strip()
    assert chosen == next(tier for tier, needs in TIERS.items() if needs <= has)
