"""Two sets of weights, gate by gate: which blocks differ, how much, and where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rnnlayout import _native
from rnnlayout._convert import engine
from rnnlayout._model.cells import CELLS
from rnnlayout._model.dtypes import narrowed, rounded, storage, widened
from rnnlayout._model.given import Given, given_of
from rnnlayout._model.layout import ROLES, Layout
from rnnlayout._model.spec import HARD_SIGMOIDS, HARD_TIMES, Spec
from rnnlayout._native import LossyError
from rnnlayout._weights.weights import Weights

Gate = tuple[int, int, str]  # layer, direction, gate
Key = tuple[int, int, str, str]  # layer, direction, role, gate
MATRICES = ("W", "R", "P")


# ------------------------------------------------------------------------------- the common form


class Block:
    """A matrix or bias of one gate.

    values: in float64, computed when first asked for; never for equal weights. rounded: of a sum,
    the elements where two non-zero biases were added.
    """

    def __init__(
        self,
        array: np.ndarray,
        dtype: str,
        values: np.ndarray | None = None,
        rounded: np.ndarray | None = None,
    ) -> None:
        self.bits = np.ascontiguousarray(array).view(f"u{array.itemsize}")
        self.rounded, self._dtype, self._values = rounded, dtype, values

    @property
    def values(self) -> np.ndarray:
        if self._values is None:
            with np.errstate(invalid="ignore"):  # signalling NaNs
                self._values = widened(self.bits.view(storage(self._dtype)), self._dtype)
        return self._values

    def drop_signs_of_zeros(self) -> None:
        self.bits = np.where(self.values == 0, np.zeros_like(self.bits), self.bits)

    def times(self, factor: float) -> Block:
        """Return the block times a factor, rounded."""
        with np.errstate(all="ignore"):
            values = rounded(self.values * factor, self._dtype)
        return Block(narrowed(values, self._dtype), self._dtype, values, self.rounded)


def blocks_of(weights: Weights) -> dict[Key, Block]:
    """Return all blocks of an RNN, in cuDNN's order. Missing biases are zero."""
    given = given_of(weights)
    spec = given.spec.replace(peepholes=False)
    common = Layout("torch" if _supports("torch", spec) else "onnx")
    if given.layout.name != "cudnn":  # where the bias mode is part of the layout
        spec = spec.replace(bias="double")
    found = _without_peepholes(given, spec)
    if given.layout != common:
        found = engine.run(found, common)[0]
    blocks = dict(views(found))
    blocks |= {key: block for key, block in views(given) if key[2] == "peephole"}
    zero = np.zeros((spec.hidden_size, 1), found.arrays[0].dtype)
    for layer, direction, role, gate in list(blocks):
        if role == "R":
            for bias in ("bW", "bR"):
                key = layer, direction, bias, gate
                blocks.setdefault(key, Block(zero, found.dtype))
                if gate == "z":  # a layout that flips z makes -0 of a missing bias
                    blocks[key].drop_signs_of_zeros()
    return blocks


def _supports(layout: str, spec: Spec) -> bool:
    try:
        _native.check(spec, Layout(layout))
    except LossyError:
        return False
    return True


def _without_peepholes(given: Given, spec: Spec) -> Given:
    """Make peepholes zero, which few layouts have: they are compared without a conversion."""
    arrays = list(given.arrays)
    for block, (tensor, *place) in _native.blocks(given.layout, given.spec, given.has):
        if block[2] == "peephole":
            if arrays[tensor] is given.arrays[tensor]:
                arrays[tensor] = arrays[tensor].copy()
            view_of(arrays[tensor], place)[...] = 0
    return replace(given, spec=spec, arrays=arrays)


def views(given: Given) -> Iterator[tuple[Key, Block]]:
    """Yield the blocks that a source has itself, without a conversion."""
    blocks = _native.blocks(given.layout, given.spec, given.has)
    for (layer, direction, role, _, gate), (tensor, *place) in blocks:
        bits = view_of(given.arrays[tensor], place)
        yield (layer, direction, role, gate), Block(bits, given.dtype)


def view_of(array: np.ndarray, place: list[int]) -> np.ndarray:
    """Return a block as a view of its tensor. place: as in _native.blocks(), after the tensor."""
    at, rows, cols, row_stride, col_stride, _ = place
    flat = array.reshape(-1)[at:]
    strides = row_stride * flat.itemsize, col_stride * flat.itemsize
    return np.lib.stride_tricks.as_strided(flat, (rows, cols), strides)


def one_bias(weights: Weights) -> frozenset[Gate]:
    """Return the gates that have only one of the two biases."""
    given = given_of(weights)
    roles: dict[Gate, set[str]] = {}
    for (layer, direction, role, _, gate), _ in _native.blocks(given.layout, given.spec, given.has):
        roles.setdefault((layer, direction, gate), set()).add(role)
    return frozenset(at for at, found in roles.items() if len(found & {"bW", "bR"}) == 1)


def may_sum(spec: Spec, gate: str) -> bool:
    """Does only the sum of the gate's biases matter? Not for a candidate r * (R h + bR)."""
    cell = CELLS[spec.cell]
    return not (cell.has_reset and spec.reset == "after" and gate == cell.candidate)


def sum_of(blocks: Mapping[Key, Block], at: Gate, dtype: str) -> Block:
    """Return the sum of a gate's biases as a conversion computes it.

    If one is zero it has the bits of the other; else it is computed in double and rounded once. The
    sum of two zeros is 0: a layout that flips z makes -0 of a missing bias.
    """
    layer, direction, gate = at
    bw, br = (blocks[layer, direction, role, gate] for role in ("bW", "bR"))
    with np.errstate(all="ignore"):
        values = rounded(bw.values + br.values, dtype)
    bits = np.where(br.values == 0, bw.bits, br.bits)
    bits = np.where((bw.values == 0) & (br.values == 0), np.zeros_like(bits), bits)
    return Block(bits, dtype, values, (bw.values != 0) & (br.values != 0))


def with_sums(blocks: dict[Key, Block], spec: Spec, gates: Iterable[Gate]) -> dict[Key, Block]:
    """Replace bW of these gates by the sum of the biases, and drop bR."""
    summed = dict(blocks)
    for layer, direction, gate in gates:
        if may_sum(spec, gate):
            at = layer, direction, gate
            summed[layer, direction, "bW", gate] = sum_of(blocks, at, spec.dtype)
            del summed[layer, direction, "bR", gate]
    return summed


def as_keras3(blocks: dict[Key, Block], spec: Spec) -> dict[Key, Block]:
    """Return the blocks with which Keras 3's hard_sigmoid computes what that of Keras 2 does."""
    if spec.recurrent_activation != HARD_SIGMOIDS[1]:
        return blocks
    unscaled = ("", CELLS[spec.cell].candidate)  # a projection is of no gate
    return {
        key: block if key[3] in unscaled else block.times(HARD_TIMES)
        for key, block in blocks.items()
    }


# --------------------------------------------------------------------------------- what differs


@dataclass(frozen=True)
class Gap:
    """The difference of a block: `count` of `size` elements; the largest at row, column `at`."""

    key: Key
    count: int
    size: int
    largest: float  # 0: only signs or NaN bits differ; NaN or infinity: a value is not finite
    at: tuple[int, ...]
    values: tuple[float, float]


@dataclass(frozen=True)
class Compare:
    """Two sets of blocks, and where they differ."""

    spec: Spec
    a: dict[Key, Block]
    b: dict[Key, Block]
    dtypes: tuple[str, str]
    rtol: float
    atol: float

    @cached_property
    def wrong(self) -> dict[Key, np.ndarray]:
        """Where each block that is not equal differs."""
        a, b = self.a, self.b
        return {key: mask for key in a if (mask := self.mask(a[key], b[key])).any()}

    def mask(self, a: Block, b: Block) -> np.ndarray:
        """Return where two blocks differ."""
        sums = [x.rounded for x in (a, b) if x.rounded is not None]
        one_dtype = self.dtypes[0] == self.dtypes[1]
        exact = one_dtype and not (self.rtol or self.atol)
        if one_dtype and not sums:
            unequal: np.ndarray = a.bits != b.bits
            if exact or not unequal.any():
                return unequal
        far = ~self._near(a.values, b.values)
        return np.asarray(np.where(np.any(sums, axis=0), far, a.bits != b.bits) if exact else far)

    def _near(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            near: np.ndarray = np.abs(a - b) <= self.atol + self.rtol * np.abs(b)
        near |= (a == b) | (np.isnan(a) & np.isnan(b))
        return near

    def same(self, a: np.ndarray, b: np.ndarray) -> bool:
        """Are these values the same?"""
        return a.shape == b.shape and bool(self._near(a, b).all())

    def gap(self, key: Key) -> Gap:
        """Return how much a block differs, and where most."""
        a, b, mask = self.a[key].values, self.b[key].values, self.wrong[key]
        with np.errstate(invalid="ignore"):
            gap = np.where(mask, np.abs(a - b), -1)
        gap[mask & ((a == b) | (np.isnan(a) & np.isnan(b)))] = 0
        at = np.unravel_index(np.argmax(np.where(np.isnan(gap), np.inf, gap)), gap.shape)
        place = tuple(int(i) for i in at)
        values = float(a[place]), float(b[place])
        return Gap(key, int(np.count_nonzero(mask)), mask.size, float(gap[place]), place, values)

    def line(self, key: Key) -> str:
        """Return "layer 0, recurrent matrix of gate f: 12 of 16 differ, largest 0.5 at (2, 1)"."""
        gap = self.gap(key)
        x, y = (_number(v, d) for v, d in zip(gap.values, self.dtypes, strict=True))
        where = f"({gap.at[0]}, {gap.at[1]})" if key[2] in MATRICES else f"[{gap.at[0]}]"
        largest = f"largest {_number(gap.largest, self.dtypes[0])} at {where}: {x} and {y}"
        if gap.largest == 0:
            largest = f"only in sign or NaN bits, first at {where}: {x} and {y}"
        return f"{self.title(key)}: {gap.count} of {gap.size} differ, {largest}"

    def title(self, key: Key) -> str:
        layer, direction, role, gate = key
        side = (" forward", " backward")[direction] if self.spec.bidirectional else ""
        what = "sum of the biases" if self.a[key].rounded is not None else ROLES[role]
        return f"layer {layer}{side}, {what}" + (f" of gate {gate}" if gate else "")


def _number(value: float, dtype: str) -> str:
    """Return a value with as many digits as its dtype needs."""
    short = np.float32 if dtype == "bfloat16" else np.dtype(dtype).type
    with np.errstate(over="ignore"):
        return str(short(value))
