"""Every command on files that use one thing n times, and on files that grow: a second and 100 MB
for up to 100 KB; for larger files little more than in proportion."""

import numpy as np
import pytest
from files.hostile.growth import COMMANDS, SMALL, new_reader, run_commands, write_product
from files.hostile.limits import MOST_NBYTES, SECONDS, longest
from files.hostile.products import PRODUCTS
from files.hostile.uses import USES, zeros

import rnnlayout as rl
from rnnlayout._files.tensor_sets.file_limits import LIMITS

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


def findings(reader, path):
    """Run inspect, and the other commands unless the budget refuses the file, as in all of them."""
    nbytes, answers = run_commands(reader, path, ["inspect"])
    if "the limit for a file of" not in answers[0]["words"]:
        answers += run_commands(reader, path, [*COMMANDS][1:])[1]
    return [
        f"{name}: {why}"
        for name, answer in zip(COMMANDS, answers, strict=False)
        for why in (excess(answer, nbytes), "" if answer["code"] in CODES else answer["words"])
        if why
    ]


@pytest.mark.parametrize("name", USES)
def test_a_use(name, reader, tmp_path):
    for n in (100, 4000):  # most files of 100 uses are read
        path = write_product(tmp_path / f"{n}" / name, n)
        assert findings(reader, path) == []


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_after_reading(name, reader, tmp_path):
    assert findings(reader, write_product(tmp_path / "a" / name, 480)) == []


@pytest.mark.parametrize("hidden_size, layers", [(1, 100), (4, 80), (16, 12)])
def test_diagnose_of_two_files(hidden_size, layers, reader, tmp_path):
    """A buffer without any of the matrices that it is searched for: the longest search."""
    spec = rl.Spec("lstm", hidden_size, hidden_size, num_layers=layers)
    random, paths = np.random.default_rng(3), [tmp_path / "like.npz", tmp_path / "flat.npz"]
    for path in paths:
        rl.save(path, rl.Weights(random.normal(size=spec.num_params).astype("f4"), spec, "cudnn"))
    for like, flat in (paths, [paths[0], paths[0]]):
        (answer,) = reader("read", ["diagnose", flat, "--like", like])
        assert answer["code"] in (0, 1), answer
        assert answer["work"] < 2 * max(1, longest())  # as docs/security.md says
        assert answer["nbytes"] < MOST_NBYTES


def test_what_a_use_costs(tmp_path):
    """As the table of limits says: half a millisecond for each array, and 6 copies of weights. The
    collector is off: what it takes depends on the other objects of the process.

    The sizes were of a file that is refused, so the copies were not measured: they were 8.9."""
    arrays, hidden_size = tmp_path / "arrays.pt", 330
    arrays.write_bytes(USES["RNNs.pt"](70))  # of 280 arrays
    vector, tensors = tmp_path / "vector.npz", tmp_path / "tensors.npz"
    vector.write_bytes(zeros(hidden_size, 1))
    np.savez_compressed(tensors, **rl.load(vector)["lstm"].to("torch").tensors)
    nbytes = 4 * rl.Spec("lstm", hidden_size, hidden_size).num_params
    reader = new_reader(tmp_path, SECONDS)
    for name, command in COMMANDS.items():
        answers = reader("read", *[command(arrays)] * 3, command(vector), command(tensors))
        *timed, in_vector, in_tensors = answers
        for answer in answers:  # each file is read; diagnose then refuses to choose an RNN
            assert answer["code"] == 0 or "70 RNNs of like" in answer["words"], (name, answer)
        seconds = min(answer["work"] for answer in timed)  # other processes make a reading slower
        assert seconds < 280 * 0.0005 * max(1, longest()), name
        for answer in (in_vector, in_tensors):
            assert answer["nbytes"] < 6 * nbytes + 1_000_000, name
    reader.close()
    limit = LIMITS["weights"]
    assert 6 * (limit.free + limit.times * SMALL) < MOST_NBYTES
