"""Weights of Keras 1: tf_keras (Keras 2) still reads them."""

import numpy as np
import pytest
import tf_keras
from convert.meaning import check_meaning
from oracles.frameworks import H, I, keras_layers, run_keras, seeded, weight
from tf_keras.src.saving.legacy.hdf5_format import preprocess_weights_for_loading

import rnnlayout as rl

ANSWERS_FOR = ("keras1",)

# cell, its gates in the order of Keras 1, whose list has W, U and b of one gate after the other
KERAS1 = {"lstm": ["_i", "_c", "_f", "_o"], "gru": ["_z", "_r", "_h"], "rnn_tanh": [""]}


@pytest.mark.parametrize("cell", KERAS1)
def test_as_keras_2_reads_them(cell):
    rng = seeded("keras 1", cell)
    shapes = {"W": (I, H), "U": (H, H), "b": (H,)}
    old = {f"{name}{gate}": weight(rng, shape)
           for gate in KERAS1[cell] for name, shape in shapes.items()}  # fmt: skip
    spec = rl.Spec(cell, I, H, reset="before" if cell == "gru" else "after")
    layers = keras_layers(spec, tf_keras)
    read = preprocess_weights_for_loading(layers[0], list(old.values()), "1", "tensorflow")
    new = rl.convert(old, spec, layout="keras1", to="keras", exact=True)
    assert len(read) == len(new)
    for array, wanted in zip(new.values(), read, strict=True):
        assert array.tobytes() == np.asarray(wanted).tobytes()

    layers[0].set_weights(read)
    check_meaning("keras1", old, spec, lambda *given: run_keras(layers, *given))


def test_a_list_in_the_order_of_keras_1_is_refused():
    """It has W, U and b of one gate after the other; the layout all W, then all U, then all b."""
    names = [name + gate for gate in KERAS1["lstm"] for name in "WUb"]
    own = rl.describe(rl.Spec("lstm", I, H), "keras1")
    with pytest.raises(rl.LayoutError):
        rl.infer_spec([np.zeros(own[name], "f4") for name in names], "keras1")
