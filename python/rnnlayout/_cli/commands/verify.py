"""rnnlayout verify"""

from __future__ import annotations

import argparse
from typing import Any

from ..options import (
    DONE,
    Parser,
    check_outputs,
    map_pairs,
    parse_tolerance,
    reading_options,
    write_pictures,
)
from ..terminal import print_json, print_wrapped, printable

SUMMARY = "check whether two files contain the same weights"
DESCRIPTION = """\
Check whether two files contain the same RNN weights, in any formats and
layouts. RNNs are matched by name, a stack with its layers; if each file has
exactly one, names do not matter. They are compared gate by gate, bit for bit.
Exit code 0: equal; 1: not equal. The first line then says whether both compute
the same function, and the likely cause; the differences per gate follow."""
EXAMPLES = """\
  rnnlayout verify old.h5 new.h5
  rnnlayout verify model.pt model.onnx
  rnnlayout verify model.pt model.h5 --map encoder=lstm_1 --rtol 1e-6"""


def add_arguments(parser: Parser) -> None:
    parser.add_file("a", metavar="A", help="the first file")
    parser.add_file("b", metavar="B", help="the second file")
    parser.add_json()
    number: dict[str, Any] = {"type": parse_tolerance, "default": 0.0, "metavar": "X"}
    parser.add_argument("--rtol", **number, help="relative tolerance (default: 0)")
    parser.add_argument(
        "--atol", **number, help="absolute tolerance (default: 0): |a - b| <= atol + rtol * |b|"
    )
    parser.add_pictures("a picture of where they differ")
    parser.add_force()
    parser.add_choice()
    parser.add_map("compare RNN A of the first file with RNN B of the second; may be repeated")
    parser.add_reading(owner="the file that does not record it")


def run(options: argparse.Namespace) -> int:
    from rnnlayout._compare.verify import verify

    check_outputs(options, [options.svg, options.png], options.a, options.b)
    arguments = {name: getattr(options, name) for name in ("rtol", "atol", "only", "stack")}
    verified = verify(
        options.a, options.b, map=map_pairs(options), **arguments, **reading_options(options)
    )
    if options.json:
        print_json(
            "verify",
            1,
            {
                "a": options.a,
                "b": options.b,
                "equal": verified.equal,
                "relation": verified.relation,
                "pairs": [_pair_json(pair) for pair in verified.pairs],
                "only_a": list(verified.only_a),
                "only_b": list(verified.only_b),
                "unread": [
                    {"name": name, "reason": str(why)}
                    for name, why in (verified.unread or {}).items()
                ],
            },
        )
    else:
        print_wrapped("\n".join(printable(line) for line in str(verified).split("\n")))
    write_pictures(verified.picture, options)
    return DONE if verified else 1


def _pair_json(pair: Any) -> dict[str, Any]:
    blocks = [
        dict(zip(("layer", "direction", "role", "gate"), gap.key, strict=True))
        | {"differ": gap.count, "size": gap.size, "largest": gap.largest}
        | {"at": list(gap.at), "values": list(gap.values)}
        for gap in pair.gaps
    ]
    names = {"a": pair.a, "b": pair.b, "equal": not pair, "relation": pair.relation}
    texts = {"summary": pair.summary, "text": pair.text, "note": pair.note}
    return names | texts | {"blocks": blocks}
