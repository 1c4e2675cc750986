"""What a file may cost: every reader charges what it takes, and this table has the limits.

Only what can be more than the bytes of the file is charged: what a file declares, repeats or
compresses. All else grows with the file.
"""

from __future__ import annotations

from dataclasses import dataclass

from rnnlayout._model.errors import FileError


@dataclass(frozen=True)
class Limit:
    """A limit: `free` for every file, and `times` for each of its bytes.

    what: the unit. cause: what is wrong with a file that exceeds it. why: the reason for the
    numbers, as docs/security.md shows it.
    """

    what: str
    free: int
    times: float
    cause: str
    why: str


LIMITS = {
    "unpacked": Limit(
        "bytes of unpacked members", 64 << 20, 100, "it is a decompression bomb",
        "zlib compresses zeros 1032 times; a small archive of zeros is harmless",
    ),
    "arrays": Limit(
        "bytes of arrays", 64 << 20, 100, "it is a decompression bomb, or its arrays overlap",
        "tensors may share bytes, and a dataset of HDF5 may be deflated or not written at all",
    ),
    "names": Limit(
        "characters of names", 8 << 20, 1, "its names repeat",
        "the name of a tensor repeats the keys above it, which a file stores once",
    ),
    "tensors": Limit(
        "tensors", 10_000, 1 / 100, "they cannot have names, shapes and numbers of their own",
        "a name, a dtype, a shape and numbers take 100 bytes or more; reading them takes 10 us",
    ),
    "metadata": Limit(
        "bytes of JSON and programs", 2 << 20, 2, "it is a decompression bomb",
        "a model of a thousand layers has one megabyte; an empty list in JSON takes 27 times as"
        " much memory",
    ),
    "headers": Limit(
        "bytes of NumPy headers", 128 << 10, 1, "they are longer than its size explains",
        "NumPy reads a megabyte per second; a header has 128 bytes, but 64 KB of spaces may be"
        " deflated to 100",
    ),
    "structures": Limit(
        "bytes of HDF5 structures", 1 << 20, 4, "they overlap or repeat",
        "a correct file stores each structure once, and a few are read twice; in a .keras archive"
        " they may be deflated",
    ),
    "texts": Limit(
        "bytes of HDF5 texts", 16 << 20, 1 / 16, "they repeat, or are not stored",
        "the config of a large model has 2 MB; a text becomes an object, which counts 64 bytes",
    ),
    "copied": Limit(
        "characters and items that a pickle copies", 1 << 20, 2, "it passes one again and again",
        "to make an OrderedDict of pairs, or an array of a text, copies them once",
    ),
    "steps": Limit(
        "steps", 800_000, 1 / 4, "it is damaged, or made to take long",
        "a step takes about half a microsecond and makes at most 80 bytes: an instruction of a"
        " pickle is 1, what it names or calls 12, a value of msgpack 2, an array of .eqx 400, a"
        " node of ONNX 4, one of a called function 40, one that is computed 80; a small tensor of"
        " an old .pt is 56, and has 150 bytes",
    ),
    "computed": Limit(
        "bytes of computed weights", 16 << 20, 8, "they are expanded, or repeat",
        "ONNX: int8 becomes float32 and is transposed",
    ),
}  # fmt: skip


class Budget:
    """What may still be taken for a file. name: of the file, in messages. size: its bytes."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size
        self._used: dict[str, int] = {}

    def charge(self, kind: str, amount: int) -> None:
        """Count what is about to be made. Raises FileError if that is too much for the file."""
        used = self._used[kind] = self._used.get(kind, 0) + amount
        limit = LIMITS[kind]
        if used > limit.free and used > (most := limit.free + int(limit.times * self.size)):
            raise FileError(
                f"{self.name}: {used:,} {limit.what}, more than {most:,}, the limit for a file of"
                f" {self.size:,} bytes: {limit.cause}: refused"
            )
