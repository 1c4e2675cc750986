"""Write keras-checkpoint/: a checkpoint of a trained model of Keras 3, and the model as .keras.

KERAS_BACKEND=tensorflow python tests/data/record_keras_checkpoint.py, with TensorFlow 2.21 and
Keras 3.15: tf.train.Checkpoint takes models of the backend TensorFlow alone.
"""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

folder = Path(__file__).with_name("keras-checkpoint")
model = keras.Sequential(
    [
        keras.Input((None, 5)),
        keras.layers.LSTM(3, return_sequences=True, name="enc"),
        keras.layers.GRU(4, name="dec"),
        keras.layers.Dense(2),
    ]
)
model.compile("adam", "mse")
model.fit(np.zeros((2, 6, 5)), np.zeros((2, 2)), verbose=0)
tf.train.Checkpoint(model=model).write(str(folder / "trained"))
model.save(folder / "model.keras")
