"""rnnlayout convert"""

from __future__ import annotations

import argparse
from typing import Any

from rnnlayout._cli.options import add_file, add_hints, hints, layout

SUMMARY = "rewrite the RNNs of a file in another layout"
DESCRIPTION = """\
Rewrite the recurrent layers of a file in another layout; the suffix of OUT says
its format. What becomes of each is said on stderr: exact, or rounds and why.
OUT appears whole or not at all."""
EXAMPLES = """\
  rnnlayout convert old.h5 new.h5 --to keras
  rnnlayout convert model.pt lstm.safetensors --to cudnn --prefix encoder.rnn
  rnnlayout convert lstm.safetensors lstm.npz --to onnx --exact
  rnnlayout convert trained.onnx new.pt --into model.pt
  rnnlayout convert lstm.npz lstm.safetensors --to torch --dry-run"""
_MOST = 10  # names of what is left out


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser, "source", metavar="IN", help="the file to read")
    add_file(parser, "target", metavar="OUT", help="the file to write")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--to",
        type=layout,
        metavar="LAYOUT",
        help="the layout to write: see rnnlayout layouts",
    )
    add_file(
        target,
        "--into",
        metavar="MODEL",
        help="write a copy of this file with the weights of IN, in its own layouts and dtypes",
    )
    parser.add_argument(
        "--entry", metavar="NAME", help="which RNN of MODEL gets the weights of the only one of IN"
    )
    parser.add_argument(
        "--dtype",
        choices=("float16", "bfloat16", "float32", "float64"),
        help="of the result, by default as it is; a narrower one rounds; with --to alone",
    )
    parser.add_argument("--exact", action="store_true", help="refuse what would round")
    parser.add_argument("--dry-run", action="store_true", help="write nothing, say the same")
    parser.add_argument("--force", action="store_true", help="replace OUT if it is there")
    add_hints(parser)


def run(options: argparse.Namespace) -> int:
    from rnnlayout._cli.progress import progress
    from rnnlayout._cli.terminal import say, shown
    from rnnlayout._files.files import convert_file
    from rnnlayout._files.into import convert_into

    asked: dict[str, Any] = hints(options) | {
        name: getattr(options, name) for name in ("exact", "force", "dry_run")
    }
    with progress("converting") as tick:
        if options.into:
            done = convert_into(
                options.source, options.target, into=options.into, entry=options.entry,
                progress=tick, **asked,
            )  # fmt: skip
        else:
            done = convert_file(
                options.source, options.target, to=options.to, dtype=options.dtype,
                progress=tick, **asked,
            )  # fmt: skip
    for name, report in done.reports.items():
        reason = f": {shown(report.reason)}" if report.reason else ""
        say(f"{shown(name)}: {report.grade}{reason}")
    for note in done.notes:
        say(f"note: {shown(note)}")
    if done.left_out:
        names = ", ".join(shown(name) for name in done.left_out[:_MOST])
        others = len(done.left_out) - _MOST
        say(f"left out: {names}" + (f" and {others} more" if others > 0 else ""))
    say(f"{shown(options.target)}: {'nothing written' if options.dry_run else 'written'}")
    return 0
