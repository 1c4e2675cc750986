"""Recognise the format of a file by the first bytes, for files with a missing or wrong suffix."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import IO

from rnnlayout._files.tensor_sets.file_limits import InputFile, open_zip
from rnnlayout._model.errors import Ask, FileError, Message

from .foreign import CONVERTED, Content, foreign_content, paddle_program, torch7

# First bytes of formats; TENSORFLOW: the last bytes of the index of a checkpoint.
ZIP, NPY = b"PK\x03\x04", b"\x93NUMPY"
HDF5 = b"\x89HDF\r\n\x1a\n"
MXNET = (0x112).to_bytes(16, "little")
TORCH = re.compile(  # the first pickle is 0x1950a86a20f9469cfc6c
    rb"\x80[\2-\5](?:\x95.{8})?\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19\.|L119547037146038801333356L\n\.",
    re.DOTALL,
)
_TAR_AT, _TAR = 257, b"ustar"
_TAR_ARCHIVE = "a tar archive"
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
# names of files of weights in an archive of files; the first name is Stable-Baselines3's
_FILES = (
    re.compile(r"policy\.pth"),
    re.compile(r".+\.(pth?|ckpt|bin|safetensors|npz|keras|h5|hdf5|onnx|tflite|msgpack)"),
)
# number -> wire type of ModelProto's fields (onnx.proto); an ONNX file has no further fields
_ONNX = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
_GRAPH = 7
_MSGPACK = re.compile(rb"[\x81-\x8f](?:[\xa1-\xbf]|\xd9.)[ -~]", re.DOTALL)  # a map, its first key
# The root element of an XML or HTML file, after a byte order mark, declarations and comments.
_ROOT = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s*+(?:<!--.*?-->|<[?!](?!--)[^>]*>))*+\s*<([A-Za-z][\w.:-]*)", re.DOTALL
)
_XML = re.compile(rb"(?:\xef\xbb\xbf)?\s*<(\?xml|!doctype)", re.IGNORECASE)
_PAGES = ("html", "error")  # a page of a web server, an error of a storage service
# first bytes, program, command that decompresses, suffix that the command needs
_COMPRESSED = (
    (b"\x1f\x8b", "gzip", "gunzip", ".gz"),
    (b"\x28\xb5\x2f\xfd", "zstd", "zstd -d", ".zst"),
    (b"BZh", "bzip2", "bunzip2", ".bz2"),
    (b"\xfd7zXZ\0", "xz", "unxz", ".xz"),
)
# pattern at the start of a JSON object, description, suffix, repair
_JSON = (
    (r'"in_shape"', "a model of RTNeural", ".json", ""),
    (
        r'"version"\s*:\s*"[^"]*"\s*,\s*"(metadata|architecture|config)"',
        "a model of Neural Amp Modeler",
        ".nam",
        "",
    ),
    (
        r'(?=.*"weight_map"\s*:\s*\{\s*"/)',
        "the index of Keras's weights in parts",
        ".weights.json",
        "",
    ),
    (r'(?=.*"weight_map"\s*:\s*\{\s*"[^/])', "the index of a model in parts", ".index.json", ""),
    (
        # the first tensor is a list of numbers, or of lists, in objects or not
        r'("model_data"\s*:|"state_dict"\s*:\s*\{|'
        r'("[^"]*"\s*:\s*\{\s*)*"[^"]*"\s*:\s*\[[\s\[]*[-\d])',
        "a state_dict as JSON",
        ".state_dict.json",
        "",
    ),
    (
        r'(?=.*"class_name")',
        "the config of a Keras model",
        "",
        Message(
            "it has no weights: read the file that has them, and pass this one as ",
            Ask("keras_config"),
        ),
    ),
    (
        r'"schema"(?=.*"cell")(?=.*"input_size")',
        "the description of a .bin file",
        "",
        "read the .bin file itself",
    ),
)
_TFJS_MANIFEST = re.compile(  # of deeplearn.js: an object of objects
    rb'\s*\[\s*\{\s*"(?:paths"\s*:\s*\[\s*"|weights"\s*:\s*\[\s*\{\s*"name")'
    rb'|\s*\{\s*"[^"]*"\s*:\s*\{\s*"filename"\s*:\s*"'
)
_TFJS_MODEL = re.compile(rb'\s*\{.*"modelTopology"\s*:', re.DOTALL)
_PADDLE_PROGRAM = re.compile(rb'\s*\{\s*"base_code"\s*:\s*\{\s*"magic"\s*:\s*"pir"')
# An object of Torch 7: its type and number, then a text with the version of the format.
_TORCH7 = re.compile(rb"\x04\0{3}.{4}\x03\0{3}V \d", re.DOTALL)
_TFJS_GRAPH = re.compile(
    rb'\s*\{.*("format"\s*:\s*"graph-model"|"modelTopology"\s*:\s*\{\s*"node")', re.DOTALL
)
_ORT = "pass the .onnx file that it was made from"
_DOWNLOAD = (
    "open it in a browser to see why (a login, a wrong address), and download the file again"
)
# suffix of files that are not read -> description, repair
_UNREADABLE = {
    ".ort": ("a model in onnxruntime's .ort format", _ORT),
    ".meta": ("the graph of a TensorFlow checkpoint", "pass the .index file beside it"),
}
_DATA = re.compile(r"(.+)\.data-\d{5}-of-\d{5}")  # of a TensorFlow checkpoint
_MOST_FIELDS = 10_000

DISTCP = Content(
    "a checkpoint of torch.distributed",
    "",
    "join its parts with torch.distributed.checkpoint.format_utils.dcp_to_torch_save(folder,"
    " 'model.pt'), and pass that file",
)
_DISTCP_METADATA = b"torch.distributed.checkpoint.metadata"  # the first name in its .metadata
# Contents that the first bytes alone identify.
_MAGIC = {
    HDF5: Content("an HDF5 file", ".h5"),
    NPY: Content("a NumPy array", ".npy"),
    MXNET: Content("a file of MXNet", ".params"),
    b"GGUF": Content("a GGUF model", "", CONVERTED),
    **dict.fromkeys((b"lmgg", b"fmgg", b"tjgg"), Content("a model of ggml", "", CONVERTED)),
    b"7767517\n": Content("the graph of an ncnn model", "", CONVERTED),
    b"version https://git-lfs.github.com/spec/": Content(
        "a pointer of Git LFS, not the file",
        "",
        "run `git lfs pull` in the repository, or download the file itself",
    ),
}


def content_of(path: Path) -> Content | None:
    """Return the content of a file, None if unknown."""
    if path.name.endswith(".distcp"):  # files of torch.save(), one after another
        return DISTCP
    content = _content_by_bytes(path)
    is_archive = content is None or content.description in (_TAR_ARCHIVE, "compressed with gzip")
    if is_archive and (foreign := foreign_content(path)):
        return foreign
    if content:
        return content
    if path.name.lower().endswith(".onnx.data"):
        return Content("the weights of an ONNX model", "", f"pass {path.name[:-5]} beside it")
    if match := _DATA.fullmatch(path.name):
        return Content(
            "the numbers of a TensorFlow checkpoint", "", f"pass {match[1]}.index beside it"
        )
    description, repair = _UNREADABLE.get(path.suffix.lower(), ("", ""))
    return Content(description, "", repair) if description else None


def _content_by_bytes(path: Path) -> Content | None:
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = file.read(_HEAD)
        if head.startswith(ZIP):
            try:
                with open_zip(InputFile(path)) as archive:
                    names = archive.namelist()
            except FileError:
                return Content("a damaged zip archive", "")
            for pattern, suffix in _MEMBERS:
                if name := next(filter(pattern.fullmatch, names), None):
                    return Content(f"a zip archive with {name}", suffix)
            for name in (name for pattern in _FILES for name in filter(pattern.fullmatch, names)):
                folder = f"{path.with_suffix('')}-files"
                command = shlex.join(["python", "-m", "zipfile", "-e", str(path), folder])
                repair = f"unpack it, {command}, and pass {folder}/{name}"
                return Content(f"a zip archive of files such as {name}", "", repair)
            listed = ", ".join(names[:_LISTED]) or "no members"
            return Content(f"a zip archive with {listed}", "")
        for magic, content in _MAGIC.items():
            if head.startswith(magic):
                return content
        for magic, program, command, suffix in _COMPRESSED:
            if head.startswith(magic):
                repair = _decompression(path.name, command, suffix)
                return Content(f"compressed with {program}", "", repair)
        if TORCH.match(head):
            return Content("a PyTorch file", ".pt")
        if head[_TAR_AT:].startswith(_TAR):
            members = {head[at : at + 100].rstrip(b"\0") for at in range(0, len(head), 512)}
            if members & _OLD_TORCH:
                repair = "load it with torch, and save its state_dict() with torch.save()"
                return Content("a tar archive, written by torch before 0.2", "", repair)
            repair = "unpack it (tar -xf), and read the files that it has"
            return Content(_TAR_ARCHIVE, "", repair)
        if re.match(rb"\x80[\2-\5]", head):
            return DISTCP if _DISTCP_METADATA in head else Content("a pickle", ".pkl")
        if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= size - 8:
            return Content("a safetensors file", ".safetensors")
        if _PADDLE_PROGRAM.match(head):
            return paddle_program(path)
        if _TORCH7.match(head):
            return torch7(path)
        if tfjs := _content_of_tfjs(head):
            return tfjs
        for start, *fields in _JSON:
            if re.match(rb"\s*\{\s*" + start.encode(), head, re.DOTALL):
                return Content(*fields)
        if head[4:8] == b"TFL3":
            return Content("a TFLite model", ".tflite")
        if head[4:8] == b"ORTM":
            return Content("a model in onnxruntime's .ort format", "", _ORT)
        if xml := _content_of_xml(head):
            return xml
        if _MSGPACK.match(head):
            return Content("a msgpack file", ".msgpack")
        file.seek(max(0, size - len(TENSORFLOW)))
        if file.read() == TENSORFLOW:
            return Content("the index of a TensorFlow checkpoint", ".index")
        return Content("an ONNX model", ".onnx") if _is_onnx(file, size) else None


def _decompression(name: str, command: str, suffix: str) -> str:
    """Return the advice to decompress a file; the programs refuse files without their suffix."""
    if name.lower().endswith(suffix):
        return f"decompress it ({command} -k {quote(name)}) and pass {name[: -len(suffix)]}"
    return f"decompress it ({command} < {quote(name)} > {quote(f'new-{name}')}) and pass new-{name}"


def _content_of_tfjs(head: bytes) -> Content | None:
    """Return the content of a JSON file of TensorFlow.js: a model, or the list of its weights."""
    if _TFJS_MANIFEST.match(head):
        return Content("the list of the weights of a TensorFlow.js model", ".tfjs.json")
    if _TFJS_GRAPH.match(head):
        return Content("a graph model of TensorFlow.js", "", CONVERTED)
    is_layers = _TFJS_MODEL.match(head)
    return Content("a layers model of TensorFlow.js", ".tfjs.json") if is_layers else None


def _content_of_xml(head: bytes) -> Content | None:
    """Return the content of a file of XML or HTML, by the root element."""
    match = _ROOT.match(head)
    root = match[1].decode() if match else ""
    if root.lower() in _PAGES:
        return Content("a web page, not a file of weights", "", _DOWNLOAD)
    if root == "net":
        repair = f"its numbers are in a .bin file: {CONVERTED}"
        return Content("the graph of an OpenVINO model", "", repair)
    return Content(f"an XML file{f' of <{root}>' * bool(root)}", "") if _XML.match(head) else None


# --------------------------------------------------------------------------------- protocol buffers


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
    """Return the integer that begins at byte `at` of a protocol buffer, and the end of the
    integer."""
    value = 0
    for k, byte in enumerate(data[at : at + 10]):
        value |= (byte & 127) << 7 * k
        if byte < 128:
            return value, at + k + 1
    raise FileError("an integer is cut short")


def message_fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the number and the value of each field of a message: an integer, or bytes."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = read_varint(data, at)
            yield key >> 3, value
            continue
        size, at = read_varint(data, at) if kind == 2 else ({1: 8, 5: 4}.get(kind, -1), at)
        if size < 0 or at + size > len(data):
            raise FileError("a protocol buffer is damaged")
        yield key >> 3, data[at : at + size]
        at += size
