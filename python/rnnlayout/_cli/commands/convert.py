"""rnnlayout convert"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from ..options import DONE, DTYPES, KINDS, Parser, map_pairs, parse_layout, reading_options
from ..terminal import print_json, print_message, printable, report_progress

if TYPE_CHECKING:
    from rnnlayout._files.tensor_sets.tensor_set import Converted

SUMMARY = "convert the recurrent layers to another layout"
DESCRIPTION = """\
Convert the recurrent layers of a file to another layout. The extension of OUT
chooses its format. For each RNN a line on stderr reports whether the conversion
was exact, or why it rounded. OUT is written completely or not at all."""
EXAMPLES = """\
  rnnlayout convert old.h5 new.h5 --to keras
  rnnlayout convert model.pt lstm.c
  rnnlayout convert model.pt lstm.safetensors --to cudnn --prefix encoder.rnn
  rnnlayout convert lstm.safetensors lstm.npz --to onnx --exact
  rnnlayout convert trained.onnx new.pt --into model.pt --map /LSTM=encoder
  rnnlayout convert trained.pt new.nam --into amp.nam --head lin
  rnnlayout convert model.h5 lstm.pt --to torch --stack lstm_1,lstm_2
  rnnlayout convert lstm.npz lstm.safetensors --to torch --dry-run"""
_MOST = 10  # names to list of tensors that are left out


def add_arguments(parser: Parser) -> None:
    parser.add_file("source", metavar="IN", help="the file to read")
    parser.add_file("target", metavar="OUT", help="the file to write")
    target = parser.add_mutually_exclusive_group()
    layout = (
        "layout to write: see rnnlayout layouts (default: that of OUT, if it can have only one, as"
        " .onnx, .bin and .c)"
    )
    target.add_argument("--to", type=parse_layout, metavar="LAYOUT", help=layout)
    into = "write a copy of MODEL with the weights of IN, in MODEL's layouts and dtypes"
    parser.add_file("--into", group=target, metavar="MODEL", help=into)
    parser.add_choice()
    parser.add_map("with --into: RNN A of IN replaces RNN B of MODEL; may be repeated")
    add = parser.add_argument
    head = "with --into, for a .json or .nam file: the dense layer of IN that replaces MODEL's head"
    add("--head", metavar="NAME", help=head)
    dtype = "dtype of the result (default: unchanged); a narrower one rounds; only with --to"
    add("--dtype", choices=DTYPES, help=dtype)
    kind = "of the tensors of IN (default: weights): gradients have rules of their own"
    add("--kind", choices=KINDS, default="weights", help=kind)
    add("--exact", action="store_true", help="refuse to round")
    add("--dry-run", action="store_true", help="report what would be done, without writing")
    parser.add_force()
    parser.add_json()
    parser.add_reading()


def run(options: argparse.Namespace) -> int:
    from rnnlayout._files.write_file import convert_file

    _check_usage(options)
    arguments = reading_options(options) | {
        name: getattr(options, name)
        for name in ("only", "stack", "exact", "force", "dry_run", "kind")
    }
    source, target = options.source, options.target
    if options.into:
        arguments |= {"into": options.into, "map": map_pairs(options), "head": options.head}
    else:
        arguments |= {"to": options.to, "dtype": options.dtype}
    done = convert_file(source, target, progress=report_progress, **arguments)
    if options.json:
        print_json(
            "convert",
            1,
            {
                "source": source,
                "target": target,
                "written": not options.dry_run,
                "converted": [
                    {"name": name, **asdict(report)} for name, report in done.reports.items()
                ],
                "notes": list(done.notes),
                "left_out": list(done.left_out),
            },
        )
    else:
        _print_notes(done, options)
    return DONE


def _check_usage(options: argparse.Namespace) -> None:
    """Refuse options that would not be used, and a layout that OUT cannot have."""
    from rnnlayout._files.formats.registry import format_to_write, layout_of_format, why_not_in
    from rnnlayout._model.errors import FileError
    from rnnlayout._native import LayoutError

    if options.into and options.dtype:
        options.wrong("--dtype needs --to: with --into the dtypes are those of MODEL")
    if options.to and options.map:
        options.wrong("--map needs --into: to convert some RNNs use --only NAME")
    if options.head and not options.into:
        options.wrong("--head needs --into MODEL, the file with the old head")
    try:
        format = format_to_write(options.target, copies=bool(options.into))
        if not options.to and not options.into:
            layout_of_format(format)
    except (FileError, LayoutError) as error:
        options.wrong(str(error))
    if options.to and (why := why_not_in(format, options.to)):
        options.wrong(f"{why.text}, or give OUT another suffix")


def _print_notes(done: Converted, options: argparse.Namespace) -> None:
    for name, report in done.reports.items():
        print_message(f"{printable(name)}: {printable(report)}")
    for note in done.notes:
        print_message(f"note: {printable(note)}")
    if done.left_out:
        names = ", ".join(printable(name) for name in done.left_out[:_MOST])
        unnamed = len(done.left_out) - _MOST
        print_message(f"left out: {names}" + (f" and {unnamed} more" if unnamed > 0 else ""))
    print_message(
        f"{printable(options.target)}: {'nothing written' if options.dry_run else 'written'}"
    )
