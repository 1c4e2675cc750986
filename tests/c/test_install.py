"""The installed C library: what it exports, and programs that link it by CMake and pkg-config."""

import re
import shutil
import subprocess
import zlib

import numpy as np
import pytest
from commands import ROOT, TESTS, run
from oracles import some

import rnnlayout as rl

pytestmark = pytest.mark.long  # builds the library, in part as C++

EXAMPLE = ROOT / "examples" / "c" / "pack_lstm.c"
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]


@pytest.fixture(scope="module")
def prefix(c_build, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prefix")
    run(["cmake", "--install", c_build("release"), "--prefix", folder])
    return folder


def exports(library):
    """Return the names of the functions that a shared library exports."""
    lines = run(["nm", "-D", "--defined-only", library]).splitlines()
    return {line.split()[2] for line in lines}


def test_it_exports_the_functions_of_the_header_alone(prefix):
    header = (prefix / "include" / "rnnlayout.h").read_text()
    declared = set(re.findall(r"^(?:\w+[ *]+)+(rnl_\w+)\(", header, re.MULTILINE))
    assert exports(prefix / "lib" / "librnnlayout.so") == declared
    assert len(declared) > 40


def test_the_extension_exports_its_init_function_and_what_threadpoolctl_looks_for():
    from rnnlayout import _native

    assert exports(_native.__file__) == {"PyInit__native", "rnl_num_threads"}


def test_the_soname_has_the_minor_version(prefix):
    major, minor, _ = rl.__version__.split(".")
    dynamic = run(["readelf", "-d", prefix / "lib" / "librnnlayout.so"])
    assert f"soname: [librnnlayout.so.{major}.{minor}]" in dynamic


def test_cmake_finds_it(prefix, tmp_path):
    build = tmp_path / "build"
    run([
        "cmake", "-S", TESTS / "c" / "consumer", "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DEXAMPLE={EXAMPLE}",
        *(f"-DCMAKE_{language}_FLAGS={' '.join(WARNINGS)}" for language in ("C", "CXX")),
    ])  # fmt: skip
    run(["cmake", "--build", build])
    programs = [f"{language}_{kind}" for language in ("c", "cpp") for kind in ("shared", "static")]
    (printed,) = {run([build / name]) for name in programs}
    assert printed.splitlines()[0] == "byte   0  layer 0  W i  0 1 2 3 4 5"
    needed = {name: run(["readelf", "-d", build / name]) for name in programs}
    assert {name for name in programs if "librnnlayout" in needed[name]} == {
        "c_shared",
        "cpp_shared",
    }


@pytest.mark.parametrize("compiler", [["cc", "-std=c11"], ["c++", "-x", "c++"]], ids=["c", "cpp"])
@pytest.mark.parametrize("linking", [[], ["--static"]], ids=["shared", "static"])
def test_pkg_config_finds_it(prefix, tmp_path, compiler, linking):
    flags = run(
        ["pkg-config", "--cflags", "--libs", *linking, "rnnlayout"],
        env={"PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")},
    ).split()
    if linking:
        flags = [flag.replace("-lrnnlayout", "-l:librnnlayout.a") for flag in flags]
    program = tmp_path / "program"
    run([*compiler, *WARNINGS, EXAMPLE, *flags, f"-Wl,-rpath,{prefix / 'lib'}", "-o", program])
    assert run([program]).startswith("byte   0  layer 0  W i  0 1 2 3 4 5\n")


@pytest.mark.parametrize("standard", ["c++17", "c++20"])
@pytest.mark.parametrize("compiler", [c for c in ("g++", "clang++") if shutil.which(c)])
def test_the_cxx_header_runs_live_signals(prefix, tmp_path, compiler, standard):
    """A step, three steps and a sequence by spans; errors; and the order in which it frees."""
    spec = rl.Spec("lstm", 3, 5, 2, proj_size=2)
    weights = rl.Weights(some.normal_weights("cudnn", spec), spec)
    weights.config = {"cell_clip": 0.5}
    rl.save(tmp_path / "lstm.bin", weights)
    saved = (tmp_path / "lstm.bin").read_bytes()
    (tmp_path / "main.cpp").write_text(CXX)
    flags = [*WARNINGS, "-Wconversion", "-Wshadow", f"-std={standard}", "-I", prefix / "include"]
    sanitizers = ["-fsanitize=address,undefined"] if compiler == "g++" else []
    library = prefix / "lib" / "librnnlayout.a"
    run([compiler, *flags, *sanitizers, "main.cpp", library, "-o", "main"], cwd=tmp_path)
    x = np.linspace(-1, 1, 12, dtype="f4").reshape(4, 1, 3)
    x.tofile(tmp_path / "x.bin")
    printed = run([tmp_path / "main"], cwd=tmp_path).splitlines()
    assert (
        printed
        == [
            f"short: the weights have 4 bytes, but this RNN needs {spec.nbytes}",
            "empty: the JSON ends after byte 0, need '{', as the spec is an object: is it cut off?",
            f'zeros: the CRC-32 of the weights is "{zlib.crc32(bytes(len(saved))):08x}", and their'
            f' JSON has "{zlib.crc32(saved):08x}": two programs wrote these files at the'
            " same time, or one of the files is an old copy: write both again",
            "double: x is float64, the weights are float32: need float32",
            "spans: rnnlayout: x and y do not have the same number of steps",
        ][: 5 if standard == "c++20" else 4]
    )
    y = rl.RNN(weights)(x)[0].tobytes()
    assert (tmp_path / "steps.bin").read_bytes() == (tmp_path / "call.bin").read_bytes() == y
    example = ROOT / "examples" / "c" / "live_signal.cpp"
    run([compiler, *flags, example, library, "-o", "live"], cwd=tmp_path)
    with open(tmp_path / "x.bin") as signal:
        live = subprocess.run(["./live", "lstm.bin"], cwd=tmp_path, stdin=signal,
                              capture_output=True, check=True)  # fmt: skip
    assert live.stdout == y


CXX = """
#include <cstdio>
#include <fstream>
#include <iostream>
#include <rnnlayout.hpp>
#include <sstream>
#include <vector>

static std::string file(const char *path)
{
    std::stringstream bytes;
    bytes << std::ifstream(path, std::ios::binary).rdbuf();
    return bytes.str();
}

template <class Call> static void refused(const char *what, Call call)
{
    try {
        call();
    } catch (const std::exception &error) {
        std::cout << what << ": " << error.what() << std::endl;
    }
}

static rnnlayout::stepper<float> make()
{
    return rnnlayout::stepper<float>(rnnlayout::rnn(file("lstm.bin.json"), file("lstm.bin")));
}

int main()
{
    const std::string json = file("lstm.bin.json"), bytes = file("x.bin");
    const rnnlayout::rnn rnn(json, file("lstm.bin"));
    refused("short", [&] { rnnlayout::rnn(json, "abcd"); });
    refused("empty", [&] { rnnlayout::rnn("", ""); });
    refused("zeros", [&] { rnnlayout::rnn(json, std::string(file("lstm.bin").size(), 0)); });
    refused("double", [&] { rnnlayout::stepper<double> stepper(rnn); });
    const float *x = reinterpret_cast<const float *>(bytes.data());
    std::vector<float> y(4 * rnn.outputs()), whole(y.size());
    rnnlayout::stepper<float> stepper = make(); // its RNN is gone
    stepper.run(x + 3, y.data());
    stepper.reset();
    stepper.run(x, y.data());
#ifdef __cpp_lib_span
    const std::span<const float> rest(x + 3, 9);
    refused("spans", [&] { stepper.run(rest, std::span(y)); });
    stepper.run(rest, std::span(y).subspan(rnn.outputs()));
#else
    stepper.run(x + 3, y.data() + rnn.outputs(), 3);
#endif
    rnn.run(x, whole.data(), 4);
    for (const auto &[path, values] : {std::pair{"steps.bin", &y}, std::pair{"call.bin", &whole}})
        std::ofstream(path, std::ios::binary)
            .write(reinterpret_cast<const char *>(values->data()),
                   static_cast<std::streamsize>(values->size() * sizeof(float)));
}
"""
