"""rnnlayout inspect"""

from __future__ import annotations

import argparse
from typing import Any

from ..options import DONE, Parser, error_text, reading_options, report_error
from ..terminal import align_columns, bold_text, print_json, print_wrapped, printable

SUMMARY = "list the recurrent layers in a file"
DESCRIPTION = """\
List every recurrent layer in files: its cell, sizes, biases, dtype and layout,
settings that change its outputs, and its tensors. Nothing in a file is
executed."""
EXAMPLES = """\
  rnnlayout inspect model.h5
  rnnlayout inspect encoder.pt decoder.onnx --json
  rnnlayout inspect model.safetensors.index.json
  rnnlayout inspect state.pt --prefix encoder.rnn
  rnnlayout inspect gru.npz --reset after"""


def add_arguments(parser: Parser) -> None:
    parser.add_file("files", nargs="+", metavar="FILE", help="a file or folder to read")
    parser.add_json()
    parser.add_reading()


def run(options: argparse.Namespace) -> int:
    files, code = [], DONE
    for path in options.files:
        contents, failed = _inspect_file(path, options)
        files.append(contents)
        code = code or failed
    if options.json:
        print_json("inspect", 2, {"files": files})
        return code
    several = len(files) > 1
    blocks = [
        _file_text(contents, f"{contents['file']}:" if several else "")
        for contents in files
        if not contents["failed"]
    ]
    if blocks:
        print_wrapped("\n\n".join(blocks))
    return code


def _inspect_file(path: str, options: argparse.Namespace) -> tuple[dict[str, Any], int]:
    """Return the contents of a file, ready for JSON, and an exit code."""
    from rnnlayout._files.files import load

    contents: dict[str, Any] = {"file": path, "failed": None}
    empty: dict[str, Any] = {
        "entries": [],
        "undecided": [],
        "refused": [],
        "notes": [],
        "others": [],
    }
    try:
        rnns = load(path, **reading_options(options))
    except Exception as error:
        code = report_error(error, path)
        return contents | empty | {"failed": _error_json(error)}, code
    return contents | {
        "entries": [_entry_json(name, weights) for name, weights in rnns.items()],
        "undecided": [
            {
                "arguments": list(why.arguments),
                "reason": why.reason,
                "repair": why.repair,
                "error": error_text(why),
                "fits": [_entry_json(name, rnn) for rnn in why.candidates],
            }
            for name, why in rnns.undecided.items()
        ],
        "refused": [{"name": name, **_error_json(why)} for name, why in rnns.refused.items()],
        "notes": list(rnns.notes),
        "others": list(rnns.others),
    }, DONE


def _error_json(error: Exception) -> dict[str, str]:
    return {"error": type(error).__name__, "reason": error_text(error)}


def _file_text(contents: dict[str, Any], head: str) -> str:
    """Return the RNNs of a file as text."""
    lines = ["", bold_text(printable(head))] if head else []
    for entry in contents["entries"]:
        lines += _entry_text([entry])
    for rnn in contents["undecided"]:
        lines += _entry_text(rnn["fits"], f"{rnn['reason']}; pass {rnn['repair']}")
    for refused in contents["refused"]:
        reasons = [printable(reason) for reason in refused["reason"].split("\n")]
        rows = [("refused" if k == 0 else "", reason) for k, reason in enumerate(reasons)]
        lines += ["", bold_text(printable(refused["name"])), *align_columns(rows, 2)]
    notes = [f"note: {printable(note)}" for note in contents["notes"]]
    lines += ["", *notes] if notes else []
    lines += ["", f"tensors of no RNN: {len(contents['others'])}"] if contents["others"] else []
    return "\n".join(lines[1:])


def _entry_json(name: str, rnn: Any) -> dict[str, Any]:
    """Return an RNN, ready for JSON."""
    from rnnlayout import _native
    from rnnlayout._run.unrecorded import assumes_axes, axes_of_x

    spec = rnn.spec
    plain = spec.cell[4:] if spec.cell.startswith("rnn_") else None  # "tanh" or "relu"
    roles = {block[2] for block, _ in _native.blocks(rnn.layout, spec, rnn.optional_tensors)}
    return {
        "name": name,
        "spec": spec.to_dict(),
        "layout": rnn.layout.name,
        "layout_options": dict(rnn.layout.options),
        "layout_row": rnn.layout.row if rnn.layout.json else None,
        "directions": spec.num_directions,
        "biases": [role for role in ("bW", "bR") if role in roles],
        "peepholes": "peephole" in roles,
        "activations": {
            "recurrent": None if plain else spec.recurrent_activation,
            "state": plain or spec.activation,
        },
        "axes": {"x": axes_of_x(rnn.batch_first), "assumed": assumes_axes(rnn)},
        "config": rnn.config,
        "kind": rnn.kind,
        "optimizer": _optimizer_json(rnn.optimizer),
        "num_params": sum(array.size for array in rnn.arrays),
        "tensors": [
            {"name": tensor, "shape": list(array.shape)} for tensor, array in rnn.bits.items()
        ],
    }


def _optimizer_json(state: Any) -> dict[str, Any] | None:
    """Return the state of an optimizer, ready for JSON."""
    if state is None:
        return None
    return {
        "path": state.path,
        "name": state.hyperparameters.get("name"),
        "slots": [*state.slots],
        "step": state.step,
        "notes": [*state.notes],
    }


def _entry_text(fits: list[dict[str, Any]], undecided: str = "") -> list[str]:
    """Return an entry as text. fits: the entry, or all candidates if undecided."""
    from rnnlayout._model.config import before_value
    from rnnlayout._model.layout import Layout
    from rnnlayout._model.spec import CELLS

    rows_by_label: dict[str, dict[str, None]] = {}  # label -> each value once, in order
    for entry in fits:
        spec, name_or_row = entry["spec"], entry["layout_row"] or entry["layout"]
        layout = Layout(name_or_row, **entry["layout_options"])
        sizes = [f"input {spec['input_size']}", f"hidden {spec['hidden_size']}"]
        sizes += [f"projected {spec['proj_size']}"] if spec["proj_size"] else []
        sizes += [f"layers {spec['num_layers']}", f"directions {entry['directions']}"]
        for label, value in {
            "cell": spec["cell"],
            "sizes": ", ".join(sizes),
            "biases": ("none", "one per gate", "two per gate")[len(entry["biases"])],
            "reset": spec["reset"] if CELLS[spec["cell"]].has_reset else "",
            "peepholes": "yes" * entry["peepholes"],
            "skip input": "yes" * spec["skip_input"],
            "activations": ", ".join(filter(None, entry["activations"].values())),
            "dtype": spec["dtype"],
            "axes": f"x is {entry['axes']['x']}, assumed" * entry["axes"]["assumed"],
            "layout": str(layout),
            "parameters": str(entry["num_params"]),
            "kind": entry["kind"].removeprefix("weights"),
            "optimizer": _optimizer_text(entry["optimizer"] or {}),
        }.items():
            if value:
                rows_by_label.setdefault(label, {})[value] = None
    entry = fits[0]
    rows = [(label, " or ".join(values)) for label, values in rows_by_label.items()]
    rows += [("undecided", printable(undecided))] if undecided else []
    rows += [
        ("also" if k else "used with", f"{printable(before_value(key))}{printable(repr(value))}")
        for k, (key, value) in enumerate(entry["config"].items())
    ]
    tensors = align_columns(
        [(printable(t["name"]), printable(tuple(t["shape"]))) for t in entry["tensors"]]
    )
    rows += [("" if k else "tensors", tensor) for k, tensor in enumerate(tensors)]
    return ["", bold_text(printable(entry["name"])), *align_columns(rows, 2)]


def _optimizer_text(state: dict[str, Any]) -> str:
    """Return "Adam: m, v; step 3"; "" without a state."""
    if not state:
        return ""
    step = "" if state["step"] is None else f"; step {state['step']}"
    return printable(f"{state['name'] or state['path']}: {', '.join(state['slots'])}{step}")
