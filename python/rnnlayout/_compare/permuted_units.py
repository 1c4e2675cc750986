"""Hidden units in another order: the same function, but for the order of the outputs."""

from __future__ import annotations

import numpy as np

from .mistakes import Mistake
from .packing import Packing
from .truth import MatrixName, same_bits

Place = tuple[int, int]  # layer, direction


def units_mistake(packing: Packing, buffer: np.ndarray) -> tuple[Mistake, np.ndarray] | None:
    """Return the mistake of a buffer whose hidden units are in another order, and the right buffer;
    None if this one is not of that kind.

    The rows of the input matrices show the order. With it, all other values have to be right.
    """
    truth = packing.truth
    if buffer.size != truth.size or not packing.unknown:
        return None
    made: dict[MatrixName, np.ndarray] = {}
    orders: dict[Place, np.ndarray] = {}
    for slab in truth.slabs:
        layer, direction, role = slab.name
        true = slab.values
        given = truth.part(buffer, slab).reshape(true.shape)
        if role == "W":
            true = true[:, :, _columns(orders, layer, true.shape[2])]
            order = _order_of_rows(given, true)
            if order is None:
                return None
            orders[layer, direction] = order
        elif role == "R" and not truth.spec.proj_size:
            true = true[:, :, orders[layer, direction]]
        made[slab.name] = true[:, orders[layer, direction]] if role != "P" else (
            slab.values[:, :, orders[layer, direction]])  # fmt: skip
    biases = truth.biases.copy()
    for place, order in orders.items():
        biases[place] = biases[place][..., order]
    if not same_bits(np.concatenate([*(x.ravel() for x in made.values()), biases.ravel()]), buffer):
        return None
    moved = [place for place, order in orders.items() if (order != np.arange(order.size)).any()]
    names = ", ".join(f"layer {layer}" + " backward" * side for layer, side in moved)
    text = f"the hidden units of {names} are in another order"
    if any(layer == truth.spec.num_layers - 1 for layer, _ in moved) and not truth.spec.proj_size:
        text += ": the same function, with its outputs in that order"
    else:
        text += ": the same function"
    return Mistake("units", text, tuple((*place, "W") for place in moved)), truth.flat.copy()


def _columns(orders: dict[Place, np.ndarray], layer: int, size: int) -> np.ndarray:
    """Return the order that the units of the layer below give to the columns of a layer."""
    below = [orders[place] for place in sorted(orders) if place[0] == layer - 1]
    if sum(order.size for order in below) != size:  # the first layer, or a projection
        return np.arange(size)
    return np.concatenate([order + k * order.size for k, order in enumerate(below)])


def _order_of_rows(given: np.ndarray, true: np.ndarray) -> np.ndarray | None:
    """Return for each row of all gates which true one it is; None if one is none, or several."""
    rows = {true[:, k].tobytes(): k for k in range(true.shape[1])}
    order = [rows.get(given[:, k].tobytes(), -1) for k in range(true.shape[1])]
    return np.array(order) if sorted(order) == list(range(len(order))) else None
