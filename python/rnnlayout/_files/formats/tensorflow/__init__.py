"""Checkpoints of TensorFlow 1 and 2, read without TensorFlow."""
