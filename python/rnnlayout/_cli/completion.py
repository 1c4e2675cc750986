"""Completion of commands in shells, by shtab."""

from __future__ import annotations

import argparse
from typing import Any

from rnnlayout._model.errors import missing


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script that makes a shell complete this parser's commands."""
    try:
        import shtab
    except ImportError:
        raise missing("shtab", "completion", "the completion of shells") from None
    from rnnlayout._model.layout import known_layouts

    for action in _actions(parser):
        if action.metavar == "LAYOUT":
            action.choices = list(known_layouts())
    text: str = shtab.complete(parser, shell=shell)
    return text


def _actions(parser: argparse.ArgumentParser) -> list[Any]:
    """Return all arguments, also those of the commands."""
    actions = list(parser._actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            actions += [a for one in action.choices.values() for a in _actions(one)]
    return actions
