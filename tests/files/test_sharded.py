"""Models in parts: read by the index or the folder as one file; a part alone as far as it is whole.

Oracles: the same state_dict in one file, written by safetensors or torch; Keras for its own parts.
"""

import json
import re
import resource
import shutil

import h5py
import keras
import numpy as np
import pytest
import safetensors.torch
import torch
from oracles.frameworks import KERAS_NOISE
from torch.distributed import checkpoint
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import rnnlayout as rl
from rnnlayout._cli import main as _cli
from rnnlayout._files.tensor_sets.weight_map import MOST_PARTS

pytestmark = KERAS_NOISE


def state_dict():
    """Return the state_dict of a model with RNNs, whose values differ."""
    nn = torch.nn
    torch.manual_seed(0)
    model = nn.ModuleDict({
        "embedding": nn.Embedding(7, 5), "enc": nn.LSTM(5, 4, 2, bidirectional=True),
        "dec": nn.GRU(8, 3), "fc": nn.Linear(3, 2),
    })  # fmt: skip
    return model.state_dict() | {"steps": torch.tensor(3), "half": torch.ones(3).bfloat16()}


STATE = state_dict()
SAVE = {".safetensors": safetensors.torch.save_file, ".bin": torch.save}
STEMS = {".safetensors": "model", ".bin": "pytorch_model"}


def second(names):
    return lambda name: 1 + any(part in name for part in names)


SPLITS = {  # name of a tensor -> number of its part
    "whole RNNs": second(["dec", "fc"]),
    "layers": second(["enc.weight_ih_l1", "enc.weight_hh_l1", "enc.bias_ih_l1", "enc.bias_hh_l1"]),
    "directions": second(["_reverse", "dec", "fc"]),
    "biases": second(["bias"]),
    "one tensor": second(["enc.weight_hh_l0"]),
    "a part for each": lambda name: 1 + [*STATE].index(name),
    "by turns": lambda name: 1 + [*STATE].index(name) % 3,
}


def in_parts(folder, suffix=".safetensors", split="layers", state=None):
    """Write a model in parts, as save_pretrained() of Hugging Face does; return the index."""
    state = STATE if state is None else state
    numbers = {name: SPLITS[split](name) for name in state}
    count, stem = max(numbers.values()), STEMS[suffix]
    names = {k: f"{stem}-{k:05d}-of-{count:05d}{suffix}" for k in range(1, count + 1)}
    for k, part in names.items():
        tensors = {name: value for name, value in state.items() if numbers[name] == k}
        SAVE[suffix](tensors, folder / part)
    (folder / "config.json").write_text('{"model_type": "lstm"}')
    return write_index(folder / f"{stem}{suffix}.index.json",
                       {name: names[k] for name, k in numbers.items()})  # fmt: skip


def write_index(path, weight_map):
    size = {"total_size": sum(value.nbytes for value in STATE.values())}
    path.write_text(json.dumps({"metadata": size, "weight_map": weight_map}, indent=2))
    return path


def part_of(index, k):
    return next(index.parent.glob(f"*-{k:05d}-of-*"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The same model in one file."""
    path = tmp_path_factory.mktemp("whole") / "model.safetensors"
    safetensors.torch.save_file(STATE, path)
    return path


def same(found, expected):
    """Are two results of load() equal, bit for bit?"""
    assert {*found} == {*expected}
    for name in found:
        assert (
            found[name] == expected[name] and found[name].batch_first == expected[name].batch_first
        )
    return {*found.others} == {*expected.others}


# ---------------------------------------------------------------------------------------- the index


@pytest.mark.parametrize("suffix", SAVE)
@pytest.mark.parametrize("split", SPLITS)
def test_an_index_is_read_as_one_file(split, suffix, whole, tmp_path):
    """The error said to read the files one by one, which gave half of the layers."""
    index = in_parts(tmp_path, suffix, split)
    for path in (index, tmp_path, str(tmp_path)):
        found = rl.load(path)
        assert same(found, rl.load(whole)) and not found.notes
        assert {*found.files} == {*tmp_path.glob("*-of-*")}
    assert rl.verify(index, whole).equal and rl.verify(tmp_path, STATE, prefix="dec").equal


@pytest.mark.parametrize("suffix", SAVE)
@pytest.mark.parametrize("mmap", [True, False])
def test_an_index_is_converted_with_all_tensors(suffix, mmap, whole, tmp_path):
    """Into one file; equal to the conversion of one file, bit for bit."""
    index = in_parts(tmp_path, suffix, "by turns")
    for source, name in ((index, "a"), (whole, "b")):
        done = rl.convert_file(source, tmp_path / f"{name}.safetensors", to="keras", mmap=mmap)
        assert not done.left_out
        rl.convert_file(source, tmp_path / f"{name}.h5", to="keras", prefix="dec", mmap=mmap)
    a, b = (safetensors.torch.load_file(tmp_path / f"{name}.safetensors") for name in "ab")
    assert a.keys() == b.keys() and {"steps", "half", "fc.weight"} <= a.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert rl.load(tmp_path / "a.h5") == rl.load(tmp_path / "b.h5")
    rl.convert_file(tmp_path, tmp_path / "a.pt", to="torch", mmap=mmap)
    again = torch.load(tmp_path / "a.pt", weights_only=True)
    assert all(torch.equal(again[name], value) for name, value in STATE.items())


def test_other_functions_read_an_index(tmp_path):
    index = in_parts(tmp_path, split="biases")
    flat, y = rl.pack(STATE, prefix="enc"), None
    x = np.random.default_rng(0).standard_normal((4, 2, 8)).astype("f4")
    for path in (index, tmp_path):
        assert rl.diagnose(flat, like=path, prefix="enc").text == "the buffer is right"
        y, _ = rl.forward(x, rl.load(path)["dec"])
        assert "in layout torch" in str(rl.identify(path, x, y, prefix="dec"))


def test_the_command_line_reads_an_index_and_a_folder(whole, tmp_path, capsys):
    index = in_parts(tmp_path)
    shown = []
    for path in (index, tmp_path, whole):
        assert _cli.main(["inspect", str(path), "--json"]) == 0
        shown.append(json.loads(capsys.readouterr().out)["files"][0] | {"file": ""})
    assert shown[0] == shown[1] == shown[2]
    assert _cli.main(["convert", str(tmp_path), str(tmp_path / "a.onnx"), "--only", "dec"]) == 0
    assert _cli.main(["verify", str(tmp_path / "a.onnx"), str(index), "--prefix", "dec"]) == 0


def test_a_model_that_rnnlayout_wrote_in_parts(tmp_path):
    """Each part has records, with settings that no tensor shows."""
    parts = {}
    for k, cell in enumerate(("lstm", "gru"), 1):
        spec = rl.Spec(cell, 5, 3)
        tensors = {
            name: np.full(shape, k, "f4") for name, shape in rl.describe(spec, "keras").items()
        }
        weights = rl.Weights(tensors, spec, "keras")
        weights.config["go_backwards"] = True
        rl.save(tmp_path / f"p{k}.safetensors", {cell: weights})
        with safetensors.safe_open(tmp_path / f"p{k}.safetensors", "np") as file:
            parts |= dict.fromkeys(file.keys(), f"p{k}.safetensors")
    found = rl.load(write_index(tmp_path / "m.index.json", parts))
    assert [*found] == ["lstm", "gru"]
    assert all(weights.config == {"go_backwards": True} for weights in found.values())


def test_an_index_with_another_name(whole, tmp_path):
    """transformers writes the variant behind .index; a browser appends a number."""
    index = in_parts(tmp_path)
    for name in ("model.safetensors.index.fp16.json", "index (1).json", "index"):
        assert same(rl.load(index.rename(tmp_path / name)), rl.load(whole))
        (tmp_path / name).rename(index)


def test_a_folder_with_two_indexes_or_without_one(whole, tmp_path):
    index = in_parts(tmp_path)
    shutil.copy(index, tmp_path / "other.index.json")
    with pytest.raises(rl.FileError, match=r"need a file: pass .*\.index\.json, or one of its"):
        rl.load(tmp_path)
    (tmp_path / "other.index.json").unlink()
    index.unlink()
    with pytest.raises(rl.FileError, match=r"part 1 of 2 .* lacks 'model.safetensors.index.json'"):
        rl.load(tmp_path)
    shutil.copy(whole, tmp_path / "z.safetensors")
    with pytest.raises(rl.FileError, match=r"need a file: pass .*/z\.safetensors, or one of its 2"):
        rl.load(tmp_path)


def test_a_model_is_not_written_into_an_index(whole, tmp_path, capsys):
    index = in_parts(tmp_path)
    new = tmp_path / "new.index.json"
    assert _cli.main(["convert", str(whole), str(tmp_path / "a.npz"), "--into", str(index)]) == 3
    assert "cannot be put into a .index.json file: load the model with" in capsys.readouterr().err
    with pytest.raises(rl.FileError, match=r"\.index\.json files are only read"):
        rl.save(new, rl.load(whole))
    part = part_of(index, 1)
    before = part.read_bytes()
    with pytest.raises(rl.FileError, match="is the input"):
        rl.convert_file(index, part, to="torch", force=True)
    assert part.read_bytes() == before


# ----------------------------------------------------------------------------------------- one part


def test_a_part_beside_many_names(tmp_path, limited):
    """RNNs in a part, and as many in another one, each looked up among the names of the other."""
    names = [f"{k}.weight_{which}h_l0" for k in range(1500) for which in "ih"]
    state = {name: torch.ones(0) for name in [*names, *(f"a.{name}" for name in names)]}
    SPLITS["many"] = second(["a."])
    index = in_parts(tmp_path, split="many", state=state)
    with limited(), pytest.raises(rl.Error):
        rl.load(part_of(index, 1))


@pytest.mark.parametrize("suffix", SAVE)
@pytest.mark.parametrize("split", SPLITS)
def test_a_part_alone_is_read_as_far_as_it_is_whole(split, suffix, whole, tmp_path):
    """It gave half of the layers, one direction, or no biases, without a word."""
    index, expected = in_parts(tmp_path, suffix, split), rl.load(whole)
    for part in sorted(tmp_path.glob("*-of-*")):
        complete = [
            rnn for rnn in expected
            if {SPLITS[split](name) for name in STATE if name.startswith(f"{rnn}.")}
            == {int(re.search(r"-(\d+)-of", part.name)[1])}
        ]  # fmt: skip
        if not complete:
            with pytest.raises(rl.FileError, match=f"another part of the model: pass {index}"):
                rl.load(part)
            with pytest.raises(rl.FileError, match=f"another part of the model: pass {index}"):
                rl.convert_file(part, tmp_path / "new.npz", to="keras")
            continue
        found = rl.load(part)
        assert [*found] == complete and all(found[rnn] == expected[rnn] for rnn in complete)
        assert found.refused.keys() == expected.keys() - {*complete} and not found.undecided
        assert found.notes == [
            f"{part.name} is a part of a model: for the whole model pass {index}"
        ]
    assert not (tmp_path / "new.npz").exists()


def test_a_tensor_on_the_path_of_the_rnn_is_in_another_part(tmp_path):
    """It is not a tensor of an LSTM, but may change what the module computes."""
    index = in_parts(tmp_path, split="whole RNNs", state=STATE | {"enc.dec.scale": torch.ones(4)})
    found = rl.load(part_of(index, 1))
    assert found.undecided.keys() == rl.load(index).undecided.keys() == {"enc"}
    assert found.undecided["enc"].asks == (("ignore", ["enc.dec.*"]),)
    assert rl.load(part_of(index, 1), ignore=["enc.dec.*"])["enc"].spec.num_layers == 2
    assert [*rl.load(part_of(index, 2))] == ["dec"]


def test_a_part_of_paths_with_directions(tmp_path):
    """A Bidirectional by Keras's names: each direction has a path of its own."""
    spec = rl.Spec("lstm", 5, 3, bidirectional=True)
    weights = rl.Weights({n: np.ones(s, "f4") for n, s in rl.describe(spec, "keras").items()}, spec)
    state = {}
    for name, value in weights.items():
        _, side, leaf = name.split("/")
        state[f"both/{side}_lstm/lstm_cell/{leaf}"] = torch.from_numpy(value)
    SPLITS["sides"] = second(["backward"])
    index = in_parts(tmp_path, split="sides", state=state)
    assert rl.load(index)["both"].spec.bidirectional
    for k in (1, 2):
        with pytest.raises(rl.FileError, match="another part of the model"):
            rl.load(part_of(index, k))


def test_a_part_without_its_index(whole, tmp_path):
    index = in_parts(tmp_path, split="by turns")
    part, content = part_of(index, 1), index.read_text()
    part_of(index, 2).unlink()
    index.unlink()
    missing = "'model.safetensors.index.json', 'model-00002-of-00003.safetensors': copy"
    with pytest.raises(
        rl.FileError, match=f"part 1 of 3 of a model, and its folder lacks {missing}"
    ):
        rl.load(part)
    index.write_text(content)
    with pytest.raises(
        rl.FileError, match=r"'model-00002-of-00003\.safetensors' does not exist: copy"
    ):
        rl.load(index)
    in_parts(tmp_path, split="by turns")
    assert same(rl.load(index), rl.load(whole))
    for name in ("model-00001-of-00001.safetensors", "renamed.safetensors"):
        assert same(rl.load(shutil.copy(whole, tmp_path / name)), rl.load(whole))


def test_a_part_in_a_format_whose_parts_are_not_read(tmp_path):
    path = tmp_path / "tf_model-00001-of-00002.h5"
    spec = rl.Spec("lstm", 5, 3)
    tensors = {n: np.ones(s, "f4") for n, s in rl.describe(spec, "keras").items()}
    rl.save(path, rl.Weights(tensors, spec, "keras"))
    with pytest.raises(rl.FileError, match=r"part 1 of 2 .* lacks 'tf_model\.h5\.index\.json'"):
        rl.load(path)
    shutil.copy(path, other := tmp_path / "tf_model-00002-of-00002.h5")
    index = write_index(tmp_path / "tf_model.h5.index.json", {"a": path.name, "b": other.name})
    with pytest.raises(rl.FileError, match=r"parts that are \.h5 files are not read: load"):
        rl.load(path)
    with pytest.raises(rl.FileError, match=r"is a \.h5 file, and only parts that are \.safe"):
        rl.load(index)


# ------------------------------------------------------------------------------- an untrue index


def map_of(index):
    return json.loads(index.read_text())["weight_map"]


FIRST, OTHER = (f"model-0000{k}-of-00002.safetensors" for k in (1, 2))


def without(weight_map, *names):
    return {name: part for name, part in weight_map.items() if name not in names}


def moved(part):
    return lambda weight_map: weight_map | {"steps": part}


FALSE = {  # a function that changes the weight map, and the error
    "a path": (moved(f"./{OTHER}"), "is not opened"),
    "the folder above": (moved(f"../{OTHER}"), "is not opened"),
    "an absolute name": (moved("/etc/passwd"), "is not opened"),
    "a drive of Windows": (moved(f"C:{OTHER}"), "is not opened"),
    "no name": (moved(""), "is not opened"),
    "a number": (moved(1), "the part of 'steps' is not the name of a file"),
    "a list": (moved([OTHER]), "the part of 'steps' is not the name of a file"),
    "the index": (moved("model.safetensors.index.json"), "is the file itself"),
    "another index": (moved("other.index.json"), r"is a \.index\.json file, and only"),
    "a missing part": (moved("a.safetensors"), r"'a\.safetensors' does not exist"),
    "another part": (moved(OTHER), f"{FIRST} has, and the index does not list 'steps'"),
    "a tensor that its part lacks": (lambda m: m | {"more": FIRST}, f"{FIRST} lacks 'more'"),
    "a tensor that is not listed": (
        lambda m: without(m, "steps"), f"{FIRST} has, and the index does not list 'steps'"),
    "one part of two": (
        lambda m: dict.fromkeys((k for k in m if m[k] == FIRST), FIRST),
        f"lists 1 of 2 parts, by the name of {FIRST}"),
    "a part twice": (moved("again.safetensors"), f"{FIRST} has, and the index does not list"),
    "nothing": (lambda m: {}, "has no weight_map"),
    "no object": (lambda m: [*m], "has no weight_map"),
    "very many parts": (
        lambda m: m | {f"{k}": f"{k}.safetensors" for k in range(5000)},
        f"has 5002 parts, and up to {MOST_PARTS} are read"),
}  # fmt: skip


@pytest.mark.parametrize("what", FALSE)
def test_an_index_that_is_not_true(what, tmp_path):
    index = in_parts(tmp_path)
    shutil.copy(index, tmp_path / "other.index.json")
    (tmp_path / "again.safetensors").symlink_to("model-00001-of-00002.safetensors")
    change, says = FALSE[what]
    write_index(index, change(map_of(index)))
    with pytest.raises(rl.FileError, match=says):
        rl.load(index)


def test_a_tensor_in_two_parts(tmp_path):
    index = in_parts(tmp_path)
    first, other = (part_of(index, k) for k in (1, 2))
    both = safetensors.torch.load_file(other) | {"fc.bias": STATE["fc.bias"]}
    safetensors.torch.save_file(both, other)
    for path in (index, other):
        with pytest.raises(
            rl.FileError, match=r"00002-of-00002.* the index does not list 'fc\.bias'"
        ):
            rl.load(path)
    assert "dec" in rl.load(first)


def test_the_most_parts(tmp_path):
    state = {f"{k}": torch.ones(1) for k in range(MOST_PARTS - 2)}
    SPLITS["most"] = lambda name: int(name) + 3 if name.isdigit() else 1 + (name > "enc.c")
    index = in_parts(tmp_path, split="most", state=STATE | state)
    assert len(rl.load(index).files) == MOST_PARTS
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, old[1]))
    try:
        with pytest.raises(rl.FileError, match="Too many open files"):
            rl.load(index)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, old)


# ----------------------------------------------------------------------------------------- Keras


def keras_model():
    x = keras.Input((4, 5))
    y = keras.layers.LSTM(6, return_sequences=True, name="enc")(x)
    y = keras.layers.Bidirectional(keras.layers.GRU(7, return_sequences=True), name="both")(y)
    cells = keras.layers.StackedRNNCells([keras.layers.LSTMCell(3), keras.layers.LSTMCell(4)])
    y = keras.layers.RNN(cells, return_sequences=True, name="stack")(y)
    model = keras.Model(x, keras.layers.Dense(3, name="out")(y))
    rng = np.random.default_rng(0)
    model.set_weights([rng.standard_normal(w.shape).astype("f4") for w in model.get_weights()])
    model.compile("adam", "mse")
    return model


SIZES = {"every matrix": 800, "groups": 1400, "one part": 10**6}  # bytes of a part, about


@pytest.fixture(scope="module", params=SIZES)
def keras_index(request, tmp_path_factory):
    """Keras's weights in parts, and the same in one file."""
    folder, model = tmp_path_factory.mktemp("keras"), keras_model()
    model.save_weights(folder / "m.weights.json", max_shard_size=SIZES[request.param] / 1024**3)
    model.save_weights(folder.with_name("whole.weights.h5"))
    (folder / "config.json").write_text(model.to_json())
    return folder / "m.weights.json", rl.load(folder.with_name("whole.weights.h5"))


def test_an_index_of_keras(keras_index):
    index, expected = keras_index
    assert {"enc", "both"} <= {*expected}
    for path in (index, index.parent):
        found = rl.load(path)
        assert same(found, expected) and found.notes == expected.notes
        assert {*found.files} == {*index.parent.glob("m_*.weights.h5")}
    found = rl.load(index, keras_config=index.with_name("config.json"))
    assert not found.notes and found["both"].config == {}
    x = np.random.default_rng(1).standard_normal((2, 4, 5)).astype("f4")
    model = keras_model()
    expected_y = model.layers[1](x)
    # 4 steps of sums of at most 11 products of numbers below 5, rounded by 2^-24
    np.testing.assert_allclose(
        rl.RNN(found["enc"])(x)[0], np.asarray(expected_y.detach()), atol=1e-5
    )


def test_a_part_of_keras(keras_index):
    """It gave one direction, or "bias none"; an index beside it says what it has."""
    index, expected = keras_index
    parts = sorted(index.parent.glob("m_*.weights.h5"))
    places = json.loads(index.read_text())["weight_map"]

    def parts_of(layer):
        return {part for group in places if group.startswith(layer) for part in places[group]}

    layers = {"enc": "/layers/lstm/", "both": "/layers/bidirectional/", "stack": "/layers/rnn/"}
    for part in parts:
        complete = {rnn for rnn in expected if parts_of(layers[rnn.split("/")[0]]) == {part.name}}
        if complete:
            found = rl.load(part)
            # the name of a layer may be in another part, then it is called after its class
            assert [*found.values()] == [expected[rnn] for rnn in expected if rnn in complete]
            assert len(parts) == 1 or f"for the whole model pass {index}" in found.notes[-1]
        else:
            with pytest.raises(rl.FileError, match=f"pass {index}"):
                rl.load(part)


def test_a_variable_on_the_path_of_the_layer_is_in_another_part(tmp_path):
    keras_model().save_weights(tmp_path / "m.weights.json", max_shard_size=1)
    with h5py.File(tmp_path / "m_00001.weights.h5", "w") as file:
        file["layers/lstm/norm/vars/0"] = np.ones(6, "f4")
    more = {"/layers/lstm/norm/vars": ["m_00001.weights.h5"]}
    index = tmp_path / "m.weights.json"
    write_index(index, map_of(index) | more)
    found = rl.load(tmp_path / "m_00000.weights.h5")
    assert found.refused.keys() == {"enc"} and "both" in found
    assert "/layers/lstm/norm/vars is in m_00001.weights.h5" in str(found.refused["enc"])
    assert rl.load(index).undecided.keys() == {"enc"}


def test_a_part_of_keras_without_its_index(keras_index, tmp_path):
    index, _ = keras_index
    for part in index.parent.glob("m_*.weights.h5"):
        shutil.copy(part, tmp_path)
    for part in tmp_path.glob("m_*"):
        with pytest.raises(rl.FileError, match=r"lacks 'm\.weights\.json': copy"):
            rl.load(part)
    shutil.copy(index, tmp_path)
    rl.load(tmp_path / index.name)
    (tmp_path / "m_00000.weights.h5").unlink()
    with pytest.raises(rl.FileError, match=r"'m_00000\.weights\.h5' does not exist"):
        rl.load(tmp_path / index.name)


def test_epochs_of_keras_are_not_parts(tmp_path):
    """But their names are those of parts, and a part alone was read without a word."""
    model = keras_model()
    for k in (1, 2):
        model.save_weights(tmp_path / f"m_{k:05d}.weights.h5")
        found = rl.load(tmp_path / f"m_{k:05d}.weights.h5")
        assert "enc" in found and "pass its index, m.weights.json" in found.notes[-1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m | {"/a/vars": ["../m_00000.weights.h5"]}, "is not opened"),
        (lambda m: m | {"/a/vars": ["m_00000.weights.h5"]}, "lacks '/a/vars'"),
        (lambda m: without(m, "/layers/dense/vars"), "does not list '/layers/dense/vars'"),
        (lambda m: m | {"/a/vars": [1]}, "part of '/a/vars' is not the name of a file"),
        (lambda m: m | {"/a/vars": {}}, "part of '/a/vars' is not the name of a file"),
        (lambda m: m | {"/a/vars": []}, "part of '/a/vars' is not the name of a file"),
        (lambda m: m | {"/a/vars": ["config.json"]}, r"config\.json"),
    ],
    ids=[
        "a path",
        "a group too many",
        "one too few",
        "a number",
        "an object",
        "no part",
        "no HDF5",
    ],
)
def test_an_index_of_keras_that_is_not_true(change, says, keras_index, tmp_path):
    index, _ = keras_index
    folder = shutil.copytree(index.parent, tmp_path / "m")
    write_index(folder / index.name, change(json.loads(index.read_text())["weight_map"]))
    with pytest.raises(rl.FileError, match=says):
        rl.load(folder / index.name)


def test_two_parts_of_keras_with_one_variable(tmp_path):
    model = keras_model()
    for k in (0, 1):
        model.save_weights(tmp_path / f"m_{k:05d}.weights.h5")
    model.save_weights(tmp_path / "m.weights.json", max_shard_size=1)
    model.save_weights(tmp_path / "m_00001.weights.h5")
    both = ["m_00000.weights.h5", "m_00001.weights.h5"]
    index = write_index(tmp_path / "m.weights.json",
                        dict.fromkeys(map_of(tmp_path / "m.weights.json"), both))  # fmt: skip
    with pytest.raises(rl.FileError, match=r"m_00000.* and .*m_00001.* both have"):
        rl.load(index)


# --------------------------------------------------------------------------- torch.distributed


@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_of_torch_distributed(whole, tmp_path):
    """A part of it was "a flat vector", its .metadata "not plain data". The repair works."""
    folder = tmp_path / "dcp"
    checkpoint.save(dict(STATE), checkpoint_id=folder)
    (part,) = folder.glob("*.distcp")
    renamed = shutil.copy(part, tmp_path / "part.pt"), shutil.copy(part, tmp_path / "part")
    compressed = tmp_path / "__0_0.distcp"
    compressed.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))  # by the zstd of an extension
    for path in (folder, part, folder / ".metadata", *renamed, compressed):
        with pytest.raises(rl.FileError, match=r" a checkpoint of torch\.distributed") as caught:
            rl.load(path)
        assert "dcp_to_torch_save(folder, 'model.pt')" in str(caught.value)
    dcp_to_torch_save(folder, tmp_path / "model.pt")
    assert same(rl.load(tmp_path / "model.pt"), rl.load(whole))
