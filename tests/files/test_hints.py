"""What the caller says about an RNN that the file describes itself: it agrees, or it is refused."""

import zipfile

import numpy as np
import pytest
from oracles import some

import rnnlayout as rl

GRU = rl.Spec("gru", 5, 3, reset="before")
LSTM = rl.Spec("lstm", 5, 3, 2, bias="none")
FILES = [  # suffix, layout, spec
    (".safetensors", "keras", GRU),
    (".npz", "torch", LSTM),
    (".safetensors", "cudnn", LSTM),
    (".pt", "torch", LSTM),
    (".bin", "cudnn", LSTM),
    (".keras", "keras", GRU),
    (".h5", "keras", GRU),
    (".onnx", "onnx", GRU),
]


@pytest.fixture(params=FILES, ids=lambda case: f"{case[1]}{case[0]}")
def recorded(request, tmp_path):
    """A file that records its RNN, and the RNN."""
    suffix, layout, spec = request.param
    weights = rl.Weights(some.normal_weights(rl.layout(layout), spec), spec, layout)
    path = tmp_path / f"a{suffix}"
    rl.save(path, weights)
    return path, weights


WRONG = {
    "hidden_size": 4, "input_size": 7, "num_layers": 3, "bidirectional": True, "dtype": "float64",
    "cell": "rnn_tanh", "recurrent_activation": "hard_sigmoid_keras2",
}  # fmt: skip


def test_what_the_file_contradicts_is_refused(recorded, tmp_path):
    """The error names both values, and what to do about it."""
    path, weights = recorded
    spec, new = weights.spec, tmp_path / "new.npz"
    for hint, value in {
        "layout": "keras" if weights.layout.name == "torch" else "torch",
        "cell": "rnn_tanh",
        "reset": "before" if spec.reset == "after" else "after",
    }.items():
        with pytest.raises((rl.SpecError, rl.LayoutError), match=rf"{value}.*omit|omit.*{value}"):
            rl.load(path, **{hint: value})
    for field, value in WRONG.items():
        plain = {"reset": "after", "recurrent_activation": "sigmoid"} if field == "cell" else {}
        wrong = spec.replace(**{field: value}, **plain)
        for use in (
            lambda wrong=wrong: rl.load(path, wrong),
            lambda wrong=wrong: rl.convert_file(path, new, to="torch-cell", spec=wrong),
        ):
            with pytest.raises(rl.SpecError, match="omit") as refused:
                use()
            text = str(refused.value)
            assert field in text and str(value) in text and str(getattr(spec, field)) in text
    assert not new.exists()


def test_a_spec_that_agrees_is_taken(recorded):
    """Only cuDNN's weight space has a bias mode; of other layouts a conversion will write it."""
    path, weights = recorded
    spec = weights.spec.replace(bias="input")
    if weights.layout.name == "cudnn":
        with pytest.raises(rl.SpecError, match=r"bias.*omit"):
            rl.load(path, spec)
        spec = weights.spec
    for agrees in (weights.spec, spec):
        (found,) = rl.load(path, agrees).values()
        assert found.spec == agrees and some.same_bits(dict(found), dict(weights))


def test_cell_and_reset_answer_for_the_rnns_that_do_not_say(tmp_path):
    """In a file with several, they do not contradict one that has another cell."""
    path = tmp_path / "a.npz"
    plain = some.normal_weights(rl.layout("torch"), rl.Spec("rnn_relu", 5, 3))
    np.savez(path, **{f"plain.{k}": v for k, v in plain.items()})
    weights = rl.Weights(some.normal_weights(rl.layout("keras"), GRU), GRU, "keras")
    recorded = tmp_path / "b.npz"
    rl.save(recorded, {"gru": weights})
    with zipfile.ZipFile(path) as two, zipfile.ZipFile(recorded, "a") as one:
        for name in two.namelist():
            one.writestr(name, two.read(name))
    found = rl.load(recorded, cell="rnn_relu")
    assert {name: one.spec.cell for name, one in found.items()} == {
        "gru": "gru", "plain": "rnn_relu"
    }  # fmt: skip
    with pytest.raises(rl.SpecError, match="describes one RNN, but 2 were found"):
        rl.load(recorded, GRU)
    assert rl.load(recorded, GRU, prefix="gru")["gru"].spec == GRU
