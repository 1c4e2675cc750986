"""Every command on files that use one thing n times, and on files that grow: a second and 100 MB
for up to 100 KB; for larger files little more than in proportion."""

import pytest
from files.hostile.limits import MOST_NBYTES, SECONDS, longest
from files.hostile.process import Reader
from files.hostile.products import PRODUCTS, with_data
from files.hostile.reader import HINTS
from files.hostile.uses import USES, made, zeros

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:Duplicate name")]

SMALL = 100_000  # bytes of a file
CODES = (0, 1, 2, 3, 4)
EXPONENT = 1.3  # of time and memory against the bytes of a larger file
COMMANDS = {
    "inspect": lambda path: ["inspect", path],
    "map": lambda path: ["map", path, "--to", "cudnn"],
    "convert": lambda path: ["convert", path, path.with_name("converted.npz"), "--to", "cudnn"],
    "verify": lambda path: ["verify", path, path],
    "diagnose": lambda path: ["diagnose", path, "--like", path],
}


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reader")
    warm = folder / "warm.npz"
    warm.write_bytes(USES["zeros.npz"](2))
    jobs = [["warm", *(make(warm) for make in COMMANDS.values())]]
    reader = Reader(folder, SECONDS, jobs)
    yield reader
    reader.close()


def excess(answer, nbytes):
    """Return what a command took too much of, for a file of so many bytes."""
    times = max(1, nbytes / SMALL) ** EXPONENT
    seconds, memory = answer["work"], answer["nbytes"]
    is_too_much = (seconds > times and seconds > times * longest()) or memory > times * MOST_NBYTES
    return f"{seconds:.2f} s, {memory:,} bytes" if is_too_much else ""


def findings(reader, path, names):
    nbytes = sum(file.stat().st_blocks * 512 for file in path.parent.iterdir())
    hints = HINTS.get(path.suffix, [])
    answers = reader("read", *[[*COMMANDS[name](path), *hints] for name in names])
    if isinstance(answers, str):
        return [f"the process ended with {answers}"]
    return [
        f"{name}: {why}"
        for name, answer in zip(names, answers, strict=True)
        for why in (excess(answer, nbytes), "" if answer["code"] in CODES else answer["words"])
        if why
    ]


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("n", [1000, 4000])
def test_a_use(name, n, reader, tmp_path):
    path = tmp_path / name
    path.write_bytes(made(path, USES[name], n))
    assert findings(reader, path, COMMANDS) == []


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_after_reading(name, reader, tmp_path):
    path = tmp_path / name
    path.write_bytes(with_data(path, PRODUCTS[name](480)))
    assert findings(reader, path, ["map", "verify", "diagnose"]) == []


def test_what_a_use_costs(reader, tmp_path):
    """As the table of limits says: half a millisecond for each array, and 6 copies of weights."""
    arrays, hidden_size = tmp_path / "arrays.pt", 340
    arrays.write_bytes(USES["RNNs.pt"](140))  # of 560 arrays
    weights = tmp_path / "weights.npz"
    weights.write_bytes(zeros(hidden_size, 1))
    for command in COMMANDS.values():
        timed, sized = reader("read", command(arrays), command(weights))
        assert timed["work"] < 560 * 0.0005 * max(1, longest())
        assert sized["nbytes"] < 6 * 8 * 4 * hidden_size * (hidden_size + 1) + 1_000_000
