"""Read the class and the settings of an RNN of torch from a TorchScript program.

A scripted module has constants, `batch_first : Final[bool] = True`. A traced module has only the
calls of the RNN, with the settings as the last arguments.
"""

from __future__ import annotations

import re
from typing import Any

SCRIPT = "__torch__."  # the classes of TorchScript
_MANGLED = re.compile(r"___torch_mangle_\d+\.")
_RNN = re.compile(
    r"torch\.(?:nn\.modules\.rnn\.|nn\.utils\.parametrize\.Parametrized"
    r"|(?:ao\.)?nn\.quant\w+(?:\.dynamic)?\.modules\.rnn\.)((?:LSTM|GRU|RNN)(?:Cell)?)"
)
_CONSTANT = re.compile(r'^  (\w{1,20}) : Final\[\w{1,20}\] = (\w{1,20}|"\w{1,20}")$', re.MULTILINE)
# Several results are assigned, so a call ends with the line.
_CALL = re.compile(r" = torch\.(lstm|gru|rnn_tanh|rnn_relu)\(")
_FUNCTION = re.compile(r"torch\.(\w{1,40})\(")
_HOOK = re.compile(r'__forward(?:_pre)?_hooks__ = \["(\w{1,100})"')  # of a scripted module
NEUTRAL = ("squeeze", "unsqueeze", "index_select", "contiguous")  # functions that forward() calls
_NUM_SETTINGS = 6  # biases, layers, dropout, training, bidirectional, batch_first
_BOOLS = {"True": True, "False": False}


def class_in_program(name: str) -> str:
    """Return the name of a class before compilation to TorchScript."""
    return _MANGLED.sub("", name.removeprefix(SCRIPT))


def rnn_kind(class_name: str) -> str:
    """Return the class of torch's RNN or cell: LSTM, GRUCell ...; "" for another class."""
    match = _RNN.fullmatch(class_name)
    return match[1] if match else ""


def program_settings(text: str) -> dict[str, Any]:
    """Return the settings that the program of an RNN records: mode, batch_first and constants. A
    setting in which two calls differ is left out, for the program does not have one value."""
    values: dict[str, set[Any]] = {}
    for line in text.splitlines():
        if (call := _CALL.search(line)) and line.endswith(")"):
            values.setdefault("mode", set()).add(call[1].upper())
            arguments = line[call.end() : -1].rsplit(", ", _NUM_SETTINGS)[1:]
            # a call with a packed sequence has no batch_first: the first argument is not a bool
            if len(arguments) == _NUM_SETTINGS and arguments[0] in _BOOLS:
                values.setdefault("batch_first", set()).add(_BOOLS.get(arguments[-1]))
    settings = {name: value for name, (value, *others) in values.items() if not others}
    for name, value in _CONSTANT.findall(text):
        number = int(value) if value.isdigit() else value.strip('"')
        settings[name] = _BOOLS.get(value, number)
    return settings


def hook_in_program(text: str) -> str:
    """Return the forward hook in the program of an RNN, "" without: the name of the hook, or of a
    traced hook the function that the hook calls with an input or output of the RNN."""
    if hook := _HOOK.search(text):
        return hook[1]
    if _CONSTANT.search(text):  # a scripted module: the rest is the forward() of torch
        return ""
    for method in text.split("def ")[1:]:
        if call := _CALL.search(method):
            before, (arguments, *after) = method[: call.start()], method[call.end() :].split("\n")
            called = _functions_of(arguments, before) + _FUNCTION.findall("\n".join(after))
            if extra := [name for name in called if name not in NEUTRAL]:
                return f"torch.{extra[0]}"
    return ""


def _functions_of(expression: str, program: str) -> list[str]:
    """Return the functions of torch that were applied to the first operand of an expression, by
    the definitions in the program before it."""
    definitions = dict(re.findall(r"^ *(\w+) = (.*)", program, re.MULTILINE))
    functions = []
    while True:
        if function := _FUNCTION.match(expression):
            functions.append(function[1])
            expression = expression[function.end() :]
        elif (name := re.match(r"\w+", expression)) and name[0] in definitions:
            expression = definitions.pop(name[0])
        else:
            return functions
