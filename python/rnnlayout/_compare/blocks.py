"""Two sets of weights gate by gate: what differs, and where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rnnlayout import _native
from rnnlayout._convert import engine
from rnnlayout._model.dtypes import rounded, storage, widened
from rnnlayout._model.given import Given, given_of
from rnnlayout._model.layout import ROLES, Layout
from rnnlayout._model.spec import Spec
from rnnlayout._native import HAS_PEEPHOLES, LossyError
from rnnlayout._weights.weights import Weights

Gate = tuple[int, int, str]  # layer, direction, gate
Key = tuple[int, int, str, str]  # layer, direction, role, gate
MATRICES = ("W", "R", "P")


# ------------------------------------------------------------------------------- the common form


class Block:
    """A matrix or bias of one gate: its bits, or its values, which are made of them when they are
    asked for: of equal weights never.

    rounded: of a sum: where two non-zero biases are added.
    """

    def __init__(
        self,
        values: np.ndarray | None = None,
        bits: np.ndarray | None = None,
        rounded: np.ndarray | None = None,
        dtype: str = "",
    ) -> None:
        self._values, self.bits, self.rounded, self._dtype = values, bits, rounded, dtype

    @property
    def values(self) -> np.ndarray:
        """In float64."""
        if self._values is None:
            assert self.bits is not None
            with np.errstate(invalid="ignore"):  # NaNs that signal
                self._values = widened(self.bits.view(storage(self._dtype)), self._dtype)
        return self._values

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.values if self.bits is None else self.bits).shape


def blocks_of(weights: Weights) -> dict[Key, Block]:
    """All blocks of an RNN, in cuDNN's order; biases and peepholes that it has not are zero."""
    given = given_of(weights)
    common = Layout("torch" if _holds("torch", given.spec) else "onnx")
    spec = given.spec
    if given.layout.name != "cudnn":  # whose own form its spec says
        spec = spec.replace(bias="double")
    found = _without_peepholes(given, spec)
    if given.layout != common:
        found = engine.run(found, common)[0]
    blocks = dict(_views(found))
    blocks |= {key: block for key, block in _views(given) if key[2] == "peephole"}
    zero = np.zeros((spec.hidden_size, 1), found.arrays[0].dtype)
    for layer, direction, role, gate in list(blocks):
        if role == "R":
            for bias in ("bW", "bR"):
                blocks.setdefault((layer, direction, bias, gate), block(zero, found.dtype))
    return blocks


def _holds(layout: str, spec: Spec) -> bool:
    try:
        _native.check(spec, Layout(layout))
    except LossyError:
        return False
    return True


def _without_peepholes(given: Given, spec: Spec) -> Given:
    """No other layout has them; they are compared as they are."""
    has = given.has & ~HAS_PEEPHOLES
    names = [name for name, _ in _native.tensors(given.layout, given.spec, has)]
    arrays = [given.arrays[given.names.index(name)] for name in names]
    return Given(spec, given.layout, has, names, arrays)


def _views(given: Given) -> Iterator[tuple[Key, Block]]:
    for (layer, direction, role, _, gate), view in _native.blocks(
        given.layout, given.spec, given.has
    ):
        tensor, at, rows, cols, row_stride, col_stride, _ = view
        flat = given.arrays[tensor].reshape(-1)[at:]
        strides = row_stride * flat.itemsize, col_stride * flat.itemsize
        bits = np.lib.stride_tricks.as_strided(flat, (rows, cols), strides, writeable=False)
        yield (layer, direction, role, gate), block(bits, given.dtype)


def block(array: np.ndarray, dtype: str) -> Block:
    return Block(bits=np.ascontiguousarray(array).view(f"u{array.itemsize}"), dtype=dtype)


def one_bias(weights: Weights) -> frozenset[Gate]:
    """(layer, direction, gate) of those that have one of the two biases."""
    given = given_of(weights)
    keys = {(*b[:3], b[4]) for b, _ in _native.blocks(given.layout, given.spec, given.has)}
    gates = {(layer, direction, gate) for layer, direction, role, gate in keys if role == "R"}
    return frozenset(
        (layer, direction, gate) for layer, direction, gate in gates
        if ((layer, direction, "bW", gate) in keys) != ((layer, direction, "bR", gate) in keys)
    )  # fmt: skip


def may_sum(spec: Spec, gate: str) -> bool:
    """Is only the sum of its biases of meaning? r * (R h + bR): not for that candidate."""
    return not (spec.cell == "gru" and spec.reset == "after" and gate == "n")


def sum_of(blocks: Mapping[Key, Block], at: Gate, dtype: str) -> Block:
    """The two biases of a gate as a conversion sums them: a zero operand copies the other's bits,
    else in double and rounded once."""
    layer, direction, gate = at
    bw, br = (blocks[layer, direction, role, gate] for role in ("bW", "bR"))
    assert bw.bits is not None and br.bits is not None
    with np.errstate(all="ignore"):
        values = rounded(bw.values + br.values, dtype)
    bits = np.where(br.values == 0, bw.bits, br.bits)
    return Block(values, bits, (bw.values != 0) & (br.values != 0))


def with_sums(blocks: dict[Key, Block], spec: Spec, gates: Iterable[Gate]) -> dict[Key, Block]:
    """Of these gates the sum of the biases in the place of bW, and no bR."""
    summed = dict(blocks)
    for layer, direction, gate in gates:
        if may_sum(spec, gate):
            at = layer, direction, gate
            summed[layer, direction, "bW", gate] = sum_of(blocks, at, spec.dtype)
            del summed[layer, direction, "bR", gate]
    return summed


# --------------------------------------------------------------------------------- what differs


@dataclass(frozen=True)
class Gap:
    """What differs in a block: `count` elements of `size`; most at row and column `at`."""

    key: Key
    count: int
    size: int
    largest: float  # 0: in sign or NaN bits alone; NaN or infinity where one is not finite
    at: tuple[int, ...]
    values: tuple[float, float]


class Compare:
    """Two sets of blocks, which differ where."""

    def __init__(
        self,
        spec: Spec,
        a: dict[Key, Block],
        b: dict[Key, Block],
        dtypes: tuple[str, str],
        rtol: float,
        atol: float,
    ) -> None:
        self.spec, self.a, self.b = spec, a, b
        self.dtypes, self.rtol, self.atol = dtypes, rtol, atol
        self.wrong = {key: mask for key in a if (mask := self.mask(a[key], b[key])).any()}

    def mask(self, a: Block, b: Block) -> np.ndarray:
        """Where they differ."""
        sums = [x.rounded for x in (a, b) if x.rounded is not None]
        one_dtype = self.dtypes[0] == self.dtypes[1]
        if a.bits is not None and b.bits is not None and one_dtype and not sums:
            unequal = a.bits != b.bits
            if not (unequal.any() and (self.rtol or self.atol)):
                return np.asarray(unequal)
        with np.errstate(all="ignore"):
            near = np.abs(a.values - b.values) <= self.atol + self.rtol * np.abs(b.values)
        near |= (a.values == b.values) | (np.isnan(a.values) & np.isnan(b.values))
        if a.bits is None or b.bits is None or not one_dtype or self.rtol or self.atol:
            return np.asarray(~near)
        return np.asarray(np.where(np.any(sums, axis=0), ~near, a.bits != b.bits))

    def gap(self, key: Key) -> Gap:
        """Of a block that differs: how much, and where most."""
        a, b, mask = self.a[key].values, self.b[key].values, self.wrong[key]
        with np.errstate(invalid="ignore"):
            gap = np.where(mask, np.abs(a - b), -1)
        gap[mask & ((a == b) | (np.isnan(a) & np.isnan(b)))] = 0
        at = np.unravel_index(np.argmax(np.where(np.isnan(gap), np.inf, gap)), gap.shape)
        place = tuple(int(i) for i in at)
        values = float(a[place]), float(b[place])
        return Gap(key, int(np.count_nonzero(mask)), mask.size, float(gap[place]), place, values)

    def line(self, key: Key) -> str:
        """ "layer 0, recurrent matrix of gate f: 12 of 16 differ, largest 0.5 at (2, 1)" """
        if key not in self.wrong:
            return ""
        gap = self.gap(key)
        x, y = (_number(v, d) for v, d in zip(gap.values, self.dtypes, strict=True))
        where = f"({gap.at[0]}, {gap.at[1]})" if key[2] in MATRICES else f"[{gap.at[0]}]"
        largest = f"largest {_number(gap.largest, self.dtypes[0])} at {where}: {x} and {y}"
        if gap.largest == 0:
            largest = f"in sign or NaN bits alone, first at {where}: {x} and {y}"
        return f"{self.title(key)}: {gap.count} of {gap.size} differ, {largest}"

    def same(self, a: np.ndarray, b: np.ndarray) -> bool:
        """Are these values the same?"""
        return a.shape == b.shape and not self.mask(Block(a), Block(b)).any()

    def title(self, key: Key) -> str:
        layer, direction, role, gate = key
        side = (" forward", " backward")[direction] if self.spec.bidirectional else ""
        what = "sum of the biases" if self.a[key].rounded is not None else ROLES[role]
        return f"layer {layer}{side}, {what}" + (f" of gate {gate}" if gate else "")


def _number(value: float, dtype: str) -> str:
    """As short as its dtype allows."""
    short = np.float32 if dtype == "bfloat16" else np.dtype(dtype).type
    with np.errstate(over="ignore"):
        return str(short(value))
