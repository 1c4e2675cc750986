"""The slots of optimizers in checkpoints of TensorFlow: each slot of each RNN, bit for bit."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from oracles.frameworks import KERAS_NOISE

import rnnlayout as rl

pytestmark = KERAS_NOISE
I, H = 3, 5  # noqa: E741


def trained(optimizer):
    model = tf_keras.Sequential(
        [tf_keras.layers.Input((4, I)), tf_keras.layers.LSTM(H), tf_keras.layers.Dense(2)]
    )
    x = tf.reshape(tf.linspace(-1.0, 1.0, 2 * 4 * I), (2, 4, I))
    for _ in range(2):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x) ** 3)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return model


KINDS = {
    "Adam": {"m": "gradient", "v": "squared_gradient"},
    "SGD": {"momentum": "gradient"},
    "RMSprop": {"rms": "squared_gradient"},
}


@pytest.mark.parametrize("name", KINDS)
def test_each_slot_is_the_optimizers_own(name, tmp_path):
    options = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(tf_keras.optimizers.legacy, name)(0.01, **options)
    model = trained(optimizer)
    tf.train.Checkpoint(model=model, optimizer=optimizer).write(str(tmp_path / "a"))
    (weights,) = rl.load(tmp_path / "a.index").values()
    state = weights.optimizer
    assert {slot: w.kind for slot, w in state.slots.items()} == KINDS[name]
    assert (state.step, state.path, state.notes) == (2, "optimizer", ())
    assert state.hyperparameters["learning_rate"] == np.float32(0.01)
    for slot, arrays in state.slots.items():
        variables = model.layers[0].trainable_variables
        for variable, array in zip(variables, arrays.values(), strict=True):
            assert array.tobytes() == optimizer.get_slot(variable, slot).numpy().tobytes()
            assert array.any()


def test_numbered_variables_are_named(tmp_path):
    optimizer = tf_keras.optimizers.Adam()
    model = trained(optimizer)
    tf.train.Checkpoint(model=model, optimizer=optimizer).write(str(tmp_path / "a"))
    found = rl.load(tmp_path / "a.index")
    (weights,) = found.values()
    assert weights.optimizer is None
    (note,) = (note for note in found.notes if "does not record which tensors its numbered" in note)
    model.compile(optimizer)
    advice = note.rpartition(": save the whole compiled model, ")[2]
    eval(advice.replace("model.keras", f"{tmp_path}/m.keras"), {"model": model})
    (saved,) = rl.load(tmp_path / "m.keras").values()  # its number depends on the tests before
    assert saved.optimizer.step == 2
