""".pdparams: a state_dict, or dicts that contain state_dicts, from paddle.save().

A pickle of NumPy arrays by name in the model, with a table of the names of the parameters. Outside
of a state_dict a tensor is the call tuple((name, array)) (paddle/framework/io.py, 3.3.1). An RNN's
parameters are stored twice, for the RNN as weight_ih_l0 and for a cell as 0.cell.weight_ih.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.tensor_set import FileTensor, TensorSet, walk_leaves
from rnnlayout._model.errors import FileError
from rnnlayout._sources.mismatch import list_names
from rnnlayout._sources.paddle_modules import second_names

from .pickles import MAKERS, Makers, PickledArray, UnreadObject, load_pickle, tensors_of_pickle
from .registry import TensorFormat

_NAMES = "StructuredToParameterName@@"
_SLICES = "UnpackBigParamInfor@@"  # of arrays of more than a gigabyte, before protocol 4


def _make_tuple(pair: Any = ()) -> UnreadObject:
    """Return the array of a tensor, the call tuple((name, array))."""
    if isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], PickledArray):
        return pair[1]
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
    tensor_set = tensors_of_pickle(file, _paddle_leaves(file, contents), _paddle_tensor)
    tensors = tensor_set.tensors
    doubles = {
        name
        for name, first in second_names(tensors).items()
        if tensors[first].same_as(tensors[name])
    }
    kept = {name: tensor for name, tensor in tensors.items() if name not in doubles}
    numbers = [name for name in tensor_set.values if _NAMES not in name]
    notes = [f"{list_names(sorted(doubles), 2)}: the same tensors as others"] if doubles else []
    return replace(tensor_set, tensors=kept, values=numbers, notes=[*tensor_set.notes, *notes])


def _paddle_leaves(file: InputFile, contents: Any) -> Iterator[tuple[str, Any]]:
    for name, _, _, value in walk_leaves(file, contents):
        if _SLICES in name:
            raise FileError(f"{file} has arrays in slices: load it with Paddle and save it again")
        yield name, value


def _refuse(_: Any) -> Any:
    raise FileError("it has a tensor outside of its pickle: it was not written by paddle.save()")


def _paddle_tensor(value: Any) -> FileTensor | None:
    if not isinstance(value, PickledArray) or value.array is None:
        return None
    # Paddle stores bfloat16 as NumPy's uint16, and lacks uint16 itself (base/data_feeder.py)
    return FileTensor.of(value.array, {"uint16": "bfloat16"}.get(value.dtype, value.dtype))


FORMAT = TensorFormat(".pdparams", _read_pdparams, None, begins=".pkl")
