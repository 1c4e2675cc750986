"""Send right and wrong calls to one libcudnn, real or fake, without a GPU, and record its answers.

    python tests/fakes/ask.py FOLDER < questions.jsonl > answers.jsonl

A question is a dict: "call" names the call in question (one of CALLS), the rest is where it differs
from BASE. An answer is a dict with "status", or "died" with the signal; "at" is the call with that
status, which is an earlier one if an earlier one failed.

As in tools/ask_cudnn.py a block of zeros replaces the handle. Real libraries then check all their
arguments, up to their first call of CUDA. They read two words of the block before that: the
device's number of processors and its capability. Each question runs in a child process, because a
call that passes all checks may crash without a device.
"""

import ctypes
import json
import os
import sys
import tempfile
from ctypes import byref, c_double, c_float, c_int, c_size_t, c_uint32, c_void_p
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import ask_cudnn

CALLS = ["set_dropout", "set_rnn", "clip", "weight_size", "set_x", "set_y", "set_h", "set_c",
         "sizes", "forward"]  # fmt: skip
BASE = {
    "rnn": {"algo": 0, "cell": 2, "bias": 2, "direction": 0, "input_mode": 0, "dtype": 0,
            "precision": 0, "math": 3, "I": 5, "H": 6, "P": None, "L": 1, "flags": 0},
    "clip": None,  # [mode, left, right]
    "x": {"dtype": None, "layout": 0, "T": 4, "N": 3, "width": None, "lengths": None, "fill": True},
    "y": {},  # as x
    "h": {"dtype": None, "dims": None, "strides": None},
    "c": {"dtype": None, "dims": None, "strides": None},
    "mode": 0,
    "unset": [],  # descriptors that are only created
    "null": [],  # arguments that are NULL: "handle", "rnn", "x_desc", "hx", "workspace"...
    "weight_bytes": 0, "workspace_bytes": 0, "reserve_bytes": 0,  # more or less than is needed
    "sized_for": None,  # the lengths that the workspace is for, if not those of the call
    "shift": {},  # bytes by which an address is off
    "capability": 90,
    "dropout": "set",  # or "created", "destroyed", "null"
}  # fmt: skip
PROCESSORS_AT, PROCESSORS = 7, 132
# The word with the capability, by version; it may be elsewhere in one that is not listed.
CAPABILITY_AT = {90000: 24, 90100: 24, 91002: 24, 91900: 26, 92800: 27}
ADDRESS = 1 << 40  # nobody reads or writes there


def merged(question):
    """Return the complete question, with the widths and dims that follow from it."""
    asked = {
        key: base | question.get(key, {}) if isinstance(base, dict) else question.get(key, base)
        for key, base in BASE.items()
    }
    rnn, x, y = asked["rnn"], asked["x"], asked["y"]
    if rnn["P"] is None:
        rnn["P"] = rnn["H"]
    D = 1 + (rnn["direction"] == 1)
    for data, width in ((x, rnn["I"]), (y, D * rnn["P"])):
        for key, value in x.items() if data is y else ():
            data.setdefault(key, value if key != "width" else None)
        data["dtype"] = rnn["dtype"] if data["dtype"] is None else data["dtype"]
        data["width"] = width if data["width"] is None else data["width"]
        if data["lengths"] is None:
            data["lengths"] = [data["T"]] * max(data["N"], 0)
    for state, width in ((asked["h"], rnn["P"]), (asked["c"], rnn["H"])):
        state["dtype"] = rnn["dtype"] if state["dtype"] is None else state["dtype"]
        state["dims"] = state["dims"] or [rnn["L"] * D, x["N"], width]
        state["strides"] = state["strides"] or packed(state["dims"])
    return asked


def packed(dims):
    strides = [1]
    for size in reversed(dims[1:]):
        strides.insert(0, strides[0] * size)
    return strides


class Asked:
    """One question and its descriptors; each call of CALLS is a method that returns a status."""

    def __init__(self, library, question):
        self.library, self.question, self.q = library, question, merged(question)
        self.opened = library._library
        self.block = ctypes.create_string_buffer(1 << 20)
        words = ctypes.cast(self.block, ctypes.POINTER(ctypes.c_int32))
        words[PROCESSORS_AT] = PROCESSORS
        words[CAPABILITY_AT.get(library.version, 25)] = 10 * self.q["capability"]
        self.said = {}

    def call(self, name, *arguments):
        function = getattr(self.opened, name)
        function.restype = c_int
        return function(*arguments)

    def make(self, kind):
        made = c_void_p()
        assert self.call(f"cudnnCreate{kind}Descriptor", byref(made)) == 0
        return made

    def argument(self, name, value):
        return None if name in self.q["null"] else value

    def address(self, name, number):
        return self.argument(
            name, c_void_p(ADDRESS + (number << 32) + self.q["shift"].get(name, 0))
        )

    @property
    def handle(self):
        return self.argument("handle", c_void_p(ctypes.addressof(self.block)))

    def create(self):
        self.rnn, self.dropout = self.make("RNN"), self.make("Dropout")
        self.x, self.y = self.make("RNNData"), self.make("RNNData")
        self.h, self.c = self.make("Tensor"), self.make("Tensor")

    def answer(self):
        """Make every call up to the one in question, or to the first that fails."""
        wanted = self.question["call"]
        self.create()
        for name in CALLS[: CALLS.index(wanted) + 1]:
            if name.removeprefix("set_") in self.q["unset"] or (
                name not in STEPS and name != wanted
            ):
                continue
            status = getattr(self, name)()
            # sizes: 9 cannot ask the device for more, yet the sizes are there
            if name == wanted or (status and not (name == "sizes" and self.workspace.value)):
                return self.said | {"at": name, "status": status}
        raise KeyError(wanted)

    def set_dropout(self):
        how = self.q["dropout"]
        if how in ("set", "destroyed"):
            states = c_void_p()
            status = self.call("cudnnSetDropoutDescriptor", self.dropout, self.handle,
                               c_float(0), states, c_size_t(0), ctypes.c_ulonglong(0))  # fmt: skip
            if status:
                return status
        return 0

    def set_rnn(self):
        r = self.q["rnn"]
        numbers = [r[key] for key in ("algo", "cell", "bias", "direction", "input_mode", "dtype",
                                      "precision", "math", "I", "H", "P", "L")]  # fmt: skip
        dropout = None if self.q["dropout"] == "null" else self.dropout
        rnn = self.argument("set_rnn", self.rnn)
        status = self.call("cudnnSetRNNDescriptor_v8", rnn, *map(c_int, numbers), dropout,
                           c_uint32(r["flags"]))  # fmt: skip
        if self.q["dropout"] == "destroyed":
            self.call("cudnnDestroyDropoutDescriptor", self.dropout)
        return status

    def clip(self):
        if self.q["clip"] is None:
            return 0
        mode, left, right = self.q["clip"]
        rnn, bounds = self.argument("clip", self.rnn), (c_double(left), c_double(right))
        return self.call("cudnnRNNSetClip_v9", rnn, c_int(mode), *bounds)

    def weight_size(self):
        self.weights = c_size_t()
        rnn = self.argument("rnn", self.rnn)
        status = self.call("cudnnGetRNNWeightSpaceSize", self.handle, rnn, byref(self.weights))
        self.said["weight_bytes"] = self.weights.value
        return status

    def data(self, name, made, **more):
        d = self.q[name] | more
        lengths = self.argument(f"{name}_lengths", (c_int * len(d["lengths"]))(*d["lengths"]))
        fill = ctypes.create_string_buffer(8) if d["fill"] else None
        return self.call("cudnnSetRNNDataDescriptor", self.argument(f"set_{name}", made),
                         c_int(d["dtype"]), c_int(d["layout"]), c_int(d["T"]), c_int(d["N"]),
                         c_int(d["width"]), lengths, fill)  # fmt: skip

    def set_x(self):
        return self.data("x", self.x)

    def set_y(self):
        return self.data("y", self.y)

    def state(self, name, made):
        s, ints = self.q[name], lambda numbers: (c_int * len(numbers))(*numbers)
        return self.call("cudnnSetTensorNdDescriptor", made, c_int(s["dtype"]), len(s["dims"]),
                         ints(s["dims"]), ints(s["strides"]))  # fmt: skip

    def set_h(self):
        return self.state("h", self.h)

    def set_c(self):
        return self.state("c", self.c)

    def sizes(self):
        self.workspace, self.reserve = c_size_t(), c_size_t()
        if self.q["sized_for"]:
            self.data("x", self.x, lengths=self.q["sized_for"])
        status = self.call(
            "cudnnGetRNNTempSpaceSizes", self.handle, self.argument("rnn", self.rnn),
            c_int(self.q["mode"]), self.argument("x_desc", self.x),
            byref(self.workspace), self.argument("reserve_out", byref(self.reserve)),
        )  # fmt: skip
        self.said["written"] = bool(self.workspace.value)
        if self.q["sized_for"]:
            self.set_x()
        return status

    def forward(self):
        q, pick = self.q, self.argument
        if self.question["call"] == "forward" and "sizes" in q["unset"]:
            self.workspace, self.reserve = c_size_t(1 << 30), c_size_t(1 << 30)
            if not hasattr(self, "weights"):
                self.weights = c_size_t(1 << 30)
        queried = {"weight": self.weights, "workspace": self.workspace, "reserve": self.reserve}
        sizes = [c_size_t(max(0, n.value + q[f"{name}_bytes"])) for name, n in queried.items()]
        return self.call(
            "cudnnRNNForward", self.handle, pick("rnn", self.rnn), c_int(q["mode"]), None,
            pick("x_desc", self.x), self.address("x", 1),
            pick("y_desc", self.y), self.address("y", 2),
            pick("h_desc", self.h), self.address("hx", 3), self.address("hy", 4),
            pick("c_desc", self.c), self.address("cx", 5), self.address("cy", 6),
            sizes[0], self.address("weights", 7), sizes[1], self.address("workspace", 8),
            sizes[2], self.address("reserve", 9),
        )  # fmt: skip


# Those that every later one needs; the others are made only when they are asked about.
STEPS = [
    "set_dropout",
    "set_rnn",
    "clip",
    "weight_size",
    "set_x",
    "set_y",
    "set_h",
    "set_c",
    "sizes",
]


def in_a_child(work):
    """Return the result of work() in a child process, or how that process ended."""
    with tempfile.TemporaryFile("w+") as paper:
        child = os.fork()
        if child == 0:
            json.dump(work(), paper)
            paper.flush()
            os._exit(0)
        _, ended = os.waitpid(child, 0)
        paper.seek(0)
        code = os.waitstatus_to_exitcode(ended)
        return json.load(paper) if code == 0 else {"died": code}


def main():
    library = ask_cudnn.Library(sys.argv[1])
    for line in sys.stdin:
        question = json.loads(line)
        answer = in_a_child(lambda asked=question: Asked(library, asked).answer())
        print(json.dumps({"cudnn": library.version} | answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
