"""Completion of commands in shells, by shtab."""

from __future__ import annotations

import argparse

from rnnlayout._model.errors import import_extra


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script that makes a shell complete this parser's commands."""
    shtab = import_extra("shtab", "completion", "the completion of shells")
    from rnnlayout._model.layout import known_layouts

    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    for command in commands.choices.values():
        for action in command._actions:
            if action.metavar == "LAYOUT":
                action.choices = list(known_layouts())
    text: str = shtab.complete(parser, shell=shell)
    return text
