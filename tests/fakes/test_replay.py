"""Real cuDNNs take the calls that our code makes, and refuse those that it does not make because of
that. tools/cudnn.txt pins the libraries: the first and the newest 9 among them. No GPU is needed.
"""

import json
import subprocess
import sys

import pytest
from commands import ROOT, TESTS
from run.gpu.children import Children

sys.path.insert(0, str(ROOT / "tools"))

import get_cudnn

import rnnlayout as rl

# The library's name -> the version that it reports. PyTorch 2.4 to 2.6 install 9.1.0, 2.9 9.10.2.
REAL = {"9.0": 90000, "9.1": 90100, "9.10": 91002, "9.19": 91900, "9.28": 92800}
# Programs, and how many calls of cudnnRNNForward each makes at least.
PROGRAMS = {"every_kind": 75, "small_ones": 11, "longer_lengths": 12}
MODULE = "run.gpu.on_gpu_results"


def replay(asked, log):
    """Send the calls of a log to the library of this name."""
    folder = get_cudnn.get(asked)
    done = subprocess.run([sys.executable, TESTS / "fakes/replay.py", folder], input=log,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["version"] == REAL[asked]
    return answer


@pytest.mark.download
@pytest.mark.parametrize("asked", REAL)
def test_our_calls_pass(fakes, tmp_path, asked):
    children = Children([MODULE], fakes.environment())
    for program, forwards in PROGRAMS.items():
        log = tmp_path / program
        children.run(MODULE, program, FAKE_CUDNN=REAL[asked], FAKE_LOG=log)
        answer = replay(asked, log.read_text())
        assert answer["refused"] is None and answer["forwards"] >= forwards, answer
    children.close()


LSTM, FLOAT, DOUBLE, BFLOAT16, NO_BIAS, STANDARD, SMALL_H = 2, 0, 1, 9, 0, 0, 3
WRONG, UNSUPPORTED = 2000, 3000


def calls(sized="4,4,4", lengths="4,4,4", layout=0, flags=1, algo=STANDARD, dtype=FLOAT, H=6,
          bias=2, short=0):  # fmt: skip
    """Yield the lines of a call, as the fake logs them. sized: the lengths that the workspace is
    asked for; short: bytes that the weights lack."""
    precision = DOUBLE if dtype == DOUBLE else FLOAT
    name = {FLOAT: "float32", DOUBLE: "float64", BFLOAT16: "bfloat16"}[dtype]
    spec = rl.Spec("lstm", 5, H, bias="none" if bias == NO_BIAS else "double", dtype=name)
    yield "cudnnSetDropoutDescriptor desc=0x1"
    yield (f"cudnnSetRNNDescriptor_v8 desc=0x2 algo={algo} cell={LSTM} bias={bias} directions=0"
           f" input=0 type={dtype} precision={precision} math=3 I=5 H={H} P={H} L=1 dropout=0x1"
           f" flags={flags}")  # fmt: skip
    data = f"cudnnSetRNNDataDescriptor desc=0x%d type={dtype} layout={layout} T=4 N=3 width=%d"
    yield f"{data} lengths={sized} fill=1" % (3, 5)
    yield "cudnnGetRNNTempSpaceSizes rnn=0x2 mode=0 x_desc=0x3"
    for desc, width in ((3, 5), (4, H)):
        yield f"{data} lengths={lengths} fill=1" % (desc, width)
    yield (f"cudnnSetTensorNdDescriptor desc=0x5 type={dtype} shape=1,3,{H}"
           f" strides={3 * H},{H},1")  # fmt: skip
    yield ("cudnnRNNForward rnn=0x2 mode=0 lengths=(nil) x_desc=0x3 x=0x1000 y_desc=0x4 y=0x2000"
           " h_desc=0x5 hx=0x3000 hy=0x4000 c_desc=0x5 cx=0x5000 cy=0x6000"
           f" weight_nbytes={spec.nbytes - short} weights=0x7000 work=0x8000 reserve_nbytes=0"
           " reserve=(nil)")  # fmt: skip


SHORTER = {"sized": "4,2,3", "lengths": "4,2,3"}
EMPTY = {"sized": "4,0,3", "lengths": "4,0,3"}
# What our code never does, the answer, and the versions that give it; others let it pass.
REFUSED = {
    "a workspace for shorter lengths": ({"sized": "1,1,1"}, WRONG, REAL),
    "weights too short": ({"short": 1}, WRONG, REAL),
    "batch-major without padding": ({"layout": 2, "flags": 0}, WRONG, REAL),
    "lengths without padding": (SHORTER | {"flags": 0}, WRONG, REAL),
    "small H, lengths": (SHORTER | {"algo": SMALL_H}, UNSUPPORTED, REAL),
    "small H, too large": ({"algo": SMALL_H, "H": 193}, UNSUPPORTED, REAL),
    "small H, float64": ({"algo": SMALL_H, "dtype": DOUBLE}, UNSUPPORTED, REAL),
    "small H, no bias": ({"algo": SMALL_H, "bias": NO_BIAS}, UNSUPPORTED, REAL),
    "bfloat16": ({"dtype": BFLOAT16}, UNSUPPORTED, ("9.0", "9.1", "9.10")),
    "a length of 0": (EMPTY, UNSUPPORTED, ("9.1",)),
    "nothing": (SHORTER, None, ()),
    "nothing, small H": ({"algo": SMALL_H, "H": 192}, None, ()),
}


@pytest.mark.download
@pytest.mark.parametrize("asked", REAL)
def test_what_our_code_avoids(asked):
    for what, (given, status, versions) in REFUSED.items():
        answer = replay(asked, "\n".join(calls(**given)))
        said = answer["refused"] and answer["refused"][0] // 1000 * 1000
        assert said == (status if asked in versions else None), (what, answer)
