"""Write tf2onnx-mask.onnx: a masked LSTM of Keras 2, which tf2onnx makes a Loop.

In an environment with tensorflow 2.21, tf_keras 2.21 and tf2onnx 1.17:
TF_USE_LEGACY_KERAS=1 python record_tf2onnx.py
"""

import numpy as np

np.cast = {}  # of NumPy 1: tf2onnx 1.17 looks it up when it is imported

import tensorflow as tf  # noqa: E402
import tf2onnx  # noqa: E402
import tf_keras  # noqa: E402

tf_keras.utils.set_random_seed(0)
layers = [tf_keras.Input((4, 3)), tf_keras.layers.Masking(), tf_keras.layers.LSTM(2, name="enc")]
model = tf_keras.Sequential(layers)
call = tf.function(lambda x: model(x))
signature = [tf.TensorSpec((None, 4, 3), tf.float32)]
tf2onnx.convert.from_function(call, signature, opset=15, output_path="tf2onnx-mask.onnx")
