"""Arrays on a GPU as other packages export them, made from an address: no GPU is needed."""

import ctypes
from ctypes import (
    POINTER,
    Structure,
    c_int,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    py_object,
    pythonapi,
)

CPU, CUDA, PINNED, ROCM, MANAGED = 1, 2, 3, 10, 13
TYPES = {"float16": (2, 16), "float32": (2, 32), "float64": (2, 64), "bfloat16": (4, 16),
         "int32": (0, 32), "uint8": (1, 8), "complex64": (5, 64), "bool8": (6, 8)}  # fmt: skip


class Tensor(Structure):
    _fields_ = [
        ("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
        ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)), ("byte_offset", c_uint64),
    ]  # fmt: skip


DELETER = ctypes.CFUNCTYPE(None, c_void_p)


class Legacy(Structure):
    _fields_ = [("tensor", Tensor), ("context", c_void_p), ("deleter", DELETER)]


class Versioned(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("context", c_void_p),
                ("deleter", DELETER), ("flags", c_uint64), ("tensor", Tensor)]  # fmt: skip


FROM_OBJECT = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(c_void_p))
CURRENT = ctypes.CFUNCTYPE(c_int, c_int32, c_int32, POINTER(c_void_p))


class Exchange(Structure):
    _fields_ = [
        ("major", c_uint32), ("minor", c_uint32), ("previous", c_void_p), ("allocate", c_void_p),
        ("from_object", FROM_OBJECT), ("to_object", c_void_p), ("tensor_from_object", c_void_p),
        ("current_stream", CURRENT),
    ]  # fmt: skip


DESTRUCTOR = ctypes.CFUNCTYPE(None, c_void_p)
new_capsule = pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = py_object, [c_void_p, ctypes.c_char_p, c_void_p]
is_capsule = ctypes.PYFUNCTYPE(c_int, c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", pythonapi))
pointer_of = ctypes.PYFUNCTYPE(c_void_p, c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", pythonapi)
)
set_name = ctypes.PYFUNCTYPE(c_int, c_void_p, ctypes.c_char_p)(("PyCapsule_SetName", pythonapi))
NAMES = {Legacy: b"dltensor", Versioned: b"dltensor_versioned"}
USED = {kind: b"used_" + name for kind, name in NAMES.items()}  # capsules keep the pointer


def name_of(capsule):
    """Of a capsule in use or used: "used_dltensor" ..."""
    for name in NAMES.values():
        for found in (name, b"used_" + name):
            if is_capsule(id(capsule), found):
                return found.decode()
    raise AssertionError(capsule)


@DESTRUCTOR
def drop(capsule):
    """Destroy a capsule that nobody took, as exporters do."""
    for kind, name in NAMES.items():
        if is_capsule(capsule, name):
            address = pointer_of(capsule, name)
            kind.from_address(address).deleter(address)


class Exporter:
    """An array with DLPack. deleted: number of calls of its deleter; streams: those asked with."""

    def __init__(self, address, shape, dtype="float32", device=(CUDA, 0), strides=None,
                 version=(1, 1), flags=0, offset=0, lanes=1, deletes=True, gives=None):  # fmt: skip
        self.address, self.shape, self.dtype, self.device = address, tuple(shape), dtype, device
        self.strides, self.version, self.flags, self.offset = strides, version, flags, offset
        self.lanes, self.deletes, self.gives = lanes, deletes, gives
        self.deleted, self.streams, self.kept = 0, [], []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None):
        self.streams.append(stream)
        if isinstance(self.gives, Exception):
            raise self.gives
        return self.gives or self.capsule()

    def managed(self):
        made = (Versioned if self.version else Legacy)()
        if self.version:
            made.major, made.minor = self.version
            made.flags = self.flags
        tensor = made.tensor
        tensor.data, tensor.byte_offset = self.address, self.offset
        tensor.device_type, tensor.device_id = self.device
        tensor.code, tensor.bits = TYPES.get(self.dtype, (9, 9))
        tensor.lanes, tensor.ndim = self.lanes, len(self.shape)
        shape = (c_int64 * len(self.shape))(*self.shape)
        tensor.shape = shape
        kept = [made, shape]
        if self.strides is not None:
            strides = (c_int64 * len(self.shape))(*self.strides)
            tensor.strides = strides
            kept.append(strides)

        def delete(_):
            self.deleted += 1

        if self.deletes:
            made.deleter = DELETER(delete)
        self.kept.append(kept)  # for good: a function cannot be freed while it runs
        return made

    def capsule(self):
        made = self.managed()
        return new_capsule(ctypes.addressof(made), NAMES[type(made)], ctypes.cast(drop, c_void_p))


class OldExporter(Exporter):
    """An exporter from before DLPack 1.0."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs, version=None)

    def __dlpack__(self, *, stream=None):
        return super().__dlpack__(stream=stream)


def exchanging(current, version=(1, 3)):
    """A class of exporters as torch's tensors are: current() is the number of their stream."""

    @FROM_OBJECT
    def from_object(at, out):
        made = ctypes.cast(at, py_object).value.managed()
        out[0] = ctypes.addressof(made)
        return 0

    @CURRENT
    def current_stream(kind, device, out):
        assert kind == CUDA
        out[0] = current()
        return 0

    table = Exchange(*version, None, None, from_object, None, None, current_stream)
    capsule = new_capsule(ctypes.addressof(table), b"dlpack_exchange_api", None)
    more = {"__dlpack_c_exchange_api__": capsule, "functions": (table, from_object, current_stream)}
    return type("Tensorlike", (Exporter,), more)


class Consumed:
    """What a consumer has taken of a capsule; the exporter has it back when this is gone."""

    def __init__(self, capsule):
        (kind,) = (k for k, name in NAMES.items() if is_capsule(id(capsule), name))
        self.managed = kind.from_address(pointer_of(id(capsule), NAMES[kind]))
        set_name(id(capsule), USED[kind])
        tensor = self.managed.tensor
        n = tensor.ndim
        self.address, self.offset, self.shape = (
            tensor.data,
            tensor.byte_offset,
            tuple(tensor.shape[:n]),
        )
        self.strides = tuple(tensor.strides[:n]) if tensor.strides else None
        self.dtype = next(k for k, v in TYPES.items() if v == (tensor.code, tensor.bits))
        self.device = tensor.device_type, tensor.device_id

    def __del__(self):
        self.managed.deleter(ctypes.addressof(self.managed))


def address_of(array):
    """Return the address of an exporter's array or of a DeviceArray."""
    if hasattr(array, "address"):
        return array.address
    return Consumed(array.__dlpack__(stream=-1, max_version=(1, 0))).address
