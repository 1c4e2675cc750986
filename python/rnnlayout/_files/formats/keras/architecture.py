"""A model's config in a file beside its weights: what to_json() of Keras 1, 2 and 3 returns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from rnnlayout._files.bags.limits import regular_file
from rnnlayout._model.errors import FileError
from rnnlayout._sources.keras_config import short
from rnnlayout._sources.keras_tree import Node, Version

from .config import children, parse, version

_MOST = 4 << 20  # bytes; a model of a thousand layers has about one million


@dataclass(frozen=True)
class Architecture:
    """The config. path: of its file; version: of the Keras that wrote it, None if not recorded."""

    path: Path
    model: Node
    version: Version | None

    def check_names(
        self, known: Collection[str], wanted: Collection[str], found: Collection[str]
    ) -> None:
        """Raise FileError if recurrent layers of the config and of the weights are not the same.

        known: all layers of the config; wanted: its recurrent ones; found: those of the weights.
        """
        for name in wanted:
            if name not in found:
                raise FileError(f"{self.path}: its layer {short(name)} is not in the weights' file")
        for name in found:
            if name not in known:
                raise FileError(f"{self.path}: it lacks layer {short(name)} of the weights' file")


def read_architecture(path: object) -> Architecture:
    """Return the config in a file. Raises FileError if it is not a model's."""
    file = regular_file(path)
    if file.stat().st_size > _MOST:
        raise FileError(f"{file} has {file.stat().st_size} bytes: a config has at most {_MOST}")
    model = parse(file.read_bytes(), str(file))
    if not children(model):
        raise FileError(f"{file} is not a model's config, as model.to_json() returns it")
    text = model.get("keras_version")
    known = version(text) if isinstance(text, str) else (3, 0) if "module" in model else None
    return Architecture(file, model, known)
