"""Programs that torch.export.save() wrote, .pt2: the weights and constants, by the names that they
have in the state_dict of the module that was exported. Of the program itself only the calls of RNNs
are read, which show tanh or relu, and the axes of x.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Mapping
from reprlib import repr as short
from typing import Any

from rnnlayout._files.formats.pickles import UnreadObject
from rnnlayout._files.tensor_sets.file_limits import (
    InputFile,
    parse_json_object,
    read_json_member,
    read_member,
)
from rnnlayout._files.tensor_sets.tensor_set import ModuleClass
from rnnlayout._model.errors import FileError
from rnnlayout._sources.torch_modules import torch_fields

_CONFIG = re.compile(r"([^/]+/data/(weights|constants)/)([^/]+)_\2_config\.json")
# torch/_export/serde/schema.py, ScalarType
_DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32",
    8: "float64", 10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16",
    29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz",
    33: "float8_e8m0fnu", 34: "uint32", 35: "uint64",
}  # fmt: skip
_GRAPH = re.compile(r"[^/]+/models/([^/]+)\.json")
_CALL = re.compile(
    r"torch\.ops\.aten\.(lstm|gru|rnn_tanh|rnn_relu)(_cell)?\.(?:input|data|default)"
)
_WEIGHTS = ("params", "w_ih", "w_hh", "b_ih", "b_hh")  # arguments of these calls
# dtype, member, offset, shape, strides -> a tensor
MakeTensor = Callable[[str, zipfile.ZipInfo, Any, list[Any], list[Any]], Any]


class ExportedTensors(dict[str, Any]):
    """The tensors of a file by name; of several programs, in a dict for each. modules: what the
    programs say about the RNNs, by path."""

    def __init__(self, tensors: Mapping[str, Any], modules: Mapping[str, ModuleClass]) -> None:
        super().__init__(tensors)
        self.modules = modules


def read_exported(file: InputFile, archive: zipfile.ZipFile, make: MakeTensor) -> ExportedTensors:
    """Return the tensors of the programs, and what these say about their RNNs."""
    members = {info.filename: info for info in archive.infolist()}
    programs: dict[str, dict[str, Any]] = {}
    for name in members:
        if match := _CONFIG.fullmatch(name):
            found = programs.setdefault(match[3], {})
            what = f"{file}: member {name[:100]!r}"
            if members[name].compress_type != zipfile.ZIP_STORED:
                raise FileError(f"{what} is compressed, which torch never does")
            listed = parse_json_object(read_member(archive, name), what).get("config")
            if not isinstance(listed, dict):
                raise FileError(f"{what} has no config")
            for key, one in listed.items():
                if key in found:
                    raise FileError(f"{file}: two tensors would both be named {key[:100]!r}")
                found[key] = _tensor(f"{file}: {key[:100]!r}", match[1], members, one, make)
    if not programs:
        raise FileError(
            f"{file} is an archive of torch.export without the weights as torch 2.13 writes them:"
            " if you trust it, write it again with that version:"
            " torch.export.save(torch.export.load(path), new)"
        )
    one = len(programs) == 1
    modules = {
        path if one else f"{match[1]}.{path}".rstrip("."): told
        for name in members
        if (match := _GRAPH.fullmatch(name)) and match[1] in programs
        for path, told in _called_rnns(file, archive, name).items()
    }
    return ExportedTensors(next(iter(programs.values())) if one else programs, modules)


def _called_rnns(file: InputFile, archive: zipfile.ZipFile, member: str) -> dict[str, ModuleClass]:
    """Return what a program says about the RNNs that it calls, by path. An RNN is left out if it is
    called in two ways, or with tensors that are not parameters of one module."""
    raw = read_json_member(file, archive, member)
    told: dict[str, list[ModuleClass]] = {}
    try:
        program = parse_json_object(raw, f"{file}: member {member[:100]!r}")["graph_module"]
        inputs = [one.get("parameter") for one in program["signature"]["input_specs"]]
        names = {one["arg"]["name"]: one["parameter_name"] for one in inputs if one}
        for node in program["graph"]["nodes"]:
            if match := _CALL.fullmatch(node["target"]):
                given = {one["name"]: one["arg"] for one in node["inputs"]}
                found = [given[name] for name in _WEIGHTS if name in given]
                used = [t["name"] for one in found for t in one.get("as_tensors", one.values())]
                paths = {names[name].rpartition(".")[0] for name in used if name in names}
                if len(paths) == 1 and all(name in names for name in used):
                    axes = given.get("batch_first", {}).get("as_bool")
                    axes = axes if isinstance(axes, bool) else None
                    kind = match[1].partition("_")[0].upper() + "Cell" * bool(match[2])
                    fields = torch_fields(kind, {"mode": match[1].upper()})
                    rnn = ModuleClass(kind, True, fields, axes)
                    told.setdefault(paths.pop(), []).append(rnn)
    except (KeyError, TypeError, AttributeError, FileError):  # the weights are there without it
        return {}
    return {path: one for path, (one, *more) in told.items() if all(m == one for m in more)}


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
