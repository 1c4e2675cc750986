"""The record of an RNN: the facts that rnnlayout stores in a file in addition to the tensors.

A text of JSON under the name "rnnlayout" in the metadata of the file:

    {"schema": 1, "entries": {entry: {"prefix", "layout", "options", "spec", "config",
                                      "batch_first", "kind"}}}

prefix: the part of the tensors' names before the names in the layout, with the separator. layout
and options: the arguments of rl.layout(), where layout is a name or a row. spec: Spec.to_dict().
config, batch_first, kind: of the Weights; batch_first is omitted if None, kind if "weights".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rnnlayout import _native
from rnnlayout._model.config import check_config
from rnnlayout._model.errors import FileError
from rnnlayout._model.kinds import Kind, check_kind
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import Spec
from rnnlayout._model.weights import Weights
from rnnlayout._native import HAS_BIAS, HAS_PEEPHOLES, LayoutError, SpecError, __version__
from rnnlayout._sources.candidates import is_one_vector

from .file_limits import parse_json_object

if TYPE_CHECKING:  # not needed to load
    from .layerwise import LayerwiseConversion

KEY = "rnnlayout"
SCHEMA = 1


@dataclass(frozen=True)
class Record:
    """An RNN without the weights: everything else that a file stores about the RNN."""

    prefix: str
    layout: Layout
    spec: Spec
    config: dict[str, Any]
    batch_first: bool | None = None
    kind: Kind = "weights"

    @classmethod
    def of(cls, rnn: Weights | LayerwiseConversion, prefix: str = "") -> Record:
        return cls(prefix, rnn.layout, rnn.spec, rnn.config, rnn.batch_first, rnn.kind)

    def names(self, existing: Collection[str]) -> dict[str, str]:
        """Return name in the layout -> name in the file, for each tensor. existing: the names in
        the file. Returns {} if tensors are missing."""
        if self.spec.num_layers > len(existing) and not is_one_vector(self.layout):
            return {}
        for optional_tensors in (HAS_BIAS | HAS_PEEPHOLES, HAS_PEEPHOLES, HAS_BIAS, 0):
            try:
                names = [
                    name for name, _ in _native.tensors(self.layout, self.spec, optional_tensors)
                ]
            except ValueError:
                continue
            if all(self.prefix + name in existing for name in names):
                return {name: self.prefix + name for name in names}
        return {}


def write_records(records: Mapping[str, Record]) -> dict[str, str]:
    """Return the records as metadata of a file. Raises LayoutError if a config is malformed."""
    for record in records.values():
        check_config(record.config)
    entries = {
        entry: {
            "prefix": record.prefix,
            "layout": record.layout.description,
            "options": dict(record.layout.options),
            "spec": record.spec.to_dict(),
            "config": record.config,
            **({} if record.batch_first is None else {"batch_first": record.batch_first}),
            **({} if record.kind == "weights" else {"kind": record.kind}),
        }
        for entry, record in records.items()
    }
    return {KEY: rnn_as_json({"schema": SCHEMA, "entries": entries})}


def rnn_as_json(description: Mapping[str, Any], indent: int | None = None) -> str:
    """Return a description of RNNs as JSON. Raises LayoutError if a config cannot be JSON."""
    try:
        return json.dumps(description, allow_nan=False, indent=indent)
    except (TypeError, ValueError) as error:
        raise LayoutError(f"a config cannot be written as JSON: {error}") from None


def read_records(metadata: Mapping[str, str], path: Any) -> dict[str, Record]:
    """Return entry -> record; {} if the file has no records. Raises FileError if the records are
    malformed or were written by a newer release."""
    if KEY not in metadata:
        return {}
    label = f"{path}: metadata {KEY!r}"
    content = parse_json_object(metadata[KEY], label)
    schema, entries = content.get("schema"), content.get("entries")
    if type(schema) is not int or schema < 1:
        raise FileError(f"{label} has no schema version")
    if schema > SCHEMA:
        raise FileError(
            f"{label} has schema {schema}, written by a newer release of rnnlayout; this one"
            f" ({__version__}) reads up to {SCHEMA}: update rnnlayout"
        )
    if not isinstance(entries, dict):
        raise FileError(f"{label} has no entries")
    return {
        entry: parse_record(entry_json, f"{label}, entry {entry!r}")
        for entry, entry_json in entries.items()
    }


def parse_record(entry_json: Any, label: str) -> Record:
    """Return the record of an RNN. Raises FileError if malformed."""
    kinds: dict[str, Any] = {"prefix": str, "layout": str | dict}
    kinds |= dict.fromkeys(("options", "spec", "config"), dict)
    if not isinstance(entry_json, dict) or not all(
        isinstance(entry_json.get(key), kind) for key, kind in kinds.items()
    ):
        raise FileError(f"{label} needs {', '.join(kinds)}")
    try:
        check_config(entry_json["config"])
        layout = Layout(entry_json["layout"], **entry_json["options"])
        spec, batch_first = Spec.from_dict(entry_json["spec"]), entry_json.get("batch_first")
        if not isinstance(batch_first, bool | None):
            raise LayoutError(f"batch_first is {batch_first!r}, need true or false")
        check_kind(kind := entry_json.get("kind", "weights"))
        return Record(entry_json["prefix"], layout, spec, entry_json["config"], batch_first, kind)
    except (LayoutError, SpecError, TypeError) as error:  # TypeError: an option named "name"
        raise FileError(f"{label}: ", error) from None
