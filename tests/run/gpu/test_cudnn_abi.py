"""Our declarations of cuDNN and the driver, compiled together with the vendor's headers.

A difference is a compiler error that names the line: a size, a value, a signature.
"""

import re
import subprocess
import sys

import pytest
from commands import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import get_cudnn

FOLDER = ROOT / "csrc" / "forward" / "cudnn"
ABI = (FOLDER / "abi.h").read_text()
TYPES = re.findall(r"\b(rnl_\w+);\s*/\* (\w+) \*/", ABI)
VALUES = re.findall(r"\bRNL_(\w+) = (\d+)", ABI)
SYMBOLS = re.findall(
    r"^(CUDNN|DRIVER)\((?:\d, )?([^,]+), (\w+),\s*(\([^)]*\))\)$",
    (FOLDER / "symbols.def").read_text(),
    re.MULTILINE,
)


def of_cudnn(name):
    return name.startswith("cudnn")


def checks(header):
    """Yield the lines of a C program that compares the declarations."""
    dnn = of_cudnn(header)
    yield f"#include <{header}>"
    yield '#include "forward/cudnn/abi.h"'
    types = [pair for pair in TYPES if of_cudnn(pair[1]) == dnn]
    for ours, theirs in types:
        yield f'_Static_assert(sizeof({ours}) == sizeof({theirs}), "{theirs}");'
    for name, value in VALUES:
        if name.startswith("CUDNN") == dnn:
            yield f'_Static_assert((long)({name}) == {value}, "{name}");'
            yield f'_Static_assert((long)(RNL_{name}) == {value}, "RNL_{name}");'
    # from here on our signatures use the vendor's types
    for ours, theirs in types:
        yield f"#define {ours} {theirs}"
    if dnn:
        yield "#define rnl_cu_stream cudaStream_t"
        yield "#define CUDNN(...) CHECK(__VA_ARGS__)"
    else:
        yield "#define DRIVER(...) CHECK(__VA_ARGS__)"
    yield (
        "#define CHECK(returns, name, arguments) _Static_assert(__builtin_types_compatible_p("
        "returns(*) arguments, __typeof__(&name)), #name);"
    )
    yield '#include "forward/cudnn/symbols.def"'


def compile_(lines, *folders):
    """Return the compiler's messages, "" if there are none."""
    flags = ["-std=gnu11", "-fsyntax-only", "-Werror=implicit", "-I", ROOT / "csrc"]
    flags += [flag for folder in folders for flag in ("-isystem", folder)]
    source = "\n".join([*lines, ""])
    return subprocess.run(
        ["cc", *flags, "-x", "c", "-"], input=source, text=True, capture_output=True, check=False
    ).stderr


@pytest.mark.download
@pytest.mark.parametrize("version", ["9.0", "9.28"])
def test_as_in_the_headers_of_cudnn(version):
    """The libraries have each function, too: test_cudnn_places.py."""
    folders = get_cudnn.get(version) / "include", get_cudnn.cuda_headers(13)
    assert compile_(checks("cudnn.h"), *folders) == ""


@pytest.mark.download
@pytest.mark.parametrize("cuda", [11, 13])
def test_as_in_the_header_of_the_driver(cuda):
    folder = get_cudnn.cuda_headers(cuda)
    # names are those that the library exports, not macros for newer versions of a function
    lines = ["#define __CUDA_API_VERSION_INTERNAL", *checks("cuda.h")]
    if cuda == 11:  # which lacks newer errors
        known = (folder / "cuda.h").read_text()
        lines = [x for x in lines if not (m := re.search(r"\(\(long\)\((?:RNL_)?(\w+)\)", x))
                 or re.search(rf"\b{m[1]}\b", known)]  # fmt: skip
        assert len(lines) >= len(list(checks("cuda.h"))) - 3
    assert compile_(lines, folder) == ""


@pytest.mark.download
@pytest.mark.parametrize(
    "right, wrong",
    [
        ("rnl_cudnn_math math, int32_t I", "rnl_cudnn_math math, int64_t I"),
        ("(CUDNN_LSTM) == 2", "(CUDNN_LSTM) == 3"),
        ("sizeof(rnl_cudnn_rnn)", "sizeof(char)"),
        ("cudnnAdvVersionCheck", "cudnnAdvVersionChecks"),
    ],
)
def test_a_difference_is_seen(right, wrong):
    symbols = (FOLDER / "symbols.def").read_text()
    lines = [symbols if "symbols.def" in line else line for line in checks("cudnn.h")]
    folders = get_cudnn.get("9.0") / "include", get_cudnn.cuda_headers(13)
    changed = "\n".join(lines).replace(right, wrong, 1)
    assert compile_(lines, *folders) == "" and changed != "\n".join(lines)
    assert "error" in compile_([changed], *folders)


def test_every_line_is_read():
    lines = re.findall(r"^(?:CUDNN|DRIVER)\(", (FOLDER / "symbols.def").read_text(), re.MULTILINE)
    assert len(SYMBOLS) == len(lines) > 40
    assert len({name for *_, name, _ in SYMBOLS}) == len(SYMBOLS)
    assert len(TYPES) == ABI.count("typedef ") > 20
    assert len(VALUES) == len(set(re.findall(r"\bRNL_(?:CUDNN|CU)\w*_\w+\b(?= =)", ABI))) > 40
