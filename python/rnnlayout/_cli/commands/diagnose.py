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
    like = "the weights that were packed: a file with one RNN"
    parser.add_file("--like", required=True, metavar="FILE", help=like)
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
    diagnosis = diagnose(options.file, like=options.like, **reading_options(options))
    if options.fix:
        diagnosis.save(options.fix)
    if options.json:
        print_json(
            "diagnose",
            1,
            {
                "file": options.file,
                "like": options.like,
                "right": bool(diagnosis),
                **{name: getattr(diagnosis, name) for name in ("same", "sure", "text")},
                "mistakes": [
                    {
                        "rule": mistake.rule,
                        "text": mistake.text,
                        "where": [
                            dict(zip(("layer", "direction", "role"), name, strict=True))
                            for name in mistake.where
                        ],
                        "lost": mistake.lost,
                    }
                    for mistake in diagnosis.mistakes
                ],
                "evidence": list(diagnosis.evidence),
                "notes": list(diagnosis.notes),
                "repair": _repair(diagnosis, options),
                "fixed": options.fix,
            },
        )
    else:
        print_wrapped("\n".join(map(printable, diagnosis.report)))
        if not diagnosis:
            repair = printable(_repair(diagnosis, options))
            print_text(f"correct: {repair}")  # in one line, to paste
        if options.fix:
            alone = diagnosis.layout.name != "cudnn" and not diagnosis.into
            remark = ", with this RNN alone" * alone
            remark += ", without what cannot be restored" * bool(diagnosis.lost)
            print_message(f"{printable(options.fix)}: written{remark}")
    write_pictures(diagnosis.picture, options)
    return DONE if diagnosis else 1


def _repair(diagnosis: Diagnosis, options: argparse.Namespace) -> str:
    """Return the command that converts LIKE correctly, to a new file in the directory of FILE."""
    right = Path(options.file).with_name(f"right-{Path(options.file).name}")
    words = ["rnnlayout convert", quote(options.like), quote(str(right))]
    # a copy would have the wrong dtype of FILE
    has_right_dtype = not any(mistake.rule.startswith("dtype ") for mistake in diagnosis.mistakes)
    if diagnosis.into and diagnosis.layout.name != "cudnn" and has_right_dtype:
        words += ["--into", quote(options.file)]
    else:
        words += ["--to", quote(str(diagnosis.layout))]
    passed = {name: value for name, value in reading_options(options).items() if value}
    words += [Ask(name, value).text for name, value in passed.items() if name != "mmap"]
    return " ".join(words)
