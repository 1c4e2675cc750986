"""The record of an RNN: what a file written by rnnlayout stores about it beside its tensors.

One text of JSON under the name "rnnlayout" in the metadata of the file:

    {"schema": 1, "entries": {entry: {"prefix", "layout", "options", "spec", "config",
                                      "batch_first"}}}

prefix: the part of the tensors' names before the layout's own names, with the separator. layout
and options: as rl.layout() takes them. spec: Spec.to_dict(). config, batch_first: of the Weights;
the latter only if it is not None.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rnnlayout import _native
from rnnlayout._model.config import check_config
from rnnlayout._model.errors import FileError
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import Spec
from rnnlayout._model.weights import Weights
from rnnlayout._native import HAS_BIAS, HAS_PEEPHOLES, LayoutError, SpecError, __version__
from rnnlayout._sources.candidates import is_one_vector

from .file_limits import parse_json_object

if TYPE_CHECKING:  # what a load does not need
    from .layerwise import LayerwiseConversion

KEY = "rnnlayout"
SCHEMA = 1


@dataclass(frozen=True)
class Record:
    """One RNN without its numbers."""

    prefix: str
    layout: Layout
    spec: Spec
    config: dict[str, Any]
    batch_first: bool | None = None

    @classmethod
    def of(cls, one: Weights | LayerwiseConversion, prefix: str = "") -> Record:
        return cls(prefix, one.layout, one.spec, one.config, one.batch_first)

    def names(self, existing: Collection[str]) -> dict[str, str]:
        """Return the layout's name of each tensor -> its name in the file. existing: the names in
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
    """Return the metadata for these records. Raises LayoutError if a config is malformed."""
    for one in records.values():
        check_config(one.config)
    entries = {
        entry: {
            "prefix": one.prefix,
            "layout": one.layout.name,
            "options": dict(one.layout.options),
            "spec": one.spec.to_dict(),
            "config": one.config,
            **({} if one.batch_first is None else {"batch_first": one.batch_first}),
        }
        for entry, one in records.items()
    }
    return {KEY: rnn_as_json({"schema": SCHEMA, "entries": entries})}


def rnn_as_json(described: Mapping[str, Any], indent: int | None = None) -> str:
    """Return the text of what describes RNNs. Raises LayoutError if a config is not JSON."""
    try:
        return json.dumps(described, allow_nan=False, indent=indent)
    except (TypeError, ValueError) as error:
        raise LayoutError(f"a config cannot be written as JSON: {error}") from None


def read_records(metadata: Mapping[str, str], path: Any) -> dict[str, Record]:
    """Return the record of each entry, {} if the file has none. Raises FileError if it is malformed
    or was written by a newer release."""
    if KEY not in metadata:
        return {}
    what = f"{path}: metadata {KEY!r}"
    found = parse_json_object(metadata[KEY], what)
    schema, entries = found.get("schema"), found.get("entries")
    if type(schema) is not int or schema < 1:
        raise FileError(f"{what} has no schema version")
    if schema > SCHEMA:
        raise FileError(
            f"{what} has schema {schema}, written by a newer release of rnnlayout; this one"
            f" ({__version__}) reads up to {SCHEMA}: update rnnlayout"
        )
    if not isinstance(entries, dict):
        raise FileError(f"{what} has no entries")
    return {entry: parse_record(one, f"{what}, entry {entry!r}") for entry, one in entries.items()}


def parse_record(found: Any, what: str) -> Record:
    """Return the record of one RNN. Raises FileError if it is malformed."""
    kinds = {"prefix": str, "layout": str, "options": dict, "spec": dict, "config": dict}
    if not isinstance(found, dict) or not all(
        isinstance(found.get(key), kind) for key, kind in kinds.items()
    ):
        raise FileError(f"{what} needs {', '.join(kinds)}")
    try:
        check_config(found["config"])
        layout = Layout(found["layout"], **found["options"])
        spec, batch_first = Spec.from_dict(found["spec"]), found.get("batch_first")
        if not isinstance(batch_first, bool | None):
            raise LayoutError(f"batch_first is {batch_first!r}, need true or false")
        return Record(found["prefix"], layout, spec, found["config"], batch_first)
    except (LayoutError, SpecError, TypeError) as error:  # TypeError: an option named "name"
        raise FileError(f"{what}: ", error) from None
