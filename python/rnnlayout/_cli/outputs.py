"""Files that a command writes: pictures, and a file with RNNs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .terminal import print_message, printable

if TYPE_CHECKING:
    from rnnlayout._model.picture.picture import Picture


def check_rnn_file(options: argparse.Namespace, path: str, *sources: str) -> None:
    """Refuse a file that cannot be written with RNNs, before anything is read."""
    from rnnlayout._files.formats.registry import format_to_write
    from rnnlayout._files.tensor_sets.output_file import check_free
    from rnnlayout._model.errors import FileError

    try:
        format_to_write(path)
    except FileError as error:
        options.wrong(str(error))
    check_free(Path(path), options.force, *sources)


def check_free_pictures(options: argparse.Namespace, *sources: str) -> None:
    """Raise the errors of outputs that cannot be written, before anything is read."""
    from rnnlayout._files.tensor_sets.output_file import check_free

    for path in filter(None, (options.svg, options.png)):
        check_free(Path(path), options.force, *sources)


def write_pictures(draw: Callable[..., Picture], options: argparse.Namespace) -> None:
    """Write a picture to the files that the options name, if any. draw: called with width=."""
    from rnnlayout._files.tensor_sets.output_file import write_whole_file
    from rnnlayout._model.picture.picture import WIDTH

    files = [(options.svg, ".svg"), (options.png, ".png")]
    if not any(path for path, _ in files):
        return
    picture = draw(width=options.width or WIDTH)
    for path, suffix in files:
        if path:
            with write_whole_file(path, force=options.force) as output:
                picture.save(output.path, suffix=suffix)
            print_message(f"{printable(path)}: written")
