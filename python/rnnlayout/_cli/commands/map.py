"""rnnlayout map"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from typing import Any

from ..options import (
    DONE,
    Parser,
    check_outputs,
    load_chosen,
    parse_layout,
    parse_spec,
    write_pictures,
)
from ..terminal import print_message, print_text, printable, shows_colours, terminal_width

SUMMARY = "draw the weights as they lie in memory"
DESCRIPTION = """\
Draw the tensors of the RNNs in a file, or of an RNN that is only described, as
they lie in memory: each matrix and bias in the colour of its gate, with its
layer, direction, role (W, R, P, bW, bR) and offset in bytes. With --to, the
conversion to another layout too. Without --svg and --png it is printed, in
letters.

SPEC is written as rnnlayout prints it; its layout is cudnn or that of --layout:
"lstm, input_size 8, hidden_size 16, num_layers 2, bidirectional"."""
EXAMPLES = """\
  rnnlayout map model.h5
  rnnlayout map model.pt --to cudnn --svg model.svg
  rnnlayout map "gru, input_size 8, hidden_size 16"
  rnnlayout map "lstm, input_size 8, hidden_size 16" --layout onnx --to keras"""


def add_arguments(parser: Parser) -> None:
    parser.add_file("what", metavar="FILE|SPEC", help="a file to read, or a spec in quotes")
    parser.add_argument(
        "--to", type=parse_layout, metavar="LAYOUT", help="draw the conversion to this layout"
    )
    parser.add_pictures("the picture")
    parser.add_force()
    parser.add_choice()
    parser.add_reading(owner="the file that does not record it, or of SPEC")


def run(options: argparse.Namespace) -> int:
    from rnnlayout._convert.explain import draw_rnns

    check_outputs(options, [options.svg, options.png], options.what)
    draw = partial(draw_rnns, _subjects(options), options.to)
    write_pictures(draw, options)
    if not (options.svg or options.png):
        print_text(draw().text(terminal_width(sys.stdout) or 79, colours=shows_colours(sys.stdout)))
    return DONE


def _subjects(options: argparse.Namespace) -> list[Any]:
    """Return the RNNs to draw: the described RNN, or all RNNs of the file."""
    from rnnlayout._model.layout import CUDNN
    from rnnlayout._model.picture.picture import Subject
    from rnnlayout._model.spec import CELLS

    cell = options.what.replace(",", " ").split()[:1]
    described = "," in options.what or {*cell} & {*CELLS}
    if described and not os.path.exists(options.what):
        try:
            return [Subject(parse_spec(options.what), options.layout or CUDNN)]
        except argparse.ArgumentTypeError as error:
            options.wrong(f"{options.what!r} is not a file; as a spec: {error}")
    rnns = load_chosen(options.what, options)
    if rnns.unread and not rnns:
        raise next(iter(rnns.unread.values()))
    for name, why in rnns.unread.items():
        print_message(f"{printable(name)}: not drawn: {printable(why)}")
    return [
        Subject(weights.spec, weights.layout, weights.optional_tensors, name)
        for name, weights in rnns.items()
    ]
