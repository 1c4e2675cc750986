"""Checkpoints of TensorFlow are read as TensorFlow reads them."""

import numpy as np
import pytest
import tensorflow as tf
import torch
from commands import TESTS
from oracles import some
from tf_keras.src.layers.rnn import legacy_cells

import rnnlayout as rl
from rnnlayout._files.formats.tensorflow.checkpoint import FORMAT
from rnnlayout._files.tensor_sets.file_limits import InputFile

RNG = np.random.default_rng(3)
DTYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "c8", "c16")


def saved(prefix, tensors, **slices):
    """Write a checkpoint with TensorFlow itself. slices: "8 12 0,4:0,12" of some tensors."""
    values = [tf.constant(value) for value in tensors.values()]
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=[*tensors], tensors=values,
                      shape_and_slices=[slices.get(name, "") for name in tensors])  # fmt: skip
    return prefix.with_name(f"{prefix.name}.index")


def merged(folder, *names):
    """Write the checkpoint "all" from several others."""
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=[str(folder / name) for name in names],
                                  destination_prefix=str(folder / "all"))  # fmt: skip
    return folder / "all.index"


def check(path):
    """Compare all tensors with those that TensorFlow finds; return them."""
    tensor_set = FORMAT.read(InputFile(path))
    reader = tf.train.load_checkpoint(str(path.with_name(path.name.removesuffix(".index"))))
    for name, tensor in tensor_set.tensors.items():
        stored = name if reader.has_tensor(name) else f"{name}/.ATTRIBUTES/VARIABLE_VALUE"
        expected = np.asarray(reader.get_tensor(stored))
        assert (tensor.shape, tensor.dtype) == (expected.shape, expected.dtype.name), name
        assert tensor.bits().tobytes() == expected.tobytes(), name
    return tensor_set


def torch_lstm(seed=0):
    return some.normal_weights(rl.layout("torch"), rl.Spec("lstm", 5, 3), seed)


def test_tensors_of_every_dtype(tmp_path):
    tensors = {f"a/{d}": (RNG.standard_normal((3, 2)) * 9).astype(d) for d in DTYPES}
    tensors |= {"nothing": np.ones((0, 4), "f4"), "one": np.float32(2.5), "é": np.ones(2, "f4")}
    tensors["bf"] = tf.ones((2, 3), tf.bfloat16)
    tensor_set = check(saved(tmp_path / "all", tensors))
    assert (
        tensor_set.tensors.keys() == tensors.keys() and tensor_set.tensors["bf"].dtype == "bfloat16"
    )


def test_a_checkpoint_of_version_1_is_written_as_the_error_says(tmp_path, monkeypatch):
    """Its names are those of TensorFlow before 1.0."""
    arrays = {"RNN/BasicLSTMCell/Linear/Matrix": RNG.standard_normal((8, 12), "f4"),
              "RNN/BasicLSTMCell/Linear/Bias": RNG.standard_normal(12, "f4")}  # fmt: skip
    monkeypatch.chdir(tmp_path)
    values = [tf.constant(array) for array in arrays.values()]
    tf.raw_ops.Save(filename="old.ckpt", tensor_names=[*arrays], data=values)
    for options in ({}, {"format": "index"}):
        with pytest.raises(rl.FileError) as caught:
            rl.load("old.ckpt", **options)
    exec(caught.value.text.partition("makes of it: ")[2], {"tf": tf})
    (weights,) = rl.load("model.index", layout=rl.layout("tf1", forget_bias=1.0)).values()
    for array, old in zip(weights.values(), arrays.values(), strict=True):
        assert np.array_equal(array, old)


def test_very_many_tensors(tmp_path):
    """They are in several blocks, and their names begin alike."""
    tensors = {f"model/layer_{k:04}/{'x' * (k % 90)}": np.float32(k) for k in range(3000)}
    assert len(check(saved(tmp_path / "many", tensors)).tensors) == 3000


def test_texts_are_not_read(tmp_path):
    tensors = torch_lstm() | {"step": np.int64(7), "words": np.array([b"a", b"b"])}
    path = saved(tmp_path / "model.ckpt-7", tensors)
    assert check(path).values == ["words"]
    (found,) = rl.load(path).values()
    assert found == rl.Weights(torch_lstm())
    done = rl.convert_file(path, tmp_path / "a.npz", to="cudnn")
    assert done.left_out == ("words",)
    with np.load(tmp_path / "a.npz") as new:
        assert new["step"] == 7


def test_an_array_of_an_unknown_dtype_is_named(tmp_path):
    """It counted as a text."""
    tensors = torch_lstm() | {"small": tf.cast([1, 2], tf.quint8)}
    path = saved(tmp_path / "model.ckpt-7", tensors)
    assert not check(path).values
    assert rl.load(path).notes == ["small is an array of TensorFlow's dtype 12 and was not read"]
    path = saved(tmp_path / "b", torch_lstm() | {"weight_hh_l0": tf.zeros((12, 3), tf.qint8)})
    with pytest.raises(rl.FileError, match="weight_hh_l0 is an array of TensorFlow's dtype 11, n"):
        rl.load(path)["rnn"]


def test_several_files_of_data(tmp_path):
    for seed, name in enumerate("ab"):
        saved(tmp_path / name, {f"{name}.{k}": v for k, v in torch_lstm(seed).items()})
    path, second = merged(tmp_path, "a", "b"), tmp_path / "all.data-00001-of-00002"
    assert second.exists() and len(check(path).tensors) == 8
    assert rl.load(path)["b"] == rl.Weights(torch_lstm(1))
    second.unlink()
    with pytest.raises(rl.FileError, match=r"'all\.data-00001-of-00002' does not exist: copy it"):
        rl.load(path)


def test_a_variable_in_slices(tmp_path):
    """A partitioned variable is left out, and the RNN that lacks it says so."""
    tensors = torch_lstm()
    whole = tensors.pop("weight_hh_l0")
    saved(tmp_path / "p0", {"weight_hh_l0": whole[:4]}, weight_hh_l0="12 3 0,4:0,3")
    saved(tmp_path / "p1", {"weight_hh_l0": whole[4:]}, weight_hh_l0="12 3 4,8:0,3")
    saved(tmp_path / "rest", tensors)
    path = merged(tmp_path, "p0", "p1", "rest")
    with pytest.raises(rl.Error, match=r"weight_hh_l0.*slices"):
        rl.load(path)


def test_a_prefix_and_a_checkpoint_in_the_current_folder(tmp_path, monkeypatch):
    """PosixPath('.') has an empty name: the folder above was looked for by the folder's name."""
    path = saved(tmp_path / "model.ckpt-7", torch_lstm())
    with pytest.raises(FileNotFoundError, match=f"pass {path},"):
        rl.load(tmp_path / "model.ckpt-7")
    monkeypatch.chdir(tmp_path)
    assert dict(rl.load(path.name)) == dict(rl.load(path))


# names of a cell before TensorFlow 1.2 -> its names since then
OLD_NAMES = [
    ("rnn/multi_rnn_cell/cell_0/basic_lstm_cell", "rnn/multi_rnn_cell/cell_0/basic_lstm_cell",
     {"weights": "kernel", "biases": "bias"}),
    ("RNN/MultiRNNCell/Cell0/BasicLSTMCell", "RNN/MultiRNNCell/Cell0/basic_lstm_cell",
     {"Linear/Matrix": "kernel", "Linear/Bias": "bias"}),
    ("RNN/LSTMCell", "RNN/lstm_cell",
     {"W_0": "kernel", "B": "bias", "W_F_diag": "w_f_diag", "W_I_diag": "w_i_diag",
      "W_O_diag": "w_o_diag", "W_P_0": "projection/kernel"}),
    ("rnn/lstm_cell_1", "rnn/lstm_cell_1",
     {"weights": "kernel", "biases": "bias", "projection/weights": "projection/kernel"}),
    ("RNN/GRUCell", "RNN/gru_cell",
     {"Gates/Linear/Matrix": "gates/kernel", "Gates/Linear/Bias": "gates/bias",
      "Candidate/Linear/Matrix": "candidate/kernel", "Candidate/Linear/Bias": "candidate/bias"}),
    ("rnn/gru_cell", "rnn/gru_cell",
     {"gates/weights": "gates/kernel", "gates/biases": "gates/bias",
      "candidate/weights": "candidate/kernel", "candidate/biases": "candidate/bias"}),
]  # fmt: skip


@pytest.mark.parametrize("old_cell, new_cell, names", OLD_NAMES)
def test_names_before_tensorflow_1_2(old_cell, new_cell, names, tmp_path):
    """As tensorflow/contrib/rnn/python/tools/checkpoint_convert.py renames them. A slot of an
    optimizer keeps its end, and a Dense of another scope its name."""
    gates, width = (2, 3) if "gates/kernel" in names.values() else (4, 3)
    width = 2 if "projection/kernel" in names.values() else width
    shapes = {
        "kernel": (5 + width, 4 * 3), "bias": (gates * 3,), "projection/kernel": (3, 2),
        "gates/kernel": (8, 6), "gates/bias": (6,), "candidate/kernel": (8, 3),
        "candidate/bias": (3,),
    }  # fmt: skip
    arrays = {new: RNG.standard_normal(shapes.get(new, (3,)), "f4") for new in names.values()}
    slot = {f"{old_cell}/{old}/Adam": arrays[new] for old, new in names.items()}
    old = {f"{old_cell}/{old}": arrays[new] for old, new in names.items()} | slot
    dense = {"fc/weights": np.ones((8, 12), "f4"), "fc/biases": np.ones(12, "f4")}
    found = rl.load(saved(tmp_path / "old", old | dense), layout="tf1")
    new = {f"{new_cell}/{name}": array for name, array in arrays.items()}
    wanted = rl.load(saved(tmp_path / "new", new), layout="tf1")
    assert dict(found) == dict(wanted) and len(found) == 1
    assert {*dense, *(f"{new_cell}/{name}/Adam" for name in arrays)} == {*found.others}
    assert any("names of TensorFlow before 1.2, read as" in note for note in found.notes)


def test_a_trained_model_of_keras_3():
    """tf.train.Checkpoint stores its weights as variables that its optimizer lists; the .keras file
    has the same (tests/data/record_keras_checkpoint.py)."""
    folder = TESTS / "data" / "keras-checkpoint"
    stored = [name for name, _ in tf.train.list_variables(str(folder / "trained"))]
    assert not any("kernel" in name for name in stored)
    found, wanted = rl.load(folder / "trained.index"), rl.load(folder / "model.keras")
    assert list(found) == [f"model/_functional/_operations/{k}" for k in (1, 2)]
    for weights, other in zip(found.values(), wanted.values(), strict=True):
        assert rl.verify(weights, other) and weights.spec == other.spec
    assert any("listed by the optimizer, read as" in note for note in found.notes)
    assert all(weights.optimizer is None for weights in found.values())
    repair = "save the whole compiled model, model.save('model.keras')"
    assert sum(note.endswith(repair) for note in found.notes) == 2


def test_variables_of_an_optimizer_alone(tmp_path):
    variables = {f"optimizer/_trainable_variables/{k}": np.ones((8, 12), "f4") for k in range(2)}
    with pytest.raises(rl.FileError, match=r"without a path in the model: save the model with"):
        rl.load(saved(tmp_path / "m", variables))


def test_a_checkpoint_with_old_and_new_names_keeps_both(tmp_path):
    kernel, bias = np.ones((8, 12), "f4"), np.zeros(12, "f4")
    both = {"a/lstm_cell/weights": kernel + 1, "a/lstm_cell/kernel": kernel,
            "a/lstm_cell/bias": bias}  # fmt: skip
    tensor_set = check(saved(tmp_path / "m", both))
    assert tensor_set.tensors.keys() == both.keys()
    beside = {"b/lstm_cell/weights": kernel, "b/lstm_cell/biases": bias}
    tensor_set = FORMAT.read(InputFile(saved(tmp_path / "m", both | beside)))
    assert tensor_set.tensors.keys() == {*both, "b/lstm_cell/kernel", "b/lstm_cell/bias"}


@pytest.mark.filterwarnings("ignore:.*BasicLSTMCell. is deprecated")
def test_a_checkpoint_of_tensorflow_1(tmp_path):
    """PyTorch and rl.RNN compute from it, and from a SavedModel, what the graph computed."""
    x = RNG.standard_normal((4, 2, 5)).astype("f4")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        cell = legacy_cells.BasicLSTMCell(3)  # adds 1 to the bias of f
        given = tf.constant(x)
        y, _ = tf.compat.v1.nn.dynamic_rnn(cell, given, dtype=tf.float32, time_major=True)
        session.run(tf.compat.v1.global_variables_initializer())
        expected = session.run(y)
        tf.compat.v1.train.Saver().save(session, str(tmp_path / "model.ckpt"), global_step=7)
        one = {"x": given}, {"y": y}
        tf.compat.v1.saved_model.simple_save(session, str(tmp_path / "folder"), *one)
    path = tmp_path / "model.ckpt-7.index"
    assert check(path).tensors.keys() == {f"rnn/basic_lstm_cell/{n}" for n in ("kernel", "bias")}
    (found,) = rl.load(path, layout="tf1").values()
    assert found.spec == rl.Spec("lstm", 5, 3)
    assert [*rl.load(tmp_path / "folder", layout="tf1").values()] == [found]
    module = torch.nn.LSTM(5, 3)
    rl.assign(module, found)
    with torch.no_grad():
        theirs = module(torch.from_numpy(x))[0].numpy()
    # |y| < 1, and 4 steps of sums of 9 products of numbers below 4, each rounded by 2^-24: 1e-5
    for ours in (theirs, rl.RNN(found)(x)[0]):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)
    (zero,) = rl.load(path, layout=rl.layout("tf1", forget_bias=0.0)).values()
    assert np.abs(rl.RNN(zero)(x)[0] - expected).max() > 0.01


def test_a_dense_layer_beside_a_cell_is_no_rnn(tmp_path):
    """TF 1's LSTMCell has one kernel and one bias, and so has a Dense layer. prefix= reads it."""
    cell = {"kernel": np.ones((8, 12), "f4"), "bias": np.ones(12, "f4")}
    tensors = {f"rnn/lstm_cell/{name}": array for name, array in cell.items()}
    tensors |= {f"dense/{name}": array for name, array in cell.items()}
    path = saved(tmp_path / "c", tensors)
    found = rl.load(path, layout="tf1")
    assert list(found) == ["rnn"] and set(found.others) == {"dense/kernel", "dense/bias"}
    hints = {"layout": "tf1", "cell": "lstm"}
    assert list(rl.load(path, prefix="dense", **hints)) == ["dense"]
    path = saved(tmp_path / "d", {f"net/{name}": array for name, array in cell.items()})
    assert list(rl.load(path, **hints)) == ["net"]


def test_the_cell_for_weights_of_cudnn_adds_no_forget_bias(tmp_path):
    cell = {"kernel": np.ones((8, 12), "f4"), "bias": np.ones(12, "f4")}
    files = [
        saved(tmp_path / name, {f"rnn/{name}/{key}": array for key, array in cell.items()})
        for name in ("cudnn_compatible_lstm_cell", "lstm_cell")
    ]
    zero, one = (rl.load(file, layout="tf1") for file in files)
    assert zero["rnn"] == rl.load(files[1], layout=rl.layout("tf1", forget_bias=0.0))["rnn"]
    assert zero["rnn"].to("keras") != one["rnn"].to("keras")
    assert zero.notes == ["rnn: a cudnn_compatible_lstm_cell adds nothing to the forget bias"]
