"""A model's config that is not in the file of its weights: what Keras's to_json() returns."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rnnlayout._files.tensor_sets.file_limits import require_regular_file
from rnnlayout._model.errors import FileError
from rnnlayout._sources.keras_config import short_repr
from rnnlayout._sources.keras_tree import Node, Version

from .config import child_layers, parse_config, parse_keras_version

_MOST = 4 << 20  # bytes; a model of a thousand layers has about one million
_NAME = "the config"  # in messages, if it has no file


@dataclass(frozen=True)
class Architecture:
    """The config of a model. name: the name of the file that it is from, else _NAME. version: the
    version of the Keras that wrote it; None if that is not recorded.
    """

    name: str
    model: Node
    version: Version | None

    def check_names(
        self, known: Collection[str], wanted: Collection[str], found: Collection[str]
    ) -> None:
        """Raise FileError if recurrent layers of the config and of the weights are not the same.

        known: the names of all layers in the config. wanted: those of its recurrent layers. found:
        those of the recurrent layers in the file of the weights.
        """
        for name in wanted:
            if name not in found:
                raise FileError(
                    f"{self.name}: its layer {short_repr(name)} is not in the weights' file"
                )
        for name in found:
            if name not in known:
                raise FileError(
                    f"{self.name}: it lacks layer {short_repr(name)} of the weights' file"
                )


def read_architecture(config: object) -> Architecture:
    """Return what to_json() of a model returned: in a file, the text itself, or parsed.

    Raises FileError if it is not a model's config.
    """
    name, json_text = _read_config_text(config)
    if len(json_text) > _MOST:
        raise FileError(f"{name} has more than {_MOST} bytes: a config has at most so many")
    model = parse_config(json_text, name)
    if not child_layers(model):
        raise FileError(f"{name} is not a model's config, as model.to_json() returns it")
    text = model.get("keras_version")
    known = (
        parse_keras_version(text)
        if isinstance(text, str)
        else (3, 0)
        if "module" in model
        else None
    )
    return Architecture(name, model, known)


def _read_config_text(config: object) -> tuple[str, str | bytes]:
    """Return what messages call a config, and its JSON."""
    if isinstance(config, Mapping):
        try:
            return _NAME, json.dumps(dict(config))
        except (TypeError, ValueError, RecursionError) as error:
            raise FileError(f"{_NAME} is not what model.to_json() returned: {error}") from None
    if isinstance(config, str) and config.lstrip().startswith("{"):
        return _NAME, config
    file = require_regular_file(config)
    with open(file, "rb") as stream:
        return str(file), stream.read(_MOST + 1)
