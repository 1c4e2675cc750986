"""Read programs of torch.export.save(), .pt2: the weights and constants, named as in the
state_dict of the exported module. Of the program itself only the calls of RNNs are read: these show
tanh or relu, and the axes of x.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from reprlib import repr as short
from typing import Any, NamedTuple

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
from rnnlayout._sources.torch_programs import NEUTRAL, rnn_kind

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
_FUNCTION = re.compile(r"torch\.ops\.\w+\.(?!sym_|_assert)(\w+)")
_FUNCTIONS_OF_FORWARD = (
    *NEUTRAL,
    *(name + end for name in ("lstm", "gru", "rnn_tanh", "rnn_relu") for end in ("", "_cell")),
    "zeros",
)
_WEIGHTS = ("params", "w_ih", "w_hh", "b_ih", "b_hh")  # arguments of the calls
# dtype, member, offset, shape, strides -> a tensor
MakeTensor = Callable[[str, zipfile.ZipInfo, Any, list[Any], list[Any]], Any]


class _Module(NamedTuple):
    path: str
    class_name: str


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
        for path, rnn in _read_classes(file, archive, name).items()
    }
    return ExportedTensors(next(iter(programs.values())) if is_single else programs, modules)


def _read_classes(file: InputFile, archive: zipfile.ZipFile, member: str) -> dict[str, ModuleClass]:
    """Return the class of each RNN of a program, by path, as far as the program records the class.
    A class of torch is left out if two calls of the RNN differ, or if nothing calls the RNN."""
    raw = read_json_member(file, archive, member)
    calls: dict[str, set[tuple[str, str, bool | None]]] = {}
    try:
        program = parse_json_object(raw, f"{file}: member {member[:100]!r}")["graph_module"]
        inputs = [spec.get("parameter") for spec in program["signature"]["input_specs"]]
        parameters = filter(None, inputs)
        names = {spec["arg"]["name"]: spec["parameter_name"] for spec in parameters}
        nodes = program["graph"]["nodes"]
        for node in nodes:
            if match := _CALL.fullmatch(node["target"]):
                arguments = {argument["name"]: argument["arg"] for argument in node["inputs"]}
                path = _path_of_weights(arguments, names)
                if path is None and (module := _innermost_module(node)):
                    path = module.path
                if path is None:
                    continue
                axes = arguments.get("batch_first", {}).get("as_bool")
                kind = match[1].partition("_")[0].upper() + "Cell" * bool(match[2])
                call = kind, match[1].upper(), axes if isinstance(axes, bool) else None
                calls.setdefault(path, set()).add(call)
        unusual = _unusual_modules(nodes, names.values())
    except (KeyError, TypeError, AttributeError, FileError):  # the weights do not need the program
        return {}
    called = {
        path: ModuleClass(kind, True, torch_fields(kind, {"mode": mode}), axes)
        for path, ((kind, mode, axes), *others) in calls.items()
        if not others
    }
    for path, (name, hook) in unusual.items():
        rnn = called.get(path, ModuleClass(name, True, {}, None))
        called[path] = replace(rnn, name=name, is_torch=False, hook=hook)
    return called


def _path_of_weights(
    arguments: Mapping[str, Any], parameter_names: Mapping[str, str]
) -> str | None:
    """Return the path of the module whose parameters are the weights of a call; None if some
    weights are computed."""
    weights = [arguments[name] for name in _WEIGHTS if name in arguments]
    lists = [weight.get("as_tensors", weight.values()) for weight in weights]
    names = [parameter_names.get(tensor["name"]) for tensors in lists for tensor in tensors]
    paths = {name and name.rpartition(".")[0] for name in names}
    return paths.pop() if len(paths) == 1 else None


def _innermost_module(node: Mapping[str, Any]) -> _Module | None:
    """Return the module that computes a node, or whose hook does."""
    stack = node.get("metadata", {}).get("nn_module_stack", "").rpartition(";")[2].split(",")
    return _Module(stack[1], stack[2]) if len(stack) == 3 else None


def _unusual_modules(
    nodes: list[Mapping[str, Any]], parameter_names: Iterable[str]
) -> dict[str, tuple[str, str]]:
    """Return path -> class, hook, for each module with recurrent weights whose class is the user's,
    or whose hook calls a function that the forward() of torch's RNNs does not call. After
    run_decompositions() a hook looks like a part of the RNN."""
    starts = {name.partition("weight_hh") for name in parameter_names}
    paths = {start.removesuffix("parametrizations.").rstrip(".") for start, end, _ in starts if end}
    is_called = any(_CALL.fullmatch(node["target"]) for node in nodes)
    unusual: dict[str, tuple[str, str]] = {}
    for node in nodes:
        module = _innermost_module(node)
        if module is None or module.path not in paths:
            continue
        function = _FUNCTION.match(node["target"])
        if not rnn_kind(module.class_name):
            unusual[module.path] = module.class_name, ""
        elif is_called and function and function[1] not in _FUNCTIONS_OF_FORWARD:
            unusual.setdefault(module.path, (module.class_name, f"torch.{function[1]}"))
    return unusual


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
