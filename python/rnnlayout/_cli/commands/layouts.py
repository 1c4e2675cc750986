"""rnnlayout layouts"""

from __future__ import annotations

import argparse

SUMMARY = "all known layouts, with what each can hold"
DESCRIPTION = "All known layouts: their cells with the order of gates in memory, and what else."
EXAMPLES = """\
  rnnlayout layouts
  rnnlayout layouts --json"""
_KEYS = ("cells", "gates", "resets", "recurrent_activations", "projection", "options", "sources")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same for programs")


def run(options: argparse.Namespace) -> int:
    from rnnlayout._cli.terminal import put, put_json
    from rnnlayout._model.layout import known_layouts

    known = known_layouts()
    if options.json:
        put_json("layouts", 1, {
            "layouts": [{"name": name} | {key: info[key] for key in _KEYS}
                        for name, info in known.items()]
        })  # fmt: skip
    else:
        put("\n".join(_table(known)))
    return 0


def _table(known: dict[str, dict[str, object]]) -> list[str]:
    from textwrap import wrap

    from rnnlayout._cli.terminal import columns, strong

    rows = [("layout", "lstm", "gru", "rnn", "reset", "projection")]
    for name, info in known.items():
        gates: dict[str, str] = info["gates"]  # type: ignore[assignment]
        resets: list[str] = info["resets"]  # type: ignore[assignment]
        rows.append((
            name, gates.get("lstm", "-"), gates.get("gru", "-"),
            "yes" if "rnn_tanh" in gates else "-",
            ", ".join(resets) if "gru" in gates else "-",
            "yes" if info["projection"] else "-",
        ))  # fmt: skip
    head, *lines = columns(rows)
    lines = [strong(head), *lines]
    for name, info in known.items():
        options: dict[str, dict[str, str]] = info["options"]  # type: ignore[assignment]
        for option, values in options.items():
            lines += ["", f"{name}({option}=...)"]
            for value, note in values.items():
                lines += wrap(note, 79, initial_indent=f"  {value:9} ", subsequent_indent=" " * 12)
    return lines
