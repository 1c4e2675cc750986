"""The hints of the package: the texts in its source that ask for an argument, an option or a call.

A text has parts: strings, f-strings, Ask(...) and values. With an Ask() it is always a hint.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
VERB = (
    r"\b(pass|use|call|give|omit|save|load|read|run|write|export|convert|make|build|choose|fill"
    r"|needs?)\b"
)
CODE = r"(--[a-z]|\b\w+=(?!=)|\b[\w.]+\(|\bits \.)"  # an option, an argument, a call, .numpy()
HINT = re.compile(rf"{VERB}.*{CODE}|\brl\.\w+\(|\b(pass|omit) $", re.DOTALL | re.IGNORECASE)
PAGE = ("help", "description", "epilog")  # of --help
HOLE = re.compile(r"(\w+=)?\{\}")  # what a text has for a value, or for Ask(name)
# Parts of the files and texts of those that only an RNN on a GPU, or a C program, has.
ELSEWHERE = (
    "on a GPU, but", "_run/cudnn.py", "_run/gpu.py", "csrc/forward/cudnn",
    *(f"_native/{name}" for name in ("gpu_", "device_", "foreign.c")),
    "stepper() of an RNN on {} supports no", "record() needs an RNN on the CPU",
    "csrc/model/spec_json.c",
)  # fmt: skip


class Hint(NamedTuple):
    """A text in a file, with {} for each value."""

    file: str
    text: str

    def is_in(self, message: str) -> bool:
        """Is it in a message? Its arguments may be written as options: --as-class for as_class=."""
        at = 0
        for part in _parts(self.text):
            match = part.search(message, at)
            if not match:
                return False
            at = match.end()
        return True


@functools.cache  # re itself keeps fewer patterns than there are hints
def _parts(text: str) -> list[re.Pattern[str]]:
    """Return what a message has of a text, in this order: its parts between values."""
    parts, at = [], 0
    for hole in HOLE.finditer(text):
        part = re.escape(text[at : hole.start()])
        if name := (hole[1] or "")[:-1]:
            part += f"({name}=|--{name.replace('_', '-')})"
        parts.append(part)
        at = hole.end()
    return [re.compile(part) for part in (*parts, re.escape(text[at:]))]


@functools.cache
def all_hints() -> list[Hint]:
    """Return the hints of the package, those of ELSEWHERE left out."""
    package, found = ROOT / "python/rnnlayout", []
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.c"), *ROOT.glob("csrc/**/*.c")]):
        source = path.read_text()
        texts = _texts(ast.parse(source)) if path.suffix == ".py" else _c_texts(source)
        found += [Hint(path.relative_to(ROOT).as_posix(), text) for text in dict.fromkeys(texts)]
    return [
        one for one in found if not any(part in f"{one.file}: {one.text}" for part in ELSEWHERE)
    ]


def _texts(node: ast.AST) -> Iterator[str]:
    """Yield the hints in a tree, without docstrings and the pages of --help."""
    parts = _operands(node)
    text = "".join(map(_piece, parts))
    asks, told = any(map(_is_ask, parts)), any(map(_is_text, parts))
    if (asks and text.strip("{}")) or (told and "\n" not in text and HINT.search(text)):
        yield text
    for part in parts:
        for child in ast.iter_child_nodes(part):
            docstring = isinstance(part, ast.Expr) and isinstance(child, ast.Constant)
            piece = isinstance(part, ast.JoinedStr) and isinstance(child, ast.Constant)
            page = isinstance(child, ast.keyword) and child.arg in PAGE
            if not (docstring or piece or page or _is_ask(part)):
                yield from _texts(child)


def _operands(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a text: of an error, a message or a list of them if one is an Ask."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _operands(node.left) + _operands(node.right)
    parts = node.args if isinstance(node, ast.Call) else getattr(node, "elts", ())
    return [*parts] if any(map(_is_ask, parts)) else [node]


def _piece(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_piece(one) for one in node.values)
    if _is_ask(node) and isinstance(node.args[0], ast.Constant):
        return f"{node.args[0].value}={{}}"
    return "{}"


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, (ast.JoinedStr, ast.Constant)) or _is_ask(node)


def _is_ask(node: ast.AST) -> bool:
    return _is_call(node, "Ask") and bool(node.args)


def _is_call(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _c_texts(source: str) -> Iterator[str]:
    """Yield the hints in C code: adjacent strings are one text, %s and the like are values."""
    source = re.sub(r'"\s*PRI\w+\s*"', "d", re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL))
    for strings in re.findall(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', source):
        text = "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', strings)).replace('\\"', '"')
        text = re.sub(r"%[.\d]*(?:ll|z)?[a-zA-Z]", "{}", text)
        if "\\n" not in text and HINT.search(text):  # not a docstring
            yield text
