"""The C code that calls cuDNN directly (benchmarks/raw_cudnn.c), on the fakes."""

import collections
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT, TESTS

BENCHMARKS = ROOT / "benchmarks"
CODE = f"""
import sys; sys.path.insert(0, {str(BENCHMARKS)!r}); cudnn, algo, *cases = sys.argv[1:]
import gpu_floor, rnnlayout as rl, types
for case in cases:
    cell, T, N, I, H, L, dtype = case.split(",")
    spec = rl.Spec(cell, int(I), int(H), int(L), dtype=dtype)
    raw = gpu_floor.Raw(types.SimpleNamespace(spec=spec, T=int(T), N=int(N)), cudnn, algo)
    print(raw(4)["device"])
    del raw
"""
CASES = ["lstm,1,1,8,6,1,float32", "gru,3,2,5,6,2,float16", "rnn_relu,2,2,5,6,1,float64",
         "lstm,2,3,5,6,1,bfloat16"]  # fmt: skip


@pytest.fixture(scope="session")
def raw(fakes, tmp_path_factory):
    """Run cases with an algorithm. Return what was said, and the exit code."""
    made = tmp_path_factory.mktemp("raw") / "raw.so"
    flags = [
        "-std=c11",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        "-I",
        ROOT / "csrc",
    ]
    subprocess.run(["cc", *flags, BENCHMARKS / "raw_cudnn.c", "-ldl", "-o", made], check=True)

    def run(*cases, algo="standard", **more):
        env = fakes.environment(RAW_CUDNN=str(made), **more)
        command = [sys.executable, "-c", CODE, fakes.cudnn / "libcudnn.so.9", algo, *cases]
        return subprocess.run(command, env=env, text=True, capture_output=True, check=False,
                              cwd=TESTS)  # fmt: skip

    return run


def calls_of(log):
    return [line.split()[0] for line in Path(log).read_text().splitlines()]


def test_the_floor_is_measured(raw, tmp_path):
    done = raw(*CASES, FAKE_LOG=str(tmp_path / "log"))
    assert done.returncode == 0, done.stderr
    # each call is one piece of work, which takes 10 us on the fakes' clock
    assert [round(float(line), 3) for line in done.stdout.split()] == [10] * 4
    counted = collections.Counter(calls_of(tmp_path / "log"))
    assert counted["cudnnRNNForward"] == len(CASES) * (1 + 4)
    for made, ended in [("cuMemAlloc_v2", "cuMemFree_v2"), ("cudnnCreate", "cudnnDestroy")]:
        assert counted[made] == counted[ended] > 0
    assert raw("lstm,2,3,5,6,1,float32", algo="small H").returncode == 0
    done = raw("lstm,2,3,5,6,1,float32", algo="small H", FAKE_CUDNN_NO_PERSIST="sizes")
    assert "Missing: cuDNN refused it" in done.stderr


def test_a_call_of_the_floor_that_fails_is_named(raw, tmp_path):
    raw(CASES[0], FAKE_LOG=str(tmp_path / "log"))
    calls = calls_of(tmp_path / "log")
    for k in range(1, 40, 3):
        if not calls[k - 1].startswith(("cuCtx", "cudnnGetVersion")):
            done = raw(CASES[0], FAKE_FAIL=f"{k}:2:5000")
            assert done.returncode == 1 and calls[k - 1][:12] in done.stderr, (
                k,
                calls[k - 1],
                done,
            )
