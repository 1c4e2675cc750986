"""rnnlayout run"""

from __future__ import annotations

import argparse
from typing import Any

from rnnlayout._model.errors import Ask

from ..options import DONE, DTYPES, Parser, check_outputs, load_chosen
from ..terminal import print_json, print_message, printable

SUMMARY = "run an RNN from a file on an array"
DESCRIPTION = """\
Run one RNN from a file on x, and write y. Arrays are .npy files: x is
(T, N, I), (N, T, I) with --batch-first, or (T, I); y has D * P instead of I.
Without --batch-first or --time-first the axes are those of the file's own
framework, if the file records them; otherwise x is (T, N, I).
T time steps, N batch size, I input size, D directions, P output size. With
--states the last state is written too: h_n, and c_n for an LSTM."""
EXAMPLES = """\
  rnnlayout run lstm.safetensors --input x.npy --output y.npy
  rnnlayout run model.h5 --only lstm_1 --input x.npy --output y.npy
  rnnlayout run gru.pt --input x.npy --output y.npy --lengths 7,5,2
  rnnlayout run model.keras --input x.npy --output y.npy --mask-value 0.0
  rnnlayout run gru.npz --batch-first --input x.npy --output y.npy
  rnnlayout run lstm.safetensors --device auto --input x.npy --output y.npy"""


def add_arguments(parser: Parser) -> None:
    parser.add_file("file", metavar="FILE", help="the file with the RNN")
    parser.add_file("--input", required=True, metavar="X.npy", help="file to read x from")
    parser.add_file("--output", required=True, metavar="Y.npy", help="file to write y to")
    parser.add_file("--states", metavar="S.npz", help="file to write the last state to")
    add = parser.add_argument
    parser.add_choice()
    add("--lengths", metavar="N,N,...", type=_numbers, help="steps of each sequence of the batch")
    masks = parser.add_mutually_exclusive_group()
    text = "file of bools with the axes of x, without the last: True where a step counts"
    masks.add_argument("--mask", metavar="M.npy", help=text)
    text = "a step counts unless each element of x is V, as behind Keras's Masking(V)"
    masks.add_argument("--mask-value", metavar="V", type=float, help=text)
    axes = parser.add_mutually_exclusive_group()
    for option, action, order in ("batch", "store_true", "N, T"), ("time", "store_false", "T, N"):
        axes.add_argument(
            f"--{option}-first",
            dest="batch_first",
            action=action,
            default=None,
            help=f"x and y are ({order}, ...)",
        )
    device = "cpu (the default), cuda, cuda:N, or auto"
    add("--device", type=_device, default="cpu", metavar="D", help=device)
    dtype = (
        "dtype to compute in: round the weights and x to it (default: that of the weights, to"
        " which x is only changed if that is exact)"
    )
    add("--dtype", choices=DTYPES, help=dtype)
    parser.add_force("overwrite outputs that exist")
    parser.add_json()
    parser.add_reading()


def _numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: need numbers, as in 7,5,2") from None


def _device(text: str) -> str:
    from rnnlayout._native import SpecError
    from rnnlayout._run.settings import read_options

    try:
        return read_options(text, None, None, "default", "auto").device
    except SpecError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(options: argparse.Namespace) -> int:
    from contextlib import ExitStack
    from warnings import catch_warnings

    import numpy as np

    from rnnlayout._files.formats.npz import read_npy, write_npy
    from rnnlayout._files.tensor_sets.file_limits import InputFile, require_regular_file
    from rnnlayout._files.tensor_sets.file_rnns import AssumedNote
    from rnnlayout._files.tensor_sets.output_file import name_full_disk, write_whole_file
    from rnnlayout._model.config import describe_config, without_neutral
    from rnnlayout._model.errors import FileError
    from rnnlayout._model.weights import Weights

    for path, suffix in ((options.output, ".npy"), (options.states or ".npz", ".npz")):
        if not str(path).lower().endswith(suffix):
            options.wrong(f"{path}: the name must end in {suffix}, the format that is written")
    check_outputs(options, [options.output, options.states], options.file, options.input)
    rnns = load_chosen(options.file, options)
    name, *more_names = names = rnns.names
    if more_names:
        raise FileError(f"there are {len(names)} RNNs: choose one with --only: {', '.join(names)}")
    weights = rnns[name]
    if options.dtype:
        weights = Weights(weights, dtype=options.dtype)
    rnn = weights.rnn(device=options.device, batch_first=options.batch_first)
    x = read_npy(InputFile(require_regular_file(options.input), options.mmap))
    mask = None
    if options.mask_value is not None:
        mask = (x != options.mask_value).any(-1)
    elif options.mask:
        mask = read_npy(InputFile(require_regular_file(options.mask), options.mmap))
    x = _in_dtype(x, weights.spec.dtype, options)
    with ExitStack() as outputs:  # before the work: an output that cannot be written fails now
        y_out = outputs.enter_context(write_whole_file(options.output, force=options.force))
        states_out = options.states and outputs.enter_context(
            write_whole_file(options.states, force=options.force)
        )
        with catch_warnings(record=True) as warnings:
            y, state = rnn(x, lengths=options.lengths, mask=mask)
        with name_full_disk(y_out), open(y_out.path, "wb") as file:
            write_npy(file, y)
        if states_out:
            states = state if isinstance(state, tuple) else (state,)
            with open(states_out.path, "wb") as file:
                np.savez(file, **dict(zip(("h_n", "c_n"), states, strict=False)))
    for warning in warnings:
        print_message(f"warning: {printable(name)}: {printable(str(warning.message))}")
    if options.json:
        print_json(
            "run",
            1,
            {
                "file": options.file,
                "name": name,
                "spec": weights.spec.to_dict(),
                "device": rnn.device,
                "config": weights.config,
                "output": options.output,
                "shape": list(y.shape),
                "states": options.states,
                "notes": rnns.notes,
            },
        )
        return DONE
    print_message(f"{printable(name)}: {weights.spec}, on {rnn.device}: y {y.shape}")
    if settings := without_neutral(weights.config, weights.spec.num_directions):
        print_message(f"{printable(name)}: used with {printable(describe_config(settings))}")
    for note in rnns.notes:
        if isinstance(note, AssumedNote):
            continue  # the warning names the settings of this RNN that the options do not name
        print_message(f"note: {printable(note)}")
    return DONE


def _in_dtype(x: Any, dtype: str, options: argparse.Namespace) -> Any:
    """Return x in the dtype of the RNN. Raises LayoutError if this would round without --dtype."""
    import numpy as np

    from rnnlayout._model.dtypes import narrow_values, present_array, widen_bits
    from rnnlayout._native import LayoutError

    if x.dtype.kind not in "iuf" or x.dtype.name == dtype:
        return x
    bits = narrow_values(x.astype("f8"), dtype)
    if not options.dtype and not np.array_equal(widen_bits(bits, dtype), x, equal_nan=True):
        raise LayoutError(
            f"{options.input} is {x.dtype}, the RNN is {dtype}, which cannot represent every value"
            " of it: to round them pass ",
            Ask("dtype", dtype),
        )
    return present_array(bits, dtype)
