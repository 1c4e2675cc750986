"""rnnlayout verify"""

from __future__ import annotations

import argparse
import math
from typing import Any

from rnnlayout._cli.options import add_file, with_options

SUMMARY = "are the RNNs of two files equal"
DESCRIPTION = """\
Are the RNNs of two files equal, in whatever formats and layouts? They are
matched by name, or if each file has one, whatever their names; and compared
gate by gate, bit for bit. Exit code 0: equal; 1: not, and how much each gate
differs."""
EXAMPLES = """\
  rnnlayout verify old.h5 new.h5
  rnnlayout verify model.pt model.onnx --rtol 1e-6"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser, "a", metavar="A", help="a file")
    add_file(parser, "b", metavar="B", help="another one")
    parser.add_argument("--json", action="store_true", help="the same for programs")
    words: dict[str, Any] = {"type": _tolerance, "default": 0.0, "metavar": "X"}
    parser.add_argument(
        "--rtol", **words, help="how far a value may be from the other, as a fraction of it"
    )
    parser.add_argument("--atol", **words, help="how far a value may be from the other")


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: need a number, 0 or greater")
    return value


def run(options: argparse.Namespace) -> int:
    from rnnlayout._cli.terminal import put, put_json, shown
    from rnnlayout._compare.verify import verify

    found = verify(options.a, options.b, rtol=options.rtol, atol=options.atol)
    if options.json:
        put_json("verify", 1, {
            "a": options.a,
            "b": options.b,
            "equal": found.equal,
            "pairs": [_pair(pair) for pair in found.pairs],
            "only_a": list(found.only_a),
            "only_b": list(found.only_b),
            "unread": [{"name": name, "reason": str(why)}
                       for name, why in (found.unread or {}).items()],
        })  # fmt: skip
    else:
        text = with_options(str(found))
        put("\n".join(shown(line) for line in text.split("\n")))
    return 0 if found else 1


def _pair(pair: Any) -> dict[str, Any]:
    return {
        "a": pair.a,
        "b": pair.b,
        "equal": not pair,
        "text": pair.text,
        "note": pair.note,
        "blocks": [
            {
                "layer": gap.key[0],
                "direction": gap.key[1],
                "role": gap.key[2],
                "gate": gap.key[3],
                "differ": gap.count,
                "size": gap.size,
                "largest": _finite(gap.largest),
                "at": list(gap.at),
                "values": [_finite(value) for value in gap.values],
            }
            for gap in pair.gaps
        ],
    }


def _finite(value: float) -> float | str:
    """JSON has no other numbers: "nan", "inf", "-inf"."""
    return value if math.isfinite(value) else str(value)
