"""The C core by itself: its check programs, also under sanitizers.

All of these tests build the library, so they are long: conftest.py marks them.
"""

import platform
import re

import pytest
from commands import TESTS, run

C_TESTS = TESTS / "c"
ARM = platform.machine() in ("aarch64", "arm64")
OF_X86 = {"check_registers"}
CHECKS = sorted({path.stem for path in C_TESTS.glob("check_*.c")} - (OF_X86 if ARM else set()))


# The tiers of this kind of machine. If it lacks the one that is named, its best one is run.
X86 = ["amx", "avx512bf16", "avx512vnni", "avx512", "avx2", "plain", "amx_in_c"]
TIERS = ["neon", "plain", "amx_in_c"] if ARM else X86
OF_TIERS = set(CHECKS) & {
    "check_kernels", "check_forward", "check_hashes", "check_registers", "check_stepper"
}  # fmt: skip
ONE_TO_CONVERSIONS = ("amx", "avx512bf16", "avx512vnni", "amx_in_c")
# The best tier and the plain one try all random cases; other tiers and slow builds a sixth of them.
WHOLE = (TIERS[0], "plain")
A_SIXTH = {"CHECK_SHARE": "6"}


@pytest.mark.parametrize(
    "check, tier",
    [(check, tier) for check in sorted(OF_TIERS) for tier in TIERS
     if check != "check_kernels" or tier not in ONE_TO_CONVERSIONS],
)  # fmt: skip
def test_every_tier_equals_the_reference(c_build, check, tier):
    program = c_build("release") / "tests" / "c" / check
    env = {} if tier in WHOLE else A_SIXTH
    first, *_, last = run([program], env=env | {"RNNLAYOUT_CPU": tier}).splitlines()
    assert re.fullmatch(r"(\d+) passed, 0 failed", last), last
    best = run([program], env=A_SIXTH).splitlines()[0] if first != f"tier {tier}" else first
    assert first in (f"tier {tier}", best)


@pytest.mark.parametrize(
    "check, preset",
    [(c, "release") for c in CHECKS if c not in OF_TIERS] + [(c, "asan") for c in CHECKS],
)
def test_check_program(c_build, check, preset):
    assert passed(c_build(preset), check, A_SIXTH if preset == "asan" else None) > 1000


def passed(build, check, env=None):
    last = run([build / "tests" / "c" / check], env=env).splitlines()[-1]
    counts = re.fullmatch(r"(\d+) passed, 0 failed", last)
    assert counts, last
    return int(counts[1])


# A race ends the program with status 66.
@pytest.mark.parametrize("check", ["check_team", "check_forward", "check_gpu"])
def test_threads_do_not_race(c_build, check):
    assert passed(c_build("tsan"), check, A_SIXTH) > 1000
