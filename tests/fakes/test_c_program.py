"""examples/c/cudnn_inference.c, built with the vendor's headers and run on the fakes: as rl.RNN."""

import json
import subprocess
import sys

import numpy as np
import pytest
from commands import ROOT, run
from marks import download
from oracles.problem import Problem
from oracles.reference import Run, distance_between

import rnnlayout as rl

sys.path.insert(0, str(ROOT / "tools"))

import get_cudnn
from fakes.build import LIBRARIES

SOURCE = ROOT / "examples" / "c" / "cudnn_inference.c"
# On an error the program ends at once and frees nothing.
ASAN = {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1"}
SPECS = [
    rl.Spec("lstm", 5, 6),
    rl.Spec("lstm", 5, 6, 2, True, proj_size=4),
    rl.Spec("lstm", 5, 6, bias="none", dtype="float64"),
    rl.Spec("lstm", 5, 6, 2, dtype="float16"),
    rl.Spec("lstm", 5, 6, dtype="bfloat16"),
    rl.Spec("gru", 5, 6, 2, True),
    rl.Spec("gru", 5, 6, bias="input"),
    rl.Spec("rnn_tanh", 5, 6, 2, bias="recurrent"),
    rl.Spec("rnn_relu", 6, 6, 2, skip_input=True),
]


@pytest.fixture(scope="session", params=[download("9.0"), download("9.28")])
def program(request, fakes, c_build, tmp_path_factory):
    """The command: built with real headers, linked with the fakes"""
    library = c_build("release") / "librnnlayout.so"
    cudnn, cuda = get_cudnn.get(request.param), get_cudnn.cuda_headers(13)
    made = tmp_path_factory.mktemp("program") / "cudnn_inference"
    libraries = [fakes.cudnn / name for name in LIBRARIES]
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-isystem", cudnn / "include"]
    flags += ["-isystem", cuda, "-I", ROOT / "csrc" / "include", "-Wl,--no-as-needed", "-g"]
    if request.param == "9.28":  # reading a wrong file must not go unnoticed
        flags += ["-fsanitize=address,undefined", "-fno-sanitize-recover"]
    flags += [f"-Wl,-rpath,{fakes.cudnn}:{fakes.cuda}:{library.parent}"]
    run(["cc", *flags, SOURCE, *libraries, fakes.cuda / "libcuda.so.1", library, "-o", made])
    return made


def export(folder, spec, weights, x):
    """Write the files that the program reads, as the page says, and return its arguments."""
    rl.save(folder / "rnn.bin", rl.Weights(weights, spec))
    x.tofile(folder / "x.bin")
    return [folder / "rnn.bin", folder / "x.bin", x.shape[1], folder / "out"]


@pytest.fixture
def files(tmp_path):
    """The arguments for an LSTM."""
    problem = Problem(SPECS[0], np.random.default_rng(2))
    return export(tmp_path, problem.spec, problem.weights, problem.x)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_it_gives_what_the_cpu_gives(program, tmp_path, spec):
    problem = Problem(spec, np.random.default_rng(1))
    problem.hx[:], problem.cx[:] = 0, 0
    run([program, *export(tmp_path, spec, problem.weights, problem.x)], env=ASAN)
    suffixes = {"y": "y", "hy": "h_n"} | ({"cy": "c_n"} if spec.cell == "lstm" else {})
    found = {name: (tmp_path / f"out.{end}").read_bytes() for name, end in suffixes.items()}
    assert (tmp_path / "out.c_n").exists() == (spec.cell == "lstm")
    given = problem.result({"cy": b""} | found)
    assert problem.worst({"cy": b""} | found) <= 1
    if spec.dtype == "float32":
        y, last = rl.RNN(problem.weights, spec)(problem.x)
        ours = Run(y, *last) if spec.cell == "lstm" else Run(y, last)
        assert distance_between(given, ours, problem.expected()) <= 1


GOOD = SPECS[0].to_dict()
WRONG = [  # a spec, and the error
    (GOOD | {"hidden_size": 7}, "rnn.bin has 1248 bytes, but this RNN needs 1568"),
    (GOOD | {"input_size": 6}, "rnn.bin has 1248 bytes, but this RNN needs 1344"),
    (GOOD | {"config": {"go_backwards": True}}, "the RNN is used with go_backwards true"),
    (GOOD | {"config": {"clip": 3.0}}, "the RNN is used with clip 3.0"),
    (GOOD | {"config": {"cell_clip": 3.0}}, "the cell state is clipped"),
    (GOOD | {"cell": "lstms"}, "cell is 'lstms', need one of: lstm, gru"),
    (GOOD | {"cell": "gru", "reset": "before"}, "cudnn has no reset-before GRU"),
    (GOOD | {"recurrent_activation": "hard_sigmoid"}, "cudnn has no recurrent_activation"),
    (GOOD | {"schema": 2}, "schema is 2"),
    (GOOD | {"num_layers": 1.5}, "num_layers is 1.5, need a whole number"),
    (GOOD | {"crc32": "0" * 8}, "the CRC-32 of the weights is"),
    ({}, "schema is missing"),
    ("schema", "the JSON is malformed"),
]


def test_wrong_files_and_arguments_are_errors(program, files, tmp_path):
    def refused(text, at=0, value=files[0]):
        done = ran(program, [*files[:at], value, *files[at + 1 :]])
        assert done.returncode == 1 and text in done.stderr, done

    (tmp_path / "empty").touch()
    (tmp_path / "alone.bin.json").write_text(json.dumps(GOOD))
    refused("nothing.bin.json: cannot be read", 0, tmp_path / "nothing.bin")
    refused("alone.bin: cannot be read", 0, tmp_path / "alone.bin")
    refused("cannot be read", 1, tmp_path)
    refused("empty has 0 bytes, need a positive multiple of 60", 1, tmp_path / "empty")
    refused("N is 0, need a whole number, at least 1", 2, "0")
    refused("N is 3x", 2, "3x")
    refused("x.bin has 240 bytes, need a positive multiple of 140 = N * I * 4", 2, "7")
    refused("no/folder/out.y: cannot be written", 3, tmp_path / "no/folder/out")
    whole, spec = json.dumps(GOOD), tmp_path / "rnn.bin.json"
    cut = [(whole[:end], "rnn.bin.json: the JSON") for end in range(0, len(whole) - 1, 7)]
    for wrong, text in [(json.dumps(wrong), text) for wrong, text in WRONG] + cut:
        spec.write_text(wrong)
        refused(text)


def test_a_call_that_fails_is_named(program, files, tmp_path):
    log = tmp_path / "log"
    run([program, *files], env=ASAN | {"FAKE_LOG": str(log)})
    calls = [line.split()[0] for line in log.read_text().splitlines()]
    assert calls.count("cudnnRNNForward") == 1 and "cuDevicePrimaryCtxRelease_v2" in calls
    failing = 0
    for k, name in enumerate(calls, 1):
        done = ran(program, files, FAKE_FAIL=f"{k}:2:5000", FAKE_LOG=str(log))
        if done.returncode:
            failing += 1
            # the fakes count cuMemcpyHtoD as the cuMemcpyHtoDAsync that it calls
            named = name.removesuffix("_v2").removesuffix("Async")
            assert done.returncode == 1 and named in done.stderr, done.stderr
    assert failing > 30


def ran(program, files, **env):
    return subprocess.run([program, *map(str, files)], text=True, env=ASAN | env,
                          capture_output=True, check=False)  # fmt: skip
