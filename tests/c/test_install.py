"""The installed C library: what it exports, and programs that link it by CMake and pkg-config."""

import re

import pytest
from commands import ROOT, TESTS, run

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
