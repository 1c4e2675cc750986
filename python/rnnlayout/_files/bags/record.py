"""What a file of ours says of the RNNs in it, beside their tensors.

One text, under the name "rnnlayout" in the metadata of the file: JSON,

    {"schema": 1, "entries": {entry: {"prefix", "layout", "options", "spec", "config"}}}

prefix: what stands before the names of the layout's tensors, its separator included. layout and
options: as rl.layout() takes them. spec: Spec.to_dict(). config: Weights.config.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from rnnlayout import _native
from rnnlayout._model.errors import FileError
from rnnlayout._model.layout import Layout
from rnnlayout._model.spec import Spec
from rnnlayout._native import HAS_BIAS, HAS_PEEPHOLES, LayoutError, SpecError, __version__

from .json_text import json_object

KEY = "rnnlayout"
SCHEMA = 1


@dataclass(frozen=True)
class Record:
    """One RNN, apart from its numbers."""

    prefix: str
    layout: Layout
    spec: Spec
    config: dict[str, Any]

    def names(self, there: Collection[str]) -> dict[str, str]:
        """The layout's name of each tensor -> its name in the file, which has those `there`.

        Empty: they are not all there.
        """
        if self.spec.num_layers > len(there) and self.layout.name != "cudnn":
            return {}
        for has in (HAS_BIAS | HAS_PEEPHOLES, HAS_PEEPHOLES, HAS_BIAS, 0):
            try:
                names = [name for name, _ in _native.tensors(self.layout, self.spec, has)]
            except ValueError:
                continue
            if all(self.prefix + name in there for name in names):
                return {name: self.prefix + name for name in names}
        return {}


def write_records(records: Mapping[str, Record]) -> dict[str, str]:
    """The metadata that says so."""
    entries = {
        entry: {
            "prefix": one.prefix,
            "layout": one.layout.name,
            "options": dict(one.layout.options),
            "spec": one.spec.to_dict(),
            "config": one.config,
        }
        for entry, one in records.items()
    }
    try:
        return {KEY: json.dumps({"schema": SCHEMA, "entries": entries}, allow_nan=False)}
    except (TypeError, ValueError) as error:
        raise LayoutError(f"a config cannot be written as JSON: {error}") from None


def read_records(metadata: Mapping[str, str], path: Any) -> dict[str, Record]:
    """entry -> what is recorded of it; empty where the file says nothing.

    FileError: malformed, or written by a newer release.
    """
    if KEY not in metadata:
        return {}
    what = f"{path}: its metadata {KEY!r}"
    found = json_object(metadata[KEY], what)
    check_schema(found.get("schema"), what)
    entries = found.get("entries")
    if not isinstance(entries, dict):
        raise FileError(f"{what} has no entries")
    return {entry: _record(told, f"{what}, entry {entry!r}") for entry, told in entries.items()}


def check_schema(schema: Any, what: str) -> None:
    """Refuse what only a newer release can read."""
    if type(schema) is not int or schema < 1:
        raise FileError(f"{what} has no schema version")
    if schema > SCHEMA:
        raise FileError(
            f"{what} has schema {schema}, written by a newer release of rnnlayout; this one"
            f" ({__version__}) reads up to {SCHEMA}: update rnnlayout"
        )


def _record(told: Any, what: str) -> Record:
    kinds = {"prefix": str, "layout": str, "options": dict, "spec": dict, "config": dict}
    if not isinstance(told, dict) or not all(
        isinstance(told.get(key), kind) for key, kind in kinds.items()
    ):
        raise FileError(f"{what} has not {', '.join(kinds)}")
    try:
        layout = Layout(told["layout"], **told["options"])
        return Record(told["prefix"], layout, Spec.from_dict(told["spec"]), told["config"])
    except (LayoutError, SpecError, TypeError) as error:  # TypeError: an option named "name"
        raise FileError(f"{what}: {error}") from None
