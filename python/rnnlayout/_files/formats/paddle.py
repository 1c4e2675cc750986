""".pdparams: a state_dict, or dicts that contain state_dicts, from paddle.save().

A pickle of NumPy arrays by name in the model, with a table of the names of the parameters. Outside
of a state_dict a tensor is the call tuple((name, array)) (paddle/framework/io.py, 3.3.1). An RNN's
parameters are stored twice, for the RNN as weight_ih_l0 and for a cell as 0.cell.weight_ih.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.tensor_set import FileTensor, TensorSet, walk_leaves
from rnnlayout._model.errors import FileError
from rnnlayout._sources.mismatch import list_names

from .pickles import MAKERS, Makers, PickledArray, UnreadObject, load_pickle, tensors_of_pickle
from .registry import TensorFormat

_NAMES = "StructuredToParameterName@@"
_SLICES = "UnpackBigParamInfor@@"  # of arrays of more than a gigabyte, before protocol 4


class NamedParameter(UnreadObject):
    """A tensor in a pickle, with the name of the parameter."""

    __slots__ = ("array", "parameter")

    def __init__(self, parameter: str, array: PickledArray) -> None:
        super().__init__("paddle.Tensor")
        self.parameter, self.array = parameter, array


def _make_tuple(pair: Any = ()) -> UnreadObject:
    if isinstance(pair, tuple) and len(pair) == 2:
        name, array = pair
        if isinstance(name, str) and isinstance(array, PickledArray):
            return NamedParameter(name, array)
    return UnreadObject("builtins.tuple")


_MAKERS: Makers = {**MAKERS, **dict.fromkeys(("builtins.tuple", "__builtin__.tuple"), _make_tuple)}


def _read_pdparams(file: InputFile) -> TensorSet:
    data = file.data()
    if data[:1] != b"\x80":
        raise FileError(
            f"{file} is not a pickle of protocol 2 or later, as paddle.save() writes it: save"
            " the state_dict again, without use_binary_format"
        )
    contents, end = load_pickle(data, 0, _MAKERS, _refuse, file, encoding="latin-1")
    if end != len(data):
        raise FileError(f"{file}: {len(data) - end} bytes after its pickle")
    parameters: dict[str, tuple[str, str]] = {}  # tensor -> (dict, parameter)
    for name, _, key, value in walk_leaves(file, contents):
        if _SLICES in name:
            raise FileError(f"{file} has arrays in slices: load it with Paddle and save it again")
        above, names, _ = name.partition(_NAMES)
        if names and isinstance(value, str):
            parameters[f"{above}{key}"] = above, value
        elif isinstance(value, NamedParameter):
            parameters[name] = name.removesuffix(str(key)), value.parameter
    leaves = ((name, value) for name, _, _, value in walk_leaves(file, contents))
    tensor_set = tensors_of_pickle(file, leaves, _tensor_of_parameter)
    first: dict[tuple[str, str], str] = {}
    doubles = set()  # second names of the same tensor in the same dict
    for name, tensor in tensor_set.tensors.items():
        if name in parameters:
            first_name = first.setdefault(parameters[name], name)
            if first_name != name and tensor_set.tensors[first_name].same_as(tensor):
                doubles.add(name)
    kept = {name: tensor for name, tensor in tensor_set.tensors.items() if name not in doubles}
    numbers = [name for name in tensor_set.values if _NAMES not in name]
    notes = [f"{list_names(sorted(doubles), 2)}: the same tensors as others"] if doubles else []
    return replace(tensor_set, tensors=kept, values=numbers, notes=[*tensor_set.notes, *notes])


def _refuse(_: Any) -> Any:
    raise FileError("it has a tensor outside of its pickle: it was not written by paddle.save()")


def _tensor_of_parameter(value: Any) -> FileTensor | None:
    if isinstance(value, NamedParameter):
        value = value.array
    if not isinstance(value, PickledArray) or value.array is None:
        return None
    # Paddle stores bfloat16 as NumPy's uint16, and lacks uint16 itself (base/data_feeder.py)
    return FileTensor.of(value.array, {"uint16": "bfloat16"}.get(value.dtype, value.dtype))


FORMAT = TensorFormat(".pdparams", _read_pdparams, None, begins=".pkl")
