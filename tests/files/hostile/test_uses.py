"""Every command on files that use one thing n times, and on files that grow: a second and 100 MB
for up to 100 KB; for larger files little more than in proportion."""

import pytest
from files.hostile.growth import COMMANDS, SMALL, new_reader, run_commands, write_product
from files.hostile.limits import MOST_NBYTES, SECONDS, longest
from files.hostile.products import PRODUCTS
from files.hostile.uses import USES, zeros

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:Duplicate name")]

CODES = (0, 1, 2, 3, 4)
EXPONENT = 1.3  # of time and memory against the bytes of a larger file


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    reader = new_reader(tmp_path_factory.mktemp("reader"))
    yield reader
    reader.close()


def excess(answer, nbytes):
    """Return what a command took too much of, for a file of so many bytes."""
    times = max(1, nbytes / SMALL) ** EXPONENT
    seconds, memory = answer["work"], answer["nbytes"]
    is_too_much = (seconds > times and seconds > times * longest()) or memory > times * MOST_NBYTES
    return f"{seconds:.2f} s, {memory:,} bytes" if is_too_much else ""


def findings(reader, path, names):
    nbytes, answers = run_commands(reader, path, names)
    if isinstance(answers, str):
        return [f"the process ended with {answers}"]
    return [
        f"{name}: {why}"
        for name, answer in zip(names, answers, strict=True)
        for why in (excess(answer, nbytes), "" if answer["code"] in CODES else answer["words"])
        if why
    ]


@pytest.mark.parametrize("name", USES)
def test_a_use(name, reader, tmp_path):
    path = write_product(tmp_path / "a" / name, 4000)
    assert findings(reader, path, COMMANDS) == []


@pytest.mark.parametrize("name", [*PRODUCTS][::3])  # tools/figures.py has all
def test_a_product_after_reading(name, reader, tmp_path):
    path = write_product(tmp_path / "a" / name, 480)
    assert findings(reader, path, ["map", "verify", "diagnose"]) == []


def test_what_a_use_costs(tmp_path):
    """As the table of limits says: half a millisecond for each array, and 6 copies of weights. The
    collector is off: what it takes depends on the other objects of the process."""
    arrays, hidden_size = tmp_path / "arrays.pt", 340
    arrays.write_bytes(USES["RNNs.pt"](140))  # of 560 arrays
    weights = tmp_path / "weights.npz"
    weights.write_bytes(zeros(hidden_size, 1))
    reader = new_reader(tmp_path, SECONDS)
    for command in COMMANDS.values():
        *timed, sized = reader("read", *[command(arrays)] * 3, command(weights))
        seconds = min(answer["work"] for answer in timed)  # other processes make a reading slower
        assert seconds < 560 * 0.0005 * max(1, longest())
        assert sized["nbytes"] < 6 * 8 * 4 * hidden_size * (hidden_size + 1) + 1_000_000
    reader.close()
