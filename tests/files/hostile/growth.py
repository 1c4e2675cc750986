"""What each command takes for files of n uses, and of 2 n: tools/figures.py prints all of it."""

import math
from dataclasses import dataclass

from files.hostile.limits import COLLECTED
from files.hostile.process import Reader
from files.hostile.products import PRODUCTS, with_data
from files.hostile.reader import HINTS
from files.hostile.uses import USES, made

COMMANDS = {
    "inspect": lambda path: ["inspect", path],
    "map": lambda path: ["map", path, "--to", "cudnn"],
    "convert": lambda path: [
        "convert",
        path,
        path.with_name("new.npz"),
        "--to",
        "cudnn",
        "--force",
    ],
    "verify": lambda path: ["verify", path, path],
    "diagnose": lambda path: ["diagnose", path, "--like", path],
}
N = 2000, 4000
SMALL = 100_000  # bytes of a file; up to this size a command may take a second and 100 MB
LEAST = 0.1  # seconds; below, a command takes what it takes for an empty file


def new_reader(folder, unit=COLLECTED):
    """Return a process that has run each command once. unit: of work."""
    warm = folder / "warm.npz"
    warm.write_bytes(USES["zeros.npz"](2))
    return Reader(folder, unit, [["warm", *(make(warm) for make in COMMANDS.values())]])


def run_commands(reader, path, names):
    """Return the bytes that the disk stores of a file and those beside it, and the answers."""
    nbytes = sum(file.stat().st_blocks * 512 for file in path.parent.iterdir())
    hints = HINTS.get(path.suffix, [])
    answers = reader("read", *[[*COMMANDS[name](path), *hints] for name in names])
    assert not isinstance(answers, str), f"{path}: the process ended with {answers}"
    return nbytes, answers


def write_product(path, n):
    """Write a file of PRODUCTS or USES, and those beside it, in a new folder. Returns the path."""
    path.parent.mkdir()
    is_use = path.name in USES
    data = made(path, USES[path.name], n) if is_use else with_data(path, PRODUCTS[path.name](n))
    path.write_bytes(data)
    return path


@dataclass(frozen=True)
class Row:
    """What a command takes for the larger of two files. seconds: of CPU time. memory: bytes.
    exponent: of seconds against bytes, from the smaller file; None where a command takes little, or
    the file is small, or does not grow. memory_per_byte_before: of the smaller file. An exponent of
    memory would mislead: what was free before is used first."""

    command: str
    code: int
    nbytes: int
    seconds: float
    memory: int
    exponent: float | None
    memory_per_byte_before: float


def growth(reader, folder, name, sizes=N):
    """Yield a Row for each command on a file. sizes: the smaller n and the larger n."""
    runs = []
    for n in sizes:
        path = write_product(folder / f"{name} {n}" / name, n)
        runs.append(run_commands(reader, path, COMMANDS))
    (half_nbytes, halves), (nbytes, answers) = runs
    grows = nbytes > max(SMALL, 1.5 * half_nbytes)
    for command, answer, half in zip(COMMANDS, answers, halves, strict=True):
        exponent = None
        if grows and half["work"] > LEAST:
            times = max(answer["work"], LEAST) / half["work"]
            exponent = math.log(times) / math.log(nbytes / half_nbytes)
        before = half["nbytes"] / half_nbytes
        work, memory = answer["work"], answer["nbytes"]
        yield Row(command, answer["code"], nbytes, work, memory, exponent, before)
