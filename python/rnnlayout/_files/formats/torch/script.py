"""TorchScript: what the program in an archive says about the RNNs in it, read as text.

A scripted module has constants there, as `batch_first : Final[bool] = True`; a traced one has only
the call of its RNN, which has the options as its last arguments.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable
from typing import Any

from rnnlayout._files.tensor_sets.file_limits import InputFile, read_member

from .modules import PickledObject

_CONSTANT = re.compile(r'^  (\w{1,20}) : Final\[\w{1,20}\] = (\w{1,20}|"\w{1,20}")$', re.MULTILINE)
_CALL = re.compile(r"torch\.(lstm|gru|rnn_tanh|rnn_relu)\(([^()\n]*)\)")
_BOOLS = {"True": True, "False": False}


def read_programs(
    file: InputFile, archive: zipfile.ZipFile, root: str, objects: Iterable[PickledObject]
) -> None:
    """Set what the program in an archive says about the classes of objects that are RNNs."""
    members = set(archive.namelist())
    told: dict[str, dict[str, Any]] = {}
    texts: dict[str, str] = {}
    for one in objects:
        if not one.is_script or not one.rnn:
            continue
        module, _, kind = one.name.rpartition(".")
        member = f"{root}code/{module.replace('.', '/')}.py"
        if member in members and member not in texts:
            file.budget.charge("metadata", archive.getinfo(member).file_size)
            texts[member] = "\n" + read_member(archive, member).decode("utf-8", "replace")
        if one.name not in told:
            told[one.name] = _read_class(texts.get(member, ""), kind)
        one.program = told[one.name]


def _read_class(text: str, name: str) -> dict[str, Any]:
    at = text.find(f"\nclass {name}(Module):\n")
    if at < 0:
        return {}
    end = text.find("\nclass ", at + 1)
    body = text[at : end if end >= 0 else None]
    told: dict[str, Any] = {}
    for match in _CALL.finditer(body):
        told |= _read_call(match[1], match[2].split(", "))
    for key, value in _CONSTANT.findall(body):
        number = int(value) if value.isdigit() else value.strip('"')
        told[key] = _BOOLS.get(value, number)
    return told


def _read_call(function: str, arguments: list[str]) -> dict[str, Any]:
    """Return what a call says about an RNN: with a packed sequence it has no batch_first."""
    told: dict[str, Any] = {"mode": function.upper()}
    if len(arguments) >= 8 and arguments[-6] in _BOOLS and arguments[-1] in _BOOLS:
        told["batch_first"] = _BOOLS[arguments[-1]]
    return told
