"""A published worked example: a Keras GRU and the flat vector that cuDNN received for it."""

import json

import numpy as np
from commands import TESTS
from oracles.some import same_bits

import rnnlayout as rl

ANSWERS_FOR = ("keras",)

EXAMPLE = json.loads((TESTS / "data/keras-gru-worked-example.json").read_text())
WEIGHTS = {name: np.array(values, "float32") for name, values in EXAMPLE["keras"].items()}
PRINTED = np.array(EXAMPLE["cudnn_flat"])


def test_it_packs_to_the_printed_vector_and_unpacks_again():
    flat = rl.pack(WEIGHTS)
    # Half a unit of the sixth decimal. One element is an exact tie in decimal, which float32 may
    # miss by one ulp of the largest magnitude below 1, 2^-24.
    assert np.abs(flat.astype("float64") - PRINTED).max() <= 0.5e-6 + 2.0**-24
    spec = rl.infer_spec(WEIGHTS)
    assert spec == rl.Spec("gru", 2, 3)
    assert same_bits(dict(rl.unpack(flat, spec, to="keras")), WEIGHTS)


def test_the_printed_vector_unpacks_to_the_printed_weights():
    back = rl.unpack(PRINTED, rl.Spec("gru", 2, 3, dtype="float64"), to="keras")
    for name, array in WEIGHTS.items():
        assert np.abs(back[name] - array).max() <= 0.5e-6 + 2.0**-24
