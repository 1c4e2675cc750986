"""An RNN as C99: it compiles anywhere without a warning, and has the bits of the plain kernels."""

import os
import pickle
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from commands import run
from marks import long
from oracles import some

import rnnlayout as rl
from rnnlayout._model.spec import optional_tensors_of
from rnnlayout._model.weights import checked_weights
from rnnlayout._run.settings import CPU

WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-Wshadow"]
# The compiler, and what runs its programs: those that this machine has.
COMPILERS = {
    "cc": (["cc", "-O2"], []),
    "cc, not optimized": (["cc", "-O0"], []),
    "cc, vectors": (["cc", "-O3", "-fno-trapping-math"], []),
    "cc, all instructions": (["cc", "-O3", "-fno-trapping-math", "-march=native"], []),
    "clang": (["clang", "-O3", "-march=native"], []),
    "aarch64": (["aarch64-linux-gnu-gcc", "-O2", "-static"], ["qemu-aarch64"]),
    "s390x": (["s390x-linux-gnu-gcc", "-O2", "-static"], ["qemu-s390x"]),
    "arm": (["arm-linux-gnueabihf-gcc", "-O2", "-static", "-mcpu=cortex-a9"], ["qemu-arm"]),
    "x87": (["gcc", "-O2", "-mfpmath=387"], []),
}


HERE = [
    name for name, commands in COMPILERS.items()
    if all(shutil.which(command[0]) for command in commands if command)
]  # fmt: skip

# Sums of more than one block and of a part of one; every cell, curve and option.
SPECS = {
    "lstm": rl.Spec("lstm", 3, 20, 2),
    "lstm_64": rl.Spec("lstm", 5, 7, dtype="float64"),
    "projected": rl.Spec("lstm", 3, 19, 3, proj_size=5, bias="input"),
    "peepholes": rl.Spec("lstm", 3, 9, 2, peepholes=True, proj_size=4, bias="none"),
    "lstm_relu": rl.Spec("lstm", 3, 6, activation="relu", recurrent_activation="hard_sigmoid"),
    "lstm_skips": rl.Spec("lstm", 6, 6, 2, skip_input=True),
    "clipped": rl.Spec("lstm", 2, 8, dtype="bfloat16"),
    "gru": rl.Spec("gru", 3, 20, 2),
    "gru_64": rl.Spec("gru", 5, 7, 2, bias="recurrent", dtype="float64"),
    "gru_before": rl.Spec("gru", 3, 18, 2, reset="before", bias="none"),
    "gru_keras": rl.Spec("gru", 3, 5, reset="before", dtype="float64",
                         recurrent_activation="hard_sigmoid_keras2", activation="relu"),
    "gru_skips": rl.Spec("gru", 6, 6, 2, skip_input=True, dtype="float16"),
    "rnn_tanh": rl.Spec("rnn_tanh", 3, 5, 2),
    "rnn-relu.0": rl.Spec("rnn_relu", 5, 3, dtype="float64"),
}  # fmt: skip
CONFIGS = {"clipped": {"cell_clip": 0.3, "stateful": True}}
T = 60


def random_rnn(name):
    """Return an RNN and T steps: ordinary numbers, then large, subnormal and special ones."""
    spec, rng = SPECS[name], np.random.default_rng(3)
    flat = some.normal_weights(CPU, spec)
    bits = flat.view("u2") if spec.dtype == "bfloat16" else flat
    x = rng.normal(size=(T, spec.input_size)) * np.repeat([1, 20, 1e-40, 1e4], T // 4)[:, None]
    x[5] = -0.0
    weights = checked_weights(spec, CPU, optional_tensors_of(spec), ["weight_space"], [bits],
                              CONFIGS.get(name, {}))  # fmt: skip
    return weights, x.astype("f8" if spec.dtype == "float64" else "f4")


PLAIN = """
import pickle, sys
import rnnlayout as rl
from rnnlayout._native import cpu_tier
assert cpu_tier() == "plain"
given = pickle.load(sys.stdin.buffer)
found = {name: rl.RNN(w)(x[:, None])[0][:, 0] for name, (w, x) in given.items()}
pickle.dump(found, sys.stdout.buffer)
"""


@pytest.fixture(scope="module")
def plain():
    """y of each RNN, from the plain kernels, and of the curves."""
    given = {name: random_rnn(name) for name in SPECS} | CURVES
    env = os.environ | {"RNNLAYOUT_CPU": "plain"}
    done = subprocess.run([sys.executable, "-c", PLAIN], input=pickle.dumps(given), env=env,
                          capture_output=True, check=True)  # fmt: skip
    return {name: (*given[name], y) for name, y in pickle.loads(done.stdout).items()}


def curve_weights(curve, dtype):
    """Return an RNN whose y is tanh(x), or sigmoid(x) in an LSTM whose c' is 1."""
    if curve == "tanh":
        spec = rl.Spec("rnn_tanh", 1, 1, bias=False, dtype=dtype)
        return rl.Weights([np.ones((1, 1), dtype), np.zeros((1, 1), dtype)], spec, layout="keras")
    spec = rl.Spec("lstm", 1, 1, activation="relu", dtype=dtype)
    kernel, bias = np.zeros((1, 4), dtype), np.zeros(4, dtype)
    kernel[0, 3] = 1  # Keras's order: i f c o
    bias[:3] = 200, -1000, 1
    return rl.Weights([kernel, np.zeros((1, 4), dtype), bias], spec, layout="keras")


def numbers(dtype):
    """Return numbers of all magnitudes, both infinities and a NaN."""
    rng = np.random.default_rng(1)
    bits = np.frombuffer(rng.bytes(20000 * np.dtype(dtype).itemsize), dtype)
    near = rng.normal(size=20000) * 30
    special = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-310, 104.0, -745.0]
    with np.errstate(all="ignore"):  # 1e-310 in float32, and signalling NaNs
        return np.concatenate([bits, near, special]).astype(dtype)[:, None]


CURVES = {
    f"{curve}_{dtype}": (curve_weights(curve, dtype), numbers(dtype))
    for curve in ("tanh", "sigmoid") for dtype in ("float32", "float64")
}  # fmt: skip

MAIN = """
#define ID_DECLARATIONS
#include "NAME.c"
#include <stdio.h>
int main(void)
{
    static ID_state state;
    REAL x[ID_INPUTS], y[ID_OUTPUTS];
    ID_init(&state);
    while (fread(x, sizeof x, 1, stdin) == 1) {
        ID_step(&state, x, y);
        if (fwrite(y, sizeof y, 1, stdout) != 1)
            return 1;
    }
    return 0;
}
"""


def outputs(folder, name, w, compiler, x):
    """Write NAME.c, compile it with a main program, and return what that computes."""
    rl.save(folder / f"{name}.c", {name: w})
    own = name.replace("-", "_").replace(".", "_")
    main = MAIN.replace("NAME", name).replace("ID_", "\0")
    main = re.sub("\0(?=[A-Z])", f"{own.upper()}_", main).replace("\0", f"{own}_")
    real = "double" if w.spec.dtype == "float64" else "float"
    (folder / "main.c").write_text(main.replace("REAL", real))
    command, runner = COMPILERS[compiler]
    run([*command, "-std=c99", *WARNINGS, "main.c", f"{name}.c", "-o", "main"], cwd=folder)
    swapped = x.byteswap() if compiler == "s390x" else x
    done = subprocess.run([*runner, folder / "main"], input=swapped.tobytes(),
                          capture_output=True, check=True)  # fmt: skip
    y = np.frombuffer(done.stdout, x.dtype).reshape(len(x), -1)
    return y.byteswap() if compiler == "s390x" else y


def cases():
    """Yield (name, compiler). A plain run has each RNN once, and each compiler; a long run each RNN
    with a third of the compilers, and each compiler with a third of the RNNs.

    The x87 rounds a float64 twice, to 64 bits and then to 53: results are not the same.
    """
    for k, name in enumerate([*SPECS, *CURVES]):
        for n, compiler in enumerate(HERE):
            is_double = name.endswith("64") or SPECS.get(name, SPECS["lstm"]).dtype == "float64"
            if compiler != "x87" or not is_double:
                few = compiler == HERE[k % len(HERE)]
                if few or (k + n) % 3 == 0:
                    yield (name, compiler) if few else long(name, compiler)


def promised(y):
    """Return the bits; the sign and payload of a NaN are not promised."""
    return np.where(np.isnan(y), y.dtype.type(np.nan), y).tobytes()


@pytest.mark.parametrize("name, compiler", list(cases()))
def test_it_has_the_bits_of_the_plain_kernels(tmp_path, plain, name, compiler):
    w, x, y = plain[name]
    found = outputs(tmp_path, name, w, compiler, x)
    # the kernels take subnormal numbers for zero
    is_zero = np.abs(found) < np.finfo(y.dtype).tiny
    found = np.where(is_zero, np.copysign(0, found), found).astype(y.dtype)
    assert found.shape == y.shape and promised(found) == promised(y), np.abs(found - y).max()
    assert name in CURVES or (np.isfinite(y).all() and len(np.unique(y)) > T)


def random_lstm(**more):
    spec = rl.Spec("lstm", 3, 2, **more)
    return rl.Weights(some.normal_weights(rl.layout("torch"), spec), spec, layout="torch")


def test_what_is_not_one_step_after_the_other_is_refused(tmp_path):
    path, odd = tmp_path / "a.c", [random_lstm() for _ in range(5)]
    odd[0].config, odd[1].config = {"go_backwards": True}, {"proj_clip": 1.0}
    for w, value in zip(odd[2:], (np.inf, -np.inf, np.nan), strict=True):
        w["weight_hh_l0"][3, 1] = value
    two = {"a": random_lstm(), "b": random_lstm()}
    for w, says in (
        (random_lstm(bidirectional=True), "lstm is bidirectional.*write a .bin"),
        (odd[0], r"go_backwards=True.* del w.config\['go_backwards'\]"),
        (odd[1], "proj_clip=1.0, which rl.RNN does not apply"),
        *((w, "weights that are not finite") for w in odd[2:]),
        (two, r"can store one RNN, found 'a', 'b': pass one of them"),
    ):
        with pytest.raises((rl.LossyError, rl.LayoutError), match=says):
            rl.save(path, w)
        assert not path.exists()


def test_the_repair_deleted_a_clip_that_a_c_file_applies(tmp_path):
    w = random_lstm()
    w.config = {"cell_clip": 0.5, "go_backwards": True}
    with pytest.raises(rl.LossyError, match="del w") as error:
        rl.save(tmp_path / "a.c", w)
    assert "['go_backwards']" in str(error.value) and "cell_clip" not in str(error.value)


def test_every_weight_is_exact(tmp_path):
    """Also the smallest, the largest, and the sign of a zero."""
    w = random_lstm(bias=False, dtype="float64")
    bits = [0x8000000000000000, 1, 0x7FEFFFFFFFFFFFFF, 0x3FF0000000000001, 0x8010000000000000]
    w["weight_ih_l0"].reshape(-1)[:5] = np.array(bits, "u8").view("f8")
    rl.save(tmp_path / "a.c", w)
    (text,) = re.findall(r"lstm_w0\[24\] = \{(.*?)\}", (tmp_path / "a.c").read_text(), re.S)
    found = np.array([float.fromhex(one) for one in text.replace(",", " ").split()])
    assert found.tobytes() == w["weight_ih_l0"].T.tobytes()


PLUG_IN = """
#define A_DECLARATIONS
#define B_DECLARATIONS
#include "a.c"
#include "b.c"
#include <cstdio>
int main()
{
    a_state one, two;
    b_state other;
    a_init(&one), a_init(&two), b_init(&other);
    const float x[A_INPUTS] = {1, 2, 3};
    const double z[B_INPUTS] = {1, 2, 3};
    float y[A_OUTPUTS], again[A_OUTPUTS];
    double w[B_OUTPUTS];
    a_step(&one, x, y), b_step(&other, z, w), a_step(&two, x, again);
    std::printf("%d %d", y[0] == again[0] && y[1] == again[1], w[0] - y[0] < 1e-5);
}
"""


def test_several_programs_in_one_and_a_plug_in_in_cxx(tmp_path):
    """Names do not clash, states are apart, and C++ links the declarations."""
    rl.save(tmp_path / "a.c", {"a": random_lstm()})
    rl.save(tmp_path / "b.c", {"b": random_lstm(dtype="float64")})
    (tmp_path / "main.cpp").write_text(PLUG_IN)
    run(["cc", "-std=c99", *WARNINGS, "-c", "a.c", "b.c"], cwd=tmp_path)
    run(["c++", "-Wall", "-Wextra", "-Werror", "-pedantic", "main.cpp", "a.o", "b.o", "-o", "main"],
        cwd=tmp_path)  # fmt: skip
    assert run([tmp_path / "main"]) == "1 1"


def test_torch_gives_the_same(tmp_path):
    """An answer that is not ours: 200 steps of two layers. A step rounds y, of at most 1, by less
    than 100 units of 2^-24, and the forget gates, below 0.9, do not let more than ten steps add."""
    import torch

    torch.manual_seed(0)
    lstm = torch.nn.LSTM(3, 20, num_layers=2)
    x = np.random.default_rng(0).normal(size=(200, 3)).astype("f4")
    with torch.no_grad():
        y = lstm(torch.from_numpy(x))[0].numpy()
    torch.save(lstm.state_dict(), tmp_path / "model.pt")
    done = rl.convert_file(tmp_path / "model.pt", tmp_path / "lstm.c")
    assert done.reports["lstm"].grade == "exact"
    weights = rl.load(tmp_path / "model.pt")["lstm"]
    found = outputs(tmp_path, "lstm", weights, "cc", x)
    assert np.abs(found - y).max() < 10 * 100 * 2.0**-24


def test_any_name_is_a_name_in_c(tmp_path):
    """Names that contain words of the template were replaced a second time."""
    for name in ("RNN_A", "profile", "spec", "real", "int", "gate", "0/é", "rnn"):
        own = {"0/é": "rnn_0__"}.get(name, name)
        path = tmp_path / f"a {own}.c"
        rl.save(path, {name: random_lstm()})
        text = path.read_text()
        assert f"void {own}_step({own}_state *state, const float *x, float *y);" in text
        assert f"{own.upper()}_INPUTS = 3" in text and f'#include "{own}.c"' in text
    run(["cc", "-std=c99", *WARNINGS, "-c", *tmp_path.glob("*.c")], cwd=tmp_path)


def test_any_name_is_a_variable_in_a_header(tmp_path):
    """An RNN named int did not compile."""
    names = ["int", "for", "NULL", "size_t", "class", "and", "INT32_MAX", "uint8_t", "main", "lstm"]
    rl.save(tmp_path / "a.h", {name: random_lstm().to("cudnn") for name in names})
    (tmp_path / "a.c").write_text('#include "a.h"\nint main(void) { return lstm_find == 0; }\n')
    shutil.copy(tmp_path / "a.c", tmp_path / "a.cc")
    for command in (["cc", "-std=gnu17"], ["c++", "-std=gnu++20"]):
        source = "a.c" if command[0] == "cc" else "a.cc"
        run([*command, "-fsyntax-only", "-w", source], cwd=tmp_path)
    assert "RNN_INT_HIDDEN_SIZE" in (tmp_path / "a.h").read_text()


# Cortex-M4, RISC-V without floating point, and AVR, whose int has 16 bits.
BARE = [["-c"], ["--target=armv7em-none-eabi", "-mcpu=cortex-m4", "-mfloat-abi=hard"],
        ["--target=riscv32", "-march=rv32imac"], ["--target=avr", "-mmcu=atmega2560"]]  # fmt: skip


@pytest.mark.parametrize("target", BARE if shutil.which("clang") else BARE[:1], ids=" ".join)
@pytest.mark.parametrize("name", ["lstm", "gru_before"])
def test_it_needs_no_library(tmp_path, name, target):
    """Compilers call memcpy and memset by themselves, and functions for what the CPU lacks."""
    rl.save(tmp_path / "a.c", {"a": random_rnn(name)[0]})
    compiler = "clang" if target[0].startswith("--target") else "cc"
    flags = ["-Os", "-std=c99", *WARNINGS, "-ffreestanding", "-fno-stack-protector", "-c"]
    run([compiler, *target, *flags, "a.c"], cwd=tmp_path)
    if compiler == "cc":
        needed = set(re.findall(r"U (\w+)", run(["nm", "-u", tmp_path / "a.o"])))
        assert needed <= {"memcpy", "memset", "_GLOBAL_OFFSET_TABLE_"}
