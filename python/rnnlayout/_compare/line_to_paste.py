"""The line of Python that a diagnosis ends with: what converts the right weights rightly."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from rnnlayout._model.asks import Ask
from rnnlayout._model.layout import CUDNN, Layout
from rnnlayout._sources.frameworks import framework_of


def is_path(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike))


def line_to_paste(
    caller: FrameType, flat: Any, like: Any, names: list[str], layout: Layout,
    hints: Mapping[str, Any],
) -> str:  # fmt: skip
    """Return the line of Python that converts `like` as `flat` should have been, with the names of
    the caller's variables, or to a new file beside that which was given.

    names: of the RNN in the file `like`, or of its layers. layout: of what was given. hints: the
    arguments that `like` needs.
    """
    asked = [str(Ask(name, value)) for name, value in hints.items()]
    if is_path(like):
        read = f"rl.load({', '.join([repr(os.fspath(like)), *asked])})"
        source = f"{read}[{names[0]!r}]"
        if len(names) > 1:
            source = f"rl.stack([{read}[name] for name in {names}])"
    else:
        source = _name_of_variable(caller, like, "like")
        if asked or is_path(flat):
            source = f"rl.Weights({', '.join([source, *asked])})"
    to = str(Ask("to", layout))
    if is_path(flat):
        right = Path(flat).with_name(f"right-{Path(flat).name}")
        return f"rl.save({os.fspath(right)!r}, {source}.to({to.removeprefix('to=')}))"
    target = _name_of_variable(caller, flat, "flat" if layout == CUDNN else "tensors")
    if framework_of(flat):
        return f"rl.assign({target}, {source})"
    call = f"rl.pack({source})" if layout == CUDNN else f"rl.convert({source}, {to})"
    if isinstance(flat, (list, tuple)):
        call = f"list({call}.values())"
    if isinstance(flat, (bytes, bytearray, memoryview)):
        call += ".tobytes()"
    return f"{target} = {call}"


def _name_of_variable(caller: FrameType, value: Any, otherwise: str) -> str:
    """Return the name of the caller's variable that is this object."""
    for variables in (caller.f_locals, caller.f_globals):
        for name, one in variables.items():
            if one is value and not name.startswith("_"):
                return name
    return otherwise
