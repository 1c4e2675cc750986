"""Tensors beside an RNN: a file with tensors that may change the RNN's outputs is not read as if it
lacked them, and a file with harmless tensors is read without a question."""

import importlib
import shlex

import numpy as np
import pytest
import torch
from files.hostile.limits import count_calls
from safetensors.torch import save_file

import rnnlayout as rl
from rnnlayout._cli.main import main

INPUTS, H = 3, 5


def cell():
    return torch.nn.LSTMCell(INPUTS, H).state_dict()


def lstm(layers=1):
    return torch.nn.LSTM(INPUTS, H, layers).state_dict()


def below(path, tensors):
    return {f"{path}.{name}": tensor for name, tensor in tensors.items()}


def numbers(**shapes):
    return {name.replace("__", "."): torch.ones(shape) for name, shape in shapes.items()}


# The state_dict() of modules that people write, and the names that a question has to contain.
PARTS_OF_A_CELL = {
    "layer norm": below(
        "rnn.cell", cell() | numbers(layernorm_i__weight=20, layernorm_c__weight=5)
    ),
    "layer norm at the root": cell() | numbers(layernorm_i__weight=20, layernorm_i__bias=20),
    "batch norm": below("c", cell() | numbers(bn_ih__weight=20, bn_ih__running_mean=20)),
    "multiplicative": below("rnn", lstm() | numbers(w_mih=(5, 3), w_mhh=(5, 5))),
    "peepholes": below("rnn", cell() | numbers(weight_ci=5, weight_cf=5, weight_co=5)),
    "LoRA": below("rnn", lstm() | numbers(lora_A__default__weight=(2, 3))),
    "LoRA at the root": lstm() | numbers(lora_A__default__weight=(2, 3)),
    "a scale": lstm() | numbers(weight_ih_l0_scale=1),
    "initial states": below("r", lstm() | numbers(h0=(1, 1, 5), c0=(1, 1, 5))),
    "initial states at the root": lstm() | numbers(h0=(1, 1, 5), c0=(1, 1, 5)),
    "attention": below("c", cell() | numbers(attn__weight=(5, 5))),
    "phases": below("c", lstm() | numbers(tau=5, phase=5)),
    "many": below("c", lstm() | {f"p{k}": torch.ones(2) for k in range(40)}),
}
HARMLESS = {
    "other modules": below("rnn", lstm(2)) | numbers(norm__weight=5, rnn2__weight=3, fc__bias=2),
    "other modules at the root": lstm() | numbers(fc__weight=(2, 5), mean=3, embedding__weight=7),
    "state that is not a weight": below("rnn", lstm() | numbers(_extra_state=1)),
    "observers": below("rnn", lstm() | numbers(activation_post_process__min_val=1)),
    "a generator": below("rnn", lstm() | numbers(rngs__count=1, rngs__default__key=2)),
    "batches": below("rnn", lstm() | numbers(bn__num_batches_tracked=1)),
    "two RNNs": below("a", lstm()) | below("a.b", cell()),
}
SUFFIXES = (".pt", ".safetensors", ".npz")


def saved(path, tensors):
    if path.suffix == ".pt":
        torch.save(tensors, path)
    elif path.suffix == ".safetensors":
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    else:
        np.savez(path, **{name: tensor.numpy() for name, tensor in tensors.items()})
    return path


def further(tensors):
    return {n for n in tensors if n.rpartition(".")[2] not in {**lstm(2), **cell()}}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("case", PARTS_OF_A_CELL)
def test_a_cell_with_further_tensors_is_a_question(case, suffix, tmp_path):
    tensors = PARTS_OF_A_CELL[case]
    path = saved(tmp_path / f"m{suffix}", tensors)
    found = rl.load(path)
    ((name, question),) = found.undecided.items()
    assert not found and question.arguments == ("ignore",)
    assert any(repr(one) in str(question) for one in further(tensors))
    arguments = eval(f"dict({question.repair})")
    weights = rl.load(path, **arguments)[name]
    (plain,) = rl.load(saved(tmp_path / f"p{suffix}", without(tensors))).values()
    assert weights == plain
    assert set(found.others) == set(rl.load(path, **arguments).others) == further(tensors)


def without(tensors):
    return {name: tensor for name, tensor in tensors.items() if name not in further(tensors)}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("case", HARMLESS)
def test_harmless_tensors_are_no_question(case, suffix, tmp_path):
    path = saved(tmp_path / f"m{suffix}", HARMLESS[case])
    found = rl.load(path)
    assert len(found) == 1 + (case == "two RNNs") and not found.unread
    assert set(found.others) == further(HARMLESS[case])


def test_dicts_around_a_whole_model(tmp_path):
    model = lstm() | numbers(fc__weight=(2, 5))
    checkpoint = {"state_dict": model, "epoch": 3, "optimizer": {"exp_avg": torch.ones(2)}}
    assert list(rl.load(saved(tmp_path / "m.pt", checkpoint))) == ["state_dict"]
    checkpoint["state_dict"] |= numbers(norm__weight=5)
    assert list(rl.load(saved(tmp_path / "m.pt", checkpoint)).undecided) == ["state_dict"]


@pytest.mark.parametrize("case", PARTS_OF_A_CELL)
def test_in_memory(case):
    tensors = PARTS_OF_A_CELL[case]
    prefix = next(iter(tensors)).rpartition(".")[0]
    with pytest.raises(rl.LayoutError, match="further tensors") as refused:
        rl.Weights(tensors, prefix=prefix)
    repair = str(refused.value).rpartition("pass ")[2]
    plain = rl.Weights(without(tensors), prefix=prefix)
    assert rl.Weights(tensors, prefix=prefix, **eval(f"dict({repair})")) == plain
    harmless = tensors | {f"{prefix}._extra_state".lstrip("."): torch.ones(1)}
    assert rl.Weights(harmless, prefix=prefix, **eval(f"dict({repair})")) == plain


def nested(tensors):
    """Return the tensors in dicts in dicts, as Flax has them."""
    root = {}
    for name, tensor in tensors.items():
        *path, leaf = name.split(".")
        branch = root
        for part in path:
            branch = branch.setdefault(part, {})
        branch[leaf] = tensor
    return root


@pytest.mark.parametrize("prefix", ["", "params/m"])
@pytest.mark.parametrize("case", ["layer norm", "LoRA", "initial states", "many"])
def test_nested_dicts_in_memory(case, prefix):
    """The error said that no dict had the tensors of an RNN, and ignore= did not help."""
    tensors = below(
        "params.m", {n.rpartition("cell.")[2]: t for n, t in PARTS_OF_A_CELL[case].items()}
    )
    prefix = prefix and f"{prefix}/{'/'.join(min(tensors, key=len).split('.')[2:-1])}"
    with pytest.raises(rl.LayoutError, match="further tensors") as refused:
        rl.Weights(nested(tensors), prefix=prefix)
    arguments = eval(f"dict({str(refused.value).rpartition('pass ')[2]})")
    plain = rl.Weights(nested(without(tensors)), prefix=prefix)
    assert rl.Weights(nested(tensors), prefix=prefix, **arguments) == plain
    harmless = nested(without(tensors) | {"params.m.rngs.count": torch.ones(1)})
    assert rl.Weights(harmless, prefix=prefix) == plain


def test_the_command_prints_an_option(tmp_path, capsys):
    path = saved(tmp_path / "m.pt", PARTS_OF_A_CELL["layer norm"])
    arguments = ["convert", str(path), str(tmp_path / "o.npz"), "--to", "keras"]
    assert main(arguments) == 3
    options = shlex.split(capsys.readouterr().err.rpartition("pass ")[2].partition(";")[0])
    assert options == ["--ignore", "rnn.cell.layernorm_c.*", "--ignore", "rnn.cell.layernorm_i.*"]
    assert main([*arguments, *options]) == 0


@pytest.mark.parametrize("wrong", ["rnn.*", [3], 7])
def test_patterns_of_a_wrong_kind(wrong):
    with pytest.raises(rl.LayoutError, match="need a list of names"):
        rl.Weights(lstm(), ignore=wrong)


def layer_norm_cell(kit):
    class NormCell(kit.layers.LSTMCell):
        def build(self, shape):
            super().build(shape)
            self.norm = kit.layers.LayerNormalization()
            self.norm.build((None, self.units))
            self.peephole = self.add_weight(shape=(self.units,), name="peephole_i")

    return NormCell


@pytest.mark.parametrize(
    "kit, suffix",
    [("keras", ".weights.h5"), ("tf_keras", ".weights.h5"), ("tf_keras", ".index")],
)
def test_cells_of_keras(kit, suffix, tmp_path):
    kit = importlib.import_module(kit)
    x = kit.Input((4, INPUTS))
    own = kit.layers.RNN(layer_norm_cell(kit)(H), name="own")
    for layer, expected in ((own, 1), (kit.layers.LSTM(H, name="plain"), 0)):
        model = kit.Model(x, kit.layers.Dense(2)(layer(x)))
        path = tmp_path / f"m{expected}{suffix}"
        if suffix == ".index":
            model.save_weights(path.with_suffix(""))
        else:
            model.save_weights(path)
        found = rl.load(path)
        assert (len(found.undecided), len(found)) == (expected, 1 - expected)
    ((_, question),) = rl.load(tmp_path / f"m1{suffix}").undecided.items()
    assert question.arguments == ("ignore",)
    assert len(rl.load(tmp_path / f"m1{suffix}", **eval(f"dict({question.repair})"))) == 1


def test_slots_and_averages_of_tensorflow(tmp_path):
    import tensorflow as tf

    shapes = {"kernel": (INPUTS, 4 * H), "recurrent_kernel": (H, 4 * H), "bias": (4 * H,)}
    tensors = {f"lstm/{name}": np.ones(shape, "f4") for name, shape in shapes.items()}
    slots = {
        f"{name}/{slot}": array
        for name, array in tensors.items()
        for slot in ("Adam", "Adam_1", "ExponentialMovingAverage")
    }
    for more, is_read in ((slots, True), ({"lstm/kernel/peephole": np.ones(H, "f4")}, False)):
        every = {**tensors, **more}
        tf.raw_ops.SaveV2(
            prefix=str(tmp_path / "c"),
            tensor_names=[*every],
            tensors=[*every.values()],
            shape_and_slices=[""] * len(every),
        )
        found = rl.load(tmp_path / "c.index")
        assert list(found) == ["lstm"] * is_read and len(found.undecided) == 1 - is_read
        assert any("an average of a weight is not read" in note for note in found.notes) == is_read


def test_the_work_of_accounting_grows_with_the_number_of_tensors(tmp_path):
    work = []
    for count in (100, 400):
        module = lstm() | numbers(gain=3) | {f"p{k}.w": torch.ones(1) for k in range(9)}
        tensors = {f"m.{k}.{n}": t for k in range(count) for n, t in module.items()}
        path = saved(tmp_path / f"{count}.npz", tensors)
        end = count_calls()
        assert len(rl.load(path).undecided) == count
        work.append(end())
    assert work[1] < 4.2 * work[0]


@pytest.mark.parametrize("suffix, to", [(".npz", "cudnn"), (".onnx", "onnx"), (".h5", "keras")])
def test_texts_of_the_metadata_are_left_out_by_name(suffix, to, tmp_path):
    texts = {"format": "pt", "license": "mit"}
    save_file(below("enc", lstm()), tmp_path / "a.safetensors", texts)
    rl.save(tmp_path / "b.safetensors", rl.load(tmp_path / "a.safetensors"))  # adds a record
    for name, left_out in {"a": ("__metadata__.license",), "b": ()}.items():
        source, target = tmp_path / f"{name}.safetensors", tmp_path / f"{name}{suffix}"
        done = rl.convert_file(source, target, to=to)
        assert done.left_out == (() if suffix == ".npz" else left_out)  # a copy keeps the texts
    done = rl.convert_file(tmp_path / "a.safetensors", tmp_path / f"c{suffix}", into=target)
    assert done.left_out == ("__metadata__.license",)
