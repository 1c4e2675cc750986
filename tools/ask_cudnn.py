"""Ask a real libcudnn where it puts the weights of an RNN. No GPU needed.

    python tools/ask_cudnn.py FOLDER [--old] < questions.jsonl > answers.jsonl

FOLDER contains libcudnn.so.9 or libcudnn.so.8 and the libraries that it needs (LIBRARIES, below),
directly or in nvidia/cudnn/lib, as in NVIDIA's wheels. --old uses the calls of cuDNN 7, which
version 8 still has.

A question is a dict with the fields of rnnlayout.Spec (such as Spec.to_dict()); missing fields have
their default. An optional "call" contains arguments that are passed to the describing call as they
are, whatever the spec says: {"cell": "lstm", ..., "call": {"projSize": 0}}.

An answer contains "question", "cudnn" (the version: 8906, 91900) and
    "bytes"    the size of the weight space
    "pieces"   rows [pseudoLayer, linLayerID, "matrix" or "bias", byte offset, [rows, cols]]
    "refused"  instead of the pieces: "call", "status", "name"

This file uses nothing from rnnlayout, so that it is an independent source.

The calls compute only sizes and addresses, and never read the handle. cudnnCreate fails without a
GPU, so a block of zeros replaces the handle, and a number replaces the address of the weight space.
This is enough for these questions, but a library may still crash, so ask() runs in a separate
process.
"""

import argparse
import ctypes
import json
import subprocess
import sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from pathlib import Path

# In an order in which each library finds the ones that it needs already open. The main library is
# last: at its first call it searches for the others, and aborts the process if one is missing.
LIBRARIES = {
    9: ["libcudnn_graph.so.9", "libcudnn_ops.so.9", "libcudnn_adv.so.9", "libcudnn.so.9"],
    8: ["libcudnn_ops_infer.so.8", "libcudnn_adv_infer.so.8", "libcudnn.so.8"],
}
FOLDERS = [".", "nvidia/cudnn/lib", "lib", "lib64"]

# The vendor's enumeration values that are needed.
CELL = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
BIAS = {"none": 0, "input": 1, "double": 2, "recurrent": 3}
DTYPE = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
PRECISION = {"float32": 0, "float64": 1, "float16": 0, "bfloat16": 0}  # computes in float
GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
DEFAULTS = {"num_layers": 1, "bidirectional": False, "proj_size": 0, "bias": "double",
            "skip_input": False, "dtype": "float32"}  # fmt: skip

MISSING = 5  # exit code
INT32 = 2**31 - 1
# The address of the weight space: not 0, so that a piece at offset 0 differs from a missing piece.
# Nothing reads or writes it.
BASE = 1 << 40


class Missing(Exception):
    """No usable libcudnn was found; the text says what is missing."""


class Refused(Exception):
    """A call failed."""

    def __init__(self, call, status, name):
        super().__init__(f"{call}: {status} ({name})")
        self.answer = {"call": call, "status": status, "name": name}


class Died(Exception):
    """The asking process died; the text names the question."""


# ---------------------------------------------------------------------------------- the library


def find(folder):
    """Return (major version, paths of its libraries in the order in which to open them)."""
    tried = []
    for under in FOLDERS:
        place = Path(folder).resolve() / under
        for major, names in LIBRARIES.items():
            if not (place / names[-1]).is_file():
                continue
            missing = [name for name in names if not (place / name).is_file()]
            if not missing:
                return major, [place / name for name in names]
            tried.append(f"{place / names[-1]} exists, but not {', '.join(missing)}")
    raise Missing("; ".join(tried) or f"no libcudnn.so.9 or libcudnn.so.8 in {folder}")


class Library:
    """An open libcudnn: its calls, which raise Refused, and its descriptors."""

    def __init__(self, folder):
        self.major, paths = find(folder)
        try:
            # RTLD_GLOBAL: the libraries must see each other's symbols.
            self._opened = [ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL) for path in paths]
        except OSError as error:
            raise Missing(str(error)) from None
        self._library = self._opened[-1]
        self._library.cudnnGetVersion.restype = c_size_t
        self._library.cudnnGetErrorString.restype = c_char_p
        self.version = self._library.cudnnGetVersion()
        self.handle = c_void_p(ctypes.addressof(_HANDLE))

    def has(self, call):
        return hasattr(self._library, call)

    def __call__(self, call, *arguments):
        status = getattr(self._library, call)(*arguments)
        if status:
            raise Refused(call, status, self._library.cudnnGetErrorString(status).decode())

    def new(self, kind):
        """Create a descriptor of kind "RNN", "Dropout", "Tensor" or "Filter"."""
        made = c_void_p()
        self(f"cudnnCreate{kind}Descriptor", byref(made))
        return made

    def free(self, kind, made):
        self(f"cudnnDestroy{kind}Descriptor", made)


_HANDLE = ctypes.create_string_buffer(1 << 20)


# ------------------------------------------------------------------------------------- questions


def arguments(question):
    """Return the arguments of cudnnSetRNNDescriptor_v8 by name."""
    spec = DEFAULTS | question
    named = {
        "algo": 0,
        "cellMode": CELL[spec["cell"]],
        "biasMode": BIAS[spec["bias"]],
        "dirMode": int(spec["bidirectional"]),
        "inputMode": int(spec["skip_input"]),
        "dataType": DTYPE[spec["dtype"]],
        "mathPrec": PRECISION[spec["dtype"]],
        "mathType": 0,
        "inputSize": spec["input_size"],
        "hiddenSize": spec["hidden_size"],
        "projSize": spec["proj_size"] or spec["hidden_size"],  # equal: no projection
        "numLayers": spec["num_layers"],
        "auxFlags": 0,
    }
    for name, value in question.get("call", {}).items():
        if name not in named:
            raise KeyError(f"{name}; the call has {', '.join(named)}")
        named[name] = value
    for name, value in named.items():
        if value > INT32:
            raise Refused(f"{name}={value}", None, "too large for the int32_t of the call")
    return named


def answer(library, question, old=False):
    """Return the answer of an open library to one question."""
    said = {"question": question, "cudnn": library.version}
    asker = OldCalls if old else NewCalls
    try:
        call = arguments(question)
        with asker(library, call, GATES[question["cell"]]) as asked:
            said["bytes"] = asked.size()
            said["pieces"] = list(_pieces(asked, call))
    except Refused as refused:
        said["refused"] = refused.answer
        said.pop("pieces", None)
    return said


def _pieces(asked, call):
    """Ask for every linLayerID, including those that should not exist."""
    for pseudo_layer in range(call["numLayers"] * (1 + call["dirMode"])):
        for number in range(2 * asked.gates + 1):
            for what, at, dims in asked.piece(pseudo_layer, number):
                if at is not None:
                    yield [pseudo_layer, number, what, at - BASE, dims[1:]]


class _Calls:
    """An RNN descriptor and all that is needed to ask about it, freed at the end."""

    kinds = ()

    def __init__(self, library, call, gates):
        self.library, self.call, self.gates, self.made = library, call, gates, []

    def __enter__(self):
        for kind in self.kinds:
            self.made.append((kind, self.library.new(kind)))
        try:
            self.describe(*(made for _, made in self.made))
        except Refused:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for kind, made in reversed(self.made):
            self.library.free(kind, made)

    def dims(self, kind, made):
        found, fmt, count, dims = c_int(), c_int(), c_int(), (c_int * 8)()
        more = (byref(fmt),) if kind == "Filter" else ()
        strides = () if kind == "Filter" else ((c_int * 8)(),)
        self.library(
            f"cudnnGet{kind}NdDescriptor", made, 8, byref(found), *more, byref(count), dims,
            *strides,
        )  # fmt: skip
        return list(dims[: count.value])


class NewCalls(_Calls):
    """The calls of cuDNN 8 and 9."""

    kinds = ("RNN", "Dropout", "Tensor", "Tensor")

    def describe(self, rnn, dropout, matrix, bias):
        self.rnn, self.descriptors = rnn, (matrix, bias)
        *most, flags = self.call.values()
        self.library("cudnnSetRNNDescriptor_v8", rnn, *map(c_int, most), dropout, c_uint32(flags))

    def size(self):
        nbytes = c_size_t()
        self.library("cudnnGetRNNWeightSpaceSize", self.library.handle, self.rnn, byref(nbytes))
        self.nbytes = nbytes
        return nbytes.value

    def piece(self, pseudo_layer, number):
        matrix, bias = self.descriptors
        addresses = c_void_p(), c_void_p()
        self.library(
            "cudnnGetRNNWeightParams", self.library.handle, self.rnn, c_int(pseudo_layer),
            self.nbytes, c_void_p(BASE), c_int(number),
            matrix, byref(addresses[0]), bias, byref(addresses[1]),
        )  # fmt: skip
        for what, made, address in zip(
            ("matrix", "bias"), self.descriptors, addresses, strict=True
        ):
            yield what, address.value, self.dims("Tensor", made) if address.value else None


class OldCalls(_Calls):
    """The calls of cuDNN 7. x has a descriptor with the input size and dtype, the weights too."""

    kinds = ("RNN", "Dropout", "Tensor", "Filter", "Filter")

    def describe(self, rnn, dropout, x, weights, piece):
        self.rnn, self.x, self.weights, self.found = rnn, x, weights, piece
        library, call = self.library, self.call
        library(
            "cudnnSetRNNDescriptor_v6", library.handle, rnn, c_int(call["hiddenSize"]),
            c_int(call["numLayers"]), dropout, c_int(call["inputMode"]), c_int(call["dirMode"]),
            c_int(call["cellMode"]), c_int(call["algo"]), c_int(call["mathPrec"]),
        )  # fmt: skip
        library("cudnnSetRNNBiasMode", rnn, c_int(call["biasMode"]))
        library(
            "cudnnSetRNNProjectionLayers", library.handle, rnn, c_int(call["projSize"]), c_int(0)
        )
        dims, strides = (c_int * 3)(1, call["inputSize"], 1), (c_int * 3)(call["inputSize"], 1, 1)
        library("cudnnSetTensorNdDescriptor", x, c_int(call["dataType"]), 3, dims, strides)

    def size(self):
        nbytes, dtype = c_size_t(), self.call["dataType"]
        library = self.library
        library(
            "cudnnGetRNNParamsSize", library.handle, self.rnn, self.x, byref(nbytes), c_int(dtype)
        )
        elements = nbytes.value // {0: 4, 1: 8, 2: 2, 9: 2}[dtype]
        if elements > INT32:
            raise Refused("cudnnSetFilterNdDescriptor", None, "more elements than an int can hold")
        shape = (c_int * 3)(elements, 1, 1)
        library("cudnnSetFilterNdDescriptor", self.weights, c_int(dtype), 0, 3, shape)
        return nbytes.value

    def piece(self, pseudo_layer, number):
        calls = {
            "matrix": "cudnnGetRNNLinLayerMatrixParams",
            "bias": "cudnnGetRNNLinLayerBiasParams",
        }
        if number == 2 * self.gates:
            del calls["bias"]  # a projection has no bias: BAD_PARAM here, NULL from the new call
        for what, call in calls.items():
            address = c_void_p()
            self.library(
                call, self.library.handle, self.rnn, c_int(pseudo_layer), self.x, self.weights,
                c_void_p(BASE), c_int(number), self.found, byref(address),
            )  # fmt: skip
            yield what, address.value, self.dims("Filter", self.found) if address.value else None


# ---------------------------------------------------------------------------- in another process


def ask(folder, questions, old=False):
    """Open the library in a folder in a separate process, and return its answers in order.

    Raises Missing if no library can be opened, Died if the process dies.
    """
    lines = [json.dumps(question) for question in questions]
    command = [sys.executable, __file__, str(folder), *(["--old"] if old else [])]
    done = subprocess.run(
        command, input="".join(line + "\n" for line in lines), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode == MISSING:
        raise Missing(done.stderr.strip())
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or len(answers) != len(lines):
        over = lines[len(answers)] if len(answers) < len(lines) else "no question"
        raise Died(f"exit status {done.returncode} over {over}\n{done.stderr.strip()}")
    return answers


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog=f"Exit code {MISSING}: no usable library was found.",
    )
    parser.add_argument("folder", help="the folder of libcudnn.so.9 or libcudnn.so.8")
    parser.add_argument("--old", action="store_true", help="use the calls of cuDNN 7")
    args = parser.parse_args()
    try:
        library = Library(args.folder)
        if args.old and not library.has("cudnnGetRNNParamsSize"):
            raise Missing(f"cuDNN {library.version} does not have the calls of cuDNN 7")
    except Missing as why:
        print(why, file=sys.stderr)
        return MISSING
    for line in sys.stdin:
        # whole lines: the number of answers shows over which question a process died
        print(json.dumps(answer(library, json.loads(line), args.old)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
