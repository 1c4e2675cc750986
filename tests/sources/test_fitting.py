"""What is kept of a source answers only the same question."""

import numpy as np
import pytest
import torch

import rnnlayout as rl
from rnnlayout._sources import fitting

GRU = {"kernel": np.ones((2, 9), "f4"), "recurrent_kernel": np.ones((3, 9), "f4")}
LSTM = torch.nn.LSTM(3, 5).state_dict()


def answer(call):
    try:
        return call()
    except rl.Error as error:
        return f"{type(error).__name__}: {error}"


QUESTIONS = [
    lambda: rl.infer_spec(GRU, reset="before"),
    lambda: rl.infer_spec(GRU, reset="after"),
    lambda: rl.infer_spec(GRU),
    lambda: rl.Weights(GRU, rl.Spec("gru", 2, 3, bias=False, reset="before")).spec,
    lambda: rl.Weights(GRU, rl.Spec("gru", 2, 4, bias=False)).spec,
    lambda: rl.infer_spec(GRU, "coreml", reset="after"),
    lambda: rl.infer_spec({f"a/{k}": v for k, v in GRU.items()}, reset="after"),
    lambda: rl.infer_spec(GRU, prefix="a", reset="after"),
    lambda: rl.infer_spec(GRU | {"kernel": np.ones((4, 9), "f4")}, reset="after"),
    lambda: rl.infer_spec({k: v.astype("f8") for k, v in GRU.items()}, reset="after"),
    lambda: rl.infer_spec([*GRU.values()], "keras", reset="after"),
    lambda: rl.infer_spec(torch.nn.LSTM(3, 5)),
    lambda: rl.infer_spec(LSTM),
    lambda: rl.infer_spec({k: LSTM[k] for k in list(LSTM)[:2]}),
    lambda: rl.infer_spec(torch.nn.LSTM(3, 5, proj_size=2)),
    lambda: rl.infer_spec(torch.nn.GRU(3, 5)),
]


def test_the_order_of_questions_makes_no_difference():
    """The first answers are those of a process that keeps nothing from call to call."""
    first = []
    for question in QUESTIONS:
        fitting.fitting_rnns.cache_clear()
        fitting.names_in_layouts.cache_clear()
        first.append(answer(question))
    assert len(set(map(repr, first))) > 10  # some questions have one answer
    for seed in range(4):
        for k in np.random.default_rng(seed).permutation([*range(len(QUESTIONS))] * 2):
            assert answer(QUESTIONS[k]) == first[k]


def test_the_first_layer_of_a_stack_is_not_read_as_a_whole_rnn():
    first = {f"0/{name}": value for name, value in GRU.items()}
    with pytest.raises(rl.LayoutError, match="missing '1/kernel', '1/recurrent_kernel'"):
        rl.infer_spec(first, reset="after")
    assert rl.infer_spec(first, prefix="0", reset="after").num_layers == 1


def test_two_names_of_one_tensor_were_one_tensor():
    """Names of Flax's tensors may have dots for slashes, but not in two of the same tensor."""
    spec = rl.Spec("lstm", 3, 4)
    tensors = {name: np.ones(shape, "f4") for name, shape in rl.describe(spec, "flax-nnx").items()}
    dotted = {name.replace("/", "."): value for name, value in tensors.items()}
    assert rl.infer_spec(dotted) == rl.infer_spec(tensors) == spec
    name = next(name for name in tensors if "/" in name)
    with pytest.raises(rl.LayoutError):
        rl.infer_spec(tensors | {name.replace("/", "."): np.zeros_like(tensors[name])})
