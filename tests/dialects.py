"""How texts name the arguments that they ask for: cell='gru' in Python, --cell gru on the command
line."""

import ast
import re

from commands import ROOT

from rnnlayout._cli.options import READING

PACKAGE = ROOT / "python" / "rnnlayout"


def _asks():
    """Yield the first argument of each Ask() in the package."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(ast.Name("Ask"), [ast.Constant(name), *_]):
                    yield name


ASKED = sorted({*_asks(), *READING})  # "cell", "layout", "prefix" ...
_CALL = re.compile(r"\brl\.\w+\((?:[^()]|\([^()]*\))*\)")  # of code, which is Python
_IN_PYTHON = re.compile(rf"\b(?:{'|'.join(ASKED)})=(?!=)(?:'[^']*'|[^\s,;]*)++(?! in Python)")
_OPTION = re.compile(r"\b(?:pass|omit|use|with|or|and|by) --[a-z]")


def arguments_of_python(text):
    """Return what a text has of arguments as Python writes them, and does not call Python's."""
    return _IN_PYTHON.findall(_CALL.sub("", text))


def options_in(text):
    """Return what a text has of arguments as the command line writes them."""
    return _OPTION.findall(text)
