"""Likely causes of a difference: frequent mistakes, each tried."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .blocks import MATRICES, Compare, Key, may_sum, sum_of

Found = Iterator[tuple[str, list[Key]]]  # a mistake, and the blocks that it explains


def causes(c: Compare) -> list[str]:
    """Return the mistakes that turn a into b, first those that explain most blocks."""
    explained: dict[str, set[Key]] = {}
    for find in (_swapped, _transposed, _other_vector, _negated, _exchanged):
        for text, keys in find(c):
            explained.setdefault(text, set()).update(key for key in keys if key in c.wrong)
    lines: list[str] = []
    rest = set(c.wrong)
    for text, found in sorted(explained.items(), key=lambda item: -len(item[1])):
        if found & rest:
            count = "all " if len(found) == len(c.wrong) else f"{len(found)} of "
            lines.append(f"likely cause: {text} (explains {count}{len(c.wrong)})")
            rest -= found
    return lines


def _groups(c: Compare) -> Iterator[list[Key]]:
    """Yield the gates of each layer, direction and role that differ."""
    for group in dict.fromkeys(key[:3] for key in c.wrong):
        yield [key for key in c.a if key[:3] == group]


def _swapped(c: Compare) -> Found:
    for keys in _groups(c):
        order = _order(c, keys)
        moved = [k[3] for k, o in zip(keys, order, strict=False) if k != o]
        if len(order) == len(keys) and len(moved) == 2:
            yield f"gates {moved[0]} and {moved[1]} swapped", keys
        elif len(order) == len(keys) and moved:
            gates = " ".join(keys[order.index(key)][3] for key in keys)
            yield f"gates in the order {gates} where a has {' '.join(k[3] for k in keys)}", keys


def _order(c: Compare, keys: list[Key]) -> list[Key]:
    """Return the gate of b that equals each gate of a, up to the first gate that has none."""
    free, order = list(keys), list[Key]()
    for key in keys:
        likes = [k for k in free if c.same(c.a[key].values, c.b[k].values)]
        if not likes:
            break
        order.append(key if key in likes else likes[0])
        free.remove(order[-1])
    return order


def _transposed(c: Compare) -> Found:
    for keys in _groups(c):
        if keys[0][2] not in MATRICES:
            continue
        if _is_transposed(c, keys):
            yield "all gates of a matrix transposed together", keys
        elif alone := [key for key in keys if key in c.wrong and _is_transposed(c, [key])]:
            yield "matrix transposed", alone


def _is_transposed(c: Compare, keys: list[Key]) -> bool:
    """Are a's numbers column by column b's row by row? The shapes do not matter."""
    a, b = (np.concatenate([blocks[key].values for key in keys]) for blocks in (c.a, c.b))
    return c.same(a, b.reshape(a.shape[::-1]).T)


def _other_vector(c: Compare) -> Found:
    for key in c.wrong:
        layer, direction, role, gate = key
        if role not in ("bW", "bR") or c.a[key].rounded is not None:
            continue
        at = layer, direction, gate
        sums = [sum_of(x, at, d) for x, d in zip((c.a, c.b), c.dtypes, strict=True)]
        if c.mask(*sums).any():
            continue
        keys: list[Key] = [(layer, direction, "bW", gate), (layer, direction, "bR", gate)]
        (aw, ar), (bw, br) = ([blocks[k].values for k in keys] for blocks in (c.a, c.b))
        how = "in the other vector" if c.same(aw, br) and c.same(ar, bw) else "split differently"
        meaning = "the same function"
        if not may_sum(c.spec, gate):
            how += f" for gate {gate}"
            meaning = "another function, as this bR is multiplied by r"
        yield f"biases {how}, their sums are equal: {meaning}", keys


def _negated(c: Compare) -> Found:
    for layer, direction, gate in dict.fromkeys((*key[:2], key[3]) for key in c.wrong):
        keys = [key for key in c.a if (*key[:2], key[3]) == (layer, direction, gate)]
        if all(c.same(c.a[key].values, -c.b[key].values) for key in keys):
            why = ""
            if c.spec.cell == "gru" and gate == "z":
                why = ": z scales the old state in one and the candidate in the other"
            yield f"gate {gate} negated{why}", keys


def _exchanged(c: Compare) -> Found:
    if not c.spec.bidirectional:
        return
    for layer in dict.fromkeys(key[0] for key in c.wrong):
        keys = [key for key in c.a if key[0] == layer]
        other: dict[Key, Key] = {key: (layer, 1 - key[1], key[2], key[3]) for key in keys}
        if all(k in c.b and c.same(c.a[key].values, c.b[k].values) for key, k in other.items()):
            yield "directions exchanged", keys
