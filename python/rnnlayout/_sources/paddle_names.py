"""Names of Paddle's RNNs in memory: a tensor has two names in a state_dict, for the RNN
(weight_ih_l0) and for a cell in it (0.cell.weight_ih, 0.cell_bw.weight_ih)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from rnnlayout._model.dtypes import take_bits
from rnnlayout._model.errors import Error
from rnnlayout._native import LayoutError

from .self_description import class_names
from .tensor_paths import is_under

_OF_CELL = re.compile(r"((?:.+\.)?)(\d+)\.cell(|_fw|_bw)\.((?:weight|bias)_(?:ih|hh))")


def second_names(names: Collection[str], prefix: str = "") -> dict[str, str]:
    """Return name of a cell's tensor -> name of the RNN's tensor, if both are under the prefix."""
    matches = (_OF_CELL.fullmatch(name) for name in names if ".cell" in name)
    pairs = {
        match[0]: f"{match[1]}{match[4]}_l{match[2]}{'_reverse' * (match[3] == '_bw')}"
        for match in matches
        if match
    }
    present = set(names) if pairs else ()
    return {
        name: first
        for name, first in pairs.items()
        if first in present and is_under(first, prefix) and is_under(name, prefix)
    }


def without_second_names(source: Mapping[Any, Any], prefix: str) -> Mapping[Any, Any]:
    """Return the tensors without the second names of equal tensors."""
    names = [name for name in source if isinstance(name, str)]
    doubles = {
        name
        for name, first in second_names(names, prefix).items()
        if _are_equal(source[first], source[name])
    }
    return {name: source[name] for name in source if name not in doubles} if doubles else source


def _are_equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    try:
        (a_array, a_dtype), (b_array, b_dtype) = take_bits(a, ""), take_bits(b, "")
    except Error:  # not tensors
        return False
    kinds = (a_dtype, a_array.shape), (b_dtype, b_array.shape)
    return kinds[0] == kinds[1] and a_array.tobytes() == b_array.tobytes()


def refuse_paddle_layer(source: Any) -> None:
    """Raise LayoutError with the repair if the source is a layer of Paddle."""
    if not (class_names(source, "paddle.") and hasattr(source, "state_dict")):
        return
    batch_first = not getattr(source, "time_major", False)
    raise LayoutError(
        f"{type(source).__name__} is a layer of Paddle, which is not read itself: pass"
        f" layer.state_dict(), and run the RNN with batch_first={batch_first}"
    )
