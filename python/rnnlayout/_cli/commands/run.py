"""rnnlayout run"""

from __future__ import annotations

import argparse
from typing import Any

from rnnlayout._cli.options import add_file, add_hints, hints

SUMMARY = "run an RNN of a file over an array"
DESCRIPTION = """\
Run one RNN of a file over x, and write y. Arrays are .npy files: x (T, N, I),
or (N, T, I) with --batch-first, or (T, I); y the same with D * P for I."""
EXAMPLES = """\
  rnnlayout run lstm.safetensors --input x.npy --output y.npy
  rnnlayout run model.h5 --entry lstm_1 --input x.npy --output y.npy
  rnnlayout run gru.pt --input x.npy --output y.npy --lengths 7,5,2
  rnnlayout run keras.h5 --batch-first --input x.npy --output y.npy
  rnnlayout run lstm.safetensors --device auto --input x.npy --output y.npy"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_file(parser, "file", metavar="FILE", help="the file with the RNN")
    add_file(parser, "--input", required=True, metavar="X.npy", help="x")
    add_file(parser, "--output", required=True, metavar="Y.npy", help="y")
    add_file(parser, "--states", metavar="S.npz", help="the last state: h_n, of an LSTM also c_n")
    parser.add_argument("--entry", metavar="NAME", help="which RNN, where the file has several")
    parser.add_argument(
        "--lengths", metavar="N,N,...", type=_numbers, help="steps of each sequence of the batch"
    )
    parser.add_argument(
        "--batch-first", action="store_true", help="x and y are (N, T, ...), not (T, N, ...)"
    )
    parser.add_argument(
        "--device", default="cpu", metavar="D", help="cpu (the default), cuda, cuda:N, or auto"
    )
    parser.add_argument("--force", action="store_true", help="replace outputs that are there")
    add_hints(parser)


def _numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: need numbers, as in 7,5,2") from None


def run(options: argparse.Namespace) -> int:
    from contextlib import ExitStack

    import numpy as np

    from rnnlayout._cli.terminal import say
    from rnnlayout._files.bags.limits import regular_file
    from rnnlayout._files.files import load
    from rnnlayout._files.formats.npy import mapped
    from rnnlayout._files.output import whole
    from rnnlayout._weights import used

    for path, suffix in ((options.output, ".npy"), (options.states or ".npz", ".npz")):
        if not str(path).lower().endswith(suffix):
            from rnnlayout._model.errors import FileError

            raise FileError(f"{path}: is written as {suffix}, name it so")
    name, weights = _chosen(load(options.file, **hints(options)), options.entry)
    x = mapped(regular_file(options.input))
    with ExitStack() as outputs:  # before the work: what cannot be written is said at once
        y_part = outputs.enter_context(whole(options.output, force=options.force))
        states_part = options.states and outputs.enter_context(
            whole(options.states, force=options.force)
        )
        y, state, device = used.run(
            weights, x, options.lengths, device=options.device, batch_first=options.batch_first
        )
        np.save(y_part, y, allow_pickle=False)
        if states_part:
            h_n, c_n = state if isinstance(state, tuple) else (state, None)
            np.savez(states_part, **({"h_n": h_n} if c_n is None else {"h_n": h_n, "c_n": c_n}))
    say(f"{name}: {weights.spec}, on {device}: y {y.shape}")
    return 0


def _chosen(found: Any, entry: str | None) -> tuple[str, Any]:
    from rnnlayout._cli.terminal import shown
    from rnnlayout._model.errors import FileError

    names = ", ".join(shown(name) for name in [*found, *found.refused])
    if entry is None and len(found) + len(found.refused) > 1:
        raise FileError(f"there are {len(found) + len(found.refused)} RNNs: --entry {names}")
    if entry is not None and entry not in [*found, *found.refused]:
        raise FileError(f"no RNN is called {entry}: there are {names}")
    name = next(iter(found)) if entry is None else entry
    return name, found[name]
