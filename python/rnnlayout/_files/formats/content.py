"""What a file is, by its first bytes: for one whose suffix does not say it, or says it wrongly."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rnnlayout._files.tensor_sets.file_limits import InputFile, open_zip
from rnnlayout._model.errors import FileError

# What files begin with; the index of a TensorFlow checkpoint ends with it.
ZIP, NPY = b"PK\x03\x04", b"\x93NUMPY"
HDF5 = b"\x89HDF\r\n\x1a\n"
MXNET = (0x112).to_bytes(16, "little")
TORCH = re.compile(  # the first pickle is 0x1950a86a20f9469cfc6c
    rb"\x80[\2-\5](?:\x95.{8})?\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19\.|L119547037146038801333356L\n\.",
    re.DOTALL,
)
_TAR_AT, _TAR = 257, b"ustar"
_OLD_TORCH = {b"sys_info", b"pickle", b"storages", b"tensors"}  # members of torch's tar archives
TENSORFLOW = 0xDB4775248B80FB57.to_bytes(8, "little")

_HEAD = 4096
_LISTED = 3  # names of a zip archive
# a member's name -> the format of the archive
_MEMBERS = (
    (re.compile(r"model\.weights\.h5"), ".keras"),
    (re.compile(r"[^/]+/(data\.pkl|constants\.pkl|code/.*|archive_format)"), ".pt"),
    (re.compile(r".+\.npy"), ".npz"),
)
# ModelProto's fields, in a file of which each is one of these (onnx.proto): number -> wire type
_ONNX = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
_GRAPH = 7
_MSGPACK = re.compile(rb"[\x81-\x8f](?:[\xa1-\xbf]|\xd9.)[ -~]", re.DOTALL)  # a map, its first key
_SHARDS = (
    "its tensors are in the files that it names: read those one by one; for an RNN with tensors in"
    " two of them, pass rl.Weights() one dict of both files' tensors"
)
_STATE_DICT = (
    "in Python, rl.Weights({name: numpy.array(value, 'f4') for name, value in"
    " json.load(open(path)).items()}, prefix=...)"
)
# What begins the text of an object, or is soon after -> what it is, suffix, repair
_JSON = (
    (r'"in_shape"', "a model of RTNeural", ".json", ""),
    (
        r'"version"\s*:\s*"[^"]*"\s*,\s*"(metadata|architecture|config)"',
        "a model of Neural Amp Modeler",
        ".nam",
        "",
    ),
    # Hugging Face's .index.json
    (r'(?=.*"weight_map")', "the index of a sharded checkpoint", "", _SHARDS),
    (r'(?=.*"weight_[ih]h(_l0)?"|"[^"]*\.weight_ih_l0")', "a state_dict as JSON", "", _STATE_DICT),
    (
        r'(?=.*"class_name")',
        "the config of a Keras model",
        "",
        "it has no weights: read the file that has them, and pass this one as config=",
    ),
    (r'(?=.*"input_size")', "the description of a .bin file", "", "read the .bin file itself"),
)
_MOST_FIELDS = 10_000


@dataclass(frozen=True)
class Content:
    """What a file is, for a message. suffix: the suffix of the format that reads it, "" if none
    does. repair: if none does, what to do instead; "" if that is not known.
    """

    what: str
    suffix: str
    repair: str = ""


def content_of(path: Path) -> Content | None:
    """Return what a file is, None if it is nothing that is known."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = file.read(_HEAD)
        if head.startswith(ZIP):
            return _content_of_zip(path)
        if head.startswith(HDF5):
            return Content("an HDF5 file", ".h5")
        if head.startswith(NPY):
            return Content("a NumPy array", ".npy")
        if head.startswith(MXNET):
            return Content("a file of MXNet", ".params")
        if TORCH.match(head):
            return Content("a PyTorch file", ".pt")
        if tar := content_of_tar(head):
            return tar
        if re.match(rb"\x80[\2-\5]", head):
            return Content("a pickle", ".pkl")
        if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= size - 8:
            return Content("a safetensors file", ".safetensors")
        for begins, *content in _JSON:
            if re.match(rb"\s*\{\s*" + begins.encode(), head, re.DOTALL):
                return Content(*content)
        if _MSGPACK.match(head):
            return Content("a msgpack file", ".msgpack")
        file.seek(max(0, size - len(TENSORFLOW)))
        if file.read() == TENSORFLOW:
            return Content("the index of a TensorFlow checkpoint", ".index")
        return Content("an ONNX model", ".onnx") if _is_onnx(file, size) else None


def content_of_tar(head: bytes) -> Content | None:
    """Return what a tar archive with this beginning is, None if it is not one."""
    if not head[_TAR_AT:].startswith(_TAR):
        return None
    names = {head[at : at + 100].rstrip(b"\0") for at in range(0, len(head[:_HEAD]), 512)}
    if names & _OLD_TORCH:
        repair = "load it with torch, and save its state_dict() with torch.save()"
        return Content("a tar archive, written by torch before 0.2", "", repair)
    return Content("a tar archive", "", "unpack it (tar -xf), and read the files that it has")


def _content_of_zip(path: Path) -> Content:
    try:
        with open_zip(InputFile(path)) as archive:
            names = archive.namelist()
    except FileError:
        return Content("a damaged zip archive", "")
    for pattern, suffix in _MEMBERS:
        if name := next(filter(pattern.fullmatch, names), None):
            return Content(f"a zip archive with {name}", suffix)
    return Content(f"a zip archive with {', '.join(names[:_LISTED]) or 'no members'}", "")


def _is_onnx(file: IO[bytes], size: int) -> bool:
    """Return whether the file is a protobuf message with the fields of a ModelProto."""
    at, numbers = 0, set()
    for _ in range(_MOST_FIELDS):
        if at >= size:
            break
        file.seek(at)
        data = file.read(20)  # two integers
        try:
            key, used = read_varint(data, 0)
            value, used = read_varint(data, used)
        except FileError:
            return False
        number, kind = key >> 3, key & 7
        if _ONNX.get(number) != kind:
            return False
        numbers.add(number)
        at += used + (value if kind else 0)
    return at == size and _GRAPH in numbers


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return the integer of a protocol buffer that begins at a byte, and where it ends."""
    value = 0
    for k, byte in enumerate(data[at : at + 10]):
        value |= (byte & 127) << 7 * k
        if byte < 128:
            return value, at + k + 1
    raise FileError("an integer is cut short")
