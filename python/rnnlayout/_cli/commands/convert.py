"""rnnlayout convert"""

from __future__ import annotations

import argparse

from rnnlayout._cli.options import DONE, add_file, add_hints, hints, layout
from rnnlayout._cli.progress import progress
from rnnlayout._cli.terminal import say, shown

SUMMARY = "convert the recurrent layers to another layout"
DESCRIPTION = """\
Convert the recurrent layers of a file to another layout. The extension of OUT
chooses its format. For each RNN a line on stderr reports whether the conversion
was exact, or why it rounded. OUT is written completely or not at all."""
EXAMPLES = """\
  rnnlayout convert old.h5 new.h5 --to keras
  rnnlayout convert model.pt lstm.safetensors --to cudnn --prefix encoder.rnn
  rnnlayout convert lstm.safetensors lstm.npz --to onnx --exact
  rnnlayout convert trained.onnx new.pt --into model.pt
  rnnlayout convert lstm.npz lstm.safetensors --to torch --dry-run"""
_MOST = 10  # names to list of tensors that are left out


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser, "source", metavar="IN", help="the file to read")
    add_file(parser, "target", metavar="OUT", help="the file to write")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--to", type=layout, metavar="LAYOUT", help="layout to write: see rnnlayout layouts"
    )
    add_file(
        target,
        "--into",
        metavar="MODEL",
        help="write a copy of MODEL with the weights of IN, in MODEL's layouts and dtypes",
    )
    add = parser.add_argument
    add(
        "--entry",
        metavar="NAME",
        help="which RNN of MODEL receives the weights, if IN has exactly one",
    )
    add(
        "--dtype",
        choices=("float16", "bfloat16", "float32", "float64"),
        help="dtype of the result (default: unchanged); a narrower one rounds; only with --to",
    )
    add("--exact", action="store_true", help="refuse to round")
    add("--dry-run", action="store_true", help="report what would be done, without writing")
    add("--force", action="store_true", help="overwrite OUT if it exists")
    add_hints(parser)


def run(options: argparse.Namespace) -> int:
    from rnnlayout._files.files import convert_file
    from rnnlayout._files.into import convert_into

    asked = hints(options) | {
        name: getattr(options, name) for name in ("exact", "force", "dry_run")
    }
    source, target = options.source, options.target
    with progress("converting") as tick:
        asked["progress"] = tick
        if options.into:
            done = convert_into(source, target, into=options.into, entry=options.entry, **asked)
        else:
            done = convert_file(source, target, to=options.to, dtype=options.dtype, **asked)
    for name, report in done.reports.items():
        reason = f": {shown(report.reason)}" if report.reason else ""
        say(f"{shown(name)}: {report.grade}{reason}")
    for note in done.notes:
        say(f"note: {shown(note)}")
    if done.left_out:
        names = ", ".join(shown(name) for name in done.left_out[:_MOST])
        others = len(done.left_out) - _MOST
        say(f"left out: {names}" + (f" and {others} more" if others > 0 else ""))
    say(f"{shown(target)}: {'nothing written' if options.dry_run else 'written'}")
    return DONE
