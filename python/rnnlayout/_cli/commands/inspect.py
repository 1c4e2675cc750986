"""rnnlayout inspect"""

from __future__ import annotations

import argparse
from typing import Any

from rnnlayout._cli.options import DONE, add_file, add_hints, add_json, hints, in_options
from rnnlayout._cli.terminal import columns, put, put_json, shown, strong

SUMMARY = "list the recurrent layers in a file"
DESCRIPTION = """\
List every recurrent layer in a file: its cell, sizes, biases, dtype and layout,
settings that change its outputs, and its tensors. Nothing in the file is
executed."""
EXAMPLES = """\
  rnnlayout inspect model.h5
  rnnlayout inspect model.onnx --json
  rnnlayout inspect state.pt --prefix encoder.rnn
  rnnlayout inspect gru.npz --reset after"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser, "file", metavar="FILE", help="the file to read")
    add_json(parser)
    add_hints(parser)


def run(options: argparse.Namespace) -> int:
    from rnnlayout._files.files import load

    found = load(options.file, **hints(options))
    entries = [_entry(name, weights) for name, weights in found.items()]
    refused = [
        {"name": name, "error": type(why).__name__, "reason": in_options(str(why), options)}
        for name, why in found.refused.items()
    ]
    if options.json:
        put_json("inspect", 1, {
            "file": options.file,
            "entries": entries,
            "refused": refused,
            "notes": found.notes,
            "others": list(found.others),
        })  # fmt: skip
    else:
        layouts = [str(weights.layout) for weights in found.values()]
        lines = [line for pair in zip(entries, layouts, strict=True) for line in _facts(*pair)]
        for one in refused:
            reasons = [shown(reason) for reason in one["reason"].split("\n")]
            rows = [("refused" if k == 0 else "", reason) for k, reason in enumerate(reasons)]
            lines += ["", strong(shown(one["name"])), *columns(rows, 2)]
        lines += [""] + [f"note: {shown(note)}" for note in found.notes] if found.notes else []
        lines += ["", f"tensors of no RNN: {len(found.others)}"] if found.others else []
        put("\n".join(lines[1:]))
    return DONE


def _entry(name: str, weights: Any) -> dict[str, Any]:
    """Return one RNN, as it goes into the JSON."""
    from rnnlayout import _native
    from rnnlayout._model.given import given_of

    given, spec = given_of(weights), weights.spec
    plain = spec.cell[4:] if spec.cell.startswith("rnn_") else None  # "tanh" or "relu"
    roles = {block[2] for block, _ in _native.blocks(given.layout, spec, given.has)}
    return {
        "name": name,
        "spec": spec.to_dict(),
        "layout": weights.layout.name,
        "layout_options": dict(weights.layout.options),
        "directions": spec.num_directions,
        "biases": [role for role in ("bW", "bR") if role in roles],
        "peepholes": "peephole" in roles,
        "activations": {
            "recurrent": None if plain else spec.recurrent_activation,
            "state": plain or "tanh",
        },
        "config": weights.config,
        "num_params": sum(array.size for array in given.arrays),
        "tensors": [
            {"name": tensor, "shape": list(array.shape)}
            for tensor, array in zip(given.names, given.arrays, strict=True)
        ],
    }


def _facts(entry: dict[str, Any], layout: str) -> list[str]:
    """Return an entry as text."""
    spec = entry["spec"]
    sizes = [f"input {spec['input_size']}", f"hidden {spec['hidden_size']}"]
    sizes += [f"projected {spec['proj_size']}"] if spec["proj_size"] else []
    sizes += [f"layers {spec['num_layers']}", f"directions {entry['directions']}"]
    biases = ("none", "one per gate", "two per gate")[len(entry["biases"])]
    acts = ", ".join(filter(None, entry["activations"].values()))
    rows = [("cell", spec["cell"]), ("sizes", ", ".join(sizes)), ("biases", biases)]
    rows += [("reset", spec["reset"])] if spec["cell"] == "gru" else []
    rows += [("peepholes", "yes")] if entry["peepholes"] else []
    rows += [("skip input", "yes")] if spec["skip_input"] else []
    rows += [("activations", acts), ("dtype", spec["dtype"]), ("layout", layout)]
    rows += [("parameters", str(entry["num_params"]))]
    rows += [("also" if k else "used with", f"{shown(key)}={shown(repr(value))}")
             for k, (key, value) in enumerate(entry["config"].items())]  # fmt: skip
    tensors = columns([(shown(t["name"]), shown(tuple(t["shape"]))) for t in entry["tensors"]])
    rows += [("" if k else "tensors", tensor) for k, tensor in enumerate(tensors)]
    return ["", strong(shown(entry["name"])), *columns(rows, 2)]
