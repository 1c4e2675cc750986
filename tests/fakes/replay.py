"""Make the calls of a log of the fake cuDNN again, with a real one, which needs no GPU for it.

    python tests/fakes/replay.py FOLDER < log > refused

A block of zeros replaces the handle. A real library then checks all arguments of a call, also those
of cudnnRNNForward, up to its first call of CUDA, which fails. Before that it reads two words of the
block: the device's number of processors and its capability. Addresses are never used. The workspace
has the size that this library gave last for the RNN.

It prints one object: "version", "forwards" (how often cudnnRNNForward has passed), and "refused",
null or [status, line of the log] of the first call that did not pass, which is the last one made.
"""

import ctypes
import json
import os
import sys
from ctypes import byref, c_float, c_int, c_size_t, c_uint32, c_ulonglong, c_void_p
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import ask_cudnn

PROCESSORS_AT, PROCESSORS = 7, 132
# The word with the capability, by version; it may be elsewhere in one that is not listed.
CAPABILITY_AT = {90000: 24, 90100: 24, 91002: 24, 91900: 26, 92800: 27}
CAPABILITY = 900
RNN = ("algo", "cell", "bias", "directions", "input", "type", "precision", "math", "I", "H", "P",
       "L")  # fmt: skip
NO_DEVICE = range(5000, 6000)  # its first call of CUDA has failed
DIED = -1


class Replay:
    def __init__(self, folder):
        library = ask_cudnn.Library(folder)
        self.version, self.opened = library.version, library._library
        self.block = ctypes.create_string_buffer(1 << 20)
        self.handle = c_void_p(ctypes.addressof(self.block))
        words = ctypes.cast(self.block, ctypes.POINTER(ctypes.c_int32))
        words[PROCESSORS_AT], words[CAPABILITY_AT[self.version]] = PROCESSORS, CAPABILITY
        self.made, self.work, self.forwards = {}, {}, 0

    def again(self, line):
        """Make the call of a line, unless it is one that needs a device. Return its status."""
        name, *fields = line.split()
        method = getattr(self, name, None)
        return method(dict(field.split("=") for field in fields)) if method else 0

    def call(self, name, *arguments):
        return getattr(self.opened, name)(*arguments)

    def descriptor(self, kind, fake):
        """Return our own descriptor for one of the fake's."""
        if fake not in self.made:
            self.made[fake] = c_void_p()
            self.call(f"cudnnCreate{kind}Descriptor", byref(self.made[fake]))
        return self.made[fake]

    def cudnnSetDropoutDescriptor(self, given):
        return self.call("cudnnSetDropoutDescriptor", self.descriptor("Dropout", given["desc"]),
                         self.handle, c_float(0), None, c_size_t(0), c_ulonglong(0))  # fmt: skip

    def cudnnSetRNNDescriptor_v8(self, given):
        numbers = [c_int(int(given[name])) for name in RNN]
        return self.call("cudnnSetRNNDescriptor_v8", self.descriptor("RNN", given["desc"]),
                         *numbers, self.descriptor("Dropout", given["dropout"]),
                         c_uint32(int(given["flags"])))  # fmt: skip

    def cudnnSetRNNDataDescriptor(self, given):
        numbers = [c_int(int(given[name])) for name in ("type", "layout", "T", "N", "width")]
        fill = ctypes.create_string_buffer(8) if given["fill"] == "1" else None
        return self.call("cudnnSetRNNDataDescriptor", self.descriptor("RNNData", given["desc"]),
                         *numbers, ints(given["lengths"]), fill)  # fmt: skip

    def cudnnSetTensorNdDescriptor(self, given):
        return self.call("cudnnSetTensorNdDescriptor", self.descriptor("Tensor", given["desc"]),
                         c_int(int(given["type"])), c_int(3), ints(given["shape"]),
                         ints(given["strides"]))  # fmt: skip

    def cudnnGetRNNWeightSpaceSize(self, given):
        return self.call("cudnnGetRNNWeightSpaceSize", self.handle,
                         self.descriptor("RNN", given["rnn"]), byref(c_size_t()))  # fmt: skip

    def cudnnGetRNNTempSpaceSizes(self, given):
        work, reserve = c_size_t(), c_size_t()
        rnn, x = self.descriptor("RNN", given["rnn"]), self.descriptor("RNNData", given["x_desc"])
        status = self.call("cudnnGetRNNTempSpaceSizes", self.handle, rnn, c_int(int(given["mode"])),
                           x, byref(work), byref(reserve))  # fmt: skip
        self.work[given["rnn"]] = work
        return 0 if work.value and status in NO_DEVICE else status

    def cudnnRNNForward(self, given):
        def at(name):
            return None if given[name] == "(nil)" else c_void_p(int(given[name], 16))

        def described(kind, name):
            return None if given[name] == "(nil)" else self.descriptor(kind, given[name])

        status = in_a_child(lambda: self.call(
            "cudnnRNNForward", self.handle, described("RNN", "rnn"), c_int(int(given["mode"])),
            at("lengths"), described("RNNData", "x_desc"), at("x"), described("RNNData", "y_desc"),
            at("y"), described("Tensor", "h_desc"), at("hx"), at("hy"),
            described("Tensor", "c_desc"), at("cx"), at("cy"),
            c_size_t(int(given["weight_nbytes"])), at("weights"), self.work[given["rnn"]],
            at("work"), c_size_t(int(given["reserve_nbytes"])), at("reserve"),
        ))  # fmt: skip
        # before 9.13 the status of a failed call of CUDA may be 4000
        if status in NO_DEVICE or (status == 4000 and self.version < 91300):
            self.forwards += 1
            return 0
        return status or DIED


def ints(text):
    numbers = [int(number) for number in text.split(",")]
    return (c_int * len(numbers))(*numbers)


def in_a_child(work):
    """Return the number that work() returns in a child process: without a device it may crash."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, str(work()).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as said:
        return int(said.read() or DIED)


def main():
    replay = Replay(sys.argv[1])
    tried = ([replay.again(line), line] for line in sys.stdin)
    refused = next((one for one in tried if one[0]), None)
    print(json.dumps({"version": replay.version, "forwards": replay.forwards, "refused": refused}))


if __name__ == "__main__":
    main()
