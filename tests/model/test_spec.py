"""Spec: what it accepts, what it refuses, how it is stored; and how its numbers are rounded."""

import json
import pickle

import ml_dtypes
import numpy as np
import pytest
import torch
from oracles.frameworks import seeded

import rnnlayout as rl
from rnnlayout._model.dtypes import narrow_values, round_values, widen_bits


def test_it_is_a_value():
    spec = rl.Spec("lstm", input_size=8, hidden_size=16)
    assert spec == rl.Spec("lstm", 8, 16, 1, False, 0, "double", "after", "sigmoid", False,
                           "float32", False, "tanh")  # fmt: skip
    assert (spec.replace(bias=True).bias, spec.replace(bias=False).bias) == ("double", "none")
    assert spec.num_params == 4 * 16 * (8 + 16 + 2) and spec.nbytes == 4 * spec.num_params
    other = rl.Spec("gru", np.int64(2), np.int32(3), bidirectional=np.True_)
    assert hash(other) == hash(rl.Spec("gru", 2, 3, bidirectional=True))
    assert pickle.loads(pickle.dumps(other)) == other and type(other.input_size) is int
    with pytest.raises(AttributeError):
        spec.cell = "lstm"


def test_dtypes_by_any_name_and_sizes_of_64_bits():
    for dtype, name in [
        ("f2", "float16"), (np.float64, "float64"), (np.dtype("<f4"), "float32"),
        (torch.bfloat16, "bfloat16"), (torch.float16, "float16"), (ml_dtypes.bfloat16, "bfloat16"),
    ]:  # fmt: skip
        assert rl.Spec("gru", 2, 3, dtype=dtype).dtype == name
    spec = rl.Spec("rnn_tanh", 1 << 33, 1 << 20, bias=False, dtype="float16")
    assert spec.num_params == (1 << 53) + (1 << 40)
    assert rl.regions(spec)["offset"].tolist() == [0, 1 << 54]


def test_it_goes_through_json():
    for spec in (
        rl.Spec("lstm", 5, 7, 2, True, 3, "recurrent", dtype="bfloat16"),
        rl.Spec("lstm", 5, 7, peepholes=True),
        rl.Spec("gru", 5, 7, activation="relu"),
    ):
        assert rl.Spec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    # later releases must read what this one writes
    written = (
        '{"schema": 1, "cell": "gru", "input_size": 2, "hidden_size": 3, "num_layers": 4,'
        ' "bidirectional": true, "proj_size": 0, "bias": "input", "reset": "before",'
        ' "recurrent_activation": "hard_sigmoid", "skip_input": false, "dtype": "float16"}'
    )
    assert json.loads(written) == rl.Spec.from_dict(json.loads(written)).to_dict()


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"schema": 2}, "schema is 2; this release"),
        ({"schema": "1"}, "schema is '1'"),
        ({"schema": ...}, "schema is missing"),
        ({"colour": 1}, "unknown field 'colour'"),
        ({"cell": ...}, "cell is missing"),
    ],
)
def test_what_from_dict_refuses(changes, text):
    data = {**rl.Spec("gru", 2, 3).to_dict(), **changes}
    data = {key: value for key, value in data.items() if value is not ...}
    with pytest.raises(rl.SpecError, match=text):
        rl.Spec.from_dict(data)


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"cell": "lstn"}, "cell is 'lstn', need one of: lstm, gru, rnn_tanh, rnn_relu"),
        ({"cell": None}, "cell is None"),
        ({"input_size": 0}, "input_size is 0, need at least 1"),
        ({"hidden_size": -4}, "hidden_size is -4, need at least 1"),
        ({"num_layers": 0}, "num_layers is 0, need at least 1"),
        ({"num_layers": 1 << 20}, "num_layers is 1048576, need at most 65536"),
        ({"input_size": 2.5}, "input_size is 2.5, need a whole number"),
        ({"input_size": True}, "input_size is True, need a whole number"),
        ({"input_size": "8"}, "input_size is '8', need a whole number"),
        ({"hidden_size": 1 << 70}, r"need at most 2\^63 - 1"),
        ({"hidden_size": 1 << 40}, r"would not fit into 2\^63 bytes"),
        ({"input_size": (1 << 63) - 1}, r"would not fit into 2\^63 bytes"),
        ({"proj_size": 3}, "only an LSTM can have a projection; this is gru"),
        ({"cell": "lstm", "proj_size": 3}, "need less than hidden_size 3"),
        ({"cell": "lstm", "proj_size": -1}, "proj_size is -1, need at least 0"),
        ({"peepholes": True}, "only an LSTM can have peepholes; this is gru"),
        ({"cell": "lstm", "peepholes": "ifo"}, "peepholes is 'ifo', need True or False"),
        ({"bias": "single"}, "bias is 'single', need one of: double, input, recurrent, none"),
        ({"cell": "lstm", "reset": "before"}, "only a GRU has a reset gate; this is lstm"),
        ({"cell": "rnn_tanh", "recurrent_activation": "hard_sigmoid"}, "has no gates"),
        ({"recurrent_activation": "relu"}, "recurrent_activation is 'relu', need one of"),
        ({"activation": "elu"}, "activation is 'elu', need one of: tanh, relu"),
        ({"activation": None}, "activation is None"),
        ({"cell": "rnn_tanh", "activation": "relu"}, "the cell is rnn_tanh, and a plain RNN's"),
        ({"cell": "rnn_relu", "activation": "relu"}, "the cell is rnn_relu, and a plain RNN's"),
        ({"skip_input": True}, "needs input_size == hidden_size; found 2 and 3"),
        ({"skip_input": 2}, "skip_input is 2, need True or False"),
        ({"dtype": "int8"}, "dtype is int8, need one of"),
        ({"dtype": "float128"}, "dtype is"),
    ],
)
def test_what_a_spec_cannot_be(fields, text):
    with pytest.raises(rl.SpecError, match=text):
        rl.Spec(**{"cell": "gru", "input_size": 2, "hidden_size": 3, **fields})


@pytest.mark.parametrize(
    "fields",
    [{"reset": "before"}, {"recurrent_activation": "hard_sigmoid"}, {"activation": "relu"},
     {"cell": "lstm", "peepholes": True}, {"cell": "lstm", "activation": "relu"}],
)  # fmt: skip
def test_what_has_no_cudnn_form_has_no_size_there(fields):
    spec = rl.Spec(**{"cell": "gru", "input_size": 2, "hidden_size": 3, **fields})
    with pytest.raises(rl.SpecError, match="cudnn has no"):
        _ = spec.nbytes
    with pytest.raises(rl.LossyError, match="cudnn has no"):
        rl.regions(spec)


NARROW = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}


@pytest.mark.parametrize("name", NARROW)
def test_values_are_rounded_once_to_nearest_even(name):
    """Around the smallest normal number, in the middle between two numbers, and anywhere else."""
    info = ml_dtypes.finfo(NARROW[name])
    smallest, step = float(info.smallest_normal), float(info.smallest_subnormal)
    near = smallest + step * np.arange(-9, 9, 0.25)
    anywhere = seeded("rounding", name).normal(size=100) * np.repeat([1, 1e3, smallest, 0], 25)
    values = np.concatenate([near, anywhere, -near, [np.inf, -np.inf]])
    values = values.astype("f4" if name == "bfloat16" else "f8").astype("f8")  # see below
    theirs = values.astype(NARROW[name])  # ml_dtypes rounds a float64 to float32 first
    assert np.array_equal(round_values(values, name), theirs.astype("f8"))
    assert np.array_equal(widen_bits(narrow_values(values, name), name), theirs.astype("f8"))
