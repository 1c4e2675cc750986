"""Models of TFLite (LiteRT), read without TensorFlow."""
