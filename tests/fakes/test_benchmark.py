"""The benchmark of GPUs, run on the fakes: so that it works once there is a GPU."""

import collections
import json
import re
import subprocess
import sys
import types

import jax
import jax.experimental.rnn as rnn
import numpy as np
import pytest
from commands import ROOT, run

sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu_facts
import gpu_peers
import gpu_speed
import tables

import rnnlayout as rl

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="session")
def raw(tmp_path_factory):
    """The C program that calls cuDNN directly."""
    made = tmp_path_factory.mktemp("raw") / "raw_cudnn"
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-I", ROOT / "csrc"]
    run(["cc", *flags, BENCHMARKS / "raw_cudnn.c", "-ldl", "-o", made])
    return made


def raw_run(fakes, raw, major, *cases, **more):
    folder = fakes.cudnn(major)
    env = {"LD_LIBRARY_PATH": f"{folder}:{fakes.cuda}"} | more
    return subprocess.run([raw, folder / f"libcudnn.so.{major}", *cases], env=env, text=True,
                          capture_output=True, check=False)  # fmt: skip


@pytest.mark.parametrize("major", [8, 9])
def test_the_floor_is_measured(fakes, raw, tmp_path, major):
    log = tmp_path / "log"
    cases = ["lstm,1,1,8,6,1,1,float32", "gru,3,2,5,6,2,2,float16", "rnn_relu,2,2,5,6,1,1,float64"]
    cases += ["lstm,2,3,5,6,1,1,bfloat16"] if major == 9 else []
    done = raw_run(fakes, raw, major, *cases, FAKE_LOG=str(log))
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
    raw_run(fakes, raw, 9, case, FAKE_LOG=str(log))
    calls = [line.split()[0] for line in log.read_text().splitlines()]
    for k in [*range(1, 40), calls.index("cuGraphInstantiateWithFlags") + 1]:
        if calls[k - 1].startswith(("cuCtx", "cudnnGetVersion")):
            continue
        done = raw_run(fakes, raw, 9, case, FAKE_FAIL=f"{k}:2:5000")
        assert done.returncode == 1 and calls[k - 1][:12] in done.stderr, (k, calls[k - 1], done)


WRONG = ["lstm,1,1", "lstms,1,1,1,1,1,1,float32", "gru,1,1,1,1,1,3,float32",
         "gru,1,1,1,1,1,1,int8", "gru,0,1,1,1,1,1,float32"]  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_no_case_of_the_floor(fakes, raw, case):
    done = raw_run(fakes, raw, 9, case)
    assert done.returncode == 2 and case in done.stderr


# -------------------------------------------------------------------------------------- the command


@pytest.fixture(scope="session")
def measured(fakes, tmp_path_factory):
    """What the quick form of the command writes, and prints."""
    to = tmp_path_factory.mktemp("measured") / "gpu.json"
    command = [sys.executable, BENCHMARKS / "gpu.py", "--quick", "--json", to]
    said = run(command, env=fakes.environment())
    return json.loads(to.read_text()), said


# No answer on the fakes, which end a process over these.
STRICTER = {"states_in_place", "no_dropout_descriptor", "capture_and_other_lengths"}


@pytest.mark.long
def test_every_question_is_answered_as_the_fakes_do(measured):
    facts = measured[0]["facts"]
    assert list(facts) == list(gpu_facts.FACTS)
    assert {name for name, f in facts.items() if f["as_expected"] is False} == set()
    assert {name for name, f in facts.items() if "left_out" in f["answer"]} == {"beside_torch"}
    died = {name: f["answer"]["died"] for name, f in facts.items() if "died" in f["answer"]}
    assert died == dict.fromkeys(STRICTER, 86)
    assert not [name for name, f in facts.items() if "seconds" in f["answer"]]


@pytest.mark.long
def test_results_are_compared(measured):
    parity = measured[0]["parity"]
    assert parity["failures"] == [] and parity["checked"] > 100
    assert all(0 < worst <= 1 for worst in parity["worst"].values())
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        # __cuda_array_interface__ has no name for bfloat16
        for arrays in ("host", "driver") if dtype != "bfloat16" else ("host",):
            assert f"ours, {arrays} arrays, {dtype}" in parity["worst"]
            assert f"ours, {arrays} arrays, steps, {dtype}" in parity["worst"]
        assert f"torch, cpu, {dtype}" in parity["worst"]


@pytest.mark.long
def test_times_are_taken(measured):
    found, said = measured
    assert len(found["speed"]) == 3
    for row in found["speed"]:
        assert {"ours", "ours, new results", "raw cuDNN", "raw cuDNN, graph", "torch"} <= set(
            row["us"]
        )
        assert row["us"]["raw cuDNN"]["device"] == [10, 10]
        assert row["copies"] == 0
        assert next(what for what, *_ in row["goals"]) == "over raw cuDNN"
    assert "JAX: left out, JAX has no GPU" in said
    assert re.search(r"\d+ goals met, \d+ missed", said)
    assert found["about"]["GPU"] == "Fake GPU"


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in tables.TABLES if name.startswith("gpu_")])
def test_the_page_shows_them(measured, monkeypatch, name):
    monkeypatch.setattr(tables, "GPU", {})
    assert tables.TABLES[name]() == tables.NOT_MEASURED
    monkeypatch.setattr(tables, "GPU", measured[0])
    head, line, *rows = tables.TABLES[name]().splitlines()
    rows = [row for row in rows if row.startswith("|")]
    assert len(rows) > 0
    assert {len(row.split(" | ")) for row in (head, line, *rows)} == {len(head.split(" | "))}


def test_another_answer_is_news(fakes, monkeypatch, capsys):
    for name, value in fakes.environment(9, FAKE_FAIL="30:2:5000").items():
        monkeypatch.setenv(name, value)
    found = gpu_facts.all_facts(fakes.cudnn(9), names=["no_first_state"])
    assert found["no_first_state"]["as_expected"] is False
    assert found["no_first_state"]["answer"]["died"] == 1
    assert "DIFFERS" in capsys.readouterr().out


def test_a_question_has_a_time_limit(fakes, monkeypatch):
    monkeypatch.setattr(gpu_facts, "SECONDS", 0)  # which no machine keeps
    assert gpu_facts.ask_in_a_process("streams", fakes.cudnn(9), None) == {"seconds": 0}


@pytest.mark.long
@pytest.mark.parametrize("version", ["8906", "8907"])
def test_questions_to_version_8(fakes, monkeypatch, version):
    for name, value in fakes.environment(8, FAKE_CUDNN=version).items():
        monkeypatch.setenv(name, value)
    names = ["dtypes", "lengths", "clip", "capture", "math"]
    found = gpu_facts.all_facts(fakes.cudnn(8), names=names)
    assert {name: f["as_expected"] for name, f in found.items()} == dict.fromkeys(names, True) | {
        "math": None
    }
    assert not any("died" in f["answer"] for f in found.values())


@pytest.mark.parametrize("T, N, L", [(6, 2, 2), (1, 1, 1)])
def test_jax_is_given_the_same_network(monkeypatch, T, N, L):
    """JAX's LSTM runs only on GPUs; JAX's reference takes the same arguments except the weights."""

    def on_the_cpu(x, h, c, weights, lengths, *sizes, precision):
        width, hidden, layers, _, both = sizes
        unpacked = rnn.unpack_lstm_weights(weights, width, hidden, layers, both)
        return rnn.lstm_ref(x, h, c, *unpacked, lengths, *sizes)

    monkeypatch.setattr(rnn, "lstm", on_the_cpu)
    monkeypatch.setattr(jax, "devices", lambda: [types.SimpleNamespace(platform="gpu")])
    problem = gpu_speed.problem_of(("lstm", T, N, 16, L, "float32"))
    job, y = gpu_peers.by_jax(problem, None)
    assert job(2)["device"] is None and job(2)["whole"] > 0
    ours = rl.RNN(problem.weights, problem.spec)
    step = problem.T == 1
    wanted = ours.step(problem.x[0], tuple(problem.state)) if step else ours(problem.x)
    # float32, values below 1, sums of 32 products, six steps: rounding is below 1e-5
    assert np.abs(y() - wanted[0]).max() < 1e-5


def test_without_a_gpu_it_says_what_is_missing():
    done = subprocess.run([sys.executable, BENCHMARKS / "gpu.py"], capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 5 and "GPU: cannot be used" in done.stdout
