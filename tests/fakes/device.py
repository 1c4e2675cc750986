"""A program on the fakes, by ctypes: a device, memory, and whole forward calls.

For tests of the fakes, in a process of their own (a broken rule ends it):

    d = Device(folder)                     # of libcudnn; cuInit, and the context is pushed
    f = d.forward({"rnn": {"cell": 3}})    # a question as in ask.py, its x, y and descriptors
    f.fill("x", bytes_of_x)                # x, y, hx, hy, cx, cy, weights; others are NaN
    f.run(); d.sync(); f.bytes("y")
"""

import ctypes
from ctypes import byref, c_longlong, c_size_t, c_uint, c_ulonglong, c_void_p

from fakes import ask

NBYTES = {0: 4, 1: 8, 2: 2, 9: 2}


class Failed(Exception):
    """A call of the driver or of cuDNN failed; .status"""

    def __init__(self, call, status):
        super().__init__(f"{call}: {status}")
        self.status = status


class Device:
    def __init__(self, folder, context=True):
        self.library = ask.ask_cudnn.Library(folder)
        self.driver = ctypes.CDLL("libcuda.so.1")  # which libcudnn has opened
        self.driver.fake_alloc.restype = c_ulonglong
        self.driver.fake_live.restype = self.driver.fake_calls.restype = c_longlong
        self.cu("cuInit", c_uint(0))
        self.context, self.handle = c_void_p(), c_void_p()
        if context:
            self.cu("cuDevicePrimaryCtxRetain", byref(self.context), 0)
            self.cu("cuCtxPushCurrent_v2", self.context)

    def cu(self, call, *arguments):
        status = getattr(self.driver, call)(*arguments)
        if status:
            raise Failed(call, status)

    def cudnn(self, call, *arguments):
        status = getattr(self.library._library, call)(*arguments)
        if status:
            raise Failed(call, status)

    def new_handle(self):
        self.handle = c_void_p()
        self.cudnn("cudnnCreate", byref(self.handle))
        return self.handle

    def alloc(self, nbytes):
        at = c_ulonglong()
        self.cu("cuMemAlloc_v2", byref(at), c_size_t(nbytes))
        return at.value

    def free(self, at):
        self.cu("cuMemFree_v2", c_ulonglong(at))

    def write(self, at, data):
        self.driver.fake_write(c_ulonglong(at), data, c_size_t(len(data)))

    def read(self, at, nbytes):
        data = ctypes.create_string_buffer(nbytes)
        self.driver.fake_read(c_ulonglong(at), data, c_size_t(nbytes))
        return data.raw

    def upload(self, at, host, nbytes, stream=None):
        self.cu("cuMemcpyHtoDAsync_v2", c_ulonglong(at), host, c_size_t(nbytes), stream)

    def download(self, host, at, nbytes, stream=None):
        self.cu("cuMemcpyDtoHAsync_v2", host, c_ulonglong(at), c_size_t(nbytes), stream)

    def memset(self, at, value, nbytes, stream=None):
        self.cu("cuMemsetD8Async", c_ulonglong(at), ctypes.c_ubyte(value), c_size_t(nbytes), stream)

    def stream(self, flags=1):
        made = c_void_p()
        self.cu("cuStreamCreate", byref(made), c_uint(flags))
        return made

    def event(self):
        made = c_void_p()
        self.cu("cuEventCreate", byref(made), c_uint(2))
        return made

    def sync(self, stream=None):
        self.cu("cuStreamSynchronize", stream)

    def live(self):
        kinds = ["context", "pushed", "memory", "stream", "event", "graph", "graph_exec",
                 "handle", "dropout", "rnn", "rnn_data", "tensor"]  # fmt: skip
        found = {kind: self.driver.fake_live(kind.encode()) for kind in kinds}
        return {kind: count for kind, count in found.items() if count}

    def forward(self, question):
        if not self.handle:
            self.new_handle()
        return Forward(self, question)

    def close(self):
        if self.handle:
            self.cudnn("cudnnDestroy", self.handle)
        self.cu("cuCtxPopCurrent_v2", None)
        self.cu("cuDevicePrimaryCtxRelease_v2", 0)


class Forward(ask.Asked):
    """A whole call of cudnnRNNForward on memory of its own."""

    def __init__(self, device, question):
        super().__init__(device.library, {"call": "forward", **question})
        self.device = device
        q, rnn = self.q, self.q["rnn"]
        unit = NBYTES[rnn["dtype"]]
        layers = rnn["L"] * (1 + rnn["direction"])
        rows = q["x"]["T"] * q["x"]["N"]
        h, c = layers * q["x"]["N"] * rnn["P"] * unit, layers * q["x"]["N"] * rnn["H"] * unit
        self.sizes_of = {
            "x": rows * rnn["I"] * unit, "y": rows * q["y"]["width"] * unit,
            "hx": h, "hy": h, "cx": c, "cy": c,
        }  # fmt: skip
        if status := self.prepare():
            raise Failed("preparation", status)
        self.sizes_of |= {"weights": self.weights.value, "workspace": self.workspace.value}
        self.at = {name: device.alloc(nbytes) for name, nbytes in self.sizes_of.items()}

    @property
    def handle(self):
        return self.device.handle

    def address(self, name, number):
        at = self.at.get(name)
        return self.argument(name, at and c_void_p(at + self.q["shift"].get(name, 0)))

    def prepare(self):
        """Set the descriptors and sizes. Returns a status."""
        self.create()
        for name in ask.STEPS:
            if status := getattr(self, name)():
                return status
        return 0

    def fill(self, name, data):
        assert len(data) == self.sizes_of[name], (name, len(data), self.sizes_of[name])
        self.device.write(self.at[name], data)

    def zeros(self):
        """Fill all inputs with zeros."""
        for name in ("x", "hx", "cx", "weights"):
            self.fill(name, bytes(self.sizes_of[name]))
        return self

    def run(self):
        if status := self.forward():
            raise Failed("cudnnRNNForward", status)
        return self

    def bytes(self, name):
        return self.device.read(self.at[name], self.sizes_of[name])

    def close(self):
        for at in self.at.values():
            self.device.free(at)
        kinds = [("RNN", self.rnn), ("Dropout", self.dropout), ("RNNData", self.x),
                 ("RNNData", self.y), ("Tensor", self.h), ("Tensor", self.c)]  # fmt: skip
        for kind, made in kinds:
            self.call(f"cudnnDestroy{kind}Descriptor", made)


def main():
    """Run forward calls from a pickle and write their results as another."""
    import pickle
    import sys

    folder, given, made = sys.argv[1:]
    with open(given, "rb") as file:
        problems = pickle.load(file)
    device, found = Device(folder), []
    for question, arrays in problems:
        forward = device.forward(question)
        for name, data in arrays.items():
            forward.fill(name, data)
        forward.run()
        device.sync()
        found.append({name: forward.bytes(name) for name in ("y", "hy", "cy")})
        forward.close()
    device.close()
    assert device.live() == {}, device.live()
    with open(made, "wb") as file:
        pickle.dump(found, file)


if __name__ == "__main__":
    main()
