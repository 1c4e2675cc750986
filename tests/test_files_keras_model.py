"""Old Keras models with cuDNN layers, converted: Keras 3 loads them and computes the same.

The files are written by tf_keras with its own CuDNNLSTM and CuDNNGRU; what is right is what
tf_keras's LSTM and GRU compute with the weights that its own loader makes of them.
"""

import json
import os

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import h5py
import keras
import numpy as np
import old_keras_models as old
import pytest

import rnnlayout as rl

# Both sides compute in float32. A sum in a gate has at most 8 + 5 + 2 terms, which are below 1: it
# errs by 15 units in the last place at most, and so do both sides. A state goes through at most 8
# steps of 3 layers; a gate passes on at most a quarter of what 5 units and 8 inputs bring with
# weights of 0.4, 13 * 0.4 / 4 = 1.3 times the error, and averages of the states keep it.
TOLERANCE = 2 * 15 * 2.0**-24 * 8 * 3 * 1.3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("old_keras")


@pytest.fixture(scope="module", params=list(old.MODELS))
def case(request, folder):
    """A model's name, its file, its weights' file, and inputs with the outputs that are right."""
    model, weights, twin = old.write(request.param, folder)
    x = old.inputs_of(request.param, twin)
    calls = [flat(twin(x)) for _ in range(2)]  # a stateful one goes on where it was
    return request.param, model, weights, x, calls


def flat(outputs):
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return [np.asarray(keras.ops.convert_to_numpy(out)) for out in outputs]


def same(model, x, calls):
    for wanted in calls:
        got = flat(model(x))
        assert len(got) == len(wanted)
        assert all(np.abs(wanted[0]).max() > 100 * TOLERANCE for wanted in [wanted])
        for a, b in zip(got, wanted, strict=True):
            assert a.shape == b.shape
            assert np.abs(a - b).max() <= TOLERANCE
    return True
