"""rnnlayout diagnose"""

from __future__ import annotations

import argparse
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from rnnlayout._model.errors import Ask

from ..options import (
    DONE,
    Parser,
    check_outputs,
    check_rnn_file,
    reading_options,
    write_pictures,
)
from ..terminal import print_json, print_message, print_text, print_wrapped, printable

if TYPE_CHECKING:
    from rnnlayout._compare.diagnose import Diagnosis

SUMMARY = "find the mistakes by which packed weights were made"
DESCRIPTION = """\
Find the mistakes in a packed buffer (cuDNN's weight space, as .npy or .bin), or
in tensors in any layout, that some code made from the weights in another file:
matrices transposed, gates or biases in another order, a negated gate, biases
summed or dropped, another dtype or byte order ... Several mistakes at once are
found. Exit code 0: no mistakes; 1: mistakes, or different weights."""
EXAMPLES = """\
  rnnlayout diagnose packed.npy --like model.pt --prefix encoder
  rnnlayout diagnose packed.bin --like model.h5 --fix right.bin"""


def add_arguments(parser: Parser) -> None:
    parser.add_file("file", metavar="FILE", help="the packed weights")
    whose = "the weights that were packed: a file with one RNN"
    parser.add_file("--like", required=True, metavar="FILE", help=whose)
    fixed = "write FILE with the mistakes undone, in any format that convert writes"
    parser.add_file("--fix", metavar="OUT", help=fixed)
    parser.add_pictures("a picture of where the buffer is wrong")
    parser.add_force()
    parser.add_json()
    parser.add_reading(owner="the file with the right weights")


def run(options: argparse.Namespace) -> int:
    from rnnlayout._compare.diagnose import diagnose

    check_outputs(options, [options.svg, options.png], options.file, options.like)
    if options.fix:
        check_rnn_file(options, options.fix, options.file, options.like)
    found = diagnose(options.file, like=options.like, **reading_options(options))
    if options.fix:
        found.save(options.fix)
    if options.json:
        print_json("diagnose", 1, {
            "file": options.file,
            "like": options.like,
            "right": bool(found),
            **{name: getattr(found, name) for name in ("same", "sure", "text")},
            "mistakes": [
                {"rule": one.rule, "text": one.text, "where": [
                    dict(zip(("layer", "direction", "role"), name, strict=True))
                    for name in one.where
                ], "lost": one.lost}
                for one in found.mistakes
            ],
            "evidence": list(found.evidence),
            "notes": list(found.notes),
            "repair": _repair(found, options),
            "fixed": options.fix,
        })  # fmt: skip
    else:
        print_wrapped("\n".join(map(printable, found.report)))
        if not found:
            print_text(f"correct: {printable(_repair(found, options))}")  # in one line, to paste it
        if options.fix:
            more = ", with this RNN alone" * (found.layout.name != "cudnn" and not found.into)
            more += ", without what cannot be restored" * bool(found.lost)
            print_message(f"{printable(options.fix)}: written{more}")
    write_pictures(found.picture, options)
    return DONE if found else 1


def _repair(found: Diagnosis, options: argparse.Namespace) -> str:
    """Return the command that converts LIKE rightly, to a new file beside FILE."""
    right = Path(options.file).with_name(f"right-{Path(options.file).name}")
    words = ["rnnlayout convert", quote(options.like), quote(str(right))]
    words += (
        ["--into", quote(options.file)]
        if found.into and found.layout.name != "cudnn"
        else ["--to", quote(str(found.layout))]
    )
    passed = {name: value for name, value in reading_options(options).items() if value}
    words += [Ask(name, value).text for name, value in passed.items() if name != "mmap"]
    return " ".join(words)
