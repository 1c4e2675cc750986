"""The binary interface of librnnlayout.so, compared with the one that is recorded in cmake/abi.txt.

    python tools/abi.py            compare; exit code 1 if a program compiled before would break
    python tools/abi.py --write    record it: at a release, and when the soname changes

A line is a function with its types, the size of a struct or the place of one of its fields, a value
of an enum, or the soname. While the soname stays, no line may disappear or change; lines may be
added. Needs a C compiler.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = ROOT / "csrc" / "include" / "rnnlayout.h"
RECORDED = ROOT / "cmake" / "abi.txt"
DECLARED = re.compile(
    r"^(?!typedef|#|enum|struct)(\w[\w *]*?\**)(rnl_\w+)\(([^;]*)\);", re.MULTILINE
)
STRUCT = re.compile(r"typedef struct (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
ENUM = re.compile(r"\benum\b[^{;]*\{(.*?)\}", re.DOTALL)


def code():
    """Return the header without comments and directives."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    return re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)


def without_name(argument):
    """const char *name -> const char *: the name of an argument is not part of the interface."""
    return re.sub(r"(?<=[ *])\w+$", "", " ".join(argument.split())).rstrip() or argument


def functions():
    """Yield the lines of the functions."""
    for returns, name, arguments in DECLARED.findall(code()):
        types = ", ".join(without_name(one) for one in arguments.split(","))
        yield f"function {' '.join(returns.split())} {name}({types})"


def fields(body):
    """Yield the names of a struct's fields."""
    for declaration in body.split(";"):
        for one in declaration.split(","):
            if pointer := re.search(r"\(\*(\w+)\)", one):
                yield pointer[1]
            elif name := re.search(r"(\w+)(?:\[\w+\])*\s*$", one.strip()):
                yield name[1]


def numbers():
    """Return the lines of sizes, places and values, which the compiler knows."""
    expressions = {}
    for name, body in STRUCT.findall(code()):
        expressions[f"struct {name} size"] = f"sizeof({name})"
        for field in fields(re.sub(r"\([^*][^)]*\)", "", body)):
            expressions[f"struct {name} {field} at"] = f"offsetof({name}, {field})"
    for body in ENUM.findall(code()):
        for value in re.findall(r"\bRNL_\w+(?=\s*(?:[,=]|$))", body.strip()):
            expressions[f"value {value}"] = value
    lines = "".join(f'    printf("{k} %ld\\n", (long)({v}));\n' for k, v in expressions.items())
    program = f"#include <rnnlayout.h>\n#include <stdio.h>\nint main(void)\n{{\n{lines}}}\n"
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "numbers"
        command = ["cc", "-std=c11", "-I", HEADER.parent, "-x", "c", "-", "-o", made]
        subprocess.run(command, input=program, text=True, check=True)
        return subprocess.run([made], text=True, capture_output=True, check=True).stdout.split("\n")


def soname():
    major, minor, _ = re.search(r'RNL_VERSION "(\d+)\.(\d+)\.(\d+)"', HEADER.read_text()).groups()
    return f"soname librnnlayout.so.{major if major != '0' else f'{major}.{minor}'}"


def current():
    """Return the lines of the interface as it is."""
    return [soname(), *functions(), *filter(None, numbers())]


def broken(recorded, now):
    """Return the recorded lines that no longer hold; none if the soname has changed."""
    return sorted(set(recorded) - set(now)) if recorded[0] == now[0] else []


def main():
    if "--write" in sys.argv:
        RECORDED.write_text("\n".join([*current(), ""]))
        return 0
    recorded, now = RECORDED.read_text().splitlines(), current()
    if recorded[0] != now[0]:
        print(f"{RECORDED.name} is of {recorded[0]}, now {now[0]}: tools/abi.py --write")
        return 1
    for line in broken(recorded, now):
        print(f"no longer true: {line}")
    return bool(broken(recorded, now))


if __name__ == "__main__":
    sys.exit(main())
