"""Files of flax.serialization: what Flax writes is read, and what is written Flax reads."""

import flax.linen as nn
import flax.serialization
import jax
import jax.numpy as jnp
import ml_dtypes
import msgpack
import numpy as np
import pytest
import torch
from flax.serialization import from_bytes, msgpack_restore, to_bytes
from hypothesis import strategies as st
from marks import examples

import rnnlayout as rl
from rnnlayout._files.formats import flax as own_format
from rnnlayout._files.tensor_sets.file_limits import Budget
from rnnlayout._files.write_into import convert_into

I, H = 5, 3  # noqa: E741
SPEC = rl.Spec("lstm", I, H)
RNG = np.random.default_rng(11)


class Model(nn.Module):
    def setup(self):
        self.layers = [nn.RNN(nn.OptimizedLSTMCell(H)) for _ in range(2)]
        self.both = nn.Bidirectional(nn.RNN(nn.GRUCell(H)), nn.RNN(nn.GRUCell(H)))
        self.head = nn.Dense(2)

    def __call__(self, x):
        return self.head(self.layers[1](self.layers[0](x))), self.both(x)


X = jnp.asarray(RNG.standard_normal((2, 4, I)), jnp.float32)


@pytest.fixture(scope="module")
def state():
    """A training state: parameters, their averages, a step, what is neither array nor number."""
    shapes = jax.eval_shape(Model().init, jax.random.key(0), X)
    params = jax.tree.map(lambda a: RNG.standard_normal(a.shape).astype("f4"), shapes)["params"]
    half, brain = np.ones(2, "f2"), np.ones(2, ml_dtypes.bfloat16)
    eighth, nothing = np.ones(2, ml_dtypes.float8_e4m3fn), np.zeros((0, 2), "f4")
    more = {"half": half, "bf": brain, "f8": eighth, "none": nothing, "t": np.float32(2.5), "z": 1j}
    opt = [{"mu": np.ones(3, "i4")}, None]
    return {"step": 7, "params": params, "opt": opt, "name": "é", **more}


@pytest.fixture
def path(state, tmp_path):
    path = tmp_path / "model.msgpack"
    path.write_bytes(to_bytes(state))
    return path


def test_a_training_state(path, state):
    found = rl.load(path)
    specs = {name: one.spec for name, one in found.items()}
    assert specs == {
        "params/layers_0": rl.Spec("lstm", I, H),
        "params/layers_1": rl.Spec("lstm", H, H),
        "params/both": rl.Spec("gru", I, H, bidirectional=True),
    }
    params = state["params"]
    for name, one in found.items():
        live = rl.Weights(params[name.removeprefix("params/")])
        assert one == live
    others = {"params/head/kernel", "params/head/bias", "opt/0/mu", "t", "half", "bf", "f8", "none"}
    assert set(found.others) == others
    assert list(rl.load(path, prefix="params/both")) == ["params/both"]


def test_an_rnn_that_flax_restores(tmp_path):
    """What is written is the cell's part of params, with or without a target."""
    w = rl.Weights(torch.nn.LSTM(I, H)).to("flax-linen")
    rl.save(tmp_path / "a.msgpack", w)
    data = (tmp_path / "a.msgpack").read_bytes()
    cell, carry = nn.OptimizedLSTMCell(H), (jnp.zeros(H), jnp.zeros(H))
    target = {
        f"{s}{g}": {"kernel": np.zeros((n, H), "f4")}
        | ({"bias": np.zeros(H, "f4")} if s == "h" else {})
        for s, n in (("i", I), ("h", H))
        for g in "ifgo"
    }
    params = from_bytes(target, data)
    assert rl.Weights(params) == w
    for tree in (params, msgpack_restore(data)):
        h, _ = cell.apply({"params": tree}, carry, X[0, 0])
        # its products, sums and curves in float32, each at most 2^-24 of a value below 1, 4 for a
        # curve: (I + H + 4) terms of 4 gates and the cell
        expected = rl.RNN(w)(np.asarray(X)[0, :1])[1][1]
        assert abs(np.asarray(h[0]) - expected[0]).max() <= 2.0**-24 * 8 * (I + H + 4)


def test_weights_into_a_model_of_flax(path, state, tmp_path):
    """All else stays as it is, and Flax loads the result into the model."""
    module = torch.nn.LSTM(I, H, 2)
    new = tmp_path / "new.msgpack"
    first, second = rl.Weights(module).to("flax-linen").split()
    rl.save(tmp_path / "two.npz", {"params/layers_0": first, "params/layers_1": second})
    assert not convert_into(tmp_path / "two.npz", new, into=path).left_out
    made, params = from_bytes(state, new.read_bytes()), state["params"]
    old = state | {"params": params | {"layers_0": made["params"]["layers_0"],
                                       "layers_1": made["params"]["layers_1"]}}  # fmt: skip
    assert jax.tree.structure(made) == jax.tree.structure(old)
    for a, b in zip(jax.tree.leaves(made), jax.tree.leaves(old), strict=True):
        assert type(a) is type(b) and np.array_equal(a, b)
    assert rl.Weights(made["params"]["layers_1"]) == second


def test_a_conversion_in_place(path, tmp_path):
    """Values that are not arrays are kept; through a .safetensors arrays of every dtype are."""
    new, other, last = (tmp_path / name for name in ("new.msgpack", "a.safetensors", "b.msgpack"))
    for source, target in ((path, new), (path, other), (other, last)):
        rl.convert_file(source, target, to="torch-cell", prefix="params/layers_0")
    tree, again = (msgpack_restore(file.read_bytes()) for file in (new, last))
    assert tree["step"] == 7 and tree["name"] == "é" and tree["z"] == 1j
    assert tree["opt"]["1"] is None
    assert set(tree["params"]["layers_0"]["cell"]) == {
        "weight_ih", "weight_hh", "bias_ih", "bias_hh"
    }  # fmt: skip
    assert rl.verify(rl.load(new)["params/layers_0"], rl.load(path)["params/layers_0"])
    left = rl.convert_file(path, other, to="cudnn", force=True).left_out
    assert {"step", "name", "z", "opt/1"} <= set(left)
    assert again["f8"].dtype == ml_dtypes.float8_e4m3fn and again["f8"].tolist() == [1, 1]
    assert again["bf"].dtype == ml_dtypes.bfloat16 and again["half"].dtype == np.float16
    assert again["none"].shape == (0, 2) and again["opt"]["0"]["mu"].tolist() == [1, 1, 1]


def test_arrays_in_chunks(monkeypatch, tmp_path):
    """As flax writes arrays of more than a gigabyte, here from 64 bytes on."""
    monkeypatch.setattr(flax.serialization, "MAX_CHUNK_SIZE", 64)
    monkeypatch.setattr(own_format, "_CHUNK_NBYTES", 64)
    w = rl.Weights(torch.nn.LSTM(I, H)).to("flax-nnx")
    rl.save(tmp_path / "a.msgpack", w)
    data = (tmp_path / "a.msgpack").read_bytes()
    assert b"__msgpack_chunked_array__" in data
    tree = msgpack_restore(data)
    assert np.array_equal(tree["dense_i"]["kernel"], w["dense_i/kernel"])
    (tmp_path / "b.msgpack").write_bytes(to_bytes(tree))
    assert b"__msgpack_chunked_array__" in (tmp_path / "b.msgpack").read_bytes()
    assert rl.load(tmp_path / "b.msgpack")["lstm"] == w


def test_names_of_haiku_with_slashes(tmp_path):
    """A new tensor is put beside the old ones, into the dict whose key has the slashes."""
    shapes = rl.describe(rl.Spec("gru", I, H, reset="before"), "haiku")
    params = {"net/~/gru": {name: np.ones(shape, "f4") for name, shape in shapes.items()}}
    path = tmp_path / "a.msgpack"
    path.write_bytes(to_bytes(params))
    rl.convert_file(path, tmp_path / "b.msgpack", to="keras")
    tree = msgpack_restore((tmp_path / "b.msgpack").read_bytes())
    assert set(tree["net/~/gru"]) == {"kernel", "recurrent_kernel", "bias"}


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a")])
def test_names_that_exclude_each_other(names, tmp_path):
    tensors = {f"r/{n}": np.ones(s) for n, s in rl.describe(SPEC, "torch-cell").items()}
    np.savez(tmp_path / "a.npz", **{name: np.ones(2) for name in names}, **tensors)
    with pytest.raises(rl.FileError, match=r"'a'.*rename one"):
        rl.convert_file(tmp_path / "a.npz", tmp_path / "b.msgpack", to="torch-cell")
    assert not (tmp_path / "b.msgpack").exists()


def test_an_rnn_in_a_list_can_be_read_but_not_replaced(path, tmp_path):
    """The message was that the new file has an array there."""
    parts = msgpack_restore(path.read_bytes())["params"]
    path.write_bytes(flax.serialization.msgpack_serialize({"stack": [parts["layers_0"]]}))
    assert list(rl.load(path)) == ["stack/0"]
    with pytest.raises(rl.FileError, match=r"is in a list, 'stack': write another format, .safet"):
        rl.convert_file(path, tmp_path / "new.msgpack", to="torch")
    rl.convert_file(path, tmp_path / "new.safetensors", to="torch")


NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)
OWN = st.builds(msgpack.ExtType, st.integers(0, 127), st.binary())
KEYS = st.text() | st.integers(0, 300)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text() | st.binary() | OWN,
    lambda inside: st.lists(inside, max_size=40) | st.dictionaries(KEYS, inside, max_size=40),
)


def check_codec(value):
    """The same bytes as the package's, and what was written is read."""
    data = msgpack.packb(value)
    found = own_format.read_msgpack(memoryview(data), "a", Budget("a", len(data)))
    assert b"".join(own_format.msgpack_bytes(found, pytest.fail)) == data
    return found


@examples(60, value=VALUES)
def test_the_codec_against_the_package(value):
    check_codec(value)


def test_sizes_at_which_the_codec_changes():
    for n in (0, 15, 16, 31, 32, 255, 256, 65535, 65536):
        assert check_codec("a" * n) == "a" * n and check_codec([1] * n) == [1] * n
        assert bytes(check_codec(b"a" * n)) == b"a" * n
    for n in (0, 1, 2, 3, 4, 5, 8, 16, 17, 300, 70_000):
        found = check_codec(msgpack.ExtType(5, b"a" * n))
        assert (found.code, len(found.data)) == (5, n)
