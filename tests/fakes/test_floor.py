"""The C program that calls cuDNN directly (benchmarks/raw_cudnn.c), on the fakes."""

import collections
import json
import re
import subprocess

import pytest
from commands import ROOT, run

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="session")
def raw(tmp_path_factory):
    """The C program that calls cuDNN directly."""
    made = tmp_path_factory.mktemp("raw") / "raw_cudnn"
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-I", ROOT / "csrc"]
    run(["cc", *flags, BENCHMARKS / "raw_cudnn.c", "-ldl", "-o", made])
    return made


def raw_run(fakes, raw, *cases, **more):
    folder = fakes.cudnn
    env = {"LD_LIBRARY_PATH": f"{folder}:{fakes.cuda}"} | more
    return subprocess.run([raw, folder / "libcudnn.so.9", *cases], env=env, text=True,
                          capture_output=True, check=False)  # fmt: skip


def test_the_floor_is_measured(fakes, raw, tmp_path):
    log = tmp_path / "log"
    cases = ["lstm,1,1,8,6,1,1,float32", "gru,3,2,5,6,2,2,float16", "rnn_relu,2,2,5,6,1,1,float64",
             "lstm,2,3,5,6,1,1,bfloat16"]  # fmt: skip
    done = raw_run(fakes, raw, *cases, FAKE_LOG=str(log))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["case"] for line in lines] == cases
    for line in lines:
        for kind in ("us", "graph"):
            # each call is one piece of work, which takes 10 us on the fakes' clock
            assert line[kind]["device"] == [10, 10]
            assert all(0 < least <= median for least, median in line[kind].values())
    calls = collections.Counter(text.split()[0] for text in log.read_text().splitlines())
    # once plain, 10 rounds of 20 steps or 2 calls, and two captures
    assert calls["cudnnRNNForward"] == 10 * 20 + (len(cases) - 1) * 10 * 2 + 3 * len(cases)
    assert calls["cuGraphLaunch"] == 10 * 20 + (len(cases) - 1) * 10 * 2
    for made, ended in [("cuMemAlloc_v2", "cuMemFree_v2"), ("cudnnCreate", "cudnnDestroy"),
                        ("cuGraphInstantiateWithFlags", "cuGraphExecDestroy")]:  # fmt: skip
        assert calls[made] == calls[ended] > 0


def test_a_call_of_the_floor_that_fails_is_named(fakes, raw, tmp_path):
    case, log = "lstm,1,1,8,6,1,1,float32", tmp_path / "log"
    raw_run(fakes, raw, case, FAKE_LOG=str(log))
    calls = [line.split()[0] for line in log.read_text().splitlines()]
    for k in [*range(1, 40), calls.index("cuGraphInstantiateWithFlags") + 1]:
        if calls[k - 1].startswith(("cuCtx", "cudnnGetVersion")):
            continue
        done = raw_run(fakes, raw, case, FAKE_FAIL=f"{k}:2:5000")
        assert done.returncode == 1 and calls[k - 1][:12] in done.stderr, (k, calls[k - 1], done)


def test_the_floor_of_each_algorithm(fakes, raw, tmp_path):
    log, case = tmp_path / "log", "lstm,2,3,5,6,1,1,float32"
    cases = [f"{case},{algo}" for algo in ("standard", "persist_static", "persist_small")]
    done = raw_run(fakes, raw, *cases, FAKE_LOG=str(log))
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["case"] for line in done.stdout.splitlines()] == cases
    made = re.findall(r"cudnnSetRNNDescriptor_v8 \S+ algo=(\d)", log.read_text())
    assert made == ["0", "1", "3"]
    done = raw_run(fakes, raw, "lstm,2,3,5,193,1,1,float32,persist_small")
    assert done.returncode == 1 and '"error": true' in done.stdout  # larger than it supports


WRONG = ["lstm,1,1", "lstm,1,1,1,1,1,1,float32,fast",
         "lstms,1,1,1,1,1,1,float32", "gru,1,1,1,1,1,3,float32",
         "gru,1,1,1,1,1,1,int8", "gru,0,1,1,1,1,1,float32"]  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_no_case_of_the_floor(fakes, raw, case):
    done = raw_run(fakes, raw, case)
    assert done.returncode == 2 and case in done.stderr
