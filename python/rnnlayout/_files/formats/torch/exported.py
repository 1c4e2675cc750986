"""Programs that torch.export.save() wrote, .pt2: the weights and constants, by the names that they
have in the state_dict of the module that was exported. The program itself is not looked at.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Mapping
from reprlib import repr as short
from typing import Any

from rnnlayout._files.formats.pickles.machine import UnreadObject
from rnnlayout._files.tensor_sets.file_limits import InputFile, parse_json_object, read_member
from rnnlayout._model.errors import FileError

_CONFIG = re.compile(r"([^/]+/data/(weights|constants)/)([^/]+)_\2_config\.json")
# torch/_export/serde/schema.py, ScalarType
_DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32",
    8: "float64", 10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16",
    29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz",
    33: "float8_e8m0fnu", 34: "uint32", 35: "uint64",
}  # fmt: skip
# dtype, member, offset, shape, strides -> a tensor
MakeTensor = Callable[[str, zipfile.ZipInfo, Any, list[Any], list[Any]], Any]


def is_exported(names: Mapping[str, Any]) -> bool:
    """Is a zip archive with these members one of torch.export?"""
    return any(
        name == "serialized_exported_program.json" or name.endswith("/archive_format")
        for name in names
    )


def read_exported(file: InputFile, archive: zipfile.ZipFile, make: MakeTensor) -> dict[str, Any]:
    """Return the tensors of the program by name; of several programs, in a dict for each."""
    members = {info.filename: info for info in archive.infolist()}
    programs: dict[str, dict[str, Any]] = {}
    for name in members:
        if match := _CONFIG.fullmatch(name):
            found = programs.setdefault(match[3], {})
            for key, one in _payloads(file, archive, members[name]).items():
                if key in found:
                    raise FileError(f"{file}: two tensors would both be named {key[:100]!r}")
                found[key] = _tensor(f"{file}: {key[:100]!r}", match[1], members, one, make)
    if not programs:
        raise FileError(
            f"{file} is an archive of torch.export without the weights as torch 2.13 writes them:"
            " if you trust it, write it again with that version:"
            " torch.export.save(torch.export.load(path), new)"
        )
    return programs if len(programs) > 1 else next(iter(programs.values()))


def _payloads(file: InputFile, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> dict[str, Any]:
    what = f"{file}: member {info.filename[:100]!r}"
    if info.compress_type != zipfile.ZIP_STORED:
        raise FileError(f"{what} is compressed, which torch never does")
    found = parse_json_object(read_member(archive, info.filename), what).get("config")
    if not isinstance(found, dict):
        raise FileError(f"{what} has no config")
    return found


def _tensor(
    what: str, folder: str, members: Mapping[str, zipfile.ZipInfo], one: Any, make: MakeTensor
) -> Any:
    told = one.get("tensor_meta") if isinstance(one, dict) else None
    if isinstance(one, dict) and one.get("use_pickle"):
        return UnreadObject("a pickled object of torch.export")
    if not isinstance(told, dict) or told.get("dtype") not in list(_DTYPES):
        raise FileError(f"{what} is not described as a tensor of numbers")
    name = one.get("path_name")
    info = members.get(folder + name) if isinstance(name, str) else None
    if info is None:
        raise FileError(f"{what}: the archive has no member {short(name)} for it")
    sizes, strides = (told.get(key) for key in ("sizes", "strides"))
    if not isinstance(sizes, list) or not isinstance(strides, list):
        raise FileError(f"{what} has no shape")
    offset, *numbers = (
        n.get("as_int") if isinstance(n, dict) else None
        for n in (told.get("storage_offset"), *sizes, *strides)
    )
    shape = numbers[: len(sizes)], numbers[len(sizes) :]
    return make(_DTYPES[told["dtype"]], info, offset, *shape)
