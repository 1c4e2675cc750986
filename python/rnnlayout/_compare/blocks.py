"""Compare two sets of weights gate by gate: the blocks that differ, how much, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from rnnlayout import _native
from rnnlayout._model.dtypes import narrow_values, storage_dtype, widen_bits
from rnnlayout._model.layout import CUDNN, ROLES, BlockKey, Layout, layer_in_words
from rnnlayout._model.spec import CELLS, HARD_SIGMOIDS, HARD_TIMES, Spec
from rnnlayout._model.weights import Weights, changed_weights
from rnnlayout._native import LossyError, SpecError

GateKey = tuple[int, int, str]  # layer, direction, gate
# How much rounding to a dtype changes a number, at most, as a share of the number.
UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


# ------------------------------------------------------------------------------- the common form


def values_of_bits(bits: np.ndarray, dtype: str) -> np.ndarray:
    """Return the values of an array of bits: without a copy, except for bfloat16."""
    if dtype == "bfloat16":
        return (bits.astype("u4") << 16).view("f4")
    return bits.view(storage_dtype(dtype))


def bits_of_values(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return the bits of values: the inverse of values_of_bits()."""
    if dtype == "bfloat16":
        return (values.view("u4") >> 16).astype("u2")
    return values.view(storage_dtype(dtype))


class Block:
    """A matrix or bias of a gate. rounded: a mask of the elements of a sum where two non-zero
    biases were added; None if the block is not a sum."""

    def __init__(self, array: np.ndarray, dtype: str, rounded: np.ndarray | None = None) -> None:
        self.bits = np.ascontiguousarray(array).view(f"u{array.itemsize}")
        self.dtype, self.rounded = dtype, rounded

    @property
    def values(self) -> np.ndarray:
        """The numbers in float64, as a new array: all blocks would need four times the memory."""
        with np.errstate(invalid="ignore"):  # signalling NaNs
            return widen_bits(self.bits.view(storage_dtype(self.dtype)), self.dtype)

    @property
    def numbers(self) -> np.ndarray:
        """The numbers in the dtype of the block, or in float32 if the dtype is bfloat16."""
        return values_of_bits(self.bits, self.dtype)


def _common_layout(spec: Spec) -> Layout:
    """Return the layout in which weights are compared: torch's if it has this RNN, else ONNX's."""
    try:
        _native.check(spec, Layout("torch"))
    except LossyError:
        return Layout("onnx")
    return Layout("torch")


def weights_of_blocks(blocks: dict[BlockKey, np.ndarray], dtype: str, like: Weights) -> Weights:
    """Return blocks of bits as weights in the layout of `like`. Raises LossyError if the layout
    cannot represent their biases."""
    spec = like.spec.replace(bias="double", dtype=dtype)
    zeros = changed_weights(
        like, spec=spec, arrays=[np.zeros(a.shape, storage_dtype(dtype)) for a in like.arrays]
    )
    common = zeros.to(_common_layout(spec))
    del zeros  # its memory is needed below
    for key, tensor, place in _own_places(common):
        block_view(common.arrays[tensor], place)[...] = blocks[key]
    return common.to(like.layout)


def blocks_of(weights: Weights) -> dict[BlockKey, Block]:
    """Return all blocks of an RNN, in cuDNN's order. Missing biases are zero."""
    spec, arrays = weights.spec.replace(peepholes=False), list(weights.arrays)
    common = _common_layout(spec)
    if weights.layout.name != "cudnn":  # where the bias mode is part of the layout
        spec = spec.replace(bias="double")
    peepholes: dict[BlockKey, Block] = {}
    for key, tensor, place in _own_places(weights):
        if key[2] == "peephole":  # few layouts have them: as they are, without a conversion
            peepholes[key] = Block(block_view(weights.arrays[tensor], place), weights.spec.dtype)
            if arrays[tensor] is weights.arrays[tensor]:
                arrays[tensor] = arrays[tensor].copy()
            block_view(arrays[tensor], place)[...] = 0
    converted = changed_weights(weights, spec=spec, arrays=arrays)
    if weights.layout not in (common, CUDNN) or spec.skip_input:  # cuDNN: torch, in another order
        converted = converted.to(common)
    blocks = dict(own_blocks(converted)) | peepholes
    zero = np.zeros((spec.hidden_size, 1), converted.arrays[0].dtype)
    for layer, direction, role, gate in list(blocks):
        for bias in ("bW", "bR") if role == "R" else ():
            block = blocks.setdefault((layer, direction, bias, gate), Block(zero, spec.dtype))
            if gate == "z":  # a layout that flips z makes -0 of a missing bias
                block.bits = np.where(block.values == 0, np.zeros_like(block.bits), block.bits)
    return blocks


def _own_places(weights: Weights) -> Iterator[tuple[BlockKey, int, list[int]]]:
    """Yield (key, tensor number, place in the tensor) of each block that a source stores."""
    blocks = _native.blocks(weights.layout, weights.spec, weights.optional_tensors)
    for (layer, direction, role, _, gate), (tensor, *place) in blocks:
        yield (layer, direction, role, gate), tensor, place


def own_blocks(weights: Weights) -> Iterator[tuple[BlockKey, Block]]:
    """Yield the blocks that a source stores, without a conversion."""
    for key, tensor, place in _own_places(weights):
        yield key, Block(block_view(weights.arrays[tensor], place), weights.spec.dtype)


def own_names(weights: Weights) -> dict[tuple[int, int, str], str]:
    """Return {(layer, direction, role): names of the tensors that store this matrix or bias}."""
    tensor_names: dict[tuple[int, int, str], dict[str, None]] = {}
    for key, tensor, _ in _own_places(weights):
        tensor_names.setdefault(key[:3], {})[weights.names[tensor]] = None
    return {place: ", ".join(names) for place, names in tensor_names.items()}


def block_view(array: np.ndarray, place: list[int]) -> np.ndarray:
    """Return a block as a view of its tensor. place: offset, rows, columns, strides and sign, in
    the order of _native.blocks()."""
    at, rows, cols, row_stride, col_stride, _ = place
    flat = array.reshape(-1)[at:]
    strides = row_stride * flat.itemsize, col_stride * flat.itemsize
    return np.lib.stride_tricks.as_strided(flat, (rows, cols), strides)


def gates_with_one_bias(weights: Weights) -> frozenset[GateKey]:
    """Return the gates with a single bias."""
    count = Counter(
        (layer, direction, gate)
        for (layer, direction, role, gate), *_ in _own_places(weights)
        if role in ("bW", "bR")
    )
    return frozenset(at for at, biases in count.items() if biases == 1)


def may_sum_biases(spec: Spec, gate: str) -> bool:
    """Return whether only the sum of the biases matters: not for a candidate r * (R h + bR)."""
    cell = CELLS[spec.cell]
    return not (cell.has_reset and spec.reset == "after" and gate == cell.candidate)


def replace_biases_by_sums(
    blocks: dict[BlockKey, Block], spec: Spec, gates: Iterable[GateKey]
) -> dict[BlockKey, Block]:
    """Replace bW of some gates by the sum of the biases, as a conversion does, and drop bR.

    If bW or bR is zero, the sum has the bits of the non-zero bias; else the sum is computed in
    double and rounded once. The sum of two zeros is 0: a layout that flips z makes -0 of a missing
    bias.
    """
    summed = dict(blocks)
    for layer, direction, gate in gates:
        if may_sum_biases(spec, gate):
            w = blocks[layer, direction, "bW", gate]
            r = summed.pop((layer, direction, "bR", gate))
            with np.errstate(all="ignore"):
                both = Block(narrow_values(w.values + r.values, spec.dtype), spec.dtype)
            no_w, no_r = w.values == 0, r.values == 0
            zero = np.zeros_like(w.bits)
            bits = np.select([no_w & no_r, no_w, no_r], [zero, r.bits, w.bits], both.bits)
            summed[layer, direction, "bW", gate] = Block(bits, spec.dtype, ~(no_w | no_r))
    return summed


def blocks_as_keras3(blocks: dict[BlockKey, Block], spec: Spec) -> dict[BlockKey, Block]:
    """Return blocks for the hard_sigmoid of Keras 3 that give the outputs of Keras 2."""
    scaled = dict(blocks)
    unscaled = ("", CELLS[spec.cell].candidate)  # a projection is of no gate
    for key, block in blocks.items() if spec.recurrent_activation == HARD_SIGMOIDS[1] else ():
        if key[3] not in unscaled:
            with np.errstate(all="ignore"):
                values = narrow_values(block.values * HARD_TIMES, block.dtype)
            scaled[key] = Block(values, block.dtype, block.rounded)
    return scaled


# --------------------------------------------------------------------------------- what differs


def check_tolerance(name: str, value: Any) -> None:
    """Raise SpecError unless a tolerance is a number, 0 or greater."""
    if not isinstance(value, (int, float, np.number)) or not 0 <= float(value) < np.inf:
        raise SpecError(f"{name} is {value!r}, need a number, 0 or greater")


def differing(
    a: np.ndarray, b: np.ndarray, atol: float | np.ndarray = 0, rtol: float = 0
) -> np.ndarray:
    """Return where values differ by more than atol + rtol * abs(b). A NaN is equal to a NaN."""
    unequal: np.ndarray = a != b
    if unequal.any():
        with np.errstate(all="ignore"):
            unequal &= ~(np.abs(a - b) <= atol + rtol * np.abs(b))
        unequal &= ~(np.isnan(a) & np.isnan(b))
    return unequal


_ROUNDED = 1 / 128  # of the block's largest value: bfloat16 and int8 keep every value within this
_RASTER = 5, 24  # the most rows and columns of a block's raster
_SAMPLE = 48  # pairs of values that are kept per block


@dataclass(frozen=True)
class BlockGap:
    """The difference of a block: `count` of `size` elements; the largest at row, column `at`.

    size_of_values: the largest finite value of the block, of a or b, the smaller. raster: where the
    block differs, in a few rows and columns, as shares of the largest difference. sample: some
    values that differ, of a and b, (2, n).
    """

    key: BlockKey
    count: int
    size: int
    largest: float  # 0: only signs or NaN bits differ; NaN or infinity: a value is not finite
    at: tuple[int, ...]
    values: tuple[float, float]
    size_of_values: float = field(default=0.0, compare=False)
    raster: tuple[tuple[float, ...], ...] = field(default=(), compare=False, repr=False)
    sample: np.ndarray | None = field(default=None, compare=False, repr=False)

    @property
    def is_rounded(self) -> bool:
        """Whether all values are near, in relation to the size of the block's values."""
        return self.largest <= _ROUNDED * self.size_of_values


def block_gap(key: BlockKey, a: np.ndarray, b: np.ndarray, unequal: np.ndarray) -> BlockGap:
    """Return how much the numbers of a block differ, and where most. unequal: a mask."""
    with np.errstate(all="ignore"):
        gap = a - b
    np.abs(gap, out=gap)  # here and below: few arrays as large as the block at a time
    gap[~unequal] = -1
    gap[unequal & ((a == b) | (np.isnan(a) & np.isnan(b)))] = 0
    shares = np.where(np.isfinite(gap), gap, np.inf)
    at = np.unravel_index(np.argmax(shares), gap.shape)
    raster = _raster_of(shares)
    del shares
    place = tuple(int(i) for i in at)
    values = float(a[place]), float(b[place])
    finite = [np.abs(side).max(initial=0, where=np.isfinite(side)) for side in (a, b)]
    where = np.flatnonzero(unequal)
    where = where[:: max(1, where.size // _SAMPLE)][:_SAMPLE]
    return BlockGap(
        key,
        int(np.count_nonzero(unequal)),
        gap.size,
        float(gap[place]),
        place,
        values,
        float(min(finite)),
        raster,
        np.stack([a.reshape(-1)[where], b.reshape(-1)[where]]),
    )


def _raster_of(shares: np.ndarray) -> tuple[tuple[float, ...], ...]:
    """Return the largest difference in each cell of a few rows and columns, as a share of the
    largest; 1 for NaN and infinity. A bias is a row. shares: the differences, -1 where the values
    are equal, infinity for NaN."""
    shares = shares.reshape(shares.shape[0], -1)
    shares = shares.T if shares.shape[1] == 1 else shares
    for axis, most in enumerate(_RASTER):
        n = shares.shape[axis]
        starts = np.unique(np.arange(min(n, most)) * n // min(n, most))
        shares = np.maximum.reduceat(shares, starts, axis)
    largest = shares[np.isfinite(shares)].max(initial=0) or 1.0
    shares = np.where(shares == 0, 1, np.clip(shares / largest, 0, 1))  # 0: signs and NaN bits
    return tuple(map(tuple, shares.tolist()))


@dataclass(frozen=True)
class BlockComparison:
    """Two sets of blocks, and where the blocks differ.

    gates: in the order of b's layout. whole: the blocks of a with two biases per gate, if b has
    one bias per gate. notes: how the blocks were made comparable.
    """

    spec: Spec
    a: dict[BlockKey, Block]
    b: dict[BlockKey, Block]
    dtypes: tuple[str, str]
    rtol: float
    atol: float
    gates: str
    whole: dict[BlockKey, Block] | None
    notes: list[str]

    @cached_property
    def wrong(self) -> list[BlockKey]:
        """The blocks that are not equal."""
        return [key for key in self.a if self._mask(key).any()]

    def _mask(self, key: BlockKey) -> np.ndarray:
        a, b = self.a[key], self.b[key]
        sums = [x.rounded for x in (a, b) if x.rounded is not None]
        exact = self.dtypes[0] == self.dtypes[1] and not (self.rtol or self.atol)
        if exact and not sums:
            return np.asarray(a.bits != b.bits)
        far = differing(a.values, b.values, self.atol, self.rtol)
        return np.where(np.any(sums, axis=0), far, a.bits != b.bits) if exact else far

    def gap(self, key: BlockKey) -> BlockGap:
        """Return how much a block differs, and where most."""
        return block_gap(key, self.a[key].values, self.b[key].values, self._mask(key))

    def line(self, gap: BlockGap) -> str:
        """Return "layer 0, recurrent matrix of gate f: 12 of 16 differ, largest 0.5 at (2, 1)"."""
        layer, direction, role, gate = gap.key
        label = "sum of the biases" if self.a[gap.key].rounded is not None else ROLES[role]
        place = layer_in_words(layer, direction, self.spec.num_directions)
        title = f"{place}, {label}" + (f" of gate {gate}" if gate else "")
        x, y = (_number_text(v, d) for v, d in zip(gap.values, self.dtypes, strict=True))
        where = f"({gap.at[0]}, {gap.at[1]})" if role in ("W", "R", "P") else f"[{gap.at[0]}]"
        largest = f"largest {_number_text(gap.largest, self.dtypes[0])} at {where}: {x} and {y}"
        if gap.largest == 0:
            largest = f"only in sign or NaN bits, first at {where}: {x} and {y}"
        return f"{title}: {gap.count} of {gap.size} differ, {largest}"


def _number_text(value: float, dtype: str) -> str:
    """Return a value with as many digits as the dtype needs."""
    short = np.float32 if dtype == "bfloat16" else np.dtype(dtype).type
    with np.errstate(over="ignore"):
        return str(short(value))


def compare_blocks(
    a: Weights, b: Weights, rtol: float = 0, atol: float = 0, summed: Iterable[GateKey] = ()
) -> BlockComparison:
    """Compare two RNNs with the same Spec, except for dtypes and hard sigmoids. summed: gates with
    two biases to add first. Where either side has a single bias, biases are always added.
    """
    one_bias = gates_with_one_bias(a), gates_with_one_bias(b)
    only_one = one_bias[0] ^ one_bias[1]
    whole = blocks_of(a)
    sides = [
        replace_biases_by_sums(blocks, weights.spec, {*summed, *only_one})
        for blocks, weights in ((whole, a), (blocks_of(b), b))
    ]
    notes = []
    new, old = HARD_SIGMOIDS
    if other_sigmoid := {weights.spec.recurrent_activation for weights in (a, b)} == {new, old}:
        sides = [
            blocks_as_keras3(side, weights.spec)
            for side, weights in zip(sides, (a, b), strict=True)
        ]
        notes = [
            f"gates of {old} are compared times {HARD_TIMES}: {old}(x) = {new}({HARD_TIMES} x)"
        ]
    if any(may_sum_biases(a.spec, gate) for *_, gate in only_one):
        notes.append("one has one bias per gate, the other two: their sums are compared")
    for side, opposite, dtype in zip(sides, sides[::-1], (a.spec.dtype, b.spec.dtype), strict=True):
        for key in [key for key in opposite if key not in side]:  # peepholes
            side[key] = Block(narrow_values(np.zeros(opposite[key].bits.shape), dtype), dtype)
    gates = {(layer, side, gate) for layer, side, role, gate in whole if role == "R"}
    sums = one_bias[1] == gates and not one_bias[0] and not other_sigmoid
    sums = sums and all(may_sum_biases(a.spec, gate) for *_, gate in gates)
    order = b.layout.facts["gates"][b.spec.cell]
    first, second = sides
    return BlockComparison(
        a.spec,
        first,
        second,
        (a.spec.dtype, b.spec.dtype),
        rtol,
        atol,
        order,
        whole if sums else None,
        notes,
    )
