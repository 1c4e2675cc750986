"""rnnlayout identify"""

from __future__ import annotations

import argparse

from ..options import DONE, Parser, check_rnn_file, parse_tolerance
from ..terminal import print_json, print_message, print_wrapped, printable

SUMMARY = "find the layout in which weights of unknown origin turn x into y"
DESCRIPTION = """\
Find the layout, cell and conventions of weights of unknown origin, from one
input x and its known output y, both .npy files. Every layout of the table is
tried, by names and then by shapes, then custom layouts: any order of gates and
of axes. FILE has the tensors of one RNN, or is a .npy file with all of them in
one vector. x is (T, N, I), (N, T, I), (T, I) or one step; y is the output of
all steps, of the last one, or h_n. Exit code 0: found; 1: no layout agrees."""
EXAMPLES = """\
  rnnlayout identify weights.npz --input x.npy --output y.npy
  rnnlayout identify model.pt --prefix rnn --input x.npy --output y.npy
  rnnlayout identify w.npz --input x.npy --output y.npy --save lstm.safetensors"""


def add_arguments(parser: Parser) -> None:
    parser.add_file("file", metavar="FILE", help="the file with the tensors")
    parser.add_file("--input", required=True, metavar="X.npy", help="file to read x from")
    parser.add_file("--output", required=True, metavar="Y.npy", help="file to read y from")
    from_state = "files with the initial state: h_0, and c_0 for an LSTM (default: zeros)"
    parser.add_file("--state", nargs="+", metavar="S.npy", help=from_state)
    add = parser.add_argument
    parser.add_reading("prefix", "format", "mmap")
    add(
        "--atol",
        type=parse_tolerance,
        default=0.0,
        metavar="X",
        help="absolute tolerance for y, besides rounding (default: 0)",
    )
    parser.add_file("--save", metavar="OUT", help="write the RNN to a file that records its layout")
    parser.add_force()
    parser.add_json()


def run(options: argparse.Namespace) -> int:
    from rnnlayout._compare.identify import identify
    from rnnlayout._files.write_file import save

    if options.state and len(options.state) > 2:
        options.wrong("--state takes one file, or two for an LSTM")
    if options.save:
        sources = (options.file, options.input, options.output, *(options.state or ()))
        check_rnn_file(options, options.save, *sources)
    state = options.state and (options.state if len(options.state) > 1 else options.state[0])
    identified = identify(
        options.file,
        options.input,
        options.output,
        state=state,
        prefix=options.prefix,
        atol=options.atol,
        format=options.format,
        mmap=options.mmap,
    )
    saved = options.save if identified else None
    if saved:
        save(saved, identified.candidates[0].weights)
    if options.json:
        print_json("identify", 1, {"file": options.file, **identified.to_dict(), "saved": saved})
    else:
        print_wrapped("\n".join(printable(line) for line in identified.report))
        if saved:
            print_message(f"{printable(saved)}: written")
    return DONE if identified else 1
