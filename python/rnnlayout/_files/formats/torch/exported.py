"""Read programs of torch.export.save(), .pt2: the weights and constants, named as in the
state_dict of the exported module. Of the program itself only the calls of RNNs are read: these show
tanh or relu, and the axes of x.
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
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    10: "complex64",
    11: "complex128",
    12: "bool",
    13: "bfloat16",
    28: "uint16",
    29: "float8_e4m3fn",
    30: "float8_e5m2",
    31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz",
    33: "float8_e8m0fnu",
    34: "uint32",
    35: "uint64",
}
_COMPILED = ["data", "aotinductor"]  # the folder of AOTInductor's code in an archive
_GRAPH = re.compile(r"[^/]+/models/([^/]+)\.json")
_CALL = re.compile(
    r"torch\.ops\.aten\.(lstm|gru|rnn_tanh|rnn_relu)(_cell)?\.(?:input|data|default)"
)
_WEIGHTS = ("params", "w_ih", "w_hh", "b_ih", "b_hh")  # arguments of the calls
# dtype, member, offset, shape, strides -> a tensor
MakeTensor = Callable[[str, zipfile.ZipInfo, Any, list[Any], list[Any]], Any]


class ExportedTensors(dict[str, Any]):
    """The tensors of a file by name; if the file has several programs, a dict for each program.
    modules: the class of each RNN that the programs call, by path."""

    def __init__(self, tensors: Mapping[str, Any], modules: Mapping[str, ModuleClass]) -> None:
        super().__init__(tensors)
        self.modules = modules


def read_exported(
    file: InputFile, archive: zipfile.ZipFile, make_tensor: MakeTensor
) -> ExportedTensors:
    """Return the tensors of the programs and the classes of the RNNs."""
    members = {info.filename: info for info in archive.infolist()}
    programs: dict[str, dict[str, Any]] = {}
    for name in members:
        if match := _CONFIG.fullmatch(name):
            tensors = programs.setdefault(match[3], {})
            label = f"{file}: member {name[:100]!r}"
            if members[name].compress_type != zipfile.ZIP_STORED:
                raise FileError(f"{label} is compressed, which torch never does")
            entries = parse_json_object(read_member(archive, name), label).get("config")
            if not isinstance(entries, dict):
                raise FileError(f"{label} has no config")
            for key, entry in entries.items():
                if key in tensors:
                    raise FileError(f"{file}: two tensors would both be named {key[:100]!r}")
                owner = f"{file}: {key[:100]!r}"
                tensors[key] = _described_tensor(owner, match[1], members, entry, make_tensor)
    if not programs and any(name.split("/")[1:3] == _COMPILED for name in members):
        raise FileError(
            f"{file} is a package of AOTInductor: its weights are in compiled code, which is not"
            " read: pass the program that was compiled, written with"
            " torch.export.save(program, 'program.pt2'), or the state_dict() of its module"
        )
    if not programs:
        raise FileError(
            f"{file} is an archive of torch.export without the weights as torch 2.13 writes them:"
            " if you trust it, write it again with that version:"
            " torch.export.save(torch.export.load(path), new)"
        )
    is_single = len(programs) == 1
    modules = {
        path if is_single else f"{match[1]}.{path}".rstrip("."): rnn
        for name in members
        if (match := _GRAPH.fullmatch(name)) and match[1] in programs
        for path, rnn in _called_rnns(file, archive, name).items()
    }
    return ExportedTensors(next(iter(programs.values())) if is_single else programs, modules)


def _called_rnns(file: InputFile, archive: zipfile.ZipFile, member: str) -> dict[str, ModuleClass]:
    """Return the class of each RNN that a program calls, by path. An RNN is left out if two calls
    of the RNN differ, or if the weights of a call are not parameters of the same module."""
    raw = read_json_member(file, archive, member)
    calls: dict[str, list[ModuleClass]] = {}
    try:
        program = parse_json_object(raw, f"{file}: member {member[:100]!r}")["graph_module"]
        inputs = [spec.get("parameter") for spec in program["signature"]["input_specs"]]
        parameters = filter(None, inputs)
        names = {spec["arg"]["name"]: spec["parameter_name"] for spec in parameters}
        for node in program["graph"]["nodes"]:
            if match := _CALL.fullmatch(node["target"]):
                arguments = {argument["name"]: argument["arg"] for argument in node["inputs"]}
                weights = [arguments[name] for name in _WEIGHTS if name in arguments]
                lists = [weight.get("as_tensors", weight.values()) for weight in weights]
                used_names = [tensor["name"] for tensors in lists for tensor in tensors]
                paths = {names[name].rpartition(".")[0] for name in used_names if name in names}
                if len(paths) == 1 and all(name in names for name in used_names):
                    axes = arguments.get("batch_first", {}).get("as_bool")
                    axes = axes if isinstance(axes, bool) else None
                    kind = match[1].partition("_")[0].upper() + "Cell" * bool(match[2])
                    fields = torch_fields(kind, {"mode": match[1].upper()})
                    rnn = ModuleClass(kind, True, fields, axes)
                    calls.setdefault(paths.pop(), []).append(rnn)
    except (KeyError, TypeError, AttributeError, FileError):  # the weights do not need the calls
        return {}
    return {
        path: rnn
        for path, (rnn, *repeats) in calls.items()
        if all(repeat == rnn for repeat in repeats)
    }


def _described_tensor(
    label: str,
    folder: str,
    members: Mapping[str, zipfile.ZipInfo],
    entry: Any,
    make_tensor: MakeTensor,
) -> Any:
    meta = entry.get("tensor_meta") if isinstance(entry, dict) else None
    if isinstance(entry, dict) and entry.get("use_pickle"):
        return UnreadObject("a pickled object of torch.export")
    if not isinstance(meta, dict) or meta.get("dtype") not in list(_DTYPES):
        raise FileError(f"{label} is not described as a tensor of numbers")
    name = entry.get("path_name")
    member = members.get(folder + name) if isinstance(name, str) else None
    if member is None:
        raise FileError(f"{label}: the archive has no member {short(name)} for it")
    sizes, strides = (meta.get(key) for key in ("sizes", "strides"))
    if not isinstance(sizes, list) or not isinstance(strides, list):
        raise FileError(f"{label} has no shape")
    offset, *numbers = (
        n.get("as_int") if isinstance(n, dict) else None
        for n in (meta.get("storage_offset"), *sizes, *strides)
    )
    shape = numbers[: len(sizes)], numbers[len(sizes) :]
    return make_tensor(_DTYPES[meta["dtype"]], member, offset, *shape)
