"""Pictures that a command writes: --svg and --png."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .terminal import say, shown

if TYPE_CHECKING:
    from rnnlayout._model.picture.picture import Picture


def check_free_pictures(options: argparse.Namespace, *sources: str) -> None:
    """Raise the errors of outputs that cannot be written, before anything is read."""
    from rnnlayout._files.bags.output import check_free

    for path in filter(None, (options.svg, options.png)):
        check_free(Path(path), options.force, *sources)


def write_pictures(draw: Callable[..., Picture], options: argparse.Namespace) -> None:
    """Write a picture to the files that the options name, if any. draw: called with width=."""
    from rnnlayout._files.bags.output import whole
    from rnnlayout._model.picture.picture import WIDTH

    files = [(options.svg, ".svg"), (options.png, ".png")]
    if not any(path for path, _ in files):
        return
    picture = draw(width=options.width or WIDTH)
    for path, suffix in files:
        if path:
            with whole(path, force=options.force) as output:
                picture.save(output.path, suffix=suffix)
            say(f"{shown(path)}: written")
