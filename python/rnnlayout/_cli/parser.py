"""The parser of all commands. Its errors are labelled as all others, and suggest what was meant."""

from __future__ import annotations

import argparse
import re
from importlib import import_module
from typing import Any, NoReturn

from rnnlayout._model.similar import did_you_mean

from .options import COMMANDS, USAGE
from .terminal import print_error

DESCRIPTION = """\
Inspect, convert, compare and run the LSTM, GRU and RNN layers in files of
PyTorch, Keras, ONNX and cuDNN."""
EPILOG = """\
examples:
  rnnlayout inspect model.h5
  rnnlayout convert old.h5 new.h5 --to keras
  rnnlayout COMMAND --help

exit codes:
  0    success; for verify: equal; for diagnose: no mistakes; for identify:
       found
  1    for verify: not equal; for diagnose: mistakes; for identify: not found
  2    wrong usage
  3    a file is malformed or unsafe, cannot be read or written, or lacks
       information
  4    the target cannot represent the weights, or --exact and they would round
  5    a requirement is missing: a Python package, cuDNN, a GPU, memory
  70   a bug in rnnlayout: please report it
  130  interrupted"""


class Parser(argparse.ArgumentParser):
    """The parser of one command, or of all. The options it returns have its error() as .wrong."""

    def __init__(self, **style: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **style)
        self.set_defaults(wrong=self.error)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown options here, where those of the command are known."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Print what is wrong with the arguments, and exit."""
        print_error(f"{message}{self._meant(message)} (see {self.prog} --help)")
        raise SystemExit(USAGE)

    def _meant(self, message: str) -> str:
        """Return what to add to a message of argparse: the choice or option that was meant."""
        if match := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            return did_you_mean(match[1], re.findall(r"[\w-]+", match[2]))
        if match := re.search(r"unrecognized arguments: .*?(--[\w-]+)", message):
            return did_you_mean(match[1], self._option_string_actions)
        return ""


def make_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(prog="rnnlayout", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("-V", "--version", action="store_true", help="print the version and exit")
    parser.add_argument(
        "--completion",
        choices=("bash", "zsh", "fish"),
        help="print a script for this shell that completes commands, and exit",
    )
    commands = parser.add_subparsers(metavar="COMMAND", dest="command")
    for name in COMMANDS:
        module = import_module(f"rnnlayout._cli.commands.{name}")
        one = commands.add_parser(
            name,
            help=module.SUMMARY,
            description=module.DESCRIPTION,
            epilog=f"examples:\n{module.EXAMPLES}",
        )
        module.add_arguments(one)
    return parser


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script that makes a shell complete the commands, by shtab."""
    from rnnlayout._model.errors import import_extra
    from rnnlayout._model.layout import known_layouts

    shtab = import_extra("shtab", "completion", "the completion of shells")
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    for command in commands.choices.values():
        for action in command._actions:
            if action.metavar == "LAYOUT":
                action.choices = list(known_layouts())
    text: str = shtab.complete(parser, shell=shell)
    return text
