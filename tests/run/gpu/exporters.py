"""Arrays on a GPU as other packages export them by DLPack, made from an address."""

import ctypes
import sys
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_void_p, py_object

CPU, CUDA, PINNED, ROCM, MANAGED = 1, 2, 3, 10, 13
TYPES = {"float16": (2, 16), "float32": (2, 32), "float64": (2, 64), "bfloat16": (4, 16),
         "int32": (0, 32), "complex64": (5, 64), "bool8": (6, 8)}  # fmt: skip
DELETER = ctypes.CFUNCTYPE(None, c_void_p)


class Managed(Structure):
    """DLManagedTensor."""

    _fields_ = [
        ("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
        ("byte_offset", ctypes.c_uint64), ("context", c_void_p), ("deleter", DELETER),
    ]  # fmt: skip


NAME, USED = b"dltensor", b"used_dltensor"  # capsules keep the pointer


def capsule_function(name, returns, *arguments):
    return ctypes.PYFUNCTYPE(returns, *arguments)((f"PyCapsule_{name}", ctypes.pythonapi))


new_capsule = capsule_function("New", py_object, c_void_p, c_char_p, c_void_p)
is_capsule = capsule_function("IsValid", c_int, c_void_p, c_char_p)
pointer_of = capsule_function("GetPointer", c_void_p, c_void_p, c_char_p)
set_name = capsule_function("SetName", c_int, c_void_p, c_char_p)


@DELETER
def drop(capsule):
    """Destroy a capsule that nobody took, as exporters do."""
    if is_capsule(capsule, NAME):
        address = pointer_of(capsule, NAME)
        Managed.from_address(address).deleter(address)


class Exporter:
    """An array with DLPack. deleted: number of calls of its deleter, which must not see an error;
    streams: those asked with."""

    def __init__(self, address, shape, dtype="float32", device=(CUDA, 0), strides=None, offset=0,
                 lanes=1, gives=None):  # fmt: skip
        self.address, self.shape, self.dtype, self.device = address, tuple(shape), dtype, device
        self.strides, self.offset, self.lanes, self.gives = strides, offset, lanes, gives
        self.deleted, self.streams, self.kept = 0, [], []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        if isinstance(self.gives, Exception):
            raise self.gives
        return self.gives or self.capsule()

    def describe(self, made):
        """Write the fields of a DLTensor, with which a Managed begins."""
        shape = (c_int64 * len(self.shape))(*self.shape)
        strides = self.strides and (c_int64 * len(shape))(*self.strides)
        self.kept.append((made, shape, strides))
        made.data, made.ndim, made.lanes, made.byte_offset = (
            self.address, len(shape), self.lanes, self.offset)  # fmt: skip
        made.device_type, made.device_id = self.device
        made.code, made.bits = TYPES.get(self.dtype, (9, 9))
        made.shape, made.strides = shape, strides

    def capsule(self):
        made = Managed()
        self.describe(made)

        def delete(_):
            self.deleted += sys.exc_info()[0] is None

        made.deleter = DELETER(delete)  # kept for good: it cannot be freed while it runs
        return new_capsule(ctypes.addressof(made), NAME, ctypes.cast(drop, c_void_p))


class Exchange(Structure):
    """DLPackExchangeAPI, without the functions that are not used."""

    BORROW = ctypes.PYFUNCTYPE(c_int, py_object, c_void_p)
    STREAM = ctypes.PYFUNCTYPE(c_int, c_int32, c_int32, POINTER(c_void_p))
    _fields_ = [("version", c_int32 * 2), ("unused", c_void_p * 4), ("borrow", BORROW),
                ("current_stream", STREAM)]  # fmt: skip


def exchange_of(home):
    """Return the capsule for a class of exporters whose library works in the stream home[0]."""

    def borrow(array, to):
        array.describe(Managed.from_address(to))
        return 0

    def current_stream(kind, number, to):
        to[0] = home[0]
        return 0

    made = Exchange((c_int32 * 2)(1, 3), (c_void_p * 4)(), Exchange.BORROW(borrow),
                    Exchange.STREAM(current_stream))  # fmt: skip
    exchange_of.kept.append(made)
    return new_capsule(ctypes.addressof(made), b"dlpack_exchange_api", None)


exchange_of.kept = []


class Consumed:
    """What a consumer has taken of a capsule; the exporter has it back when this is gone."""

    def __init__(self, capsule):
        self.managed = made = Managed.from_address(pointer_of(id(capsule), NAME))
        set_name(id(capsule), USED)
        n = made.ndim
        self.address, self.offset, self.shape = made.data, made.byte_offset, tuple(made.shape[:n])
        self.strides = tuple(made.strides[:n]) if made.strides else None
        self.dtype = next(k for k, v in TYPES.items() if v == (made.code, made.bits))
        self.device = made.device_type, made.device_id

    def __del__(self):
        self.managed.deleter(ctypes.addressof(self.managed))


def address_of(array):
    """Return the address of an exporter's array or of a DeviceArray."""
    found = array if hasattr(array, "address") else Consumed(array.__dlpack__())
    return found.address + found.offset
