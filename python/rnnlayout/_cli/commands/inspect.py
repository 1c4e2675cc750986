"""rnnlayout inspect"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from rnnlayout._cli.options import add_file, add_hints, hints, with_options

SUMMARY = "which RNNs a file has, and what they are"
DESCRIPTION = """\
Every recurrent layer in a file: its cell, sizes, biases, dtype and layout, what
else changes its outputs, and its tensors. Nothing in the file is run."""
EXAMPLES = """\
  rnnlayout inspect model.h5
  rnnlayout inspect model.onnx --json
  rnnlayout inspect state.pt --prefix encoder.rnn
  rnnlayout inspect gru.npz --reset after"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser, "file", metavar="FILE", help="the file to look at")
    parser.add_argument("--json", action="store_true", help="the same for programs")
    add_hints(parser)


def run(options: argparse.Namespace) -> int:
    from rnnlayout._cli.terminal import put, put_json
    from rnnlayout._files.files import load

    found = load(options.file, **hints(options))
    if options.json:
        put_json("inspect", 1, {
            "file": options.file,
            "entries": [_entry(name, weights) for name, weights in found.items()],
            "refused": [
                {"name": name, "error": type(why).__name__,
                 "reason": with_options(str(why))}
                for name, why in found.refused.items()
            ],
            "notes": found.notes,
            "others": list(found.others),
        })  # fmt: skip
    else:
        put("\n".join(_text(found)))
    return 0


def _entry(name: str, weights: Any) -> dict[str, Any]:
    """One RNN, as it goes into the JSON."""
    from rnnlayout import _native

    given, spec = weights._read(), weights.spec
    roles = {block[2] for block, _ in _native.blocks(given.layout, spec, given.has)}
    return {
        "name": name,
        "spec": spec.to_dict(),
        "layout": weights.layout.name,
        "layout_options": dict(weights.layout.options),
        "directions": spec.num_directions,
        "biases": [role for role in ("bW", "bR") if role in roles],
        "peepholes": "peephole" in roles,
        "activations": _activations(spec),
        "config": weights.config,
        "num_params": sum(array.size for array in given.arrays),
        "tensors": [
            {"name": tensor, "shape": list(array.shape)}
            for tensor, array in zip(given.names, given.arrays, strict=True)
        ],
    }


def _activations(spec: Any) -> dict[str, str | None]:
    """Of the gates, and of the candidate and the output."""
    if spec.cell.startswith("rnn_"):
        return {"recurrent": None, "state": spec.cell.removeprefix("rnn_")}
    return {"recurrent": spec.recurrent_activation, "state": "tanh"}


# ------------------------------------------------------------------------------------- for people


def _text(found: Any) -> list[str]:
    from rnnlayout._cli.terminal import shown, strong

    lines = []
    for name, weights in found.items():
        lines += ["", strong(shown(name)), *_facts(_entry(name, weights), str(weights.layout))]
    for name, why in found.refused.items():
        reasons = with_options(str(why)).split("\n")
        lines += ["", strong(shown(name)), f"  refused     {shown(reasons[0])}"]
        lines += [f"              {shown(reason)}" for reason in reasons[1:]]
    lines += [""] + [f"note: {shown(note)}" for note in found.notes] if found.notes else []
    lines += ["", f"tensors of no RNN: {len(found.others)}"] if found.others else []
    return lines[1:]


def _facts(entry: Mapping[str, Any], layout: str) -> list[str]:
    from rnnlayout._cli.terminal import columns, shown

    spec, activations = entry["spec"], entry["activations"]
    sizes = [f"input {spec['input_size']}", f"hidden {spec['hidden_size']}"]
    sizes += [f"projected {spec['proj_size']}"] if spec["proj_size"] else []
    sizes += [f"layers {spec['num_layers']}", f"directions {entry['directions']}"]
    biases = {0: "none", 1: "one a gate", 2: "two a gate"}[len(entry["biases"])]
    acts = [a for a in (activations["recurrent"], activations["state"]) if a]
    rows = [("cell", spec["cell"]), ("sizes", ", ".join(sizes)), ("biases", biases)]
    rows += [("reset", spec["reset"])] if spec["cell"] == "gru" else []
    rows += [("peepholes", "yes")] if entry["peepholes"] else []
    rows += [("skip input", "yes")] if spec["skip_input"] else []
    rows += [("activations", ", ".join(acts)), ("dtype", spec["dtype"]), ("layout", layout)]
    rows += [("parameters", str(entry["num_params"]))]
    rows += [("also" if k else "used with", f"{shown(key)}={shown(repr(value))}")
             for k, (key, value) in enumerate(entry["config"].items())]  # fmt: skip
    tensors = columns([(shown(t["name"]), shown(tuple(t["shape"]))) for t in entry["tensors"]])
    rows += [("tensors" if k == 0 else "", tensor) for k, tensor in enumerate(tensors)]
    return columns(rows, 2)
